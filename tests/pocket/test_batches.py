"""Many texts through the shipped model at once against the same texts one by one."""

from collections.abc import Callable

import numpy as np
import pytest

from attnviz.core.attention_map import Attention
from attnviz.core.errors import InputError
from attnviz.core.query import Query
from attnviz.models.pocket import translator
from attnviz.models.pocket.translator import Pocket, load_pocket

ENGLISH = [
    "The professor who supervised the student published the paper.",
    "Hello!",
    "The red car is fast, and the blue car is slow.",
    "I have seen your father in the garden this morning.",
    "Où est le chat ?",
]
FRENCH = [
    "Le professeur qui a dirigé l'étudiant a publié l'article.",
    "Bonjour !",
    "La voiture rouge est rapide et la voiture bleue est lente.",
    "J'ai vu ton père dans le jardin ce matin.",
    "Where is the cat?",
]
PAIRS = [Query(*pair, "cross") for pair in zip(ENGLISH, FRENCH, strict=True)]
ALONE = [Query(pair.text) for pair in PAIRS]
SOURCES = [Query(pair.text, None, "cross") for pair in PAIRS]


@pytest.fixture(scope="module")
def load() -> Callable[..., Pocket]:
    made: dict[tuple[tuple[str, object], ...], Pocket] = {}

    def find(**options: object) -> Pocket:
        named = tuple(options.items())
        if named not in made:
            made[named] = load_pocket(**options)  # type: ignore[arg-type]
        return made[named]

    return find


@pytest.fixture
def batches(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many texts each batch has."""
    sizes: list[int] = []
    plan = translator.batches

    def counted(*given: object, **named: object) -> object:
        found = list(plan(*given, **named))  # type: ignore[arg-type]
        sizes.extend(map(len, found))
        return found

    monkeypatch.setattr(translator, "batches", counted)
    return sizes


def check(found: list[Attention | InputError], expected: list[Attention | InputError]) -> None:
    for one, other in zip(found, expected, strict=True):
        assert isinstance(one, Attention)
        assert isinstance(other, Attention)
        assert one.provenance == other.provenance
        assert (one.text, one.source, one.target) == (other.text, other.source, other.target)
        for own, its in zip(one.maps, other.maps, strict=True):
            assert (own.stream, own.query_tokens, own.key_tokens) == (
                (its.stream, its.query_tokens, its.key_tokens)
            )
            np.testing.assert_allclose(own.weights, its.weights, atol=1e-5)


def one_by_one(pocket: Pocket, queries: list[Query]) -> list[Attention | InputError]:
    return list(pocket.attend(queries, batch_size=1))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("queries", "options"),
    [
        (ALONE, {}),
        (ALONE, {"causal": True}),
        (ALONE, {"causal": True, "to": "fr"}),
        (PAIRS, {}),
        (PAIRS, {"to": "fr"}),
        (SOURCES, {}),
        (SOURCES, {"to": "en"}),
    ],
)
def test_texts_together_read_as_one_by_one(load, batches, queries, options):
    pocket = load(**options)
    check(list(pocket.attend(queries)), one_by_one(pocket, queries))
    assert batches == [5]


@pytest.mark.slow
def test_targets_to_be_written_are_read_apart(load, batches):
    texts = [PAIRS[0], SOURCES[1], PAIRS[2]]
    found = list(load().attend(texts))
    check(found, one_by_one(load(), texts))
    assert found[1].provenance.settings["translated"] is True
    assert batches == [2, 1]


def test_batch_sizes_and_failures_are_heeded(load, batches):
    found = list(load().attend(ALONE, batch_size=2))
    check(found, one_by_one(load(), ALONE))
    assert batches == [2, 2, 1]
    texts = [ALONE[0], Query("   "), ALONE[1], Query("word " * 5000), ALONE[2]]
    found = list(load().attend(texts))
    assert [isinstance(item, InputError) for item in found] == [False, True, False, True, False]
    check(found[::2], one_by_one(load(), texts[::2]))


@pytest.mark.slow
def test_queries_are_kept_and_memory_is_heeded(load, monkeypatch, batches):
    pocket = load(keep_qk=True)
    found = list(pocket.attend(ALONE))
    for one, other in zip(found, one_by_one(pocket, ALONE), strict=True):
        own, its = one.projections["encoder"], other.projections["encoder"]
        np.testing.assert_allclose(own.query, its.query, atol=1e-5)
    monkeypatch.setattr(translator, "MEMORY_BUDGET", 40_000)
    check(list(load().attend(PAIRS)), one_by_one(load(), PAIRS))
    assert len(batches) > 1
