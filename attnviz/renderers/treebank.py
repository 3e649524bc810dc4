"""Heads that find syntactic relations: a table of the best, tab-separated rows, JSON."""

from __future__ import annotations

from dataclasses import asdict

from rich.text import Text

from attnviz.measures import Finding, Relation, TreebankReport
from attnviz.renderers import Display
from attnviz.renderers.console import paragraph, shown
from attnviz.renderers.csv import escape
from attnviz.renderers.measures_data import SCHEMA, plain
from attnviz.renderers.numerals import two_digits
from attnviz.renderers.printable import printable
from attnviz.storage.json import dump_json

FEWEST = 10
"""Relations with fewer cases are for data only: some head is right about them by luck."""


def treebank_table(report: TreebankReport, display: Display) -> str:
    """For each relation the best fixed offset and the best head either way, bold where it wins."""
    sentences = f"{report.sentences} sentence{'s' * (report.sentences != 1)}"
    parts = paragraph(printable(f"{report.caption} · {sentences}"), display.width, "bold")
    heads = len({(finding.layer, finding.head) for finding in report.findings})
    reading = (
        f"share of cases that the best of {heads} heads (layer.head) gets right, picked on these "
        "very sentences; bold: more often than the best fixed offset"
    )
    parts += [*paragraph(reading, display.width, "dim"), Text()]
    relations = [item for item in report.relations if item.count >= FEWEST] or report.relations
    name = max([8, *(len(printable(item.name)) for item in relations)])
    best = {toward: _best(report, toward) for toward in ("head", "dependent")}
    cell = max([9, *(len(_cell(item)) for found in best.values() for item in found.values())])
    titles = ("→ head", "→ depend.")
    header = f"{'relation'.ljust(name)} {'cases':>6}  {'offset':>7}"
    header += "".join(f"  {title.rjust(cell)}" for title in titles)
    parts.append(Text(header, style="dim", no_wrap=True))
    for relation in relations:
        parts.append(_line(relation, [found[relation.name] for found in best.values()], name, cell))
    few = len(report.relations) - len(relations)
    if few:
        what = "relation" if few == 1 else "relations"
        told = f"{few} {what} with fewer than {FEWEST} cases: -f tsv and -f json have them"
        parts += paragraph(told, display.width, "dim")
    return shown(parts, display)


def treebank_tsv(report: TreebankReport) -> str:
    """A line for each head, relation and direction."""
    relations = {relation.name: relation for relation in report.relations}
    columns = ("relation", "cases", "offset", "offset_share", "toward", "layer", "head", "share")
    lines = ["\t".join(columns)]
    for item in report.findings:
        of = relations[item.relation]
        known = (escape(of.name), str(of.count), str(of.offset), plain(of.by_offset))
        where = (item.toward, escape(item.layer), escape(item.head), plain(item.share))
        lines.append("\t".join((*known, *where)))
    return "\n".join(lines) + "\n"


def treebank_json(report: TreebankReport) -> str:
    """{"schema", "caption", "sentences", "relations": […], "findings": […], "provenance"}."""
    document = {
        "schema": SCHEMA,
        "kind": "treebank",
        "caption": report.caption,
        "sentences": report.sentences,
        "relations": [asdict(relation) for relation in report.relations],
        "findings": [asdict(finding) for finding in report.findings],
        "provenance": asdict(report.provenance),
        "notes": list(report.notes),
    }
    return dump_json(document) + "\n"


def _best(report: TreebankReport, toward: str) -> dict[str, Finding]:
    best: dict[str, Finding] = {}
    for finding in report.findings:
        if finding.toward == toward:
            best.setdefault(finding.relation, finding)
    return best


def _cell(finding: Finding) -> str:
    return f"{printable(finding.layer)}.{printable(finding.head)} {two_digits(finding.share)}"


def _line(relation: Relation, best: list[Finding], name: int, cell: int) -> Text:
    offset = f"{relation.offset:+d} {two_digits(relation.by_offset)}"
    line = Text(no_wrap=True)
    line.append(f"{printable(relation.name).ljust(name)} {relation.count:>6}  {offset:>7}")
    for finding in best:
        line.append("  ")
        line.append(
            _cell(finding).rjust(cell), style="bold" if finding.share > relation.by_offset else ""
        )
    return line
