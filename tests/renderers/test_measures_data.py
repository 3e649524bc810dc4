"""Heads as data."""

from __future__ import annotations

import json

from attnviz.renderers.text.head_tables import measures_json, measures_tsv
from tests.renderers.heads import report


def test_a_row_a_head_with_chance_beside_each_measure() -> None:
    header, first, second, _ = measures_tsv(report()).splitlines()
    assert header.split("\t")[:7] == [
        *("stream", "layer", "head", "role", "role_share", "entropy", "entropy_uniform")
    ]
    fields = dict(zip(header.split("\t"), first.split("\t"), strict=True))
    assert fields["role"] == "previous-token"
    assert fields["role_share"] == "0.99"
    assert fields["previous-token_uniform"] == "0.1"
    assert fields["induction"] == ""
    assert second.split("\t")[3:5] == ["", ""]
    assert header.split("\t")[-2:] == ["rests_on", "rests_share"]
    assert first.split("\t")[-2:] == ["", ""]


def test_json_says_what_numbers_mean_and_where_they_came_from() -> None:
    document = json.loads(measures_json(report(texts=3)))
    assert document["texts"] == 3
    assert document["measures"][0] == {
        "name": "entropy",
        "short": "entr",
        "unit": "nats",
        "low": "one key",
        "high": "all keys",
        "top": 2.0,
    }
    head = document["heads"][0]
    assert head["roles"] == [
        {"name": "previous-token", "share": 0.99, "uniform": 0.1, "kind": "acts"}
    ]
    assert head["values"]["induction"] is None
    assert document["provenance"]["settings"] == {"seed": 1}
