"""One head of a model inside in its own numbers, from what one pass recorded."""

from attnviz.core.effects import HeadAt
from attnviz.core.query import Query
from attnviz.mechanisms.arrays import to_numpy
from attnviz.mechanisms.dot_product import LOWER, causal_mask, scaled
from attnviz.mechanisms.formula import HeadArithmetic, Part
from attnviz.models.pocket.stored import StoredModel

NORMS = "layer_input / √(its mean square), scaled", "layer_input with mean 0 and variance 1, scaled"
"""The formula of a layer's norm, in words: by the mean square, or of mean and variance."""


def stored_head(model: StoredModel, query: Query, which: HeadAt) -> HeadArithmetic:
    """One head's numbers, from the layer's input to what it adds to the residual stream."""
    feed, _ = model.read(query)
    name = model.streams[which.stream].format(which.layer)
    (attention,) = (one for one in model.record(feed) if one.path == name)
    shape, maps = model.shape_of(which.stream), model.part_of(which.stream).maps
    size = shape.head_features
    own = slice(which.head * size, (which.head + 1) * size)
    is_cross = attention.memory is not attention.inputs
    parts = [
        Part("layer_input", attention.residual, "", "qf"),
        Part("normalised", attention.inputs, NORMS[shape.norm == "layer"], "qf"),
    ]
    parts += [Part("memory", attention.memory, "", "kf")] if is_cross else []
    sides, has_bias = [], f"{name}.{maps[3]}.bias" in model.weights
    for side, projection in zip(("query", "key", "value"), maps, strict=False):
        source = "memory" if is_cross and side != "query" else "normalised"
        axes = "qf" if side == "query" else "kf"
        weight = model.weights[f"{name}.{projection}.weight"][own].T
        parts.append(Part(f"w_{side}", weight, "", "ff"))
        formula = f"{source} @ w_{side}"
        if has_bias:
            bias = model.weights[f"{name}.{projection}.bias"][None, own]
            parts.append(Part(f"b_{side}", bias, "", "ff"))
            formula += f" + b_{side}"
        if shape.turns and side != "value":
            parts.append(Part(f"plain_{side}", attention.inputs @ weight, formula, axes))
            formula = f"pairs of plain_{side} turned by position"
        side_values = getattr(attention, side)[which.head]
        parts.append(Part(side, side_values, formula, axes))
        sides.append(side_values)
    mask = None
    if which.stream in ("decoder", "causal"):
        mask = causal_mask(sides[0], len(sides[0]), len(sides[1]))
        parts.append(Part("mask", mask, LOWER))
    parts += scaled.parts(sides[0], sides[1], sides[2], mask)
    output = parts.pop().value
    weight = model.weights[f"{name}.{maps[3]}.weight"][:, own].T
    parts += [
        Part("head_output", output, "weights @ value", "qf"),
        Part("w_output", weight, "", "ff"),
        Part("added", output @ weight, "head_output @ w_output", "qf"),
    ]
    note = "all heads together also add one bias, which is no head's: it is left out"
    notes = (note,) if has_bias else ()
    plain = [part._replace(value=to_numpy(part.value)) for part in parts]
    plain = [p._replace(value=p.value > 0) if p.name == "mask" else p for p in plain]
    return HeadArithmetic(plain, {"weights": to_numpy(attention.weights[which.head])}, notes)
