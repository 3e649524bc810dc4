"""Files as sources: matrices of weights or projections, and saved maps."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.core.attention_map import Attention, AttentionMap, Provenance, Token
from attnviz.core.errors import InputError, UsageError
from attnviz.core.options import Origin
from attnviz.core.query import Query
from attnviz.mechanisms.dot_product import causal_mask, multi_head
from attnviz.models import Source, check_kind, own, query_texts
from attnviz.storage.matrices import read_matrices

PROJECTIONS = ("w_query", "w_key")


class MatrixSource(Source):
    """A file's weights with two to four axes (layers, heads, queries, keys), or projections."""

    def __init__(self, origin: Origin, path: Path) -> None:
        self.origin, self.path = origin, path
        self.arrays = read_matrices(path)
        if "weights" in self.arrays:
            axes = len(self.arrays.shape("weights"))
            if not 2 <= axes <= 4:
                raise InputError(f"'weights' in '{path}' has {axes} axes, not 2, 3 or 4")
            if origin.causal:
                raise UsageError(f"--causal changes nothing in '{path}': its weights are given")
        elif not all(name in self.arrays for name in PROJECTIONS):
            raise InputError(
                f"'{path}' holds neither 'weights' nor 'w_query' and 'w_key'; "
                f"it holds {', '.join(self.arrays) or 'nothing'}"
            )

    def _attend_one(self, query: Query) -> Attention:
        check_kind(query, "self", "cross")
        if query.kind == "self":
            queries = self._tokens("query_tokens", query.text, "text")
            keys = self._tokens("key_tokens", query.text, "text")
            stream = "causal" if self.origin.causal else "self"
            item = AttentionMap(stream, queries, keys, self._weights(queries, keys))
        else:
            queries = self._tokens("query_tokens", query.target, "target")
            keys = self._tokens("key_tokens", query.text, "source")
            weights = self._weights(queries, keys)
            item = AttentionMap(
                "cross", queries, keys, weights, query_side="target", key_side="source"
            )
        return Attention((item,), self._provenance(), *query_texts(query))

    def _tokens(self, name: str, text: str | None, what: str) -> tuple[Token, ...]:
        if text:
            return own.word_tokens(text)
        words = self.arrays.get(name, self.arrays.get("tokens"))
        if words is None:
            raise InputError(f"'{self.path}' names no tokens: give a {what}, or store '{name}'")
        return tuple(Token(word) for word in words)

    def _weights(self, queries: Sequence[Token], keys: Sequence[Token]) -> NDArray[np.float32]:
        if "weights" not in self.arrays:
            return self._attend(queries, keys)
        shape = self.arrays.shape("weights")
        for axis, tokens, what in ((-2, queries, "query"), (-1, keys, "key")):
            if shape[axis] != len(tokens):
                raise InputError(
                    f"'{self.path}' has weights for {shape[axis]} {what} tokens, "
                    f"but there are {len(tokens)}: {' '.join(t.text for t in tokens)[:60]}"
                )
        weights: NDArray[np.float32] = self.arrays["weights"].astype(np.float32)
        return weights.reshape((1,) * (4 - len(shape)) + shape)

    def _attend(self, queries: Sequence[Token], keys: Sequence[Token]) -> NDArray[np.float32]:
        w_query, w_key = (self.arrays[name] for name in PROJECTIONS)
        if w_query.ndim != 2 or w_key.ndim != 2 or w_query.shape[1] != w_key.shape[1]:
            raise InputError(
                f"'w_query' of shape {w_query.shape} and 'w_key' of shape {w_key.shape} "
                f"in '{self.path}' do not meet: both need two axes and as many columns"
            )
        heads = self._heads(w_query.shape[1])
        with np.errstate(over="ignore", invalid="ignore"):  # a map refuses what is not finite
            query = self._inputs(queries, w_query.shape[0]) @ w_query
            key = self._inputs(keys, w_key.shape[0]) @ w_key
            mask = causal_mask(query, len(queries), len(keys)) if self.origin.causal else None
            weights: NDArray[np.float64] = multi_head(query, key, key, mask, heads=heads)[1]
        return weights.astype(np.float32)[None]

    def _heads(self, size: int) -> int:
        number = np.asarray(self.arrays.get("heads", 1.0))
        heads = float(number) if number.ndim == 0 else 0.0
        if heads < 1 or size % heads:
            raise InputError(
                f"'heads' in '{self.path}' is {number.tolist()}, but must be one number that "
                f"divides the {size} columns of 'w_query'"
            )
        return int(heads)

    def _inputs(self, tokens: Sequence[Token], size: int) -> NDArray[np.float64]:
        if "inputs" not in self.arrays:
            return own.SeededEmbedding(0, size).embed(tokens)
        inputs: NDArray[np.float64] = self.arrays["inputs"]
        if inputs.shape != (len(tokens), size):
            raise InputError(
                f"'inputs' in '{self.path}' has the shape {inputs.shape}, "
                f"but {len(tokens)} tokens of size {size} are needed"
            )
        return inputs

    def _provenance(self) -> Provenance:
        is_map = "weights" in self.arrays
        settings: dict[str, Any] = {} if is_map else {"seed": 0}
        notes = () if is_map or "inputs" in self.arrays else ("inputs are seeded random vectors",)
        return Provenance("file", self.path.name, settings=settings, notes=notes)


class SavedMaps(Source):
    """Saved attention, found by its texts; an empty text finds the only one."""

    def __init__(self, attentions: Sequence[Attention], path: Path) -> None:
        self.attentions, self.path = attentions, path

    def _attend_one(self, query: Query) -> Attention:
        check_kind(query, "self", "cross")
        text, target = query.text, query.target
        if query.kind == "self":
            matches = [item for item in self.attentions if text in ("", item.text)]
        else:
            matches = [
                item
                for item in self.attentions
                if text in ("", item.source) and (target or item.target) == item.target
            ]
        if not matches:
            raise InputError(f"'{self.path}' holds the attention of other texts")
        if len({(item.text, item.source, item.target) for item in matches}) > 1:
            raise InputError(
                f"'{self.path}' holds the attention of {len(matches)} texts: say which one's, or "
                f"see them all with 'attnviz render {self.path}'"
            )
        return matches[0].with_maps(matches[0].maps, settings={"read from": self.path.name})


class Results(Source):
    """Maps in Python as a source: the first query gets the first, and so on."""

    def __init__(self, attentions: Iterable[Attention]) -> None:
        self.attentions = iter(attentions)

    def _attend_one(self, query: Query) -> Attention:
        return next(self.attentions)
