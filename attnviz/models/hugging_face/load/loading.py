"""A name becomes a model that is ready to be asked; what is wrong with it is said in one line."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnviz.core.attention_map import Provenance
from attnviz.models.hugging_face.load.checkpoint import Checkpoint, check_folder
from attnviz.models.hugging_face.load.devices import (
    BYTES,
    check_device_map,
    check_fit,
    choose_device,
    choose_dtype,
)
from attnviz.models.hugging_face.load.errors import loading, quick_imports, quiet
from attnviz.models.hugging_face.load.locate import locate
from attnviz.models.hugging_face.load.parts import (
    check_report,
    load_config,
    load_weights,
)

if TYPE_CHECKING:
    from attnviz.models.hugging_face.load.tasks import Task


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """How a model is to be loaded.

    Attributes:
        device: "auto" (the fastest there is), "cpu", "cuda" or "mps".
        dtype: "float32", "float16", "bfloat16" or "float64"; None: float32 on a CPU, elsewhere
            the precision that the checkpoint is stored in.
        revision: a branch, a tag or a commit of a hub model.
        allow_pickle: whether weights may come from a pickle, which can hide code.
        allow_code: whether Python code that comes with the model may run.
        device_map: how accelerate spreads a model that is larger than one device ("auto").
    """

    device: str = "auto"
    dtype: str | None = None
    revision: str | None = None
    allow_pickle: bool = False
    allow_code: bool = False
    device_map: str | None = None


@dataclass(frozen=True, slots=True, eq=False)
class LoadedParts:
    """A model as transformers loads it, with what reads its inputs.

    Attributes:
        model: on its device, in evaluation mode.
        reader: its tokenizer, image processor, or both in one.
        provenance: where it came from.
        report: what did not fit between checkpoint and model.
        task: what its head decides, if it has one that does and that was trained.
    """

    model: Any
    reader: Any
    provenance: Provenance
    report: Mapping[str, Any]
    task: Task | None


def load_parts(
    name: str,
    terms: LoadOptions,
    load_reader: Callable[[Path, str], Any],
    kind_of: Callable[[Any], Any],
) -> LoadedParts:
    """A model and what reads its inputs, as they come from their folder.

    Args:
        name: a folder, or a model's id on the hub.
        terms: how to load it.
        load_reader: what makes a tokenizer or an image processor from a folder and a name.
        kind_of: what chooses the class to load a configuration's model with.

    Raises:
        UsageError: a device, precision or revision that does not exist.
        ModelError: something cannot be found or loaded.
    """
    check_device_map(terms.device_map, terms.device)
    folder = locate(name, terms.revision, allow_code=terms.allow_code)
    checkpoint = check_folder(folder, allow_pickle=terms.allow_pickle)
    with quick_imports():
        place = choose_device(terms.device)
    precision = choose_dtype(terms.dtype, place.type, checkpoint.dtypes)
    if terms.device_map is None:
        check_fit(
            checkpoint.numbers * BYTES[precision],
            place,
            f"'{name}' in {precision}",
            "use a smaller model, --dtype bfloat16, or --device-map auto",
        )
    with quiet(), loading(name):
        with quick_imports():
            config = load_config(checkpoint, name, allow_code=terms.allow_code)
            reader = load_reader(folder, name)
            kind = kind_of(config)
        model, report = load_weights(
            kind,
            checkpoint,
            config,
            precision,
            allow_code=terms.allow_code,
            device_map=terms.device_map,
        )
        check_report(report, name)
        # accelerate has put each layer where it belongs, and moving the whole would undo it.
        model = (model if terms.device_map else model.to(place)).eval()
    task, provenance = decider(model, report, describe(name, checkpoint, model, report))
    return LoadedParts(model, reader, provenance, report, task)


def decider(
    model: Any, report: Mapping[str, Any], provenance: Provenance
) -> tuple[Task | None, Provenance]:
    """What a model's head decides, and a note where the head's weights are missing."""
    from attnviz.models.hugging_face.load.tasks import HEAD, task_of

    task = task_of(model.config)
    if task is None or not any(HEAD.match(key) for key in report["missing_keys"]):
        return task, provenance
    lacking = "the checkpoint lacks the weights of its classifier: what it decides is not shown"
    return None, replace(provenance, notes=(*provenance.notes, lacking))


def describe(
    name: str, checkpoint: Checkpoint, model: Any, report: Mapping[str, Any]
) -> Provenance:
    """Where a model came from and how it was loaded."""
    import torch
    import transformers

    from attnviz.models.hugging_face.load.family import left_over_layers

    left_over = left_over_layers(report, model)
    dtype = str(model.dtype).removeprefix("torch.")
    folder = checkpoint.folder
    stored = ", ".join(checkpoint.dtypes)
    settings = {
        "revision": folder.name if folder.parent.name == "snapshots" else None,
        "architecture": type(model).__name__,
        "model_type": model.config.model_type,
        "attention": model.config._attn_implementation,
        "stored_as": stored or None,
        "devices": devices_of(model),
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


def devices_of(model: Any) -> str | None:
    """The devices that a model was spread over, None where it is on one."""
    spread = getattr(model, "hf_device_map", None)
    return ", ".join(sorted({str(place) for place in spread.values()})) if spread else None
