"""The shipped model: its maps, its places in the text, its directions and its manners."""

import math
import re
from pathlib import Path

import numpy as np
import pytest

from attnviz.core.attention_map import Attention, AttentionMap
from attnviz.core.errors import InputError, ModelError, UsageError
from attnviz.models.pocket.model import FOLDER, predict_pieces, run_decoder, run_encoder, tidy
from attnviz.models.pocket.text import END
from attnviz.models.pocket.text import ENGLISH as ENGLISH_TAG
from attnviz.models.pocket.text import FRENCH as FRENCH_TAG
from attnviz.models.pocket.translator import Pocket, load_pocket
from tests.asked import over_itself, over_source
from tests.invoke import attnviz

ENGLISH = "The professor who supervised the student published the paper"


@pytest.fixture(scope="module")
def pocket() -> Pocket:
    return load_pocket()


def partners(item: AttentionMap) -> dict[str, str]:
    weights = item.weights[int(FOCUS[0]), int(FOCUS[1])]
    keys = [token.text for token in item.key_tokens]
    return {
        token.text: keys[int(row.argmax())]
        for token, row in zip(item.query_tokens, weights, strict=True)
        if not token.special
    }


FOCUS = ("2", "0")


def test_a_map_has_every_layer_and_head(pocket):
    attention = over_itself(pocket, ENGLISH)
    tokens = len(attention.tokens)
    assert attention.weights.shape == (4, 6, tokens, tokens)
    np.testing.assert_allclose(attention.weights.sum(-1), 1, atol=1e-4)
    assert attention.provenance.trained is True
    assert attention.provenance.source == attention.provenance.model == "pocket"


def test_tokens_say_where_they_stand(pocket):
    text = "  L’été,\u202ftu  dors… ﬁn 😀!"
    attention = over_itself(pocket, text)
    *tokens, end = attention.main.query_tokens
    covered = [text[token.start : token.end] for token in tokens]
    assert "".join("".join(dict.fromkeys(covered)).split()) == "".join(text.split())
    assert all(part == part.strip() for part in covered if part.strip())
    assert all(token.text for token in tokens)
    assert end.special
    assert end.text == "<eos>"
    assert [token.text for token in tokens].count(".") == 3, "three pieces of one sign"


def test_the_alignment_head_and_three_streams(pocket):
    attention = over_source(pocket, "The red car is fast.", "La voiture rouge est rapide.")
    focus = attention.focus["cross"]
    assert (focus.layer, focus.head) == FOCUS
    found = partners(attention.main)
    assert found["rouge"] == "red"
    assert found["voiture"] == "car"
    assert found["rapide"] == "fast"
    maps = over_source(pocket, "I love cats.", "J'adore les chats.").maps
    sides = [(item.stream, item.query_side, item.key_side) for item in maps]
    assert sides == [
        ("cross", "target", "source"),
        ("encoder", "source", "source"),
        ("decoder", "target", "target"),
    ]


def test_the_alignment_head_aligns_more_pairs(pocket):
    for source, target, expected in (
        ("I saw a black cat.", "J'ai vu un chat noir.", {"chat": "cat", "noir": "black"}),
        ("Elle a un chien blanc.", "She has a white dog.", {"white": "blanc", "dog": "chien"}),
        ("My brother lives in Paris.", "Mon frère habite à Paris.", {"Paris": "Paris"}),
    ):
        found = partners(over_source(pocket, source, target).main)
        assert expected.items() <= found.items()


@pytest.mark.core
def test_without_a_target_it_translates_and_says_which_way(pocket):
    attention = over_source(pocket, "I love cats.", None)
    assert attention.target is not None
    assert "chats" in attention.target
    assert attention.provenance.settings["direction"] == "en to fr"
    assert over_source(pocket, "J'aime les chats.", None).provenance.settings["direction"] == (
        "fr to en"
    )


def test_languages_causal_texts_and_precision(pocket):
    attention = over_source(load_pocket(to="en"), "I love cats.", "I love cats.")
    assert attention.provenance.settings["direction"] == "fr to en"
    assert attention.main.query_tokens[0].text == "<en>"
    item = over_itself(load_pocket(causal=True), ENGLISH).main
    assert item.stream == "causal"
    assert item.query_tokens[0].text == "<en>"
    assert (np.triu(item.weights, k=1) == 0).all()
    np.testing.assert_allclose(item.weights.sum(-1), 1, atol=1e-4)
    single, double = (over_itself(load_pocket(dtype=name), ENGLISH) for name in DTYPES)
    np.testing.assert_allclose(single.weights, double.weights, atol=1e-5)
    assert double.provenance.dtype == "float64"
    assert tidy("Are you there , Tom ?", "en") == "Are you there, Tom?"
    assert tidy("Es-tu là , Tom ?", "fr") == "Es-tu là, Tom ?"


