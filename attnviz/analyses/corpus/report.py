"""The report on a corpus from its aggregates: means, deviations, intervals, shares, examples."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from attnviz.analyses.corpus.accumulators import Aggregates, StreamTally
from attnviz.analyses.corpus.figures import MEASURED, OFFSETS, ROWS
from attnviz.analyses.corpus.words import CLASSES
from attnviz.analyses.heads import in_order, roles_of
from attnviz.core.corpus_report import CorpusReport, Pair, StreamReport, TopExample
from attnviz.core.measures import HeadRow, Meaning
from attnviz.core.registry import MEASURES
from attnviz.storage.documents import read_provenance

SHOWN = 10
FEWEST = 5
"""Pairs of words that occurred less often are left out."""


def report_of(aggregates: Aggregates, order: str = "role") -> CorpusReport:
    """The report on a corpus."""
    first = aggregates.first
    assert first is not None
    provenance = read_provenance(first["provenance"])
    return CorpusReport(
        caption=first["caption"],
        streams=tuple(_stream_report(tally, order) for tally in aggregates.streams.values()),
        texts=aggregates.texts,
        failed=aggregates.failed,
        interval=f"{LEVEL:.0%} interval of the mean (Hall's transformed t, texts as units)",
        fewest=FEWEST,
        provenance=replace(provenance, notes=()),
    )


def _stream_report(tally: StreamTally, order: str) -> StreamReport:
    tally.sums.settle()
    tally.strongest.settle()
    sums = tally.sums.sums
    count, total = sums["count"], sums["total"]
    means = np.where(count > 0, total / np.maximum(count, 1), np.nan)
    kept = [place for place, name in enumerate(MEASURED) if count[place].any()]
    values, uniform, tops = (means[ROWS[name]][kept] for name in ("value", "uniform", "top"))
    texts = count[ROWS["value"]][kept]
    deviation = np.sqrt(sums["spread"][kept] / np.maximum(texts - 1, 1))
    low, high = intervals(texts, values, sums["spread"][kept], sums["skew"][kept])
    measures = tuple(
        Meaning(name, MEASURES[name].short, *tally.meanings[name], float(np.nanmax(top)))
        for name, top in zip((MEASURED[place] for place in kept), tops, strict=True)
    )
    for place, meaning in enumerate(measures):  # as far as there can be values
        if meaning.name != "offset":
            np.maximum(low[place], 0.0, out=low[place])
        if meaning.unit == "share":
            np.minimum(high[place], meaning.top, out=high[place])
    return StreamReport(
        stream=tally.stream,
        layers=tally.layers,
        heads=tally.heads,
        tokens=int(total[ROWS["rows"]].max()),
        measures=measures,
        texts=texts,
        mean=values,
        deviation=np.where(texts > 1, deviation, np.nan),
        low=low,
        high=high,
        uniform=uniform,
        **_shares(total),
        offsets=OFFSETS,
        classes=CLASSES,
        paired=len(tally.pairs.words),
        pairs=tuple(_pairs(tally)),
        firings=tuple(_firings(tally)),
        rows=tuple(in_order(list(_rows(tally, measures, values, uniform)), order)),
    )


def _shares(total: NDArray[np.float64]) -> dict[str, NDArray[np.float64]]:
    """Attention by relative position and by class: every row of every text counts once."""
    rows, text_rows = (np.maximum(total[ROWS[name]], 1) for name in ("rows", "text rows"))
    before, after = total[ROWS["beyond"]]
    cells = total[ROWS["cells"]]
    near = total[ROWS["near"]]
    return {
        "by_offset": np.where(cells > 0, near / np.maximum(cells, 1), np.nan),
        "offset_shares": np.concatenate([before[None], near, after[None]]) / text_rows,
        "class_shares": total[ROWS["class"]] / rows,
        "class_even": total[ROWS["class uniform"]] / rows,
    }


def _rows(
    tally: StreamTally,
    measures: tuple[Meaning, ...],
    values: NDArray[np.float64],
    uniform: NDArray[np.float64],
) -> Iterator[HeadRow]:
    for layer, head, place in _heads(tally):
        of_head, of_uniform = (
            {
                meaning.name: float(number)
                for meaning, number in zip(measures, found[:, *place], strict=True)
            }
            for found in (values, uniform)
        )
        roles = roles_of(of_head, of_uniform)
        yield HeadRow(tally.stream, layer, head, of_head, of_uniform, roles)


def _heads(tally: StreamTally) -> Iterator[tuple[str, str, tuple[int, int]]]:
    for layer, layer_name in enumerate(tally.layers):
        for head, head_name in enumerate(tally.heads):
            yield layer_name, head_name, (layer, head)


def _pairs(tally: StreamTally) -> Iterator[Pair]:
    table = tally.pairs
    often = np.flatnonzero(table.counts >= FEWEST)
    means = table.means(often)
    for number, (layer, head, _) in enumerate(_heads(tally)):
        of_head = means[:, number]
        for place in np.lexsort((-table.counts[often], -of_head))[:SHOWN]:
            query, key = divmod(int(often[place]), max(len(table.words), 1))
            count = int(table.counts[often[place]])
            yield Pair(layer, head, table.words[query], table.words[key], float(of_head[place]),
                       count)  # fmt: skip


def _firings(tally: StreamTally) -> Iterator[TopExample]:
    strongest = tally.strongest
    for number, (layer, head, _) in enumerate(_heads(tally)):
        for rank, (weight, text, query, key) in enumerate(strongest.links[number].tolist(), 1):
            if weight >= 0:
                found = strongest.texts[int(text)]
                yield TopExample(layer, head, rank, weight, found.queries[int(query)],
                             found.keys[int(key)], found.id, found.texts)  # fmt: skip


LEVEL = 0.95
_NORMAL = 1.959963984540054
"""The quantile of the normal distribution that leaves half of what is not covered above it."""
_FEW = (12.706205, 4.302653, 3.182446, 2.776445)
"""That of Student's t with one to four degrees of freedom."""

