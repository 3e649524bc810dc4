"""What is answered, held against the library's own functions and against changed weights."""

import base64
import io
import json
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import attnviz
from attnviz.core.effects import HeadAt
from attnviz.core.errors import AttnvizError, InputError, UsageError
from attnviz.core.notices import ask_at_pauses
from attnviz.core.options import Origin
from attnviz.core.query import Query
from attnviz.features.explain.request import AnswerRequest, Explainer
from attnviz.features.explain.table import sentences_of
from attnviz.features.live.answering import MOST_WEIGHTS, Answers, Off, Question
from attnviz.features.writers.links import explain_link
from attnviz.models.open import open_source
from attnviz.models.pocket.translator import load_pocket

PAIR = ("The red car is fast.", "La voiture rouge est rapide.")
POCKET = Answers(Origin())
OFF = Off(
    heads=[("cross", "2", "0"), ("encoder", "3", "5")],
    links=[("cross", None, None, 3, 1)],
    tokens=[("source", 1)],
)


def weights_in(answer: dict[str, Any], stream: str) -> np.ndarray:
    """The weights that the packed numbers of an answer stand for."""
    (item,) = (one for one in answer["document"]["maps"] if one["stream"] == stream)
    assert item["levels"] == 32767
    shape = [len(item[axis]) for axis in ("layers", "heads")]
    shape += [len(item[axis]["tokens"]) for axis in ("queries", "keys")]
    packed = [answer["blobs"][f"{item['blob']}-{place}"] for place in range(shape[0])]
    data = b"".join(zlib.decompress(base64.b64decode(layer)) for layer in packed)
    codes = np.frombuffer(data, "<i2").reshape(shape).astype(np.float64)
    found = np.sign(codes) * (codes / item["levels"]) ** 2 * item["scale"]
    return np.where(codes == -32768, np.nan, found)


@pytest.mark.slow
@pytest.mark.parametrize("lens", ["raw", "rollout"])
def test_the_maps_are_those_of_the_library(lens):
    answer = POCKET.attend(Question(source=PAIR[0], lens=lens))
    expected = attnviz.attend(*PAIR, lens=lens)
    for item in expected.maps:
        found = weights_in(answer, item.stream.partition(" · ")[0])
        assert np.abs(found - item.weights).max() < 1e-4
    assert answer["answer"]["written"] == PAIR[1]
    assert (answer["answer"]["language"], answer["answer"]["to"]) == ("en", "fr")


@pytest.mark.slow
@pytest.mark.core
def test_predictions_and_effects_are_those_of_ablate():
    answer = POCKET.attend(Question(source=PAIR[0], target=PAIR[1], off=OFF))["answer"]
    report = attnviz.ablate(
        *PAIR, heads=[(2, 0), ("encoder", 3, 5)], links=[("rouge", "red")], tokens="red"
    ).value
    changed = answer["changed"]
    assert [one["logp"] for one in answer["pieces"]] == pytest.approx(
        [one.before for one in report.predictions], abs=1e-6
    )
    assert [one["logp"] for one in changed["pieces"]] == pytest.approx(
        [one.after for one in report.predictions], abs=1e-6
    )
    assert changed["effect"] == pytest.approx(report.together.effect, abs=1e-5)
    assert changed["total"] == pytest.approx(sum(one.after for one in report.predictions), abs=1e-5)
    assert (answer["written"], changed["written"]) == (PAIR[1], report.wrote[1])
    shown = "".join(one["gap"] + one["text"] for one in answer["pieces"]).strip()
    assert shown == PAIR[1]


@pytest.mark.slow
def test_effects_are_those_of_ablate_beside_what_is_off():
    answer = POCKET.ablate(Question(source=PAIR[0], target=PAIR[1]))
    report = attnviz.ablate(*PAIR, each="heads").value
    found = [x for one in answer["streams"] for layer in one["values"] for x in layer]
    assert found == pytest.approx([one.effect for one in report.effects], abs=1e-5)
    assert [one["stream"] for one in answer["streams"]] == ["cross", "encoder", "decoder"]
    first, both = ("cross", "2", "0"), [("cross", "2", "0"), ("encoder", "1", "3")]
    pair = {"source": PAIR[0], "target": PAIR[1]}
    answer = POCKET.ablate(Question(**pair, off=Off(heads=[first])))
    totals = [
        POCKET.attend(Question(**pair, off=Off(heads=heads)))["answer"]["changed"]["total"]
        for heads in ([first], both)
    ]
    cross, encoder, _ = (one["values"] for one in answer["streams"])
    assert encoder[1][3] == pytest.approx(totals[0] - totals[1], abs=1e-5)
    assert cross[2][0] == pytest.approx(0, abs=1e-5)  # float32 of 8 nats, by processor


