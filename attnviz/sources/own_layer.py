"""One untrained layer over seeded embeddings: the shape of a mechanism, without a meaning."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.attention_map import Attention, AttentionMap, Projections, Provenance, Token
from attnviz.errors import InputError, UsageError, choose
from attnviz.evidence import Transformed, inner_products
from attnviz.mechanisms.arrays import Array
from attnviz.mechanisms.causal import causal_mask
from attnviz.mechanisms.multi_head import split_heads
from attnviz.mechanisms.positions import sinusoidal_positions
from attnviz.registry import MECHANISMS, Command
from attnviz.request import Origin
from attnviz.sources.backend import Backend, choose_backend, to_numpy
from attnviz.sources.words import split_words


@dataclass(frozen=True, slots=True)
class SeededEmbedding:
    """A vector for every word, drawn from the seed and the word alone, plus its position.

    Equal words get equal vectors in every text and on every machine.
    """

    seed: int
    size: int

    def embed(self, tokens: Sequence[Token]) -> NDArray[np.float64]:
        """The vectors of a text's tokens with positions added, shape (tokens, size)."""
        words = np.stack([self.draw(token.text, self.size) for token in tokens])
        return words + sinusoidal_positions(len(tokens), self.size)

    def draw(self, name: str, *shape: int) -> NDArray[np.float64]:
        """Standard normal numbers that depend on the seed, the name and the shape only."""
        key = zlib.crc32(name.encode("utf-8", "surrogatepass"))
        return np.random.default_rng([self.seed, key, len(name)]).standard_normal(shape)

    def projection(self, name: str, columns: int | None = None) -> NDArray[np.float64]:
        """A matrix of shape (size, columns) that keeps the length of what it is applied to."""
        drawn = self.draw(f"projection {name}", self.size, columns or self.size)
        matrix: NDArray[np.float64] = drawn / np.sqrt(self.size)
        return matrix


class OwnLayer:
    """One attention layer of this package, untrained, as a source of maps."""

    def __init__(self, origin: Origin, command: Command) -> None:
        """Check what was asked for before any text is read.

        Raises:
            UsageError: an unknown mechanism or device, or sizes that do not fit.
        """
        self.name = check_mechanism(origin.mechanism or "multi-head", command)
        entry = MECHANISMS[self.name]
        if origin.causal and entry.causal:
            self.name, entry = entry.causal, MECHANISMS[entry.causal]
        if origin.keep_qk and entry.scaled is None:
            raise UsageError(f"mechanism '{self.name}' has no scores that --keep-qk could explain")
        self.entry, self.origin = entry, origin
        self.heads = check_sizes(origin) if entry.many_heads else 1
        self.backend: Backend = choose_backend(origin.device, origin.dtype)
        self.embedding = SeededEmbedding(origin.seed, origin.size)

    def attend_self(self, text: str) -> Attention:
        """The attention of a text over itself: stream "self", or "causal"."""
        tokens = split_words(text)
        hides_later = self.origin.causal or self.name.startswith("causal")
        stream = "causal" if hides_later else "self"
        weights, kept = self._attend(tokens, tokens)
        item = AttentionMap(stream, tokens, tokens, weights)
        return Attention((item,), self._provenance(), text, projections=self._kept(item, kept))

    def attend_cross(self, source: str, target: str | None) -> Attention:
        """The attention of the target's words over the source's: stream "cross".

        Raises:
            InputError: no target; an untrained layer cannot make one up.
        """
        if target is None:
            raise InputError(f"mechanism '{self.name}' needs a TARGET: it cannot write one itself")
        keys, queries = split_words(source), split_words(target)
        weights, kept = self._attend(queries, keys)
        cross = AttentionMap(
            "cross", queries, keys, weights, query_side="target", key_side="source"
        )
        projections = self._kept(cross, kept)
        return Attention(
            (cross,), self._provenance(), source=source, target=target, projections=projections
        )

    def transform_self(self, text: str) -> Transformed:
        """The values of a text's words, as each head sees them; there is no output projection."""
        return self._transform(self.attend_self(text))

    def transform_cross(self, source: str, target: str | None = None) -> Transformed:
        """The values of the source's words, as each head sees them.

        Raises:
            InputError: no target.
        """
        return self._transform(self.attend_cross(source, target))

    def _transform(self, attention: Attention) -> Transformed:
        value = self._project("value", self.embedding.embed(attention.main.key_tokens))
        products = inner_products(split_heads(value, self.heads), None)
        return Transformed(attention, (products[None],), projected=False)

    def _attend(
        self, queries: Sequence[Token], keys: Sequence[Token]
    ) -> tuple[NDArray[np.float32], tuple[Array, Array]]:
        """Weights of shape (1, heads, queries, keys), and the queries and keys behind them."""
        asking, asked = self.embedding.embed(queries), self.embedding.embed(keys)
        query, key, value = (
            self.backend.array(self._project(name, inputs))
            for name, inputs in (("query", asking), ("key", asked), ("value", asked))
        )
        options: dict[str, Any] = {"heads": self.heads} if self.entry.many_heads else {}
        weights = self.entry.load()(query, key, value, self._mask(query), **options)[1]
        return to_numpy(weights).reshape(1, self.heads, len(queries), len(keys)), (query, key)

    def _kept(self, item: AttentionMap, kept: tuple[Array, Array]) -> dict[str, Projections]:
        """Queries and keys by stream, where they were asked for."""
        if not self.origin.keep_qk:
            return {}
        query, key = (to_numpy(split_heads(side, self.heads))[None] for side in kept)
        scale = query.shape[-1] ** -0.5 if self.entry.scaled else 1.0
        return {item.stream: Projections(query, key, scale, item.layers, item.heads)}

    def _project(self, name: str, inputs: NDArray[np.float64]) -> NDArray[np.float64]:
        return inputs @ self.embedding.projection(name) if self.entry.projected else inputs

    def _mask(self, query: Array) -> Array | None:
        if not self.origin.causal or self.name.startswith("causal"):
            return None
        return causal_mask(query, query.shape[-2], query.shape[-2])

    def _provenance(self) -> Provenance:
        return own_provenance(self.name, self.origin, self.heads, self.backend)


def own_provenance(name: str, origin: Origin, heads: int, backend: Backend) -> Provenance:
    """Where an untrained layer's weights come from, with the warning that they mean nothing."""
    return Provenance(
        source="own layer",
        model=name,
        trained=False,
        device=backend.device,
        dtype=backend.dtype,
        settings={"size": origin.size, "heads": heads, "seed": origin.seed},
        notes=(f"untrained: '{name}' over random vectors shows the mechanism, not meaning",),
        versions={"numpy": np.__version__},
    )


def check_mechanism(name: str, command: Command) -> str:
    """The name where the command offers that mechanism.

    Raises:
        UsageError: it is unknown, or another command's.
    """
    if name not in MECHANISMS:
        choose(name, MECHANISMS, "mechanism")
    commands = MECHANISMS[name].commands
    if command not in commands:
        option = f"--variant {name[3:]}" if commands == ("co",) else f"--mechanism {name}"
        raise UsageError(
            f"mechanism '{name}' is not for '{command}': use 'attnviz {commands[0]} {option}'; "
            "'attnviz mechanisms' lists what each command offers"
        )
    return name


def check_sizes(origin: Origin) -> int:
    """The number of heads where they share out the size evenly.

    Raises:
        UsageError: they do not.
    """
    if origin.size % origin.heads:
        raise UsageError(f"--size {origin.size} cannot be split into {origin.heads} equal heads")
    return origin.heads
