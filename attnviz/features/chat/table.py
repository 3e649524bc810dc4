"""The parts of a chat and who looks at them: a table, rows and JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from attnviz.features.chat.report import ChatHead, ChatPart, ChatReport
from attnviz.renderers import Display
from attnviz.renderers.data import tsv
from attnviz.renderers.printable import all_digits, printable, shorten, two_digits
from attnviz.renderers.text.console import (
    bar_of,
    column_widths,
    introduction,
    render_parts,
    shade_text,
    wrap_text,
)
from attnviz.storage.columns import columns_of

HEADS, KEYS, BAR = 5, 3, 20  # heads and parts that lines name, cells of the longest bar
TEXT, LONGEST = 24, 60  # cells that a row's text gets at least, and at most
NAME = 18  # cells of a part's name
READING = (
    "share: of the attention of {rows}; × even: that share over what an even look at all it sees "
    "would give"
)


def reading_line(report: ChatReport) -> str:
    """What looks, by which heads."""
    if report.has_answer:
        wrote = ", which the model wrote," if report.written else ""
        return f"{report.looks}{wrote} looks at …"
    return f"{report.looks}, and where an answer would begin, look at …"


def chat_table(report: ChatReport, show: Display) -> str:
    """The parts with their shares, what each row gives them, and the heads that differ most."""
    caption = f"{report.caption} · {report.heads_shown}"
    rows = f"{report.looks}'s {report.unit}" + ("" if report.has_answer else " and the next token")
    lines = introduction(printable(caption), printable(READING.format(rows=rows)), show.width)
    lines += [Text(printable(shorten(reading_line(report), show.width)), "bold")]
    lines += _part_lines(report, show)
    if report.first_token >= FIRST:
        first = f"the first token of the prompt alone gets {two_digits(report.first_token)}"
        lines += wrap_text(first, show.width, "dim")
    lines += [Text(), *_row_lines(report, show)]
    if len(report.heads) > 1:
        lines += [Text(), Text("heads that differ most from the mean", "bold")]
        lines += [one for head in report.heads[:HEADS] for one in _head_line(report, head, show)]
    for note in notes_of(report):
        lines += wrap_text(printable(note), show.width, "dim")
    if show.hints and len(report.heads) > 1:
        head = report.heads[0]
        hint = f"one head: --head {head.layer}.{head.head} · a picture: --picture FILE.png"
        lines += [Text(), *wrap_text(hint, show.width, "dim")]
    return render_parts(lines, replace(show, rows=0))


def notes_of(report: ChatReport) -> list[str]:
    """The notes on the chat. The notes on the model go to stderr."""
    return [one for one in report.notes if one not in report.provenance.notes]


FIRST = 0.1  # a line tells what the first token gets: at least so much


def _part_lines(report: ChatReport, show: Display) -> Iterator[Text]:
    """A line for each part: its length, its share, and how that compares with an even look."""
    names = [shorten(printable(one.name), NAME) for one in report.parts]
    cells = [("part", "tokens", "share", "× even")]
    cells += [
        (name, f"{one.tokens:,}", two_digits(one.share), times(one))
        for name, one in zip(names, report.parts, strict=True)
    ]
    widths = column_widths(cells)
    room = min(show.width - sum(widths) - 8, BAR)
    most = max(one.share for one in report.parts) or 1.0
    for number, row in enumerate(cells):
        columns = [row[0] + " " * (widths[0] - cell_len(row[0]))]
        columns += [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        line = Text("  ".join(columns), "" if number else "dim", no_wrap=True)
        if number and room > 0:
            line.append("  ").append(bar_of(report.parts[number - 1].share / most, room), "blue")
        yield line


def times(part: ChatPart) -> str:
    """How many times an even look, in two digits; empty where no row sees the part."""
    if part.over != part.over:
        return "–"
    return f"{part.over:.1f}" if part.over < 9.95 else f"{part.over:,.0f}"


def _row_lines(report: ChatReport, show: Display) -> Iterator[Text]:
    """The rows by parts; where the columns do not fit, each row with its largest parts."""
    headings = [_two_lines(one.name) for one in report.parts]
    widths = [max(4, *map(cell_len, pair)) for pair in headings]
    room = show.width - sum(widths) - 2 * len(widths)
    rows = report.rows[: show.rows or None]
    texts = [printable(" ".join(one.text.split())) for one in rows]
    longest = max(*map(cell_len, texts), len(report.unit)) if texts else 0
    if room < min(TEXT, longest):
        yield Text(f"{report.unit}, each with what it looks at most", "bold")
        for row, text in zip(rows, texts, strict=True):
            yield from _lists(report, shorten(text, LONGEST), row.shares, show)
    else:
        width = min(room, longest, LONGEST)
        for number in range(2):
            start = report.unit if number else ""
            cells = [pair[number].rjust(n) for pair, n in zip(headings, widths, strict=True)]
            yield Text("  ".join([start.ljust(width), *cells]), "dim", no_wrap=True)
        for row, text in zip(rows, texts, strict=True):
            line = Text(set_cell_size(shorten(text, width), width), no_wrap=True)
            for share, wide in zip(row.shares, widths, strict=True):
                line.append(" " * (wide - 2))
                line.append_text(shade_text(f" {two_digits(share):>3}", share, show))
            yield line
    more = show.more_rows_note(len(report.rows))
    if more:
        yield from wrap_text(more.strip(), show.width, "dim")


def _two_lines(name: str) -> tuple[str, str]:
    """A part's name over a column: "user" over "1"."""
    words = printable(name)
    first, _, last = words.rpartition(" ")
    return (first, last) if first and last.isdigit() else ("", shorten(words, NAME))


