"""What a lens is given, and what is said where it does not apply."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from attnviz.core.attention_map import AGREEMENT, Attention, Focus
from attnviz.core.errors import AttentionError, ModelError, UsageError
from attnviz.core.lens_inputs import AttentionGradients, ValueVectors
from attnviz.core.options import Origin
from attnviz.core.query import Query
from attnviz.core.registry import LENSES, Needs, needs_head
from attnviz.core.writers import LensInputs
from attnviz.features.experiments.texts import explained_by, open_experiment
from attnviz.features.lenses.ask import apply_lens, ask_source, measure_agreement, no_model
from attnviz.features.lenses.norm import norm
from attnviz.features.measures.intervals import rank_correlation
from attnviz.mechanisms.dot_product import split_heads
from attnviz.models.open import open_source
from attnviz.models.own import OwnLayer
from attnviz.models.pocket.translator import load_pocket
from benchmarks.effect_lens_faithful import links_of
from tests.invoke import OWN, attnviz
from tests.samples import asked_logits, attention_of, self_map

SAMPLES = Path(__file__).parents[3] / "sample_inputs"
TEXT = "the cat sat on the mat"


def own(mechanism: str = "multi-head") -> OwnLayer:
    return OwnLayer(Origin(mechanism=mechanism), "self")


def given(words: str = "a b c") -> Attention:
    item = self_map(words.split(), layers=2, heads=2)
    return attention_of(item, text=words, focus={"self": Focus("1", "0", "it is named")})


def ask(needs: Needs) -> LensInputs:
    attention = given()
    weights = attention.weights
    if needs == "writers":
        return asked_logits(attention)
    if needs in ("gradients", "effects"):
        return AttentionGradients(attention, (np.ones_like(weights),), (1,), "b", 0.5)
    layers, heads, _, keys = weights.shape
    return ValueVectors(attention, (np.tile(np.eye(heads), (layers, keys, 1, 1)),), projected=True)


def same(attention: Attention) -> Attention:
    return attention


def test_every_lens_has_a_stream_after_the_raw_one():
    found = apply_lens("all", given, ask, same)[0]
    assert [item.stream for item in found.maps] == ["raw", *LENSES]
    assert found.provenance.steps == ("lens all",)
    assert found.focus == {"raw": Focus("1", "0", "it is named")}
    assert found.provenance.settings["output"] == "b"
    alone = {name: apply_lens(name, given, ask, same)[0].main for name in LENSES}
    for item in found.maps[1:]:
        np.testing.assert_array_equal(item.weights, alone[item.stream].weights)
    needing = [lens for lens in ("raw", "all", *LENSES) if needs_head(lens)]
    assert needing == ["all", "gradient", "effect", "logits"]


def test_a_lens_that_does_not_apply_is_left_out_and_said():
    found = apply_lens("all", given, no_model, same)[0]
    assert [item.stream for item in found.maps] == ["raw", "rollout", "flow"]
    left = [note for note in found.provenance.notes if "left out" in note]
    assert [note.split()[1] for note in left] == ["gradient", "effect", "logits", "norm"]
    with pytest.raises(UsageError, match="saved maps hold its weights only"):
        apply_lens("all", given, no_model, same, "b")

    def fail(needs: Needs) -> AttentionGradients:
        raise ValueError(needs)

    with pytest.raises(ValueError, match="gradients"):
        apply_lens("all", given, fail, same)

    def cannot(needs: Needs) -> AttentionGradients:
        raise ModelError("it has no head")

    found = apply_lens("all", given, cannot, same)[0]
    assert "lens gradient is left out: it has no head" in found.provenance.notes


def test_maps_are_prepared_before_any_lens_looks():
    def renamed(attention: Attention) -> Attention:
        tokens = tuple(replace(token, label="X") for token in attention.main.key_tokens)
        item = replace(attention.main, query_tokens=tokens, key_tokens=tokens)
        return replace(attention, maps=(item,))

    for item in apply_lens("all", given, ask, renamed)[0].maps:
        assert all(token.label == "X" for token in item.key_tokens)


def test_an_own_layer_has_values_and_no_output_projection():
    layer = own("multi-head:size=8,heads=2")
    found = ask_source(layer, Query(TEXT), "values")
    assert isinstance(found, ValueVectors)
    assert not found.projected
    vectors = layer.embedding.embed(found.attention.main.key_tokens)
    value = split_heads(vectors @ layer.embedding.projection("value"), 2)
    lengths = np.linalg.norm(found.attention.weights[0][..., None] * value[:, None], axis=-1)
    expected = lengths / lengths.sum(-1, keepdims=True)
    by_head = norm(found).map_of("self-by-head").weights[0]
    np.testing.assert_allclose(by_head, expected, atol=1e-6)


def test_who_cannot_be_asked_is_told_what_can(tmp_path):
    with pytest.raises(UsageError, match="predicts nothing: use --lens rollout, flow or norm"):
        ask_source(own(), Query(TEXT), "gradients")
    path = tmp_path / "mine.npz"
    np.savez(path, weights=np.eye(2), tokens=np.array(["x", "y"]))
    source = open_source(Origin(weights=path), "self")
    for needs in ("gradients", "values"):
        with pytest.raises(UsageError, match="use --lens rollout or flow"):
            ask_source(source, Query(""), needs)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="--pair needs a model that reads sentence pairs"):
        ask_source(own(), Query("a", "b", "pair"), "values")


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (("--lens", "gradient"), 2, "this source predicts nothing"),
        (("--lens", "norms"), 2, "unknown value 'norms' for --lens"),
        (("--target", "cat"), 2, "add --lens gradient"),
        (("--lens", "rollout", "--target", "cat"), 2, "add --lens gradient"),
        (("--lens", "all", "--target", "cat"), 2, "this source predicts nothing"),
    ],
)
def test_mistakes_are_one_line(arguments, status, message):
    done = attnviz("self", TEXT, *OWN, *arguments)
    assert (done.status, message in done.mistake) == (status, True)


def test_all_lenses_in_a_table_and_one_of_them():
    done = attnviz("self", TEXT, *OWN, "--lens", "all")
    for lens in ("raw", "rollout", "flow", "norm"):
        assert f" · {lens} · lens all" in done.text
    rows = attnviz("self", TEXT, *OWN, "--lens", "all", "-f", "tsv", "-q").rows
    assert {row[rows[0].index("stream")] for row in rows[1:]} == {"raw", "rollout", "flow", "norm"}
    picked = attnviz(
        "self", TEXT, *OWN, "--lens", "all", "--stream", "rollout", "-f", "json"
    ).json()
    alone = attnviz("self", TEXT, *OWN, "--lens", "rollout", "-f", "json").json()
    assert picked["maps"][0]["weights"] == alone["maps"][0]["weights"]


def test_every_lens_says_how_it_ranks_tokens(tmp_path):
    done = attnviz("self", TEXT, "--lens", "all", "-f", "json", "-o", tmp_path / "a.json")
    told = done.json()["provenance"]["settings"][AGREEMENT]
    judged = attnviz("ablate", TEXT, "--lenses", "-f", "json", "-q").json()
    assert told == {
        one["lens"]: round(one["rank_correlation"]["mean"], 6)
        for one in judged["lenses"]
        if one["lens"] in told
    }
    # That of logits reads the whole text, and the encoder predicts a masked word.
    assert [*told] == ["raw", *(lens for lens in LENSES if lens != "logits")]
    assert f"note: {AGREEMENT} (log p of mat (token 5)): raw {told['raw']:.2f}, rollout" in done.err
    shown = " ".join(attnviz("render", tmp_path / "a.json").text.split())
    for lens, value in told.items():
        number = f"{value:.2f}".replace("-", "−")
        assert f"{AGREEMENT} {number}" in shown.partition(f" · {lens} · ")[2]


def test_tokens_that_cannot_be_hidden_are_said():
    source = load_pocket()
    explained = explained_by(open_experiment(source, Query("the cat sat " * 25)))
    said, facts = measure_agreement(
        explained, partial(ask_source, source, Query("the cat sat " * 25))
    )
    assert (said.endswith("more than 64"), facts) == (True, {})
    short = explained_by(open_experiment(source, Query("cat")))
    said, facts = measure_agreement(short, partial(ask_source, source, Query("cat")))
    assert (said.endswith("there are too few"), facts) == (True, {})

    class Fixed(type(short.experiment)):  # type: ignore[misc]
        def run(self, *_: object) -> object:
            raise AttentionError("heads cannot be told apart")

    short.experiment.__class__ = Fixed  # type: ignore[union-attr]
    said, facts = measure_agreement(short, partial(ask_source, source, Query("cat")))
    assert (said.endswith("one by one: heads cannot be told apart"), facts) == (True, {})


def test_estimated_effects_rank_links_as_cutting_does():
    lines = (SAMPLES / "pairs.tsv").read_text(encoding="utf-8").splitlines()[:2]
    source, found = load_pocket(), dict[str, list[np.ndarray]]()
    for line in lines:
        query = Query(*line.split("\t")[:2], "cross")  # type: ignore[arg-type]
        for stream, links in links_of(source, query, 20).items():
            found.setdefault(stream, []).append(links)
    assert [*found] == ["cross", "encoder", "decoder"]
    for several in found.values():
        weight, estimate, exact = np.concatenate(several).T
        assert rank_correlation(estimate, exact) > 0.9
        assert rank_correlation(weight, abs(exact)) < 0.8


def test_saved_lenses_are_drawn_again(tmp_path):
    saved, fresh, again = (tmp_path / name for name in ("all.npz", "fresh.svg", "again.svg"))
    attnviz("self", TEXT, *OWN, "--lens", "all", "-f", "none", "-o", saved, "--heatmap", fresh)
    attnviz("render", saved, "-f", "none", "--heatmap", again)
    assert again.read_bytes() == fresh.read_bytes()
    saved = tmp_path / "raw.npz"
    attnviz("self", TEXT, *OWN, "-f", "none", "-o", saved)
    done = attnviz("render", saved, "--lens", "gradient")
    assert (done.status, "use --lens rollout or flow here" in done.mistake) == (2, True)
    assert attnviz("render", saved, "--lens", "rollout").status == 0
