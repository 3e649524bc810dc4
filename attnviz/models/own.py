"""Untrained layers of this package as sources: a mechanism over seeded embeddings of words."""

import zlib
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.core.attention_map import (
    LEARNED_SINK,
    Attention,
    AttentionMap,
    Projections,
    Provenance,
    Token,
    check_finite,
)
from attnviz.core.errors import InputError, UsageError, choose
from attnviz.core.lens_inputs import ValueVectors, inner_products
from attnviz.core.options import Origin
from attnviz.core.query import Query
from attnviz.core.records import dataclass
from attnviz.core.registry import MECHANISMS, Command, Mechanism, MechanismChoice
from attnviz.mechanisms.arrays import Array, to_numpy
from attnviz.mechanisms.dot_product import causal_mask, split_heads
from attnviz.mechanisms.formula import groups_of, logistic, shapes_of
from attnviz.mechanisms.relative import sinusoidal_positions
from attnviz.models import REFUSALS, Source, check_device, check_kind, query_texts

# `check_finite` refuses an overflow by name; numpy need not warn too.
overflowing = np.errstate(over="ignore", invalid="ignore")
HEADS, SIZE = 4, 64  # of a layer without numbers of its own
DTYPES = ("float32", "float64", "float16", "bfloat16")
UNITS = {"less": "share of a row's attention; the sink has the rest"}
UNITS["any"] = "weight from 0 to 1; rows sum to anything"
SIGNED: dict[str, Any] = {"values": "signed", "unit": "affinity, from -1 to 1"}


class SeededLayer(Source):
    """An untrained layer over seeded embeddings; the base of both kinds."""

    def __init__(self, name: str, origin: Origin) -> None:
        self.name, self.entry, self.origin = name, MECHANISMS[name], origin
        choice = origin.layer or MechanismChoice(name)
        self.heads = choice.heads or (HEADS if self.entry.many_heads else 1)
        size = choice.size or SIZE
        if size % self.heads:
            raise UsageError(f"size={size} cannot be split into heads={self.heads} of one size")
        self.dtype = choose(origin.dtype or "float32", DTYPES, "dtype")
        self.device = check_device(origin.processor)  # "auto" stays on the processor
        self.embedding = SeededEmbedding(choice.seed or 0, size)

    def check_overflow(self, stream: str, weights: NDArray[np.float32]) -> NDArray[np.float32]:
        """The weights, unless their precision has overflowed."""
        check_finite(weights, stream, ["0"], dtype=self.dtype)
        return weights

    def array(self, numbers: NDArray[Any]) -> Array:
        """The numbers in this precision on this device; booleans stay booleans."""
        if self.device == "cpu" and self.dtype != "bfloat16":  # else numpy cannot do it
            return numbers if numbers.dtype == bool else numbers.astype(self.dtype)
        import torch

        tensor = torch.from_numpy(np.ascontiguousarray(numbers))
        dtype = None if tensor.dtype == torch.bool else getattr(torch, self.dtype)
        return tensor.to(device=self.device, dtype=dtype)

    def provenance(self) -> Provenance:
        """The origin of the weights, with a warning that they mean nothing."""
        note = f"untrained: '{self.name}' over random vectors shows the mechanism, not meaning"
        embedding = self.embedding
        return Provenance(
            source="own layer",
            model=self.name,
            trained=False,
            device=self.device,
            dtype=self.dtype,
            settings={"size": embedding.size, "heads": self.heads, "seed": embedding.seed}
            | ({LEARNED_SINK: True} if "sink" in self.entry.learned else {}),
            notes=(note,),
            versions={"numpy": np.__version__},
        )


