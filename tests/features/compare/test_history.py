"""`attnviz compare FOLDER`: heads over the steps of a training run, of samples in a folder."""

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageSequence

import attnviz as package
from attnviz.core.attention_map import Attention, AttentionMap, Provenance, Token
from attnviz.core.errors import AttnvizError, HealthError
from attnviz.features.compare.report import HISTORY, RULES
from attnviz.renderers.printable import short_paths
from attnviz.storage.archive import dump_archive
from tests.invoke import attnviz

TOKENS = tuple(map(Token, "abcde"))
NAMES = ("body.0.attend", "body.1.attend")


def sample(step: int, *, streams: tuple[str, ...] = ("self",), heads: int = 2) -> Attention:
    """Softmax of random scores; head 1 of layer 0 comes to look at the token before."""
    generator = np.random.default_rng(step)
    maps = []
    for stream in streams:
        scores = generator.normal(size=(2, heads, 5, 5)) / 2
        scores[0, 1] += np.eye(5, k=-1) * step / 20
        weights = np.exp(scores)
        weights /= weights.sum(-1, keepdims=True)
        maps.append(AttentionMap(stream, TOKENS, TOKENS, weights, layers=NAMES))
    return Attention(tuple(maps), Provenance("watched", "Toy"), id=f"step {step}")


def folder_of(place: Path, *samples: Attention) -> Path:
    place.mkdir(exist_ok=True)
    for one in samples:
        number = int(one.id.removeprefix("step "))
        (place / f"step-{number:08d}.npz").write_bytes(dump_archive([one]))
    return place


@pytest.fixture
def samples(tmp_path: Path) -> Path:
    return folder_of(tmp_path / "samples", *map(sample, (0, 50, 100)))


def divergence(p: np.ndarray, q: np.ndarray) -> float:
    """Jensen and Shannon's, mean over rows, by hand."""

    def entropy(row: np.ndarray) -> float:
        return float(-sum(one * np.log(one) for one in row if one > 0))

    rows = [
        entropy((a + b) / 2) - (entropy(a) + entropy(b)) / 2
        for a, b in zip(p.astype(float), q.astype(float), strict=True)
    ]
    return float(np.mean(rows))


def test_data_and_the_document_hold_the_same(samples):
    header, *rows = attnviz("compare", samples, "-f", "tsv", "-q").rows
    assert header == [*("step", "stream", "layer", "head", "role", *HISTORY, "verdicts")]
    assert HISTORY[:4] == ("entropy", "sink", "previous-token", "drift")
    assert len(rows) == 3 * 4
    assert [row[8] for row in rows[:4]] == [""] * 4  # nothing to drift from
    for place, (step, before) in enumerate(((50, 0), (100, 50))):
        for row in rows[4 * (place + 1) : 4 * (place + 2)]:
            assert (row[0], row[1]) == (str(step), "self")
            cell = NAMES.index(row[2]), int(row[3])
            wanted = divergence(sample(before).weights[cell], sample(step).weights[cell])
            assert float(row[8]) == pytest.approx(wanted, abs=1e-5)
            own = sample(step).weights[cell]
            assert float(row[7]) == pytest.approx(np.mean(np.diag(own, -1)), abs=1e-5)
    roles = {(row[0], row[2], row[3]): row[4] for row in rows}
    assert roles["0", NAMES[0], "1"] == ""
    assert roles["100", NAMES[0], "1"] == "previous-token"
    document = attnviz("compare", samples, "-f", "json", "-q").json()
    rows = attnviz("compare", samples, "-f", "tsv", "-q").rows[1:]
    assert (document["kind"], document["steps"]) == ("history", [0, 50, 100])
    for number, head in enumerate(document["heads"]):
        own = rows[number::4]
        assert [row[2:4] for row in own] == [[head["layer"], str(head["head"])]] * 3
        assert [row[4] or None for row in own] == head["roles"]
        assert head["drift"][0] is None
        assert [float(row[5]) for row in own] == pytest.approx(head["entropy"], rel=1e-5)
        assert [float(row[8]) for row in own[1:]] == pytest.approx(head["drift"][1:], rel=1e-5)


