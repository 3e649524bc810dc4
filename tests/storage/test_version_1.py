"""Files of schema 1 are read: those of the folder were written before layers were numbers."""

import json
from dataclasses import asdict
from math import isnan
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attnviz.core.attention_map import LINK_LISTS, Attention
from attnviz.storage.documents import dump_json, from_document, to_document
from attnviz.storage.saved_maps import openers, read_all, read_effects
from tests.samples import same

FOLDER = Path(__file__).parent / "version_1"
ONE = ("one", "several", "mean", "blocks", "effect", "scores")


def read(name: str) -> list[Attention]:
    return list(read_all(openers(FOLDER / name)))


def raw(name: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((FOLDER / name).read_text())
    assert document["schema"] == 1
    return document


@pytest.mark.parametrize("name", ONE)
def test_a_document_is_read_and_written_without_a_loss(name):
    """Layers and heads are strings in it, and in a map, so every field must be equal."""
    (found,), document = read(f"{name}.json"), raw(f"{name}.json")
    for item, about in zip(found.maps, document["maps"], strict=True):
        assert (list(item.layers), list(item.heads)) == (about["layers"], about["heads"])
        weights = np.array(about["weights"], np.float32)  # null is NaN
        assert np.array_equal(item.weights, weights, equal_nan=True)
        assert [asdict(link) for link in item.links] == about.get("links", [])
    for links in LINK_LISTS:
        assert [asdict(one) for one in getattr(found, links)] == document.get(links, [])
    facts = document["provenance"]
    assert {name: asdict(one) for name, one in found.focus.items()} == facts["focus"]
    scores = {tuple(place): own for *place, own in facts.get("scores", [])}
    assert {
        head: {n: None if isnan(x) else x for n, x in own.items()}
        for head, own in found.scores.items()
    } == scores

    (found,) = read(f"{name}.json")
    document = json.loads(dump_json(to_document(found)))
    assert (document["schema"], document["kind"]) == (2, "maps")
    places = [x for one in document["maps"] for x in (*one["layers"], *one["heads"])]
    assert {str(place) for place in places if isinstance(place, str)} <= {"several", "mean"}
    again = from_document(document)
    assert same(found, again)
    assert (again.focus, again.measured, again.idle) == (found.focus, found.measured, found.idle)
    assert [*map(str, again.scores.items())] == [*map(str, found.scores.items())]


@pytest.mark.parametrize("name", ["two.jsonl", "two.npz", "two.parquet"])
def test_every_format_is_read(name):
    pairs = zip(read("two.json"), read(name), strict=True)
    assert [same(*pair) for pair in pairs] == [True, True]


@pytest.mark.parametrize("name", ["mean.tsv", "several.csv"])
def test_tables_are_read(name):
    (table,), (document,) = read(name), read(f"{name.partition('.')[0]}.json")
    for one, other in zip(table.maps, document.maps, strict=True):
        assert (one.layers, one.heads) == (other.layers, other.heads)
        assert np.array_equal(one.weights, other.weights)


@pytest.mark.parametrize("name", ["ablation.json", "ablation.npz"])
def test_effects_are_read(name):
    effects = read_effects((FOLDER / name).read_bytes(), name)
    (head, *_), (own, *_) = effects.effects, raw("ablation.json")["effects"]
    assert (head.label, head.effect) == (own["label"], own["effect"])
