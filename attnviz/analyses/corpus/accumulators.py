"""What is kept of one stream of a corpus: sums for each head, and its best examples."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.analyses.corpus.bootstrap import (
    REPLICATES,
    carry,
    limbs_of,
    poisson_weights,
    replicate_sums,
    squares_of,
    summed,
)
from attnviz.analyses.corpus.figures import COUNT, MEASURED, ROWS, PairTable, figures_of
from attnviz.analyses.corpus.strongest import Strongest, read_texts, told
from attnviz.analyses.corpus.words import Vocabulary, classes_of, in_words, read_axis
from attnviz.analyses.heads import measure_heads
from attnviz.analyses.masks import MeasuredMap, check_measurable
from attnviz.analyses.view import describe_run
from attnviz.core.attention_map import Attention, AttentionMap
from attnviz.storage.documents import dump_json, parse_json

StreamName = tuple[str, tuple[str, ...], tuple[str, ...]]
"""What a stream is told apart by: its name and those of its layers and heads."""
_BLOCK = 256
_BLOCK_NUMBERS = 2**20
"""Texts wait in a block of so many at most, and of so many figures, before they are added up."""


class StreamSums:
    """Additive numbers of one stream.

    A text counts once in each mean, whatever its length.

    Attributes:
        shape: layers and heads.
        sums: int64 arrays by name, sums in limbs on their first axis.
    """

    def __init__(self, shape: tuple[int, int], replicates: int, seed: int) -> None:
        """Nothing yet."""
        self.shape, self.replicates, self.seed = shape, replicates, seed
        measured = (len(MEASURED), *shape)
        shapes = {
            "count": (1, COUNT, *shape),
            "total": (2, COUNT, *shape),
            "squares": (3, *measured),
            "replicate total": (1, replicates, *measured),
            "replicate count": (1, replicates, *measured),
        }
        self.sums = {name: np.zeros(of, dtype=np.int64) for name, of in shapes.items()}
        self._numbers: list[int] = []
        self._waiting: list[NDArray[np.float64]] = []

    def add(self, number: int, figures: NDArray[np.float64]) -> None:
        """Take one more text.

        Args:
            number: of the text in the corpus, from 0.
            figures: what it says, shape (figures, layers, heads); NaN where it says nothing.
        """
        self._numbers.append(number)
        self._waiting.append(figures)
        if len(self._waiting) >= min(_BLOCK, max(_BLOCK_NUMBERS // figures.size, 1)):
            self.settle()

    def settle(self) -> None:
        """Add up what waits."""
        if self._waiting:
            numbers, figures = self._numbers, np.stack(self._waiting)
            self._numbers, self._waiting = [], []
            self._add_block(numbers, figures)

    def _add_block(self, numbers: list[int], figures: NDArray[np.float64]) -> None:
        known = np.isfinite(figures)
        limbs = limbs_of(np.where(known, figures, 0.0))
        values = figures[:, ROWS["value"]].reshape(len(figures), len(MEASURED), -1)
        weights = poisson_weights(self.seed, numbers, self.replicates)
        totals, counts = replicate_sums(weights, values)
        shape = self.sums["replicate total"].shape
        self.merge(
            {
                "count": known.sum(axis=0)[None],
                "total": summed(limbs),
                "squares": summed(squares_of(limbs[:, :, ROWS["value"]])),
                "replicate total": totals.reshape(shape),
                "replicate count": counts.reshape(shape),
            }
        )

    def merge(self, sums: Mapping[str, NDArray[np.int64]]) -> None:
        """Add the sums of other texts."""
        for name, others in sums.items():
            self.sums[name] += others
            carry(self.sums[name])


class StreamTally:
    """One stream of a corpus.

    Attributes:
        stream: its name.
        layers: names of its layers.
        heads: names of its heads.
        first: number of the first text it was seen in, and its place among that text's maps.
        meanings: for each measure its unit and what its ends mean.
        sums: numbers that add up.
        pairs: attention between frequent words.
        strongest: the strongest links of each head.
    """

    def __init__(
        self, name: StreamName, vocabulary: Vocabulary, replicates: int, seed: int
    ) -> None:
        """An empty tally.

        Args:
            name: the stream's name and those of its layers and heads.
            vocabulary: the words of the corpus.
            replicates: of the bootstrap.
            seed: of the bootstrap.
        """
        self.stream, self.layers, self.heads = name
        self.vocabulary = vocabulary
        self.first: tuple[int, int] | None = None
        self.meanings: dict[str, tuple[str, str, str]] = {}
        heads = len(self.layers) * len(self.heads)
        self.sums = StreamSums((len(self.layers), len(self.heads)), replicates, seed)
        self.pairs = PairTable(vocabulary.paired, heads)
        self.strongest = Strongest(heads)

    def add(self, number: int, place: int, item: AttentionMap, attention: Attention) -> None:
        """Take the map of one more text.

        Args:
            number: of the text in the corpus.
            place: of the map among the text's.
            item: the map.
            attention: all that is known of the text.
        """
        subject = MeasuredMap(item)
        measures = measure_heads(subject, repeated=False)
        texts = {"text": attention.text, "source": attention.source, "target": attention.target}
        keys = read_axis(item.key_tokens, texts.get(item.key_side) or "")
        queries = keys
        if item.query_tokens != item.key_tokens or item.query_side != item.key_side:
            queries = read_axis(item.query_tokens, texts.get(item.query_side) or "")
        words = in_words(subject, queries, keys)
        self.sums.add(number, figures_of(subject, measures, classes_of(keys, self.vocabulary)))
        self.pairs.add(words)
        self.strongest.add(number, words, told(attention, words))
        self.first = min(self.first or (number, place), (number, place))
        for name, measure in measures.items():
            self.meanings[name] = (measure.unit, measure.low, measure.high)

    def merge(self, document: Mapping[str, Any], arrays: Mapping[str, Any]) -> None:
        """Add another tally of the same stream, as `document` and `arrays` gave it.

        Args:
            document: what is not a number a head.
            arrays: by name.
        """
        first = (int(document["first"][0]), int(document["first"][1]))
        self.first = min(self.first or first, first)
        self.meanings.update({name: tuple(of) for name, of in document["meanings"].items()})
        self.sums.settle()
        self.sums.merge({name: arrays[name] for name in self.sums.sums})
        self.pairs.merge(arrays["pairs"], arrays["pair totals"], arrays["pair counts"])
        self.strongest.merge(arrays["links"], read_texts(document["texts"]))

    def document(self) -> dict[str, Any]:
        """What is not a number a head, for JSON."""
        self.strongest.settle()
        return {
            "stream": self.stream,
            "layers": list(self.layers),
            "heads": list(self.heads),
            "first": list(self.first or ()),
            "meanings": {name: list(self.meanings[name]) for name in sorted(self.meanings)},
            "texts": self.strongest.texts_document(),
        }

    def arrays(self) -> dict[str, NDArray[Any]]:
        """All numbers by name."""
        self.sums.settle()
        self.strongest.settle()
        return {**self.sums.sums, **self.pairs.arrays(), "links": self.strongest.links}


# <aggregates> Everything that is kept of a corpus while its texts go by.

SCHEMA = 1
INDEX = "corpus"


class Aggregates:
    """Numbers over the texts of a corpus, or of a part of it.

    Those of parts merge into those of the whole: exactly, in any order and grouping.

    Attributes:
        vocabulary: the frequent words of the whole corpus.
        replicates: of the bootstrap.
        seed: of the bootstrap.
        texts: how many were added.
        failed: how many could not be.
        first: the number and the provenance of the first text, and a line on what was run.
        streams: by name, layers and heads.
    """

    def __init__(self, vocabulary: Vocabulary, replicates: int = REPLICATES, seed: int = 0) -> None:
        """Nothing yet."""
        self.vocabulary, self.replicates, self.seed = vocabulary, replicates, seed
        self.texts = self.failed = 0
        self.first: dict[str, Any] | None = None
        self.streams: dict[StreamName, StreamTally] = {}

    def add(self, attention: Attention, number: int) -> None:
        """Take one more text.

        Args:
            attention: its maps.
            number: its place in the corpus, from 0; no two texts share one.

        Raises:
            UsageError: maps of signed values.
            InputError: maps of blocks.
        """
        for item in attention.maps:
            check_measurable(item)
        self.texts += 1
        if self.first is None or number < self.first["number"]:
            self._begin_with(attention, number)
        for place, item in enumerate(attention.maps):
            tally = self._stream((item.stream, item.layers, item.heads))
            tally.add(number, place, item, attention)

    def _begin_with(self, attention: Attention, number: int) -> None:
        others = ", ".join(item.stream for item in attention.maps[1:])
        caption = describe_run(attention, attention.main) + (f" · also {others}" if others else "")
        provenance = asdict(attention.provenance)
        self.first = {"number": number, "caption": caption, "provenance": provenance}

    def _stream(self, name: StreamName) -> StreamTally:
        if name not in self.streams:
            self.streams[name] = StreamTally(name, self.vocabulary, self.replicates, self.seed)
        return self.streams[name]

    def in_order(self) -> list[StreamTally]:
        """The streams as the first text that has them does."""
        return sorted(self.streams.values(), key=lambda tally: tally.first or (0, 0))

    def merge(self, other: Aggregates) -> None:
        """Add those of other texts of the same corpus."""
        self.merge_arrays(other.to_arrays())

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Everything as arrays that `numpy.savez` writes without pickle, the same for the same.

        Member "corpus" is a JSON text; those of stream s begin with "s/".
        """
        streams = self.in_order()
        document = {
            "schema": SCHEMA,
            "replicates": self.replicates,
            "seed": self.seed,
            "texts": self.texts,
            "failed": self.failed,
            "first": self.first,
            "streams": [tally.document() for tally in streams],
        }
        arrays = {INDEX: np.array(dump_json(document))}
        for place, tally in enumerate(streams):
            arrays |= {f"{place}/{name}": array for name, array in tally.arrays().items()}
        return arrays

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]], vocabulary: Vocabulary) -> Aggregates:
        """What `to_arrays` gave.

        Args:
            arrays: by name.
            vocabulary: the one that they were made with.
        """
        document = parse_json(str(arrays[INDEX]), f"member '{INDEX}'")
        found = cls(vocabulary, document["replicates"], document["seed"])
        found.merge_arrays(arrays)
        return found

    def merge_arrays(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Add those of other texts, as `to_arrays` gave them.

        Raises:
            ValueError: they were made with another bootstrap.
        """
        document = parse_json(str(arrays[INDEX]), f"member '{INDEX}'")
        if (document["replicates"], document["seed"]) != (self.replicates, self.seed):
            raise ValueError("aggregates of different bootstraps do not add up")
        self.texts += document["texts"]
        self.failed += document["failed"]
        first = document["first"]
        if first and (self.first is None or first["number"] < self.first["number"]):
            self.first = first
        for place, stream in enumerate(document["streams"]):
            name = stream["stream"], tuple(stream["layers"]), tuple(stream["heads"])
            start = f"{place}/"
            self._stream(name).merge(
                stream,
                {
                    member.removeprefix(start): array
                    for member, array in arrays.items()
                    if member.startswith(start)
                },
            )

    def __reduce__(self) -> tuple[Any, ...]:
        return Aggregates.from_arrays, (self.to_arrays(), self.vocabulary)