class OwnLayer(SeededLayer):
    """One attention layer over a text ("self": stream "self" or "causal") or a pair ("cross")."""

    def __init__(self, origin: Origin, command: Command) -> None:
        name = check_mechanism(origin.layer.name if origin.layer else "multi-head", command)
        if origin.causal:
            name = MECHANISMS[name].causal or name
        self.hides_later = origin.causal or MECHANISMS[name].causal == name
        if origin.keep_qk and MECHANISMS[name].scaled is None:
            raise UsageError(f"mechanism '{name}' has no scores that --keep-qk could explain")
        super().__init__(name, origin)

    def values(self, query: Query) -> ValueVectors:
        if self.entry.learned or self.entry.groups != "all":
            raise UsageError(
                f"--lens norm adds up values, and mechanism '{self.name}' does more: use --lens raw"
            )
        attention = self._attend_one(query)
        value = self._project("value", self.embedding.embed(attention.main.key_tokens))
        products = inner_products(split_heads(value, self.heads), None)
        return ValueVectors(attention, (products[None],), projected=False)

    @overflowing
    def _attend_one(self, query: Query) -> Attention:
        check_kind(query, "self", "cross")
        looks: dict[str, Any] = {"unit": UNITS[self.entry.sums]} if self.entry.sums != "one" else {}
        if self.entry.signed:
            looks = {"values": "signed", "unit": "implied weight, may be negative"}
        if query.kind == "self":
            queries = keys = word_tokens(query.text)
            stream = "causal" if self.hides_later else "self"
        elif query.target is None:
            raise InputError(f"mechanism '{self.name}' needs a TARGET: it cannot write one itself")
        else:
            keys, queries = word_tokens(query.text), word_tokens(query.target)
            stream, looks = "cross", looks | {"query_side": "target", "key_side": "source"}
        weights, sides = self._attend(queries, keys)
        weights = self.check_overflow(stream, weights)
        item = AttentionMap(stream, queries, keys, weights, **looks)
        projections = dict[str, Projections]()
        if self.origin.keep_qk:
            rows, columns, value = (to_numpy(split_heads(one, self.heads))[None] for one in sides)
            scale = rows.shape[-1] ** -0.5 if self.entry.scaled else 1.0
            own = Projections(rows, columns, scale, item.layers, item.heads, value=value)
            projections[stream] = own
        size = self.heads // groups_of(self.entry, self.heads)
        groups = {stream: dict.fromkeys(item.layers, size)}
        return Attention(
            *((item,), self.provenance(), *query_texts(query)),
            projections=projections,
            group_sizes=groups,
            learned_sink="sink" in self.entry.learned,
        )

    def _attend(
        self, queries: Sequence[Token], keys: Sequence[Token]
    ) -> tuple[NDArray[np.float32], tuple[Array, Array, Array]]:
        """Weights (1, heads, queries, keys), and the queries, keys and values behind them."""
        rows, columns = self.embedding.embed(queries), self.embedding.embed(keys)
        query, key, value = (
            self.array(self._project(name, inputs))
            for name, inputs in (("query", rows), ("key", columns), ("value", columns))
        )
        options: dict[str, Any] = {"heads": self.heads} if self.entry.many_heads else {}
        sides = {"queries": rows, "keys": columns}
        arrays = self.embedding.draw_parameters(self.entry, self.heads)
        for name, axes in self.entry.learned.items():
            side = sides.get(axes.split()[0])
            array = arrays[name] if side is None else logistic(side @ arrays[f"w_{name}"])
            options[name] = self.array(array)
        weights = self.entry.load()(query, key, value, self._mask(query), **options)[1]
        shape = 1, self.heads, len(queries), len(keys)
        return to_numpy(weights).reshape(shape), (query, key, value)

    def _project(self, name: str, inputs: NDArray[np.float64]) -> NDArray[np.float64]:
        if not self.entry.projected:
            return inputs
        return inputs @ self.embedding.projection_for(self.entry, name, self.heads)

    def _mask(self, query: Array) -> Array | None:
        if not self.origin.causal or self.entry.causal == self.name:
            return None
        return causal_mask(query, query.shape[-2], query.shape[-2])


