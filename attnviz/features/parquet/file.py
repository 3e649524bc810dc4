"""Several texts' attention in one Parquet file (parquet.apache.org), one row for each text.

Columns: id, record (its number in the input), text, source, target, provenance (JSON) and maps.
maps is a list of structs with the fields of a JSON document's maps; "shape" tells how to fold the
flat "weights": (layers, heads, queries, keys). Since a column has one type, layers and heads are
numbers, null where they are none, and have their names beside them. See docs/files.md.
"""

import itertools
from collections.abc import Iterator
from typing import IO, Any

from attnviz.core.attention_map import LINK_LISTS, Attention
from attnviz.core.errors import InputError, OutputError
from attnviz.core.registry import SCHEMA
from attnviz.core.tokens import count_kinds, has_kinds, kinds_in_words
from attnviz.renderers import Display, Views
from attnviz.storage.archive import ByteBuffer
from attnviz.storage.documents import check_room, dump_json, from_document, parse_json, to_document

MISSING = "Parquet needs the package pyarrow: pip install 'attnviz[parquet]'"
NAMES = {
    "layers": "layer_names",
    "heads": "head_names",
    "layer": "layer_name",
    "head": "head_name",
}
"""What stands beside numbers, which are null where a layer or a head is no single one."""
ROWS, BYTES = 256, 16 << 20  # texts, and bytes of weights, in a row group at most
ABOUT = {
    b"attnviz.schema": str(SCHEMA).encode(),
    b"attnviz.description": (
        b"Each row is one text. maps[].weights is flat; fold it by maps[].shape, which is "
        b"[layers, heads, queries, keys]. Rows of a matrix are queries (who attends), columns keys."
    ),
}


class ParquetWriter:
    """Writes a file: its bytes are what `add` and `finish` return, one after the other."""

    def __init__(self) -> None:
        try:
            from pyarrow.parquet import ParquetWriter as Writer
        except ImportError as error:
            raise OutputError(MISSING) from error
        self.schema = _schema()
        self.out = ByteBuffer()
        # Weights rarely repeat, so a dictionary would only cost time.
        self.writer = Writer(
            self.out, self.schema, compression="zstd", use_dictionary=False, write_statistics=["id"]
        )
        self.rows: list[dict[str, Any]] = []
        self.bytes = 0

    def add(self, attention: Attention, record: int) -> bytes:
        """Add a text; returns a row group if one is full, else nothing."""
        self.rows.append(_to_row(attention, record))
        self.bytes += sum(item.weights.nbytes for item in attention.maps)
        if len(self.rows) == ROWS or self.bytes >= BYTES:
            self._write()
        return self.out.take()

    def finish(self) -> bytes:
        """The last row group and the end of the file."""
        self._write()
        self.writer.close()
        return self.out.take()

    def _write(self) -> None:
        from pyarrow import Table

        if self.rows:
            self.writer.write_table(Table.from_pylist(self.rows, schema=self.schema))
        self.rows, self.bytes = [], 0


class ParquetRenderer:
    """One row for each text, written in groups."""

    def __init__(self, display: Display) -> None:
        self.writer = ParquetWriter()
        self.record = display.first

    def add(self, attention: Attention, views: Views) -> bytes:
        self.record += 1
        return self.writer.add(attention, self.record - 1)

    def skip(self) -> None:
        self.record += 1

    def finish(self) -> bytes:
        return self.writer.finish()


class ParquetReader:
    """The texts of a file, each read when it is asked for."""

    def __init__(self, file: IO[bytes], where: str = "the Parquet file") -> None:
        try:
            from pyarrow import ArrowException
            from pyarrow.parquet import ParquetFile
        except ImportError as error:
            raise InputError(MISSING) from error
        # Reading the metadata of a damaged file raises any of these.
        self.damage = (ArrowException, OSError, ValueError, TypeError, LookupError)
        self.where = where
        try:
            self.file = ParquetFile(file)
            version = (self.file.schema_arrow.metadata or {}).get(b"attnviz.schema", b"").decode()
        except self.damage as error:
            raise self._damage_error(error) from error
        if version not in ("1", str(SCHEMA)):
            raise InputError(
                f"{where} is a Parquet file of schema {version or 'unknown'}: "
                f"this attnviz reads 1 and {SCHEMA}"
            )

    def ids(self) -> Iterator[str]:
        for number in range(self.file.num_row_groups):
            for row in self._group(number, ["id"]):
                yield str(row.get("id"))

    def __iter__(self) -> Iterator[Attention]:
        place = itertools.count()
        for number in range(self.file.num_row_groups):
            for row in self._group(number):
                yield self._read(next(place), row)

    def at(self, number: int) -> Attention:
        place = number
        for group in range(self.file.num_row_groups):
            count = self.file.metadata.row_group(group).num_rows
            if place < count:
                return self._read(number, next(self._group(group, first=place)))
            place -= count
        raise IndexError(number)

    def _read(self, place: int, row: dict[str, Any]) -> Attention:
        where, provenance = f"text {place} of {self.where}", row.get("provenance")
        if not isinstance(provenance, str):
            raise InputError(f"{where}: column 'provenance' holds no JSON")
        facts = parse_json(provenance, f"{where}: column 'provenance'")
        return from_document(row | {"schema": SCHEMA, "provenance": facts}, where)

    def _group(
        self, number: int, columns: list[str] | None = None, first: int = 0
    ) -> Iterator[dict[str, Any]]:
        try:
            check_room(self.file.metadata.row_group(number).total_byte_size, self.where)
            rows = self.file.read_row_group(number, columns=columns).slice(first)
            for place in range(rows.num_rows):
                row = {name: rows[name][place] for name in rows.column_names}
                maps = row.pop("maps", None)
                plain = {name: value.as_py() for name, value in row.items()}
                yield _by_name(plain if maps is None else plain | {"maps": _plain_maps(maps)})
        except self.damage as error:
            raise self._damage_error(error) from error

    def _damage_error(self, error: Exception) -> InputError:
        return InputError(f"{self.where} is damaged: {' '.join(str(error).split())}")


