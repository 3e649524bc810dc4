"""What changes when parts of a model are switched off, and how faithful lenses are to that."""

from __future__ import annotations

from collections.abc import Mapping

from attnviz.core.attention_map import Attention, Provenance
from attnviz.core.effects import By, Effect, instead_in_words
from attnviz.core.records import dataclass
from attnviz.features.lenses.token_scores import LENS_SHARES


@dataclass(frozen=True, slots=True)
class Prediction:
    """An output before and after a change: log p in nats, and the likeliest choices with p."""

    name: str
    position: int | None
    before: float
    after: float
    likeliest_before: tuple[tuple[str, float], ...]
    likeliest_after: tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True)
class AblationReport:
    """The changes when parts of a model are switched off."""

    caption: str
    by: By  # what replaced the outputs of heads
    effects: tuple[Effect, ...]  # the effect of each part alone
    together: Effect | None  # the effect of all parts at once, if it was measured
    predictions: tuple[Prediction, ...]  # each output before and after, for one text
    wrote: tuple[str, str] | None  # the written text before and after, for one text
    texts: int  # number of texts
    notes: tuple[str, ...]
    maps: Attention  # for one text, the raw maps of every layer
    explained: tuple[str, ...] = ()  # names of the outputs, for one text
    reference: int = 0  # number of other texts that the replacement came from; 0: this text

    @property
    def provenance(self) -> Provenance:
        return self.maps.provenance

    @property
    def every(self) -> tuple[Effect, ...]:
        return self.effects if self.together is None else (*self.effects, self.together)

    @property
    def effect_sum(self) -> tuple[Effect, ...]:
        """The sum of the effects of several parts, to compare with `together`."""
        if self.together is None or len(self.effects) == 1:
            return ()
        total = sum(one.effect for one in self.effects)
        label = f"sum of the {len(self.effects)} by themselves"
        return (Effect(label, "sum", {}, total, texts=self.texts),)

    @property
    def instead(self) -> str:
        """The output of heads that are off, in words; empty if none is off."""
        return instead_in_words(self.by, self.reference, self.effects)


RANDOM = "random"  # the name of random scores, beside those of the lenses


LENS_MEASURES = (
    "rank_correlation",
    *(f"comprehensiveness_{share}" for share in LENS_SHARES),
    *(f"sufficiency_{share}" for share in LENS_SHARES),
)
"""Measures of a lens' faithfulness: a correlation, then nats."""


@dataclass(frozen=True, slots=True)
class LensRow:
    """Faithfulness of a lens: the mean over texts of each of `LENS_MEASURES`, or NaN."""

    lens: str
    mean: tuple[float, ...]
    low: tuple[float, ...]  # lower ends of 95 % intervals, NaN for one text; `high`: upper ends
    high: tuple[float, ...]
    texts: int  # number of texts with a rank correlation
    left_out: str = ""  # why it does not apply to some or all texts


@dataclass(frozen=True, slots=True)
class LensReport:
    """Faithfulness of each lens for a model and texts."""

    caption: str
    rows: tuple[LensRow, ...]  # one for each lens, then random scores
    conclusion: str  # the lenses that the `rule` trusts
    rule: str
    texts: int
    tokens: tuple[Mapping[str, str | int | float], ...]  # effect and scores by token
    provenance: Provenance  # that of the first text, with the notes of all
