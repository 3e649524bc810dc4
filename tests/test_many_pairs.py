"""Pairs aligned chunk by chunk have the links that each has alone."""

import pickle

import pytest

from attnviz.core.errors import InputError
from attnviz.core.notices import notices_to
from attnviz.core.options import Origin
from attnviz.features.align.links import Links
from attnviz.features.align.request import AlignChunk, AlignedPair, Aligner
from attnviz.runs.many_texts import source_for
from attnviz.storage.texts import BadText, Text

PAIRS = [
    ("The red car is fast .", "La voiture rouge est rapide ."),
    ("I love cats .", "J' adore les chats ."),
    ("The dog that I saw yesterday sleeps .", "Le chien que j' ai vu hier dort ."),
    ("She reads a book .", "Elle lit un livre ."),
    ("We went home late .", "Nous sommes rentrés tard ."),
]


def texts() -> list[Text]:
    return [Text(str(n), a, b, where=f"line {n + 1}") for n, (a, b) in enumerate(PAIRS)]


def links_of(aligner: Aligner, pair: Text) -> Links:
    (result,) = aligner.align([pair])
    assert isinstance(result, AlignedPair)
    return result.links


@pytest.mark.slow
def test_links_of_pairs_are_those_of_each_alone():
    source = source_for(Origin(), "cross")
    for how in ("intersection", "forward", "reverse", "product"):
        work = pickle.loads(pickle.dumps(AlignChunk(Origin(), how=how)))
        alone = Aligner(source, source, how)
        for pair, found in zip(texts(), work(texts()), strict=True):
            assert isinstance(found, AlignedPair)
            assert found.links == links_of(alone, pair)
            assert found.links


@pytest.mark.slow
def test_each_failure_harms_no_other():
    good = texts()
    bad = BadText("line 9", InputError("line 9 is empty"))
    one_sided = Text("7", "no target", where="line 7")
    blank = Text("8", "a b", " ", where="line 8")
    found = AlignChunk(Origin())([good[0], bad, one_sided, good[1], blank, good[2]])
    expected = [links_of(Aligner(*[source_for(Origin(), "cross")] * 2), pair) for pair in good[:3]]
    assert [item.links for item in found if isinstance(item, AlignedPair)] == expected
    assert found[1] is bad.error
    assert str(found[2]).startswith("line 7: an alignment needs a source and a target")
    assert str(found[4]).startswith("line 8: ")


def test_what_the_model_says_of_pairs_is_announced():
    said: list[str] = []
    with notices_to(said.append):
        AlignChunk(Origin())([Text("0", "漢字", "Zażółć gęślą jaźń", where="line 1")])
    assert any("outside what the pocket model was trained for" in text for text in said)
