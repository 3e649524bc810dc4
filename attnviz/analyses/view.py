"""Texts of two parts: a sentence pair cut into its four quarters, and where an output begins.

The provenance of such a text says at which character its second part begins, so that a saved map
can be cut as well as a fresh one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from attnviz.analyses.entropy import mean_entropy
from attnviz.analyses.links import sharpest, strongest_links
from attnviz.analyses.select import reduce_map
from attnviz.core.attention_map import (
    DECISION,
    PARTS,
    SECOND_PART,
    Attention,
    AttentionMap,
    Token,
    check_single_tokens,
)
from attnviz.core.measures import HeadLine, Link, View
from attnviz.core.registry import LENSES

if TYPE_CHECKING:
    from numpy.typing import NDArray

PAIR_STREAMS = ("a-to-a", "a-to-b", "b-to-a", "b-to-b")
"""Which text of a pair attends to which."""


def second_part(attention: Attention, tokens: Sequence[Token], side: str) -> int | None:
    """The first token of the second part of a text; None where the text is in one piece.

    Special tokens between the parts belong to the first.

    Args:
        attention: whose provenance says where the second part begins.
        tokens: the tokens of one axis.
        side: the text that their offsets refer to.
    """
    start = attention.provenance.settings.get(SECOND_PART)
    if start is None or side != "text":
        return None
    places = (place for place, token in enumerate(tokens) if _covers(token, int(start)))
    return next(places, None)


def divisions(attention: Attention, item: AttentionMap) -> tuple[int | None, int | None]:
    """The first row and the first column of the second part, None where there is none."""
    return (
        second_part(attention, item.query_tokens, item.query_side),
        second_part(attention, item.key_tokens, item.key_side),
    )


def is_pair(attention: Attention) -> bool:
    """True for two texts that were read as one sequence."""
    return attention.provenance.settings.get(PARTS) == "pair"


def pair_stream(attention: Attention, stream: str) -> Attention:
    """One quarter of a sentence pair's attention, with offsets into the text it is of.

    Rows sum to what they give to that text.

    Args:
        attention: of a pair read as one sequence.
        stream: "a-to-a", "a-to-b", "b-to-a" or "b-to-b".

    """
    settings, text = attention.provenance.settings, attention.text or ""
    start = int(settings[SECOND_PART])
    sides = {"a": "source", "b": "target"}
    maps = []
    for item in attention.maps:
        check_single_tokens(item, f"--stream {stream}")
        rows, queries = _part(item.query_tokens, start, stream[0])
        columns, keys = _part(item.key_tokens, start, stream[-1])
        maps.append(
            item.with_weights(
                item.weights[:, :, rows, columns],
                stream=stream,
                query_tokens=queries,
                key_tokens=keys,
                query_side=sides[stream[0]],
                key_side=sides[stream[-1]],
            )
        )
    kept = {name: value for name, value in settings.items() if name not in (SECOND_PART, PARTS)}
    return replace(
        attention,
        maps=tuple(maps),
        provenance=replace(attention.provenance, settings=kept),
        text=None,
        source=text[: start - 1],
        target=text[start:],
    )


def _part(tokens: Sequence[Token], start: int, which: str) -> tuple[slice, tuple[Token, ...]]:
    """Where one part's tokens stand, and the tokens with offsets into its own text."""
    first = next(place for place, token in enumerate(tokens) if _covers(token, start))
    if which == "a":
        return slice(0, first), tuple(tokens[:first])
    moved = (replace(t, start=max(t.start - start, 0), end=max(t.end - start, 0)) for t in tokens)
    return slice(first, None), tuple(moved)[first:]


def _covers(token: Token, start: int) -> bool:
    return not token.special and token.end > token.start >= start


# <head_line> One head in a line: what its keys receive, what it does most, and how spread it is.

CLEAR = 0.5
"""A pattern is named where it holds at least half of the attention of an average row."""


def head_lines(item: AttentionMap) -> tuple[HeadLine, ...]:
    """A line for each head of a map's first layer."""
    entropies = (
        np.full(len(item.heads), np.nan) if item.is_pooled else mean_entropy(item.weights)[0]
    )
    lines = []
    for place, head in enumerate(item.heads):
        layer = item.layers[0]
        links = tuple(link for link in item.links if (link.layer, link.head) == (layer, head))
        one = item.with_weights(
            item.weights[:1, place : place + 1], layers=(layer,), heads=(head,), links=links
        )
        pattern, weight = describe(one)
        profile = one.weights[0, 0].mean(axis=0, dtype=np.float64)
        lines.append(HeadLine(head, profile, pattern, weight, float(entropies[place])))
    return tuple(lines)


def describe(item: AttentionMap) -> tuple[str, float]:
    """What one head does most, in words, and the share of attention that this holds.

    The previous and the next token, the token itself, or one key that most rows look at; where none
    of these is clear, the sharpest link.
    """
    weights = item.weights[0, 0]
    # Blocks next to each other say nothing of tokens next to each other.
    tokenwise = item.values == "share" and not item.is_pooled
    candidates = _patterns(weights, item) if tokenwise else []
    if candidates:
        pattern, share = max(candidates, key=lambda candidate: candidate[1])
        if share >= CLEAR:
            return pattern, share
    link = sharpest(item)
    return (f"{link.query} → {link.key}", link.weight) if link else ("", 0.0)


def _patterns(weights: NDArray[np.float32], item: AttentionMap) -> list[tuple[str, float]]:
    queries, keys = weights.shape
    found: list[tuple[str, float]] = []
    if queries > 2:
        received = weights.mean(axis=0)
        column = int(received.argmax())
        found.append((f"every token → {item.key_tokens[column].text}", float(received[column])))
    if queries == keys > 2 and item.query_side == item.key_side:
        # N - 1 rows have a token before them, N - 1 one after, N themselves.
        found.append(("each → the one before", float(np.diagonal(weights, -1).mean())))
        found.append(("each → the one after", float(np.diagonal(weights, 1).mean())))
        found.append(("each → itself", float(np.diagonal(weights).mean())))
    return found


