"""What is found of a type: a row, from a reading and transformers' eager weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

NEAR, RELATIVE = 1e-5, 2e-4
"""How far a weight may be from the eager one: absolutely, and beyond it relatively."""


@dataclass(frozen=True)
class Reading:
    """What attnviz showed of a small copy."""

    attention: Any  # an `Attention`
    inputs: Mapping[str, Any]  # tensors that the model was given, for an eager pass; none: no pass
    compared: tuple[Any, ...] = ()  # maps to compare in place of those that are shown
    # By stream, the positions of a map's last keys, and of its rows: else the last of the sequence.
    cells: Mapping[str, Any] = field(default_factory=dict)
    asking: Mapping[str, Any] = field(default_factory=dict)
    part: str | None = None  # the path of the part that reads the inputs; None: that which runs

    @property
    def maps(self) -> tuple[Any, ...]:
        """What is compared with eager weights."""
        return self.compared or self.attention.maps

    def cut(self, stream: str, given: list[Any], ours: list[Any]) -> tuple[list[Any], list[Any]]:
        """Ours and transformers' weights of the same queries and keys."""
        if stream not in self.cells:
            return ours, given
        places, rows = self.cells[stream], ours[0].shape[1]
        asking = self.asking.get(stream, slice(-rows, None))
        return [one[..., -len(places) :] for one in ours], [
            one[:, asking][..., places] for one in given if one.shape[-1] > max(places)
        ]


@dataclass(frozen=True)
class Row:
    """A line of the table."""

    name: str
    kind: str
    status: str  # "works", "refused", "not built", "part", "foreign error"
    attention: bool  # whether it has softmaxes over tokens
    route: str = ""
    streams: str = ""
    difference: float | None = None  # greatest difference from eager weights; None: none to compare
    reason: str = ""
    seconds: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def route_of(attention: Any) -> str:
    """How the maps were read."""
    how = str(attention.provenance.settings.get("attention", ""))
    streams = {item.stream for item in attention.maps}
    if streams == {"implied"}:
        return "implied"
    return "eager" if "output_attentions" in how else "probe" if "probed" in how else how


def eager_weights(model: Any, inputs: Mapping[str, Any]) -> dict[str, list[Any]]:
    """transformers' own weights by stream, (heads, queries, keys) for each layer with attention."""
    import torch

    output = model(**inputs, output_attentions=True, return_dict=True)
    found = {}
    for name in ("cross_attentions", "encoder_attentions", "decoder_attentions", "attentions"):
        layers = getattr(output, name, None) or ()
        matrices = [
            one[0].float().numpy()
            for one in layers
            if isinstance(one, torch.Tensor) and one.ndim == 4
        ]
        if matrices:
            found[name.removesuffix("attentions").strip("_")] = matrices
    return found


def difference(reading: Reading, expected: Mapping[str, list[Any]]) -> tuple[float | None, str]:
    """The greatest difference of the maps from eager weights, and why there is none."""
    worst, said = None, ""
    streams = dict.fromkeys(one.stream for one in reading.maps if one.stream != "implied")
    for stream in streams:
        ours = [layer for one in reading.maps if one.stream == stream for layer in one.weights]
        given = expected.get(stream) or expected.get("") or expected.get("encoder") or []
        ours, given = reading.cut(stream, given, ours)
        shapes = {one.shape for one in ours}
        theirs = [one for one in given if one.shape in shapes]  # some give out states as well
        if not given:
            said = "eager gives out no weights"
        elif [one.shape for one in ours] != [one.shape for one in theirs]:
            said = f"eager gives out {len(given)} arrays of other shapes for {len(ours)} layers"
        elif any(np.isnan(one).any() for one in theirs):
            said = "eager weights are NaN"
        else:
            off = farthest(ours, theirs)
            if off > NEAR and reading.attention.learned_sink:
                off = farthest([one / one.sum(-1, keepdims=True) for one in ours], theirs)
                said = "eager leaves the learned sink out: shares of the rest were compared"
            worst = off if worst is None else max(worst, off)
    return worst, said


def farthest(ours: list[Any], theirs: list[Any]) -> float:
    """The greatest difference of layers."""
    return max(far(one, other) for one, other in zip(ours, theirs, strict=True))


def far(ours: Any, theirs: Any) -> float:
    """The greatest difference, less what is allowed of it relatively."""
    return float(np.max(np.abs(ours - theirs) - RELATIVE * np.abs(theirs), initial=0.0))


def apart(some: Mapping[str, list[Any]], others: Mapping[str, list[Any]]) -> float:
    """The greatest difference between two passes' weights."""
    pairs = ((one, two) for name in some for one, two in zip(some[name], others[name], strict=True))
    return max(float(np.max(np.abs(one - two))) for one, two in pairs)
