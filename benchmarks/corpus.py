"""Aggregates of a million simulated records, no larger than those of a thousand.

Run it as a script; it prints times and memory. How cost grows is written
down in `attnviz/analyses/corpus/__init__.py`; the figures that it prints bear it out:

- adding up costs the same for each record, however many came before;
- what is kept, and a merge of it, costs the same after a thousand records as after a million;
- a text costs its model and, beside that, a few milliseconds to measure.

With `--model ID_OR_FOLDER` the last is timed with that model, else with random maps.
"""

from __future__ import annotations

import sys
import tracemalloc
from collections.abc import Iterator
from time import perf_counter

import numpy as np

from attnviz.analyses.heads import measure_heads
from attnviz.core.attention_map import Attention, AttentionMap, Provenance, Token
from attnviz.features.corpus.accumulators import Aggregates
from attnviz.features.corpus.figures import COUNT, MEASURED
from attnviz.features.corpus.words import WordCounts
from attnviz.features.measures.sums import HeadSums

RECORDS, SHARD, SHAPE = 1_000_000, 1_000, (1, 2)
WORDS = (
    *("the", "of", "and", "to", "in", "is", "you", "that", "it", "he"),
    *("was", "for", "on", "are", "as", "with", "his", "they", "at", "be"),
)
LAYERS, HEADS, TEXTS = 6, 12, 300


def draw_maps(start: int, end: int) -> Iterator[tuple[int, np.ndarray]]:
    """The figures of records with these numbers, the same whoever draws them."""
    for block in range(start // SHARD, -(-end // SHARD)):
        generator = np.random.default_rng([0, block])
        figures = generator.gamma(2.0, size=(SHARD, COUNT, *SHAPE))
        figures[generator.random((SHARD, COUNT)) < 0.1] = np.nan
        for place in range(SHARD):
            number = block * SHARD + place
            if start <= number < end:
                yield number, figures[place]


def sum_shard(start: int, end: int) -> HeadSums:
    """The sums of some records."""
    sums = HeadSums((COUNT, *SHAPE), len(MEASURED))
    for _, figures in draw_maps(start, end):
        sums.add(figures)
    sums.settle()
    return sums


def chunks() -> None:
    """A million records in chunks, each added up alone and merged in order."""
    started = perf_counter()
    whole = HeadSums((COUNT, *SHAPE), len(MEASURED))
    for start in range(0, RECORDS, SHARD):
        whole.merge(sum_shard(start, start + SHARD).sums)
    took = perf_counter() - started
    print(f"{RECORDS:,} records in chunks of {SHARD:,}, added up and merged in {took:.0f} s "
          f"({took / RECORDS * 1e6:.0f} µs a record)")  # fmt: skip


def memory() -> None:
    """What is held at most while records are added up."""
    for records in (1_000, 10_000, 100_000):
        tracemalloc.start()
        sums = HeadSums((COUNT, *SHAPE), len(MEASURED))
        figures = np.random.default_rng(0).random((COUNT, *SHAPE))
        for _ in range(records):
            sums.add(figures)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        print(f"  {records:9,} records  {peak / 2**20:6.1f} MiB at most")


def random_texts() -> Iterator[Attention]:
    """Maps of a model's size over random words, ten tokens long."""
    generator = np.random.default_rng(2)
    for _ in range(TEXTS):
        text = " ".join(generator.choice(WORDS, size=10))
        words = text.split()
        places = np.cumsum([0, *(len(word) + 1 for word in words)]).tolist()
        tokens = tuple(
            Token(word, start, start + len(word))
            for word, start in zip(words, places[:-1], strict=True)
        )
        weights = generator.dirichlet(np.ones(10), size=(LAYERS, HEADS, 10)).astype(np.float32)
        item = AttentionMap("self", tokens, tokens, weights)
        yield Attention((item,), Provenance("file", "random"), text=text)


def texts(attentions: list[Attention]) -> None:
    """The cost of a text: its measures alone, and everything that is kept of it."""
    counts = WordCounts()
    for attention in attentions:
        counts.add(attention.text or "")
    vocabulary = counts.vocabulary()
    measured, kept = [], []
    for _ in range(3):
        started = perf_counter()
        for attention in attentions:
            measure_heads(attention.main, repeated=False)
        measured.append(perf_counter() - started)
        found = Aggregates(vocabulary)
        started = perf_counter()
        for number, attention in enumerate(attentions):
            found.add(attention, number)
        arrays = found.to_arrays()
        kept.append(perf_counter() - started)
    each = 1e3 / len(attentions)
    layers, heads = attentions[0].weights.shape[:2]
    print(f"  {layers} layers × {heads} heads, {len(attentions)} texts")
    print(f"  measures        {min(measured) * each:.2f} ms a text")
    print(f"  everything      {min(kept) * each:.2f} ms a text, "
          f"{min(kept) / min(measured):.1f} × the measures")  # fmt: skip
    started = perf_counter()
    whole = Aggregates(vocabulary)
    whole.merge(Aggregates.from_arrays(arrays, vocabulary))
    size = sum(array.nbytes for array in arrays.values())
    print(f"  a merge         {(perf_counter() - started) * 1e3:.0f} ms, of {size / 2**20:.1f} MiB")


def main() -> None:
    """Memory, a million records, and the cost of a text."""
    print("memory by number of records, without the table of pairs, which never grows")
    memory()
    chunks()
    print("the cost of a text, the model aside")
    if "--model" in sys.argv:
        from attnviz import attend

        name = sys.argv[sys.argv.index("--model") + 1]
        generator = np.random.default_rng(2)
        found = [
            attend(" ".join(generator.choice(WORDS, size=8)), model=name) for _ in range(TEXTS)
        ]
        texts(list(found))
    else:
        texts(list(random_texts()))


if __name__ == "__main__":
    main()
