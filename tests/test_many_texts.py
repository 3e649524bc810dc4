"""Resuming in the middle gives the rest of the records, however many an engine asks for first."""

import weakref
from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from attnviz.runs.engines import InProcess
from attnviz.runs.many_texts import attend_all, with_shards
from attnviz.storage.texts import Text

SIZES = (4, 4, 2)
TEXTS = [Text(str(number), f"text {number}") for number in range(sum(SIZES))]


class Named:
    """Work that makes of a record its id."""

    def __call__(self, chunk: list[Text]) -> Iterator[str]:
        return (text.id for text in chunk)


class Eager:
    """An engine that wants every shard before it works on the first."""

    def map(self, work: Any, shards: Iterable[Any], named: Any) -> Iterator[Any]:
        yield from map(work, list(shards))


@pytest.mark.parametrize("engine", [InProcess(), Eager()])
@pytest.mark.parametrize("done", range(sum(SIZES) + 1))
def test_what_is_done_is_left_out_and_nothing_else(engine, done):
    starts = [sum(SIZES[:number]) for number in range(len(SIZES))]
    parts = (TEXTS[start : start + size] for start, size in zip(starts, SIZES, strict=True))
    found: list[Any] = list(attend_all(Named(), parts, engine, done))  # type: ignore[arg-type]
    assert found == [(text, text.id) for text in TEXTS[done:]]


def test_a_shard_is_let_go_once_its_result_is_there():
    class Shard(list[int]):
        """A list that a weak reference can point to."""

    made = list[weakref.ref[Shard]]()

    def shards() -> Iterator[Shard]:
        for number in range(300):
            shard = Shard([number])
            made.append(weakref.ref(shard))
            yield shard

    alive = list[int]()
    for shard, result in with_shards(sum, shards(), InProcess(), lambda *_: ""):
        assert result == shard[0]
        alive.append(sum(one() is not None for one in made))
    assert len(alive) == 300
    assert max(alive) <= 3


def test_a_shard_without_a_result_is_an_error():
    class Forgetful(InProcess):
        """Loses the last result."""

        def map(self, *given: Any) -> Iterator[Any]:
            return iter([*super().map(*given)][:-1])

    with pytest.raises(ValueError, match="1 shards have no result"):
        [*with_shards(sum, [[1], [2]], Forgetful(), lambda *_: "")]
