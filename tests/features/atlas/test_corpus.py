"""A corpus as tables, data and a picture."""

import io
import json

import numpy as np
import pytest

from attnviz.features.atlas.picture import corpus_overview
from attnviz.features.corpus.rows import ARRAYS, SHOWS, corpus_json, corpus_npz
from attnviz.features.corpus.table import corpus_table
from attnviz.renderers import Display
from tests.renderers.corpus import corpus


@pytest.mark.parametrize("show", SHOWS)
@pytest.mark.parametrize("width", [40, 80, 200])
def test_a_table_has_a_line_a_head_and_fits(show, width):
    lines = corpus_table(corpus(), show, Display(width=width)).splitlines()
    assert max(map(len, lines)) <= width
    heads = [line.split()[:2] for line in lines if line[:5].strip().isdecimal()]
    assert heads == [["0", "0"], ["0", "1"], ["1", "0"], ["1", "1"]]


def test_json_and_npz_have_everything():
    report = corpus()
    document = json.loads(corpus_json(report))
    assert (document["kind"], document["texts"], document["failed"]) == ("corpus", 20, 3)
    (stream,) = document["streams"]
    head = stream["heads"][3]
    assert (head["layer"], head["head"]) == (1, 1)
    assert {*SHOWS} <= {*head}
    assert len(head["positions"]) == 35
    assert head["links"][0]["weight"] >= head["links"][-1]["weight"]
    data = corpus_npz(corpus())
    assert corpus_npz(corpus()) == data
    stream = corpus().streams[0]
    with np.load(io.BytesIO(data), allow_pickle=False) as archive:
        for name in ARRAYS:
            assert np.array_equal(archive[f"0/{name}"], getattr(stream, name), equal_nan=True)
        document = json.loads(str(archive["attnviz"]))
    assert document["streams"][0]["heads"] == [0, 1]
    assert len(document["streams"][0]["pairs"]) == len(stream.pairs)


@pytest.mark.slow
def test_one_text_has_means_without_intervals():
    lone = corpus(1)
    assert "±" not in corpus_table(lone, "measures", Display()).split("uniform")[-1]
    corpus_overview(lone)
