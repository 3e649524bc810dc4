"""A text is tokenized once, whatever is asked about it."""

import copy
from dataclasses import replace

import pytest
import torch
import transformers

from attnviz.core.errors import InputError, ModelError, UsageError
from attnviz.core.options import InMemoryModel
from attnviz.core.query import Query
from attnviz.features.align import request
from attnviz.models.hugging_face.text_model import load_model
from attnviz.runs.many_texts import source_for
from tests.hugging_face.ask import attend
from tests.hugging_face.tiny_models import SEQ2SEQ
from tests.invoke import attnviz

LINES = ["The red car", "The professor who supervised the student", "paper", "who is", "is ."]


class Counting:
    """A tokenizer that keeps what it encodes."""

    def __init__(self, tokenizer):
        self.tokenizer, self.texts = tokenizer, []

    def __call__(self, *texts, **named):
        self.texts += texts or [named.get("text") or named["text_target"]]
        return self.tokenizer(*texts, **named)

    def __getattr__(self, name):
        return getattr(self.tokenizer, name)


@pytest.fixture
def counting(folder_of):
    """A model whose tokenizer counts, by the name of its kind."""

    def load(kind, **options):
        model = load_model(str(folder_of(kind)), device="cpu", with_head=True, **options)
        return replace(model, tokenizer=Counting(model.tokenizer))

    return load


@pytest.mark.parametrize("count", [1, 5])
def test_weights_gradients_values_tokenize_once(count, counting):
    model = counting("gpt2")
    queries = list(map(Query, LINES[:count]))
    for query, found in zip(queries, model.attend(queries), strict=True):
        assert model.gradients(query).attention.tokens == found.tokens
        assert model.values(query).attention.tokens == found.tokens
    assert model.tokenizer.texts == LINES[:count]


@pytest.mark.slow
def test_source_and_target_are_read_and_written_once(counting, monkeypatch):
    model = counting("t5")
    query = Query(LINES[0], LINES[1], "cross")
    list(model.attend([query]))
    model.gradients(query)
    model.values(query)
    assert model.tokenizer.texts == LINES[:2]
    model = counting("t5")
    generate, runs = model.model.generate, []
    monkeypatch.setattr(
        model.model, "generate", lambda **named: runs.append(1) or generate(**named)
    )
    query = Query(LINES[0], kind="cross")
    list(model.attend([query]))
    model.values(query)
    assert (len(runs), model.tokenizer.texts) == (1, LINES[:1])


def test_failures_and_the_last_chunk_are_kept(counting):
    model = counting("bert")
    query = Query("paper " * 50)
    for _ in range(2):
        assert isinstance(next(model.attend([query])), InputError)
    with pytest.raises(InputError, match="at most 32"):
        model.values(query)
    assert len(model.tokenizer.texts) == 1
    model = counting("bert")
    for line in LINES:
        attend(model, line)
    attend(model, LINES[0])
    model.values(Query(LINES[1]))
    assert model.tokenizer.texts == [*LINES, *LINES[:2]]
    assert len(model._encodings) == 1


def test_a_text_is_encoded_anew_or_refused(counting, loaded):
    model = counting("gpt2")
    written = replace(model, max_new_tokens=2)
    assert len(attend(model, LINES[0]).tokens) < len(attend(written, LINES[0]).tokens)
    with pytest.raises(UsageError, match="answers no query of kind 'picture'"):
        attend(loaded("bert"), "a", "b", "picture")
    with pytest.raises(ModelError, match="no head"):
        loaded("bert").gradients(Query("a"))


LETTERS = list("▁abcdefghijklmnopqrstuvwxyz")
SPECIALS = ["<s>", "<pad>", "</s>", "<unk>"]
TRANSLATORS = {  # the class of the model, the languages, whether the decoder starts with the code
    "NllbTokenizer": ("M2M100", ("eng_Latn", "deu_Latn", "fra_Latn"), False),
    "MBart50Tokenizer": ("MBart", ("en_XX", "de_DE", "fr_XX"), False),
    "MBartTokenizer": ("MBart", ("en_XX", "de_DE", "fr_XX"), True),
}


