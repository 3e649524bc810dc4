"""Which texts are read together: decided by their lengths alone, so that it is reproducible."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

MEMORY_BUDGET = 2**29
"""Bytes of maps that are held at once."""

Lengths = tuple[int, ...]
"""How many tokens each of a record's texts has: one text, or a source and its target."""


def chunks_by_memory(sizes: Sequence[int], budget: int) -> Iterator[range]:
    """Records in order, as many at a time as fit into the budget, but one at least.

    Args:
        sizes: bytes of each record's maps.
        budget: bytes that are held at once at most.
    """
    first, held = 0, 0
    for number, size in enumerate(sizes):
        if number > first and held + size > budget:
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
    batch, widest = list[int](), Lengths()
    for own, number in sorted((lengths(number), number) for number in numbers):
        wider = tuple(map(max, widest, own)) if batch else own
        full = (len(batch) + 1) * sum(wider) > tokens or len(batch) == most
        if batch and (full or (even and own != widest)):
            yield batch
            batch, wider = [], own
        batch.append(number)
        widest = wider
    if batch:
        yield batch
