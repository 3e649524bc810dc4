"""Sentence pairs: which text a token is of, and who cannot read two."""

import json

import numpy as np
import pytest
import torch
from tokenizers import processors
from torch.nn.functional import logsigmoid
from transformers import (
    AutoModel,
    AutoModelForSequenceClassification,
    BartConfig,
    BertConfig,
    ByT5Tokenizer,
)

import attnviz as attnviz_api
from attnviz.core.errors import InputError, ModelError, UsageError
from attnviz.models.hugging_face.inputs.encoding import tokenize_pair
from attnviz.models.hugging_face.text_model import load_model
from tests.hugging_face.ask import attend
from tests.hugging_face.tiny_models import SEQ2SEQ, WIDE, byte_pieces, word_pieces
from tests.invoke import attnviz
from tests.precision import both, check_as_near

FIRST, SECOND = "The professor published", "the student's red car."
MARKS = {
    "bert": ("[CLS] $A [SEP]", " $B:1 [SEP]:1", [("[CLS]", 2), ("[SEP]", 3)]),
    "roberta": ("<s> $A </s>", " </s> $B </s>", [("<s>", 0), ("</s>", 2)]),
}


def pairing(kind):
    """A tokenizer that knows how its family writes two texts."""
    tokenizer = word_pieces() if kind == "bert" else byte_pieces(around=True)
    single, second, specials = MARKS[kind]
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single=single, pair=single + second, special_tokens=specials
    )
    types = ["token_type_ids"] if kind == "bert" else []
    return type(tokenizer)(
        tokenizer_object=tokenizer.backend_tokenizer,
        model_input_names=["input_ids", *types, "attention_mask"],
        model_max_length=tokenizer.model_max_length,
        **tokenizer.special_tokens_map,
    )


@pytest.fixture
def pair_folder(copy_of):
    def make(kind):
        folder = copy_of(kind)
        pairing(kind).save_pretrained(folder)
        return folder

    return make


@pytest.mark.parametrize("kind", MARKS)
def test_tokens_know_their_place_in_their_text(kind):
    tokenizer = pairing(kind)
    tokenizer.model_max_length = 2
    read = tokenize_pair(tokenizer, FIRST, SECOND)
    assert not tokenizer.deprecation_warnings  # of the length, which transformers gives once
    start = len(FIRST) + 1
    plain = [token for token in read.tokens if not token.special]
    texts = {False: FIRST, True: SECOND}
    for later, text in texts.items():
        moved = start if later else 0
        own = [token for token in plain if (token.start >= start) == later]
        covered = "".join(text[token.start - moved : token.end - moved] for token in own)
        assert covered.replace(" ", "") == text.replace(" ", "")


def test_token_types_are_handed_on():
    read = tokenize_pair(pairing("bert"), FIRST, SECOND)
    first = len(word_pieces()(FIRST)["input_ids"])
    assert read.inputs["token_type_ids"] == [0] * first + [1] * (len(read.ids) - first)


@pytest.mark.parametrize("kind", MARKS)
def test_weights_of_a_pair_are_those_of_transformers(kind, pair_folder):
    folder = pair_folder(kind)
    found = attend(load_model(str(folder), device="cpu"), FIRST, SECOND, "pair")
    own = AutoModel.from_pretrained(folder, attn_implementation="eager").eval()
    inputs = pairing(kind)(FIRST, SECOND, return_tensors="pt")
    given = {name: row for name, row in inputs.items() if name != "offset_mapping"}

    def read(own):
        return [torch.cat(own(**given, output_attentions=True).attentions).detach()]

    check_as_near([found.weights], *both(own, read))
    if kind == "bert":
        untyped = given | {"token_type_ids": torch.zeros_like(given["token_type_ids"])}
        other = torch.cat(own(**untyped, output_attentions=True).attentions).detach().numpy()
        assert abs(other - found.weights).max() > 1e-3


