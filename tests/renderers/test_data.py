"""The data formats as renderers: text by text, and whole once finished."""

import csv
import io
import json
import tracemalloc

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given

from attnviz.core.attention_map import Attention
from attnviz.core.registry import FORMATS
from attnviz.renderers import NO_VIEWS, Display
from attnviz.renderers.data import escape, weight_rows
from attnviz.renderers.reports import CsvReport, JsonReport, TsvReport, as_bytes
from attnviz.storage.archive import ArchiveReader
from attnviz.storage.columns import columns_of
from attnviz.storage.saved_maps import read_attention
from tests.samples import attention_of, attentions, checked, few, same, self_map

COLUMNS = columns_of("maps")
DATA = ("json", "jsonl", "csv", "tsv", "npz", "parquet")


def rendered(name: str, found: list[Attention], many: bool = True) -> bytes:
    renderer = FORMATS[name].load()(Display(many=many))
    parts = [renderer.add(item, lambda: pytest.fail("views cost time")) for item in found]
    return b"".join(map(as_bytes, [*parts, renderer.finish()]))


@pytest.mark.parametrize("name", DATA)
def test_no_text_at_all_is_still_well_formed(name):
    data = rendered(name, [])
    empty = {"json": b"[]\n", "jsonl": b""}
    if FORMATS[name].binary:
        assert list(read_attention(data, name)) == []
    else:
        header = {"csv": ",", "tsv": "\t"}.get(name)
        assert data == (header.join(COLUMNS).encode() + b"\n" if header else empty[name])


@checked
@given(attentions())
@pytest.mark.slow
@pytest.mark.core
def test_tsv_has_one_line_a_weight_and_never_a_quote(attention):
    lines = rendered("tsv", [attention]).decode().split("\n")
    assert lines.pop() == ""
    assert len(lines) == 1 + sum(item.weights.size for item in attention.maps)
    assert all(line.count("\t") == len(COLUMNS) - 1 for line in lines)
    assert not any(control in "".join(lines) for control in "\r\x1b\u202e\x00\u2028")


@checked
@given(attentions())
@pytest.mark.slow
def test_csv_and_tsv_hold_the_same_to_the_last_bit(attention):
    comma = rendered("csv", [attention]).decode()
    tab = rendered("tsv", [attention]).decode()
    assert list(csv.reader(io.StringIO(comma))) == [
        line.split("\t") for line in tab.split("\n")[:-1]
    ]
    weights = np.array([row[-1] for row in weight_rows(attention)], np.float32)
    expected = np.concatenate([item.weights.ravel() for item in attention.maps])
    assert weights.tobytes() == expected.tobytes()


def test_headers_come_once_and_documents_alone():
    item = attention_of(self_map(["a"]))
    for renderer in (CsvReport(Display()), TsvReport(Display())):
        assert renderer.add(item, NO_VIEWS).startswith("id")
        assert renderer.add(item, NO_VIEWS).startswith("0")
        assert renderer.finish() == ""
    alone, many = JsonReport(Display()), JsonReport(Display(many=True))
    assert json.loads(alone.add(item, NO_VIEWS) + alone.finish())["schema"] == 2
    assert len(json.loads(many.add(item, NO_VIEWS) + many.add(item, NO_VIEWS) + many.finish())) == 2
    whole = rendered("tsv", [item, item])
    renderer = FORMATS["tsv"].load()(Display(many=True, begun=True))
    assert whole.endswith(renderer.add(item, NO_VIEWS).encode())
    assert whole.count(b"weight") == 1
    assert not renderer.add(item, NO_VIEWS).startswith("id")


@pytest.mark.parametrize(
    ("text", "escaped"),
    [
        ("plain é 你", "plain é 你"),
        ("a\tb\nc\rd\\e", "a\\tb\\nc\\rd\\\\e"),
        ("\x1b\x00\u202e\u061c", "\\u001b\\u0000\\u202e\\u061c"),
    ],
)
def test_escapes(text, escaped):
    assert escape(text) == escaped


@few
@given(attentions())
def test_npz_hands_on_each_text(attention):
    renderer = FORMATS["npz"].load()(Display())
    parts = [renderer.add(attention, list) for _ in range(3)]
    assert min(map(len, parts)) > min(item.weights.nbytes for item in attention.maps) / 2
    loaded = list(ArchiveReader(io.BytesIO(b"".join([*parts, renderer.finish()]))))
    assert [same(item, attention) for item in loaded] == [True] * 3


def test_npz_holds_on_to_no_weights():
    item = attention_of(self_map(["a"] * 64, 2, 2))
    renderer = FORMATS["npz"].load()(Display())
    renderer.add(item, NO_VIEWS)
    tracemalloc.start()
    for _ in range(200):
        renderer.add(item, NO_VIEWS)
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept < 200 * item.weights.nbytes / 20
    renderer = FORMATS["parquet"].load()(Display(first=70))
    parts = [renderer.add(attention_of(self_map(["a"])), list)]
    renderer.skip()
    parts.append(renderer.add(attention_of(self_map(["b"])), list))
    table = pq.read_table(io.BytesIO(b"".join([*parts, renderer.finish()])))
    assert table["record"].to_pylist() == [70, 72]
