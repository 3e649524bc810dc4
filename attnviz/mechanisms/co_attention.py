"""Co-attention of two sequences: parallel and alternating (Lu 2016), and two-stream (Lu 2019).

Lu 2016 is "Hierarchical question-image co-attention", section 3.3; Lu 2019 is ViLBERT, section 2.1.
Beside each formula stands what an own layer runs: the formula with parameters drawn by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple, Protocol

from attnviz.mechanisms.arrays import Array, Dropout, namespace, softmax, transpose
from attnviz.mechanisms.dot_product import cross

Side = Literal["first", "second", "summary"]
Projected = tuple[Array, Array, Array]
"""query, key and value of one stream, each of shape (…, positions, size)."""


class Parameters(Protocol):
    """Where an own layer gets its parameters from; everything in it has one size."""

    def matrix(self, name: str) -> Array:
        """Shape (size, size)."""
        ...

    def vector(self, name: str) -> Array:
        """Shape (size,)."""
        ...


class CoWeights(NamedTuple):
    """One matrix of weights of a co-attention layer.

    Attributes:
        rows: whose positions are the rows; "summary" where a sequence is summarised.
        weights: shape (…, columns) of a summary, else (…, rows, columns), or with heads
            (…, heads, rows, columns).
        signed: True where values run from −1 to 1 instead of being shares.
    """

    stream: str
    rows: Side
    columns: Side
    weights: Array
    signed: bool = False


class CoAttended(NamedTuple):
    """What parallel co-attention gives.

    Attributes:
        affinity: shape (…, first positions, second positions), from −1 to 1.
        weights: over the positions of the first and of the second, each summing to 1.
    """

    summaries: tuple[Array, Array]
    affinity: Array
    weights: tuple[Array, Array]


def co_parallel(
    first: Array,
    second: Array,
    parameters: Mapping[str, Array],
    first_mask: Array | None = None,
    second_mask: Array | None = None,
    *,
    dropout: Dropout | None = None,
) -> CoAttended:
    """Co-attention of two sequences through one shared affinity, both summarised at once.

    C = tanh(Q W_b Vᵀ), H_q = tanh(Q W_q + C (V W_v)), H_v = tanh(V W_v + Cᵀ (Q W_q)),
    a = softmax(H w); Q is the first sequence and V the second (Lu 2016, section 3.3).

    Args:
        first: shape (…, first positions, first size).
        second: shape (…, second positions, second size).
        parameters: "affinity" (first size, second size), "first" (first size, hidden size),
            "second" (second size, hidden size), "first_score" and "second_score" (hidden size,).
        first_mask: boolean over the first positions, True where it may be seen.
        second_mask: the same for the second.
        dropout: applied to the weights before they meet the inputs; None: nothing is dropped.

    Returns:
        Summaries, affinity (masked pairs are 0) and both weights.
    """
    xp = namespace(first)
    affinity = xp.tanh(first @ parameters["affinity"] @ transpose(second))
    for mask, axis in ((first_mask, -1), (second_mask, -2)):
        if mask is not None:
            affinity = xp.where(xp.expand_dims(mask, axis=axis), affinity, 0 * affinity)
    hidden_first = first @ parameters["first"]
    hidden_second = second @ parameters["second"]
    seen_first = xp.tanh(hidden_first + affinity @ hidden_second)
    seen_second = xp.tanh(hidden_second + transpose(affinity) @ hidden_first)
    over_first = softmax(seen_first @ parameters["first_score"], first_mask)
    over_second = softmax(seen_second @ parameters["second_score"], second_mask)
    if dropout is not None:
        over_first, over_second = dropout(over_first), dropout(over_second)
    summaries = (
        xp.sum(over_first[..., None] * first, axis=-2),
        xp.sum(over_second[..., None] * second, axis=-2),
    )
    return CoAttended(summaries, affinity, (over_first, over_second))


def own_parallel(
    first: Array, second: Array, parameters: Parameters, heads: int
) -> tuple[CoWeights, ...]:
    """The weights of parallel co-attention: affinity, over the first, over the second."""
    names = ("affinity", "first", "second")
    given = {name: parameters.matrix(name) for name in names}
    # A smaller affinity matrix keeps tanh off its ends, where every pair would read as ±1.
    given["affinity"] = given["affinity"] / first.shape[-1] ** 0.5
    given |= {f"{name}_score": parameters.vector(f"{name}_score") for name in names[1:]}
    _, affinity, (over_first, over_second) = co_parallel(first, second, given)
    return (
        CoWeights("affinity", "first", "second", affinity, signed=True),
        CoWeights("a", "summary", "first", over_first),
        CoWeights("b", "summary", "second", over_second),
    )


def guided_summary(
    inputs: Array,
    guide: Array | None,
    parameters: Mapping[str, Array],
    mask: Array | None = None,
    *,
    dropout: Dropout | None = None,
) -> tuple[Array, Array]:
    """One turn: the inputs' sum weighted by how well they fit the guide.

    H = tanh(X W_x + g W_g), a = softmax(H w), summary = Σ a_i x_i.

    Args:
        inputs: shape (…, positions, size).
        guide: shape (…, guide size); None stands for zeros, as in the first turn.
        parameters: "inputs" (size, hidden size), "guide" (guide size, hidden size; not read in an
            unguided turn) and "score" (hidden size,).
        mask: boolean over the positions, True where it may be seen.
        dropout: as in `co_parallel`.

    Returns:
        summary (…, size) and weights (…, positions) summing to 1.
    """
    xp = namespace(inputs)
    hidden = inputs @ parameters["inputs"]
    if guide is not None:
        hidden = hidden + (guide @ parameters["guide"])[..., None, :]
    weights = softmax(xp.tanh(hidden) @ parameters["score"], mask)
    if dropout is not None:
        weights = dropout(weights)
    return xp.sum(weights[..., None] * inputs, axis=-2), weights


def co_alternating(
    first: Array,
    second: Array,
    parameters: Mapping[str, Mapping[str, Array]],
    first_mask: Array | None = None,
    second_mask: Array | None = None,
    *,
    dropout: Dropout | None = None,
) -> tuple[tuple[Array, Array], tuple[Array, Array, Array]]:
    """Co-attention in three turns: summarise one, let it guide the other, and back again.

    See Lu 2016, section 3.3.

    The sequences are (…, positions, size); masks and dropout are those of `co_parallel`; parameters
    are for each turn "first", "second" and "first_again" what `guided_summary` takes.

    Returns:
        The final summaries of the first and the second, each (…, size), and the three turns'
        weights: over the first unguided, over the second, over the first guided; each sums to 1.
    """
    turns = parameters
    alone, over_first = guided_summary(first, None, turns["first"], first_mask, dropout=dropout)
    summary_second, over_second = guided_summary(
        second, alone, turns["second"], second_mask, dropout=dropout
    )
    summary_first, over_first_again = guided_summary(
        first, summary_second, turns["first_again"], first_mask, dropout=dropout
    )
    return (summary_first, summary_second), (over_first, over_second, over_first_again)


def own_alternating(
    first: Array, second: Array, parameters: Parameters, heads: int
) -> tuple[CoWeights, ...]:
    """The weights of alternating co-attention, the guided turns before the unguided one."""
    turns = {
        turn: {
            "inputs": parameters.matrix(f"{turn} inputs"),
            "guide": parameters.matrix(f"{turn} guide"),
            "score": parameters.vector(f"{turn} score"),
        }
        for turn in ("first", "second", "first_again")
    }
    _, (alone, over_second, over_first) = co_alternating(first, second, turns)
    return (
        CoWeights("a-guided-by-b", "summary", "first", over_first),
        CoWeights("b-guided-by-a", "summary", "second", over_second),
        CoWeights("a-alone", "summary", "first", alone),
    )


def co_two_stream(
    first: Projected,
    second: Projected,
    first_mask: Array | None = None,
    second_mask: Array | None = None,
    *,
    heads: int = 1,
    dropout: Dropout | None = None,
) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    """Co-attention of two streams, each one's queries over the other's keys and values.

    See ViLBERT (Lu 2019, section 2.1).

    Each stream is its query, key and value (…, positions, size), each mask boolean (…, 1, keys) and
    True for its stream's positions that may be seen.

    Returns:
        (outputs, weights): the first stream's output (…, positions, size) and weights
        (…, heads, first positions, second positions) stand first in each pair, rows summing to 1.
    """
    first_output, first_weights = cross(
        first[0], second[1], second[2], second_mask, heads=heads, dropout=dropout
    )
    second_output, second_weights = cross(
        second[0], first[1], first[2], first_mask, heads=heads, dropout=dropout
    )
    return (first_output, second_output), (first_weights, second_weights)


def own_two_stream(
    first: Array, second: Array, parameters: Parameters, heads: int
) -> tuple[CoWeights, ...]:
    """The weights of two-stream co-attention, both directions."""

    def project(side: str, inputs: Array) -> Projected:
        query, key, value = (
            inputs @ parameters.matrix(f"{side} {name}") for name in ("query", "key", "value")
        )
        return query, key, value

    streams = project("first", first), project("second", second)
    over_second, over_first = co_two_stream(*streams, heads=heads)[1]
    return (
        CoWeights("a-to-b", "first", "second", over_second),
        CoWeights("b-to-a", "second", "first", over_first),
    )
