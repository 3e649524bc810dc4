"""The report on a corpus: means, deviations, intervals, shares and examples from its sums."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.core.effects import HeadAt
from attnviz.core.measures import SIGNED, Meaning
from attnviz.features.corpus import samples, words
from attnviz.features.corpus.accumulators import Aggregates, StreamAccumulator
from attnviz.features.corpus.figures import MEASURED, OFFSETS, ORDERING, REACH, ROWS
from attnviz.features.corpus.results import CorpusReport, Pair, StreamReport, TopExample
from attnviz.features.measures.intervals import LEVEL, intervals
from attnviz.features.measures.study import BY_LARGEST, SHORT, in_order, largest, rows_of

SHOWN = 10
FEWEST = 5  # occurrences of a pair of words below which it is left out


def report_of(aggregates: Aggregates, order: str = "role") -> CorpusReport:
    first = aggregates.first
    assert first is not None
    from attnviz.storage.schema import fit_provenance

    provenance = fit_provenance(first["provenance"], "the document")
    things = "pictures" if aggregates.vocabulary.pictures else "texts"
    streams = tuple(_stream_report(tally, order) for tally in aggregates.streams.values())
    provenance = replace(provenance, notes=())
    return CorpusReport(
        caption=first["caption"],
        streams=streams,
        texts=aggregates.texts,
        failed=aggregates.failures,
        interval=f"{LEVEL:.0%} interval of the mean (Hall's transformed t, {things} as units)",
        fewest=FEWEST,
        provenance=provenance,
        things=things,
    )


def orders_of(aggregates: Aggregates, *, half: bool) -> tuple[dict[str, tuple[HeadAt, ...]], int]:
    """All heads ordered by each measure of `ORDERING`, lowest first, and the number of texts used.

    `half` uses the texts that `gives_order` chooses, else all. Heads without a value come last.
    """
    texts = 0
    values: dict[str, list[tuple[float, HeadAt]]] = {name: [] for name in ORDERING}
    for tally in aggregates.streams.values():
        means, count = np.nan_to_num(tally.sums.means(), nan=np.inf), tally.sums.sums["count"]
        for place, (name, own) in enumerate(values.items(), ROWS["ordering"].start):
            row = place if half else MEASURED.index(name)
            texts = max(texts, int(count[row].max()))
            for layer, head, at in _heads(tally):
                number = float(means[(row, *at)])
                own.append((number, HeadAt(tally.stream, layer, int(head))))
    orders = {
        name: tuple(head for _, head in sorted(own, key=lambda one: one[0]))
        for name, own in values.items()
    }
    return orders, texts


def _stream_report(tally: StreamAccumulator, order: str) -> StreamReport:
    tally.strongest.settle()
    means, sums = tally.sums.means(), tally.sums.sums
    count, total = sums["count"], sums["total"]
    numbers = [place for place, name in enumerate(MEASURED) if count[place].any()]
    values, uniform, tops = (means[ROWS[name]][numbers] for name in ("value", "uniform", "top"))
    texts = count[ROWS["value"]][numbers]
    deviation = np.sqrt(sums["spread"][numbers] / np.maximum(texts - 1, 1))
    low, high = intervals(texts, values, sums["spread"][numbers], sums["skew"][numbers])
    measures = tuple(
        Meaning(
            *(name, SHORT[name], *tally.meanings[name]),
            largest(own.flat) if name in BY_LARGEST else float(np.nanmax(top)),
        )
        for name, top, own in zip((MEASURED[place] for place in numbers), tops, values, strict=True)
    )
    # An interval can reach beyond the values that a measure can take: cut it there.
    for place, meaning in enumerate(measures):
        if meaning.name not in SIGNED:
            np.maximum(low[place], 0.0, out=low[place])
        if meaning.unit == "share":
            np.minimum(high[place], meaning.top, out=high[place])
    names = [MEASURED[place] for place in numbers]
    own, even = (dict(zip(names, side, strict=True)) for side in (values, uniform))
    rows = rows_of((tally.stream, tally.layers, tally.heads), own, even, (), tally.rests_on or {})
    report = StreamReport(
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
        **_shares(total, tally.vocabulary),
        offsets=OFFSETS[REACH:] if tally.vocabulary.pictures else OFFSETS,
        classes=tally.vocabulary.classes,
        paired=len(tally.pairs.words),
        pairs=tuple(_pairs(tally)),
        firings=tuple(_firings(tally)),
        rows=tuple(in_order([*rows], order)),
    )
    if tally.samples is None:
        return report
    pictures = tally.vocabulary.pictures
    return replace(report, atlas=samples.atlas_of(tally.samples, report, pictures=pictures))


def _shares(total: NDArray[np.float64], vocabulary: words.Vocabulary) -> dict[str, Any]:
    """The mean attention by relative position and by class over all rows of all texts."""
    rows, text_rows = (np.maximum(total[ROWS[name]], 1) for name in ("rows", "text rows"))
    before, after = total[ROWS["beyond"]]
    cells = total[ROWS["cells"]]
    near = total[ROWS["near"]]
    if vocabulary.pictures:
        near, cells = near[REACH:], cells[REACH:]
    classes = len(vocabulary.classes)
    return {
        "by_offset": np.where(cells > 0, near / np.maximum(cells, 1), np.nan),
        "offset_shares": np.concatenate([before[None], near, after[None]]) / text_rows,
        "class_shares": total[ROWS["class"]][:classes] / rows,
        "class_even": total[ROWS["class uniform"]][:classes] / rows,
    }


def _heads(tally: StreamAccumulator) -> Iterator[tuple[str, str, tuple[int, int]]]:
    for layer, layer_name in enumerate(tally.layers):
        for head, head_name in enumerate(tally.heads):
            yield layer_name, head_name, (layer, head)


def _pairs(tally: StreamAccumulator) -> Iterator[Pair]:
    table = tally.pairs
    often = np.flatnonzero(table.counts >= FEWEST)
    means = table.means(often)
    for number, (layer, head, _) in enumerate(_heads(tally)):
        of_head = means[:, number]
        for place in np.lexsort((-table.counts[often], -of_head))[:SHOWN]:
            query, key = divmod(int(often[place]), max(len(table.words), 1))
            count = int(table.counts[often[place]])
            mean = float(of_head[place])
            yield Pair(layer, head, table.words[query], table.words[key], mean, count)


def _firings(tally: StreamAccumulator) -> Iterator[TopExample]:
    strongest = tally.strongest
    for number, (layer, head, _) in enumerate(_heads(tally)):
        for rank, (weight, text, query, key) in enumerate(strongest.links[number].tolist(), 1):
            if weight >= 0:
                source = strongest.texts[int(text)]
                start, end = source.queries[int(query)], source.keys[int(key)]
                yield TopExample(layer, head, rank, weight, start, end, source.id, source.texts)
