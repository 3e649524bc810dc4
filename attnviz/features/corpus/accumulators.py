"""Running sums for each head over the texts of a corpus, and the best examples of each head."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.analyses import masks, view
from attnviz.analyses.heads import measure_heads, resting_places
from attnviz.core.attention_map import DECISION, PROBABILITIES, Attention, AttentionMap
from attnviz.core.measures import HeadMeasure
from attnviz.features.corpus.figures import COUNT, MEASURED, PairTable, figures_of, head_statistics
from attnviz.features.corpus.results import gives_order
from attnviz.features.corpus.samples import (
    Samples,
    Strongest,
    as_document,
    from_document,
    source_text,
)
from attnviz.features.corpus.words import Vocabulary, classes_of, in_words, read_axis
from attnviz.features.measures import study, sums
from attnviz.storage.documents import dump_json, parse_json

SCHEMA = 9  # of a saved state: a run does not continue one of another schema
INDEX = "corpus"
StreamName = tuple[str, tuple[str, ...], tuple[str, ...]]  # of a stream, its layers and its heads
Arrays = Mapping[str, NDArray[Any]]
OF_LINES = ("previous-token", "next-token", "same-token", "first-token", "punctuation")
"""Measures of tokens in a line, which patches do not stand in."""


class Aggregates:
    """Statistics of a corpus or a part of it; with `samples`, also example texts."""

    def __init__(self, vocabulary: Vocabulary, *, samples: bool = False) -> None:
        self.vocabulary, self.samples = vocabulary, samples
        self.texts = self.failures = 0
        self.first: dict[str, Any] | None = None
        self.streams: dict[StreamName, StreamAccumulator] = {}

    def add(self, attention: Attention, number: int) -> None:
        for item in attention.maps:
            if not attention.in_blocks:
                masks.check_measurable(item)
        self.texts += 1
        if self.first is None:
            others = ", ".join(item.stream for item in attention.maps[1:])
            # The decision is about this text, and the caption is about all texts.
            caption = view.describe_run(replace(attention, decision=""), attention.main)
            caption += f" · also {others}" if others else ""
            provenance = asdict(attention.provenance)
            for name in (DECISION, PROBABILITIES):
                provenance["settings"].pop(name, None)
            self.first = {"caption": caption, "provenance": provenance}
        for item in attention.maps:
            self._stream((item.stream, item.layers, item.heads)).add(number, item, attention)

    def merge(self, other: Aggregates) -> None:
        self.texts += other.texts
        self.failures += other.failures
        self.first = self.first or other.first
        for name, tally in other.streams.items():
            self._stream(name).merge(tally)

    def _stream(self, name: StreamName) -> StreamAccumulator:
        if name not in self.streams:
            self.streams[name] = StreamAccumulator(name, self.vocabulary, samples=self.samples)
        return self.streams[name]

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Arrays that `numpy.savez` writes without pickle; equal statistics give equal bytes."""
        streams = self.streams.values()
        document = {
            "schema": SCHEMA,
            "texts": self.texts,
            "failed": self.failures,
            "samples": self.samples,
            "first": self.first,
            "streams": [tally.document() for tally in streams],
        }
        arrays = {INDEX: np.array(dump_json(document))}
        for place, tally in enumerate(streams):
            arrays |= {f"{place}/{name}": array for name, array in tally.arrays().items()}
        return arrays

    @classmethod
    def from_arrays(cls, arrays: Arrays, vocabulary: Vocabulary) -> Aggregates:
        """Statistics from `to_arrays`, with the vocabulary that they were made with."""
        document = parse_json(str(arrays[INDEX]), f"member '{INDEX}'")
        if document["schema"] != SCHEMA:
            raise ValueError(f"aggregates of schema {document['schema']}, not {SCHEMA}")
        aggregates = cls(vocabulary, samples=document["samples"])
        aggregates.texts, aggregates.failures = document["texts"], document["failed"]
        aggregates.first = document["first"]
        for place, stream in enumerate(document["streams"]):
            name = stream["stream"], tuple(stream["layers"]), tuple(stream["heads"])
            own = {
                key.partition("/")[2]: arrays[key] for key in arrays if key.startswith(f"{place}/")
            }
            aggregates._stream(name).restore(stream, own)
        return aggregates

    def __reduce__(self) -> tuple[Any, ...]:
        return Aggregates.from_arrays, (self.to_arrays(), self.vocabulary)