def test_the_table_leaves_out_what_paths_share(samples):
    text = attnviz("compare", samples).text
    assert "Toy · self · 2 layers × 2 heads · 3 samples, steps 0 to 100" in text
    assert "layers: body.*.attend" in text
    line = next(line for line in text.splitlines() if line.startswith("0      1"))
    assert re.search(r"previous-token  \d\.\d\d→\d\.\d\d", line)
    assert " score" not in text.splitlines()[5]  # these samples know no scores
    assert re.search(r"[▁-█]{2} 0\.\d{4}$", line)
    assert max(map(len, text.splitlines())) <= 80
    cut = attnviz("compare", samples, "--max-rows", 1).text
    assert "-f tsv and -f json have them as data" in cut
    (_, count) = re.findall(r"1 of (\d+) rows: --max-rows (\d+) shows all", cut)[0]
    assert "max-rows" not in attnviz("compare", samples, "--max-rows", count).text
    assert short_paths(["a.0.x", "a.1.x", "a.10.x"]) == (
        {"a.0.x": "0", "a.1.x": "1", "a.10.x": "10"},
        "a.*.x",
    )
    assert short_paths(["a.b", "a.b.c"]) == ({"a.b": "b", "a.b.c": "b.c"}, "a.*")
    for alone in (["0", "1"], ["a.b"], ["a.b", "c.d"]):
        assert short_paths(alone) == ({name: name for name in alone}, "")


def test_parts_are_chosen_as_elsewhere(samples, tmp_path):
    rows = attnviz("compare", samples, "--layer", 1, "--head", 0, "-f", "tsv", "-q").rows[1:]
    assert [row[2:4] for row in rows] == [[NAMES[1], "0"]] * 3
    assert attnviz("compare", samples, "--layer", 2).mistake == (
        "layer 2 does not exist: Toy (self) has 2 layers, body.0.attend, body.1.attend"
    )
    two = folder_of(tmp_path / "two", *(sample(n, streams=("self", "cross")) for n in (0, 5)))
    rows = attnviz("compare", two, "--stream", "cross", "-f", "tsv", "-q").rows[1:]
    assert {row[1] for row in rows} == {"cross"}
    assert "stream" in attnviz("compare", two).text.splitlines()[5]
    assert attnviz("compare", two, "--stream", "none").status == 2


def test_drift_above_a_limit_fails_in_the_words_of_compare(samples):
    files = [samples / f"step-{step:08d}.npz" for step in (50, 100)]
    compared = attnviz("compare", *files, "-f", "none", "-q", "--fail-above", 0.001)
    done = attnviz("compare", samples, "-f", "none", "-q", "--fail-above", 0.001)
    assert (done.status, done.mistake) == (1, compared.mistake)
    assert "4 of 4 heads differ by more than 0.001 nats: layer body." in done.mistake
    assert attnviz("compare", samples, "-q", "--fail-above", 0.69).status == 0


def test_folders_without_samples_are_said(tmp_path):
    for words, message in (
        ((tmp_path, "a text"), "A is a folder of samples of a training run, and B is none"),
        (("a text", tmp_path), "B is a folder of samples of a training run, and A is none"),
        ((tmp_path, f"{tmp_path}/."), "A and B are the same folder: give one of them"),
        ((tmp_path, "--model", "pocket"), "leave --model out"),
        ((tmp_path, "--head-b", "0.1"), "leave --head-b out"),
        ((tmp_path, "--heatmap", "a.png"), "leave --heatmap out"),
        (("a b", "a c", "--picture", "a.png"), "--picture is for a training run: give its folder"),
        (("a b", "a c", "--html", "a.html"), "--html is for a training run"),
    ):
        done = attnviz("compare", *words)
        assert (done.status, message in done.mistake) == (2, True), done.err
    assert (
        "holds no samples: they are named step-00000100.npz" in attnviz("compare", tmp_path).mistake
    )
    one = folder_of(tmp_path, sample(100))
    assert "one sample, of step 100" in attnviz("compare", one).text
    done = attnviz("compare", one, "--fail-above", 0.1)
    assert (done.status, done.mistake) == (2, "--fail-above compares two samples, and there is one")
    (one / "step-00000200.npz").write_bytes(b"no archive")
    assert attnviz("compare", one).status == 1


