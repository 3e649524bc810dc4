"""Attention that other programs saved: arrays by name, or alignments; their content tells which.

BertViz, transformers and notebooks save arrays (.npz, .safetensors or JSON of nested lists), one
for a stream or for each layer:

    attention, attentions, weights, attn            attention_0, attentions.1, layer_0, layer.1
    arr_0, arr_1, … of numpy.savez: layers in order; the array of an .npy
    encoder_attention, decoder_attention, cross_attention, each with or without a final s

An array of all layers has the axes ([layers, [batch of 1,]] [heads,] queries, keys), a layer's
([batch of 1,] [heads,] queries, keys). Tokens are lists of words: tokens; query_tokens and
key_tokens; left_text and right_text; target_tokens and source_tokens; decoder_tokens and
encoder_tokens. In BertViz's own JSON the streams stand in a list under attention:
[{"name", "attn", "left_text", "right_text"}].

Text is read as a table (.csv, .tsv): one that attnviz wrote, a weight on each row, or one head's
weights under the names of its keys, each row behind the name of its query. Else as Pharaoh lines,
one alignment on each:

    0-0 1-2 2-1    source-target, counted from 0; i-j:0.9 carries a probability
"""

from __future__ import annotations

import csv
import io
import re
import warnings
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.core.attention_map import SEVERAL, Attention, AttentionMap, Provenance, Token
from attnviz.core.errors import InputError
from attnviz.core.records import dataclass
from attnviz.core.tokens import MARK, tokens_of_pieces
from attnviz.storage.archive import DAMAGE, ZIP, read_array
from attnviz.storage.columns import columns_of
from attnviz.storage.documents import check_words, parse_json, read_numbers
from attnviz.storage.matrices import Archive, parse_header, read_safetensors

_PROBABILITY = r"(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
_LINK = rf"\d{{1,18}}-\d{{1,18}}(?::{_PROBABILITY})?"
PHARAOH = re.compile(rf"\s*{_LINK}(?:\s+{_LINK})*\s*")
END = "</s>"
NPY = b"\x93NUMPY"
LONGEST = 100_000  # tokens of a sentence at most: a larger number is no position


def read_dump(data: bytes, where: str) -> Iterator[Dump]:
    """Every text's attention in another program's file; an InputError where it is unknown."""
    name = where.strip("'")
    if data.startswith(ZIP):
        if b"/data.pkl" in data:
            raise InputError(
                f"{where} was written by torch.save and could run code, so it is not read: save "
                "np.savez('attention.npz', *[w.detach().float() for w in torch.load(FILE, 'cpu', "
                "weights_only=True)])"
            )
        yield read_arrays(Archive(data, name), where)
    elif data.startswith(NPY):
        yield read_arrays({"attention": _read_npy(data, where)}, where)
    elif is_safetensors(data):
        yield read_arrays(read_safetensors(data, name), where)
    elif data.lstrip().startswith((b"{", b"[")) and _is_json(data):
        yield from _from_json(parse_json(data, where), where)
    else:
        yield from _from_text(data, where)


def is_safetensors(data: bytes) -> bool:
    """Whether the data begin like the format: the length of a JSON header, then the header."""
    length = int.from_bytes(data[:8], "little")
    return len(data) > 9 and 2 <= length <= len(data) - 8 and data[8:9] == b"{"


def is_dump(data: bytes) -> bool:
    """Whether arrays have names of attention, or lines are alignments."""
    try:
        names = _names(data)
        if names is not None:
            return any(_NAME.fullmatch(name) for name in names)
        lines = data.decode("utf-8-sig").splitlines()
    except (InputError, *DAMAGE):
        return False
    return _is_pharaoh(lines) or bool(_delimiter(lines))


def read_foreign(data: bytes, where: str) -> Iterator[Dump] | None:
    """Every text's attention in another program's file; None where it is none."""
    return read_dump(data, where) if data.startswith(ZIP) or is_dump(data) else None