def _schema() -> Any:
    import pyarrow as pa

    text, number, float32, float64 = pa.string(), pa.int32(), pa.float32(), pa.float64()
    token = pa.struct(
        {"text": text, "start": number, "end": number, "special": pa.bool_(), "label": text}
    )
    names = ("query", "key", "layer_name", "head_name")
    link = pa.struct(
        dict.fromkeys(names, text)
        | {
            "layer": number,
            "head": number,
            "query_position": pa.int64(),
            "key_position": pa.int64(),
            "weight": float64,
        }
    )
    effects = {"stream": text, "link": link, "estimated": float64, "measured": float64}
    item = pa.struct(
        {
            "stream": text,
            "layers": pa.list_(number),
            "layer_names": pa.list_(text),
            "heads": pa.list_(number),
            "head_names": pa.list_(text),
            "values": text,
            "unit": text,
            "query_text": text,
            "key_text": text,
            "query_tokens": pa.list_(token),
            "key_tokens": pa.list_(token),
            "starts": pa.list_(pa.int64()),
            "blocks": pa.list_(pa.int64()),
            "links": pa.list_(link),
            "shape": pa.list_(number),
            "weights": pa.list_(float32),
        }
    )
    columns = {"id": text, "record": pa.int64(), "text": text, "source": text, "target": text}
    fields = columns | {"provenance": text, "maps": pa.list_(item)}
    fields |= dict.fromkeys(LINK_LISTS, pa.list_(pa.struct(effects)))
    return pa.schema(fields, metadata=ABOUT)


def _to_row(attention: Attention, record: int) -> dict[str, Any]:
    for item in attention.maps:
        if has_kinds(item):
            kinds = kinds_in_words(count_kinds(item.key_tokens))
            raise InputError(
                f"a Parquet file has no column for the kinds of keys, and those of stream "
                f"'{item.stream}' are {kinds}: write .json, .jsonl or .npz"
            )
    document = _with_names(to_document(attention))
    maps = [
        {"starts": [0, 0], "blocks": [1, 1], "links": []}
        | about
        | {"shape": item.weights.shape, "weights": about["weights"].ravel()}
        | {"layer_names": item.layers, "head_names": item.heads}
        for item, about in zip(attention.maps, document["maps"], strict=True)
    ]
    provenance = dump_json(document["provenance"])
    lists: dict[str, Any] = {name: [] for name in LINK_LISTS}
    return {**lists, **document, "record": record, "provenance": provenance, "maps": maps}


def _with_names(value: Any) -> Any:
    """A document whose layers and heads are numbers or null, those of links with names beside."""
    if isinstance(value, list):
        return [_with_names(one) for one in value]
    if not isinstance(value, dict):
        return value
    result = dict[str, Any]()
    for name, one in value.items():
        if name in ("layers", "heads"):
            result[name] = [x if isinstance(x, int) else None for x in one]
        elif name in ("layer", "head"):
            result |= {name: one if isinstance(one, int) else None, f"{name}_name": str(one)}
        else:
            result[name] = one if name == "provenance" else _with_names(one)
    return result


def _by_name(value: Any) -> Any:
    """A row whose layers and heads have the names beside them; rows of schema 1 have no others."""
    if isinstance(value, list):
        return [_by_name(one) for one in value] if value and isinstance(value[0], dict) else value
    if not isinstance(value, dict):
        return value
    names = {name: value[beside] for name, beside in NAMES.items() if beside in value}
    return {name: _by_name(one) for name, one in value.items()} | names


def _plain_maps(maps: Any) -> Any:
    """The structs of a row as a document's maps; weights stay arrays: Python numbers are slow."""
    import pyarrow as pa

    if not isinstance(maps, pa.ListScalar) or not pa.types.is_struct(maps.type.value_type):
        return maps.as_py()
    documents = []
    for item in maps if maps.is_valid else ():
        fields = {name: item[name] for name in item if item.is_valid}
        plain = {name: value.as_py() for name, value in fields.items() if name != "weights"}
        weights = fields.get("weights")
        if isinstance(weights, pa.ListScalar) and weights.is_valid:
            plain["weights"] = weights.values.to_numpy(zero_copy_only=False)
        documents.append(plain)
    return documents