def translator(kind):
    """A translator of random weights, with a tokenizer of letters and codes."""
    vocabulary = {piece: number for number, piece in enumerate([*SPECIALS, *LETTERS])}
    pieces = vocabulary if kind == "NllbTokenizer" else [(one, 0.0) for one in vocabulary]
    tokenizer = getattr(transformers, kind)(pieces)
    family = TRANSLATORS[kind][0]
    sizes = SEQ2SEQ | {"vocab_size": len(tokenizer)}
    config = getattr(transformers, f"{family}Config")(decoder_start_token_id=2, **sizes)
    model = getattr(transformers, f"{family}ForConditionalGeneration")(config).eval()
    return InMemoryModel(model, tokenizer)


def sides_of(model, query):
    """The pieces of the source and of what the decoder reads."""
    inputs = model.encode(query).inputs
    names = ("input_ids", "decoder_input_ids")
    return [model.tokenizer.convert_ids_to_tokens(list(inputs[name])) for name in names]


@pytest.mark.parametrize("kind", TRANSLATORS)
def test_languages_are_named_by_their_codes(kind, monkeypatch):
    given = translator(kind)
    _, (usual, source, target), starts = TRANSLATORS[kind]
    own = copy.deepcopy(given.reader)
    own.src_lang, own.tgt_lang = source, target
    read, written = own("a").input_ids, own(text_target="b").input_ids
    query = Query("a", "b", "cross")
    model = load_model(given, languages=(source, target))
    shifted = [written[-1], *written[:-1]] if starts else [2, *written[:-1]]
    assert sides_of(model, query) == [own.convert_ids_to_tokens(ids) for ids in (read, shifted)]
    assert model.provenance.notes == ()
    code = own.convert_tokens_to_ids(target)
    asked = {}
    monkeypatch.setattr(
        model.model, "generate", lambda **named: asked.update(named) or torch.tensor([[2, code, 8]])
    )
    assert model.encode(Query("a", kind="cross")).ids("target")[1] == code
    assert asked["decoder_start_token_id" if starts else "forced_bos_token_id"] == code
    # A tokenizer from Python stays as it is, and languages that nobody named are said.
    assert (given.reader.src_lang, given.reader.tgt_lang) == (usual, None)
    (note,) = load_model(given).provenance.notes
    assert note.startswith(f"it reads {usual} (default: --from names another) and writes {usual} (")
    read, written = sides_of(load_model(given), query)
    assert {usual} <= {*read} & {*written}


def test_texts_and_pairs_have_languages(tmp_path, monkeypatch):
    given = translator("MBart50Tokenizer")
    for part in (given.model, given.reader):
        part.save_pretrained(tmp_path)
    asked = ("self", "a", "--model", tmp_path, "-f", "json", "-q")
    (item, *_) = attnviz(*asked, "--from", "fr_XX").json()["maps"]
    assert item["key_tokens"][0]["text"] == "fr_XX"
    assert attnviz("compare", "a", "b", "--model", tmp_path, "--from", "fr_XX", "-q").status == 0
    pairs, read = tmp_path / "pairs.tsv", []
    pairs.write_text("a b\tc d\n")
    monkeypatch.setattr(
        request,
        "source_for",
        lambda origin, command: (
            read.append((origin.from_, origin.to)) or source_for(origin, command)
        ),
    )
    asked = ("align", pairs, "--model", tmp_path, "-q", "--to", "fr_XX")
    assert "give both --from CODE and --to CODE" in attnviz(*asked).mistake
    assert attnviz(*asked, "--from", "de_DE").status == 0
    assert read == [("fr_XX", "de_DE")]


def test_languages_are_the_models_or_refused(loaded, folder_of):
    given = translator("MBart50Tokenizer")
    given.model.generation_config.forced_bos_token_id = given.reader.convert_tokens_to_ids("ro_RO")
    (note,) = load_model(given, languages=("fr_XX", None)).provenance.notes
    assert note == "it reads fr_XX and writes ro_RO (default: --to names another)"
    given = translator("NllbTokenizer")
    with pytest.raises(UsageError, match=r"--to 'fra_latn': .* knows .*mean 'fra_Latn'"):
        load_model(given, languages=(None, "fra_latn"))
    with pytest.raises(UsageError, match=r"--from 'en': the tokenizer of .* has no codes"):
        load_model(str(folder_of("t5")), languages=("en", None))
    for options in (("--from", "en"), ("--to", "fr", "--mechanism", "linear")):
        assert "is for translators" in attnviz("cross", "a", "b", *options).mistake
