"""A name becomes a model that is ready to be asked; what is wrong with it is said in one line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from attnviz.attention_map import Provenance
from attnviz.errors import ModelError
from attnviz.hugging_face.border import loading
from attnviz.hugging_face.checkpoint import Checkpoint, check_folder
from attnviz.hugging_face.continuation import writer_kind
from attnviz.hugging_face.devices import BYTES, check_fit, choose_device, choose_dtype
from attnviz.hugging_face.locate import locate
from attnviz.hugging_face.parts import (
    check_report,
    load_config,
    load_tokenizer,
    load_weights,
    model_kind,
)
from attnviz.hugging_face.quiet import quick_imports, quiet

if TYPE_CHECKING:
    from attnviz.hugging_face.family import Family
    from attnviz.hugging_face.model import HuggingFaceModel


def load_model(
    name: str,
    *,
    device: str = "auto",
    dtype: str | None = None,
    revision: str | None = None,
    allow_pickle: bool = False,
    allow_code: bool = False,
    generate: int | None = None,
    chat: bool = False,
    with_head: bool = False,
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
        generate: how many tokens it is to write at most; None: only a target that is missing.
        chat: whether texts are read as the user's turn of a conversation.
        with_head: whether to keep the head that predicts something, where there is one.

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
    with quiet(), loading(name):
        with quick_imports():
            config = load_config(checkpoint, name, allow_code=allow_code)
            tokenizer = load_tokenizer(folder, name, allow_code=allow_code)
            kind = model_kind(config, with_head=with_head)
        if generate is not None:
            kind = writer_kind(config, name)
        model, report = load_weights(kind, checkpoint, config, precision, allow_code=allow_code)
        check_report(report, name)
        model = model.to(place).eval()
    loaded = assemble(name, checkpoint, model, tokenizer, report)
    return replace(loaded, writes=generate, chats=chat)


def assemble(
    name: str, checkpoint: Checkpoint, model: Any, tokenizer: Any, report: Mapping[str, Any]
) -> HuggingFaceModel:
    """A loaded model with what is known about it.

    Raises:
        ModelError: it does not read text.
    """
    from attnviz.hugging_face.family import family_of, left_over_layers, reading_limit
    from attnviz.hugging_face.model import HuggingFaceModel
    from attnviz.hugging_face.tasks import HEAD, task_of

    if model.main_input_name != "input_ids":
        raise ModelError(
            f"'{name}' ({model.config.model_type}) does not read text: it asks for "
            f"'{model.main_input_name}'"
        )
    family = family_of(model)
    task = None if family == "encoder–decoder" else task_of(model.config)
    provenance = describe(name, checkpoint, model, family, left_over_layers(report, model))
    if task and any(HEAD.match(key) for key in report["missing_keys"]):
        task = None
        lacking = f"'{name}' lacks the weights of its classifier: what it decides is not shown"
        provenance = replace(provenance, notes=(*provenance.notes, lacking))
    return HuggingFaceModel(
        name=name,
        model=model,
        tokenizer=tokenizer,
        family=family,
        limit=reading_limit(model, tokenizer),
        provenance=provenance,
        can_generate=model.can_generate()
        and not any("lm_head" in key for key in report["missing_keys"]),
        task=task,
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
        "attention": model.config._attn_implementation,
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
