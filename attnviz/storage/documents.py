"""JSON documents of schema 2 (see docs/files.md): those of reports, and of one text and back.

The JSON is safe to show on a terminal. Maps of schema 1 are read as well.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson

from attnviz.core import attention_map
from attnviz.core.errors import InputError
from attnviz.core.registry import SCHEMA

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from attnviz.storage.schema import MapDocument

Shape = tuple[int | None, int | None, int, int]
SMALL = 1 << 26  # bytes that fit into any memory
BLOCK = 1 << 12  # numbers that are spelt at a time, few enough for a cache
WeightsReader = Callable[[int, str, Shape], Any]
HIDDEN = "\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff"
"""Control, direction and invisible characters as a range for a regular expression. Data escapes
them, so that a token can neither style nor reorder a terminal."""

_UNSAFE = re.compile(f"[{HIDDEN}\ud800-\udfff]")
_IDENTITY = re.compile(rb'\{"schema":(?:1|2,"kind":"maps"),"id":("(?:[^"\\]|\\.)*"),')
"""How every document of maps begins that this package wrote."""
_PLACES = ("layer", "layers", "head", "heads")
_NUMBER = re.compile("0|[1-9][0-9]{0,8}")


def dump_json(document: Any) -> str:
    r"""The document as one line of JSON; float32 arrays at their shortest exact spelling.

    Characters that JSON would let through raw, though they hide or turn text, are spelt `\uXXXX`.
    """
    return dump_line(document)[:-1].decode()


def dump_line(document: Any) -> bytes:
    """The same with the line's end, as bytes."""
    option = orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_APPEND_NEWLINE
    data = orjson.dumps(document, option=option)
    if data.isascii() and b"\x7f" not in data:
        return data  # most documents: megabytes of numbers that need no second look
    return escape_hidden(data.decode()).encode()


def report_json(kind: str, report: Any = None, **parts: Any) -> str:
    """The JSON document of a kind of report: its fields, and further parts."""
    own = {} if report is None else {one.name: getattr(report, one.name) for one in fields(report)}
    return dump_json(to_report(kind, **own, **parts)) + "\n"


def to_report(kind: str, **parts: Any) -> dict[str, Any]:
    """The document of a kind of report, as JSON types."""
    return {"schema": SCHEMA, "kind": kind, **_to_json_types(parts)}


def number_of(name: str) -> int | str:
    """The number of a layer or head; a name ("mean", a module's path) is its own."""
    return int(name) if _NUMBER.fullmatch(name) else name


def escape_hidden(json_text: str) -> str:
    """JSON text in which characters that hide or reorder text, and lone surrogates, are escaped."""
    return _UNSAFE.sub(lambda match: f"\\u{ord(match[0]):04x}", json_text)


