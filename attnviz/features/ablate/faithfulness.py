"""Faithfulness of each lens: its scores of tokens against the measured effect of hiding them.

A hidden token is a key for its own query only, in every head and layer (attention knockout, Geva
2023, EMNLP). Its effect is the change of the outputs' log p in nats. The rank correlation
(Spearman) compares sizes of scores with sizes of effects, since most lenses have no sign.
Comprehensiveness and sufficiency (ERASER, DeYoung 2020, ACL, section 4; here in nats of log p)
measure the loss when the highest-ranked tokens are hidden, and when all others are. There a signed
lens ranks by value, supporting tokens first, as in the paper.

Most lenses score source and target on different scales, so each side is ranked alone: correlations
are means over sides, and shares are of each side's tokens, at least one. Special tokens count;
tokens that no output sees do not.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from attnviz.core import attention_map, effects, notices, registry
from attnviz.core.errors import InputError, in_words
from attnviz.core.records import dataclass, replace
from attnviz.features.ablate.report import LENS_MEASURES, RANDOM, LensReport, LensRow
from attnviz.features.lenses.token_scores import MOST_HIDDEN, Numbers, TokenScores, losses_without
from attnviz.features.measures.intervals import means_over

DRAWS = 10  # random rankings of a text whose measures are averaged as the baseline
TRUSTED = 0.5  # the rank correlation above which a lens can be trusted
RULE = (
    f"trusted: the interval of the rank correlation lies above {TRUSTED} and above that of random "
    "scores; not: it lies below, or is not above that of random scores; else these texts do not "
    "decide"
)


@dataclass(frozen=True, slots=True, eq=False)
class TextFaithfulness:
    """Faithfulness of the lenses on one text."""

    output: str  # the explained output
    tokens: tuple[Mapping[str, str | int | float], ...]  # effect and scores by token
    measures: dict[str, Numbers]  # `LENS_MEASURES` by lens, and of random scores
    left_out: dict[str, str]  # the reason by lens that does not apply
    provenance: attention_map.Provenance


def faithfulness(text: TokenScores, seed: int = 0) -> TextFaithfulness:
    """Faithfulness of each lens on one text, from one batch of runs with hidden tokens.

    Raises:
        InputError: the text has more than `MOST_HIDDEN` tokens, and each takes a run.
    """
    if len(text.tokens) > MOST_HIDDEN:
        raise InputError(
            f"the text has {len(text.tokens)} tokens to hide, each in a run of its own, more than "
            f"{MOST_HIDDEN}: shorten it"
        )
    draws = np.random.default_rng(seed).random((DRAWS, len(text.tokens)))
    rankings = {**{lens: [scores] for lens, scores in text.scores.items()}, RANDOM: [*draws]}
    tops = {lens: [text.sets_to_hide(one) for one in many] for lens, many in rankings.items()}
    sets: list[tuple[effects.TokenAt, ...]] = [(one,) for one in text.tokens]
    sets += [one for several in tops.values() for shares in several for one in shares]
    sets = list(dict.fromkeys(sets))  # lenses often agree on the highest tokens: one run for all
    loss_of = dict(zip(sets, losses_without(text, sets).tolist(), strict=True))
    losses = np.array([loss_of[one,] for one in text.tokens])
    measures = {}
    for lens, several in rankings.items():
        rows = [
            [text.correlation(scores, losses), *(loss_of[one] for one in shares)]
            for scores, shares in zip(several, tops[lens], strict=True)
        ]
        measures[lens] = np.mean(rows, axis=0)
    attention = text.inputs.attention
    words = {one.key_side: one.key_tokens for one in attention.maps}
    tokens: tuple[dict[str, str | int | float], ...] = tuple(
        {
            "side": token.side,
            "position": token.position,
            "token": words[token.side][token.position].text,
            "knock_out": float(losses[place]),
            **{lens: float(scores[place]) for lens, scores in text.scores.items()},
        }
        for place, token in enumerate(text.tokens)
    )
    output = text.inputs.output
    return TextFaithfulness(output, tokens, measures, text.left_out, attention.provenance)


def lens_report(texts: Sequence[TextFaithfulness]) -> LensReport:
    """Means over texts with their intervals, highest correlation first."""
    *rows, random = [_row(lens, texts) for lens in ("raw", *registry.LENSES, RANDOM)]
    rows.sort(key=lambda row: -np.nan_to_num(row.mean[0], nan=-2))
    first, several = texts[0], len(texts) > 1
    what = f"mean over {len(texts)} texts" if several else f"log p of {first.output}"
    return LensReport(
        f"{first.provenance.title} · {what}",
        (*rows, random),
        conclusion(rows, random, len(texts)),
        RULE,
        len(texts),
        () if several else first.tokens,
        replace(
            first.provenance,
            notes=notices.merge_notices(one for text in texts for one in text.provenance.notes),
        ),
    )


def _row(lens: str, texts: Sequence[TextFaithfulness]) -> LensRow:
    values = np.array([text.measures[lens] for text in texts if lens in text.measures])
    reasons = [text.left_out[lens] for text in texts if lens in text.left_out]
    why = reasons[0] if reasons else ""
    if reasons and len(values):
        why = f"in {len(reasons)} of {len(texts)} texts: {why}"
    count, mean, low, high = means_over(values.reshape(-1, len(LENS_MEASURES)))
    low[0], high[0] = np.clip((low[0], high[0]), -1, 1)
    ends = [tuple(one.tolist()) for one in (mean, low, high)]
    return LensRow(lens, ends[0], ends[1], ends[2], int(count[0]), why)


def conclusion(rows: Sequence[LensRow], random: LensRow, texts: int) -> str:
    """A sentence on which lenses `RULE` trusts; with one text it only hints."""
    finite = [row for row in rows if np.isfinite(row.mean[0])]
    if not finite:
        return "no lens can be judged: too few tokens can be hidden"
    if texts == 1:
        like = [row.lens for row in finite if row.mean[0] > TRUSTED]
        unlike = [row.lens for row in finite if row.mean[0] <= TRUSTED]
        hint = f"the rank correlation of {in_words(like, 'and')} is above {TRUSTED}" if like else ""
        hint += f", that of {in_words(unlike, 'and')} is not" if like and unlike else ""
        hint = hint or f"no rank correlation is above {TRUSTED}"
        return f"one text decides little; here {hint}"
    good = [r.lens for r in finite if r.low[0] > max(TRUSTED, random.high[0])]
    poor = [r.lens for r in finite if r.high[0] < TRUSTED or r.low[0] <= random.high[0]]
    others = [row.lens for row in finite if row.lens not in (*good, *poor)]
    cannot = "cannot" if good else "cannot be trusted"
    parts = [
        before + in_words(names, "and") + behind
        for before, names, behind in (
            ("", good, " can be trusted"),
            ("", poor, f" {cannot}"),
            ("of ", others, " these texts do not decide"),
        )
        if names
    ]
    return f"for this model and these texts {', '.join(parts)}"
