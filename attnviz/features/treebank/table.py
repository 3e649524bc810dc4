"""Which head finds which relation, as a table and as data."""

from rich.text import Text

from attnviz.features.treebank.study import TOWARDS, Finding, TreebankReport
from attnviz.renderers import Display, data
from attnviz.renderers.printable import printable, six_digits, two_digits
from attnviz.renderers.text import console
from attnviz.storage.columns import columns_of

FEWEST = 10  # relations with fewer cases are left out: some heads are right by luck


def treebank_table(report: TreebankReport, display: Display) -> str:
    """Each relation's best fixed offset and best heads, bold if they are right more often."""
    sentences = "1 sentence" if report.sentences == 1 else f"{report.sentences} sentences"
    heads = len({(finding.layer, finding.head) for finding in report.findings})
    reading = (
        f"share of cases that the best of {heads} heads (layer.head) gets right, picked on these "
        "very sentences; bold: more often than the best fixed offset"
    )
    caption = printable(f"{report.caption} · {sentences}")
    parts = console.introduction(caption, reading, display.width)
    relations = [item for item in report.relations if item.count >= FEWEST] or report.relations
    name = max([8, *(len(printable(item.name)) for item in relations)])
    # Of findings in the order of their shares the first is the best.
    best = [
        {one.relation: one for one in reversed(report.findings) if one.toward == toward}
        for toward in TOWARDS
    ]
    cell = max([9, *(len(_cell(item)) for by_relation in best for item in by_relation.values())])
    header = f"{'relation'.ljust(name)} {'cases':>6}  {'offset':>7}"
    header += f"  {'→ head'.rjust(cell)}  {'→ depend.'.rjust(cell)}"
    parts.append(Text(header, style="dim", no_wrap=True))
    for relation in relations:
        offset = f"{relation.offset:+d} {two_digits(relation.by_offset)}"
        start = f"{printable(relation.name).ljust(name)} {relation.count:>6}  {offset:>7}"
        line = Text(start, no_wrap=True)
        for by_relation in best:
            finding = by_relation[relation.name]
            style = "bold" if finding.share > relation.by_offset else ""
            line.append("  ").append(_cell(finding).rjust(cell), style)
        parts.append(line)
    if few := len(report.relations) - len(relations):
        what = "relation" if few == 1 else "relations"
        note = f"{few} {what} with fewer than {FEWEST} cases: -f tsv and -f json have them"
        parts += console.wrap_text(note, display.width, "dim")
    return console.render_parts(parts, display)


def treebank_tsv(report: TreebankReport) -> str:
    """A line for each head, relation and direction."""
    relations = {relation.name: relation for relation in report.relations}
    lines = [columns_of("treebank")]
    for item in report.findings:
        of = relations[item.relation]
        about = (of.name, str(of.count), str(of.offset), six_digits(of.by_offset))
        lines.append((*about, item.toward, item.layer, item.head, six_digits(item.share)))
    return data.tsv(lines)


TREEBANK = treebank_table, treebank_tsv, "treebank"


def _cell(finding: Finding) -> str:
    return f"{printable(finding.layer)}.{printable(finding.head)} {two_digits(finding.share)}"