def parse_json(text: str | bytes, where: str) -> Any:
    """The value that JSON text spells; an InputError says where and why it is not JSON."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise InputError(f"{where} is not JSON: {error}") from error


def check_words(words: Any, name: str, where: str) -> None:
    """Refuse what is no list of words with an InputError."""
    if not isinstance(words, list) or not all(isinstance(word, str) and word for word in words):
        raise InputError(f"'{name}' in {where} is not a list of words")


def read_numbers(
    value: Any, what: str, dtype: Any = np.float32, *, absent: bool = False
) -> NDArray[Any]:
    """Real numbers, else an InputError about `what`; with `absent` null is NaN."""
    try:
        array = np.asarray(value)
        if absent and array.dtype.kind == "O":
            fill = np.frompyfunc(lambda one: np.nan if one is None else one, 1, 1)
            array = np.asarray(fill(array).tolist())
    except (TypeError, ValueError) as error:
        raise InputError(f"{what} has rows of different lengths") from error
    if array.dtype.kind == "c":
        raise InputError(f"{what} holds complex numbers: store real ones")
    if array.dtype.kind not in "biuf":
        raise InputError(f"{what} is no matrix of numbers")
    with np.errstate(over="ignore"):  # what is not finite is refused by whoever reads it
        return array.astype(dtype, copy=False)


def check_room(size: int, what: str) -> None:
    """Refuse to read this many bytes of numbers if they would fill the memory."""
    if size < SMALL:
        return
    import psutil

    free = psutil.virtual_memory().available
    if size > free / 2:
        raise InputError(
            f"{what} holds {size / 2**30:,.1f} GiB of numbers, more than half of the "
            f"{free / 2**30:,.1f} GiB of memory that are free"
        )


def round_weights(
    weights: NDArray[np.float32], digits: int | None = None
) -> NDArray[np.float32 | np.float64]:
    """Weights to a number of decimals as Python's `round`, a tie to the even one; None: unchanged.

    Zero has no sign. A product of a float32 and 10 to the 6th is exact in float64 (24 + 14 bits).
    """
    if digits is None:
        return weights
    scale = np.float64(10**digits)
    return np.asarray(np.rint(weights * scale) / scale + 0.0)


def _spell_rounded(weights: NDArray[np.float32], digits: int) -> Any:
    """Rounded weights as orjson spells them; shares take few values and come from a table."""
    ends = round_weights(np.array([weights.min(), weights.max()]), digits)
    if not (ends[0] >= 0 and ends[1] <= 1):  # also where a value is NaN
        return round_weights(weights, digits)
    _, heads, queries, keys = weights.shape
    spelt, scale = _spellings(digits), 10**digits
    rows = weights.reshape(-1, keys)
    between = np.full(len(rows), scale + 1)
    between[::queries], between[:: heads * queries] = scale + 2, scale + 3
    parts, step = [b"["], max(1, BLOCK // keys)
    for start in range(0, len(rows), step):
        part = rows[start : start + step]
        places = np.empty((len(part), keys + 1), np.intp)
        places[:, 0] = between[start : start + step]
        places[:, 1:] = np.rint(part * np.float64(scale))
        cells = spelt.take(places)
        cells.view(np.uint8).reshape(*places.shape, -1)[:, 1, 0] = 0  # a row's first comma
        text = cells.tobytes().translate(None, b"\0")
        parts.append(text if start else text.removeprefix(b"]]],"))
    return orjson.Fragment(b"".join([*parts, b"]]]]"]))


@cache
def _spellings(digits: int) -> NDArray[np.bytes_]:
    """Each share from 0 to 1 behind a comma; then what stands between rows, heads and layers."""
    shares = np.arange(10**digits + 1) / 10**digits
    texts = orjson.dumps(shares, option=orjson.OPT_SERIALIZE_NUMPY)[1:-1].split(b",")
    ends = [b"],[", b"]],[[", b"]]],[[["]
    # Of 8 bytes: numpy gathers words of 7 bytes ten times slower.
    return np.array([*(b"," + text for text in texts), *ends], "S8" if digits < 6 else "S16")


def to_document(attention: attention_map.Attention, digits: int | None = None) -> dict[str, Any]:
    """The document of one text; weights stay float32 arrays of (layers, heads, queries, keys).

    With `digits` they have that many decimals at most, already spelt for `dump_json`.
    """
    texts = {"text": attention.text, "source": attention.source, "target": attention.target}
    scores = [
        {"stream": stream, "layer": layer, "head": head, "scores": own}
        for (stream, layer, head), own in attention.scores.items()
    ]
    also = {"focus": attention.focus, **({"scores": scores} if scores else {})}
    if any(size > 1 for own in attention.group_sizes.values() for size in own.values()):
        also["group_sizes"] = attention.group_sizes
    provenance = attention.provenance
    maps = [_map_document(item) for item in attention.maps]
    if digits is not None:
        provenance = replace(
            provenance, notes=(*provenance.notes, f"weights are rounded to {digits} decimals")
        )
        for one in maps:
            one["weights"] = _spell_rounded(one["weights"], digits)
    facts = {about.name: getattr(provenance, about.name) for about in fields(provenance)}
    return {
        "schema": SCHEMA,
        "kind": "maps",
        "id": attention.id,
        **{name: text for name, text in texts.items() if text is not None},
        "maps": maps,
        **{
            name: _to_json_types(links)
            for name in attention_map.LINK_LISTS
            if (links := getattr(attention, name))
        },
        "provenance": _to_json_types(facts | also),
    }


def to_dataset(attention: attention_map.Attention) -> dict[str, Any]:
    """One text as plain values for `xarray.Dataset.from_dict`: a variable for each stream."""
    document = to_document(attention)
    coords, variables = dict[str, Any](), dict[str, Any]()
    streams = [item.stream for item in attention.maps]
    for number, (item, about) in enumerate(zip(attention.maps, document["maps"], strict=True)):
        name = item.stream if streams.count(item.stream) == 1 else f"{item.stream}_{number}"
        weights = about.pop("weights")
        tokens = ([token.text for token in side] for side in (item.query_tokens, item.key_tokens))
        dims = tuple(f"{name}_{axis}" for axis in ("layer", "head", "query", "key"))
        for dim, words in zip(dims, (item.layers, item.heads, *tokens), strict=True):
            coords[dim] = {"dims": (dim,), "data": list(words), "attrs": {}}
        variables[name] = {"dims": dims, "data": weights, "attrs": {"unit": item.unit}}
    sizes = {dim: len(coord["data"]) for dim, coord in coords.items()}
    attrs = {"attnviz": dump_json(document)}
    return {"coords": coords, "attrs": attrs, "dims": sizes, "data_vars": variables}


def from_dataset(dataset: Mapping[str, Any]) -> attention_map.Attention:
    """The attention of `to_dataset`, also from xarray; an InputError for other objects."""
    try:
        document = parse_json(dataset["attrs"]["attnviz"], "the dataset")
        variables = dataset["data_vars"].values()
        arrays = [np.asarray(one["data"], dtype=np.float32) for one in variables]
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise InputError("the dataset has no 'attrs' with 'attnviz', and 'data_vars'") from error
    return from_document(document, "the dataset", lambda number, *_: arrays[number])


def _map_document(item: attention_map.AttentionMap) -> dict[str, Any]:
    document: dict[str, Any] = {
        "stream": item.stream,
        "layers": [number_of(name) for name in item.layers],
        **_heads_document(item),
        "values": item.values,
        "unit": item.unit,
        "query_text": item.query_side,
        "key_text": item.key_side,
        "query_tokens": [_token_document(token) for token in item.query_tokens],
        "key_tokens": [_token_document(token) for token in item.key_tokens],
    }
    if not item.begins:
        document["begins"] = False
    if any(item.starts):
        document["starts"] = list(item.starts)
    if item.is_pooled:
        document["blocks"] = list(item.blocks)
        document["links"] = _to_json_types(item.links)
    return document | {"weights": item.weights}


def _heads_document(item: attention_map.AttentionMap) -> dict[str, Any]:
    """The heads of a map, and of heads of several layers the layer of each."""
    places = [tuple(map(number_of, item.place(0, head))) for head in range(len(item.heads))]
    if item.layers != (attention_map.SEVERAL,) or any(
        layer == item.layers[0] for layer, _ in places
    ):
        return {"heads": [number_of(name) for name in item.heads]}
    return {"heads": [head for _, head in places], "head_layers": [layer for layer, _ in places]}


def _token_document(token: attention_map.Token) -> dict[str, Any]:
    document = {"text": token.text, "start": token.start, "end": token.end}
    more: dict[str, Any] = {} if token.label is None else {"label": token.label}
    if token.kind != "token":
        more["kind"] = token.kind
    if token.span is not None:
        more["span"] = list(token.span)
    return {**document, "special": token.special, **more}


def _to_json_types(value: Any, name: str = "") -> Any:
    """Dataclasses, mappings, tuples and numpy scalars as JSON types; layers and heads as numbers.

    The settings of a provenance stay as they are: what is called "heads" there is anything.
    """
    if is_dataclass(value):
        value = {own.name: getattr(value, own.name) for own in fields(value)}
    if isinstance(value, Mapping):
        facts = name == "settings"
        return {str(k): _to_json_types(x, name if facts else str(k)) for k, x in value.items()}
    if isinstance(value, list | tuple):
        return [_to_json_types(item, name) for item in value]
    if isinstance(value, str):
        return number_of(value) if name in _PLACES else value
    return value.item() if isinstance(value, np.generic) else value


def from_document(
    document: Any, where: str = "the document", read_weights: WeightsReader | None = None
) -> attention_map.Attention:
    """The attention that a document holds.

    Its weights may be nested lists or an array, also a flat one with a "shape". Otherwise
    `read_weights` returns them for the number of a map, its stream and its shape, in which None is
    an unknown size. An InputError names the record (`where`) and the field that does not fit.
    """
    from attnviz.storage import schema

    if isinstance(document, Mapping) and document.get("kind") == "ablation":
        raise InputError(
            f"{where} holds effects of an ablation, no maps: 'attnviz compare' reads two of those"
        )
    if not isinstance(document, Mapping) or "maps" not in document:
        raise InputError(f"{where} is no attnviz document: it has no 'maps'")
    if document.get("schema") not in (1, SCHEMA):
        raise InputError(
            f"{where} is a document of schema {document.get('schema')!r}: "
            f"this attnviz reads schemas 1 and {SCHEMA}"
        )
    text = schema.fit(document, schema.Document, where)
    provenance = schema.fit_provenance(text.provenance, where)
    try:
        return attention_map.Attention(
            maps=tuple(
                _read_map(number, item, read_weights) for number, item in enumerate(text.maps)
            ),
            provenance=provenance,
            id=str(text.id),
            text=text.text,
            source=text.source,
            target=text.target,
            focus=schema.focus_of(text.provenance, where),
            scores=schema.scores_of(text.provenance, where),
            group_sizes=schema.group_sizes_of(text.provenance, where),
            measured=schema.measured_of(text.measured),
            idle=schema.measured_of(text.idle),
            decisive=schema.measured_of(text.decisive),
            **attention_map.typed_facts(provenance),
        )
    except (InputError, TypeError, ValueError) as error:
        raise InputError(f"{where}: {error}") from error


def identity_of(line: bytes) -> str:
    """The id in a document's JSON, usually without parsing the rest."""
    match = _IDENTITY.match(line)
    document = {"id": parse_json(match[1], "id")} if match else parse_json(line, "the document")
    if not isinstance(document, Mapping):
        raise InputError("this is no attnviz document: it is no JSON object")
    return str(document.get("id", "0"))


def _read_map(
    number: int, item: MapDocument, read_weights: WeightsReader | None
) -> attention_map.AttentionMap:
    from attnviz.storage.schema import heads_of, links_of, tokens_of

    queries, keys = tokens_of(item.query_tokens), tokens_of(item.key_tokens)
    if read_weights is None:
        absent = item.values == "signed"
        weights = read_numbers(item.weights, f"maps[{number}].weights", absent=absent)
        if item.shape:
            weights = weights.reshape(item.shape)
    else:
        pattern = len(item.layers) or None, len(item.heads) or None, len(queries), len(keys)
        weights = read_weights(number, item.stream, pattern)
    return attention_map.AttentionMap(
        stream=item.stream,
        query_tokens=queries,
        key_tokens=keys,
        weights=weights,
        layers=tuple(map(str, item.layers)),
        heads=heads_of(item),
        values=item.values,
        unit=item.unit,
        query_side=item.query_text,
        key_side=item.key_text,
        blocks=item.blocks,
        starts=item.starts,
        links=links_of(item.links),
        begins=item.begins,
    )
