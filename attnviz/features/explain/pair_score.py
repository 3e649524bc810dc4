"""What carries the score that a reranker gives a pair: each token hidden, each head at its mean."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.cells import set_cell_size
from rich.text import Text

from attnviz.core.attention_map import Attention, Provenance, Token
from attnviz.core.effects import Experiment, HeadOutputs, Intervention
from attnviz.core.errors import UsageError
from attnviz.core.records import asdict, dataclass
from attnviz.core.tokens import token_label
from attnviz.features.ablate.parts import replacements
from attnviz.features.explain.smallest import Trials
from attnviz.renderers import Display
from attnviz.renderers.data import tsv
from attnviz.renderers.printable import all_digits, printable, shorten, two_digits
from attnviz.renderers.reports import Data, data_of
from attnviz.renderers.text.console import introduction, render_parts, wrap_text
from attnviz.storage.columns import columns_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

READING = "effect: the score minus the score without the part; above 0 the part raises the score"
MOST_TOKENS, MOST_HEADS, WIDE = 12, 8, 24


@dataclass(frozen=True, slots=True)
class TokenScore:
    """A token that is hidden from all others."""

    side: str  # "query" or "document", the first and the second text; "special": of none
    token: str
    position: int  # in the sequence
    without: float  # the score then
    effect: float


@dataclass(frozen=True, slots=True)
class HeadScore:
    """A head that puts out its mean over other pairs."""

    stream: str
    layer: str
    head: int
    without: float
    effect: float
    attention: float  # from the query to the document: the mean sum of a row; NaN: no pair


@dataclass(frozen=True, slots=True)
class PairScoreReport:
    """The score of a pair, and what it is without each part; the largest effects come first."""

    caption: str
    id: str
    score: float  # before a sigmoid
    p: float
    tokens: tuple[TokenScore, ...]
    heads: tuple[HeadScore, ...]
    reference: str  # what heads that are off put out
    notes: tuple[str, ...]
    provenance: Provenance


def score_pair(
    experiment: Experiment, outputs: Sequence[HeadOutputs], reference: str
) -> PairScoreReport:
    """What carries the one score of a model.

    Raises:
        UsageError: the model gives several.
    """
    attention = experiment.attention
    trials = Trials(experiment, replacements("mean", outputs, attention), None)
    if trials.unchanged_choices.shape[-1] != 1:
        raise UsageError(
            f"--score explains a model's one score, as rerankers give, and this one has "
            f"{trials.unchanged_choices.shape[-1]:,} choices: leave it out"
        )
    score = score_of(trials.unchanged_choices)
    ran = trials.run([Intervention(tokens=(at,)) for at in trials.tokens])
    main, tokens = attention.main, list[TokenScore]()
    for at, rows in zip(trials.tokens, ran, strict=True):
        token = main.query_tokens[at.position]
        without = score_of(rows)
        name = token_label(main.query_tokens, at.position)
        side = _side_of(attention, token)
        tokens.append(TokenScore(side, name, at.position, without, score - without))
    ran = trials.run([Intervention(heads=(at,)) for at in trials.heads])
    heads = list[HeadScore]()
    for one, rows in zip(trials.heads, ran, strict=True):
        without = score_of(rows)
        shares = _to_document(attention, one.stream)
        item = attention.map_of(one.stream)
        share = (
            float("nan")
            if shares is None
            else float(shares[item.layers.index(one.layer), one.head])
        )
        place = one.stream, one.layer, one.head
        heads.append(HeadScore(*place, without, score - without, share))
    return PairScoreReport(
        caption=f"{attention.provenance.title} · score of a pair",
        id=attention.id,
        score=score,
        p=float(1 / (1 + np.exp(-score))),
        tokens=tuple(sorted(tokens, key=lambda one: -abs(one.effect))),
        heads=tuple(sorted(heads, key=lambda one: -abs(one.effect))),
        reference=reference,
        notes=attention.provenance.notes,
        provenance=attention.provenance,
    )


def score_of(rows: NDArray[np.floating]) -> float:
    """The score before the sigmoid, from its log p: −log(e^(−log p) − 1), exact at both ends."""
    return -float(np.log(np.expm1(-np.float64(rows[0][0]))))


def _side_of(attention: Attention, token: Token) -> str:
    if token.special:
        return "special"
    begins = attention.parts.start if attention.parts else token.start + 1
    return "query" if token.start < begins else "document"


def _to_document(attention: Attention, stream: str) -> NDArray[np.floating] | None:
    """The mean share that query tokens give document tokens, (layers, heads)."""
    item = attention.map_of(stream)
    if attention.parts is None or item.query_side != item.key_side:
        return None
    sides = [_side_of(attention, token) for token in item.query_tokens]
    rows, columns = (
        [n for n, one in enumerate(sides) if one == side] for side in ("query", "document")
    )
    shares: NDArray[np.floating] = item.weights[:, :, rows][..., columns].sum(-1).mean(-1)
    return shares


def score_table(report: PairScoreReport, show: Display) -> str:
    """The score, then the tokens of each text and the heads with the largest effects."""
    parts: list[Any] = introduction(printable(report.caption), READING, show.width)
    parts.append(Text(f"score {report.score:.4f} (p {two_digits(report.p)})", "bold"))
    parts += [
        Text(),
        Text(f"{set_cell_size('token', WIDE)}  of         effect  score without", "dim"),
    ]
    for one in report.tokens[:MOST_TOKENS]:
        name = set_cell_size(shorten(printable(one.token), WIDE), WIDE)
        effect = f"{one.effect:+.4f}"
        parts.append(Text(f"{name}  {one.side:<9} {effect:>7}  {one.without:.4f}"))
    if (rest := len(report.tokens) - MOST_TOKENS) > 0:
        parts.append(Text(f"{rest} more tokens: -f tsv", "dim"))
    parts += [
        Text(),
        Text(f"{set_cell_size('head', WIDE)}  to document effect  score without", "dim"),
    ]
    for head in report.heads[:MOST_HEADS]:
        name = set_cell_size(printable(f"{head.stream} {head.layer}.{head.head}"), WIDE)
        share = "" if np.isnan(head.attention) else two_digits(head.attention)
        effect = f"{head.effect:+.4f}"
        parts.append(Text(f"{name}  {share:<9} {effect:>7}  {head.without:.4f}"))
    how = (
        f"heads that are off put out {report.reference}; tokens that are off are hidden from others"
    )
    parts += [Text(), *wrap_text(how, show.width, "dim")]
    return render_parts(parts, show)


def score_tsv(report: PairScoreReport) -> str:
    """A line for each token and each head."""
    lines: list[tuple[str, ...]] = [columns_of("pair-score")]
    for one in report.tokens:
        numbers = all_digits(one.effect), all_digits(one.without)
        lines.append(("token", one.side, str(one.position), one.token, "", "", "", *numbers))
    for head in report.heads:
        numbers = all_digits(head.effect), all_digits(head.without)
        place = head.stream, head.layer, str(head.head)
        lines.append(("head", "", "", "", *place, *numbers))
    return tsv(lines)


def score_data(report: PairScoreReport) -> Data:
    """The report in every form."""
    from attnviz.storage.documents import report_json

    values = asdict(report)
    for head in values["heads"]:
        head["attention"] = None if np.isnan(head["attention"]) else head["attention"]
    document = partial(report_json, "pair score", **values)
    return data_of(report, score_table, score_tsv, lambda _: document(), notes=report.notes)