# <view> What a reader should see first: one matrix, said in words, with the heads behind it.


def views(attention: Attention, every_layer: bool = False, top: int = 1) -> list[View]:
    """The matrices to show for one text.

    Of the main stream: the layer and head that the source puts in focus, else the mean over the
    heads of the last layer, and never without a line for each head.

    Args:
        attention: the maps of one text.
        every_layer: a view for each layer, because the reader chose them.
        top: how many of the stream's strongest links come along.

    Through every lens at once, a view for each lens.
    """
    if "lens all" in attention.provenance.steps:
        return [
            _view(attention, item, item.layers[-1], tuple(strongest_links(item, max(top, 1))), top)
            for item in attention.maps
        ]
    item = attention.main
    focus = attention.provenance.focus.get(item.stream)
    layers = list(item.layers)
    if not every_layer:
        layers = [focus.layer if focus and focus.layer in layers else layers[-1]]
    links = tuple(strongest_links(item, max(top, 1)))
    return [_view(attention, item, layer, links, top) for layer in layers]


def _view(
    attention: Attention, item: AttentionMap, layer: str, links: tuple[Link, ...], top: int
) -> View:
    place = item.layers.index(layer)
    of_layer = item.with_weights(
        item.weights[place : place + 1],
        layers=(layer,),
        links=tuple(link for link in item.links if link.layer == layer),
    )
    shown, which = _matrix(attention, of_layer)
    many = len(item.heads) > 1
    run = describe_run(attention, item)
    return View(
        map=shown,
        caption=f"{run} · {which}",
        orientation=orientation(item),
        heads=head_lines(of_layer) if many else (),
        strongest=links[0] if links and (many or len(item.layers) > 1) else None,
        run=run,
        which=which,
        links=links[:top],
    )


def _matrix(attention: Attention, item: AttentionMap) -> tuple[AttentionMap, str]:
    """One matrix out of one layer, and which it is in words."""
    layer = item.layers[0]
    focus = attention.provenance.focus.get(item.stream)
    if len(item.heads) == 1 and layer in LENSES:
        return item, f"through all layers, {_named('head', item.heads[0])}"
    if len(item.heads) == 1:
        return item, f"{_named('layer', layer)} {_named('head', item.heads[0])}"
    if focus and focus.layer == layer and focus.head in item.heads:
        head = item.heads.index(focus.head)
        shown = item.with_weights(item.weights[:, head : head + 1], heads=(focus.head,))
        return shown, f"layer {layer} head {focus.head} ({focus.why})"
    return reduce_map(item, "mean", "heads"), f"mean over the heads of {_named('layer', layer)}"


def _named(what: str, name: str) -> str:
    """Such as "layer 3", or for a reduced axis "mean over layers"."""
    return f"{what} {name}" if name[:1].isdecimal() else f"{name} over {what}s"


def describe_run(attention: Attention, item: AttentionMap) -> str:
    """What was run, in one line: model, stream and, where there are several, layers and heads."""
    provenance = attention.provenance
    parts = [provenance.title, item.stream]
    parts += [step for step in provenance.steps if step.startswith(("lens ", "special "))]
    if provenance.settings.get(PARTS) == "prompt and output":
        counts = (provenance.settings.get(f"{part} tokens") for part in ("prompt", "output"))
        parts.append("{} tokens read, {} written".format(*counts))
    if DECISION in provenance.settings:
        parts.append(f"decides {provenance.settings[DECISION]}")
    if item.is_pooled:
        parts.append(f"blocks of {' × '.join(map(str, dict.fromkeys(item.blocks)))} tokens")
    layers, heads = len(item.layers), len(item.heads)
    if layers * heads > 1:
        parts.append(f"{layers} layer{'s' * (layers > 1)} × {heads} head{'s' * (heads > 1)}")
    return " · ".join(parts)


def orientation(item: AttentionMap) -> str:
    """Who attends to whom, in one line."""
    if item.values == "signed" and item.query_side != item.key_side:
        return f"rows ({item.query_side}) against columns ({item.key_side})"
    if item.query_side == "output":
        return f"the row is what is predicted, columns ({item.key_side}) what speaks for it"
    if item.query_side == item.key_side:
        return "rows attend to columns"
    return f"rows ({item.query_side}) attend to columns ({item.key_side})"


MOST_SIDE_BY_SIDE = 8
"""Heads that can be told apart by colour."""


def few_heads(attention: Attention) -> tuple[AttentionMap, str]:
    """The main map where it has at most eight heads, else the matrix to see first; and its title.

    Args:
        attention: the maps of one text.
    """
    item = attention.main
    layers, heads = item.weights.shape[:2]
    if 1 < layers * heads <= MOST_SIDE_BY_SIDE:
        chosen = " · ".join(
            f"{what}s {', '.join(names)}" if len(names) > 1 else _named(what, names[0])
            for what, names in (("layer", item.layers), ("head", item.heads))
        )
        return item, f"{describe_run(attention, item)} · {chosen}"
    view = views(attention)[0]
    return view.map, view.caption


def sides(item: AttentionMap) -> str:
    """Which side attends to which, in one line."""
    if item.values == "signed" and item.query_side != item.key_side:
        return f"left ({item.query_side}) against right ({item.key_side})"
    if item.query_side == "output":
        return f"left is what is predicted, right ({item.key_side}) what speaks for it"
    if item.query_side == item.key_side:
        return "left attends to right"
    return f"left ({item.query_side}) attends to right ({item.key_side})"