@pytest.mark.parametrize(
    ("model", "texts", "stream", "cell"),
    [
        ("pocket", PAIR, "cross", (3, 1)),
        ("pocket-lm", ("Tom likes dogs. Mary likes cats. Tom likes",), "causal", (10, 3)),
    ],
)
def test_why_a_link_is_there_is_what_why_says(model, texts, stream, cell):
    link, asked = (stream, "2", "0", *cell), dict(zip(("source", "target"), texts, strict=False))
    answer = POCKET.why(Question(**asked, model=model, link=link, lens="effect"))["report"]
    source = open_source(Origin(model=None if model == "pocket" else model), "cross")
    kind = "cross" if model == "pocket" else "self"
    written = source.trace_writers(Query(*texts, kind=kind))
    expected = explain_link(written, HeadAt(stream, "2", 0), cell).document()
    assert answer == json.loads(json.dumps({name: expected[name] for name in answer}))
    assert [one["writer"] for one in answer["key"]]


def test_a_number_unfolds_to_what_ablate_measures():
    text, link = "Tom likes dogs. Mary likes cats. Tom likes", ("causal", "2", "3", 10, 3)
    asked = {"source": text, "model": "pocket-lm"}
    steps = POCKET.why(Question(**asked, link=link))["steps"]
    score = np.dot(steps["query"], steps["key"]) * steps["factor"]
    assert score == pytest.approx(steps["scores"][3], rel=1e-5)
    weights = attnviz.attend(text, model="pocket-lm").weights[2, 3, 10]
    np.testing.assert_allclose(steps["weights"], weights, atol=1e-5)
    answer = POCKET.attend(Question(**asked, off=Off(links=[link])))["answer"]
    found = [one["logp"] for one in answer["changed"]["pieces"]]
    before = [one["logp"] for one in answer["pieces"]]
    changes = [change for _, change in steps["changes"]]
    np.testing.assert_allclose(changes, np.subtract(found, before), atol=1e-5)


@pytest.mark.slow
def test_what_decided_a_word_is_what_explain_says():
    text = "Tom likes dogs. Mary likes cats. Tom likes dogs"
    answer = POCKET.explain(Question(source=text, model="pocket-lm", explain=11))
    source = open_source(Origin(model="pocket-lm"), "self", with_head=True)
    report, _ = Explainer(source, AnswerRequest("11"), None).explain_query(Query(text))
    assert answer["claims"] == json.loads(
        json.dumps([one.document() for one in sentences_of(report)])
    )
    assert answer["claims"][0]["text"].startswith('"dogs"')
    assert any(one["link"] for one in answer["claims"])


@pytest.mark.parametrize(
    ("link", "said"),
    [
        (None, "name a link: stream, layer, head, query and key"),
        (("decoder", "0", "0", 1, 3), "the query does not see this key, which comes later"),
        (("decoder", "0", "9", 1, 1), "there is no head '9' in stream 'decoder'"),
        (("decoder", "0", "0", 1, 99), "there is no key 99 in stream 'decoder'"),
    ],
)
def test_a_link_that_is_not_there_is_not_explained(link, said):
    with pytest.raises(UsageError, match=said):
        POCKET.why(Question(source=PAIR[0], target=PAIR[1], link=link))


@pytest.mark.slow
def test_what_a_lens_explains_and_a_long_text():
    pair = {"source": PAIR[0], "target": PAIR[1], "lens": "effect"}
    answer = POCKET.attend(Question(**pair, explain=3))
    expected = attnviz.attend(*PAIR, lens="effect", explain="3")
    for item in expected.maps:
        np.testing.assert_allclose(weights_in(answer, item.stream), item.weights, atol=1e-3)
    axis = answer["document"]["maps"][0]["queries"]["tokens"]
    assert [PAIR[1][one["start"] : one["end"]] for one in axis[1:]] == PAIR[1].replace(
        ".", " ."
    ).split()
    answer = POCKET.attend(Question(source="The cat sat on the mat. " * 100, command="self"))
    (item,) = answer["document"]["maps"]
    assert item["queries"]["block"] > 1
    assert MOST_WEIGHTS // 3 < 24 * len(item["queries"]["tokens"]) ** 2 <= MOST_WEIGHTS


