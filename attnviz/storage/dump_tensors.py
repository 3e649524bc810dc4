"""Attention that another program saved as arrays by name: BertViz, transformers, notebooks.

A file (.npz, .safetensors or JSON of nested lists) holds one array for a stream or for each layer:

    attention, attentions, weights, attn            attention_0, attentions.1, layer_0, layer.1
    encoder_attention, decoder_attention, cross_attention, each with or without a final s

An array of all layers has the axes ([layers, [batch of 1,]] [heads,] queries, keys), a layer's
([batch of 1,] [heads,] queries, keys). Tokens are lists of words: tokens; query_tokens and
key_tokens; left_text and right_text; target_tokens and source_tokens; decoder_tokens and
encoder_tokens. In BertViz's own JSON the streams stand in a list under attention:
[{"name", "attn", "left_text", "right_text"}].
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.core.attention_map import Attention, AttentionMap, Provenance, Token
from attnviz.core.errors import InputError
from attnviz.storage.documents import check_words, read_numbers

PLAIN = ("attention", "attentions", "weights", "attn", "layer")
STREAMS = ("encoder", "decoder", "cross")
QUERY_TOKENS = ("query_tokens", "left_text", "target_tokens", "decoder_tokens", "tokens")
KEY_TOKENS = ("key_tokens", "right_text", "source_tokens", "encoder_tokens", "tokens")
NUMBERED = "they are numbered"
MARKS = frozenset(
    ("[CLS]", "[SEP]", "[PAD]", "<s>", "</s>", "<pad>", "<bos>", "<eos>", "<|endoftext|>")
)
"""Tokens that stand for no text, as common tokenizers spell them."""

_NAME = re.compile(
    rf"(?:(?P<stream>{'|'.join(STREAMS)})_attentions?|{'|'.join(PLAIN)})(?:[_.]?(?P<layer>\d{{1,18}}))?"
)


@dataclass(frozen=True, slots=True, eq=False)
class Dump(Attention):
    """Attention that another program saved.

    Attributes:
        unnamed: notes on tokens without names; a text that is given later may name them.
        ends_early: whether the maps may end before the text does, as a list of links does.
    """

    unnamed: tuple[str, ...] = ()
    ends_early: bool = False


def holds_dump(names: Sequence[str]) -> bool:
    """Whether one of the names is a name of attention."""
    return any(_NAME.fullmatch(name) for name in names)


def read_arrays(found: Mapping[str, Any], where: str, identity: str = "0") -> Dump:
    """The attention in arrays by name."""
    streams: dict[str, dict[str | None, Any]] = {}
    for name in found:
        match = _NAME.fullmatch(name)
        if match:  # an archive knows the shapes of its arrays before it reads them
            shape = getattr(found, "shapes", {}).get(name, ())
            for size, what in zip(shape[-2:], ("query", "key"), strict=False):
                _tokens(found, _names_for(match["stream"] or "self", what), size, what, where)
        value = found[name] if match else None
        if match and _is_views(value):
            views = [_from_view(view, where) for view in value or ()]
            return _attention(views, where, identity)
        if match:
            streams.setdefault(match["stream"] or "self", {})[match["layer"]] = value
    if not streams:
        raise InputError(
            f"{where} holds no attention that is known by name: it holds "
            f"{', '.join(found) or 'nothing'}; call it attention, layer_0, layer_1, … or "
            "cross_attention, and store tokens"
        )
    return _attention(
        [_from_arrays(stream, arrays, found, where) for stream, arrays in streams.items()],
        where,
        identity,
    )


def token_of(text: str) -> Token:
    """A token, special if it stands for no text."""
    return Token(text, special=text in MARKS)


def number_tokens(count: int) -> tuple[Token, ...]:
    """Tokens named by their positions."""
    return tuple(Token(str(position)) for position in range(count))


def _attention(views: Sequence[tuple[AttentionMap, bool]], where: str, identity: str) -> Dump:
    notes = () if all(named for _, named in views) else (f"the file names no tokens: {NUMBERED}",)
    maps = tuple(item for item, _ in views)
    return Dump(maps, file_provenance(where, notes), id=identity, unnamed=notes)


def file_provenance(where: str, notes: tuple[str, ...]) -> Provenance:
    """The provenance of attention from a file: the file's name."""
    return Provenance("file", where.strip("'").rpartition("/")[2], notes=notes)