DTYPES = ("float32", "float64")


@pytest.mark.slow
def test_torch_gives_and_keeps_what_numpy_does(pocket):
    on_torch = Pocket(device="cpu:0")  # any device but "cpu" is torch's
    pair = ("The red car is fast.", "La voiture rouge est rapide.")
    for one, other in zip(
        over_source(pocket, *pair).maps, over_source(on_torch, *pair).maps, strict=True
    ):
        np.testing.assert_allclose(one.weights, other.weights, atol=1e-5)
    assert on_torch.translate("I love cats.") == pocket.translate("I love cats.")
    expected = over_source(load_pocket(keep_qk=True), *PAIR)
    # Any device but "cpu" is torch's.
    found = over_source(Pocket(device="cpu:0", keep_qk=True), *PAIR)
    check(found)
    for stream, kept in expected.projections.items():
        np.testing.assert_allclose(found.projections[stream].query, kept.query, atol=1e-4)
        np.testing.assert_allclose(found.projections[stream].key, kept.key, atol=1e-4)


def test_blank_texts_and_odd_options_are_refused(pocket):
    for text in ("", "  \n\t"):
        with pytest.raises(InputError, match="the text is empty"):
            over_itself(pocket, text)
        with pytest.raises(InputError, match="the target is empty"):
            over_source(pocket, "Hello.", text)
    for options in ({"device": "gpu"}, {"dtype": "float16"}, {"dtype": "int8"}, {"to": "de"}):
        with pytest.raises(UsageError, match=f"'{next(iter(options.values()))}'"):
            load_pocket(**options)  # type: ignore[arg-type]


@pytest.mark.slow
def test_what_is_foreign_is_noted(pocket):
    for text, reason in (
        ("私は学生です。", "unknown to it; its language is unknown"),
        ("Der Hund schläft heute auf dem Sofa.", "its language is unknown"),
        ("El perro duerme hoy en la cocina.", "its language is unknown"),
        ("Pes dnes spí v kuchyni.", "its language is unknown"),
        ("for i in range(10): print(i)", "its language is unknown"),
        ("the cat " * 25 + "the", "51 pieces, where its heads keep their roles for 50"),
    ):
        (note,) = over_itself(pocket, text).provenance.notes
        assert note.startswith("the text lies outside what the pocket model was trained for")
        assert reason in note
    found = over_source(pocket, "Der Hund schläft heute auf dem Sofa.", None)
    assert found.provenance.settings["direction"].startswith("unknown to ")
    assert found.focus["cross"].why == "trained to align, but not on such text"
    assert not any("could be" in note for note in found.provenance.notes)
    given = over_source(pocket, "The dog sleeps.", "Der Hund schläft heute auf dem Sofa.")
    assert given.provenance.settings["direction"].endswith(" to unknown")


def test_a_text_is_judged_by_its_loss(pocket):
    text = pocket.encode_text("Das Haus ist alt.")
    losses = []
    for tag in (ENGLISH_TAG, FRENCH_TAG):
        memory, _ = run_encoder(pocket.weights, pocket.sizes, pocket.embed([END]))
        states, _, _ = run_decoder(
            pocket.weights, pocket.sizes, pocket.embed([tag, *text.ids]), memory
        )
        scores = np.asarray(predict_pieces(pocket.weights, states), np.float64)
        chances = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
        losses.append(-sum(math.log(chances[at, one]) for at, one in enumerate([*text.ids, END])))
    (judged,) = pocket.judge([text])
    assert judged.surprise == pytest.approx(min(losses) / (len("Das Haus ist alt.") + 5), rel=1e-5)


def test_texts_of_its_languages_and_long_ones(pocket):
    for text in (
        ENGLISH,
        "La voiture rouge est plus rapide que la bleue.",
        "cat",
        "Run!",
        "Bonjour",
    ):
        assert over_itself(pocket, text).provenance.notes == ()
    with pytest.raises(InputError, match="reads up to 4096"):
        over_itself(pocket, "word " * 5000)
    with pytest.raises(InputError, match="more than 5000 pieces: the model reads up to 4096"):
        pocket.encode_text("a" + " " * 5000)
    german = pocket.encode_text("Der Hund schläft heute auf dem Sofa. " * 20)
    english = pocket.encode_text("Tom's 3 p.m. bus is late. " + "The dog sleeps. " * 300)
    short = pocket.encode_text("The dog sleeps on the sofa.")
    assert [text.is_foreign for text in pocket.judge([german, english, short])] == [1, 0, 0]


