"""What would be predicted after each layer, as a page."""

import html

from attnviz.core.writers import LENS_READING, LayersReport, LensCell
from attnviz.features.why.layers import lens_notes
from attnviz.renderers.colors import color_of, hex_of, ink_on
from attnviz.renderers.page.document import TABLE_FRAME, plain_page
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
        f'<tr><th scope="row">{_escape(cells[0].layer or "none")}</th>'
        + "".join(
            _cell(cell, is_first=cell.layer == one.settled)
            for one, cell in zip(columns, cells, strict=True)
        )
        + "</tr>"
        for cells in zip(*(one.cells for one in columns), strict=True)
    ]
    body = f"<p>{_escape(LENS_READING)}.</p>"
    body += "".join(f"<p>{_escape(line)}</p>" for line in report.notes)
    body += (
        f'{TABLE_FRAME}<table class="lens"><thead><tr><th scope="col">after layer</th>{heads}'
        f"</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
    )
    for line in lens_notes(report, "outlined:"):
        body += f'<p class="faint">{_escape(line)}</p>'
    body += f'<p class="faint"><code>{_escape(command)}</code></p>'
    return plain_page(printable(report.caption), body, _style())


def _cell(cell: LensCell, *, is_first: bool) -> str:
    token, p = cell.top[0]
    others = " · ".join(f"{printable(name)} {two_digits(share)}" for name, share in cell.top)
    names = f"p{round(p * STEPS)}" + (" settled" if is_first else "")
    return (
        f'<td class="{names}" title="{_escape(others)}">{_word(token)} '
        f"<small>{two_digits(p)}</small></td>"
    )


def _word(text: str) -> str:
    """A token, apart from its neighbours where it is written from right to left."""
    return f"<bdi>{_escape(shorten(text, LETTERS))}</bdi>"


def _escape(text: str) -> str:
    return html.escape(printable(text))


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