def _is_views(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(v, Mapping) for v in value)


def _from_view(view: Mapping[str, Any], where: str) -> tuple[AttentionMap, bool]:
    if "attn" not in view:
        raise InputError(f"an entry of 'attention' in {where} has no 'attn'")
    stream = str(view.get("name") or "self").lower()
    return _from_arrays(stream, {None: view["attn"]}, view, where)


def _from_arrays(
    stream: str, arrays: Mapping[str | None, Any], found: Mapping[str, Any], where: str
) -> tuple[AttentionMap, bool]:
    """The map of one stream, and whether the file names its tokens."""
    if None in arrays and len(arrays) > 1:
        raise InputError(f"{where} holds attention both at once and by layer: keep one")
    if None in arrays:
        weights = _axes(read_numbers(arrays[None], f"attention in {where}"), 4, "attention", where)
        layers: tuple[str, ...] = ()
    else:
        numbers = sorted(arrays, key=lambda name: int(name or 0))
        each = [
            _axes(read_numbers(arrays[name], f"attention in {where}"), 3, "a layer", where)
            for name in numbers
        ]
        if len({array.shape for array in each}) > 1:
            shapes = ", ".join(str(array.shape) for array in each[:4])
            raise InputError(f"layers in {where} have different shapes: {shapes}")
        weights = np.stack(each)
        layers = tuple(str(int(name or 0)) for name in numbers)
    queries = _tokens(found, _names_for(stream, "query"), weights.shape[2], "query", where)
    keys = _tokens(found, _names_for(stream, "key"), weights.shape[3], "key", where)
    _refuse_transposed(weights, where)
    same = queries is None or queries == keys
    if stream == "self" and not (same and weights.shape[2] == weights.shape[3]):
        stream = "cross"
    sides = ("target", "source") if stream == "cross" else ("text", "text")
    item = AttentionMap(
        stream,
        queries or number_tokens(weights.shape[2]),
        keys or number_tokens(weights.shape[3]),
        weights,
        layers=layers,
        query_side=sides[0],
        key_side=sides[1],
    )
    return item, queries is not None and keys is not None


def _names_for(stream: str, what: str) -> tuple[str, ...]:
    if stream in ("encoder", "decoder"):
        return (f"{stream}_tokens", "tokens")
    return QUERY_TOKENS if what == "query" else KEY_TOKENS


def _axes(array: NDArray[np.float32], wanted: int, what: str, where: str) -> NDArray[np.float32]:
    """Axes ([layers, [batch,]] [heads,] queries, keys) as four, or those of one layer as three."""
    if array.ndim == wanted + 1:
        batch = array.shape[wanted - 3]
        if batch != 1:
            raise InputError(f"{what} in {where} is of a batch of {batch}: save one text")
        return array.squeeze(wanted - 3)
    if not 2 <= array.ndim <= wanted:
        raise InputError(f"{what} in {where} has {array.ndim} axes, not 2 to {wanted + 1}")
    return array.reshape((1,) * (wanted - array.ndim) + array.shape)


def _tokens(
    found: Mapping[str, Any], names: Sequence[str], count: int, what: str, where: str
) -> tuple[Token, ...] | None:
    """The tokens of an axis, None where the file names none."""
    name = next((name for name in names if name in found), None)
    if name is None:
        return None
    words = found[name]
    words = words.tolist() if isinstance(words, np.ndarray) else words
    if isinstance(words, list) and len(words) == 1 and isinstance(words[0], list):
        words = words[0]
    check_words(words, name, where)
    if len(words) != count:
        raise InputError(
            f"{where} has attention for {count} {what} tokens, but '{name}' lists {len(words)}"
        )
    return tuple(map(token_of, words))


def _refuse_transposed(weights: NDArray[np.float32], where: str) -> None:
    """Refuse keys as rows and queries as columns, which would read as the opposite."""
    rows, columns = (weights.sum(axis=axis, dtype=np.float64) for axis in (-1, -2))
    if np.allclose(columns, 1, atol=1e-2) and not np.allclose(rows, 1, atol=1e-2):
        raise InputError(
            f"columns of the attention in {where} sum to 1 and rows do not: it seems to be "
            "transposed; store queries as rows and keys as columns"
        )
