"""What decided an answer, in sentences made of numbers; and which heads carry several answers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, NamedTuple

from rich.cells import set_cell_size
from rich.text import Text

from attnviz.core.answers import AnswerReport, AnswersReport, HeadClaim
from attnviz.renderers.data.maps import report_json, tsv
from attnviz.renderers.printable import all_digits, printable, shorten, signed, two_digits
from attnviz.renderers.text.console import render_parts, wrap_text
from attnviz.renderers.text.why_table import why_document

if TYPE_CHECKING:
    from attnviz.core.effects import Effect, HeadAt
    from attnviz.renderers import Display

LABEL = 14
LISTED = 6
"""Tokens and heads that one line names."""
LINES = 3
"""Heads with a line of their own."""
Link = tuple[str | int, ...] | None
"""The stream, layer, head, query and key that a sentence is about."""


class AnswerSentence(NamedTuple):
    """A claim in words.

    Attributes:
        about: what it is about; text: the sentence.
        link, heads, tokens: the parts of the model and of the text that it names.
    """

    about: str
    text: str
    link: Link = None
    heads: tuple[HeadAt, ...] = ()
    tokens: tuple[tuple[str, int], ...] = ()

    def document(self) -> dict[str, Any]:
        """The sentence as a JSON object."""
        heads = [(one.stream, one.layer, str(one.head)) for one in self.heads]
        return {**self._asdict(), "heads": heads}


def _nats(value: float) -> str:
    if math.isnan(value):
        return "not known"
    digits = 1 if abs(value) >= 0.095 else 2
    return f"{value:.{digits}f}".replace("-", "−").replace("−0.00", "0.00")


def _share(value: float) -> str:
    return two_digits(value).replace("-", "−")


def _name(effect: Effect) -> str:
    """A token with its position, such as "dogs (3)"."""
    position = effect.place.get("position")
    word = effect.label.removesuffix(f"[{position}]")
    if position is None or "," in word:  # a class, or a patch by row and column
        return word
    return f"{word[:-1]} {position})" if word.endswith(")") else f"{word} ({position})"


def _head(at: HeadAt, main: str) -> str:
    return f"{at.layer}.{at.head}" if at.stream == main else f"{at.stream} {at.layer}.{at.head}"


def _link_of(claim: HeadClaim) -> Link:
    return (
        None
        if claim.link is None
        else (claim.at.stream, claim.at.layer, str(claim.at.head), *claim.link)
    )


def sentences_of(report: AnswerReport, *, verbose: bool = False) -> Iterator[AnswerSentence]:
    """Each claim in words, with the parts that it is about."""
    main = report.heads[0].at.stream if report.heads else ""
    streams = {claim.at.stream for claim in report.heads}
    main = main if len(streams) == 1 else ""
    answer = f'"{report.answer}"' if report.next_best else report.answer
    line = f"{answer} ({two_digits(report.chance)})"
    if report.next_best:
        line += f'; next best "{report.next_best[0]}" ({two_digits(report.next_best[1])})'
    if report.against:
        line += f'; explained is by how much it is likelier than "{report.against}"'
    yield AnswerSentence("The model says", line)
    if not report.heads:
        line = f"if all heads put out their mean, log p falls by {_nats(report.span)} nats"
        yield AnswerSentence("Decided", f"by no head or token: {line}")
        return
    tokens = [(str(one.place["side"]), int(one.place["position"])) for one in report.tokens]
    whole = tuple(claim.at for claim in report.heads), tuple(tokens)
    if not report.is_small:
        yield AnswerSentence("No small set", _no_set(report), None, *whole)
        if not verbose:
            return
    named = report.tokens if verbose else report.tokens[:LISTED]
    needs = " · ".join(f"{_name(one)} {_nats(one.effect)}" for one in named)
    rest = len(report.tokens) - len(named)
    needs += f" · {rest} more" if rest else ""
    needs = f"{needs} nats" if needs else "no token"
    line = f"{needs}; hiding all others: {_nats(report.others)}"
    yield AnswerSentence("It needs", line, tokens=whole[1])
    sure = [claim for claim in report.heads if claim.is_sure and (verbose or claim.link)]
    for number, claim in enumerate(sure if verbose else sure[:LINES]):
        about = "and by" if number else "Carried by"
        yield AnswerSentence(about, _carrier(claim, report, main), _link_of(claim), (claim.at,))
    others = [claim for claim in report.heads if claim not in sure[:LINES]]
    if others and not verbose:
        line = f"{_names(others, main)} too, whose own effect is small or not clear"
        yield AnswerSentence("The set holds", line, heads=tuple(claim.at for claim in others))
    unsure = [claim for claim in report.heads if not claim.is_sure]
    if unsure and verbose:
        line = f"{_names(unsure, main)}: replacements of their output disagree on the effect"
        yield AnswerSentence("Not clear", line, heads=tuple(claim.at for claim in unsure))
    yield AnswerSentence("Kept alone", _kept(report), None, *whole)
    if report.idle is not None:
        line, at = _idle(report.idle, main), (report.idle.at,)
        yield AnswerSentence("Not involved", line, _link_of(report.idle), at)


def _names(claims: Sequence[HeadClaim], main: str) -> str:
    return " · ".join(_head(claim.at, main) for claim in claims[:LISTED])


def _idle(claim: HeadClaim, main: str) -> str:
    ends = f"{claim.ends[0]} to {claim.ends[1]}"
    line = f"head {_head(claim.at, main)} looks from {ends} with weight {two_digits(claim.weight)}"
    return f"{line} and does nothing ({_nats(claim.effect)} nats)"


def _carrier(claim: HeadClaim, report: AnswerReport, main: str) -> str:
    line = f"head {_head(claim.at, main)} (effect {_nats(claim.effect)} nats)"
    if claim.link is None:
        return line
    ends, weight = f"{claim.ends[0]} to {claim.ends[1]}", two_digits(claim.weight)
    line += f" looks from {ends} (weight {weight}, effect {_nats(claim.link_effect)})"
    why = claim.why
    if why is None:
        return line
    if why.position_reason:
        line += " by position alone"
    elif why.key:
        first = why.key[0]
        kind = "head " if "." in first.writer else ""
        line += (
            f" since {kind}{first.writer} wrote {signed(first.value)} of its score of "
            f"{signed(why.contrast)} into {claim.ends[1]}"
        )
    said = why.predicted is not None and why.predicted[0] == report.answer
    if said and why.argument is not None and why.argument > 0:
        line += f", and says {report.answer} ({signed(why.argument)})"
    return line


def _kept(report: AnswerReport) -> str:
    return (
        f"{_parts(report)} keep {_share(report.kept)} of what attention adds to log p (p "
        f"{two_digits(report.chance_kept)}); without them {_share(report.removed)} (p "
        f"{two_digits(report.chance_removed)}); of {report.drawn} random sets of these sizes "
        f"{report.as_good} keep as much"
    )


def _parts(report: AnswerReport) -> str:
    heads, tokens = len(report.heads), len(report.tokens)
    return (
        f"{heads} head{'s' if heads != 1 else ''} of {report.all_heads} and {tokens} "
        f"token{'s' if tokens != 1 else ''} of {report.all_tokens}"
    )


def _no_set(report: AnswerReport) -> str:
    return f"of heads and tokens gives this answer: {_kept(report)}"


def answer_table(report: AnswerReport, show: Display, *, verbose: bool = False) -> str:
    """A line for each claim."""
    parts: list[Any] = wrap_text(printable(report.caption), show.width, "bold")
    parts.append(Text())
    for claim in sentences_of(report, verbose=verbose):
        lines = wrap_text(printable(claim.text), max(show.width - LABEL - 2, 20))
        for number, line in enumerate(lines):
            name = set_cell_size("" if number else claim.about, LABEL)
            parts.append(Text(f"{name}  ", style="bold").append(line.plain, "not bold"))
    how = (
        f"heads that are off put out {report.reference}; tokens that are off are hidden from others"
    )
    parts += [Text(), *wrap_text(f"{how}; {report.runs} runs", show.width, "dim")]
    return render_parts(parts, show)


def answer_document(report: AnswerReport) -> dict[str, Any]:
    """The report as a JSON object, with its claims in words."""
    found = asdict(report)
    found["idle"] = None if report.idle is None else _claim_document(report.idle)
    found["heads"] = [_claim_document(claim) for claim in report.heads]
    found["is_small"] = report.is_small
    found["claims"] = [one.document() for one in sentences_of(report)]
    return found


def _claim_document(claim: HeadClaim) -> dict[str, Any]:
    why = None if claim.why is None else why_document(claim.why)
    return {**asdict(claim), "why": why, "is_sure": claim.is_sure}


def answer_json(report: AnswerReport) -> str:
    """One document with every claim."""
    return report_json("answer", **answer_document(report))


def answer_tsv(report: AnswerReport) -> str:
    """A line for each number: what it is of, its name, another name, and the value."""
    lines: list[tuple[str, ...]] = [("part", "name", "other", "value"), *_rows(report)]
    return tsv(lines)


def _rows(report: AnswerReport) -> Iterator[tuple[str, ...]]:
    yield "answer", report.answer, "", all_digits(report.chance)
    if report.next_best:
        yield "next best", report.next_best[0], "", all_digits(report.next_best[1])
    for one in report.tokens:
        yield "token", _name(one), "", all_digits(one.effect)
    yield "other tokens", "", "", all_digits(report.others)
    for claim in report.heads:
        name = f"{claim.at.stream} {claim.at.layer}.{claim.at.head}"
        yield "head", name, "", all_digits(claim.effect)
        if claim.link:
            yield "link", name, " > ".join(claim.ends), all_digits(claim.link_effect)
    for part in ("kept", "removed", "chance_kept", "chance_removed"):
        yield part, "", "", all_digits(getattr(report, part))
    yield "random sets as good", str(report.drawn), "", str(report.as_good)
    if report.idle:
        at = report.idle.at
        yield "idle", f"{at.stream} {at.layer}.{at.head}", "", all_digits(report.idle.effect)


def answers_table(report: AnswersReport, show: Display) -> str:
    """Which heads carry most answers, then a line for each text."""
    count = len(report.answers)
    several = "s" if count != 1 else ""
    caption = f"{report.provenance.title} · answers to {count} text{several}"
    parts: list[Any] = [*wrap_text(printable(caption), show.width, "bold")]
    line = f"a small set of heads and tokens gives {report.small} of them"
    parts += wrap_text(line, show.width)
    parts += [Text(), Text("head          texts  effect in nats, mean", "dim")]
    main = report.answers[0].heads[0].at.stream if report.answers[0].heads else ""
    for at, texts, effect in report.heads[: show.rows or None]:
        name = set_cell_size(printable(_head(at, main)), 12)
        parts.append(Text(f"{name}  {texts:>5}  {_nats(effect):>6}"))
    parts += [Text(), Text("the answer to each text, what it needs, and what carries it", "dim")]
    for number, one in enumerate(report.answers):
        heads = " ".join(_head(claim.at, main) for claim in one.heads[:LINES])
        tokens = " ".join(_name(token) for token in one.tokens[:LINES])
        found = f"{tokens} · heads {heads}" if one.is_small else "no small set"
        line = f"{one.id or number}  {one.answer} {two_digits(one.chance)} ← {found}"
        line += f" · {_share(one.kept)} kept"
        parts.append(Text(shorten(printable(line), show.width)))
    return render_parts(parts, show)


def answers_tsv(report: AnswersReport) -> str:
    """A line for each number of each text; the first column is the text's id."""
    lines: list[tuple[str, ...]] = [("id", "part", "name", "other", "value")]
    for one in report.answers:
        lines += [(one.id, *row) for row in _rows(one)]
    return tsv(lines)


def answers_json(report: AnswersReport) -> str:
    """One document: the heads that carry most, and the report of each text."""
    heads = [{**asdict(at), "texts": texts, "effect": effect} for at, texts, effect in report.heads]
    return report_json(
        "answers",
        small=report.small,
        heads=heads,
        answers=[answer_document(one) for one in report.answers],
        notes=list(report.notes),
        provenance=asdict(report.provenance),
    )
