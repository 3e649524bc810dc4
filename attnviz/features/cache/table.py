"""What a smaller cache costs, as a table by kind of text, as rows and as JSON."""

from __future__ import annotations

import math
from collections.abc import Iterator

from rich.cells import set_cell_size
from rich.text import Text

from attnviz.features.cache.report import CacheReport, HeadCost, RuleCost
from attnviz.renderers import Display
from attnviz.renderers.data import tsv
from attnviz.renderers.printable import all_digits, nats, printable, two_digits
from attnviz.renderers.text.console import column_widths, introduction, render_parts, wrap_text
from attnviz.storage.columns import columns_of

BAR, NAMED = 16, 3
"""Cells of the longest bar, and heads that a line names."""
HEADINGS = ("rule", "keys", "attention", "nats a token", "changed", "heads that keep least")
READING = (
    "keys: the share that a query sees; attention: the share, with all keys, that goes to these; "
    "nats a token: what the rule adds to the loss; changed: tokens for which the model would now "
    "choose another word"
)


def cache_table(report: CacheReport, show: Display) -> str:
    """A block for each kind of text, with a line for each rule."""
    parts = introduction(printable(report.caption), f"{report.prompt}; {READING}", show.width)
    most = max((abs(one.cost) for one in report.rules if math.isfinite(one.cost)), default=0) or 1.0
    for kind, full in report.full.items():
        own = [one for one in report.rules if one.kind == kind]
        name = f"{printable(kind)}: " if kind else ""
        count = f"{report.counted[kind]:,} token{'s' if report.counted[kind] != 1 else ''}"
        line = f"{name}loss with all keys {full:.2f} nats a token, {count}"
        parts += wrap_text(line, show.width, "bold")
        rows = [HEADINGS[:-1], *(_cells(one) for one in own)]
        widths = column_widths(rows)
        bar = max(min(BAR, show.width - sum(widths) - 2 * len(widths)), 0)
        for number, row in enumerate(rows):
            cells = [row[0].ljust(widths[0])]
            cells += [cell.rjust(n) for cell, n in zip(row[1:], widths[1:], strict=True)]
            row_line = Text("  ".join(cells), "dim" if not number else "", no_wrap=True)
            one = own[number - 1] if number else None
            size = round(abs(one.cost) / most * bar) if one and math.isfinite(one.cost) else 0
            color = "blue" if one and one.cost < 0 else "red"
            row_line.append("  ").append(set_cell_size("█" * size, bar), color)
            least = sorted(one.heads, key=lambda head: head.mass)[:NAMED] if one else []
            worst = (f"{head.layer}.{head.head} {two_digits(head.mass)}" for head in least)
            last = " · ".join(worst) if one else HEADINGS[-1]
            if show.width - row_line.cell_len - 2 >= len(last):
                row_line.append(f"  {last}", "dim")
            parts.append(row_line)
        for one in own:
            parts += _head_lines(one, show)
        parts.append(Text())
    for note in report.notes:
        parts += wrap_text(printable(note), show.width, "dim")
    return render_parts(parts, show)


def _cells(one: RuleCost) -> tuple[str, ...]:
    cost = nats(one.cost)
    if one.interval is not None:
        cost += f" [{nats(one.interval[0])}, {nats(one.interval[1])}]"
    return one.rule, two_digits(one.held), two_digits(one.mass), cost, two_digits(one.changed)


def _measured_heads(one: RuleCost) -> tuple[HeadCost, ...]:
    return one.heads if any(math.isfinite(head.cost) for head in one.heads) else ()


def _head_lines(one: RuleCost, show: Display) -> Iterator[Text]:
    """A line for each head, where it was measured alone."""
    if heads := _measured_heads(one):
        yield Text()
        yield from wrap_text(f"{one.rule} in one head alone", show.width)
    for head in heads:
        name = f"{head.layer}.{head.head}"
        yield Text(f"{name:>8}  attention {two_digits(head.mass)}  {nats(head.cost):>7}")


def cache_tsv(report: CacheReport) -> str:
    """A line for each kind and rule, with those of single heads below it if they were measured."""
    lines: list[tuple[str, ...]] = [columns_of("cache")]
    for one in report.rules:
        low, high = one.interval or (math.nan, math.nan)
        name, texts = (one.kind, one.rule), str(one.texts)
        numbers = map(all_digits, (one.held, one.mass, one.cost, low, high, one.changed))
        lines.append((*name, "", "", texts, *numbers))
        for head in _measured_heads(one):
            numbers = map(all_digits, (head.mass, head.cost))
            lines.append((*name, head.layer, str(head.head), texts, "", *numbers, "", "", ""))
    return tsv(lines)
