"""Effects of heads over many texts and the loss while they are switched off, against slow loops."""

import subprocess
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attnviz.core.effects import Effect, HeadAt, Intervention, log_probabilities
from attnviz.core.options import Choice, Origin
from attnviz.core.query import Query
from attnviz.features.ablate.request import mean_effect
from attnviz.features.corpus.results import PruneCurve
from attnviz.features.experiments.texts import open_experiment
from attnviz.features.measures.intervals import intervals, means_over
from attnviz.features.pocket_lm.language_model import load_pocket_lm
from attnviz.features.pruning import curve as effects
from attnviz.features.pruning.picture import prune_curve
from attnviz.models.pocket.translator import load_pocket
from attnviz.storage.texts import Text
from tests.invoke import OWN, attnviz

PAIRS = [
    ("the red car .", "la voiture rouge ."),
    ("the cat .", "le chat ."),
    ("a dog .", "un chien ."),
]
BENCHMARK = Path(__file__).parents[3] / "benchmarks" / "effects_pocket.py"


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    path = tmp_path / "pairs.tsv"
    path.write_text("".join(f"{source}\t{target}\n" for source, target in PAIRS))
    return path


def by_head(rows: list[list[str]], column: str) -> dict[tuple[str, str, str], float]:
    """A column of a table with a head a line; without what is no head."""
    stream, layer, head, place = map(rows[0].index, ("stream", "layer", "head", column))
    found = {(row[stream], row[layer], row[head]): row[place] for row in rows[1:]}
    return {name: float(value) for name, value in found.items() if value}


@pytest.mark.slow
@pytest.mark.core
@pytest.mark.parametrize("by", ["zero", "mean"])
def test_effects_of_a_pairs_heads_are_those_of_ablate(by):
    pair = PAIRS[0]
    how = ("--by", by, "-f", "tsv")
    table = attnviz("heads", *pair, "--cross", "--effect", "--sort", "effect", *how)
    ablated = by_head(attnviz("ablate", *pair, "--each", "heads", *how).rows, "effect_nats")
    found = by_head(table.rows, "effect")
    assert len(found) == 72
    assert found == pytest.approx(ablated, abs=1e-5)
    ordered = [*found.values()]
    assert ordered == sorted(ordered, reverse=True)


@pytest.mark.slow
def test_effects_of_a_texts_heads_are_the_same_everywhere():
    text = ("Tom has a red car and a red", "--model", "pocket-lm")
    found = attnviz("heads", *text, "--effect", "--no-repeat", "-f", "tsv")
    ablated = attnviz("ablate", *text, "--each", "heads", "-f", "tsv")
    effects = by_head(ablated.rows, "effect_nats")
    assert len(effects) == 15
    assert by_head(found.rows, "effect") == pytest.approx(effects, abs=1e-5)
    experiment = open_experiment(load_pocket_lm(), Query(text[0]))
    assert len(experiment.outputs) == 8
    lenses = attnviz("ablate", *text, "--lenses", "-f", "json").json()
    assert "all 8 tokens" in lenses["caption"]


@pytest.mark.slow
def test_effects_over_texts_have_means_and_intervals(pairs):
    told = attnviz("heads", *PAIRS[1], "--cross", "-q").lines
    even = {line.split()[0] for line in told if " uniform " in line}
    assert even == {"cross", "encoder", "decoder"}
    how = ("--cross", "--effect", "--sort", "layer", "--dtype", "float64", "-f", "tsv")
    each = [[*by_head(attnviz("heads", *pair, *how).rows, "effect").values()] for pair in PAIRS]
    ends = means_over(np.array(each))[2:]
    rows = attnviz("heads", "--input", pairs, *how).rows
    table = [rows[0], *(row for row in rows if row[3] == "effect")]
    found = [[*by_head(table, name).values()] for name in ("mean", "low", "high")]
    np.testing.assert_allclose(found, [np.mean(each, axis=0), *ends], rtol=1e-3, atol=1e-5)