def test_samples_that_differ_in_heads_or_digits(tmp_path):
    place = folder_of(tmp_path, sample(0), sample(1, heads=3))
    done = attnviz("compare", place, "-f", "json")
    heads = done.json()["heads"]
    assert (len(heads), heads[-1]["head"]) == (6, 2)
    assert heads[-1]["entropy"][0] is None
    assert all(head["drift"] == [None, None] for head in heads)
    assert "some maps have no fellow in the sample before: they have no drift" in done.err
    place = folder_of(tmp_path / "long", sample(9), sample(10))
    (place / "step-100000000.npz").write_bytes(dump_archive([sample(3)]))
    (place / "step-x.npz").write_bytes(b"")
    assert attnviz("compare", place, "-f", "json", "-q").json()["steps"] == [9, 10, 100_000_000]


# --- pictures and the page


def test_heads_that_have_no_room_are_counted(tmp_path):
    many = folder_of(tmp_path / "samples", *(sample(step, heads=60) for step in (0, 50)))
    with pytest.raises(AttnvizError, match="60 heads have no room in 85 mm"):
        package.compare(many).picture("plot", tmp_path / "a.png", width="single")


@pytest.mark.slow
def test_a_gif_has_a_frame_for_each_sample(samples, tmp_path):
    file = tmp_path / "one.gif"
    assert attnviz("compare", samples, "--picture", file, "-f", "none", "-q").status == 0
    with Image.open(file) as found:
        frames = [frame.info["duration"] for frame in ImageSequence.Iterator(found)]
        assert (found.format, frames, found.info["loop"]) == ("GIF", [330, 330, 1500], 0)
    for kind, name, allowed in (("gif", "a.png", ".gif"), ("plot", "a.gif", ".png, .svg")):
        done = attnviz("compare", samples, "--picture", f"{kind}:{tmp_path / name}")
        assert (done.status, f"names no picture: end it in {allowed}" in done.mistake) == (2, True)
    same = attnviz("compare", samples, "--picture", file, "--html", file.with_suffix(".html"), "-q")
    assert same.status == 0
    found = package.compare(samples)
    assert found.value.steps == (0, 50, 100)
    assert found.value.values["drift"].shape == (3, 4)
    assert found.to_rows()[0]["layer"] == NAMES[0]
    assert found.picture().axes
    moving = found.picture("gif", tmp_path / "a.gif")
    assert len(moving.frames) == 3
    with Image.open(tmp_path / "a.gif") as image:
        assert image.n_frames == 3  # type: ignore[attr-defined]
    with pytest.raises(AttnvizError, match=r"heads differ by more than 0.001 nats"):
        package.compare(samples, fail_above=0.001)


def test_the_page_has_a_stream_for_each_step(samples, tmp_path):
    assert attnviz("compare", samples, "--html", tmp_path / "h.html", "-q").status == 0
    page = (tmp_path / "h.html").read_text("utf-8")
    found = re.search(r'id="document">(.*?)</script>', page)
    assert found is not None
    maps = json.loads(found[1])["maps"]
    assert [(one["stream"], one["lens"]) for one in maps] == [
        *(("step 0", ""), ("step 50", ""), ("step 100", ""))
    ]


# --- Python


def test_blocks_count_as_tokens_and_a_note_says_so(tmp_path):
    def pooled(step: int) -> Attention:
        whole = sample(step)
        (item,) = whole.maps
        return replace(whole, maps=(replace(item, blocks=(4, 4)),))

    done = attnviz("compare", folder_of(tmp_path / "p", pooled(0), pooled(9)), "-f", "tsv")
    single = attnviz("compare", folder_of(tmp_path / "s", sample(0), sample(9)), "-f", "tsv")
    assert done.out == single.out
    assert "maps hold blocks of 4 × 4 tokens: measures are of blocks" in done.err


# --- verdicts


