"""Dumped queries and keys as a source: it computes their weights."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from attnviz.core.attention_map import Attention, AttentionMap, Link, Provenance, Token
from attnviz.core.errors import InputError
from attnviz.core.options import Origin
from attnviz.core.query import Query
from attnviz.features.qk.engine_dump import LayeredArray, is_engine_dump, read_engine_dump
from attnviz.mechanisms.arrays import softmax
from attnviz.mechanisms.relative import turn
from attnviz.models import Source, check_kind, query_texts
from attnviz.models.own import word_tokens
from attnviz.storage.matrices import read_matrices

if TYPE_CHECKING:
    from attnviz.models.hugging_face.capture.exact_links import IgnoredPositions
    from attnviz.models.hugging_face.capture.region import Region

SETTINGS = ("scale", "causal", "window", "soft_cap", "heads", "groups", "rotated", "rope_theta")
"""Single numbers that a file may hold."""
ARRAYS = ("sinks", "bias")
TILE = 1 << 24  # scores that exist at once, 128 MB of them


class QueriesAndKeys(Source):
    """Weights computed from the queries and keys in a file, row by row, in blocks for long texts.

    The file (.npz, .safetensors or .json) holds `query` and `key` after projection and position,
    shape ([layers,] heads, tokens, size), where keys may have fewer heads that groups of queries
    share; or shape ([layers,] tokens, heads × size) with the numbers `heads` and `groups`. It may
    hold `scale` (default size^-0.5), `causal` (0 or 1), `window` (keys that a query sees, itself
    the last), `soft_cap`, `sinks` ([layers,] heads), `bias` ([layers,] [heads,] queries, keys),
    `tokens`, `query_tokens`, `key_tokens`. With more keys than queries the queries are the last.
    With `rotated` 0 and `rope_theta` queries and keys are turned by their positions here.

    A folder is one request that vLLM-Hook wrote; of it one layer at a time is in memory.
    """

    def __init__(self, origin: Origin, path: Path, region: Region) -> None:
        self.path, self.region = path, region
        self.arrays = read_engine_dump(path) if is_engine_dump(path) else read_matrices(path)
        if missing := [name for name in ("query", "key") if name not in self.arrays]:
            raise InputError(
                f"'{path}' holds no '{missing[0]}'; it holds {', '.join(self.arrays) or 'nothing'}"
            )
        self.numbers = {name: self._number(name) for name in SETTINGS if name in self.arrays}
        self.query = self._in_heads("query", self.numbers.get("heads"))
        groups = self.numbers.get("groups", self.numbers.get("heads"))
        self.key = self._in_heads("key", groups)
        layers, heads, queries, size = self.query.shape
        shape = self.key.shape
        if shape[0] != layers or heads % shape[1] or shape[3] != size or shape[2] < queries:
            raise InputError(
                f"in '{path}' keys of shape {shape} do not meet queries of shape "
                f"{self.query.shape}: both (layers, heads, tokens, size), with a number of key "
                "heads that divides that of the queries, and at least as many keys"
            )
        self.scale = self.numbers.get("scale", size**-0.5)
        self.causal = origin.causal or bool(self.numbers.get("causal"))
        self.layers = self.arrays.get("layers", tuple(map(str, range(layers))))
        self.read: tuple[int, Any, Any] = (-1, None, None)
        self.sinks = self._spread("sinks", (layers, heads))
        self.bias = self._spread("bias", (layers, heads, queries, shape[2]))

    def _number(self, name: str) -> float:
        number = np.asarray(self.arrays[name])
        if number.size != 1 or (name in {"window", "heads", "groups", "soft_cap"} and number <= 0):
            raise InputError(f"'{name}' in '{self.path}' must be one number above 0")
        return float(number.item())

    @property
    def rotary(self) -> str | None:
        """Whether positions were turned into queries and keys, in words; None: nobody says so."""
        if self.numbers.get("rotated", 1.0):
            return "applied before the dump" if "rotated" in self.numbers else None
        base = self.numbers.get("rope_theta")
        return f"applied here, base {base:g}" if base else "not applied: give rope_theta"

    def _arrays(self, layer: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The queries and keys of a layer, each (heads, tokens, size); the last is kept."""
        if self.read[0] != layer:
            query, key = self.query[layer], self.key[layer]
            if not self.numbers.get("rotated", 1.0) and "rope_theta" in self.numbers:
                size, places = key.shape[-1], np.arange(key.shape[-2])[:, None]
                angle = places / self.numbers["rope_theta"] ** (np.arange(0, size, 2) / size)
                query = turn(query, angle[-query.shape[-2] :], "halves")
                key = turn(key, angle, "halves")
            self.read = layer, query, key
        return self.read[1:]

    def _in_heads(self, name: str, heads: float | None) -> Any:
        array: Any = self.arrays[name]
        if isinstance(array, LayeredArray):
            return array
        if heads is not None:
            if array.ndim not in {2, 3} or array.shape[-1] % int(heads):
                raise InputError(
                    f"'{name}' in '{self.path}' of shape {array.shape} cannot be split into "
                    f"{int(heads)} heads: with 'heads', its shape is ([layers,] tokens, features)"
                )
            array = array.reshape(*array.shape[:-1], int(heads), -1).swapaxes(-2, -3)
        if array.ndim not in {3, 4} or not array.size:
            raise InputError(
                f"'{name}' in '{self.path}' has the shape {array.shape}, not ([layers,] heads, "
                "tokens, size); give 'heads' where heads are side by side in the features"
            )
        return array if array.ndim == 4 else array[None]

    def _spread(self, name: str, shape: tuple[int, ...]) -> NDArray[np.float64] | None:
        if name not in self.arrays:
            return None
        try:
            return np.broadcast_to(self.arrays[name], shape)
        except ValueError as error:
            raise InputError(
                f"'{name}' in '{self.path}' has the shape {self.arrays[name].shape}, which does "
                f"not spread to {shape}"
            ) from error

    def _attend_one(self, query: Query) -> Attention:
        from attnviz.models.hugging_face.capture.exact_links import IgnoredPositions, links_note
        from attnviz.models.hugging_face.capture.region import DEFAULT_SIZE, grids_of, region_note

        check_kind(query, "self", "cross")
        (_, _, rows, _), columns = self.query.shape, self.key.shape[2]
        kind = "cross" if query.kind == "cross" else "causal" if self.causal else "self"
        texts = (query.target, query.text) if kind == "cross" else (query.text, query.text)
        keys = self._tokens("key_tokens", texts[1], columns)
        queries = self._tokens("query_tokens", texts[0], rows, like=keys)
        sides = {kind: (rows, columns)}
        grid = grids_of(sides, self.region, self.region.max_size or DEFAULT_SIZE)[kind]
        count = self.region.links if grid.is_pooled else 0
        first = (0,) if kind == "causal" else ()
        skip = IgnoredPositions(keys=first, itself=kind != "cross")
        layers = [self._layer(number, grid, count, skip) for number in range(len(self.query))]
        item = AttentionMap(
            kind,
            grid.queries.tokens(queries),
            grid.keys.tokens(keys),
            np.stack([weights for weights, _ in layers]),
            query_side="target" if kind == "cross" else "text",
            key_side="source" if kind == "cross" else "text",
            blocks=(grid.queries.length, grid.keys.length),
            starts=(grid.queries.start, grid.keys.start),
            layers=self.layers,
            links=tuple(
                Link(queries[row].text, keys[column].text, weight, layer, head, row, column)
                for layer, (_, strongest) in zip(self.layers, layers, strict=True)
                for head, weight, row, column in strongest
            ),
        )
        notes: tuple[str, ...] = (
            region_note(grid, sides[kind]),
            links_note(count, skip) if count else "",
        )
        settings: dict[str, Any] = {"scale": self.scale, "causal": self.causal}
        settings |= {n: x for n, x in self.numbers.items() if n in {"window", "soft_cap"}}
        settings |= {name: "given" for name in ARRAYS if name in self.arrays}
        settings |= {"rotary": self.rotary} if self.rotary else {}
        settings = {"weights": "computed from queries and keys", **settings}
        notes = tuple(filter(None, notes))
        provenance = Provenance("file", self.path.name, settings=settings, notes=notes)
        size = self.query.shape[1] // self.key.shape[1]
        groups = {kind: dict.fromkeys(self.layers, size)}
        facts: dict[str, Any] = {"group_sizes": groups, "learned_sink": self.sinks is not None}
        return Attention((item,), provenance, *query_texts(query), **facts)

    def _tokens(
        self, name: str, text: str | None, count: int, like: tuple[Token, ...] = ()
    ) -> tuple[Token, ...]:
        words = self.arrays.get(name, self.arrays.get("tokens"))
        if text:
            tokens = word_tokens(text)
        elif words is not None:
            tokens = tuple(Token(word) for word in words)
        else:
            tokens = like or tuple(Token(str(place)) for place in range(count))
        if like and len(tokens) == len(like):
            tokens = tokens[-count:]  # queries are the last positions
        if len(tokens) != count:
            words = " ".join(token.text for token in tokens)[:60]
            raise InputError(
                f"'{self.path}' has {count} {name.removesuffix('_tokens')} tokens, and "
                f"{len(tokens)} are named: {words}"
            )
        return tokens

    def _layer(
        self, layer: int, grid: Any, count: int, skip: IgnoredPositions
    ) -> tuple[NDArray[np.float32], list[tuple[str, float, int, int]]]:
        """A layer's weights in blocks (heads, query blocks, key blocks), and its links."""
        heads = self.query.shape[1]
        blocks_of_heads = np.zeros((heads, grid.queries.blocks, grid.keys.blocks), np.float32)
        starts = np.arange(grid.keys.start, grid.keys.stop, grid.keys.length) - grid.keys.start
        best: list[list[tuple[str, float, int, int]]] = [[] for _ in range(heads)]
        for first, last in self._tiles(grid):
            for head in range(heads):
                weights = self._weights(layer, head, first, last)[:, : grid.keys.stop]
                sums = np.add.reduceat(weights[:, grid.keys.start :], starts, axis=1)
                blocks = (np.arange(first, last) - grid.queries.start) // grid.queries.length
                for block in np.unique(blocks):
                    own = sums[blocks == block]
                    whole = grid.queries.spans[block]
                    blocks_of_heads[head, block] += own.sum(axis=0) / (whole[1] - whole[0])
                if count:
                    candidates = best[head] + self._strongest(weights, head, first, count, skip)
                    best[head] = sorted(candidates, key=lambda link: -link[1])[:count]
        return blocks_of_heads, [link for links in best for link in links]

    def _tiles(self, grid: Any) -> Iterator[tuple[int, int]]:
        step = max(1, TILE // self.key.shape[2])
        for first in range(grid.queries.start, grid.queries.stop, step):
            yield first, min(first + step, grid.queries.stop)

    def _weights(self, layer: int, head: int, first: int, last: int) -> NDArray[np.float64]:
        """The weights of some rows, shape (rows, keys)."""
        groups = self.query.shape[1] // self.key.shape[1]
        query, key = self._arrays(layer)
        with np.errstate(over="ignore", invalid="ignore"):  # a map refuses what is not finite
            scores = query[head, first:last] @ key[head // groups].T
            scores = scores * self.scale
            if cap := self.numbers.get("soft_cap"):
                scores = cap * np.tanh(scores / cap)
            if self.bias is not None:
                scores = scores + self.bias[layer, head, first:last]
            mask = self._mask(first, last)
            if self.sinks is None:
                weights: NDArray[np.float64] = softmax(scores, mask)
                return weights
            sink = np.full((last - first, 1), self.sinks[layer, head])
            visible = None if mask is None else np.hstack([mask, np.ones_like(sink, bool)])
            shares: NDArray[np.float64] = softmax(np.hstack([scores, sink]), visible)
            return shares[:, :-1]

    def _mask(self, first: int, last: int) -> NDArray[np.bool_] | None:
        window = self.numbers.get("window")
        if not self.causal and window is None:
            return None
        keys, queries = self.key.shape[2], self.query.shape[2]
        behind = np.arange(first, last)[:, None] + keys - queries - np.arange(keys)
        visible = behind >= 0 if self.causal else np.ones_like(behind, bool)
        mask: NDArray[np.bool_] = visible if window is None else visible & (np.abs(behind) < window)
        return mask

    def _strongest(
        self,
        weights: NDArray[np.float64],
        head: int,
        first: int,
        count: int,
        skip: IgnoredPositions,
    ) -> list[tuple[str, float, int, int]]:
        """The strongest links of some rows, without ignored positions."""
        rows, columns = weights.shape
        weights = weights.copy()
        own = np.arange(rows) + first + self.key.shape[2] - self.query.shape[2]
        inside = (own >= 0) & (own < columns)
        if skip.itself:
            weights[np.arange(rows)[inside], own[inside]] = 0
        weights[:, list(skip.keys)] = 0
        places = np.argpartition(weights.ravel(), -min(count, weights.size))[-count:]
        return [
            (str(head), float(weights.flat[place]), first + place // columns, place % columns)
            for place in places.tolist()
            if weights.flat[place] > 0
        ]
