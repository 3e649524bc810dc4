"""A corpus as tables, data and a picture."""

from __future__ import annotations

import io
import json
from dataclasses import replace

import numpy as np
import pytest

from attnviz.renderers import Display
from attnviz.renderers.data.corpus_data import ARRAYS, SHOWS, corpus_json, corpus_npz, corpus_tsv
from attnviz.renderers.figures.corpus_overview import corpus_overview
from attnviz.renderers.figures.figure import figure_bytes
from attnviz.renderers.text.corpus_table import corpus_table
from tests.renderers.corpus import corpus
from tests.samples import notes_of


@pytest.mark.parametrize("show", SHOWS)
@pytest.mark.parametrize("width", [40, 80, 200])
def test_a_table_has_a_line_a_head_and_fits(show: str, width: int) -> None:
    lines = corpus_table(corpus(), show, Display(width=width)).splitlines()
    assert max(map(len, lines)) <= width
    heads = [line.split()[:2] for line in lines if line[:5].strip().isdecimal()]
    assert heads == [["0", "0"], ["0", "1"], ["1", "0"], ["1", "1"]]


def test_a_table_says_how_large_the_corpus_is_and_what_failed() -> None:
    lines = corpus_table(corpus(), "measures", Display()).splitlines()
    tokens = corpus().streams[0].tokens
    assert lines[1] == f"20 texts · {tokens} tokens · 3 could not be read"
    assert "95% interval of the mean (Hall's transformed t, texts as units)" in " ".join(lines)


def test_a_mean_stands_beside_half_its_interval() -> None:
    stream = corpus().streams[0]
    place = [meaning.name for meaning in stream.measures].index("entropy"), 0, 0
    half = (stream.high[place] - stream.low[place]) / 2
    text = corpus_table(corpus(), "measures", Display(width=200))
    assert f"{stream.mean[place]:.2f}±{half:.3f}".replace("±0.", "±.") in text


def test_several_streams_stand_below_one_another() -> None:
    one = corpus()
    two = replace(one, streams=(one.streams[0], replace(one.streams[0], stream="cross")))
    text = corpus_table(two, "classes", Display())
    assert [line for line in text.splitlines() if line.startswith("stream")] == [
        "stream self",
        "stream cross",
    ]


@pytest.mark.parametrize("show", SHOWS)
def test_a_tsv_is_one_table(show: str) -> None:
    header, *rows = [line.split("\t") for line in corpus_tsv(corpus(), show).splitlines()]
    assert header == ["stream", "layer", "head", *SHOWS[show][0]]
    assert rows
    assert {len(row) for row in rows} == {len(header)}


def test_a_tsv_of_measures_has_every_measure_of_every_head() -> None:
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


def test_json_has_everything() -> None:
    report = corpus()
    document = json.loads(corpus_json(report))
    assert (document["kind"], document["texts"], document["failed"]) == ("corpus", 20, 3)
    (stream,) = document["streams"]
    head = stream["heads"][3]
    assert (head["layer"], head["head"]) == ("1", "1")
    assert {*SHOWS} <= {*head}
    assert len(head["positions"]) == 35
    assert head["links"][0]["weight"] >= head["links"][-1]["weight"]


def test_npz_reads_without_pickle_and_is_the_same_each_time() -> None:
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


@pytest.mark.parametrize(("layers", "heads"), [(2, 2), (4, 6), (12, 12), (1, 1), (30, 40)])
@pytest.mark.slow
def test_the_picture_has_a_portrait_of_each_head(layers: int, heads: int) -> None:
    figure = corpus_overview(corpus(3, layers, heads))
    found = [name for name in labels(figure) if name.startswith("positions ")]
    assert len(found) == layers * heads
    assert labels(figure)["ground"] == layers * heads


@pytest.mark.slow
def test_bars_are_as_high_as_the_root_of_the_share() -> None:
    figure = corpus_overview(corpus())
    shares = corpus().streams[0].offset_shares[:, 0, 1]
    (bars,) = [item for item in figure.axes[0].collections if item.get_label() == "positions 0 1"]
    heights = np.array([np.ptp(path.vertices[:, 1]) for path in bars.get_paths()])
    full = heights.max() / np.sqrt(shares.max())
    expected = np.rint(np.sqrt(shares) * full)
    assert np.abs(heights - expected[expected > 0]).max() <= 1


@pytest.mark.slow
def test_the_picture_names_its_measures_and_intervals() -> None:
    figure = corpus_overview(corpus())
    words = [text.get_text() for text in figure.axes[0].texts]
    for meaning in corpus().streams[0].measures:
        assert meaning.name in words
    told = " ".join(notes_of(figure))
    assert "95% interval of the mean" in told
    assert "3 texts could not be read" in told


@pytest.mark.parametrize("suffix", [".png", ".svg", ".pdf"])
@pytest.mark.slow
def test_the_picture_is_the_same_each_time(suffix: str) -> None:
    first, second = (figure_bytes(corpus_overview(corpus()), suffix) for _ in range(2))
    assert first == second


def test_one_text_has_means_without_intervals() -> None:
    lone = corpus(1)
    assert "±" not in corpus_table(lone, "measures", Display()).split("uniform")[-1]
    corpus_overview(lone)