class StreamAccumulator:
    """One stream of a corpus."""

    def __init__(self, name: StreamName, vocabulary: Vocabulary, *, samples: bool) -> None:
        self.stream, self.layers, self.heads = name
        self.vocabulary = vocabulary
        self.meanings: dict[str, tuple[str, str, str]] = {}
        self.rests_on: dict[str, str] | None = None
        heads = len(self.layers) * len(self.heads)
        shape = COUNT, len(self.layers), len(self.heads)
        self.sums = sums.HeadSums(shape, len(MEASURED))
        self.pairs = PairTable(vocabulary.pair_words, heads)
        self.strongest = Strongest(heads)
        self.samples = Samples(self.pairs.words, heads) if samples else None

    def add(self, number: int, item: AttentionMap, attention: Attention) -> None:
        orders = gives_order(number)
        if attention.in_blocks:  # without whole maps there are no positions, pairs and links
            own = study.measures_of(attention, item, repeated=False)
            self.sums.add(figures_of(own.measures, self.sums.shape[1:], orders=orders))
            self._mean(own.measures, own.resting)
            return
        subject = masks.MeasuredMap.of(attention, item)
        measures = measure_heads(subject, repeated=False, effects=attention.effects)
        if self.vocabulary.pictures:
            measures = {name: one for name, one in measures.items() if name not in OF_LINES}
        keys = read_axis(item.key_tokens, subject.texts[1])
        queries = keys
        if item.query_tokens != item.key_tokens or item.query_side != item.key_side:
            queries = read_axis(item.query_tokens, subject.texts[0])
        words = in_words(subject, queries, keys)
        classes = classes_of(keys, self.vocabulary)
        self.sums.add(head_statistics(subject, measures, classes, orders=orders))
        self.pairs.add(words)
        text = source_text(attention, words)
        links = self.strongest.add(number, words, text)
        if self.samples is not None:
            self.samples.add(links, words, text)
        self._mean(measures, resting_places(item))

    def _mean(self, measures: Mapping[str, HeadMeasure], resting: Mapping[str, str]) -> None:
        for name, measure in measures.items():
            self.meanings[name] = (measure.unit, measure.low, measure.high)
        self._rest(resting)

    def _rest(self, places: Mapping[str, str] | None) -> None:
        # A role is called by a token that it rests on in every text.
        before = places if self.rests_on is None else self.rests_on
        if places is not None and before is not None:
            self.rests_on = dict(before.items() & places.items())

    def merge(self, other: StreamAccumulator) -> None:
        other.sums.settle()
        self.sums.merge(other.sums.sums)
        self.pairs.merge(*other.pairs.arrays().values())
        other.strongest.settle()
        self.strongest.merge(other.strongest.links, other.strongest.texts)
        if self.samples is not None and other.samples is not None:
            self.samples.merge(other.samples.arrays(), other.samples.texts)
        self.meanings.update(other.meanings)
        self._rest(other.rests_on)

    def document(self) -> dict[str, Any]:
        self.strongest.settle()
        samples = {} if self.samples is None else self.samples.document()
        return {
            **samples,
            "stream": self.stream,
            "layers": list(self.layers),
            "heads": list(self.heads),
            "meanings": {name: list(self.meanings[name]) for name in sorted(self.meanings)},
            "rests on": self.rests_on and dict(sorted(self.rests_on.items())),
            "texts": as_document(self.strongest.texts),
        }

    def arrays(self) -> dict[str, NDArray[Any]]:
        self.sums.settle()
        self.strongest.settle()
        samples = {} if self.samples is None else self.samples.arrays()
        links = {"links": self.strongest.links}
        return {**self.sums.sums, **self.pairs.arrays(), **links, **samples}

    def restore(self, document: Mapping[str, Any], arrays: Arrays) -> None:
        self.meanings = {name: tuple(of) for name, of in document["meanings"].items()}
        self.rests_on = document["rests on"]
        self.sums.merge(arrays)
        self.pairs.merge(arrays["pairs"], arrays["pair totals"], arrays["pair counts"])
        self.strongest.links = arrays["links"]
        self.strongest.texts = from_document(document["texts"])
        if self.samples is not None:
            self.samples.merge(arrays, from_document(document["drawn texts"]))
