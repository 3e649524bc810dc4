"""A text is tokenized once, whatever is asked about it."""

from dataclasses import replace

import pytest

from attnviz.core.errors import InputError, ModelError, UsageError
from attnviz.core.query import Query
from attnviz.models.hugging_face.text_model import load_model
from tests.hugging_face.ask import attend

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
def test_weights_gradients_and_values_need_a_text_tokenized_once(count, counting):
    model = counting("gpt2")
    queries = list(map(Query, LINES[:count]))
    for query, found in zip(queries, model.attend(queries), strict=True):
        assert model.gradients(query).attention.tokens == found.tokens
        assert model.values(query).attention.tokens == found.tokens
    assert model.tokenizer.texts == LINES[:count]


def test_source_and_target_are_each_tokenized_once(counting):
    model = counting("t5")
    query = Query(LINES[0], LINES[1], "cross")
    list(model.attend([query]))
    model.gradients(query)
    model.values(query)
    assert model.tokenizer.texts == LINES[:2]


@pytest.mark.slow
def test_a_target_is_generated_once(counting, monkeypatch):
    model = counting("t5")
    generate, runs = model.model.generate, []
    monkeypatch.setattr(
        model.model, "generate", lambda **named: runs.append(1) or generate(**named)
    )
    query = Query(LINES[0], kind="cross")
    list(model.attend([query]))
    model.values(query)
    assert (len(runs), model.tokenizer.texts) == (1, LINES[:1])


def test_a_text_that_fails_is_tokenized_once_and_fails_again(counting):
    model = counting("bert")
    query = Query("paper " * 50)
    for _ in range(2):
        assert isinstance(next(model.attend([query])), InputError)
    with pytest.raises(InputError, match="at most 32"):
        model.values(query)
    assert len(model.tokenizer.texts) == 1


def test_only_the_last_chunk_of_texts_is_kept(counting):
    model = counting("bert")
    for line in LINES:
        attend(model, line)
    attend(model, LINES[0])
    model.values(Query(LINES[1]))
    assert model.tokenizer.texts == [*LINES, *LINES[:2]]
    assert len(model._encodings) == 1


def test_a_text_read_in_another_way_is_encoded_anew(counting):
    model = counting("gpt2")
    written = replace(model, max_new_tokens=2)
    assert len(attend(model, LINES[0]).tokens) < len(attend(written, LINES[0]).tokens)


def test_a_query_that_a_text_model_does_not_answer_is_refused(loaded):
    with pytest.raises(UsageError, match="answers no query of kind 'co'"):
        attend(loaded("bert"), "a", "b", "co")
    with pytest.raises(UsageError, match="--lens raw, rollout or flow only"):
        loaded("bert").values(Query("a", "b", "pair"))
    with pytest.raises(ModelError, match="no head"):
        loaded("bert").gradients(Query("a"))
