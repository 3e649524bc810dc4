"""How scores become weights: scaling, temperature, tiles, and a sink."""

import numpy as np

from attnviz.analyses.entropy import row_entropy
from attnviz.core.query import Query
from attnviz.core.tokens import SINK_SHARE
from attnviz.features.lessons import lesson
from attnviz.mechanisms.arrays import softmax, transpose
from attnviz.mechanisms.dot_product import scaled, single_head
from attnviz.mechanisms.weighing import online, sinks
from attnviz.models import attend_query

QUERIES, KEYS = 512, 64
HEAD_SIZES = tuple(2**power for power in range(11))
TEMPERATURES = tuple(2.0**power for power in range(-4, 5))
TILE = 4
SINK_SCORES = (-8, -4, -2, 0, 1, 2, 3, 4, 6)
FLOAT16 = float(np.log(np.finfo(np.float16).max))  # largest score that float16 can exponentiate


def scaling_lesson(seed: int = 0) -> lesson.Lesson:
    """Scaled against unscaled softmax as the head size grows.

    Queries and keys come from the standard normal distribution. A score is then a sum of as many
    terms as the head has features, and its standard deviation is the square root of that number.

    A row holds, for each head size: the standard deviation of the scores, and the mean entropy
    (nats) and the mean largest weight of a row, each without and with scaling.
    """
    random = np.random.default_rng(seed)
    rows = []
    for head_size in HEAD_SIZES:
        query = random.standard_normal((QUERIES, head_size))
        key = random.standard_normal((KEYS, head_size))
        both = [attend(query, key, key)[1] for attend in (single_head, scaled)]
        entropies = [row_entropy(weights).mean() for weights in both]
        largest = [weights.max(axis=-1).mean() for weights in both]
        rows.append([(query @ transpose(key)).std(), *entropies, *largest])
    even = float(np.log(KEYS))
    spread, hard, soft, hard_top, soft_top = np.array(rows, dtype=np.float64).T
    return lesson.Lesson(
        f"scaling · {QUERIES} random queries over {KEYS} random keys, seed {seed}",
        {
            "head_size": HEAD_SIZES,
            "score_spread": spread,
            "unscaled_entropy": hard,
            "scaled_entropy": soft,
            "unscaled_largest": hard_top,
            "scaled_largest": soft_top,
        },
        (
            f"Entropy in nats: 0 is one key taking all, {even:.2f} is uniform attention over "
            f"{KEYS} keys.",
            "The standard deviation of the scores (score spread) is the square root of the head "
            "size. Without scaling, one key of a large head therefore gets nearly all weight, and "
            "almost no gradient reaches the others.",
            "Divided by that root, scores have a standard deviation of 1 at every size, and the "
            "weights stay alike.",
        ),
        "Vaswani 2017 (Attention is all you need), section 3.2.1, note 4",
        (
            lesson.Curves(
                "entropy of a row",
                "head size",
                "nats",
                {"scaled": (HEAD_SIZES, soft), "unscaled": (HEAD_SIZES, hard)},
                doubling=True,
                top=1.12 * even,
                level=(even, "uniform attention"),
            ),
            lesson.Curves(
                "largest weight of a row",
                "head size",
                "share of the row's attention",
                {"scaled": (HEAD_SIZES, soft_top), "unscaled": (HEAD_SIZES, hard_top)},
                doubling=True,
                top=1.0,
            ),
        ),
    )


