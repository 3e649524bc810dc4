"""Which parts of a context an answer was made from: types of `sources`."""

from __future__ import annotations

from collections.abc import Mapping

from attnviz.core.attention_map import Provenance
from attnviz.core.records import dataclass

SUPPORTS = 0.5  # nats from which on a part is named beside a sentence of an answer
NAMED = 3


@dataclass(frozen=True, slots=True)
class SourcePart:
    """One part of a context, and how far an answer depends on it."""

    number: int
    file: str  # where it is from
    text: str  # what it says
    tokens: int  # how many it has
    effect: float  # log p of the answer minus log p without the part, nats; NaN: only with others
    of_sentences: tuple[float, ...]  # the same of each sentence of the answer
    group: tuple[int, ...]  # the parts that were left out together, where it was not left out alone
    estimates: Mapping[str, float]  # its score by cheap estimates, by name


@dataclass(frozen=True, slots=True)
class SourcesReport:
    """Which parts of a context an answer was made from."""

    caption: str
    question: str
    sentences: tuple[str, ...]  # those of the answer
    support: tuple[float, ...]  # the largest effect of a part on each, nats
    written: bool  # whether the model wrote the answer
    log_p: float
    parts: tuple[SourcePart, ...]
    how: str  # what leaving out means, in words
    agreement: Mapping[str, float]  # Spearman's correlation with the effects
    runs: int
    notes: tuple[str, ...]
    provenance: Provenance

    def sources_of(self, sentence: int) -> list[int]:
        """The parts that a sentence depends on, by number, the largest effect first."""
        effects = [(one.of_sentences[sentence], one.number) for one in self.parts]
        strong = sorted((one for one in effects if one[0] >= SUPPORTS), reverse=True)
        return [number for _, number in strong[:NAMED]]