def test_a_quarter_is_chosen_by_its_stream_fresh_and_saved(pair_folder):
    folder = pair_folder("bert")
    asked = ("self", FIRST, "--pair", SECOND, "--model", folder)
    whole = attnviz(*asked, "-f", "json", "-q")
    direct = attnviz(*asked, "--stream", "b-to-a", "-f", "json", "-q")
    later = attnviz("render", "-", "--stream", "b-to-a", "-f", "json", "-q", stdin=whole.out)
    assert later.json() == direct.json()
    found = direct.json()
    assert (found["source"], found["target"]) == (FIRST, SECOND)
    (item,) = found["maps"]
    assert (item["query_text"], item["key_text"]) == ("target", "source")
    whole_weights = np.array(whole.json()["maps"][0]["weights"])
    first = len(item["key_tokens"])
    np.testing.assert_array_equal(item["weights"], whole_weights[..., first:, :first])


CLASSIFIERS = {
    "bert": (BertConfig, {"vocab_size": 26, **WIDE}),
    "bart": (BartConfig, SEQ2SEQ | {"decoder_start_token_id": 2}),
}
NAMES = {0: "no", 1: "perhaps", 2: "yes"}


def reader_of(kind):
    return pairing("roberta" if kind == "bart" else kind)


@pytest.fixture(scope="module")
def classifier(tmp_path_factory):
    """A classifier of pairs with sharp random weights, and its folder, by its kind."""
    made = {}

    def make(kind):
        if kind not in made:
            config, sizes = CLASSIFIERS[kind]
            torch.manual_seed(0)
            model = AutoModelForSequenceClassification.from_config(config(id2label=NAMES, **sizes))
            for weight in model.parameters():
                torch.nn.init.normal_(weight, 0, 0.3) if weight.ndim == 2 else None
            folder = tmp_path_factory.mktemp(kind)
            model.eval().save_pretrained(folder)
            reader_of(kind).save_pretrained(folder)
            made[kind] = model, folder
        return made[kind]

    return make


def own_logits(model, kind, off=None):
    """What transformers gives for the pair; one head of the first layer may put out zeros."""
    inputs = reader_of(kind)(FIRST, SECOND, return_tensors="pt")
    part = model.base_model.encoder
    if kind == "bert":
        layer = part.layer[0].attention.output.dense
    else:
        layer = part.layers[0].self_attn.out_proj

    def without(_, given):
        if off is not None:
            given[0][..., off * 8 : (off + 1) * 8] = 0

    hook = layer.register_forward_pre_hook(without)
    with torch.no_grad():
        scores = model(**inputs).logits[0]
    hook.remove()
    return scores


@pytest.mark.parametrize(
    ("kind", "device"), [("bert", "light"), ("bert", "torch"), ("bart", "torch")]
)
def test_what_decided_the_class_of_a_pair(kind, device, classifier):
    model, folder = classifier(kind)
    how = {"model": folder, "device": device}
    before = own_logits(model, kind).log_softmax(-1).numpy()
    answer = attnviz_api.explain(FIRST, SECOND, **how).to_json()
    assert answer["answer"] == NAMES[int(before.argmax())]
    assert answer["chance"] == pytest.approx(np.exp(before.max()), abs=1e-5)
    result = attnviz_api.attend(FIRST, pair=SECOND, **how)
    assert any("its decoder reads" in note for note in result.notes) == (kind == "bart")
    assert attnviz_api.explain(result).to_json()["tokens"] == answer["tokens"]
    (effect,) = attnviz_api.ablate(result, heads="0.1").to_json()["effects"]
    change = (before - own_logits(model, kind, 1).log_softmax(-1).numpy())[before.argmax()]
    assert abs(change) > 1e-3
    assert effect["effect"] == pytest.approx(change, abs=1e-4)


