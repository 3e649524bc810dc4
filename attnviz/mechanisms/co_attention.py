"""Co-attention of two sequences: parallel and alternating (Lu 2016), and two-stream (Lu 2019).

Lu 2016 is "Hierarchical question-image co-attention", section 3.3; Lu 2019 is ViLBERT, section 2.1.
Masks are boolean (…, positions), True where a position may be seen; dropout is applied to weights
before they meet the inputs, and None drops nothing.
"""

import re
from collections.abc import Generator, Mapping

from attnviz.mechanisms.arrays import Array, Dropout, Mask, namespace, softmax, transpose
from attnviz.mechanisms.dot_product import cross
from attnviz.mechanisms.formula import Arguments, Calculation, Formula, Part

AXES = {"first": "qf", "second": "kf"}  # the first sequence makes an affinity's rows
Projected = tuple[Array, Array, Array]  # query, key and value of one stream


class CoFormula(Formula[Arguments]):
    """A co-attention: a call returns the outputs of both sequences, and all weights."""

    def __call__(
        self, *arrays: Arguments.args, **options: Arguments.kwargs
    ) -> tuple[tuple[Array, ...], tuple[Array, ...]]:
        """The outputs of the first and second sequence, and the weights in order."""
        values: dict[str, Array] = {}
        for part in self._steps(*arrays, **options):
            if part.name.startswith(("output", "weights", "affinity")):
                values[part.name] = part.value
        outputs = sorted(name for name in values if name.startswith("output"))
        weights = (values[name] for name in values if name not in outputs)
        return tuple(values[name] for name in outputs), tuple(weights)


@CoFormula
def co_parallel(
    first: Array,
    second: Array,
    first_mask: Mask = None,
    second_mask: Mask = None,
    *,
    dropout: Dropout | None = None,
    **learned: Array,
) -> Calculation:
    """Co-attention of two sequences through one shared affinity, both summarised at once.

    C = tanh(Q W_b Vᵀ), H_q = tanh(Q W_q + C (V W_v)), H_v = tanh(V W_v + Cᵀ (Q W_q)),
    a = softmax(H w); Q is the first sequence and V the second (Lu 2016, section 3.3).

    Args:
        first: shape (…, first positions, first size).
        second: shape (…, second positions, second size).
        first_mask: over the first positions.
        second_mask: over the second.
        dropout: applied to weights.
        learned: w_affinity (first size, second size), w_first (first size, hidden size), w_second
            (second size, hidden size), first_score and second_score (hidden size,).

    Returns:
        Summaries of both, (…, size); and the affinity from −1 to 1 (…, first positions, second
        positions), masked pairs 0, the weights over the first positions and those over the second.
    """
    xp = namespace(first)
    product = yield Part(
        "mapped_first", first @ learned["w_affinity"], "first @ w_affinity", AXES["first"]
    )
    affinity, formula = xp.tanh(product @ transpose(second)), "tanh(mapped_first @ secondᵀ)"
    for name, mask, axis in (("first", first_mask, -1), ("second", second_mask, -2)):
        if mask is not None:
            affinity = xp.where(xp.expand_dims(mask, axis=axis), affinity, 0 * affinity)
            formula += f", 0 where {name}_mask hides it"
    affinity = yield Part("affinity", affinity, formula, "qk")
    one = yield Part("hidden_first", first @ learned["w_first"], "first @ w_first", AXES["first"])
    other = yield Part(
        "hidden_second", second @ learned["w_second"], "second @ w_second", AXES["second"]
    )
    formula = "tanh(hidden_first + affinity @ hidden_second)"
    seen_first = yield Part("seen_first", xp.tanh(one + affinity @ other), formula, AXES["first"])
    formula = "tanh(hidden_second + affinityᵀ @ hidden_first)"
    seen_second = xp.tanh(other + transpose(affinity) @ one)
    seen_second = yield Part("seen_second", seen_second, formula, AXES["second"])
    for name, inputs, states, mask in (
        ("first", first, seen_first, first_mask),
        ("second", second, seen_second, second_mask),
    ):
        score = learned[f"{name}_score"]
        yield from _summarise(
            name, name, inputs, f"{name}_score @ seen_{name}ᵀ", states @ score, mask, dropout
        )


