"""Keep the order of shards that are worked on at the same time, and never run far ahead."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from attnviz.engines import Outcome, Shard

Ticket = TypeVar("Ticket")


def in_order(
    hand_in: Callable[[int, Shard], Ticket],
    collect: Callable[[Ticket], Outcome],
    shards: Iterable[Shard],
    ahead: int,
) -> Iterator[Outcome]:
    """The outcomes in the shards' order.

    Args:
        hand_in: begins the work on a shard and its number, and answers at once.
        collect: waits for the outcome that was begun.
        shards: read as they are needed.
        ahead: how many shards may have begun whose outcome nobody has asked for.

    Raises:
        Exception: what the iterable raised, once the outcomes of all shards before are handed over.
    """
    numbered = enumerate(shards)
    waiting: deque[Ticket] = deque()
    failure: Exception | None = None
    more = True
    while more or waiting:
        while more and len(waiting) < ahead:
            try:
                waiting.append(hand_in(*next(numbered)))
            except StopIteration:
                more = False
            except Exception as error:
                failure, more = error, False
        if waiting:
            yield collect(waiting.popleft())
    if failure is not None:
        raise failure
