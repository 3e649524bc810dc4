"""Which heads read which heads, as text, rows, JSON and arrays."""

import math
from dataclasses import asdict

import numpy as np
from rich.cells import cell_len, set_cell_size
from rich.text import Text

from attnviz.core.effects import HeadAt
from attnviz.features.wiring.report import WiringReport
from attnviz.renderers import Display
from attnviz.renderers.data import fields_of, npz_bytes, tsv
from attnviz.renderers.printable import all_digits, printable, two_digits
from attnviz.renderers.text.console import bar_of, introduction, more_note, render_parts, wrap_text
from attnviz.storage import columns, documents

BAR = 16

WIRING_READING = (
    "how much a head changes if its query, key or value cannot read what an earlier head wrote. "
    "Query and key: the share of its attention that moves; value: the share of its output that it "
    "loses. Norms keep the statistics of the full run"
)
COMPOSITION_READING = (
    "composition: how much of what one head writes the query, key or value of another head reads. "
    "It is computed from their matrices and the norms' scales; random matrices of the same shapes:"
)
WIRE_STYLES = {"query": "blue", "key": "red", "value": "green"}


def name_head(at: HeadAt, report: WiringReport) -> str:
    """A head's name, with its stream where there are several."""
    return at.name(at.stream if len({one.stream for one in report.heads}) == 1 else "")


def wiring_table(report: WiringReport, top: int, show: Display) -> str:
    """The strongest pairs, a line each."""
    reading = WIRING_READING
    if report.circuits:
        reading = f"{COMPOSITION_READING} {report.chance:.3f}"
    parts = introduction(printable(report.caption), reading, show.width)
    wires = report.wires[:top]

    def describe(at: HeadAt) -> str:
        role = report.roles.get(at)
        return printable(f"{name_head(at, report)} {role.label if role else ''}".rstrip())

    heads = [f"{describe(one.head)} {one.side}" for one in wires]
    writers = [describe(one.writer) for one in wires]
    widths = [max([*map(cell_len, column), 0]) for column in (heads, writers)]
    most = max((one.moved for one in wires), default=1.0) or 1.0
    ends = max((len("  .00 to .00") for one in wires if one.interval), default=0)
    bar = max(min(BAR, show.width - sum(widths) - ends - 11), 0)
    for one, head, writer in zip(wires, heads, writers, strict=True):
        names = (set_cell_size(name, w) for name, w in zip((head, writer), widths, strict=True))
        line = Text("  ←  ".join(names) + f"  {two_digits(one.moved)}", no_wrap=True)
        if one.interval:
            line.append(" {} to {}".format(*map(two_digits, one.interval)), "dim")
        line.append(f"  {bar_of(one.moved / most, bar)}", WIRE_STYLES[one.side])
        parts.append(line)
    parts += more_note(len(report.wires), top, show.width)
    circuits = [one for one in report.circuits if one.copying is not None]
    if circuits:
        circuits.sort(key=lambda one: -(one.copying or 0.0))
        copiers = " · ".join(
            f"{name_head(one.head, report)} {one.copying:.2f}" for one in circuits[:10]
        )
        parts += [Text(), *wrap_text(f"heads that copy most: {copiers}", show.width)]
    return render_parts(parts, show)


def wiring_tsv(report: WiringReport) -> str:
    lines: list[tuple[str, ...]] = [columns.columns_of("wiring")]
    for one in report.wires:
        head, writer = ((at.stream, at.layer, str(at.head)) for at in (one.head, one.writer))
        ends = map(all_digits, one.interval or (math.nan, math.nan))
        lines.append((*head, one.side, *writer, all_digits(one.moved), *ends))
    return tsv(lines)


def wiring_json(report: WiringReport) -> str:
    """One document with every pair, and the clear role of each head."""
    about = fields_of(report, f"caption texts wires{' chance' if report.circuits else ''} circuits")
    about["roles"] = [{**asdict(at), "role": role} for at, role in report.roles.items()]
    return documents.report_json("wiring", **about, **fields_of(report, "notes provenance"))


WIRING = wiring_table, wiring_tsv, wiring_json


def wiring_npz(report: WiringReport) -> bytes:
    """Arrays with an entry for each pair: "head" and "writer" by name, "side", "moved"."""
    wires = report.wires
    return npz_bytes(
        head=np.array([name_head(one.head, report) for one in wires], dtype=str),
        side=np.array([one.side for one in wires], dtype=str),
        writer=np.array([name_head(one.writer, report) for one in wires], dtype=str),
        moved=np.array([one.moved for one in wires]),
        attnviz=np.array(f"[{wiring_json(report).rstrip()}]"),
    )
