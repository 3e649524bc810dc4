"""A name becomes a model that is ready to be asked; what is wrong with it is said in one line."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnviz.attention_map import Provenance
from attnviz.errors import AttnvizError, ModelError, did_you_mean
from attnviz.hugging_face.capture import IMPLEMENTATION
from attnviz.hugging_face.checkpoint import Checkpoint, check_folder
from attnviz.hugging_face.devices import (
    BYTES,
    check_fit,
    choose_device,
    choose_dtype,
    memory_errors,
)
from attnviz.hugging_face.locate import first_line, locate
from attnviz.hugging_face.quiet import quick_imports, quiet

if TYPE_CHECKING:
    from attnviz.hugging_face.family import Family
    from attnviz.hugging_face.model import HuggingFaceModel

HEADS = re.compile(r"(^|\.)(pooler|lm_head|final_logits_bias|final_layer_norm_head)(\.|$)")
"""Weights that a checkpoint may lack, because no attention depends on them."""


def load_model(
    name: str,
    *,
    device: str = "auto",
    dtype: str | None = None,
    revision: str | None = None,
    allow_pickle: bool = False,
    allow_code: bool = False,
) -> HuggingFaceModel:
    """A pretrained model, ready to be asked for its attention.

    Args:
        name: a folder, or a model's id on the hub (looked for in the local cache first).
        device: "auto" (the fastest there is), "cpu", "cuda" or "mps".
        dtype: "float32", "float16", "bfloat16" or "float64"; None: float32 on a CPU, elsewhere
            the precision that the checkpoint is stored in.
        revision: a branch, a tag or a commit of a hub model.
        allow_pickle: whether weights may come from a pickle, which can hide code.
        allow_code: whether Python code that comes with the model may run.

    Raises:
        UsageError: a device, precision or revision that does not exist.
        ModelError: the model or its tokenizer cannot be found or loaded.
    """
    folder = locate(name, revision, allow_code=allow_code)
    checkpoint = check_folder(folder, allow_pickle=allow_pickle)
    with quick_imports():
        place = choose_device(device)
        precision = choose_dtype(dtype, place.type, checkpoint.dtypes)
        check_fit(
            checkpoint.numbers * BYTES[precision],
            place,
            f"'{name}' in {precision}",
            "use a smaller model, or --dtype bfloat16",
        )
        with quiet(), translated(name), memory_errors(f"'{name}'", "use a smaller model"):
            config = load_config(checkpoint, name, allow_code=allow_code)
            tokenizer = load_tokenizer(folder, name, allow_code=allow_code)
            model, report = load_weights(checkpoint, config, precision, allow_code=allow_code)
            check_report(report, name)
            model = model.to(place).eval()
            return assemble(name, checkpoint, model, tokenizer, report)


@contextmanager
def translated(name: str) -> Iterator[None]:
    """Turn what transformers and its parts raise while loading into one line.

    Raises:
        ModelError: whatever it was.
    """
    from pickle import UnpicklingError

    from safetensors import SafetensorError

    foreign = (OSError, ValueError, RuntimeError, KeyError, TypeError, AttributeError, ImportError)
    try:
        yield
    except AttnvizError:
        raise
    except (*foreign, EOFError, UnpicklingError, SafetensorError) as error:
        raise ModelError(f"'{name}' cannot be loaded: {first_line(error)}") from error


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


def load_weights(
    checkpoint: Checkpoint, config: Any, precision: str, *, allow_code: bool
) -> tuple[Any, Mapping[str, Any]]:
    """The model on the CPU, and transformers' report on what did not fit."""
    import torch
    from transformers import AutoModel, AutoModelForSeq2SeqLM
    from transformers.models.auto.modeling_auto import (
        MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES as WRITERS,
    )

    # An encoder–decoder keeps its language-model head, to write a target where none is given.
    writes = config.is_encoder_decoder and config.model_type in WRITERS
    kind = AutoModelForSeq2SeqLM if writes else AutoModel
    model, report = kind.from_pretrained(
        checkpoint.folder,
        config=config,
        dtype=getattr(torch, precision),
        attn_implementation=IMPLEMENTATION,
        use_safetensors=not checkpoint.pickled,
        local_files_only=True,
        trust_remote_code=allow_code,
        output_loading_info=True,
    )
    return model, report


def check_report(report: Mapping[str, Any], name: str) -> None:
    """Refuse a model of which something was left to chance.

    Raises:
        ModelError: the checkpoint lacks weights that attention depends on; transformers fills
            them with random numbers.
    """
    missing = sorted(key for key in report["missing_keys"] if not HEADS.search(key))
    if missing:
        raise ModelError(
            f"'{name}' lacks {len(missing)} weights that its configuration asks for "
            f"({', '.join(missing[:2])}{', …' if len(missing) > 2 else ''}): they would be random"
        )


def assemble(
    name: str, checkpoint: Checkpoint, model: Any, tokenizer: Any, report: Mapping[str, Any]
) -> HuggingFaceModel:
    """A loaded model with what is known about it.

    Raises:
        ModelError: it does not read text.
    """
    from attnviz.hugging_face.family import family_of, left_over_layers, reading_limit
    from attnviz.hugging_face.model import HuggingFaceModel

    if model.main_input_name != "input_ids":
        raise ModelError(
            f"'{name}' ({model.config.model_type}) does not read text: it asks for "
            f"'{model.main_input_name}'"
        )
    family = family_of(model)
    writes = hasattr(model, "prepare_decoder_input_ids_from_labels") and model.can_generate()
    return HuggingFaceModel(
        name=name,
        model=model,
        tokenizer=tokenizer,
        family=family,
        limit=reading_limit(model, tokenizer),
        provenance=describe(name, checkpoint, model, family, left_over_layers(report, model)),
        can_generate=writes and not any("lm_head" in key for key in report["missing_keys"]),
    )


def describe(
    name: str, checkpoint: Checkpoint, model: Any, family: Family, left_over: int
) -> Provenance:
    """Where a model came from and how it was loaded."""
    import torch
    import transformers

    dtype = str(model.dtype).removeprefix("torch.")
    folder = checkpoint.folder
    stored = ", ".join(checkpoint.dtypes)
    settings = {
        "revision": folder.name if folder.parent.name == "snapshots" else None,
        "architecture": type(model).__name__,
        "model_type": model.config.model_type,
        "family": family,
        "attention": IMPLEMENTATION,
        "stored_as": stored or None,
    }
    notes = []
    if dtype in {"float16", "bfloat16"}:
        notes.append(f"computed in {dtype}: weights are good to two digits, rows sum to 1 roughly")
    if left_over:
        notes.append(
            f"the checkpoint holds {left_over} weights of layers that its configuration leaves out"
        )
    return Provenance(
        source="hugging face",
        model=name,
        trained=True,
        device=model.device.type,
        dtype=dtype,
        settings={key: value for key, value in settings.items() if value is not None},
        notes=tuple(notes),
        versions={"torch": str(torch.__version__), "transformers": transformers.__version__},
    )
