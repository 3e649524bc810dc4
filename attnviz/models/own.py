"""Untrained layers of this package as sources: a mechanism over seeded embeddings of words."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.core.attention_map import Attention, AttentionMap, Projections, Provenance, Token
from attnviz.core.errors import InputError, UsageError, choose
from attnviz.core.lens_inputs import ValueVectors, inner_products
from attnviz.core.options import Origin
from attnviz.core.query import Query
from attnviz.core.registry import MECHANISMS, Command, Entry
from attnviz.mechanisms.arrays import Array
from attnviz.mechanisms.dot_product import causal_mask, split_heads
from attnviz.mechanisms.positions import sinusoidal_positions
from attnviz.models.kinds import attend_each, check_kind, texts_of

DEVICES = ("auto", "cpu", "cuda", "mps")
DTYPES = ("float32", "float64", "float16", "bfloat16")


@dataclass(frozen=True, slots=True)
class Backend:
    """A device and a precision; "auto" stays on the processor, where a sentence needs no more."""

    device: str
    dtype: str

    @property
    def on_torch(self) -> bool:
        """True where numpy cannot do it."""
        return self.device != "cpu" or self.dtype == "bfloat16"

    def array(self, numbers: NDArray[Any]) -> Array:
        """The numbers as an array of this backend; booleans stay booleans."""
        if not self.on_torch:
            return numbers if numbers.dtype == bool else numbers.astype(self.dtype)
        import torch

        tensor = torch.from_numpy(np.ascontiguousarray(numbers))
        dtype = None if tensor.dtype == torch.bool else getattr(torch, self.dtype)
        return tensor.to(device=self.device, dtype=dtype)


def choose_backend(device: str, dtype: str | None) -> Backend:
    """The backend that a device and a precision by name stand for.

    Raises:
        UsageError: an unknown name, or a device that this machine lacks.
    """
    choose(device, DEVICES, "device")
    dtype = choose(dtype or "float32", DTYPES, "dtype")
    if device in ("cuda", "mps"):
        import torch

        found = torch.cuda.is_available() if device == "cuda" else torch.mps.is_available()
        if not found:
            raise UsageError(f"device '{device}' is not available on this machine: use cpu")
    return Backend("cpu" if device == "auto" else device, dtype)


def to_numpy(array: Array) -> NDArray[np.float32]:
    """The array's numbers as float32 in numpy."""
    if isinstance(array, np.ndarray):
        return array.astype(np.float32)
    numbers: NDArray[np.float32] = array.detach().float().cpu().numpy()
    return numbers


_WORD = r"[\w&&[^\p{Han}]]+(?:['’][\w&&[^\p{Han}]]+)*"
_PATTERN = rf"(?:\p{{Han}}|{_WORD}|(?!\s)\X)"
"""A Chinese character, a word with its inner apostrophes, or one visible sign (an emoji whole)."""


def split_words(text: str) -> tuple[Token, ...]:
    """The words and punctuation marks of a text, each with its place in it.

    Raises:
        InputError: there is none.
    """
    tokens = tuple(
        Token(word, start, end) for word, (start, end) in _splitter().pre_tokenize_str(text)
    )
    if not tokens:
        raise InputError("the text is empty")
    return tokens


@cache
def _splitter() -> Any:
    from tokenizers import Regex
    from tokenizers.pre_tokenizers import Split

    return Split(Regex(_PATTERN), behavior="removed", invert=True)


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

    def attend(
        self, queries: Sequence[Query], *, batch_size: int | None = None
    ) -> Iterator[Attention | InputError]:
        """The maps of texts ("self": stream "self" or "causal") and pairs ("cross"), one by one."""
        return attend_each(self._attend_one, queries)

    def values(self, query: Query) -> ValueVectors:
        """The values of the keys' words, as each head sees them; there is no output projection."""
        attention = self._attend_one(query)
        value = self._project("value", self.embedding.embed(attention.main.key_tokens))
        products = inner_products(split_heads(value, self.heads), None)
        return ValueVectors(attention, (products[None],), projected=False)

    def _attend_one(self, query: Query) -> Attention:
        """The maps of one query.

        Raises:
            UsageError: a kind of query that needs another source.
            InputError: no target; an untrained layer cannot write one.
        """
        check_kind(query, "self", "cross")
        if query.kind == "self":
            queries = keys = split_words(query.text)
            weights, kept = self._attend(queries, keys)
            hides_later = self.origin.causal or self.name.startswith("causal")
            item = AttentionMap("causal" if hides_later else "self", queries, keys, weights)
        elif query.target is None:
            raise InputError(f"mechanism '{self.name}' needs a TARGET: it cannot write one itself")
        else:
            keys, queries = split_words(query.text), split_words(query.target)
            weights, kept = self._attend(queries, keys)
            item = AttentionMap(
                "cross", queries, keys, weights, query_side="target", key_side="source"
            )
        provenance = own_provenance(self.name, self.origin, self.heads, self.backend)
        return Attention((item,), provenance, *texts_of(query), projections=self._kept(item, kept))

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


SIGNED: dict[str, Any] = {"values": "signed", "unit": "affinity, from -1 to 1"}


class OwnCoLayer:
    """Co-attention of two texts, A (the source) and B (the target), untrained."""

    def __init__(self, origin: Origin) -> None:
        """Check the options before any text is read.

        Raises:
            UsageError: an unknown variant or device, or sizes that do not fit.
        """
        self.name = check_mechanism(origin.mechanism or "co-parallel", "co")
        self.entry, self.origin = MECHANISMS[self.name], origin
        self.heads = check_sizes(origin) if self.entry.many_heads else 1
        self.backend = choose_backend(origin.device, origin.dtype)
        self.embedding = SeededEmbedding(origin.seed, origin.size)

    def attend(
        self, queries: Sequence[Query], *, batch_size: int | None = None
    ) -> Iterator[Attention | InputError]:
        """The maps of pairs ("co") one by one; the streams depend on the variant."""
        return attend_each(self._attend_one, queries)

    def matrix(self, name: str) -> Array:
        """Drawn parameters of shape (size, size)."""
        return self.backend.array(self.embedding.projection(name))

    def vector(self, name: str) -> Array:
        """Drawn parameters of shape (size,)."""
        return self.backend.array(self.embedding.projection(name, 1)[:, 0] * 2)

    def _attend_one(self, query: Query) -> Attention:
        check_kind(query, "co")
        if query.target is None:
            raise InputError("co-attention needs two texts: attnviz co A B")
        first, second = split_words(query.text), split_words(query.target)
        inputs = (self.backend.array(self.embedding.embed(side)) for side in (first, second))
        run = Entry(self.entry.summary, self.entry.own_layer).load()
        # A summary is a query that is no token of either text.
        summary = (Token("[summary]", special=True),)
        sides = {"first": first, "second": second, "summary": summary}
        names = {"first": "source", "second": "target", "summary": "summary"}
        maps = []
        for found in run(*inputs, self, self.heads):
            shape = (1, self.heads, len(sides[found.rows]), len(sides[found.columns]))
            item = AttentionMap(
                found.stream,
                sides[found.rows],
                sides[found.columns],
                to_numpy(found.weights).reshape(shape),
                query_side=names[found.rows],
                key_side=names[found.columns],
                **SIGNED if found.signed else {},
            )
            maps.append(item)
        provenance = own_provenance(self.name, self.origin, self.heads, self.backend)
        return Attention(tuple(maps), provenance, *texts_of(query))
