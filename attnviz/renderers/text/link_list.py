"""The strongest links, one a line, for people, grep and sort."""

from collections import Counter
from collections.abc import Iterator, Sequence

from attnviz.core.attention_map import Attention, AttentionMap, Token
from attnviz.core.measures import Link, format_weight
from attnviz.core.notices import notify
from attnviz.core.registry import axis_name
from attnviz.renderers import Views
from attnviz.renderers.printable import printable
from attnviz.renderers.text.console import TextRenderer


class LinksRenderer(TextRenderer):
    """Lines such as "published → professor 0.28 layer 5 head 3", strongest first."""

    def add(self, attention: Attention, views: Views) -> str:
        """The links of one text's main map, each behind the text's id where several may come."""
        item = attention.main
        before = f"{printable(attention.id)}: " if self.display.many else ""
        signed = item.values == "signed"
        lines = []
        for link, query, key in name_links(item, views.links):
            if link.weight:
                weight = format_weight(link.weight, signed=signed)
                lines.append(f"{before}{query} → {key} {weight} {place_of(link)}\n")
        if views.links and not lines:
            notify("no link between two tokens has any weight: -f links lists none")
        return "".join(lines)


def name_links(item: AttentionMap, links: Sequence[Link]) -> Iterator[tuple[Link, str, str]]:
    """Each link with the names of its query and its key; those in blocks have a position too."""
    if item.is_pooled:
        for link in links:
            ends = (link.query, link.query_position), (link.key, link.key_position)
            query, key = (f"{printable(text)}[{position}]" for text, position in ends)
            yield link, query, key
        return
    queries, keys = (
        name_tokens(item.query_tokens, item.starts[0]),
        name_tokens(item.key_tokens, item.starts[1]),
    )
    for link in links:
        yield link, queries[link.query_position], keys[link.key_position]


def name_tokens(tokens: Sequence[Token], start: int = 0) -> list[str]:
    """The name of each token: its text, with its position if the text is not unique."""
    count = Counter(token.text for token in tokens)
    return [
        printable(token.text) + (f"[{position}]" if count[token.text] > 1 else "")
        for position, token in enumerate(tokens, start)
    ]


def place_of(link: Link) -> str:
    """The place of a link: "layer 5 head 3", "layer 5 mean over heads"."""
    return " ".join(
        printable(axis_name(what, name))
        for what, name in (("layer", link.layer), ("head", link.head))
    )
