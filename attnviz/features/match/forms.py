"""How a checkpoint of late interaction reads queries and documents, as its folder says.

ColBERT (Khattab & Zaharia 2020; Santhanam et al. 2022) puts a marker behind [CLS], fills queries up
with mask tokens, and leaves punctuation of documents out. Its own checkpoints say so in
`artifact.metadata`, those of PyLate in `config_sentence_transformers.json`.
"""

from __future__ import annotations

import string
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from attnviz.core.errors import ModelError
from attnviz.core.records import dataclass
from attnviz.models.hugging_face.load.checkpoint import check_folder, read_json

HF_COLBERT = "HF_ColBERT"
"""The architecture that checkpoints of ColBERT's own code name."""
ACTIVATIONS = ("Identity", "Tanh", "ReLU", "GELU", "SiLU")
"""Activations of torch behind a projection that are known; a name could load any code."""
PROJECTION = "linear.weight", "linear.bias", "residual.weight"


@dataclass(frozen=True, slots=True)
class SideForm:
    """How one side is read."""

    marker: str  # the token behind the first special one; empty: none
    length: int | None  # most tokens, special ones included; None: what the model reads
    name: str = ""  # what the marker is shown as; empty: as it is


@dataclass(frozen=True, slots=True)
class LateForm:
    """How queries and documents are read, and what makes their vectors."""

    query: SideForm
    document: SideForm
    expands: bool = False  # whether queries are filled up with mask tokens, which count
    attends: bool = False  # whether other tokens attend to these
    skipped: tuple[str, ...] = ()  # words of documents that are left out
    dense: tuple[Path, ...] = ()  # folders of projections, in order
    own_linear: bool = False  # whether the checkpoint itself holds the projection, `linear.weight`
    trained: bool = True  # False: a plain encoder


PLAIN = LateForm(SideForm("", None), SideForm("", None), trained=False)
"""Of an encoder that was not trained for late interaction: words as they are."""
PYLATE = {
    "query_prefix": "[Q] ",
    "document_prefix": "[D] ",
    "query_length": 32,
    "document_length": 180,
    "do_query_expansion": True,
    "attend_to_expansion_tokens": False,
    "skiplist_words": [*string.punctuation],
}
"""What PyLate takes where a folder says nothing."""


def form_of(folder: Path, config: Mapping[str, Any]) -> LateForm:
    """The form that a folder of a model asks for; `PLAIN` if it says nothing of late interaction.

    Raises:
        ModelError: a file of the folder is broken.
    """
    dense = _dense_folders(folder)
    own_linear = not dense and HF_COLBERT in (config.get("architectures") or [])
    if own_linear:
        return _form_of_colbert(folder)
    if dense or (folder / "config_sentence_transformers.json").is_file():
        facts = _facts(folder / "config_sentence_transformers.json")
        if dense or facts.get("query_prefix") is not None:
            return _form_of_pylate(facts, dense)
    return PLAIN


def _dense_folders(folder: Path) -> tuple[Path, ...]:
    """The projections of single tokens; of sentences, behind a pooling, none."""
    file = folder / "modules.json"
    modules = read_json(file) if file.is_file() else []
    if not isinstance(modules, list) or not all(isinstance(one, dict) for one in modules):
        raise ModelError(f"'{file}' lists no modules")
    kinds = [str(one.get("type")).rpartition(".")[2] for one in modules]
    if "Pooling" in kinds:
        return ()
    places = [
        folder / str(one.get("path"))
        for kind, one in zip(kinds, modules, strict=True)
        if kind == "Dense"
    ]
    for place in places:
        if not place.resolve().is_relative_to(folder.resolve()):
            raise ModelError(f"'{file}' names a folder outside its own: '{place}'")
    return tuple(places)


def _facts(file: Path) -> dict[str, Any]:
    facts = read_json(file) if file.is_file() else {}
    if not isinstance(facts, dict):
        raise ModelError(f"'{file}' says nothing by name")
    return facts


def _form_of_colbert(folder: Path) -> LateForm:
    facts = _facts(folder / "artifact.metadata")
    skip_words = tuple(string.punctuation) if facts.get("mask_punctuation", True) else ()
    return LateForm(
        SideForm(
            str(facts.get("query_token_id") or "[unused0]"),
            _length(facts.get("query_maxlen", 32)),
            "[Q]",
        ),
        SideForm(
            str(facts.get("doc_token_id") or "[unused1]"),
            _length(facts.get("doc_maxlen", 220)),
            "[D]",
        ),
        expands=True,
        attends=bool(facts.get("attend_to_mask_tokens", False)),
        skipped=skip_words,
        own_linear=True,
    )


