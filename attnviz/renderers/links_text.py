"""The strongest links, one a line: for the eye, for grep and for sort."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from attnviz.attention_map import Attention, Token
from attnviz.measures import Link
from attnviz.renderers import Display, Views
from attnviz.renderers.printable import printable


class LinksRenderer:
    """Lines such as "published → professor 0.28 layer 5 head 3", strongest first."""

    def __init__(self, display: Display) -> None:
        self.display = display

    def add(self, attention: Attention, views: Views) -> str:
        """The links of one text's main map, behind the text's id where several may come."""
        item = attention.main
        queries, keys = names(item.query_tokens), names(item.key_tokens)
        before = f"{printable(attention.id)}: " if self.display.many else ""
        signed = item.values == "signed"
        return "".join(
            f"{before}{queries[link.query_position]} → {keys[link.key_position]} "
            f"{amount(link.weight, signed)} {place(link)}\n"
            for link in views()[0].links
            if link.weight
        )

    def finish(self) -> str:
        """Nothing more."""
        return ""


def names(tokens: Sequence[Token]) -> list[str]:
    """What each token is called: its text, and its position too where the text is not unique."""
    count = Counter(token.text for token in tokens)
    return [
        printable(token.text) + (f"[{position}]" if count[token.text] > 1 else "")
        for position, token in enumerate(tokens)
    ]


def amount(weight: float, signed: bool = False) -> str:
    """Two decimals, or two digits where these would be zeros; a sign where it means something."""
    size = abs(weight)
    text = f"{size:.2f}" if size >= 0.095 else f"{size:.2g}"
    return ("-" if weight < 0 else "+" if signed else "") + text


def place(link: Link) -> str:
    """Where a link was found: "layer 5 head 3", "layer 5 mean over heads"."""
    return " ".join(
        f"{what} {printable(name)}" if name[:1].isdecimal() else f"{printable(name)} over {what}s"
        for what, name in (("layer", link.layer), ("head", link.head))
    )
