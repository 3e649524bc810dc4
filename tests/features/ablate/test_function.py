"""What is switched off from Python: `attnviz.ablate`, and `attend` through the lens effect."""

import json

import numpy as np
import pytest

import attnviz
from attnviz import Findings
from attnviz.core.errors import UsageError
from attnviz.core.query import Query
from attnviz.features.ablate.parts import replacements
from attnviz.features.experiments.texts import open_experiment
from attnviz.models.pocket.translator import load_pocket
from tests.invoke import attnviz as run

PAIR = ("The red car is fast.", "La voiture rouge est rapide.")
OFF: dict[str, list[tuple[object, ...]]] = {
    "heads": [(2, 0), ("encoder", 3, 5)],
    "links": [("rouge", "red")],
}
OPTIONS = ("--head", "2.0", "--head", "encoder.3.5", "--link", "rouge>red", "--token", "red")


@pytest.fixture(scope="module")
def named() -> Findings:
    return attnviz.ablate(*PAIR, tokens="red", **OFF)  # type: ignore[arg-type]


@pytest.mark.slow
@pytest.mark.parametrize("suffix", [".json", ".jsonl", ".tsv", ".csv", ".txt"])
def test_it_writes_what_the_command_writes(named, suffix, tmp_path):
    theirs, own = tmp_path / f"a{suffix}", tmp_path / f"b{suffix}"
    assert run("ablate", *PAIR, *OPTIONS, "-o", theirs, "-f", "none").status == 0
    named.save(own)
    assert own.read_bytes() == theirs.read_bytes()
    if suffix == ".txt":
        assert named.table(80) == own.read_text("utf-8")


@pytest.mark.slow
def test_pictures_are_those_of_the_command(tmp_path):
    pictures = {"grid": "heads", "highlight": "tokens"}
    for picture, each in pictures.items():
        theirs, own = tmp_path / f"a-{picture}.svg", tmp_path / f"b-{picture}.svg"
        how = ("--each", each, "--picture", f"{picture}:{theirs}", "-f", "none")
        assert run("ablate", *PAIR, *how).status == 0
        found = attnviz.ablate(*PAIR, each=each)  # type: ignore[arg-type]
        found.picture(picture, own)
        assert own.read_text().count("<path") == theirs.read_text().count("<path") > 10
        other = "highlight" if picture == "grid" else "grid"
        with pytest.raises(UsageError, match=f"unknown picture '{other}': choose from bars"):
            found.picture(other)
        assert found.picture("bars").axes


@pytest.mark.slow
def test_a_result_is_asked_again_by_its_own_model_and_text(named, tmp_path):
    seen = attnviz.attend(*PAIR, layer=1)
    again = attnviz.ablate(seen, tokens=["red"], **OFF)  # type: ignore[arg-type]
    assert again.value.effects == named.value.effects
    assert again.value.together == named.value.together
    written = attnviz.attend(PAIR[0], command="cross", to="fr")
    assert written.target
    assert attnviz.ablate(written, heads=["2.0"]).value.effects == (
        attnviz.ablate(PAIR[0], written.target, heads=["2.0"], to="fr").value.effects
    )
    causal = attnviz.attend(PAIR[0], causal=True)
    explained = attnviz.ablate(causal, heads=[(1, 1)], explain="3")
    done = run("ablate", PAIR[0], "--causal", "--head", "1.1", "--target", "3", "-f", "json")
    assert explained.value.effects[0].effect == done.json()["effects"][0]["effect"]
    seen.save(tmp_path / "a.npz")
    (loaded,) = attnviz.load(tmp_path / "a.npz")
    with pytest.raises(UsageError, match=r"only what attend\(\) gave"):
        attnviz.ablate(loaded)


@pytest.mark.slow
def test_means_and_positions_come_from_other_texts(tmp_path):
    others = [("I love cats.", "J'aime les chats."), ("It is late.", "Il est tard.")]
    file = tmp_path / "others.jsonl"
    file.write_text("".join(json.dumps({"source": a, "target": b}) + "\n" for a, b in others))
    for by in ("mean", "resample"):
        found = attnviz.ablate(*PAIR, heads="2.0", by=by, reference=others, seed=3)
        how = ("--by", by, "--reference", file, "--seed", "3", "-f", "json")
        done = run("ablate", *PAIR, "--head", "2.0", *how)
        assert found.value.effects[0].effect == done.json()["effects"][0]["effect"]
    assert found.value.effects != attnviz.ablate(*PAIR, heads="2.0", by="mean").value.effects


