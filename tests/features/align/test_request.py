from collections.abc import Iterator, Sequence

import numpy as np
import pytest

from attnviz.core.attention_map import Attention, AttentionMap, Focus, Provenance, Token
from attnviz.core.errors import InputError, UsageError
from attnviz.core.query import Query
from attnviz.features.align.links import Links, Score
from attnviz.features.align.request import AlignedPair, Aligner, Scores, shift_rows
from attnviz.storage.texts import Text

PAIR = Text("0", "a b", "x y z")


def tokens(text: str) -> tuple[Token, ...]:
    found, start = [], 0
    for word in text.split():
        found.append(Token(word, start, start + len(word)))
        start += len(word) + 1
    return tuple(found)


class Fixed:
    """A model whose attention is given: for each source text a layers × heads × … array."""

    def __init__(self, weights: dict[str, np.ndarray], two_way: bool = False) -> None:
        self.weights, self.two_way = weights, two_way
        self.focus: dict[str, Focus] = {}

    def attend(
        self, queries: Sequence[Query], *, batch_size: int | None = None
    ) -> Iterator[Attention | InputError]:
        for query in queries:
            assert query.target is not None
            yield self.answer(query.text, query.target)

    def answer(self, source: str, target: str) -> Attention:
        item = AttentionMap(
            "cross",
            tokens(target),
            tokens(source),
            self.weights[source],
            query_side="target",
            key_side="source",
        )
        provenance = Provenance("hugging face", "fixed", notes=("as given",))
        facts = {"two_way": self.two_way, "focus": self.focus}
        return Attention((item,), provenance, source=source, target=target, **facts)  # type: ignore[arg-type]


FORWARD = np.array([[[[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]]]])
BACKWARD = np.array([[[[0.8, 0.1, 0.1], [0.1, 0.2, 0.7]]]])


def fixed(two_way: bool = False) -> Fixed:
    return Fixed({"a b": FORWARD, "x y z": BACKWARD}, two_way)


def links_of(aligner: Aligner, pair: Text = PAIR) -> Links:
    (result,) = aligner.align([pair])
    if isinstance(result, InputError):
        raise result
    return result.links


@pytest.mark.parametrize(
    ("how", "links"),
    [
        ("forward", {(0, 0), (1, 1), (0, 2)}),
        ("reverse", {(0, 0), (1, 2)}),
        ("intersection", {(0, 0)}),
        ("union", {(0, 0), (1, 1), (0, 2), (1, 2)}),
        # The best of both row and column in [[.72 .02 .06], [.01 .16 .28]].
        ("product", {(0, 0), (1, 2)}),
    ],
)
def test_directions_are_joined_as_asked(how, links):
    source = fixed()
    assert links_of(Aligner(source, source, how)) == links


def test_the_score_is_agreement_or_the_mean_weight():
    both, one = fixed(two_way=True), fixed()
    # 3 and 2 links, of which (0, 0) is both directions'.
    (found,) = Aligner(both, both).align([PAIR])
    assert isinstance(found, AlignedPair)
    assert (found.score, found.reliable) == (pytest.approx(2 / 5), False)
    (found,) = Aligner(one, one).align([PAIR])
    assert isinstance(found, AlignedPair)
    assert (found.score, found.reliable) == (pytest.approx((0.9 + 0.8 + 0.6) / 3), True)


def test_models_are_read_one_way_or_both_and_notes_kept():
    pocket, other = fixed(two_way=True), fixed()
    assert links_of(Aligner(pocket, pocket)) == {(0, 0)}
    assert links_of(Aligner(other, other)) == {(0, 0), (1, 1), (0, 2)}
    source = fixed()
    aligner = Aligner(source, source)
    links_of(aligner), links_of(aligner)
    assert list(aligner.notes) == ["as given"]


def test_rows_move_to_what_they_predict():
    item = fixed().answer("a b", "x y z").main
    moved = shift_rows(item)
    assert [token.text for token in moved.query_tokens] == ["y", "z"]
    np.testing.assert_array_equal(moved.weights, item.weights[:, :, :2])
    source = fixed()
    with pytest.raises(InputError, match="needs a source and a target"):
        links_of(Aligner(source, source), Text("0", "a b", where="line 1 of 'pairs.tsv'"))
    with pytest.raises(UsageError, match="Did you mean 'intersection'"):
        Aligner(source, source, "intersecton")


def test_the_head_in_focus_and_the_best_head():
    wrong = FORWARD[:, :, :, ::-1]
    source = Fixed({"a b": np.concatenate([wrong, FORWARD], axis=1)})
    source.focus = {"cross": Focus("0", "1", "trained to align")}
    assert links_of(Aligner(source, source, "forward")) == {(0, 0), (1, 1), (0, 2)}
    chosen = Aligner(source, source, "forward", head="0")
    assert links_of(chosen) == {(1, 0), (0, 1), (1, 2)}
    aligner = Aligner(source, source, "forward", head="1")
    scores = Scores()
    gold = frozenset({(0, 0), (1, 1)})
    (found,) = aligner.align([PAIR])
    assert isinstance(found, AlignedPair)
    scores.add(found, gold, frozenset({(0, 2)}))
    (layer, head, best), (_, other, worst) = scores.rows()
    assert (layer, head, other) == ("0", "1", "0")
    # Two sure and one possible link, all three found: no error. The mirrored head has none right.
    assert (best.precision, best.recall, best.error) == (1.0, 1.0, 0.0)
    assert (worst.precision, worst.recall, worst.error) == (0.0, 0.0, 1.0)
    assert scores.aligner == best
    assert (Score().precision, Score().recall, Score().error) == (1.0, 1.0, 0.0)
