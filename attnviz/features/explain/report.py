"""What decided an answer of a model: types of explain."""

from __future__ import annotations

from attnviz.core.attention_map import Provenance
from attnviz.core.effects import Effect, HeadAt, LinkAt
from attnviz.core.records import dataclass
from attnviz.features.writers.report import LinkReport

ENOUGH = 0.9  # the share of an answer that the parts of a set keep
LITTLE = 0.05  # a smaller effect, in nats, counts as none
SMALL = 0.5  # a set of more than this share of all heads, or of all tokens, is not small
LIKE_CHANCE = 0.25  # a set says nothing where this share of random sets of its size keeps as much


@dataclass(frozen=True, slots=True)
class HeadClaim:
    """What one head does for an answer."""

    at: HeadAt
    effect: float  # log p with the head minus log p where it puts out its mean, nats
    resampled: tuple[float, ...] = ()  # effects with other outputs, drawn by two seeds
    link: tuple[int, int] | None = None  # query and key of its strongest effect; None: no link
    ends: tuple[str, str] = ("", "")  # the tokens of the link
    weight: float = 0.0  # its weight
    link_effect: float = 0.0  # log p minus log p where the link is cut in this head
    why: LinkReport | None = None  # why the head looks there; None: not known

    @property
    def is_sure(self) -> bool:
        """Whether all replacements agree on the effect's sign."""
        signs = {value > 0 for value in (self.effect, *self.resampled)}
        return len(signs) == 1


@dataclass(frozen=True, slots=True)
class LinkSet:
    """The smallest set of links, of the heads and tokens of a set, that keeps an answer.

    Shares are those of `AnswerReport`.

    Attributes:
        ends: the tokens of each link; of: how many links these heads have between these tokens.
        kept: the share of the answer that the links alone keep; removed: what is left where only
            they are cut.
        as_good: the random sets of as many links that keep as much; drawn: of how many.
    """

    links: tuple[LinkAt, ...]
    ends: tuple[tuple[str, str], ...]
    of: int
    kept: float
    removed: float
    as_good: int
    drawn: int


@dataclass(frozen=True, slots=True)
class AnswerReport:
    """The parts of a model and of a text that give one answer, each claim measured.

    Shares are of what all attention gives: 1 is the whole model's log p, 0 that of a model all of
    whose heads put out their mean.
    """

    caption: str
    id: str
    answer: str  # the output that is explained
    chance: float  # its p
    next_best: tuple[str, float] | None  # the next choice and its p
    against: str | None  # the choice that the answer is compared with; None: none
    span: float  # log p of the answer minus log p where all heads put out their mean, nats
    # the smallest set of tokens, each with the effect of hiding it, largest first
    tokens: tuple[Effect, ...]
    all_tokens: int  # how many the text has
    others: float  # what hiding all others together costs, nats
    heads: tuple[HeadClaim, ...]  # the smallest set of heads, largest effect first
    all_heads: int  # how many the model has
    kept: float  # the share of the answer that the set alone keeps
    removed: float  # what is left without it
    chance_kept: float  # p of the answer with the set alone, and below without it
    chance_removed: float
    as_good: int  # the random sets of these sizes that keep as much
    drawn: int  # the number of random sets
    links: LinkSet | None  # the smallest set of links of these parts; None: no small one
    idle: HeadClaim | None  # a head with a strong link from the answer's row and without an effect
    reference: str  # what heads outside the set put out, in words
    runs: int  # how often the model, or a part of it, was run
    notes: tuple[str, ...]
    provenance: Provenance

    @property
    def is_small(self) -> bool:
        """Whether a small set keeps the answer, and random ones do not."""
        few = 0 < len(self.heads) <= SMALL * self.all_heads
        return self.kept >= ENOUGH and few and self.as_good < LIKE_CHANCE * self.drawn


@dataclass(frozen=True, slots=True)
class AnswersReport:
    """Which heads carry the answers of several texts."""

    answers: tuple[AnswerReport, ...]  # the report of each text
    # head, number of texts whose set holds it, mean effect; most frequent first
    heads: tuple[tuple[HeadAt, int, float], ...]
    small: int  # the number of texts that a small set of parts explains
    notes: tuple[str, ...]
    provenance: Provenance


@dataclass(frozen=True, slots=True)
class Restored:
    """How far one part of a first input's run, put into a second's, restores the first's answer."""

    stream: str
    layer: str
    head: int | None  # None: all heads of the layer
    position: int | None  # of the row that was put in, with its token; None: every row
    token: str
    share: float  # 0: the second input's answer stays; 1: the first's is there again
    estimate: float | None = None  # the share by the gradient; None: not known
    key: int | None = None  # the only key that was put in, with its token
    key_token: str = ""

    def name(self, *, alone: bool = True) -> str:
        name = f"{'' if alone else f'{self.stream} '}{self.layer}.{self.head}"
        if self.key is not None:
            return f"{name} from {self.token} to {self.key_token}"
        return name if self.position is None else f"{name} at {self.token}"


@dataclass(frozen=True, slots=True, eq=False)
class ContrastReport:
    """Which heads and positions make two inputs of one length have different answers."""

    caption: str
    texts: tuple[str, str]
    answers: tuple[str, str]  # the likeliest outputs of the first and of the second input
    scores: tuple[float, float]  # log p of the first answer minus that of the second, nats
    heads: tuple[Restored, ...]  # every head at all rows, the largest share first
    rows: tuple[Restored, ...]  # the first of these heads at one row each, the largest share first
    layers: tuple[Restored, ...]  # all heads of each layer at each row, in the order of the model
    links: tuple[Restored, ...]  # measured links, largest share first
    agreement: float | None  # Spearman's correlation of estimates and shares; None: no estimates
    runs: int  # how often the model, or a part of it, was run
    notes: tuple[str, ...]
    provenance: Provenance