@pytest.mark.slow
def test_every_form_says_what_the_effect_is_of(pairs, tmp_path):
    told = "effect: log p of every token of the target, with the head minus without it (off: zeros)"
    how = ("--cross", "--effect", "--sort", "effect", "--picture", tmp_path / "heads.svg")
    done = attnviz("heads", "--input", pairs, *how)
    assert done.status == 0, done.err
    assert told in " ".join(done.text.split())
    assert "±" in done.text
    texts = tmp_path / "texts.txt"
    texts.write_text("the cat sat\na dog and a cat\n")
    masked = attnviz("heads", "--input", texts, "--effect")
    assert "log p of its last word where it is masked" in " ".join(masked.text.split())
    assert "'…' is masked, so that the model predicts it" in masked.err
    causal = attnviz("heads", "the cat sat", "--effect", "--causal", "-f", "json", "-q").json()
    assert causal["provenance"]["settings"]["effect"].startswith("log p of every token of the text")
    assert {"effect"} < {meaning["name"] for meaning in causal["measures"]}


def test_intervals_of_effects():
    drawn = np.random.default_rng(0).gamma(1.0, size=(9, 2))
    drawn[4, 1] = np.nan
    ends = means_over(drawn)[2:]
    for column in range(2):
        values = [value for value in drawn[:, column].tolist() if value == value]
        mean = sum(values) / len(values)
        powers = [np.array(sum((value - mean) ** power for value in values)) for power in (2, 3)]
        slow = intervals(np.array(len(values)), np.array(mean), *powers)
        assert [end[column] for end in ends] == pytest.approx([float(end) for end in slow])
        assert ends[0][column] < mean < ends[1][column]
    measured = [Effect("a", "head", {}, value) for value in (0.1, 0.4, float("nan"), 0.2)]
    mean = mean_effect(measured)
    assert mean.texts == 3
    assert mean.interval is not None
    assert mean.interval[0] < mean.effect < mean.interval[1]
    assert mean_effect(measured[:1]).interval is None


@pytest.mark.slow
def test_a_curve_is_the_loss_with_each_order_off(pairs, monkeypatch):
    monkeypatch.setattr(effects, "POINTS", 4)
    picture = pairs.with_suffix(".svg")
    how = (
        "heads",
        "--input",
        pairs,
        "--cross",
        "--effect",
        "--picture",
        f"curve:{picture}",
        "-f",
        "json",
    )
    done = attnviz(*how)
    assert done.status == 0, done.err
    curve = done.json()["prune_curve"]
    assert "the same 3 texts" in curve["texts"]
    assert picture.stat().st_size > 0
    assert [order["by"] for order in curve["orders"]] == ["effect", "confidence", *["chance"] * 5]
    assert (curve["off"][0], curve["off"][-1]) == (0, 72)
    assert_lowest_first(done.json(), curve["orders"])
    pocket = load_pocket()
    experiments = [open_experiment(pocket, Query(*pair, "cross")) for pair in PAIRS]
    outputs = sum(len(one.outputs) for one in experiments)
    for order in curve["orders"][::3]:
        heads = [
            HeadAt(*map(str, (at["stream"], at["layer"])), at["head"]) for at in order["heads"]
        ]
        assert len({*heads}) == 72
        for place in (0, 1, 4):
            change = Intervention(tuple(heads[: curve["off"][place]]))
            loss = -sum(log_probabilities(one, [change]).sum() for one in experiments) / outputs
            assert order["losses"][place] == pytest.approx(loss, abs=1e-4)


def assert_lowest_first(document: dict[str, Any], orders: list[dict[str, Any]]) -> None:
    """An order goes by the means of the report, of all heads of all streams."""
    for order in orders[:2]:
        means = {
            (stream["stream"], head["layer"], head["head"]): measure["mean"]
            for stream in document["streams"]
            for head in stream["heads"]
            for measure in head["measures"]
            if measure["measure"] == order["by"]
        }
        values = [means[*at.values()] for at in order["heads"]]
        assert all(one <= next_one for one, next_one in pairwise(values))


def test_a_curve_goes_on_behind_a_text_without_effects():
    work = effects.EffectChunk(Origin(), Choice(), "cross")
    heads = (HeadAt("cross", "0", 0), HeadAt("cross", "2", 0))
    chunk = effects.PruneChunk(work, [heads], (0, 2))
    good = [Text(str(n), *pair) for n, pair in enumerate(PAIRS[:2])]
    found = chunk([good[0], Text("bad", PAIRS[2][0], ""), good[1]])
    assert [table.shape for table, _ in found] == [(1, 2)] * 2
    assert [count for _, count in found] == [5, 4]
    assert np.array_equal(found[1][0], chunk([good[1]])[0][0])


