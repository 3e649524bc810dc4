"""Which keys a query may see: causal masks, padding, windows."""

from itertools import accumulate
from operator import matmul

import numpy as np

from attnviz.analyses.entropy import row_entropy
from attnviz.features.lessons import lesson
from attnviz.mechanisms.dot_product import causal, causal_mask, scaled
from attnviz.mechanisms.relative import global_window, sliding_window
from attnviz.models.own import SeededEmbedding

MOST_SHOWN = 512
PADDED = 4
PADDING = "[pad]"


def masking_lesson(text: str = lesson.SENTENCE, size: int = 16, seed: int = 0) -> lesson.Lesson:
    """Full against causal attention over the same scores.

    The words get the seeded vectors and projections of an untrained layer.

    A row holds, for each query: its entropy in nats and the key with the largest weight, full and
    causal, and the share of its full attention that the mask leaves.
    """
    words, projections = lesson.project_words(text, size, seed)
    full, masked = (attend(*projections)[1] for attend in (scaled, causal))
    count = len(words)
    strongest = [[words[key] for key in weights.argmax(axis=-1)] for weights in (full, masked)]
    visible = np.where(causal_mask(masked, count, count), masked, np.nan)
    return lesson.Lesson(
        f"masking · full and causal attention, untrained, size {size}, seed {seed}",
        {
            "query": words,
            "full_entropy": row_entropy(full),
            "causal_entropy": row_entropy(masked),
            "full_strongest": strongest[0],
            "causal_strongest": strongest[1],
            "share_not_hidden": np.array([row[: at + 1].sum() for at, row in enumerate(full)]),
        },
        (
            "Entropy in nats: 0 is one key taking all. A causal mask sets the scores of later keys "
            "to −∞ before the softmax: their weights are 0.",
            "The other weights keep their proportions: each causal weight is the full weight "
            "divided by the share not hidden.",
            "So the first query can only look at itself, and the last one does not change.",
        ),
        "Vaswani 2017 (Attention is all you need), section 3.2.3",
        (
            lesson.Heat(
                "full and causal, hidden cells white; rows are queries, columns are keys",
                np.hstack([full, np.full((count, 1), np.nan), visible]),
                words,
                [*words, "", *words],
            ),
        ),
    )


def padding_lesson(text: str = "The cat sat down", size: int = 16, seed: int = 0) -> lesson.Lesson:
    """Why a padded batch needs a key mask.

    Four padding positions follow a text, as in a batch with a longer one, in an untrained layer.

    A row holds, for each query: its entropy in nats without padding, with padding, and with padding
    and a mask; the share that padding gets without a mask; and how far the output is from that of
    the text alone, without and with the mask.
    """
    words, alone = lesson.project_words(text, size, seed)
    count, all_words = len(words), (*words, *[PADDING] * PADDED)
    embedding = SeededEmbedding(seed, size)
    pads = np.stack([embedding.draw(PADDING, size)] * PADDED)
    names = ("query", "key", "value")
    query, key, value = (
        np.concatenate([rows, pads @ embedding.projection(name)])
        for rows, name in zip(alone, names, strict=True)
    )
    key_mask = np.arange(count + PADDED) < count
    output, weights = scaled(*alone)
    without, masked = scaled(query, key, value), scaled(query, key, value, key_mask)
    off = [np.linalg.norm(outputs[:count] - output, axis=-1) for outputs, _ in (without, masked)]
    shares = without[1][:count, count:].sum(axis=-1)
    visible = np.where(key_mask, masked[1], np.nan)
    return lesson.Lesson(
        f"padding · {count} words padded to {len(all_words)} positions, untrained, seed {seed}",
        {
            "query": words,
            "alone_entropy": row_entropy(weights),
            "padded_entropy": row_entropy(without[1])[:count],
            "masked_entropy": row_entropy(masked[1])[:count],
            "share_on_padding": shares,
            "padded_off_by": off[0],
            "masked_off_by": off[1],
        },
        (
            "Padding makes the texts of a batch equally long. The softmax does not know it: "
            f"without a mask {PADDED} padded positions get {shares.mean():.0%} of a word's "
            "attention.",
            "A key mask sets their scores to −∞. The output of every word is then that of the text "
            f"alone, to within {off[1].max():.0e}.",
            "The rows of padding are computed too and mean nothing: leave them out of means, "
            "losses and pictures.",
        ),
        "Rush 2018 (The annotated transformer), batches and masking",
        (
            lesson.Heat("alone", weights, words, words),
            lesson.Heat("padded, no mask", without[1], all_words, all_words),
            lesson.Heat("padded, keys masked", visible, all_words, all_words),
        ),
    )


def window_lesson(
    length: int = 25, window: int = 2, size: int = 16, seed: int = 0
) -> lesson.Lesson:
    """A sliding window: what one layer sees, and how far several reach.

    The position in the middle attends through layers of random vectors with the window's weights,
    and through layers with one global position, which sees all and is seen by all.

    A row holds, for each number of layers: how many positions have reached the middle one, how far
    away the furthest is, and which share of its content comes from beyond the window.
    """
    lesson.check_range("length", length, 3, MOST_SHOWN)
    lesson.check_range("window", window, 1, length - 1)
    random = np.random.default_rng(seed)
    query, key = (random.standard_normal((length, size)) for _ in range(2))
    near = lesson.name_parts(sliding_window, query, key, key, window=window)
    wide = lesson.name_parts(global_window, query, key, key, window=window)
    middle = length // 2
    away = np.abs(np.arange(length) - middle)
    layers = -(-int(away.max()) // window)
    through = [parts["weights"].reshape(length, length) for parts in (near, wide)]
    flows, wider = (
        np.stack([*accumulate([one] * (layers - 1), matmul, initial=one[middle])])
        for one in through
    )
    beyond = np.array([flow[away > window].sum() for flow in flows])
    share = float(near["mask"].mean())
    maps = [
        np.where(parts["mask"], one, np.nan)
        for parts, one in zip((near, wide), through, strict=True)
    ]
    places = list(map(str, range(length)))
    return lesson.Lesson(
        f"window · {window} to either side, {length} positions, untrained, seed {seed}",
        {
            "layers": range(1, layers + 1),
            "reached": (flows > 0).sum(axis=-1),
            "furthest": np.where(flows > 0, away, 0).max(axis=-1),
            "share_from_beyond": beyond,
            "reached_with_a_global": (wider > 0).sum(axis=-1),
        },
        (
            f"A window of {window} to either side computes {share:.0%} of all {length**2} weights; "
            f"twice the length costs twice as much, not four times.",
            f"Each layer reaches {window} positions further: after {layers} layers both ends reach "
            f"position {middle}, but only {beyond[-1]:.0%} of its content comes from beyond its "
            "window.",
            "With one global position, which sees all and is seen by all, two layers connect any "
            "two positions.",
        ),
        "Beltagy 2020 (Longformer), section 3.1",
        (
            lesson.Heat("one layer, a window", maps[0], places, places),
            lesson.Heat("with one global position", maps[1], places, places),
            lesson.Heat(
                f"what position {middle} has from each",
                flows,
                ["1 layer", *(f"{layer} layers" for layer in range(2, layers + 1))],
                places,
                "share of its content",
            ),
        ),
    )
