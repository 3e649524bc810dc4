"""Attention as JSON: one document, a list of documents, or a document a line."""

from __future__ import annotations

from attnviz.attention_map import Attention
from attnviz.renderers import Display, Views
from attnviz.storage.document import to_document
from attnviz.storage.json import dump_json


class JsonLinesRenderer:
    """A document a line, a line a text."""

    def __init__(self, display: Display) -> None:
        self.display = display

    def add(self, attention: Attention, views: Views) -> str:
        """The text's line."""
        return dump_json(to_document(attention)) + "\n"

    def finish(self) -> str:
        """Nothing more."""
        return ""


class JsonRenderer:
    """One document for one text; for an input that may hold several, a list, however many came."""

    def __init__(self, display: Display) -> None:
        self.many = display.many
        self.count = 0

    def add(self, attention: Attention, views: Views) -> str:
        """The text's document, behind what joins it to the one before."""
        self.count += 1
        joint = ("[" if self.count == 1 else ",\n") if self.many else ""
        return joint + dump_json(to_document(attention)) + ("" if self.many else "\n")

    def finish(self) -> str:
        """The list's end."""
        if not self.many:
            return ""
        return "]\n" if self.count else "[]\n"