def temperature_lesson(text: str = lesson.SENTENCE, size: int = 16, seed: int = 0) -> lesson.Lesson:
    """One row of scores, softened and sharpened by a temperature.

    The scores are those of the last word in an untrained layer, divided by the temperature.

    A row holds, for each temperature: the entropy in nats, over how many words uniform attention
    has that entropy, the largest weight p, and its slope by its own score, p (1 − p) / temperature.
    """
    words, (query, key, value) = lesson.project_words(text, size, seed)
    scores = lesson.name_parts(scaled, query[-1:], key, value)["scaled_scores"]
    shares = np.concatenate([softmax(scores / step) for step in TEMPERATURES])
    entropies, largest = row_entropy(shares), shares.max(axis=-1)
    answers = largest * (1 - largest) / TEMPERATURES
    best, count, most = TEMPERATURES[int(answers.argmax())], len(words), float(np.log(len(words)))
    steps = [f"{step:g}" for step in TEMPERATURES]
    return lesson.Lesson(
        f"temperature · what '{words[-1]}' looks at, untrained, size {size}, seed {seed}",
        {
            "temperature": TEMPERATURES,
            "entropy": entropies,
            "span": np.exp(entropies),
            "largest": largest,
            "answer_to_its_score": answers,
        },
        (
            f"The weights are softmax(scores / temperature): '{words[int(scores.argmax())]}' has "
            f"{largest[0]:.0%} of them at {steps[0]} and {largest[-1]:.0%} at {steps[-1]}, hardly "
            f"more than the {1 / count:.0%} of uniform attention over {count} words.",
            f"Entropy runs from 0 (one word has all) to {most:.2f} nats (ln {count}). The order of "
            "the words never changes; only how much the first is ahead does.",
            "The slope of the largest weight p by its own score, p (1 − p) / temperature, is "
            f"largest at {best:g} here. Far above, every score matters little; far below, one "
            "word has all weight and hardly any gradient is left to learn from.",
        ),
        "Hinton 2015 (Distilling the knowledge in a neural network), section 2",
        (
            lesson.Heat("weights; one row for each temperature", shares, steps, words),
            lesson.Curves(
                "entropy",
                "temperature",
                "nats",
                {"_entropy": (TEMPERATURES, entropies)},
                doubling=True,
                top=1.12 * most or 1,
                level=(most, "uniform attention"),
            ),
            lesson.Curves(
                "what is left to learn from",
                "temperature",
                "weight gained by a score higher by 1",
                {"_answer": (TEMPERATURES, answers)},
                doubling=True,
            ),
        ),
    )


def online_lesson(length: int = 16, size: int = 8, seed: int = 0) -> lesson.Lesson:
    """Softmax tile by tile equals the whole, with its running maximum and sum.

    Queries and keys are random; the row shown is the one whose maximum rises most often.

    A row holds, for each tile of four keys: the largest score so far, the factor of the old sum,
    the new sum, and how far the output so far is from a softmax over the keys read so far.
    """
    lesson.check_range("length", length, 2, 1024)
    random = np.random.default_rng(seed)
    query, key, value = (random.standard_normal((length, size)) for _ in range(3))
    parts = lesson.name_parts(online, 2 * query, key, value, tile=TILE)
    maxima = parts["running_maximum"].reshape(length, -1)
    row = int((np.diff(maxima) > 0).sum(axis=-1).argmax())
    highest, scores = maxima[row], parts["scaled_scores"].reshape(length, -1)[row]
    sums = parts["running_sum"].reshape(length, -1)[row]
    outputs = parts["running_output"].reshape(-1, length, size)[:, row]
    ends = [*range(TILE, length, TILE), length]
    so_far = np.full((len(ends), length), np.nan)
    for tile, end in enumerate(ends):
        so_far[tile, :end] = np.exp(scores[:end] - highest[tile]) / sums[tile]
    factors = np.exp(np.concatenate([[-np.inf], highest[:-1]]) - highest)
    whole = np.stack([softmax(scores[None, :end])[0] @ value[:end] for end in ends])
    apart = float(np.abs(parts["output"] - scaled(2 * query, key, value)[0]).max())
    names = [f"{end} keys" for end in ends]
    return lesson.Lesson(
        f"online · row {row} of {length} random queries, {TILE} keys a tile, seed {seed}",
        {
            "keys_read": ends,
            "running_maximum": highest,
            "old_sum_times": factors,
            "running_sum": sums,
            "off_by": np.abs(outputs / sums[:, None] - whole).max(axis=-1),
        },
        (
            f"Only {TILE} scores exist at a time. Of a row it keeps the largest score, the sum of "
            "exp(score − largest) and the output so far.",
            "When a larger score comes, sum and output are multiplied by exp(old maximum − new "
            "maximum), the column 'old sum times'. So no exponential exceeds 1, whereas exp of a "
            f"score above {FLOAT16:.1f} overflows float16.",
            f"Nothing is approximated: over all {length} rows the output differs from that of the "
            f"whole softmax by {apart:.1e} at most.",
        ),
        "Milakov 2018 (Online normalizer calculation for softmax); Dao 2022 (FlashAttention), "
        "section 3.1",
        (
            lesson.Heat(
                "weights after each tile", so_far, names, [str(number) for number in range(length)]
            ),
            lesson.Curves(
                "scores and their running maximum",
                "key",
                "score",
                {
                    "score": (np.arange(length), scores),
                    "running maximum": (np.array(ends) - 1, highest),
                },
            ),
            lesson.Curves(
                "running sum", "keys read", "Σ exp(score − maximum)", {"_sum": (ends, sums)}
            ),
        ),
    )


