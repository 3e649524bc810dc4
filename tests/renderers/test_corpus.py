"""A corpus as tables, data and a picture."""

import io
import json

import numpy as np
import pytest

from attnviz.renderers import Display
from attnviz.renderers.data import ARRAYS, SHOWS, corpus_json, corpus_npz, corpus_tsv
from attnviz.renderers.figures.corpus_overview import corpus_overview
from attnviz.renderers.text.corpus_table import corpus_table
from tests.renderers.corpus import corpus


@pytest.mark.parametrize("show", SHOWS)
@pytest.mark.parametrize("width", [40, 80, 200])
def test_a_table_has_a_line_a_head_and_fits(show, width):
    lines = corpus_table(corpus(), show, Display(width=width)).splitlines()
    assert max(map(len, lines)) <= width
    heads = [line.split()[:2] for line in lines if line[:5].strip().isdecimal()]
    assert heads == [["0", "0"], ["0", "1"], ["1", "0"], ["1", "1"]]


@pytest.mark.parametrize("show", SHOWS)
def test_a_tsv_is_one_table(show):
    header, *rows = [line.split("\t") for line in corpus_tsv(corpus(), show).splitlines()]
    assert header == ["stream", "layer", "head", *SHOWS[show][0]]
    assert rows
    assert {len(row) for row in rows} == {len(header)}


def test_a_tsv_of_measures_has_every_measure_of_every_head():
    stream = corpus().streams[0]
    rows = [line.split("\t") for line in corpus_tsv(corpus(), "measures").splitlines()[1:]]
    assert len(rows) == 4 * len(stream.measures)
    _, layer, head, name, mean, sd, low, high, uniform, texts = rows[-1]
    place = [meaning.name for meaning in stream.measures].index(name), int(layer), int(head)
    found = (stream.mean, stream.deviation, stream.low, stream.high, stream.uniform)
    expected = [array[place] for array in found]
    assert [float(field) for field in (mean, sd, low, high, uniform)] == pytest.approx(
        expected, rel=1e-5
    )
    assert int(texts) == stream.texts[place]


def test_json_has_everything():
    report = corpus()
    document = json.loads(corpus_json(report))
    assert (document["kind"], document["texts"], document["failed"]) == ("corpus", 20, 3)
    (stream,) = document["streams"]
    head = stream["heads"][3]
    assert (head["layer"], head["head"]) == ("1", "1")
    assert {*SHOWS} <= {*head}
    assert len(head["positions"]) == 35
    assert head["links"][0]["weight"] >= head["links"][-1]["weight"]


def test_npz_reads_without_pickle_and_is_the_same_each_time():
    data = corpus_npz(corpus())
    assert corpus_npz(corpus()) == data
    stream = corpus().streams[0]
    with np.load(io.BytesIO(data), allow_pickle=False) as archive:
        for name in ARRAYS:
            assert np.array_equal(archive[f"0/{name}"], getattr(stream, name), equal_nan=True)
        document = json.loads(str(archive["attnviz"]))
    assert document["streams"][0]["heads"] == ["0", "1"]
    assert len(document["streams"][0]["pairs"]) == len(stream.pairs)


def labels(figure) -> dict[str, int]:
    return {
        item.get_label(): len(item.get_paths())
        for item in figure.axes[0].collections
        if not item.get_label().startswith("_")
    }


def test_one_text_has_means_without_intervals():
    lone = corpus(1)
    assert "±" not in corpus_table(lone, "measures", Display()).split("uniform")[-1]
    corpus_overview(lone)
