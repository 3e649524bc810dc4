"""Answers as text and data: what decided them, what restores them, and which passage they need."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from attnviz.core.effects import Effect, HeadAt, LinkAt
from attnviz.features.explain import report as answers
from attnviz.renderers import Display
from attnviz.renderers.data import tsv
from attnviz.renderers.printable import all_digits, printable, shorten, two_digits, with_sign
from attnviz.renderers.text.console import color_cell, introduction, render_parts, wrap_text
from attnviz.storage.columns import columns_of
from attnviz.storage.documents import report_json

LABEL = 14
LISTED = 6  # tokens and heads that one line names
LINES = 2  # heads with a line of their own
Link = tuple[str | int, ...] | None  # stream, layer, head, query and key of a claim


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
        """The sentence as the page has it."""
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


def _link_of(claim: answers.HeadClaim) -> Link:
    return (
        None
        if claim.link is None
        else (claim.at.stream, claim.at.layer, str(claim.at.head), *claim.link)
    )


def sentences_of(
    report: answers.AnswerReport, *, verbose: bool = False
) -> Iterator[AnswerSentence]:
    """Each claim in words, with the parts that it is about."""
    main = report.heads[0].at.stream if report.heads else ""
    streams = {claim.at.stream for claim in report.heads}
    main = main if len(streams) == 1 else ""
    answer = f'"{report.answer}"' if report.next_best else report.answer
    line = f"{answer} ({two_digits(report.chance)})"
    if report.next_best:
        line += f'; next best "{report.next_best[0]}" ({two_digits(report.next_best[1])})'
    if report.against:
        line += f'; the rest explains by how much it is likelier than "{report.against}"'
    yield AnswerSentence("The model says", line)
    if not report.heads:
        line = f"log p {'rises' if report.span < 0 else 'falls'} by {_nats(abs(report.span))} nats"
        line = f"by no head or token: if all heads put out their mean, {line}"
        yield AnswerSentence("Decided", line)
        return
    tokens = [(str(one.place["side"]), int(one.place["position"])) for one in report.tokens]
    whole = tuple(claim.at for claim in report.heads), tuple(tokens)
    if not report.is_small:
        yield AnswerSentence(
            "No small set",
            f"of heads and tokens gives this answer: {_kept_words(report)}",
            None,
            *whole,
        )
        if not verbose:
            return
    large = [one for one in report.tokens if not one.effect < answers.LITTLE][:LISTED]
    names = [f"{_name(one)} {_nats(one.effect)}" for one in (report.tokens if verbose else large)]
    rest = len(report.tokens) - len(names)
    needs = " · ".join([*names, *([f"{rest} more"] if rest else [])])
    line = f"{needs} nats; hiding all others" if needs else "no single token; hiding all of them"
    line += f" costs {_nats(report.others)} nats"
    yield AnswerSentence("It needs", line, tokens=whole[1])
    sure = [claim for claim in report.heads if claim.is_sure and (verbose or claim.link)]
    for number, claim in enumerate(sure if verbose else sure[:LINES]):
        about = "and by" if number else "Carried by"
        yield AnswerSentence(about, _carrier(claim, report, main), _link_of(claim), (claim.at,))
    others = [claim for claim in report.heads if claim not in sure[:LINES]]
    if others and not verbose:
        line = "heads" if len(others) > 1 else "head"
        line += f" {_names(others, main)} too, whose own effect is small or not clear"
        yield AnswerSentence("The set holds", line, heads=tuple(claim.at for claim in others))
    unsure = [claim for claim in report.heads if not claim.is_sure]
    if unsure and verbose:
        line = f"{_names(unsure, main)}: replacements of their output disagree on the effect"
        yield AnswerSentence("Not clear", line, heads=tuple(claim.at for claim in unsure))
    yield AnswerSentence("Kept alone", _kept_words(report), None, *whole)
    yield AnswerSentence("Its links", _links(report.links, main), None, *whole)
    if report.idle is not None:
        idle, (start, end) = report.idle, report.idle.ends
        line = (
            f"head {idle.at.name(main)} looks from {start} to {end} with weight "
            f"{two_digits(idle.weight)} and does nothing ({_nats(idle.effect)} nats)"
        )
        yield AnswerSentence("Not involved", line, _link_of(idle), (idle.at,))


def _names(claims: Sequence[answers.HeadClaim], main: str) -> str:
    return " · ".join(claim.at.name(main) for claim in claims[:LISTED])


def _carrier(claim: answers.HeadClaim, report: answers.AnswerReport, main: str) -> str:
    line = f"head {claim.at.name(main)} (effect {_nats(claim.effect)} nats)"
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
            f", because its score is {with_sign(why.contrast)} above the mean, of which "
            f"{kind}{first.writer} wrote {with_sign(first.value)} into {claim.ends[1]}"
        )
    agrees = why.predicted is not None and why.predicted[0] == report.answer
    if agrees and why.argument is not None and why.argument > 0:
        line += f"; it argues for {report.answer} ({with_sign(why.argument)})"
    return line


def _kept_words(report: answers.AnswerReport) -> str:
    heads, tokens = len(report.heads), len(report.tokens)
    return (
        f"{heads} head{'s' if heads != 1 else ''} of {report.all_heads} and {tokens} "
        f"token{'s' if tokens != 1 else ''} of {report.all_tokens} keep {_share(report.kept)} of "
        "what attention adds to log p (p "
        f"{two_digits(report.chance_kept)}); without them {_share(report.removed)} is left (p "
        f"{two_digits(report.chance_removed)}); of {report.drawn} random sets of these sizes "
        f"{_keep(report.as_good)} as much"
    )


def _links(links: answers.LinkSet | None, main: str) -> str:
    if links is None:
        return "no small set keeps the answer"
    names = [
        f"{' → '.join(ends)} ({HeadAt(at.stream, at.layer or '', at.head or 0).name(main)})"
        for at, ends in list(zip(links.links, links.ends, strict=True))[:LISTED]
    ]
    rest = len(links.links) - len(names)
    one = len(links.links) == 1
    return (
        f"{' · '.join(names)}{f' · {rest} more' if rest else ''}: "
        f"{'this one' if one else f'these {len(links.links)}'} of {links.of} "
        f"keep{'s' if one else ''} {_share(links.kept)} if all weight goes there; without "
        f"{'it' if one else 'them'} {_share(links.removed)} is left; of {links.drawn} random sets "
        f"{_keep(links.as_good)} as much"
    )


def _keep(count: int) -> str:
    return f"{count or 'none'} keep{'s' if count < 2 else ''}"


def answer_table(report: answers.AnswerReport, show: Display, *, verbose: bool = False) -> str:
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


def answer_document(report: answers.AnswerReport) -> dict[str, Any]:
    """The report as a JSON object, with its claims in words."""
    document = asdict(report)
    document["idle"] = None if report.idle is None else _claim_document(report.idle)
    document["heads"] = [_claim_document(claim) for claim in report.heads]
    document["is_small"] = report.is_small
    document["claims"] = list(map(_sentence_document, sentences_of(report)))
    return document


def _sentence_document(one: AnswerSentence) -> dict[str, Any]:
    names = "stream", "layer", "head", "query", "key"
    link = one.link and dict(
        zip(names, (*one.link[:2], int(one.link[2]), *one.link[3:]), strict=True)
    )
    tokens = [{"side": side, "position": position} for side, position in one.tokens]
    return {
        "about": one.about,
        "text": one.text,
        "link": link,
        "heads": one.heads,
        "tokens": tokens,
    }


def _claim_document(claim: answers.HeadClaim) -> dict[str, Any]:
    why = None if claim.why is None else claim.why.document()
    return {**asdict(claim), "why": why, "is_sure": claim.is_sure}


def answer_json(report: answers.AnswerReport) -> str:
    return report_json("answer", **answer_document(report))


def answer_tsv(report: answers.AnswerReport) -> str:
    """A line for each number: what it is of, its name, another name, and the value."""
    lines: list[tuple[str, ...]] = [columns_of("answer"), *_rows(report)]
    return tsv(lines)


def _rows(report: answers.AnswerReport) -> Iterator[tuple[str, ...]]:
    for part, at, *rest in _parts_of(report):
        place = ("", "", "") if at is None else (at.stream, at.layer or "", str(at.head))
        yield part, *place, *rest


def _parts_of(
    report: answers.AnswerReport,
) -> Iterator[tuple[str, HeadAt | LinkAt | None, str, str, str]]:
    """What each number is of, its head, its name, another name, and the number."""
    yield "answer", None, report.answer, "", all_digits(report.chance)
    if report.next_best:
        yield "next best", None, report.next_best[0], "", all_digits(report.next_best[1])
    for one in report.tokens:
        yield "token", None, _name(one), "", all_digits(one.effect)
    yield "other tokens", None, "", "", all_digits(report.others)
    for claim in report.heads:
        yield "head", claim.at, "", "", all_digits(claim.effect)
        if claim.link:
            yield "link", claim.at, "", " > ".join(claim.ends), all_digits(claim.link_effect)
    for part in ("kept", "removed", "chance_kept", "chance_removed"):
        yield part, None, "", "", all_digits(getattr(report, part))
    if report.links:
        for link, ends in zip(report.links.links, report.links.ends, strict=True):
            yield "needed link", link, "", " > ".join(ends), ""
        yield "links kept", None, "", str(report.links.of), all_digits(report.links.kept)
        yield "links removed", None, "", "", all_digits(report.links.removed)
        good = str(report.links.as_good)
        yield "random links as good", None, str(report.links.drawn), "", good
    yield "random sets as good", None, str(report.drawn), "", str(report.as_good)
    if report.idle:
        yield "idle", report.idle.at, "", "", all_digits(report.idle.effect)


def answers_table(report: answers.AnswersReport, show: Display) -> str:
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
        name = set_cell_size(printable(at.name(main)), 12)
        parts.append(Text(f"{name}  {texts:>5}  {_nats(effect):>6}"))
    parts += [Text(), Text("the answer to each text, what it needs, and what carries it", "dim")]
    for number, one in enumerate(report.answers):
        heads = " ".join(claim.at.name(main) for claim in one.heads[:LINES])
        tokens = " ".join(_name(token) for token in one.tokens[:LINES])
        evidence = f"{tokens} · heads {heads}" if one.is_small else "no small set"
        line = f"{one.id or number}  {one.answer} {two_digits(one.chance)} ← {evidence}"
        line += f" · {_share(one.kept)} kept"
        parts.append(Text(shorten(printable(line), show.width)))
    return render_parts(parts, show)


def answers_tsv(report: answers.AnswersReport) -> str:
    """A line for each number of each text; the first column is the text's id."""
    lines: list[tuple[str, ...]] = [columns_of("answers")]
    for one in report.answers:
        lines += [(one.id, *row) for row in _rows(one)]
    return tsv(lines)


