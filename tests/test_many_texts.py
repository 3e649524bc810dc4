"""Resuming in the middle gives the rest of the records, however many an engine asks for first."""

from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from attnviz.runs.engines import InProcess
from attnviz.runs.many_texts import attend_all
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
