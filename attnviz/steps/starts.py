"""Where the arithmetic can start without a file: a worked example, or a sentence."""

from __future__ import annotations

import numpy as np

from attnviz.sources.own_layer import SeededEmbedding
from attnviz.sources.words import split_words
from attnviz.steps.given import PROJECTIONS, Given


def worked_example() -> Given:
    """Self-attention of head size 2 over three positions, its inputs and projections 0 or 1."""
    inputs = np.array([[1, 0, 1, 0], [0, 1, 0, 1], [1, 1, 1, 1]], dtype=np.float64)
    straight = np.array([[1, 0], [0, 1], [1, 0], [0, 1]], dtype=np.float64)
    swapped = straight[:, ::-1]
    return Given(
        title="worked example",
        query_input=inputs,
        key_value_input=inputs,
        projections={"w_query": straight, "w_key": swapped, "w_value": straight},
    )


def seeded_sentence(sentence: str, size: int, seed: int) -> Given:
    """A sentence's words with the vectors and projections of an untrained own layer.

    They are those of `attnviz self --mechanism scaled` with the same size and seed.

    Args:
        sentence: at least one word.
        size: features of a word, and of a query, key and value.
        seed: of the random numbers.
    """
    tokens = split_words(sentence)
    names = tuple(token.text for token in tokens)
    embedding = SeededEmbedding(seed, size)
    return Given(
        title=f"untrained, size {size}, seed {seed}",
        query_input=embedding.embed(tokens),
        projections={name: embedding.projection(name.removeprefix("w_")) for name in PROJECTIONS},
        query_tokens=names,
        key_tokens=names,
        origin="seeded, untrained",
    )