def answers_json(report: answers.AnswersReport) -> str:
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


ANSWERS = answers_table, answers_tsv, answers_json
RESTORED = 8
CONTRAST_READING = (
    "the model reads the second text, but heads put out what they put out for the first: the "
    "share of the first text's answer that comes back (0: none, 1: all)"
)


def contrast_lines(report: answers.ContrastReport) -> list[str]:
    """Each text with its answer, and how well the estimates agree with what was measured."""
    lines = [
        f'"{shorten(text, 60)}" → {answer}; log p of {report.answers[0]} '
        + f"minus that of {report.answers[1]}: {score:.1f}".replace("-", "−")
        for text, answer, score in zip(report.texts, report.answers, report.scores, strict=True)
    ]
    if report.agreement is not None:
        lines.append(
            "first-order estimates: rank correlation "
            f"{_share(report.agreement)} with the measured shares of heads"
        )
    return lines


def contrast_table(report: answers.ContrastReport, show: Display) -> str:
    """The heads that restore most, their rows, and all layers by position."""
    parts: list[Any] = introduction(printable(report.caption), CONTRAST_READING, show.width)
    for line in contrast_lines(report):
        parts += wrap_text(printable(line), show.width)
    alone = len({one.stream for one in report.layers}) == 1
    bracket = "" if report.agreement is None else " (in brackets the estimate)"
    parts.append(Text())
    for label, parts_of_kind in (
        (f"heads, at every position{bracket}", report.heads),
        ("heads, at one position", report.rows),
        ("links", report.links),
    ):
        names = " · ".join(
            f"{one.name(alone=alone)} {_share(one.share)}"
            + ("" if one.estimate is None else f" ({_share(one.estimate)})")
            for one in parts_of_kind[:RESTORED]
        )
        parts += wrap_text(printable(f"{label}: {names}"), show.width) if parts_of_kind else []
    parts += [Text(), Text("all heads of a layer, at one position", "dim")]
    for stream in dict.fromkeys(one.stream for one in report.layers):
        parts += _grid([one for one in report.layers if one.stream == stream], stream, alone=alone)
    return render_parts(parts, show)


