"""The page as a notebook widget, which sends the reader's selection back to Python."""

from __future__ import annotations

from typing import Any

import anywidget
import traitlets

SCRIPT = """
export default {
  render({ model, el }) {
    const frame = document.createElement("iframe");
    frame.sandbox = "allow-scripts allow-downloads";
    frame.title = "attention";
    frame.style = "border:0;border-radius:8px;color-scheme:normal;width:100%;height:680px";
    frame.srcdoc = model.get("page");
    const heard = (event) => {
      if (event.source !== frame.contentWindow || !event.data?.attnviz) return;
      model.set("selection", event.data.attnviz);
      model.save_changes();
    };
    addEventListener("message", heard);
    el.replaceChildren(frame);
    return () => removeEventListener("message", heard);
  },
};
"""


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
