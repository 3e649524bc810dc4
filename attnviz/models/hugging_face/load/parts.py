"""The parts of a model as transformers loads them: configuration, tokenizer and weights.

Where transformers would go on with something made up (an empty tokenizer, random layers), or ask
on the terminal whether to run code, this refuses.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from attnviz.core.errors import ModelError, did_you_mean
from attnviz.models.hugging_face.load.checkpoint import Checkpoint
from attnviz.models.hugging_face.load.errors import first_line
from attnviz.models.hugging_face.load.tasks import HEAD, task_of

HEADS = re.compile(r"(^|\.)(pooler|lm_head|final_logits_bias)(\.|$)")
"""Weights that a checkpoint may lack, because no attention depends on them."""


def load_config(checkpoint: Checkpoint, name: str, *, allow_code: bool) -> Any:
    """The model's configuration, as transformers understands it.

    Raises:
        ModelError: transformers does not know the architecture, or not without the checkpoint's
            own code.
    """
    import transformers
    from transformers import CONFIG_MAPPING, AutoConfig

    kind = checkpoint.config["model_type"]
    if kind not in CONFIG_MAPPING and not allow_code:
        if "auto_map" in checkpoint.config:
            raise ModelError(
                f"'{name}' needs Python code that comes with it (architecture '{kind}'): give "
                "--allow-code if you trust it"
            )
        raise ModelError(
            f"transformers {transformers.__version__} does not know the architecture '{kind}' of "
            f"'{name}'.{did_you_mean(kind, CONFIG_MAPPING)}"
        )
    return AutoConfig.from_pretrained(
        checkpoint.folder, local_files_only=True, trust_remote_code=allow_code
    )


def load_tokenizer(folder: Path, name: str, *, allow_code: bool) -> Any:
    """The model's tokenizer.

    Raises:
        ModelError: its files are missing. transformers makes a tokenizer all the same, which takes
            every word for an unknown one.
    """
    from transformers import AutoTokenizer

    missing = ModelError(
        f"'{name}' has no tokenizer: its folder holds none of the files that one is made from "
        "(tokenizer.json, vocab.txt, tokenizer.model, …)"
    )
    try:
        tokenizer = AutoTokenizer.from_pretrained(
            folder, local_files_only=True, trust_remote_code=allow_code
        )
    except (OSError, ValueError, TypeError, KeyError, AttributeError, ImportError) as error:
        if not any(folder.glob("*token*")) and not any(folder.glob("*vocab*")):
            raise missing from error
        raise ModelError(
            f"the tokenizer of '{name}' cannot be loaded: {first_line(error)}"
        ) from error
    if lacks_files(folder, type(tokenizer).vocab_files_names):
        raise missing
    return tokenizer


def lacks_files(folder: Path, named: Mapping[str, str]) -> bool:
    """True where a tokenizer came out empty, for want of the files that its class names.

    One file, tokenizer.json, stands for all others; a tokenizer of plain bytes names none.
    """
    optional = {"tokenizer_config_file", "added_tokens_file", "target_vocab_file"}
    needed = [file for kind, file in named.items() if kind not in optional | {"tokenizer_file"}]
    needed = needed or list(named.values())
    return not (folder / "tokenizer.json").is_file() and not all(
        (folder / file).is_file() for file in needed
    )


def model_kind(config: Any, *, with_head: bool = False) -> Any:
    """The class to load a model with; its architecture's code is imported on the way.

    A model whose own architecture decides something keeps the head that does.
    Any other encoder–decoder keeps its language-model head, to write a target where none is given.

    Args:
        config: of the checkpoint.
        with_head: whether to keep any head that the checkpoint names, such as for masked words.
    """
    import transformers
    from transformers import (
        MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING,
        MODEL_MAPPING,
        AutoModel,
        AutoModelForSeq2SeqLM,
    )

    task = task_of(config)
    writes = config.is_encoder_decoder and type(config) in MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING
    if writes and task is None:
        MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING.get(type(config), None)
        return AutoModelForSeq2SeqLM
    MODEL_MAPPING.get(type(config), None)
    if with_head and hasattr(transformers, (config.architectures or [""])[0]):
        return getattr(transformers, config.architectures[0])
    return AutoModel if task is None else getattr(transformers, task.loader)


def load_weights(
    kind: Any,
    checkpoint: Checkpoint,
    config: Any,
    precision: str,
    *,
    allow_code: bool,
    device_map: str | None = None,
) -> tuple[Any, Mapping[str, Any]]:
    """The model, and transformers' report on what did not fit.

    It is on the CPU, or with a device map spread as accelerate sees fit.
    """
    import torch

    model, report = kind.from_pretrained(
        checkpoint.folder,
        config=config,
        dtype=getattr(torch, precision),
        use_safetensors=not checkpoint.pickled,
        local_files_only=True,
        trust_remote_code=allow_code,
        output_loading_info=True,
        **({} if device_map is None else {"device_map": device_map}),
    )
    return model, report


def check_report(report: Mapping[str, Any], name: str) -> None:
    """Refuse a model of which something was left to chance.

    Raises:
        ModelError: the checkpoint lacks weights that attention depends on; transformers fills
            them with random numbers.
    """
    missing = sorted(
        key for key in report["missing_keys"] if not HEADS.search(key) and not HEAD.match(key)
    )
    if missing:
        raise ModelError(
            f"'{name}' lacks {len(missing)} weights that its configuration asks for "
            f"({', '.join(missing[:2])}{', …' if len(missing) > 2 else ''}): they would be random"
        )
