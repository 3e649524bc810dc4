"""What a reader should see first: one matrix, said in words, with the heads behind it."""

from __future__ import annotations

from attnviz.analyses.head_line import head_lines
from attnviz.analyses.links import strongest_links
from attnviz.analyses.reduce import reduce_map
from attnviz.attention_map import DECISION, PARTS, Attention, AttentionMap
from attnviz.measures import Link, View
from attnviz.registry import LENSES


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