Numbers = NDArray[np.float64]


def student(freedom: NDArray[np.int64]) -> Numbers:
    """The quantile of Student's t at 97.5 %, to 3 · 10⁻⁴ (Fisher and Cornish 1960)."""
    z, degrees = _NORMAL, np.maximum(freedom, 1).astype(np.float64)
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    many = np.full(degrees.shape, z)
    for power, term in enumerate(terms, 1):
        many += term / degrees**power
    few = np.array(_FEW)[np.clip(freedom, 1, len(_FEW)) - 1]
    return np.where(degrees <= len(_FEW), few, many)


def intervals(
    count: NDArray[np.int64], mean: Numbers, spread: Numbers, skew: Numbers
) -> tuple[Numbers, Numbers]:
    """The ends of each mean's interval at `LEVEL`; NaN of fewer than two texts.

    Values of texts are skewed (a share that is mostly near 1, a distance that is mostly short), and
    with some tens of them so is Student's t. A cubic in t undoes that (Hall 1992, On the removal of
    skewness by transformation, section 2). By simulation (`tests/benchmarks/corpus_coverage.py`)
    that covers what it promises where percentiles of a bootstrap, and BCa too, fall short.

    Args:
        count: texts, of any shape, which the others and the results have.
        mean: their mean.
        spread: the sum of squared differences from it.
        skew: the sum of their cubes.
    """
    texts = np.maximum(count, 2)
    deviation = np.sqrt(spread / texts)
    known = deviation > 0
    skewness = np.divide(
        skew / texts, deviation**3, out=np.zeros(mean.shape), where=known & (deviation**3 > 0)
    )
    bend = skewness / np.sqrt(texts)
    quantile = student(texts - 1)
    ends = []
    for limit in (quantile, -quantile):
        # t is found for which t + bend t² / 3 + bend² t³ / 27 + bend / 6 is the limit.
        moved = limit - bend / 6
        some = np.abs(bend) > 1e-6
        bent = 3 * (np.cbrt(1 + bend * moved) - 1) / np.where(some, bend, 1.0)
        t = np.where(some, bent, moved)
        ends.append(np.where(count > 1, mean - t * np.sqrt(spread / (texts - 1) / texts), np.nan))
    return ends[0], ends[1]
