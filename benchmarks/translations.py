"""Sentences whose translation the pocket model writes: together, and one by one.

Both in turns, in one process; prints seconds and their ratio, and how many translations differ.

    python benchmarks/translations.py [SENTENCES]
"""

from __future__ import annotations

import sys
from itertools import islice, product
from statistics import median
from time import perf_counter

from attnviz.core.query import Query
from attnviz.models.pocket.translator import Pocket, load_pocket

TURNS = 3
WHO = ("The red car", "My brother", "The old man", "She", "A small dog", "Our neighbour")
DOES = ("likes the house", "saw the cat in the garden", "is tired", "wants to go home", "reads")
MORE = (".", ", and it is late.", " because it rains.", " near the river today.")


def attend(pocket: Pocket, queries: list[Query], most: int | None) -> tuple[float, list[str]]:
    """Seconds for the maps of all, and the translations."""
    start = perf_counter()
    found = [one.target for one in pocket.attend(queries, batch_size=most)]  # type: ignore[union-attr]
    return perf_counter() - start, found


def main(count: int) -> None:
    """Print the figures."""
    words = islice(product(WHO, DOES, MORE), count)
    pocket = load_pocket()
    queries = [Query(f"{who} {does}{more}", None, "cross") for who, does, more in words]
    rounds = [(attend(pocket, queries, None), attend(pocket, queries, 1)) for _ in range(TURNS)]
    differ = sum(one != other for one, other in zip(rounds[0][0][1], rounds[0][1][1], strict=True))
    together, alone = (median(pair[place][0] for pair in rounds) for place in (0, 1))
    print(
        f"{len(queries)} sentences: together {together:.2f} s, one by one {alone:.2f} s, "
        f"{alone / together:.1f} ×; {differ} translations differ"
    )


if __name__ == "__main__":
    main(int(sys.argv[1]) if sys.argv[1:] else 120)