@CoFormula
def co_alternating(
    first: Array,
    second: Array,
    first_mask: Mask = None,
    second_mask: Mask = None,
    *,
    dropout: Dropout | None = None,
    **learned: Array,
) -> Calculation:
    """Co-attention in three turns: summarise one, let it guide the other, and back again.

    H = tanh(X W_x + g W_g), a = softmax(H w), summary = Σ a_i x_i; the guide g is the summary of
    the turn before, and nothing in the first turn (Lu 2016, section 3.3).

    The sequences are (…, positions, size). Each turn (first, second, first_again) has learned
    w_TURN_inputs (size, hidden size) and w_TURN_score (hidden size,), and the last two also
    w_TURN_guide (guide size, hidden size).

    Returns:
        The final summaries of the first and the second, each (…, size), and the three turns'
        weights: over the first unguided, over the second, over the first guided; each sums to 1.
    """
    guide, guided_by = None, ""
    for turn, name, inputs, mask, own in (
        ("alone", "first", first, first_mask, "w_first"),
        ("second", "second", second, second_mask, "w_second"),
        ("first", "first", first, first_mask, "w_first_again"),
    ):
        states, formula = inputs @ learned[f"{own}_inputs"], f"{name} @ {own}_inputs"
        if guide is not None:
            guide = guide @ learned[f"{own}_guide"]
            guide = yield Part(f"guide_{turn}", guide, f"{guided_by} @ {own}_guide", "nf")
            states, formula = states + guide[..., None, :], f"{formula} + guide_{turn}"
        states = namespace(states).tanh(states)
        states = yield Part(f"seen_{turn}", states, f"tanh({formula})", AXES[name])
        formula = f"{own}_score @ seen_{turn}ᵀ"
        scores = states @ learned[f"{own}_score"]
        guide = yield from _summarise(turn, name, inputs, formula, scores, mask, dropout)
        guided_by = f"output_{turn}" if turn != "alone" else "summary_alone"


def _summarise(
    turn: str,
    name: str,
    inputs: Array,
    formula: str,
    scores: Array,
    mask: Mask,
    dropout: Dropout | None,
) -> Generator[Part, Array, Array]:
    """The summary of a sequence of that name by scores of its positions, after one turn."""
    axes = f"n{AXES[name][0]}"
    scores = yield Part(f"scores_{turn}", scores, formula, axes)
    weights, formula = softmax(scores, mask), f"softmax(scores_{turn}"
    formula += ")" if mask is None else f" where {name}_mask)"
    if dropout is not None:
        weights, formula = dropout(weights), f"dropout({formula})"
    weights = yield Part(f"weights_{turn}", weights, formula, axes)
    summary = namespace(inputs).sum(weights[..., None] * inputs, axis=-2)
    kind = "summary" if turn == "alone" else "output"
    return (yield Part(f"{kind}_{turn}", summary, f"weights_{turn} @ {name}", "nf"))


@CoFormula
def co_two_stream(
    first: Array | Projected,
    second: Array | Projected,
    first_mask: Mask = None,
    second_mask: Mask = None,
    *,
    heads: int = 1,
    dropout: Dropout | None = None,
    **learned: Array,
) -> Calculation:
    """Co-attention of two streams, each one's queries over the other's keys and values.

    See ViLBERT (Lu 2019, section 2.1). Each stream is its query, key and value (…, positions,
    size); or its inputs (…, positions, input size), with learned w_first_query, …, w_second_value
    of (input size, size).

    Returns:
        Outputs of both streams, (…, positions, size), and the weights (…, heads, first positions,
        second positions) and the other way round, rows summing to 1.
    """
    if learned:
        first = yield from _project("first", first, learned)
        second = yield from _project("second", second, learned)
    for name, other, (query, _, _), (_, key, value), mask in (
        ("first", "second", first, second, second_mask),
        ("second", "first", second, first, first_mask),
    ):
        key_mask = None if mask is None else mask[..., None, None, :]
        calculation = cross.calculation(query, key, value, key_mask, heads=heads, dropout=dropout)
        yield from _direction(calculation, name, other)


def _project(
    name: str, inputs: Array, learned: Mapping[str, Array]
) -> Generator[Part, Array, Projected]:
    sides = []
    for part in ("query", "key", "value"):
        matrix = f"w_{name}_{part}"
        formula = f"{name} @ {matrix}"
        sides.append((yield Part(f"{part}_{name}", inputs @ learned[matrix], formula, AXES[name])))
    return sides[0], sides[1], sides[2]


def _direction(calculation: Calculation, name: str, other: str) -> Calculation:
    """The parts of attention from one stream to the other, each named after its stream."""
    in_heads: set[str] = set()

    def rename(part: re.Match[str]) -> str:
        if part[0] == "mask":  # as it was given
            return f"{other}_mask"
        base = f"{part[0]}_heads" if part[0] in in_heads else part[0]
        return f"{base}_{other if part[1] else name}"

    axes = str.maketrans({"q": AXES[name][0], "k": AXES[other][0]})
    part = next(calculation, None)
    while part is not None:
        new_name, formula = _NAMES.sub(rename, part.name), _NAMES.sub(rename, part.formula)
        value = yield Part(new_name, part.value, formula, part.axes.translate(axes))
        if part.name.endswith("_heads"):
            in_heads.add(part.name.removesuffix("_heads"))
        try:
            part = calculation.send(value)
        except StopIteration:
            return


_NAMES = re.compile(
    "(?<![a-z_])(?:(?:(key|value|mask)|query)(?:_heads)?|(?:scaled_)?scores|weights|(?:head_)?outputs?)"
    "(?![a-z_])"
)
"""Names of a formula's arrays; the first group belongs to the sequence that gives keys."""
