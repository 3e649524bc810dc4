"""What decided an answer of a model: types of `explain`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from attnviz.core.attention_map import Provenance
    from attnviz.core.effects import Effect, HeadAt
    from attnviz.core.writers import LinkReport

ENOUGH = 0.9
"""The share of an answer that the parts of a set keep."""
SMALL = 0.5
"""A set of more than this share of all heads, or of all tokens, is not small."""
LIKE_CHANCE = 0.25
"""A set says nothing where this share of random sets of its size keeps as much."""


@dataclass(frozen=True, slots=True)
class HeadClaim:
    """What one head does for an answer.

    Attributes:
        effect: log p with the head minus log p where it puts out its mean, nats.
        resampled: the same where it puts out what it does at positions drawn by two seeds.
        link: its query and key with the largest effect; None: no link was found.
        ends: the tokens of the link; weight: its weight.
        link_effect: log p minus log p where the link is cut in this head.
        why: why the head looks there; None: the model's scores cannot be taken apart.
    """

    at: HeadAt
    effect: float
    resampled: tuple[float, ...] = ()
    link: tuple[int, int] | None = None
    ends: tuple[str, str] = ("", "")
    weight: float = 0.0
    link_effect: float = 0.0
    why: LinkReport | None = None

    @property
    def is_sure(self) -> bool:
        """Whether all replacements agree on the effect's sign."""
        signs = {value > 0 for value in (self.effect, *self.resampled)}
        return len(signs) == 1


@dataclass(frozen=True, slots=True)
class AnswerReport:
    """The parts of a model and of a text that give one answer, each claim measured.

    Shares are of what all attention gives: 1 is the whole model's log p, 0 that of a model all of
    whose heads put out their mean.

    Attributes:
        answer: the output that is explained; chance: its p; next_best: the next choice and its p.
        against: the choice that the answer is compared with; None: none.
        span: log p of the answer minus log p where all heads put out their mean, nats.
        tokens: the smallest set of tokens that keeps the answer with the set's heads alone, each
            with the effect of hiding it alone, the largest first.
        all_tokens: how many the text has; others: what hiding all others together costs, nats.
        heads: the smallest set of heads that keeps the answer, the largest effect first; empty:
            attention does not add to log p.
        all_heads: how many the model has.
        kept: the share of the answer that the set alone keeps; removed: what is left without it.
        chance_kept, chance_removed: p of the answer then.
        as_good: the random sets of these sizes that keep as much; drawn: of how many.
        idle: a head with a strong link from the answer's row and without an effect.
        reference: what heads outside the set put out, in words.
        runs: how often the model, or a part of it, was run.
    """

    caption: str
    id: str
    answer: str
    chance: float
    next_best: tuple[str, float] | None
    against: str | None
    span: float
    tokens: tuple[Effect, ...]
    all_tokens: int
    others: float
    heads: tuple[HeadClaim, ...]
    all_heads: int
    kept: float
    removed: float
    chance_kept: float
    chance_removed: float
    as_good: int
    drawn: int
    idle: HeadClaim | None
    reference: str
    runs: int
    notes: tuple[str, ...]
    provenance: Provenance

    @property
    def is_small(self) -> bool:
        """Whether a small set keeps the answer, and random ones do not."""
        few = 0 < len(self.heads) <= SMALL * self.all_heads
        return self.kept >= ENOUGH and few and self.as_good < LIKE_CHANCE * self.drawn


@dataclass(frozen=True, slots=True)
class AnswersReport:
    """Which heads carry the answers of several texts.

    Attributes:
        answers: the report of each text.
        heads: each head of a set, with the number of texts whose set it is in and its mean effect
            there, the most frequent first.
        small: the number of texts that a small set of parts explains.
    """

    answers: tuple[AnswerReport, ...]
    heads: tuple[tuple[HeadAt, int, float], ...]
    small: int
    notes: tuple[str, ...]
    provenance: Provenance


@dataclass(frozen=True, slots=True)
class Restored:
    """How far one part of a first input's run, put into a second's, restores the first's answer.

    Attributes:
        head: None: all heads of the layer.
        position: of the row that was put in, with its token; None: every row.
        key: the position, with its token, of which alone the weight and value were put in.
        share: 0: the second input's answer stays; 1: the first's is there again.
        estimate: the share by the gradient at the second input; None: not to be had.
    """

    stream: str
    layer: str
    head: int | None
    position: int | None
    token: str
    share: float
    estimate: float | None = None
    key: int | None = None
    key_token: str = ""

    def name(self, *, alone: bool = True) -> str:
        name = f"{'' if alone else f'{self.stream} '}{self.layer}.{self.head}"
        if self.key is not None:
            return f"{name} from {self.token} to {self.key_token}"
        return name if self.position is None else f"{name} at {self.token}"


@dataclass(frozen=True, slots=True, eq=False)
class ContrastReport:
    """Which heads and positions make two inputs of one length have different answers.

    Attributes:
        answers: the likeliest outputs of the first and of the second input.
        scores: log p of the first answer minus log p of the second, after each input, nats.
        heads: every head at all rows, the largest share first.
        rows: the first of these heads at one row each, the largest share first.
        layers: all heads of each layer at each row, in the order of the model.
        links: those with the largest estimates, measured, the largest share first.
        agreement: Spearman's correlation of estimates and shares over heads; None: no estimates.
        runs: how often the model, or a part of it, was run.
    """

    caption: str
    texts: tuple[str, str]
    answers: tuple[str, str]
    scores: tuple[float, float]
    heads: tuple[Restored, ...]
    rows: tuple[Restored, ...]
    layers: tuple[Restored, ...]
    links: tuple[Restored, ...]
    agreement: float | None
    runs: int
    notes: tuple[str, ...]
    provenance: Provenance


SUPPORTS = 0.5
"""Nats from which on a part is named beside a sentence of an answer."""
NAMED = 3


@dataclass(frozen=True, slots=True)
class SourcePart:
    """One part of a context, and how far an answer depends on it.

    Attributes:
        file: where it is from; text: what it says; tokens: how many it has.
        effect: log p of the answer minus log p without the part, nats; NaN: measured with others.
        of_sentences: the same of each sentence of the answer.
        group: the parts that were left out together, where it was not left out alone.
        estimates: its score by cheap estimates, by name.
    """

    number: int
    file: str
    text: str
    tokens: int
    effect: float
    of_sentences: tuple[float, ...]
    group: tuple[int, ...]
    estimates: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class SourcesReport:
    """Which parts of a context an answer was made from.

    Attributes:
        sentences: those of the answer; support: the largest effect of a part on each, nats.
        written: whether the model wrote the answer.
        how: what leaving out means, in words.
        agreement: Spearman's correlation of each estimate with the effects; NaN: fewer than three.
    """

    caption: str
    question: str
    sentences: tuple[str, ...]
    support: tuple[float, ...]
    written: bool
    log_p: float
    parts: tuple[SourcePart, ...]
    how: str
    agreement: Mapping[str, float]
    runs: int
    notes: tuple[str, ...]
    provenance: Provenance

    def sources_of(self, sentence: int) -> list[int]:
        """The parts that a sentence depends on, by number, the largest effect first."""
        found = [(one.of_sentences[sentence], one.number) for one in self.parts]
        strong = sorted((one for one in found if one[0] >= SUPPORTS), reverse=True)
        return [number for _, number in strong[:NAMED]]
