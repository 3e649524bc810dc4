"""The strongest links, one a line: for the eye, for grep and for sort."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from attnviz.core.attention_map import Attention, AttentionMap, Token
from attnviz.core.measures import Link
from attnviz.core.registry import axis_name
from attnviz.renderers import Views
from attnviz.renderers.printable import printable
from attnviz.renderers.text.console import TextRenderer


class LinksRenderer(TextRenderer):
    """Lines such as "published → professor 0.28 layer 5 head 3", strongest first."""

    def add(self, attention: Attention, views: Views) -> str:
        """The links of one text's main map, behind the text's id where several may come."""
        item = attention.main
        before = f"{printable(attention.id)}: " if self.display.many else ""
        signed = item.values == "signed"
        return "".join(
            f"{before}{query} → {key} {amount(link.weight, signed=signed)} {place(link)}\n"
            for link, query, key in named(item, views()[0].links)
            if link.weight
        )


def named(item: AttentionMap, links: Sequence[Link]) -> Iterator[tuple[Link, str, str]]:
    """Each link and what its tokens are called; those of blocks' links have their position too."""
    if item.is_pooled:
        for link in links:
            ends = (link.query, link.query_position), (link.key, link.key_position)
            query, key = (f"{printable(text)}[{position}]" for text, position in ends)
            yield link, query, key
        return
    queries, keys = names(item.query_tokens, item.starts[0]), names(item.key_tokens, item.starts[1])
    for link in links:
        yield link, queries[link.query_position], keys[link.key_position]


def names(tokens: Sequence[Token], start: int = 0) -> list[str]:
    """What each token is called: its text, and its position too where the text is not unique."""
    count = Counter(token.text for token in tokens)
    return [
        printable(token.text) + (f"[{position}]" if count[token.text] > 1 else "")
        for position, token in enumerate(tokens, start)
    ]


def amount(weight: float, *, signed: bool = False) -> str:
    """Two decimals, or two digits where these would be zeros; a sign where it means something."""
    size = abs(weight)
    text = f"{size:.2f}" if size >= 0.095 else f"{size:.2g}"
    return ("-" if weight < 0 else "+" if signed else "") + text


def place(link: Link) -> str:
    """Where a link was found: "layer 5 head 3", "layer 5 mean over heads"."""
    return " ".join(
        printable(axis_name(what, name))
        for what, name in (("layer", link.layer), ("head", link.head))
    )
