"""Heads that find relations, as text."""

from __future__ import annotations

import json

from attnviz.core.measures import Finding, Relation, TreebankReport
from attnviz.renderers import Display
from attnviz.renderers.text.head_tables import treebank_json, treebank_table, treebank_tsv
from tests.renderers.heads import PROVENANCE

REPORT = TreebankReport(
    "made up · self",
    7,
    (Relation("det", 40, 1, 0.6), Relation("dep", 2, -1, 0.5)),
    (
        Finding("det", "head", "2", "8", 0.81),
        Finding("det", "head", "0", "1", 0.2),
        Finding("det", "dependent", "0", "1", 0.55),
        Finding("det", "dependent", "2", "8", 0.0),
        Finding("dep", "head", "0", "1", 1.0),
        Finding("dep", "dependent", "0", "1", 1.0),
    ),
    PROVENANCE,
)


def test_the_best_head_stands_beside_the_best_offset() -> None:
    text = treebank_table(REPORT, Display(width=80))
    line = next(line for line in text.splitlines() if line.startswith("det"))
    assert line.split() == ["det", "40", "+1", ".60", "2.8", ".81", "0.1", ".55"]


def test_only_a_head_that_beats_the_offset_is_bold() -> None:
    text = treebank_table(REPORT, Display(width=80, colors="standard"))
    line = next(line for line in text.splitlines() if line.startswith("det"))
    assert line.count("\x1b[1m") == 1
    assert "\x1b[1m  2.8 .81" in line


def test_rare_relations_are_left_to_the_data_and_it_is_said() -> None:
    text = treebank_table(REPORT, Display(width=80))
    assert "dep " not in text
    assert "1 relation with fewer than 10 cases" in text


def test_it_fits_fifty_columns() -> None:
    assert max(map(len, treebank_table(REPORT, Display(width=50)).splitlines())) <= 50


def test_data_has_every_head_in_both_directions() -> None:
    header, *rows = treebank_tsv(REPORT).splitlines()
    assert header.split("\t")[-1] == "share"
    assert len(rows) == 6
    assert rows[0].split("\t") == ["det", "40", "1", "0.6", "head", "2", "8", "0.81"]
    document = json.loads(treebank_json(REPORT))
    assert document["relations"][0]["by_offset"] == 0.6
    assert len(document["findings"]) == 6