def is_foreign(data: bytes) -> bool:
    """Whether it is a dump, and no file of matrices (named weights, w_query and w_key)."""
    try:
        names = _names(data) or []
    except (InputError, *DAMAGE):
        return False
    return is_dump(data) and not {"weights", "w_query"}.intersection(names)


def _names(data: bytes) -> list[str] | None:
    if data.startswith(NPY):
        return ["attention"]
    if data.startswith(ZIP):
        return [n.removesuffix(".npy") for n in zipfile.ZipFile(io.BytesIO(data)).namelist()]
    if is_safetensors(data):
        return list(parse_header(data, "the file"))
    if data.lstrip().startswith((b"{", b"[")) and _is_json(data):
        return _json_names(parse_json(data, ""))
    return None


def _json_names(value: Any) -> list[str]:
    """The names in an object or in the first of several; bare nested lists are attention."""
    if isinstance(value, list) and value:
        return ["attention"] if isinstance(value[0], list) else _json_names(value[0])
    return list(value) if isinstance(value, Mapping) else []


def _is_json(data: bytes) -> bool:
    """Whether text is JSON, and no log with [a date] at the start of its lines."""
    try:
        parse_json(data, "")
    except InputError:
        return not data.lstrip().startswith(b"[") or b"\n" not in data.strip()
    return True


def _from_json(value: Any, where: str) -> Iterator[Dump]:
    if isinstance(value, Mapping):
        yield read_arrays(value, where)
    elif value and all(isinstance(item, Mapping) for item in value):
        for number, item in enumerate(value):
            place = f"text {number} of {where}"
            yield read_arrays(item, place, str(item.get("id", number)))
    else:
        yield read_arrays({"attention": value}, where)