@pytest.mark.slow
def test_positions_are_drawn_in_the_order_of_the_table():
    source = load_pocket()
    bank = open_experiment(
        source, Query("I love cats.", "J'aime les chats.", "cross")
    ).head_outputs()
    attention = next(source.attend([Query(*PAIR, "cross")]))
    found = replacements("resample", [dict(reversed(bank.items()))], attention, seed=3)
    assert found is not None
    generator = np.random.default_rng(3)
    rows = attnviz.ablate(*PAIR, each="heads").value.effects
    for stream, layer in dict.fromkeys((one.place["stream"], one.place["layer"]) for one in rows):
        queries = next(one for one in attention.maps if one.stream == stream).weights.shape[2]
        own = bank[stream, layer]
        drawn = own[:, generator.integers(own.shape[1], size=queries)]
        np.testing.assert_array_equal(found[stream, layer], drawn)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"heads": [(9, 9)]}, "layer 9 does not exist"),
        ({"links": [("rouge", "y")]}, "--link 'rouge>y'"),
        ({"tokens": ["blue"]}, "--token 'blue'"),
        ({"by": "median"}, "unknown by 'median'"),
        ({"each": "words"}, "unknown each 'words'"),
        (
            {"each": "heads", "tokens": ["red"]},
            "--each heads switches off one after the other, and --token",
        ),
        ({"by": "resample"}, "draws positions from other texts"),
        ({"reference": ["a"]}, "add --by mean"),
        ({"heads": [3], "layer": 9}, "layer 9 does not exist"),
        ({"modle": "x"}, "unknown option 'modle'"),
        ({"mechanism": "multi-head"}, "unknown option 'mechanism'"),
    ],
    ids=str,
)
def test_mistakes_are_told_as_on_the_command_line(how, message):
    with pytest.raises(UsageError, match=message):
        attnviz.ablate(*PAIR, **how)  # type: ignore[arg-type]


def test_the_lens_effect_keeps_every_stream_and_lists_links():
    pair = "he does not want to go home .", "il ne veut pas rentrer ."
    seen, raw = attnviz.attend(*pair, lens="effect", check=3), attnviz.attend(*pair)
    assert [item.stream for item in seen.maps] == ["cross", "encoder", "decoder"]
    units = {item.unit for item in seen.maps}
    assert units == {"effect on log p of the output, nats (first order)"}
    assert seen.weights.shape == raw.weights.shape
    assert np.isnan(seen.map_of("decoder").weights[:, :, 0, 0]).all()  # nothing else is visible
    assert len(seen.measured) == 3
    assert all(one.measured is not None for one in seen.measured)
    assert seen.idle
    assert seen.decisive
    assert all(one.link.weight > 0.5 and abs(one.estimated) < 0.05 for one in seen.idle)
    assert all(one.link.weight < 0.1 and abs(one.estimated) >= 0.05 for one in seen.decisive)
    for one in (*seen.measured, *seen.idle, *seen.decisive):
        cell = one.link.query_position, one.link.key_position
        place = int(one.link.layer), int(one.link.head), *cell
        assert seen.map_of(one.stream).weights[place] == pytest.approx(one.estimated)
        assert raw.map_of(one.stream).weights[place] == pytest.approx(one.link.weight)
    alone = attnviz.attend(*pair, lens="effect", check=0, explain="3")
    assert not alone.measured


@pytest.mark.slow
def test_two_ablations_are_compared_as_their_files(tmp_path):
    one, other = (attnviz.ablate(*PAIR, each="layers", by=by) for by in ("zero", "mean"))
    one.save(tmp_path / "a.json")
    other.save(tmp_path / "b.json")
    files = run("compare", tmp_path / "a.json", tmp_path / "b.json", "-f", "tsv")
    assert attnviz.compare(one, other).to_rows() == [
        dict(zip(files.rows[0], [*row[:2], *map(float, row[2:])], strict=True))
        for row in files.rows[1:]
    ]