def sinks_lesson(text: str = lesson.SENTENCE, size: int = 8) -> lesson.Lesson:
    """A sink lets a head that finds nothing look at nothing.

    One query matches one of eight keys (score 4), another matches none (all scores 0). A learned
    sink competes with the keys. The shipped model, which has no sink, is compared with them.

    A row holds, for each score of the sink and both queries: the share that the keys get, and the
    length of the output.
    """
    lesson.check_range("size", size, 2, 512)
    keys = np.eye(size)
    queries = np.stack([4 * size**0.5 * keys[size // 3], 0 * keys[0]])
    runs = [sinks(queries, keys, keys, sink=np.array([float(s)])) for s in SINK_SCORES]
    lefts = np.stack([weights[0].sum(axis=-1) for _, weights in runs])
    lengths = np.stack([np.linalg.norm(output, axis=-1) for output, _ in runs])
    without = scaled(queries, keys, keys)[1]
    at = SINK_SCORES.index(2)
    cells = np.column_stack([runs[at][1][0], 1 - lefts[at]])
    gap = np.full((1, size + 1), np.nan)
    columns = [*(f"key {number}" for number in range(size)), "sink"]
    names = ["match", "no match"]
    pairs = [(name, lefts[:, row]) for row, name in enumerate(names)]
    return lesson.Lesson(
        f"sinks · a query that matches one of {size} keys, and one that matches none",
        {
            "sink_score": SINK_SCORES,
            "match_kept": lefts[:, 0],
            "no_match_kept": lefts[:, 1],
            "match_output": lengths[:, 0],
            "no_match_output": lengths[:, 1],
        },
        (
            "The weights of a softmax always sum to 1: a query that matches nothing spreads them "
            f"evenly, and its output is the mean of all values, of length {lengths[0, 1]:.2f}.",
            f"A sink with a score of 2 takes {1 - lefts[at, 1]:.0%} of that query's attention and "
            f"adds nothing to its output, but takes only {1 - lefts[at, 0]:.0%} where there is a "
            "match.",
            _describe_pocket(text),
        ),
        "Xiao 2023 (Efficient streaming language models with attention sinks), section 3; OpenAI "
        "2025 (gpt-oss), section 2.1",
        (
            lesson.Heat(
                "without a sink, and with one that scores 2",
                np.vstack([np.column_stack([without, [np.nan] * 2]), gap, cells]),
                [*names, "", *names],
                columns,
            ),
            lesson.Curves(
                "what is left for the keys",
                "score of the sink",
                "share of the row's attention",
                {name: (SINK_SCORES, left) for name, left in pairs},
                top=1.05,
            ),
        ),
    )


def _describe_pocket(text: str) -> str:
    """How many heads of a trained model without a sink use a token as one."""
    from attnviz.models.pocket.translator import load_pocket

    item = attend_query(load_pocket(), Query(text)).main
    shares = item.weights.mean(axis=-2)
    place = int(shares.mean(axis=(0, 1)).argmax())
    heads = shares[..., place]
    return (
        f"Trained models without a sink use a token of little meaning as one: in pocket, on this "
        f"sentence, {int((heads > SINK_SHARE).sum())} of {heads.size} heads give "
        f"'{item.key_tokens[place].text}' more than {SINK_SHARE:g} of all attention."
    )
