"""Heads that find relations, as text."""

import json

from attnviz.features.treebank.study import Finding, Relation, TreebankReport
from attnviz.features.treebank.table import treebank_tsv
from attnviz.storage.documents import report_json
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


def test_data_has_every_head_in_both_directions():
    header, *rows = treebank_tsv(REPORT).splitlines()
    assert header.split("\t")[-1] == "share"
    assert len(rows) == 6
    assert rows[0].split("\t") == ["det", "40", "1", "0.6", "head", "2", "8", "0.81"]
    document = json.loads(report_json("treebank", REPORT))
    assert document["relations"][0]["by_offset"] == 0.6
    assert len(document["findings"]) == 6