def _grid(cells: list[answers.Restored], stream: str, *, alone: bool) -> list[Text]:
    """A line for each position, with the share of each layer."""
    layers = [*dict.fromkeys(one.layer for one in cells)]
    tokens = {one.position: printable(one.token) for one in cells}
    wide = min(max(*map(cell_len, tokens.values()), 5), 24)
    head = set_cell_size("layer" if alone else stream, wide)
    lines = [Text(head + "".join(f"{layer:>6}" for layer in layers), "dim")]
    for position, token in tokens.items():
        line = Text(set_cell_size(shorten(token, wide), wide))
        for one in cells:
            if one.position == position:
                line.append(" ").append_text(
                    color_cell(f"{_share(one.share):>5}", one.share, (-1, 1))
                )
        lines.append(line)
    return lines


def contrast_tsv(report: answers.ContrastReport) -> str:
    """A line for each head, head at a position, layer at a position, and link."""
    names = ("stream", "layer", "head", "position", "token", "key", "key_token")
    lines: list[tuple[str, ...]] = [columns_of("contrast")]
    for one in (*report.heads, *report.rows, *report.layers, *report.links):
        values = ("" if x is None else str(x) for x in (getattr(one, name) for name in names))
        estimate = "" if one.estimate is None else all_digits(one.estimate)
        lines.append((*values, all_digits(one.share), estimate))
    return tsv(lines)


CONTRAST = contrast_table, contrast_tsv, "contrast"