@pytest.mark.slow
def test_parts_that_are_off_in_the_maps():
    answer = POCKET.attend(
        Question(source=PAIR[0], target=PAIR[1], off=Off(heads=[("encoder", "0", "2")]))
    )
    model = load_pocket()
    name = "encoder.0.self_attention.output.weight"
    size = model.sizes.size // model.sizes.heads
    weight = model.weights[name].copy()
    weight[:, 2 * size : 3 * size] = 0
    model.weights.arrays[name] = weight
    (expected,) = model.attend([Query(*PAIR, "cross")])
    for item in expected.maps:
        assert np.abs(weights_in(answer, item.stream) - item.weights).max() < 1e-4
    plain = weights_in(POCKET.attend(Question(source=PAIR[0], target=PAIR[1])), "encoder")
    assert np.abs(plain - weights_in(answer, "encoder"))[1:].max() > 0.01
    off = Off(links=[("decoder", "1", "3", 4, 2)], tokens=[("source", 1)])
    answer = POCKET.attend(Question(source=PAIR[0], target=PAIR[1], off=off))
    maps = {name: weights_in(answer, name) for name in ("cross", "encoder", "decoder")}
    for weights in maps.values():
        assert np.abs(weights.sum(-1) - 1).max() < 1e-3
    assert maps["decoder"][1, 3, 4, 2] == 0
    assert np.count_nonzero(maps["decoder"][:, :, 4, 2] == 0) == 1
    assert not maps["cross"][..., 1].any()
    others = np.arange(maps["encoder"].shape[2]) != 1
    assert not maps["encoder"][:, :, others, 1].any()
    assert maps["encoder"][:, :, 1, 1].all()


@pytest.mark.slow
def test_what_the_maps_cannot_show_is_said():
    answer = POCKET.attend(Question(source=PAIR[0], lens="norm", off=Off(heads=OFF.heads)))
    assert answer["answer"]["changed"]["effect"] != 0
    assert answer["answer"]["notes"] == [
        "the maps are of the model as it is: lens norm is not worked out with parts switched off"
    ]
    everything = [("source", place) for place in range(7)]
    answer = POCKET.attend(Question(source=PAIR[0], target=PAIR[1], off=Off(tokens=everything)))
    assert np.isnan(answer["answer"]["changed"]["effect"])
    (note,) = answer["answer"]["notes"]
    assert note.startswith("the maps are of the model as it is:")


@pytest.mark.parametrize(
    ("off", "said"),
    [
        (Off(heads=[("crss", "0", "0")]), "there is no stream 'crss': cross, encoder, decoder"),
        (Off(heads=[("cross", "4", "0")]), "there is no layer '4' in stream 'cross': 0, 1, 2, 3"),
        (Off(heads=[("cross", "0", "6")]), "there is no head '6' in stream 'cross': 0, 1, 2, 3, "),
        (Off(heads=[("cross", "00", "0")]), "there is no layer '00'"),
        (Off(links=[("cross", "0", "0", 99, 0)]), "there is no query 99 in stream 'cross': 0 to 6"),
        (Off(links=[("encoder", None, "0", 0, 7)]), "there is no key 7 in stream 'encoder'"),
        (Off(tokens=[("target", 7)]), "there is no token 7 of side 'target': source 0 to 6, "),
        (Off(tokens=[("text", 0)]), "there is no token 0 of side 'text'"),
    ],
)
def test_what_is_not_there_cannot_be_switched_off(off, said):
    with pytest.raises(UsageError, match=said.replace(".", r"\.")):
        POCKET.attend(Question(source=PAIR[0], target=PAIR[1], off=off))


@pytest.mark.parametrize("target", [None, "a " * 1000])
def test_a_short_text_of_many_tokens_is_refused(target):
    source = "a " * (3000 if target is None else 1001)
    with pytest.raises(InputError, match=r"tokens: 2,000 are read at most, cut it"):
        POCKET.attend(Question(source=source, target=target))


class GivenUpError(BaseException):
    """Nobody waits."""


