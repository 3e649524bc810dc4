"""One head of the pocket model in its own numbers, from its layer's input to what it adds."""

from __future__ import annotations

from attnviz.mechanisms.arrays import Array, to_numpy
from attnviz.mechanisms.dot_product import LOWER, causal_mask, scaled
from attnviz.mechanisms.working import HeadPlace, Part, Worked
from attnviz.models.pocket.model import PocketModel
from attnviz.models.pocket.network import Attended, decode, encode
from attnviz.models.pocket.text import EncodedQuery


def worked_head(model: PocketModel, query: EncodedQuery, which: HeadPlace) -> Worked:
    """One head's numbers, from the layer's input to what it adds to the residual stream."""
    name = model.streams[which.stream].format(which.layer)
    seen, size = _seen(model, query, name), model.sizes.size // model.sizes.heads
    own = slice(int(which.head) * size, (int(which.head) + 1) * size)
    crossed = seen.memory is not seen.inputs
    parts = [
        Part("layer_input", seen.residual, "", "qf"),
        Part("normalised", seen.inputs, "layer_input with mean 0 and variance 1, scaled", "qf"),
    ]
    parts += [Part("memory", seen.memory, "", "kf")] if crossed else []
    sides = []
    for side in ("query", "key", "value"):
        source = "memory" if crossed and side != "query" else "normalised"
        weight = model.weights[f"{name}.{side}.weight"][own].T
        bias = model.weights[f"{name}.{side}.bias"][None, own]
        parts += [Part(f"w_{side}", weight, "", "ff"), Part(f"b_{side}", bias, "", "ff")]
        made = getattr(seen, side)[:, own]
        shown = f"{source} @ w_{side} + b_{side}"
        parts.append(Part(side, made, shown, "qf" if side == "query" else "kf"))
        sides.append(made)
    mask = None
    if which.stream in ("decoder", "causal"):
        mask = causal_mask(sides[0], len(sides[0]), len(sides[1]))
        parts.append(Part("mask", mask, LOWER))
    parts += scaled.parts(sides[0], sides[1], sides[2], mask)
    mixed = parts.pop().value
    weight = model.weights[f"{name}.output.weight"][:, own].T
    parts += [
        Part("head_output", mixed, "weights @ value", "qf"),
        Part("w_output", weight, "", "ff"),
        Part("added", mixed @ weight, "head_output @ w_output", "qf"),
    ]
    note = "all heads together also add one bias, which is no head's: it is left out"
    plain = [part._replace(value=to_numpy(part.value)) for part in parts]
    plain = [p._replace(value=p.value > 0) if p.name == "mask" else p for p in plain]
    return Worked(plain, {"weights": to_numpy(seen.shares[int(which.head)])}, (note,))


def _seen(model: PocketModel, query: EncodedQuery, name: str) -> Attended:
    """An attention of one pass, by its name ("encoder.0.self_attention")."""
    found: dict[str, Attended] = {}

    def note(seen: Attended) -> Array:
        found[seen.name] = seen
        return seen.output

    source = model.embed(query.source_ids)
    memory, _ = encode(model.weights, model.sizes, source, watch=note)
    if query.target:
        decode(model.weights, model.sizes, model.embed(query.target_ids), memory, watch=note)
    return found[name]
