"""One untrained co-attention layer over seeded embeddings of two texts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from attnviz.attention_map import Attention, AttentionMap, Token
from attnviz.errors import InputError, UsageError
from attnviz.mechanisms.arrays import Array
from attnviz.mechanisms.co_alternating import co_alternating
from attnviz.mechanisms.co_parallel import co_parallel
from attnviz.mechanisms.co_two_stream import co_two_stream
from attnviz.request import Origin
from attnviz.sources.backend import choose_backend, to_numpy
from attnviz.sources.own_layer import (
    SeededEmbedding,
    check_mechanism,
    check_sizes,
    own_provenance,
)
from attnviz.sources.words import split_words

Tokens = tuple[Token, ...]


class OwnCoLayer:
    """Co-attention of two texts, A (the source) and B (the target), untrained."""

    def __init__(self, origin: Origin) -> None:
        """Check what was asked for before any text is read.

        Raises:
            UsageError: an unknown variant or device, or sizes that do not fit.
        """
        self.name = check_mechanism(origin.mechanism or "co-parallel", "co")
        self.origin = origin
        self.heads = check_sizes(origin) if self.name == "co-two-stream" else 1
        self.backend = choose_backend(origin.device, origin.dtype)
        self.embedding = SeededEmbedding(origin.seed, origin.size)

    def attend_self(self, text: str) -> Attention:
        """Co-attention needs two texts.

        Raises:
            UsageError: always.
        """
        raise UsageError("co-attention needs two texts: attnviz co A B")

    def attend_cross(self, source: str, target: str | None) -> Attention:
        """Both directions at once; which streams there are depends on the variant.

        Raises:
            InputError: one text only.
        """
        if target is None:
            raise InputError("co-attention needs two texts: attnviz co A B")
        tokens = split_words(source), split_words(target)
        first, second = (self.backend.array(self.embedding.embed(side)) for side in tokens)
        variant = {
            "co-parallel": self._parallel,
            "co-alternating": self._alternating,
            "co-two-stream": self._two_stream,
        }[self.name]
        provenance = own_provenance(self.name, self.origin, self.heads, self.backend)
        maps = variant(first, second, *tokens)
        return Attention(maps, provenance, source=source, target=target)

    def _matrix(self, name: str) -> Array:
        return self.backend.array(self.embedding.projection(name))

    def _vector(self, name: str) -> Array:
        return self.backend.array(self.embedding.projection(name, 1)[:, 0] * 2)

    def _parallel(
        self, first: Array, second: Array, a: Tokens, b: Tokens
    ) -> tuple[AttentionMap, ...]:
        names = ("affinity", "first", "second")
        # A smaller affinity matrix keeps tanh off its ends, where every pair would read as ±1.
        parameters = {name: self._matrix(name) for name in names}
        parameters["affinity"] = parameters["affinity"] / self.origin.size**0.5
        parameters |= {f"{name}_score": self._vector(f"{name}_score") for name in names[1:]}
        result = co_parallel(first, second, parameters)
        affinity = AttentionMap(
            "affinity",
            a,
            b,
            to_numpy(result.affinity)[None, None],
            values="signed",
            unit="affinity, from -1 to 1",
            query_side="source",
            key_side="target",
        )
        over_a, over_b = (to_numpy(weights) for weights in result.weights)
        return affinity, summary("a", over_a, a, "source"), summary("b", over_b, b, "target")

    def _alternating(
        self, first: Array, second: Array, a: Tokens, b: Tokens
    ) -> tuple[AttentionMap, ...]:
        parameters = {
            turn: {
                "inputs": self._matrix(f"{turn} inputs"),
                "guide": self._matrix(f"{turn} guide"),
                "score": self._vector(f"{turn} score"),
            }
            for turn in ("first", "second", "first_again")
        }
        alone, over_b, over_a = map(to_numpy, co_alternating(first, second, parameters)[1])
        return (
            summary("a-guided-by-b", over_a, a, "source"),
            summary("b-guided-by-a", over_b, b, "target"),
            summary("a-alone", alone, a, "source"),
        )

    def _two_stream(
        self, first: Array, second: Array, a: Tokens, b: Tokens
    ) -> tuple[AttentionMap, ...]:
        projected = [
            tuple(inputs @ self._matrix(f"{side} {name}") for name in ("query", "key", "value"))
            for side, inputs in (("first", first), ("second", second))
        ]
        over_b, over_a = co_two_stream(projected[0], projected[1], heads=self.heads)[1]
        return (
            AttentionMap(
                "a-to-b", a, b, to_numpy(over_b)[None], query_side="source", key_side="target"
            ),
            AttentionMap(
                "b-to-a", b, a, to_numpy(over_a)[None], query_side="target", key_side="source"
            ),
        )


def summary(
    name: str, weights: NDArray[np.float32], keys: Sequence[Token], side: str
) -> AttentionMap:
    """The weights with which a sequence is summarised, as a map of one query that is no token."""
    return AttentionMap(
        name,
        (Token("[summary]", special=True),),
        tuple(keys),
        weights[None, None, None],
        query_side="summary",
        key_side=side,
    )