class OwnCoLayer(SeededLayer):
    """One co-attention layer over two texts, A (the source) and B (the target)."""

    def __init__(self, origin: Origin) -> None:
        assert origin.layer is not None
        super().__init__(origin.layer.name, origin)

    @overflowing
    def _attend_one(self, query: Query) -> Attention:
        check_kind(query, "cross")
        if query.target is None:
            raise InputError(REFUSALS["self"])
        first, second = word_tokens(query.text), word_tokens(query.target)
        inputs = (self.array(self.embedding.embed(side)) for side in (first, second))
        parameters = self.embedding.draw_parameters(self.entry, self.heads)
        options: dict[str, Any] = {"heads": self.heads} if self.entry.many_heads else {}
        options |= {name: self.array(parameter) for name, parameter in parameters.items()}
        parts = {part.name: part for part in self.entry.load().parts(*inputs, **options)}
        # A summary attends, but it is no token of either text.
        summary = (Token("[summary]", special=True),)
        sides = {"q": ("source", first), "k": ("target", second), "n": ("summary", summary)}
        maps = []
        for stream, name in self.entry.streams.items():
            (query_side, rows), (key_side, columns) = map(sides.__getitem__, parts[name].axes)
            weights = to_numpy(parts[name].value)
            weights = weights.reshape(1, self.heads, len(rows), len(columns))
            item = AttentionMap(
                stream,
                rows,
                columns,
                self.check_overflow(stream, weights),
                query_side=query_side,
                key_side=key_side,
                **SIGNED if name == "affinity" else {},
            )
            maps.append(item)
        return Attention(tuple(maps), self.provenance(), *query_texts(query))


def check_mechanism(name: str, command: Command) -> str:
    """The name, if the command offers that mechanism."""
    commands = MECHANISMS[name].commands
    if command not in commands:
        raise UsageError(
            f"mechanism '{name}' is not for '{command}': use 'attnviz {commands[0]} --mechanism "
            f"{name}'; 'attnviz models --mechanisms' lists what each command offers"
        )
    return name


@dataclass(frozen=True, slots=True)
class SeededEmbedding:
    """A vector for every word by the seed and the word alone, plus its position."""

    seed: int
    size: int

    def embed(self, tokens: Sequence[Token]) -> NDArray[np.float64]:
        """The vectors of a text's tokens with positions added, shape (tokens, size)."""
        words = np.stack([self.draw(token.text, self.size) for token in tokens])
        return words + sinusoidal_positions(len(tokens), self.size)

    def draw(self, name: str, *shape: int) -> NDArray[np.float64]:
        """Standard normal numbers that depend on the seed, the name and the shape only."""
        # Python's own hash differs from process to process.
        key = zlib.crc32(name.encode("utf-8", "surrogatepass"))
        return np.random.default_rng([self.seed, key, len(name)]).standard_normal(shape)

    def projection(self, name: str, columns: int | None = None) -> NDArray[np.float64]:
        """A matrix of shape (size, columns) that keeps the length of vectors."""
        numbers = self.draw(f"projection {name}", self.size, columns or self.size)
        matrix: NDArray[np.float64] = numbers / np.sqrt(self.size)
        return matrix

    def projection_for(self, row: Mechanism, name: str, heads: int) -> NDArray[np.float64]:
        """The projection to queries, keys or values; the latter may have fewer heads."""
        groups = heads if name == "query" else groups_of(row, heads)
        return self.projection(name, self.size // heads * groups)

    def draw_parameters(self, row: Mechanism, heads: int) -> dict[str, NDArray[np.float64]]:
        """A mechanism's further parameters: small numbers, and w_NAME as a projection."""
        shapes = shapes_of(row, self.size, heads)
        return {name: self.draw_parameter(row, name, shape) for name, shape in shapes.items()}

    def draw_parameter(
        self, row: Mechanism, name: str, shape: tuple[int, ...]
    ) -> NDArray[np.float64]:
        """One of them: a vector of about length 1, or a matrix that keeps lengths."""
        key, along, times = f"parameter {name}", 0 if name.startswith("w_") else -1, 1.0
        if row.mutual:
            # Names of the first version, kept because the random numbers depend on them.
            old_name = " ".join(name[2:].rsplit("_", 1)) if name.startswith("w_") else name
            key, along, times = f"projection {old_name}", 0, 2.0 if len(shape) == 1 else 1.0
            # A smaller affinity matrix keeps tanh away from ±1, where all pairs would look alike.
            times = shape[0] ** -0.5 if name == "w_affinity" else times
        parameter: NDArray[np.float64] = self.draw(key, *shape) / np.sqrt(shape[along]) * times
        return parameter


_WORD = r"[\w&&[^\p{Han}]]+(?:['’][\w&&[^\p{Han}]]+)*"
_PATTERN = rf"(?:\p{{Han}}|{_WORD}|(?!\s)\X)"  # a character, a word or a visible sign


def word_tokens(text: str) -> tuple[Token, ...]:
    """The words and punctuation marks of a text, each with its place; InputError without any."""
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