def test_a_folder_without_weights_and_endless_targets(tmp_path, pocket, monkeypatch):
    from pathlib import Path

    folder = Path(str(tmp_path))
    with pytest.raises(ModelError, match="cannot be read"):
        load_pocket(folder=folder)
    (folder / "config.json").write_bytes((FOLDER / "config.json").read_bytes())
    (folder / "weights.safetensors").write_bytes(b"12345678nothing")
    with pytest.raises(ModelError, match="cannot be read"):
        load_pocket(folder=folder)
    monkeypatch.setattr("attnviz.models.pocket.model.MOST_WRITTEN", 3)
    ((_, _, notes),) = pocket.write(
        [pocket.encode_text("The red car is fast and the cat sat on the mat")]
    )
    assert notes[-1] == "the pocket model was stopped after 3 pieces of the target"
    monkeypatch.undo()
    ((_, _, notes),) = pocket.write([pocket.encode_text("The red car is fast")])
    assert not any("was stopped" in note for note in notes)


def comments(file: Path) -> str:
    """The words of a picture, which matplotlib writes beside the paths that draw them."""
    return " ".join(re.findall(r"<!-- (.*?) -->", file.read_text(encoding="utf-8"), re.DOTALL))


@pytest.mark.slow
@pytest.mark.parametrize("picture", ["--heatmap", "--grid", "--picture"])
def test_every_picture_tells_of_foreign_texts(tmp_path, picture):
    file = tmp_path / "made.svg"
    head = ["--layer", "2", "--head", "0"]
    attnviz("cross", "Der Hund schläft heute auf dem Sofa.", picture, str(file), *head)
    assert "its language is unknown" in " ".join(comments(file).split())
    attnviz("cross", "The dog sleeps.", "Le chien dort.", picture, str(file), *head)
    assert "unknown" not in comments(file)


@pytest.mark.slow
def test_heads_of_several_texts_carry_their_notes(tmp_path):
    texts, file = tmp_path / "texts.txt", tmp_path / "made.svg"
    texts.write_text(f"{ENGLISH}\n{'the cat ' * 30}\n{'the cat ' * 40}\n", encoding="utf-8")
    command = ("heads", "--input", str(texts), "--picture", str(file), "-f", "json")
    (note,) = attnviz(*command).json()["notes"]
    assert "61–81 pieces, where its heads keep their roles for 50" in note
    assert "61–81 pieces" in comments(file)


@pytest.mark.slow
@pytest.mark.parametrize("command", ["heads", "ablate", "ablate --lenses", "heads --similar"])
def test_documents_of_several_texts_carry_their_notes(tmp_path, command):
    texts = tmp_path / "texts.txt"
    texts.write_text("The dog sleeps well.\nDer Hund schläft auf dem Sofa.\n", encoding="utf-8")
    found = attnviz(*command.split(), "--input", texts, "-f", "json", "-q").json()
    notes = found.get("notes") or found["provenance"]["notes"]
    assert any("its language is unknown" in note for note in notes)


PAIR = "The red car is fast", "La voiture rouge est rapide"


def check(attention: Attention) -> None:
    """Softmax(q kᵀ / √d) of every stream is its map, where no later position is seen."""
    assert set(attention.projections) == {item.stream for item in attention.maps}
    for item in attention.maps:
        kept = attention.projections[item.stream]
        products = np.einsum("lhqd,lhkd->lhqk", kept.query, kept.key)
        scores = products / np.sqrt(kept.query.shape[-1])
        np.testing.assert_allclose(products * kept.scale, scores, rtol=1e-6)
        if item.stream in {"causal", "decoder"}:
            scores = np.where(np.tri(scores.shape[-1], dtype=bool), scores, -np.inf)
        powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
        expected = powers / powers.sum(axis=-1, keepdims=True)
        np.testing.assert_allclose(item.weights, expected, atol=1e-5)


def test_kept_queries_and_keys_give_the_weights():
    for causal in (False, True):
        check(over_itself(load_pocket(causal=causal, keep_qk=True), PAIR[0]))
    check(over_source(load_pocket(keep_qk=True), *PAIR))
    assert not over_itself(load_pocket(), PAIR[0]).projections