def _lists(report: ChatReport, text: str, shares: Sequence[float], show: Display) -> Iterator[Text]:
    """A row with the parts that get most of it."""
    order = sorted(range(len(shares)), key=lambda n: -shares[n])[:KEYS]
    largest = [
        f"{shorten(printable(report.parts[n].name), NAME)} {two_digits(shares[n])}" for n in order
    ]
    yield from wrap_text(f"{text} → {' · '.join(largest)}", show.width)


def _head_line(report: ChatReport, head: ChatHead, show: Display) -> Iterator[Text]:
    """A head with the parts in which it lies farthest from the mean."""
    gaps = [own - part.share for own, part in zip(head.shares, report.parts, strict=True)]
    order = sorted(range(len(gaps)), key=lambda n: -abs(gaps[n]))[:2]
    words = [
        f"{shorten(printable(report.parts[n].name), NAME)} {two_digits(head.shares[n])} "
        f"(mean {two_digits(report.parts[n].share)})"
        for n in order
    ]
    name = f"{head.layer}.{head.head}"
    for number, line in enumerate(wrap_text(" · ".join(words), show.width - 7, between=" · ")):
        yield Text(f"{'' if number else name:>5}  {line.plain}")


def chat_tsv(report: ChatReport) -> str:
    """A line for each part: of all rows together, of each row, then of each head."""
    lines: list[tuple[str, ...]] = [columns_of("chat")]
    every = [("all", "", [one.share for one in report.parts])]
    every += [(str(n), one.text, [*one.shares]) for n, one in enumerate(report.rows)]
    alone = report.heads[0] if len(report.heads) == 1 else None
    names = ("mean", "mean") if alone is None else (alone.layer, alone.head)
    for row, text, shares in every:
        for part, share in zip(report.parts, shares, strict=True):
            numbers = all_digits(share), all_digits(part.even)
            lines.append((*names, row, text, part.name, str(part.tokens), *numbers))
    for head in () if alone else report.heads:
        for part, share in zip(report.parts, head.shares, strict=True):
            numbers = all_digits(share), all_digits(part.even)
            lines.append((head.layer, head.head, "all", "", part.name, str(part.tokens), *numbers))
    return tsv(lines)


CHAT = chat_table, chat_tsv, "chat"
