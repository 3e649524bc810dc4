"""Which texts are read together: decided by their lengths alone, so that it is always the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

ROOM = 2**29
"""Bytes of maps that are held at once."""

Lengths = tuple[int, ...]
"""How many tokens each of a record's texts has: one text, or a source and its target."""


def stretches(sizes: Sequence[int], room: int) -> Iterator[range]:
    """Records in order, as many at a time as fit into the room together, but one at least.

    Args:
        sizes: bytes of each record's maps.
        room: bytes that are held at once at most.
    """
    first, held = 0, 0
    for number, size in enumerate(sizes):
        if held and held + size > room:
            yield range(first, number)
            first, held = number, 0
        held += size
    if first < len(sizes):
        yield range(first, len(sizes))


def batches(
    numbers: Sequence[int],
    lengths: Callable[[int], Lengths],
    *,
    tokens: int,
    most: int | None,
    even: bool,
) -> Iterator[list[int]]:
    """Records of similar length together, shortest first.

    Args:
        numbers: of the records.
        lengths: a record's.
        tokens: in a batch at most, padding counted.
        most: records in a batch at most; None: only tokens count.
        even: only records of equal lengths come together.
    """
    batch = list[int]()
    for number in sorted(numbers, key=lambda number: (lengths(number), number)):
        own = lengths(number)
        together = [*batch, number]
        longest = sum(max(column) for column in zip(*map(lengths, together), strict=True))
        full = len(together) * longest > tokens or len(batch) == most
        if batch and (full or (even and own != lengths(batch[0]))):
            yield batch
            batch = []
        batch.append(number)
    if batch:
        yield batch