def test_work_that_nobody_waits_for_ends_between_layers():
    turns = 0

    def ask() -> None:
        nonlocal turns
        turns += 1
        if turns == 20:
            raise GivenUpError

    with ask_at_pauses(lambda: None):
        POCKET.attend(Question(source=PAIR[0]))
    with pytest.raises(GivenUpError), ask_at_pauses(ask):
        POCKET.attend(Question(source=PAIR[0]))
    assert turns == 20
    assert POCKET.attend(Question(source=PAIR[0]))["answer"]["written"] == PAIR[1]


@pytest.mark.parametrize(
    ("question", "said"),
    [
        (Question(), "the source is empty"),
        (Question(source="\u2003"), "the source is empty"),
        (Question(source="a", target=""), "the target is empty"),
        (Question(source="a\ud800"), "the source is not valid UTF-8"),
        (Question(source="a", model="../../etc"), r"unknown model '../../etc': choose from pocket"),
        (Question(source="a", picture="aaaa"), "'pocket' reads no pictures"),
    ],
)
def test_a_mistake_is_one_line(question, said):
    with pytest.raises(AttnvizError, match=said) as found:
        POCKET.attend(question)
    assert "\n" not in str(found.value)


@pytest.fixture(scope="module")
def answers_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Answers]:
    """A tiny model that answers, by the name of its kind."""
    from tests.features.vision.tiny_vision import VISION_BUILDERS
    from tests.hugging_face.tiny_models import BUILDERS

    def find(kind: str) -> Answers:
        build = {**BUILDERS, **VISION_BUILDERS}[kind]
        return Answers(Origin(model=str(build(tmp_path_factory.mktemp(kind)))))

    return find


@pytest.mark.slow
@pytest.mark.models
@pytest.mark.parametrize(
    ("kind", "stream", "pieces"),
    [("gpt2", "causal", 2), ("bart", "cross", 0), ("roberta", "encoder", 1), ("t5", "cross", 0)],
)
def test_a_hugging_face_model_answers_as_ablate_does(answers_of, kind, stream, pieces):
    answers = answers_of(kind)
    folder = str(answers.origin.model)
    texts = {"source": "The red car", "target": "the paper" if stream == "cross" else None}
    plain = answers.attend(Question(**texts))
    (item, *_) = plain["document"]["maps"]
    off = Off(heads=[(item["stream"], item["layers"][0], "1")])
    answer = answers.attend(Question(**texts, off=off))
    given = [text for text in texts.values() if text]
    wanted = {"explain": "all"} if kind == "gpt2" else {}
    report = attnviz.ablate(*given, heads=[(0, 1)], model=folder, **wanted).value
    assert answer["answer"]["changed"]["effect"] == pytest.approx(report.together.effect, abs=1e-4)
    assert len(answer["answer"]["pieces"]) == (pieces or len(item["queries"]["tokens"]) - 1)
    later = weights_in(answer, item["stream"])
    before = weights_in(plain, item["stream"])
    assert np.abs(later - before)[0].max() < 1e-3
    assert np.abs(later - before)[1:].max() > 1e-3


@pytest.mark.slow
@pytest.mark.models
def test_models_that_predict_nothing_answer_with_their_maps(answers_of):
    answers = answers_of("bert")
    answer = answers.attend(Question(source="the red car", off=Off(tokens=[("text", 1)])))
    (note,) = answer["answer"]["notes"]
    assert note.startswith("nothing can be switched off:")
    assert (answer["answer"]["pieces"], answer["answer"]["changed"]) == ([], None)
    assert answer["document"]["maps"]
    with pytest.raises(AttnvizError):
        answers.ablate(Question(source="the red car"))
    answer = answers_of("llava").attend(Question(source="the red car", picture=as_file("PNG")))
    (item,) = answer["document"]["maps"]
    assert (item["stream"], item["keys"]["side"]) == ("text-to-picture", "picture")
    assert answer["answer"]["notes"][0].startswith("nothing can be switched off:")


def as_file(kind: str) -> str:
    """A picture in base64."""
    from tests.features.vision.tiny_vision import picture

    file = io.BytesIO()
    picture().save(file, kind)
    return base64.b64encode(file.getvalue()).decode()