def grown(step: int, factor: float = 2.2, noise: float = 0.0) -> Attention:
    """Scores whose queries and keys are `factor` times as large at each step, with their measures.

    Head 1 does not change.
    """
    generator = np.random.default_rng(5)
    scores = generator.normal(size=(1, 2, 12, 12))
    scores[0, 0] *= factor ** (2 * step)
    scores[0, 1] += np.random.default_rng(step).normal(size=(12, 12)) * noise
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    tokens = tuple(map(Token, "abcdefghijkl"))
    item = AttentionMap("self", tokens, tokens, weights, layers=("body.0.attend",))
    known = {
        ("self", "body.0.attend", str(head)): {"score-max": float(scores[0, head].max())}
        for head in range(2)
    }
    return Attention((item,), Provenance("watched", "Toy"), id=f"step {step}", scores=known)


def _largest(sample: Attention) -> list[float]:
    return [one["score-max"] for one in sample.scores.values()]


def test_queries_and_keys_that_grow_are_saturating(tmp_path):
    place = folder_of(tmp_path, *map(grown, range(8)))
    done = attnviz("compare", place, "-f", "json", "-q").json()
    bad, still = (head["verdicts"] for head in done["heads"])
    assert [one["name"] for one in bad] == ["collapsed", "saturating"]
    assert [one["name"] for one in still] == ["settled"]
    largest = done["heads"][0]["score-max"]
    first = next(step for step in range(8) if largest[step] >= 100)
    assert f"passed 100 by step {first}" in bad[1]["detail"]
    assert set(done["rules"]) == {*(one["name"] for one in bad), *RULES}
    text = attnviz("compare", place, "--fail-on", "collapsed,saturating", "-f", "none", "-q")
    assert text.status == 3
    lines = text.err.splitlines()
    assert [line.partition(" since")[0] for line in lines] == [
        "attnviz: error: layer body.0.attend head 0: collapsed",
        "attnviz: error: layer body.0.attend head 0: saturating",
    ]
    assert attnviz("compare", place, "--fail-on", "uniform", "-f", "none", "-q").status == 0
    done = attnviz("compare", place, "--fail-on", "collapsing")
    assert (done.status, "Did you mean 'collapsed'?" in done.mistake) == (2, True)
    with pytest.raises(HealthError, match="head 0: collapsed since step"):
        package.compare(str(place), fail_on="collapsed")
    shown = attnviz("compare", place, "-q").text
    assert "saturating: body.0.attend.0, since step" in " ".join(shown.split())
    assert "entropy under 0.05 of what is possible" in " ".join(shown.split())
    # What does not pass 100 yet is told by its rate.
    slow = [grown(step, 1.3) for step in range(12)]
    early = folder_of(tmp_path / "early", *slow[:6])
    first = next(at for at, one in enumerate(slow) if max(_largest(one)) >= 100)
    (head, _) = attnviz("compare", early, "-f", "json", "-q").json()["heads"]
    near = re.search(r"passes 100 near step (\d+)", head["verdicts"][-1]["detail"])
    assert near is not None
    assert abs(int(near[1]) - first) <= 1


def test_verdicts_that_depend_on_growth_follow_their_rules(tmp_path):
    def linear(step: int) -> Attention:
        made = grown(0)
        known = {head: {"score-max": 30.0 + 5 * step} for head in made.scores}
        return replace(made, id=f"step {step}", scores=known)

    heads = attnviz("compare", folder_of(tmp_path, *map(linear, range(9))), "-f", "json", "-q")
    names = [one["name"] for head in heads.json()["heads"] for one in head["verdicts"]]
    assert names == ["settled", "settled"]

    def head(step: int, of: str) -> np.ndarray:
        rows = np.random.default_rng(1).normal(size=(12, 12))
        if of == "uniform":
            rows = rows * 0.01
        if of == "oscillating":
            rows = rows * (3 if step % 2 else 0.5)
        if of == "sink":
            rows[:, 4] += step
        return rows

    kinds = "uniform", "oscillating", "sink"

    def made(step: int) -> Attention:
        weights = np.exp(np.stack([head(step, kind) for kind in kinds]))[None]
        weights /= weights.sum(-1, keepdims=True)
        tokens = tuple(map(Token, "abcdefghijkl"))
        item = AttentionMap("self", tokens, tokens, weights)
        return Attention((item,), Provenance("watched", "Toy"), id=f"step {step}")

    heads = attnviz("compare", folder_of(tmp_path, *map(made, range(9))), "-f", "json", "-q")
    found = [{one["name"]: one["step"] for one in one["verdicts"]} for one in heads.json()["heads"]]
    assert found[0] == {"uniform": 0}
    assert [*found[1]] == ["oscillating"]
    assert "sink formed" in found[2]
    assert 0 < found[2]["sink formed"] < 7
    # One sample says nothing of learning.
    heads = attnviz("compare", folder_of(tmp_path / "one", made(0)), "-f", "json", "-q")
    assert not any(head["verdicts"] for head in heads.json()["heads"])


