"""Everything that is kept of a corpus while its texts go by."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.analyses.corpus.bootstrap import REPLICATES
from attnviz.analyses.corpus.stream import StreamName, StreamTally
from attnviz.analyses.corpus.words import Vocabulary
from attnviz.analyses.subject import check_measurable
from attnviz.analyses.view import describe_run
from attnviz.attention_map import Attention
from attnviz.storage.json import dump_json, parse_json

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