@pytest.mark.slow
def test_half_of_the_texts_give_the_order_half_the_loss(tmp_path, monkeypatch):
    monkeypatch.setattr(effects, "ENOUGH", 4)
    monkeypatch.setattr(effects, "POINTS", 2)
    # What stands at even places gives the order, at odd ones the loss.
    first, second = (f"{a}\t{b}\n" for a, b in PAIRS[:2])
    files = {"both": (first + second) * 2, "even": first * 2, "odd": second * 2}
    found = {}
    for name, lines in files.items():
        path = tmp_path / f"{name}.tsv"
        path.write_text(lines)
        picture = tmp_path / f"{name}.svg"
        done = attnviz(
            *("heads", "-i", path, "--cross", "--effect"),
            *("--picture", f"curve:{picture}", "-f", "json"),
        )
        found[name] = done.json()["prune_curve"]
    assert found["both"]["texts"] == "order of 2 texts, loss of 2 others"
    orders, even, odd = (found[name]["orders"] for name in files)
    assert orders[0]["heads"] == even[0]["heads"] != odd[0]["heads"]
    chance = [3, 4]
    for place in chance:
        assert orders[place]["losses"] == pytest.approx(odd[place]["losses"], abs=1e-4)


@pytest.mark.slow
def test_workers_and_what_is_resumed_give_the_same_bytes(pairs, monkeypatch):
    from tests.features.corpus.test_command import interrupt_after

    monkeypatch.setattr(effects.EffectChunk, "size", 1)
    monkeypatch.setattr(effects, "POINTS", 2)
    picture, file = pairs.with_suffix(".svg"), pairs.with_suffix(".json")
    how = ("heads", "--input", pairs, "--cross", "--effect", "--by", "mean", "-f", "json")
    drawn = (*how, "--picture", f"curve:{picture}")
    alone, shared = (attnviz(*drawn, *more) for more in ((), ("--workers", 2)))
    assert alone.status == 0, alone.err
    assert shared.out == alone.out, shared.err
    with monkeypatch.context() as patch:
        interrupt_after(2, patch)
        assert attnviz(*drawn, "-o", file).status == 130
    other = attnviz(
        *how[:-4], "-f", "none", "-o", file, "--resume", "--picture", f"curve:{picture}"
    )
    assert "--effect was 'mean' and is 'zero'" in other.err
    assert attnviz(*drawn, "-o", file, "--resume").status == 0
    assert file.read_bytes() == alone.out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("heads", "a b", "--sort", "effect"), "--sort effect needs --effect"),
        (("heads", "a b", "--by", "mean"), "--by needs --effect"),
        (("heads", "a b", "--effect", "--by", "nothing"), "nothing"),
        (("heads", "a", "b", "c", "--cross"), "--cross takes one source and one target"),
        (("heads", "a b c", "--effect", *OWN), "nothing here predicts anything"),
        (("heads", "--input", "-", "--picture", "curve:c.png"), "add --effect"),
        (("heads", "--input", "-", "--effect", *OWN), "nothing here predicts anything"),
    ],
)
def test_a_mistake_is_one_line(arguments, said):
    done = attnviz(*arguments, stdin=b"a b c\n")
    assert done.status == 2
    assert said in done.mistake.replace("\n", " ")


@pytest.mark.slow
def test_the_scale_of_a_curve_ends_at_a_round_loss():
    heads = tuple(HeadAt("cross", "0", head) for head in range(4))
    losses = np.array([[1, 1.05, 1.5, 2, 5], [1, 1, 2, 3, 5], [1, 2, 3, 4, 5], [1, 3, 4, 4.5, 5]])
    curve = PruneCurve(
        "made up",
        ("effect", "confidence", "chance", "chance"),
        (heads,) * 4,
        (0, 1, 2, 3, 4),
        losses,
        "order of 5 texts, loss of 5 others",
        "effect: log p of every token",
    )
    for roof, steps in ((1, 5), (2, 4), (3, 3), (4, 4), (7, 7), (8, 4), (9, 5)):
        _, chart = prune_curve(replace(curve, losses=losses * roof / 5)).axes
        scale = [text.get_text() for text in chart.get_yticklabels()]
        assert scale == [f"{roof * step / steps:.3g}" for step in range(steps + 1)]


@pytest.mark.slow
def test_pocket_heads_are_measured_without_torch():
    done = subprocess.run(
        [sys.executable, BENCHMARK, "1"], capture_output=True, check=False, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "72 heads, 1 pair" in done.stdout
    assert "modules of torch: 0" in done.stdout
