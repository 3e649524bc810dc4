"""What would be predicted after each layer, as a page."""

from attnviz.features.why.layers import lens_notes
from attnviz.features.why.report import LENS_READING, LayersReport, LensCell
from attnviz.renderers.colors import color_of, hex_of, ink_on
from attnviz.renderers.page.document import TABLE_FRAME
from attnviz.renderers.page.reports import escape_text, paragraphs, report_page
from attnviz.renderers.printable import printable, shorten, two_digits

STEPS = 20  # colours of probabilities; the page allows no style but that of its sheet
LETTERS = 18


def layers_page(report: LayersReport, command: str) -> str:
    """A table of layers by positions; a cell's title has the other likely tokens."""
    columns = report.columns
    heads = "".join(
        f'<th scope="col"><small>{one.position}</small><br>{_word(one.token)}</th>'
        for one in columns
    )
    rows = [
        f'<tr><th scope="row">{escape_text(cells[0].layer or "none")}</th>'
        + "".join(
            _cell(cell, is_first=cell.layer == one.settled)
            for one, cell in zip(columns, cells, strict=True)
        )
        + "</tr>"
        for cells in zip(*(one.cells for one in columns), strict=True)
    ]
    body = paragraphs([f"{LENS_READING}.", *report.notes])
    body += (
        f'{TABLE_FRAME}<table class="lens"><thead><tr><th scope="col">after layer</th>{heads}'
        f"</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
    )
    body += paragraphs(lens_notes(report, "outlined:"), "faint")
    return report_page(report.caption, body, command, _style())


def _cell(cell: LensCell, *, is_first: bool) -> str:
    token, p = cell.top[0]
    others = " · ".join(f"{printable(name)} {two_digits(share)}" for name, share in cell.top)
    names = f"p{round(p * STEPS)}" + (" settled" if is_first else "")
    return (
        f'<td class="{names}" title="{escape_text(others)}">{_word(token)} '
        f"<small>{two_digits(p)}</small></td>"
    )


def _word(text: str) -> str:
    """A token, apart from its neighbours where it is written from right to left."""
    return f"<bdi>{escape_text(shorten(text, LETTERS))}</bdi>"


def _style() -> str:
    grounds = [color_of(step / STEPS) for step in range(STEPS + 1)]
    colors = "".join(
        f".lens .p{step} {{ background: {hex_of(ground)}; color: {hex_of(ink_on(ground))}; }}\n"
        for step, ground in enumerate(grounds)
    )
    return (
        ".lens th, .lens td { padding: 4px 8px; text-align: center; }\n"
        ".lens td { border: 1px solid var(--paper); }\n"
        ".lens .settled { outline: 2px solid #d2691e; outline-offset: -2px; font-weight: 700; }\n"
        f"{colors}"
    )
