"""Gradient-weighted relevance (Chefer, Gur and Wolf 2021, ICCV, section 3, rules 5 to 11).

Unlike rollout it explains one output: each weight is multiplied by the output's gradient.
"""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.analyses.masks import row_shares
from attnviz.core.attention_map import Attention, AttentionMap, Token
from attnviz.core.errors import UsageError
from attnviz.core.lens_inputs import AttentionGradients
from attnviz.features.lenses.layered import through_lens

UNIT = "share of the attribution to the output (gradient)"

Matrix = NDArray[np.float64]  # relevance, (positions, positions or keys), maybe by layer


def gradient(inputs: AttentionGradients) -> Attention:
    """Attribution of one output to each input token, by gradient-weighted attention.

    Each map has one row, for the output: R − I at the position that it is read from (or the mean
    over several), as shares that sum to 1. An encoder-decoder has two maps, over the source and
    over the target so far.

    Raises:
        UsageError: a stream that the rules need is missing.
    """
    attention = inputs.attention
    main, rows = attention.main, list(inputs.positions)
    steps = _steps(inputs)
    last = max(rows) + 1
    if main.stream == "cross":
        own, source = relevance_across(steps["encoder"], steps["decoder"], steps["cross"])
        rows_of_maps = [
            (main, source[rows]),
            (attention.map_of("decoder"), _without_self(own)[rows, :last]),
        ]
    else:
        own = _without_self(relevance(steps[main.stream]))[rows]
        rows_of_maps = [(main, own[:, :last] if main.stream == "causal" else own)]
    totals = {item.stream: round(float(row.sum(axis=-1).mean()), 6) for item, row in rows_of_maps}
    token = Token(_name(inputs), special=True)
    maps = tuple(_as_map(item, token, row.mean(axis=0)) for item, row in rows_of_maps)
    facts: dict[str, Any] = {"output": inputs.output, "read from": rows, "relevance": totals}
    if inputs.probability is not None:
        facts["probability"] = round(inputs.probability, 6)
    silent = " or ".join(stream for stream, total in totals.items() if total == 0)
    note = f"no weight of stream {silent} contributes to '{inputs.output}'"
    return through_lens("gradient", attention, maps, (note,) if silent else (), facts)


def weigh_by_gradients(weights: NDArray[np.floating], gradients: NDArray[np.floating]) -> Matrix:
    """Ā of rule 5: the mean over heads of weight × gradient, with values below 0 set to 0.

    (layers, heads, queries, keys) give (layers, queries, keys).
    """
    products = np.maximum(weights * gradients, 0)
    return np.asarray(products.mean(axis=1, dtype=np.float64))


def relevance(within: Matrix) -> Matrix:
    """R after the last layer by rule 6, R ← R + Ā R from R = I; a triangle stays a triangle."""
    product = np.eye(within.shape[-1])
    for step in within:
        product = product + step @ product
    return product


def relevance_across(encoder: Matrix, decoder: Matrix, cross: Matrix) -> tuple[Matrix, Matrix]:
    """Rᵗᵗ and Rᵗˢ: relevance of the target's and of the source's positions for the decoder's.

    Rules 6 and 7 apply to each self-attention, rules 8 to 10 to each cross-attention.
    """
    # Rule 11 adds nothing: the encoder has seen nothing of the decoder.
    read = normalise_relevance(relevance(encoder))
    own = np.eye(decoder.shape[-1])
    source = np.zeros(cross.shape[1:])
    for step, across in zip(decoder, cross, strict=True):
        own, source = own + step @ own, source + step @ source
        source = source + normalise_relevance(own).T @ across @ read
    return own, source


def normalise_relevance(matrix: Matrix) -> Matrix:
    """R̄ of rules 8 and 9: the rows of R − I scaled to sum to 1, plus I."""
    # Where the paper divides 0 by 0, the row stays that of I.
    return row_shares(_without_self(matrix)) + np.eye(len(matrix))


def _without_self(matrix: Matrix) -> Matrix:
    return matrix - np.eye(len(matrix))


def _steps(inputs: AttentionGradients) -> dict[str, Matrix]:
    parts: dict[str, list[Matrix]] = {}
    for item, gradients in zip(inputs.attention.maps, inputs.gradients, strict=True):
        parts.setdefault(item.stream, []).append(weigh_by_gradients(item.weights, gradients))
    main = inputs.attention.main.stream
    streams: Sequence[str] = ("encoder", "decoder", "cross") if main == "cross" else (main,)
    absent = [name for name in streams if name not in parts]
    if absent:
        raise UsageError(f"the gradient lens needs stream '{absent[0]}', which this model lacks")
    return {name: np.concatenate(parts[name]) for name in streams}


def _name(inputs: AttentionGradients) -> str:
    """The label of the explained output: "→ POSITIVE .98", or "→ rouge[3] .92" for a token."""
    output = re.sub(r" \(token (\d+)\)$", r"[\1]", inputs.output)
    if inputs.probability is None:
        return f"→ {output}"
    digits = f"{inputs.probability:.2f}".removeprefix("0")
    return f"→ {output} {'<.01' if digits == '.00' else digits}"


def _as_map(item: AttentionMap, token: Token, row: Matrix) -> AttentionMap:
    return AttentionMap(
        item.stream,
        (token,),
        item.key_tokens[: len(row)],
        row_shares(row)[None, None, None].astype(np.float32),
        layers=("gradient",),
        heads=("mean",),
        unit=UNIT,
        query_side="output",
        key_side=item.key_side,
    )