def test_the_one_score_of_a_reranker(classifier, tmp_path):
    model, _ = classifier("bert")
    config = BertConfig(num_labels=1, **CLASSIFIERS["bert"][1])
    own = AutoModelForSequenceClassification.from_config(config).eval()
    weights = {
        name: row[:1] if "classifier" in name else row for name, row in model.state_dict().items()
    }
    own.load_state_dict(weights)
    own.save_pretrained(tmp_path)
    pairing("bert").save_pretrained(tmp_path)
    before, after = (logsigmoid(own_logits(own, "bert", off)).item() for off in (None, 1))
    answer = attnviz_api.explain(FIRST, SECOND, model=tmp_path)
    assert answer.to_json()["chance"] == pytest.approx(np.exp(before), abs=1e-5)
    assert any("whose sigmoid is p" in note for note in answer.notes)
    (effect,) = attnviz_api.ablate(FIRST, SECOND, model=tmp_path, heads="0.1").value.effects
    assert effect.effect == pytest.approx(before - after, abs=1e-4)
    own.config.problem_type = "regression"
    with pytest.raises(ModelError, match="predicts a number"):
        attnviz_api.explain(FIRST, SECOND, model=own, tokenizer=pairing("bert"))


@pytest.mark.parametrize("kind", CLASSIFIERS)
def test_a_pair_through_every_lens_of_one_text(kind, classifier):
    _, folder = classifier(kind)
    asked = ("self", FIRST, "--pair", SECOND, "--model", folder, "-q")
    lenses = ["gradient", "effect", "norm", *(["logits"] if kind == "bert" else [])]
    for lens in lenses:
        item, *_ = attnviz(*asked, "--lens", lens, "-f", "json").json()["maps"]
        assert len(item["key_tokens"]) == len(reader_of(kind)(FIRST, SECOND)["input_ids"])
    table = attnviz("ablate", FIRST, SECOND, "--lenses", "--model", folder, "-q")
    assert table.status == 0, table.err


def test_who_reads_no_pair_says_so(loaded, classifier, tmp_path, pair_folder):
    with pytest.raises(ModelError, match=r"is decoder-only .*does not read sentence pairs"):
        attend(loaded("llama"), "a", "b", "pair")
    for more, said in (({}, "needs a model"), ({"target": "c"}, "is the second text of one")):
        with pytest.raises(UsageError, match=said):
            attnviz_api.attend("a", pair="b", **more)
    done = attnviz("cross", FIRST, SECOND, "--model", classifier("bart")[1])
    assert "is a classifier and writes no target: use 'attnviz self'" in done.mistake
    assert "--model ID_OR_FOLDER" in attnviz("self", "a", "--pair", "b").mistake
    weights = tmp_path / "m.json"
    weights.write_text(json.dumps({"weights": [[1.0]]}))
    done = attnviz("self", "a", "--pair", "b", "--weights", weights)
    assert (done.status, done.err.count("\n")) == (2, 1)
    for arguments, said in (
        (("a", "b", "--pair", "c"), "--pair is the second text of one"),
        (("-", "--pair", "c"), "--pair is the second text of one"),
        (("--input", "x.txt", "--pair", "c"), "--pair belongs to one TEXT, and --input reads many"),
    ):
        done = attnviz("self", *arguments)
        assert (done.status, done.mistake.split(":")[0]) == (2, said)
    model = load_model(str(pair_folder("bert")), device="cpu")
    with pytest.raises(InputError, match=r"the pair is 35 tokens long .* at most 32"):
        attend(model, "the " * 16, "the " * 16, "pair")
    for tokenizer, message in (
        (byte_pieces, "puts no mark between two texts"),
        (ByT5Tokenizer, "does not say which text"),
    ):
        with pytest.raises(ModelError, match=message):
            tokenize_pair(tokenizer(), "a", "b")
    for texts in (("", "b"), ("a", " ")):
        with pytest.raises(InputError, match=r"blank"):
            tokenize_pair(pairing("bert"), *texts)
