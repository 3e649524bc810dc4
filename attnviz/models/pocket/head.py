"""One head of a shipped model in its own numbers, from its layer's input to what it adds."""

from __future__ import annotations

from typing import Any

from attnviz.mechanisms.arrays import to_numpy
from attnviz.mechanisms.dot_product import LOWER, causal_mask, scaled
from attnviz.mechanisms.formula import HeadArithmetic, HeadPlace, Part
from attnviz.models.pocket.lens_inputs import seen_of
from attnviz.models.pocket.stored import StoredModel


def worked_head(model: StoredModel, query: Any, which: HeadPlace) -> HeadArithmetic:
    """One head's numbers, from the layer's input to what it adds to the residual stream."""
    name = model.streams[which.stream].format(which.layer)
    seen, size = seen_of(model, query)[name], model.sizes.size // model.sizes.heads
    own = slice(int(which.head) * size, (int(which.head) + 1) * size)
    crossed = seen.memory is not seen.inputs
    parts = [
        Part("layer_input", seen.residual, "", "qf"),
        Part("normalised", seen.inputs, model.normalised, "qf"),
    ]
    parts += [Part("memory", seen.memory, "", "kf")] if crossed else []
    sides, biased = [], f"{name}.{model.projections[3]}.bias" in model.weights
    for side, projection in zip(("query", "key", "value"), model.projections, strict=False):
        source = "memory" if crossed and side != "query" else "normalised"
        axes = "qf" if side == "query" else "kf"
        weight = model.weights[f"{name}.{projection}.weight"][own].T
        parts.append(Part(f"w_{side}", weight, "", "ff"))
        shown = f"{source} @ w_{side}"
        if biased:
            bias = model.weights[f"{name}.{projection}.bias"][None, own]
            parts.append(Part(f"b_{side}", bias, "", "ff"))
            shown += f" + b_{side}"
        if model.turned and side != "value":
            parts.append(Part(f"plain_{side}", seen.inputs @ weight, shown, axes))
            shown = f"pairs of plain_{side} turned by position"
        made = getattr(seen, side)[:, own]
        parts.append(Part(side, made, shown, axes))
        sides.append(made)
    mask = None
    if which.stream in ("decoder", "causal"):
        mask = causal_mask(sides[0], len(sides[0]), len(sides[1]))
        parts.append(Part("mask", mask, LOWER))
    parts += scaled.parts(sides[0], sides[1], sides[2], mask)
    mixed = parts.pop().value
    weight = model.weights[f"{name}.{model.projections[3]}.weight"][:, own].T
    parts += [
        Part("head_output", mixed, "weights @ value", "qf"),
        Part("w_output", weight, "", "ff"),
        Part("added", mixed @ weight, "head_output @ w_output", "qf"),
    ]
    note = "all heads together also add one bias, which is no head's: it is left out"
    notes = (note,) if biased else ()
    plain = [part._replace(value=to_numpy(part.value)) for part in parts]
    plain = [p._replace(value=p.value > 0) if p.name == "mask" else p for p in plain]
    return HeadArithmetic(plain, {"weights": to_numpy(seen.shares[int(which.head)])}, notes)
