"""Which head finds which relation."""

import numpy as np
import pytest

from attnviz.core.attention_map import Attention, AttentionMap, Provenance, Token
from attnviz.features.treebank.conllu import Sentence
from attnviz.features.treebank.study import TreebankStudy, strongest_words

TEXT = "the unhappy cat sleeps"
WORDS = (Token("the", 0, 3), Token("unhappy", 4, 11), Token("cat", 12, 15), Token("sleeps", 16, 22))
PIECES = (
    Token("[CLS]", special=True),
    WORDS[0],
    Token("un", 4, 6),
    Token("happy", 6, 11),
    *WORDS[2:],
)
SENTENCE = Sentence(TEXT, WORDS, (2, 2, 3, -1), ("det", "amod", "nsubj:pass", "root"), "line 1")


def attention(*heads: np.ndarray) -> Attention:
    item = AttentionMap("self", PIECES, PIECES, np.stack(heads)[None])
    return Attention((item,), Provenance("file", "made up"), TEXT)


def looking(*links: tuple[int, int]) -> np.ndarray:
    """Each piece half at the special token, and a little more than to others at its own target."""
    weights = np.full((6, 6), 0.02)
    weights[:, 0] = 0.5
    for query, key in links:
        weights[query, key] = 0.3
    return weights / weights.sum(axis=1, keepdims=True)


def score(study: TreebankStudy, relation: str, toward: str, head: str) -> float:
    return next(
        finding.share
        for finding in study.report().findings
        if (finding.relation, finding.toward, finding.head) == (relation, toward, head)
    )


def test_the_strongest_word_of_each():
    weights = looking((1, 4), (2, 4), (3, 4), (4, 5), (5, 5))
    item = attention(weights).main
    found, known = strongest_words(item, TEXT, WORDS)
    assert known == [0, 1, 2, 3]
    # The last word looks at itself; of the others, "unhappy" has two pieces and so twice as much.
    assert found[0, 0].tolist() == [2, 2, 3, 1]
    weights = looking()
    weights[4, 2:4] = 0.1
    weights[4, 1] = 0.15
    found, _ = strongest_words(attention(weights).main, TEXT, WORDS)
    assert found[0, 0, 2] == 1
    item = AttentionMap("causal", WORDS, WORDS, np.eye(4)[None, None])
    found, _ = strongest_words(item, TEXT, WORDS)
    assert (found == -1).all()
    item = attention(looking()).main
    found, known = strongest_words(item, TEXT, ())
    assert (found.shape, found.dtype, known) == ((1, 1, 0), np.int64, [])


def test_relations_are_found_both_ways():
    study = TreebankStudy()
    right = looking((1, 4), (2, 4), (3, 4), (4, 5))
    wrong = looking((1, 5), (2, 5), (3, 5), (4, 1))
    study.add(SENTENCE, attention(right, wrong))
    for relation in ("det", "amod", "nsubj"):
        assert score(study, relation, "head", "0") == 1
        assert score(study, relation, "head", "1") == 0
    study = TreebankStudy()
    study.add(SENTENCE, attention(looking((4, 1))))
    assert score(study, "det", "dependent", "0") == 1
    assert score(study, "amod", "dependent", "0") == 0


def test_the_guess_to_beat_is_the_most_frequent_distance():
    study = TreebankStudy()
    study.add(SENTENCE, attention(looking()))
    swapped = Sentence(TEXT, WORDS, (1, 0, 3, -1), SENTENCE.relations, "line 2")
    study.add(swapped, attention(looking()))
    study.add(swapped, attention(looking()))
    relations = {item.name: item for item in study.report().relations}
    assert (relations["det"].offset, relations["det"].by_offset) == (1, pytest.approx(2 / 3))
    assert relations["nsubj"].count == 3
    assert "root" not in relations
    study = TreebankStudy()
    for heads in ((1, -1, 1, 2), (-1, 2, 1, 2)):
        sentence = Sentence(TEXT, WORDS, heads, ("det", "det", "det", "det"), "line 1")
        study.add(sentence, attention(looking()))
    (relation,) = study.report().relations
    assert (relation.count, relation.offset) == (6, -1)
    even = TreebankStudy()
    even.add(Sentence(TEXT, WORDS, (1, -1, 1, -1), ("det",) * 4, "line 1"), attention(looking()))
    assert even.report().relations[0].offset == 1


@pytest.mark.parametrize(
    ("heads", "names", "times", "relations", "lost"),
    [
        ((2, 2, -1), ("aux", "advmod", "root"), 1, [("aux", 1)], "1 relation"),
        ((-1, 2, 0), ("root", "advmod", "obj"), 2, [("obj", 2)], "2 relations"),
    ],
)
def test_words_that_share_a_piece_are_left_out_and_counted(heads, names, times, relations, lost):
    text = "don't sleep"
    words = (Token("do", 0, 2), Token("n't", 2, 5), Token("sleep", 6, 11))
    pieces = (Token("don't", 0, 5), Token("sleep", 6, 11))
    item = AttentionMap("self", pieces, pieces, np.full((1, 1, 2, 2), 0.5))
    study = TreebankStudy()
    for _ in range(times):
        sentence = Sentence(text, words, heads, names, "line 1")
        study.add(sentence, Attention((item,), Provenance("file", "made up"), text))
    report = study.report()
    assert [(relation.name, relation.count) for relation in report.relations] == relations
    assert report.notes == (f"{lost} left out: a word shares its piece with another",)


def test_the_report_counts_sentences_and_says_what_was_run():
    study = TreebankStudy()
    right = looking((1, 4), (2, 4), (3, 4), (4, 5))
    for _ in range(3):
        study.add(SENTENCE, attention(right))
    report = study.report()
    assert report.sentences == 3
    assert report.caption == "made up · self"
    assert report.provenance.title == "made up"
    assert report.notes == ()
    assert score(study, "det", "head", "0") == 1
    wrong = looking((1, 5), (2, 5), (3, 5), (4, 1))
    both = TreebankStudy()
    both.add(SENTENCE, attention(wrong, right))
    told = [
        (found.layer, found.head, found.share)
        for found in both.report().findings
        if (found.relation, found.toward) == ("det", "head")
    ]
    assert told == [("0", "1", 1.0), ("0", "0", 0.0)]