def _from_text(data: bytes, where: str) -> Iterator[Dump]:
    try:
        lines = data.decode("utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise InputError(f"{where} is neither text in UTF-8 nor arrays") from error
    if delimiter := _delimiter(lines):
        yield from _from_table(list(csv.reader(lines, delimiter=delimiter)), where)
        return
    if not _is_pharaoh(lines):
        raise InputError(f"{where} holds neither arrays of attention nor lines of alignments")
    for number, line in enumerate(lines):
        place = f"line {number + 1} of {where}"
        if not line.strip():
            continue
        if not PHARAOH.fullmatch(line):
            raise InputError(f"{place} holds no alignment, as other lines do: '{line[:60]}'")
        yield _read_alignment(line, str(number), place, where)


def _read_npy(data: bytes, where: str) -> NDArray[Any]:
    try:
        with warnings.catch_warnings(action="ignore"):
            return read_array(io.BytesIO(data), len(data))
    except DAMAGE as error:
        raise InputError(f"{where} cannot be read as .npy: {error}") from error


def _delimiter(lines: Sequence[str]) -> str:
    """What separates the cells of a table; empty: the lines are none."""
    for delimiter in ("\t", ","):
        rows = [line.split(delimiter) for line in lines[:2]]
        head = rows[0][1:] if rows else []
        if len(rows) == 2 and head and (rows[0][-1] == "weight" or _are_numbers(rows[1][1:])):
            return delimiter
    return ""


def _are_numbers(cells: Sequence[str]) -> bool:
    return bool(cells) and all(_NUMBER.fullmatch(cell.strip()) for cell in cells)


def _from_table(rows: Sequence[list[str]], where: str) -> Iterator[Dump]:
    """The texts of a table: one weight a row as attnviz writes it, or one head as a matrix."""
    head, *body = rows
    if tuple(head) == COLUMNS:
        texts: dict[str, list[list[str]]] = {}
        for number, row in enumerate(body, 2):
            if len(row) != len(COLUMNS):
                raise InputError(f"line {number} of {where} has {len(row)} cells, not 9")
            texts.setdefault(row[0], []).append(row)
        for identity, own in texts.items():
            streams = dict.fromkeys(row[1] for row in own)
            maps = tuple(_from_rows([r for r in own if r[1] == one], where) for one in streams)
            yield Dump(maps, file_provenance(where, ()), id=identity)
        return
    names, cells = [row[0] for row in body], [row[1:] for row in body]
    if any(len(row) != len(head) - 1 or not _are_numbers(row) for row in cells):
        raise InputError(f"{where} is no table with a name and {len(head) - 1} weights on each row")
    weights = [list(map(float, row)) for row in cells]
    arrays = {"query_tokens": names, "key_tokens": head[1:], "attention": weights}
    yield read_arrays(arrays, where)


def _from_rows(rows: Sequence[Sequence[str]], where: str) -> AttentionMap:
    """The map of one stream's rows."""
    pairs = list(dict.fromkeys((row[2], row[3]) for row in rows))
    layers, heads = (list(dict.fromkeys(side)) for side in zip(*pairs, strict=True))
    matrix_of = {pair: (layers.index(pair[0]), heads.index(pair[1])) for pair in pairs}
    if len(pairs) < len(layers) * len(heads):  # different heads of several layers
        matrix_of = {pair: (0, place) for place, pair in enumerate(pairs)}
        layers, heads = [SEVERAL], [".".join(pair) for pair in pairs]
    try:
        sides = [{int(row[at]): _unescape(row[at + 1]) for row in rows} for at in (4, 6)]
        places = [matrix_of[row[2], row[3]] for row in rows]
        cells = [int(row[4]) for row in rows], [int(row[6]) for row in rows]
        numbers = [float(row[8] or "nan") for row in rows]
    except ValueError as error:
        raise InputError(f"{where} is a table with a cell that is no number: {error}") from error
    shape = tuple(max(side) + 1 for side in sides)
    different = {(*place, *cell) for place, *cell in zip(places, *cells, strict=True)}
    if not len(different) == len(rows) == len(pairs) * prod(shape):
        raise InputError(f"{where} lacks rows, or has some twice: each head needs every weight")
    weights = np.zeros((len(layers), len(heads), *shape), np.float32)
    weights[*np.transpose(places), *cells] = numbers
    same = sides[0] == sides[1]
    ends = ("text", "text") if same else ("target", "source")
    queries, keys = (
        tuple(
            Token(side[place], special=bool(MARK.fullmatch(side[place]))) for place in sorted(side)
        )
        for side in sides
    )
    signed = bool((weights < 0).any() or np.isnan(weights).any())
    return AttentionMap(
        rows[0][1],
        queries,
        keys,
        weights,
        layers=tuple(layers),
        heads=tuple(heads),
        values="signed" if signed else "share",
        query_side=ends[0],
        key_side=ends[1],
    )


def _unescape(token: str) -> str:
    """A token as it was before a table escaped it."""
    letters = {"t": "\t", "n": "\n", "r": "\r", "\\": "\\"}
    return _ESCAPE.sub(lambda m: letters.get(m[1]) or chr(int(m[1][1:], 16)), token)


def _is_pharaoh(lines: Sequence[str]) -> bool:
    """Whether the first line that is not blank is an alignment."""
    return bool(PHARAOH.fullmatch(next((line for line in lines if line.strip()), "")))


def _read_alignment(line: str, identity: str, at: str, where: str) -> Dump:
    """The links of a line as one head: a row for each target word up to the largest position."""
    links: dict[tuple[int, int], float] = {}
    for part in line.split():
        pair, _, strength = part.partition(":")
        source, target = map(int, pair.split("-"))
        if max(source, target) >= LONGEST:
            raise InputError(f"{at} links {pair}, further than any text goes")
        if (target, source) in links:
            raise InputError(f"{at} has the link {pair} twice")
        links[target, source] = float(strength) if strength else 1.0
    weights = np.zeros([max(axis) + 1 for axis in zip(*links, strict=True)], dtype=np.float32)
    for place, strength_of in links.items():
        weights[place] = strength_of
    item = AttentionMap(
        "cross",
        number_tokens(weights.shape[0]),
        number_tokens(weights.shape[1]),
        weights[None, None],
        query_side="target",
        key_side="source",
        unit="strength of a link",
    )
    notes = (f"the file names no tokens: {NUMBERED}",)
    provenance = file_provenance(where, notes)
    return Dump((item,), provenance, id=identity, token_notes=notes, ends_early=True)


PLAIN = ("attention", "attentions", "weights", "attn", "layer", "arr")
COLUMNS = columns_of("maps")
_NUMBER = re.compile(_PROBABILITY)
_ESCAPE = re.compile(r"\\([tnr\\]|u[0-9a-f]{4})")
STREAMS = ("encoder", "decoder", "cross")
QUERY_TOKENS = ("query_tokens", "left_text", "target_tokens", "decoder_tokens", "tokens")
KEY_TOKENS = ("key_tokens", "right_text", "source_tokens", "encoder_tokens", "tokens")
NUMBERED = "they are numbered"
OFF = 0.02  # what half precision takes off or adds
_NAME = re.compile(
    rf"(?:(?P<stream>{'|'.join(STREAMS)})_attentions?|{'|'.join(PLAIN)})(?:[_.]?(?P<layer>\d{{1,18}}))?"
)


@dataclass(frozen=True, slots=True, eq=False)
class Dump(Attention):
    """Attention that another program saved."""

    token_notes: tuple[str, ...] = ()  # notes on tokens without names
    ends_early: bool = False  # whether maps may end before the text


def read_arrays(entries: Mapping[str, Any], where: str, identity: str = "0") -> Dump:
    """The attention in arrays by name."""
    streams: dict[str, dict[str | None, Any]] = {}
    if [name for name in entries if _NAME.fullmatch(name)] == ["arr_0"]:  # numpy.savez(FILE, array)
        others = {name: entries[name] for name in entries if name != "arr_0"}
        entries = {"attention": entries["arr_0"], **others}
    for name in entries:
        match = _NAME.fullmatch(name)
        if match:  # an archive knows the shapes of its arrays before it reads them
            shape = getattr(entries, "shapes", {}).get(name, ())
            for size, what in zip(shape[-2:], ("query", "key"), strict=False):
                _tokens(entries, _names_for(match["stream"] or "self", what), size, what, where)
        value = entries[name] if match else None
        if match and _is_views(value):
            views = [_from_view(view, where) for view in value or ()]
            return _attention(views, where, identity)
        if match:
            streams.setdefault(match["stream"] or "self", {})[match["layer"]] = value
    if not streams:
        raise InputError(
            f"{where} holds no attention that is known by name: it holds "
            f"{', '.join(entries) or 'nothing'}; call it attention, layer_0, layer_1, … or "
            "cross_attention, and store tokens"
        )
    return _attention(
        [_from_arrays(stream, arrays, entries, where) for stream, arrays in streams.items()],
        where,
        identity,
    )


def number_tokens(count: int) -> tuple[Token, ...]:
    """Tokens named by their positions."""
    return tuple(Token(str(position)) for position in range(count))


View = tuple[AttentionMap, bool, dict[str, str]]
"""A map, whether the file names its tokens, and the text of each side."""


def _attention(views: Sequence[View], where: str, identity: str) -> Dump:
    notes = () if all(own for _, own, _ in views) else (f"the file names no tokens: {NUMBERED}",)
    maps = tuple(item for item, _, _ in views)
    texts = {side: text for _, _, own in views for side, text in own.items() if text}
    return Dump(
        maps,
        file_provenance(where, (*notes, *_sum_notes(maps))),
        id=identity,
        token_notes=notes,
        text=texts.get("text"),
        source=texts.get("source"),
        target=texts.get("target"),
    )


def _sum_notes(maps: Sequence[AttentionMap]) -> Iterator[str]:
    """A note on each stream whose rows do not sum to 1."""
    for item in maps:
        sums = item.weights.sum(axis=-1, dtype=np.float64)
        sums = sums[sums > 0]
        if sums.size and max(sums.max() - 1, 1 - sums.min()) > OFF:
            yield (
                f"rows of stream {item.stream} sum to {sums.min():.2f} to {sums.max():.2f}, not to "
                "1: were the weights saved in training mode (dropout), or in part?"
            )


def file_provenance(where: str, notes: tuple[str, ...]) -> Provenance:
    """The provenance of attention from a file: the file's name."""
    return Provenance("file", where.strip("'").rpartition("/")[2], notes=notes)


def _is_views(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(v, Mapping) for v in value)


def _from_view(view: Mapping[str, Any], where: str) -> View:
    if "attn" not in view:
        raise InputError(f"an entry of 'attention' in {where} has no 'attn'")
    stream = str(view.get("name") or "self").lower()
    return _from_arrays(stream, {None: view["attn"]}, view, where)


def _from_arrays(
    stream: str, arrays: Mapping[str | None, Any], entries: Mapping[str, Any], where: str
) -> View:
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
    sides = zip(("query", "key"), weights.shape[2:], strict=True)
    (queries, query_text), (keys, key_text) = (
        _tokens(entries, _names_for(stream, what), count, what, where) for what, count in sides
    )
    # Keys as rows would be read as queries.
    rows, columns = (weights.sum(axis=axis, dtype=np.float64) for axis in (-1, -2))
    if np.allclose(columns, 1, atol=1e-2) and not np.allclose(rows, 1, atol=1e-2):
        raise InputError(
            f"columns of the attention in {where} sum to 1 and rows do not: it seems to be "
            "transposed; store queries as rows and keys as columns"
        )
    same = queries is None or queries == keys
    if stream == "self" and not (same and weights.shape[2] == weights.shape[3]):
        stream = "cross"
    ends = ("target", "source") if stream == "cross" else ("text", "text")
    item = AttentionMap(
        stream,
        queries or number_tokens(weights.shape[2]),
        keys or number_tokens(weights.shape[3]),
        weights,
        layers=layers,
        query_side=ends[0],
        key_side=ends[1],
    )
    texts = dict(zip(ends, (query_text, key_text), strict=True))
    return item, queries is not None and keys is not None, texts


def _names_for(stream: str, what: str) -> tuple[str, ...]:
    if stream in ("encoder", "decoder"):
        return (f"{stream}_tokens", "tokens")
    return QUERY_TOKENS if what == "query" else KEY_TOKENS


def _axes(array: NDArray[np.float32], axes: int, what: str, where: str) -> NDArray[np.float32]:
    """Axes ([layers, [batch,]] [heads,] queries, keys) as four, or those of one layer as three."""
    if array.ndim == axes + 1:
        batch = array.shape[axes - 3]
        if batch != 1:
            raise InputError(f"{what} in {where} is of a batch of {batch}: save one text")
        return array.squeeze(axes - 3)
    if not 2 <= array.ndim <= axes:
        raise InputError(f"{what} in {where} has {array.ndim} axes, not 2 to {axes + 1}")
    return array.reshape((1,) * (axes - array.ndim) + array.shape)


def _tokens(
    entries: Mapping[str, Any], names: Sequence[str], count: int, what: str, where: str
) -> tuple[tuple[Token, ...] | None, str]:
    """The tokens of an axis and their text; None where the file names none."""
    name = next((name for name in names if name in entries), None)
    if name is None:
        return None, ""
    words = entries[name]
    words = words.tolist() if isinstance(words, np.ndarray) else words
    if isinstance(words, list) and len(words) == 1 and isinstance(words[0], list):
        words = words[0]
    check_words(words, name, where)
    if len(words) != count:
        raise InputError(
            f"{where} has attention for {count} {what} tokens, but '{name}' lists {len(words)}"
        )
    special = entries.get("special_tokens", ())
    special = special.tolist() if isinstance(special, np.ndarray) else special
    if len(special):
        check_words(special, "special_tokens", where)
    return tokens_of_pieces(words, special)
