"""Sentence pairs, cleaned and split, with every piece knowing its word."""

import pytest
from tokenizers import Tokenizer

from attnviz.core.errors import InputError
from training import corpus
from training.tokenizer import learn_pieces


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.from_str(learn_pieces(["L'eau est là !", "The cat's here."] * 9, 60))


def test_texts_are_made_plain_and_split():
    assert corpus.clean("J\u2019ai\u202ffaim\u00a0! mon\u00adde\u200b") == "J'ai faim ! monde"
    assert corpus.split_words("the cat's here.", "en") == ["the", "cat", "'s", "here", "."]
    assert corpus.split_words("l'eau, qu'il", "fr") == ["l'", "eau", ",", "qu'", "il"]


def test_pairs_are_read_and_refused_by_line(tmp_path):
    path = tmp_path / "pairs.txt"
    path.write_text("Go.\tVa !\tCC-BY\n\nHi.\tSalut !\n", encoding="utf-8")
    assert corpus.read_pairs(path) == [corpus.Pair("Go.", "Va !"), corpus.Pair("Hi.", "Salut !")]
    path = tmp_path / "pairs.txt"
    path.write_text("Go.\tVa !\nHi.\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"line 2 of '.*' has no tab"):
        corpus.read_pairs(path)
    with pytest.raises(InputError, match="cannot read"):
        corpus.read_pairs(tmp_path / "nowhere.txt")
    pairs = [
        corpus.Pair("Go.", "Va !"),
        corpus.Pair("Go.", "Allez !"),
        corpus.Pair("Hi.", "Salut !"),
    ]
    assert corpus.leave_out(pairs, ["Go."]) == [corpus.Pair("Hi.", "Salut !")]


@pytest.mark.parametrize("style", [corpus.tokenize_natural, corpus.tokenize_spaced])
def test_pieces_spell_the_word_they_say_they_belong_to(style, tokenizer):
    for text, language in (("L'eau est là !", "fr"), ("The cat's here.", "en")):
        (pieces,) = style(tokenizer, [text], language)  # type: ignore[operator]
        words = corpus.split_words(text, language)
        spelt = [""] * len(words)
        for number, word in zip(pieces.ids, pieces.words, strict=True):
            spelt[word] += tokenizer.id_to_token(int(number)).replace("▁", "")
        assert spelt == words
