"""Sentences with dependencies out of CoNLL-U."""

from pathlib import Path

import pytest

from attnviz.core.errors import InputError
from attnviz.features.treebank.conllu import Sentence, read_sentences

SAMPLE = Path(__file__).parents[3] / "sample_inputs" / "relations.conllu"


def row(number: str, form: str, head: str = "_", relation: str = "_", misc: str = "_") -> str:
    return "\t".join([number, form, "_", "_", "_", "_", head, relation, "_", misc])


def read(*lines: str) -> list[Sentence]:
    return list(read_sentences([f"{line}\n".encode() for line in lines], "'a.conllu'"))


def test_words_stand_where_the_text_has_them():
    sentences = list(read_sentences(SAMPLE.read_bytes().splitlines(), "sample"))
    assert len(sentences) == 6
    for sentence in sentences:
        for word in sentence.words:
            assert sentence.text[word.start : word.end] == word.text
    with pytest.raises(InputError, match=r"line 1 of 'a.conllu' is not valid UTF-8"):
        list(read_sentences([b"\xff\n"], "'a.conllu'"))


def test_texts_and_heads_of_a_sentence():
    (found,) = read("# text = Cats sleep", row("1", "Cats", "2", "nsubj"), row("2", "sleep", "0"))
    assert found.heads == (1, -1)
    assert found.relations[0] == "nsubj"
    assert found.where == "line 1 of 'a.conllu'"
    (found,) = read(row("1", "Hi", "0", "root", "SpaceAfter=No"), row("2", "!", "1", "punct"))
    assert found.text == "Hi!"
    (found,) = read("# text = a b", row("1", "a", "0"), row("1.1", "b"), row("2", "b", "1"))
    assert [word.text for word in found.words] == ["a", "b"]
    (found,) = read("# text = a  b", row("1", "a", "0", misc="Gloss=x  y"), row("2", "b", "1"))
    assert found.text == "a  b"
    assert found.relations == ("_", "_")
    assert [(word.start, word.end) for word in found.words] == [(0, 1), (3, 4)]
    found = read("", row("1", "a", "0"), "", "", row("1", "b", "0"))
    assert [sentence.text for sentence in found] == ["a", "b"]


def test_parts_of_a_contraction_have_their_places():
    (found,) = read(
        "# text = I don't",
        row("1", "I", "2"),
        row("2-3", "don't"),
        row("2", "do", "0"),
        row("3", "n't", "2"),
    )
    assert [(word.start, word.end) for word in found.words] == [(0, 1), (2, 4), (4, 7)]
    (found,) = read(
        "# text = du pain",
        row("1-2", "du"),
        row("1", "de", "3"),
        row("2", "le", "3"),
        row("3", "pain", "0"),
    )
    assert [word.end - word.start for word in found.words] == [0, 0, 4]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("1\ta", "line 1 of 'a.conllu' is no CoNLL-U: 2 columns"),
        (row("1", "a", "x"), "a head that is no number"),
        (row("1", "a", "7"), "a head outside it"),
        ("# text = a", "has no words"),
        (row("one", "a", "0"), "line 1 of 'a.conllu' is no CoNLL-U: .* 'one' is not a valid ID"),
        ("# a comment\n" + row("1", "a", "0") + "\n1\ta", "line 3 of .*: 2 columns"),
    ],
)
def test_what_is_no_treebank_is_said_with_its_line(line, message):
    with pytest.raises(InputError, match=message) as caught:
        read(*line.split("\n"))
    assert "\n" not in str(caught.value)
