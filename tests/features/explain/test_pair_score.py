"""What carries a reranker's score, against calls of the model itself."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForSequenceClassification, BertConfig

import attnviz
from tests.hugging_face.test_pairs import CLASSIFIERS, FIRST, SECOND, pairing
from tests.invoke import attnviz as shell

pytestmark = pytest.mark.models


@pytest.fixture(scope="module")
def reranker(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return one_score(tmp_path_factory.mktemp("reranker"))


def one_score(folder: Path, labels: int = 1) -> Path:
    """A small BERT that gives a pair one score."""
    torch.manual_seed(0)
    config = BertConfig(num_labels=labels, **CLASSIFIERS["bert"][1])
    model = AutoModelForSequenceClassification.from_config(config)
    with torch.no_grad():
        for weights in model.parameters():
            if weights.ndim > 1:
                weights.normal_(std=0.4)
    model.save_pretrained(folder)
    pairing("bert").save_pretrained(folder)
    return folder


def test_each_effect_is_the_change_of_the_models_own_score(reranker):
    found = attnviz.explain(FIRST, SECOND, model=str(reranker), score=True).value
    model: Any = AutoModelForSequenceClassification.from_pretrained(
        reranker, attn_implementation="eager"
    ).eval()
    inputs = pairing("bert")(FIRST, SECOND, return_tensors="pt")
    count = inputs["input_ids"].shape[1]

    def own_score(hidden: int | None = None) -> float:
        mask = torch.zeros(1, 1, count, count)
        if hidden is not None:  # from all rows but its own
            mask[:, :, :, hidden] = torch.finfo(torch.float32).min
            mask[:, :, hidden, hidden] = 0
        with torch.no_grad():
            return float(model(**{**inputs, "attention_mask": mask}).logits[0, 0])

    score = own_score()
    assert found.score == pytest.approx(score, abs=1e-5)
    assert found.p == pytest.approx(1 / (1 + np.exp(-score)), abs=1e-5)
    assert {one.position for one in found.tokens} <= {*range(count)}
    for one in found.tokens:
        assert one.without == pytest.approx(own_score(one.position), abs=1e-4)
        assert one.effect == pytest.approx(score - one.without, abs=1e-5)
    sides = {one.position: one.side for one in found.tokens}
    borders = inputs["token_type_ids"][0].tolist()
    assert all(
        side in ("special", "document" if borders[position] else "query")
        for position, side in sides.items()
    )
    with torch.no_grad():
        weights = model(**inputs, output_attentions=True).attentions
    rows, columns = (
        [n for n, side in sorted(sides.items()) if side == name] for name in ("query", "document")
    )
    for head in found.heads:
        own = weights[int(head.layer)][0, head.head][rows][:, columns].sum(-1).mean()
        assert head.attention == pytest.approx(float(own), abs=1e-5)


def test_a_score_is_data_and_other_models_are_refused(reranker, tmp_path):
    done = shell("explain", FIRST, SECOND, "--model", reranker, "--score", "-f", "json", "-q")
    found = done.json()
    assert (found["kind"], len(found["heads"])) == ("pair score", len(done.json()["heads"]))
    rows = shell("explain", FIRST, SECOND, "--model", reranker, "--score", "-f", "tsv", "-q").rows
    assert len(rows) == 1 + len(found["tokens"]) + len(found["heads"])
    table = shell("explain", FIRST, SECOND, "--model", reranker, "--score", "-q").text
    assert f"score {found['score']:.4f}" in table
    three = one_score(tmp_path / "three", labels=3)
    refused = shell("explain", FIRST, SECOND, "--model", three, "--score").mistake
    assert "this one has 3 choices" in refused
    paged = shell("explain", FIRST, SECOND, "--model", three, "--score", "--html", "a.html").mistake
    assert paged == "--score has no page: leave --html and --open out"
    both = shell("explain", FIRST, SECOND, "--model", three, "--score", "--against", "a").mistake
    assert "leave --contrast and --against out" in both
