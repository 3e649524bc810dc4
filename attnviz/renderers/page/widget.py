"""The page as a notebook widget, which sends the reader's selection back to Python."""

from __future__ import annotations

from typing import Any

import anywidget
import traitlets

from attnviz.renderers.page.document import read_part

SCRIPT = read_part("widget.js")


class PageWidget(anywidget.AnyWidget):
    """A page in an iframe, and the reader's selection.

    Attributes:
        page: the HTML file; its frame may run its scripts and save files, and nothing else.
        selection: "stream", "view", "heads" (each with its "layer" and "head"), and the pinned
            "query" and "key" (each with its "position" and "token", or None); empty until the page
            is shown.
    """

    _esm = SCRIPT
    page = traitlets.Unicode().tag(sync=True)
    selection = traitlets.Dict().tag(sync=True)

    def __init__(self, page: str, selection: dict[str, Any]) -> None:
        super().__init__(page=page)
        self.observe(lambda change: selection.update(change["new"]), "selection")
