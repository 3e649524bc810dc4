"""How a model knows positions: sinusoidal waves, rotated pairs, biases by distance."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.analyses.entropy import row_entropy
from attnviz.features.lessons.lesson import Curves, Heat, Lesson, check_range, name_parts
from attnviz.mechanisms import dot_product, relative

Vector = NDArray[np.float64]
MOST = 2048
BASES = (10_000.0, 500_000.0)  # of RoPE's paper, and of Llama 3
FAR = 1000  # both positions are shifted by this many, to show that only their distance matters
RANGES = 32  # T5's own number


def positions_lesson(length: int = 64, size: int = 64) -> Lesson:
    """Sinusoidal position encoding as a heat map.

    A row holds, for each pair of columns: its wavelength in positions, its turns over the whole
    length, and its values at position 1 and at the last one. At position 0 they are 0 and 1.
    """
    check_range("length", length, 2, MOST)
    check_range("size", size, 1, MOST)
    encoding = relative.sinusoidal_positions(length, size)
    pairs = [slice(first, min(first + 2, size)) for first in range(0, size, 2)]
    # At position 1 a wave has turned by less than a quarter, so its sine determines the angle.
    waves = 2 * np.pi / np.arcsin(encoding[1, ::2].astype(np.float64))
    at_1, at_end = (
        [" ".join(f"{value:+.2f}" for value in encoding[position, pair]) for pair in pairs]
        for position in (1, -1)
    )
    even = encoding[:, : size // 2 * 2].astype(np.float64)
    gaps = [gap for gap in (0, 1, 2, 4, 8, 16) if gap < length]
    near = ", ".join(f"{even[gap] @ even[0]:.2f} at {gap}" for gap in gaps)
    left_out = ", the lone last column left out" if size % 2 else ""
    return Lesson(
        f"positions · sinusoidal encoding of {length} positions in {size} columns",
        {
            "columns": [" ".join(map(str, range(size)[pair])) for pair in pairs],
            "wave_length": waves,
            "turns": (length - 1) / waves,
            "at_position_1": at_1,
            "at_the_end": at_end,
        },
        (
            f"Each pair of columns holds the sine and cosine of one wave, from {waves[0]:.2f} to "
            f"{waves[-1]:,.0f} positions long.",
            "Fast waves distinguish neighbours, slow ones distinguish near from far.",
            f"The dot product of two positions depends on their distance alone: {near}{left_out}.",
        ),
        "Vaswani 2017 (Attention is all you need), section 3.5",
        (
            Heat(
                "rows are positions, columns are features: even ones sine, odd ones cosine",
                encoding,
                list(map(str, range(length))),
                list(map(str, range(size))),
                "value",
                (-1.0, 1.0),
            ),
        ),
    )


def rotary_lesson(length: int = 256, size: int = 64, seed: int = 0) -> Lesson:
    """Rotary positions: scores depend on distance alone, and fade with it.

    A query and a key of ones are rotated by their positions, and so is a random pair: near the
    start and a thousand positions later.

    A row holds, for each distance: the score of equal vectors as a share of that at distance 0, for
    the usual base and a large one; and the score of the random pair at both places.
    """
    check_range("length", length, 2, MOST)
    check_range("size", size, 2, 512)
    random = np.random.default_rng(seed)
    size += size % 2
    pair = random.standard_normal((2, size))

    def scores(query: Vector, key: Vector, base: float) -> NDArray[Any]:
        """The scores of the query at every position with the key at every position."""
        sides = [np.tile(one, (FAR + length, 1)) for one in (query, key)]
        matrix = name_parts(relative.rotary, *sides, sides[1], base=base)["scores"]
        return matrix.reshape(FAR + length, -1)

    ones = np.ones(size)
    equal = [scores(ones, ones, base)[:length, 0] / size for base in BASES]
    random_scores = scores(pair[0], pair[1], BASES[0])
    start, far = random_scores[:length, 0], random_scores[FAR:, FAR]
    gaps = [0, *(2**power for power in range(11) if 2**power < length)]
    distances = np.arange(length)
    turns = 1 / BASES[0] ** (np.arange(0, size, 2) / size)
    sample, first = sorted({0, size // 8, size // 4, size // 2 - 1}), distances[:64]
    return Lesson(
        f"rotary · {length} distances, {size} features turned in {size // 2} pairs, seed {seed}",
        {
            "distance": gaps,
            "base_10000": equal[0][gaps],
            "base_500000": equal[1][gaps],
            "random_at_start": start[gaps],
            "random_far_on": far[gaps],
        },
        (
            "Pair i of a query and of a key is rotated by position / base^(2i/size); their score "
            "then depends only on the difference of the two angles.",
            f"So a random pair scores the same at the start and {FAR} positions later: the scores "
            f"differ by {np.abs(start - far).max():.0e} at most.",
            "Equal vectors score less the further they are apart, since the pairs rotate at "
            f"different speeds. A base of 500,000 rotates slower and keeps {equal[1][-1]:.0%} "
            f"of the score at distance {length - 1}, where 10,000 keeps {equal[0][-1]:.0%}.",
        ),
        "Su 2021 (RoFormer), sections 3.2.2 and 3.4.3",
        (
            Curves(
                "score of equal vectors",
                "distance",
                "share of that at distance 0",
                {"base 10,000": (distances, equal[0]), "base 500,000": (distances, equal[1])},
            ),
            Curves(
                "single pairs, base 10,000",
                "distance",
                "cosine of the angle between them",
                {f"pair {one}": (first, np.cos(turns[one] * first)) for one in sample},
            ),
        ),
    )


def alibi_lesson(length: int = 64, heads: int = 8) -> Lesson:
    """Biases by distance: ALiBi's slopes, and T5's ranges.

    All scores are equal, so the weights of the last query show the bias alone.

    A row holds, for each head: its slope, the distance over which its weights halve, the share that
    it gives to the eight nearest keys, and the entropy of the row in nats.
    """
    check_range("length", length, 2, MOST)
    check_range("heads", heads, 1, 64)
    inputs = np.zeros((length, heads))
    triangle = dot_product.causal_mask(inputs, length, length)
    parts = name_parts(relative.alibi, inputs, inputs, inputs, triangle, heads=heads)
    last, slopes = parts["weights"][:, -1], relative.slopes_of(heads)
    half_lives = np.log(2) / slopes
    more = max(length, 200)
    queries, table = np.zeros((more, 1)), np.zeros((RANGES, 1))
    ranges = name_parts(
        relative.relative_bias, queries, queries, queries, bias=table, both_ways=False
    )["range"][-1, ::-1]
    single = int((np.diff(ranges) != 0).cumprod().sum())
    sample = sorted({0, heads // 4, heads // 2, heads - 1})
    away = np.arange(length)
    return Lesson(
        f"alibi · {heads} heads over {length} positions, all scores equal",
        {
            "head": range(heads),
            "slope": slopes,
            "halves_every": half_lives,
            "on_8_nearest": last[:, -8:].sum(axis=-1),
            "entropy": row_entropy(last),
        },
        (
            "ALiBi subtracts slope × distance from every score: a weight halves every ln 2 / slope "
            f"positions, from {half_lives[0]:.2g} in head 0 to {half_lives[-1]:.3g} in the last.",
            "Nothing is learned and positions have no vectors, so a text that is longer than those "
            "of training has no position that the model has never seen.",
            f"T5 learns one number for each of {RANGES} ranges instead: each distance below "
            f"{single} has its own, then the ranges widen, and all from "
            f"{int((ranges == ranges.max()).argmax())} on share the last.",
        ),
        "Press 2022 (Train short, test long: ALiBi), section 3; Raffel 2020 (T5), section 2.1",
        (
            Curves(
                "ALiBi: weights of the last query",
                "distance",
                "share of the row's attention",
                {f"head {head}": (away, last[head, ::-1]) for head in sample},
            ),
            Curves(
                "T5: ranges of distances, in a decoder",
                "distance",
                "number of the range",
                {"_range": (np.arange(more), ranges)},
            ),
        ),
    )