@pytest.mark.slow
@pytest.mark.models
@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP"])
def test_a_picture_is_answered_with_its_patches(answers_of, kind):
    answers = answers_of("vit")
    asked = Question(picture=as_file(kind), off=Off(heads=[("self", "0", "2")]))
    answer = answers.attend(asked)
    (item,) = answer["document"]["maps"]
    assert item["patches"]["keys"]["rows"] == item["patches"]["keys"]["columns"] == 4
    assert item["patches"]["keys"]["image"].startswith("data:image/jpeg;base64,")
    assert answer["answer"]["pieces"][0]["text"] in ("cat", "dog")
    assert answer["answer"]["changed"]["effect"] != 0
    assert len(answers.ablate(asked)["streams"][0]["values"]) == 2


@pytest.mark.models
@pytest.mark.parametrize(
    ("picture", "said"),
    [
        ("!", "the picture is no base64"),
        ("é", "the picture is no base64"),
        ("", "the picture cannot be read as a picture"),
        (base64.b64encode(b"GIF89a" + bytes(20)).decode(), "the picture cannot be read"),
        (base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(99)).decode(), "the picture cannot be read"),
        (base64.b64encode(b"%!PS-Adobe-3.0 EPSF-3.0\n").decode(), "the picture cannot be read"),
    ],
)
def test_what_is_no_picture_of_a_known_kind_is_refused(answers_of, picture, said):
    with pytest.raises(InputError, match=said):
        answers_of("vit").attend(Question(picture=picture))


@pytest.mark.models
def test_only_the_given_model_is_trusted_with_its_code(answers_of, monkeypatch, tmp_path):
    given = str(answers_of("bert").origin.model)
    answers = Answers(Origin(model=given, allow="pickle,code"))
    assert answers._origin(Question()).allow_code
    assert answers._origin(Question(model=given)).allow_code
    other = answers._origin(Question(model="pocket"))
    assert other == Origin()
    offered = [(one["name"], one["default"]) for one in answers.models()]
    assert offered[:2] == [(given, True), ("pocket", False)]
    with pytest.raises(UsageError, match="unknown model"):
        answers._origin(Question(model=str(tmp_path)))


@pytest.mark.slow
def test_every_shipped_model_answers():
    own = Answers(Origin(model="pocket-lm"))
    names = [one["name"] for one in own.models()]
    assert names[:3] == ["pocket-lm", "pocket", "pocket-vit"]
    answer = own.attend(
        Question(source="the dog sees a cat", off=Off(heads=[("causal", "0", "1")]))
    )
    report = attnviz.ablate(
        "the dog sees a cat", heads=[(0, 1)], model="pocket-lm", explain="all"
    ).value
    assert answer["answer"]["changed"]["effect"] == pytest.approx(report.together.effect, abs=1e-4)
    tokens = answer["document"]["maps"][0]["queries"]["tokens"]
    assert len(answer["answer"]["pieces"]) == len(tokens) - 1
    assert np.shape(own.ablate(Question(source="the dog"))["streams"][0]["values"]) == (3, 5)
    other = own.attend(Question(source="The red car.", model="pocket"))
    assert other["answer"]["to"] == "fr"


def test_the_shipped_model_of_pictures_asks_for_one():
    pytest.importorskip("PIL")
    answers = Answers(Origin())
    file = io.BytesIO()
    drawn_shape().save(file, "PNG")
    picture = base64.b64encode(file.getvalue()).decode()
    answer = answers.attend(Question(picture=picture, model="pocket-vit"))
    (item,) = answer["document"]["maps"]
    assert item["patches"]["keys"]["image"].startswith("data:image/jpeg;base64,")
    assert answer["answer"]["pieces"]
    with pytest.raises(UsageError, match="'pocket-vit' reads pictures, not texts"):
        answers.attend(Question(source="a text", model="pocket-vit"))
    for name, source in (("pocket", ""), ("pocket-lm", ""), ("pocket-vit", "a text")):
        with pytest.raises(UsageError, match=f"'{name}' reads no"):
            answers.attend(Question(source=source, picture=picture, model=name))


def drawn_shape() -> Any:
    """A red square on white."""
    from PIL import Image

    drawn = Image.new("RGB", (64, 64), "white")
    drawn.paste("red", (16, 16, 40, 40))
    return drawn


def test_facts_that_are_true_or_false_are_told_as_yes_or_no():
    answer = Answers(Origin()).attend(Question(source="The red car."))
    assert ["translated", "yes"] in answer["document"]["provenance"]