def _form_of_pylate(facts: Mapping[str, Any], dense: tuple[Path, ...]) -> LateForm:
    facts = PYLATE | {name: value for name, value in facts.items() if value is not None}
    expands, words = bool(facts["do_query_expansion"]), facts["skiplist_words"]
    if not isinstance(words, list):
        raise ModelError(f"config_sentence_transformers.json skips {words!r}, which lists no words")
    return LateForm(
        SideForm(
            str(facts["query_prefix"]),
            _length(facts["query_length"]),
        ),
        SideForm(
            str(facts["document_prefix"]),
            _length(facts["document_length"]),
        ),
        expands=expands,
        attends=expands and bool(facts["attend_to_expansion_tokens"]),
        skipped=tuple(map(str, words)),
        dense=dense,
    )


def _length(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 4 <= value <= 1 << 20:
        raise ModelError(f"the model's folder gives a side {value!r} tokens: 4 or more are needed")
    return value


def projections(folder: Path, form: LateForm, *, allow_pickle: bool) -> list[Any]:
    """The projections of a form as modules of torch, in order, on the processor.

    Raises:
        ModelError: a file is missing, broken, or a pickle that is not allowed.
    """
    if form.own_linear:
        checkpoint = check_folder(folder, allow_pickle=allow_pickle)
        for file in checkpoint.files:
            if (weight := _tensors(file, allow_pickle).get("linear.weight")) is not None:
                return [_linear(weight, None, "Identity")]
        raise ModelError(f"'{folder}' names {HF_COLBERT} and lacks its projection, linear.weight")
    return [_dense(place, allow_pickle=allow_pickle) for place in form.dense]


def _dense(place: Path, *, allow_pickle: bool) -> Any:
    facts = _facts(place / "config.json")
    name = str(facts.get("activation_function") or "Identity")
    kind = name.rpartition(".")[2]
    if kind not in ACTIVATIONS or not name.startswith(("torch.nn.", kind)):
        raise ModelError(
            f"the projection in '{place}' is followed by '{name}': {', '.join(ACTIVATIONS)} are "
            "known"
        )
    file = place / "model.safetensors"
    tensors = _tensors(file if file.is_file() else place / "pytorch_model.bin", allow_pickle)
    if "linear.weight" not in tensors:
        raise ModelError(f"the projection in '{place}' has no linear.weight")
    linear = _linear(tensors["linear.weight"], tensors.get("linear.bias"), kind)
    if not facts.get("use_residual"):
        return linear
    return _with_residual(linear, tensors.get("residual.weight"))


def _tensors(file: Path, allow_pickle: bool) -> dict[str, Any]:  # noqa: FBT001 - of this file
    import torch
    from safetensors import SafetensorError, safe_open

    try:
        if file.suffix == ".safetensors":
            with safe_open(file, "pt") as content:
                names = {*content.keys()} & {*PROJECTION}
                return {name: content.get_tensor(name).float() for name in names}
        if not file.is_file():
            raise ModelError(f"'{file.parent}' holds no weights of its projection")
        if not allow_pickle:
            raise ModelError(
                f"'{file}' is a pickle, which can hide code: give --allow pickle if you trust it"
            )
        content = torch.load(file, map_location="cpu", weights_only=True)
        return {name: content[name].float() for name in PROJECTION if name in content}
    except (OSError, SafetensorError, ValueError, RuntimeError, AttributeError) as error:
        raise ModelError(f"'{file}' cannot be read: {str(error).splitlines()[0]}") from error


def _linear(weight: Any, bias: Any, activation: str) -> Any:
    import torch

    linear = torch.nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None)
    with torch.no_grad():
        linear.weight.copy_(weight)
        if bias is not None:
            linear.bias.copy_(bias)
    return torch.nn.Sequential(linear, getattr(torch.nn, activation)())


def _with_residual(linear: Any, weight: Any) -> Any:
    import torch

    beside = torch.nn.Identity() if weight is None else _linear(weight, None, "Identity")

    class Residual(torch.nn.Module):
        """What a projection makes of a vector, plus the vector, projected where sizes differ."""

        def __init__(self) -> None:
            super().__init__()
            self.linear, self.beside = linear, beside

        def forward(self, vectors: torch.Tensor) -> torch.Tensor:
            total: torch.Tensor = self.linear(vectors) + self.beside(vectors)
            return total

    return Residual()