# --- two runs, and one that goes on


def test_two_runs_stand_beside_each_other(samples, tmp_path):
    other = folder_of(tmp_path / "other", *map(sample, (0, 70)))
    header, *rows = attnviz("compare", samples, other, "-f", "tsv", "-q").rows
    assert header[0] == "run"
    assert [row[0] for row in rows] == ["samples"] * 12 + ["other"] * 8
    alone = attnviz("compare", other, "-f", "tsv", "-q").rows[1:]
    assert [row[1:] for row in rows[12:]] == alone
    runs = attnviz("compare", samples, other, "-f", "json", "-q").json()["runs"]
    assert [(one["run"], one["steps"]) for one in runs] == [
        ("samples", [0, 50, 100]),
        ("other", [0, 70]),
    ]
    text = attnviz("compare", samples, other, "-q").text
    assert text.index("samples: Toy") < text.index("other: Toy")
    found = package.compare(str(samples), str(other))
    drawn = [item.get_label() for item in found.picture().axes[0].collections]
    assert (drawn.count("entropy"), drawn.count("entropy beside")) == (4, 4)
    page = found.page()
    document = json.loads(re.search(r'id="document">(.*?)</script>', page)[1])  # type: ignore[index]
    assert [one["stream"] for one in document["maps"]][2:4] == [
        "samples: step 100",
        "other: step 0",
    ]
    panel = document["history"][1]
    assert (panel["name"], panel["steps"]) == ("other", [0, 70])
    map_, layer, head = panel["places"][1][3]
    assert document["maps"][map_]["stream"] == "other: step 70"
    assert panel["heads"][3] == "1.1"
    assert (layer, head) == (1, 1)
    values = panel["measures"]["drift"]["values"]
    assert values[0] == [None] * 4
    assert values[1] == pytest.approx([float(row[9]) for row in rows[16:]], rel=1e-4)


def test_a_run_is_followed_until_it_drifts_or_fails(tmp_path, monkeypatch, samples):
    folder, steps = folder_of(tmp_path / "run", sample(0)), iter((50, 100))
    monkeypatch.setattr("time.sleep", lambda _: folder_of(folder, sample(next(steps))))
    done = attnviz("compare", folder, "--follow", "--fail-above", "0", "-q")
    assert done.status == 1
    assert "4 of 4 heads differ by more than 0 nats" in done.err
    assert [*steps] == [100]
    slept = []

    def train_on(_seconds: float) -> None:
        slept.append(1)
        if len(slept) == 2:  # nothing is read again before there is a sample
            for step in (101, 102, 103):
                folder_of(samples, replace(grown(step - 97), id=f"step {step}"))

    monkeypatch.setattr("time.sleep", train_on)
    done = attnviz("compare", samples, "--follow", "--fail-on", "collapsed", "-q")
    assert done.status == 3
    assert done.text.count("Toy · self") == 2
    assert (len(slept), "steps 0 to 103" in done.text) == (2, True)


@pytest.mark.parametrize("names", ["", ",", "collapsed,"])
def test_a_gate_without_a_name_is_no_gate(samples, names):
    assert attnviz("compare", samples, "--fail-on", names, "-q").status == 2
