"""Parquet: the same attention comes back, and other programs read it by the schema."""

import builtins
import io
import json
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnviz.core.attention_map import Attention, Link
from attnviz.core.errors import InputError, OutputError
from attnviz.features.parquet import file as parquet
from attnviz.features.parquet.file import ParquetReader, ParquetWriter
from attnviz.storage.saved_maps import holds_attention, read_attention
from tests.samples import attention_of, attentions, checked, few, same, self_map

several = st.lists(attentions(), min_size=1, max_size=3)


def written(found: list[Attention]) -> bytes:
    writer = ParquetWriter()
    parts = [writer.add(item, record) for record, item in enumerate(found)]
    return b"".join([*parts, writer.finish()])


@few
@given(several)
@pytest.mark.slow
def test_a_file_gives_back_what_was_saved(found):
    data = written(found)
    assert holds_attention(data)
    loaded = list(read_attention(data, "x"))
    assert [same(*pair) for pair in zip(found, loaded, strict=True)] == [True] * len(found)


def test_blocks_starts_and_links_come_back():
    item = self_map(["a", "b"], 2, 2)
    link = Link("a", "b", 0.1 + 0.2, "0", "1", 17, 40_000)
    pooled = item.with_weights(item.weights, blocks=(4, 8), starts=(16, 0), links=(link,))
    saved = attention_of(pooled, text="a b")
    assert same(saved, next(iter(ParquetReader(io.BytesIO(written([saved]))))))
    found = [attention_of(self_map(["a", "b"], seed=seed)) for seed in range(3)]
    assert written(found) == written(found)


def test_pyarrow_alone_can_fold_the_weights_by_the_schema():
    item = self_map(["a", "b", "c"], 2, 4)
    table = pq.read_table(io.BytesIO(written([attention_of(item, text="a b c")])))
    assert table.column_names == [
        *("id", "record", "text", "source", "target", "provenance", "maps"),
        *("measured", "idle", "decisive"),
    ]
    assert table.schema.metadata[b"attnviz.schema"] == b"2"
    (row,) = table.to_pylist()
    assert json.loads(row["provenance"])["model"] == "sample"
    (found,) = row["maps"]
    weights = np.array(found["weights"], np.float32).reshape(found["shape"])
    assert np.array_equal(weights, item.weights)
    assert [token["text"] for token in found["query_tokens"]] == ["a", "b", "c"]


def test_rows_are_written_in_groups_of_bounded_size(monkeypatch):
    monkeypatch.setattr(parquet, "ROWS", 4)
    monkeypatch.setattr(parquet, "BYTES", 4 + 16 + 16)
    small = [attention_of(self_map(["a"], seed=seed)) for seed in range(5)]
    large = [attention_of(self_map(["a", "b"], seed=seed)) for seed in range(4)]
    writer = ParquetWriter()
    parts = [writer.add(item, number) for number, item in enumerate([*small, *large])]
    data = b"".join([*parts, writer.finish()])
    metadata = pq.read_metadata(io.BytesIO(data))
    groups = [metadata.row_group(place).num_rows for place in range(metadata.num_row_groups)]
    assert groups == [4, 3, 2]  # four texts, or as many as fill the room
    assert [bool(part) for part in parts[1:]] == [place in (3, 6) for place in range(1, 9)]
    reader = ParquetReader(io.BytesIO(data))
    for place, item in enumerate([*small, *large]):
        assert same(reader.at(place), item)
    with pytest.raises(IndexError):
        reader.at(9)


@checked
@given(st.data())
def test_a_cut_or_foreign_file_is_an_input_error(data):
    whole = written([attention_of(self_map(["a", "b"]))])
    length = data.draw(st.integers(4, len(whole) - 1))
    with pytest.raises(InputError, match="damaged") as caught:
        list(read_attention(whole[:length], "'f'"))
    assert "\n" not in str(caught.value)


def test_other_schemas_and_a_missing_package_are_named(monkeypatch):
    import pyarrow as pa

    file = io.BytesIO()
    pq.write_table(pa.table({"a": [1]}), file)
    with pytest.raises(InputError, match="of schema unknown: this attnviz reads 1 and 2"):
        list(read_attention(file.getvalue(), "'f'"))
    data = written([attention_of(self_map(["a"]))])
    real = builtins.__import__

    def missing(name: str, *rest: Any) -> Any:
        if name.startswith("pyarrow"):
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(OutputError, match=r"pip install 'attnviz\[parquet\]'"):
        ParquetWriter()
    with pytest.raises(InputError, match=r"pip install 'attnviz\[parquet\]'"):
        list(ParquetReader(io.BytesIO(data)))
