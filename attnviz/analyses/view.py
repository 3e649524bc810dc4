"""Texts of two parts: a sentence pair cut into its four quarters, and where an output begins.

The provenance of such a text says at which character its second part begins, so that a saved map
can be cut as well as a fresh one.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from attnviz.analyses import entropy, masks, select
from attnviz.analyses.word_links import LEAST_WORDS, WordLinks
from attnviz.core.attention_map import (
    AGREEMENT,
    IMPLIED,
    PARTS,
    SECOND_PART,
    SEVERAL,
    Attention,
    AttentionMap,
    Focus,
    HeadLine,
    Link,
    Token,
    View,
    check_single_tokens,
    known_mean,
    layer_of_call,
    stream_of_call,
)
from attnviz.core.errors import InputError
from attnviz.core.measures import format_weight
from attnviz.core.options import INDEXER
from attnviz.core.registry import LENSES, axis_name

PAIR_STREAMS = ("a-to-a", "a-to-b", "b-to-a", "b-to-b")  # which text of a pair attends to which


def second_part(attention: Attention, tokens: Sequence[Token], side: str) -> int | None:
    """The first token of a text's second part, behind special tokens; None: one piece."""
    if attention.parts is None or side != "text":
        return None
    start = attention.parts.start
    places = (place for place, token in enumerate(tokens) if _covers(token, start))
    return next(places, None)


def divisions(attention: Attention, item: AttentionMap) -> tuple[int | None, int | None]:
    """The first row and first column of the second text of a pair; None without one."""
    return (
        second_part(attention, item.query_tokens, item.query_side),
        second_part(attention, item.key_tokens, item.key_side),
    )


def is_pair(attention: Attention) -> bool:
    return attention.parts is not None and attention.parts.kind == "pair"


def pair_stream(attention: Attention, stream: str) -> Attention:
    """One quarter of a pair's attention (`PAIR_STREAMS`), with offsets into its text."""
    settings, text = attention.provenance.settings, attention.text or ""
    assert attention.parts is not None
    start = attention.parts.start
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
    others = {name: value for name, value in settings.items() if name not in (SECOND_PART, PARTS)}
    return replace(
        attention,
        maps=tuple(maps),
        provenance=replace(attention.provenance, settings=others),
        text=None,
        source=text[: start - 1],
        target=text[start:],
        parts=None,
    )


def _part(tokens: Sequence[Token], start: int, which: str) -> tuple[slice, tuple[Token, ...]]:
    first = next((place for place, token in enumerate(tokens) if _covers(token, start)), None)
    if first is None:
        raise InputError(f"no token stands for the second text, from character {start}")
    if which == "a":
        return slice(0, first), tuple(tokens[:first])
    shifts = (replace(t, start=max(t.start - start, 0), end=max(t.end - start, 0)) for t in tokens)
    return slice(first, None), tuple(shifts)[first:]


def _covers(token: Token, start: int) -> bool:
    has_place = token.end > token.start or token.is_unwritten
    return not token.special and has_place and token.start >= start


CLEAR = 0.5  # a pattern is named where it holds at least half of the attention of an average row


def head_lines(item: AttentionMap) -> tuple[HeadLine, ...]:
    """A line for each head of a map's first layer."""
    unknown = np.full(len(item.heads), np.nan)
    tokenwise = item.values == "share" and not item.is_pooled
    entropies = known_mean(entropy.row_entropy(item.weights))[0] if tokenwise else unknown
    is_signed = item.values == "signed"
    sizes = np.nan_to_num(np.abs(item.weights[0])) if is_signed else item.weights[0]
    sums = sizes.sum(axis=-1, dtype=np.float64)
    masses = sums.sum(axis=-1) if is_signed else sums.mean(axis=-1)
    lines = []
    for place, head in enumerate(item.heads):
        pattern, weight = describe(item.part([item.layers[0]], [head]))
        profile = sizes[place].mean(axis=0, dtype=np.float64)
        numbers = float(entropies[place]), float(masses[place])
        lines.append(HeadLine(head, profile, pattern, weight, *numbers))
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
    link = select.sharpest(item)
    return (f"{link.query} → {link.key}", link.weight) if link else ("", 0.0)


def _patterns(weights: NDArray[np.float32], item: AttentionMap) -> list[tuple[str, float]]:
    queries, keys = weights.shape
    patterns: list[tuple[str, float]] = []
    if queries > 2:
        by_key = weights.mean(axis=0)
        column = int(by_key.argmax())
        patterns.append((f"every token → {item.key_tokens[column].text}", float(by_key[column])))
    if queries == keys > 2 and item.query_side == item.key_side:
        # N - 1 rows have a token before them, N - 1 one after, N themselves.
        patterns.append(("each → the one before", float(np.diagonal(weights, -1).mean())))
        patterns.append(("each → the one after", float(np.diagonal(weights, 1).mean())))
        patterns.append(("each → itself", float(np.diagonal(weights).mean())))
    return patterns


def views(
    attention: Attention,
    *,
    every_layer: bool = False,
    every_head: bool = False,
    as_chosen: bool = False,
    top: int = 1,
) -> list[View]:
    """The matrices to show for one text, the one to see first at the beginning.

    Of the main stream: the head that the source puts in focus, else the one worth showing (see
    `head_worth_showing`), and behind it the mean over the heads of its layer; where no head stands
    out, that mean of the last layer alone. A line for each head of the layer comes with the last.
    Through every lens at once, a view for each lens. No head comes before the mean where the
    reader chose heads or reduced them (`as_chosen`). Where the reader named heads of several layers
    (`every_head`), each has a view. The stream's `top` strongest links come along.
    """
    if attention.lens_name == "all":
        return [_of_lens(attention, item, top) for item in attention.maps]
    item = attention.main
    links = tuple(select.strongest_links(item, max(top, 1)))
    if every_head and (len(item.layers) > 1 or item.layers == (SEVERAL,)):
        ones = [item.part([layer], [head]) for layer in item.layers for head in item.heads]
        return [_view(attention, one, one.layers[0], links, top) for one in ones]
    focus = first_focus(attention, item, as_chosen=as_chosen or every_layer)
    if every_layer:
        return [_view(attention, item, layer, links, top, focus) for layer in item.layers]
    alone = as_chosen or focus is None or len(item.heads) == 1
    layer = focus.layer if focus else item.layers[-1]
    why = "" if as_chosen or focus else _why_no_head(attention, item)
    view = _view(attention, item, layer, links, top, focus, lines=alone, why=why)
    if alone:
        return [view]
    behind = _view(attention, item, layer, links, top)
    return [
        replace(view, strongest=None),
        replace(behind, caption=behind.which, orientation="", second=True),
    ]


def _of_lens(attention: Attention, item: AttentionMap, top: int) -> View:
    """The view of one lens among all: the head with the largest effects, else the last mean."""
    focus = _largest_effect(item) if item.values == "signed" else None
    links = tuple(select.strongest_links(item, max(top, 1)))
    return _view(attention, item, focus.layer if focus else item.layers[-1], links, top, focus)


def first_focus(
    attention: Attention, item: AttentionMap, *, as_chosen: bool = False
) -> Focus | None:
    """The head to show first and why: the source's choice, else the most distinct one."""
    focus = attention.focus.get(item.stream)
    if focus and focus.layer in item.layers:
        return focus if focus.head in item.heads else None
    if as_chosen or attention.provenance.trained is False:
        return None
    if attention.lens_name == "effect":
        return _largest_effect(item)
    return head_worth_showing(item, attention.texts_of(item))


def _largest_effect(item: AttentionMap) -> Focus | None:
    totals = np.nan_to_num(np.abs(item.weights)).sum(axis=(2, 3), dtype=np.float64)
    layer, head = np.unravel_index(totals.argmax(), totals.shape)
    if totals.size == 1 or not totals.any():
        return None
    why = f"largest sum of |effect|: {totals[layer, head]:.2f} nats"
    return Focus(item.layers[layer], item.heads[head], why)


def head_worth_showing(item: AttentionMap, texts: tuple[str, str] = ("", "")) -> Focus | None:
    """The head that says most of its texts (see `informative`), and the link that says most.

    The first of equal ones; None where none says more than uniform attention. Among blocks of
    tokens, and where there is one head, there is nothing to choose. A picture is read first where
    its class token looks, which `informative` leaves out: there the mean over heads stays.
    """
    picture = item.key_side == "picture"
    if len(item.heads) == 1 or item.values == "signed" or item.is_pooled or picture:
        return None
    links = WordLinks(masks.MeasuredMap(item, texts))
    if links.count < LEAST_WORDS:
        return None
    lift = links.says(links.item.weights) - links.says(links.uniform)
    layer, head = map(int, np.unravel_index(lift.argmax(), lift.shape))
    if not lift[layer, head] > 1e-6:  # but for rounding
        return None
    query, key, weight = links.link(layer, head)
    why = f"says most: {query} → {key} {format_weight(weight).removeprefix('0')}"
    return Focus(item.layers[layer], item.heads[head], why)


def _why_no_head(attention: Attention, item: AttentionMap) -> str:
    """Why the mean over heads comes first, where a reader can change that."""
    in_words = item.values == "share" and item.key_side != "picture" and not item.is_pooled
    if attention.lens_name != "raw" or len(item.heads) == 1 or not in_words:
        return ""
    few = WordLinks(masks.MeasuredMap(item, attention.texts_of(item))).count < LEAST_WORDS
    return " (too few words to tell heads apart)" if few else ""


def _view(
    attention: Attention,
    item: AttentionMap,
    layer: str,
    links: tuple[Link, ...],
    top: int,
    focus: Focus | None = None,
    *,
    lines: bool = True,
    why: str = "",
) -> View:
    of_layer = item.part([layer])
    matrix, which = _matrix(of_layer, focus)
    which += why
    settings = attention.provenance.settings
    # Files saved before November 2026 spell it "knock-out".
    agreements = settings.get(AGREEMENT, settings.get(AGREEMENT.replace("knockout", "knock-out")))
    if attention.lens_name == "all" and isinstance(agreements, dict):
        agrees = agreements.get(item.stream)
        if isinstance(agrees, float):
            which += f", {AGREEMENT} {agrees:.2f}".replace(" -", " −")
    many = len(item.heads) > 1
    run = describe_run(attention, item)
    return View(
        map=matrix,
        caption=f"{run} · {which}",
        orientation=orientation(item),
        heads=head_lines(of_layer) if many and lines else (),
        strongest=links[0] if links and (many or len(item.layers) > 1) else None,
        run=run,
        which=which,
        links=links[:top],
        focus=focus if focus and matrix.heads == (focus.head,) else None,
    )


def _matrix(item: AttentionMap, focus: Focus | None) -> tuple[AttentionMap, str]:
    layer = item.layers[0]
    if len(item.heads) == 1 and layer in LENSES:
        return item, f"through all layers, {axis_name('head', item.heads[0])}"
    if len(item.heads) == 1:
        in_focus = focus and (focus.layer, focus.head) == (layer, item.heads[0])
        why = f" ({focus.why})" if focus and in_focus else ""
        names = zip(("layer", "head"), item.place(0, 0), strict=True)
        return item, " ".join(axis_name(*name) for name in names) + why
    if focus and focus.layer == layer:
        return item.part(heads=[focus.head]), f"layer {layer} head {focus.head} ({focus.why})"
    why = " (blocks hide which head says most)" if item.is_pooled else ""
    mean = f"mean over the heads of {axis_name('layer', layer)}{why}"
    return select.reduce_map(item, "mean", "heads"), mean


def describe_run(attention: Attention, item: AttentionMap) -> str:
    """What was run, in one line: model, stream and, where there are several, layers and heads."""
    provenance = attention.provenance
    call, stream = stream_of_call(item.stream)
    parts = [provenance.title, stream]
    parts += [
        step for step in provenance.steps if step.startswith(("lens ", "special ", "key–value "))
    ]
    if attention.parts and attention.parts.counts:
        parts.append("{} tokens read, {} written".format(*attention.parts.counts))
    if attention.decision:
        parts.append(f"decides {attention.decision}")
    if item.is_pooled and not attention.in_blocks:
        parts.append(f"blocks of {' × '.join(map(str, dict.fromkeys(item.blocks)))} tokens")
    # In a map of every call a layer's name ends in its call.
    calls_by_layer = [one for name in item.layers if (one := layer_of_call(name))]
    names = {name for name, _ in calls_by_layer}
    layers, heads = len(names or item.layers), len(item.heads)
    calls = len(item.layers) // len(names) if names else len(attention.calls_of(item))
    if item.layers == (SEVERAL,) and heads > 1:
        parts.append(f"{heads} heads")
    elif layers * heads * calls > 1:
        what = calls_by_layer[0][1] if calls_by_layer else call.partition(" ")[0]
        many = f" × {calls} {what}s" if calls > 1 else ""
        ends = ["s" if count > 1 else "" for count in (layers, heads)]
        parts.append(f"{layers} layer{ends[0]}{many} × {heads} head{ends[1]}")
    if call:
        parts.append(call)
    return " · ".join(parts)


def picture_words(
    attention: Attention, item: AttentionMap, reading: str, which: str = ""
) -> dict[str, str]:
    """The title of a picture, which names the model and the head, and the line under it.

    `reading` says who attends to whom; `which` names the head, with the reason why in brackets.
    """
    only = (("layer", item.layers), ("head", item.heads))
    if item.layers == (SEVERAL,) and not which:
        which = f"heads {', '.join(item.heads)}" if len(item.heads) <= MOST_SIDE_BY_SIDE else ""
    which = which or " ".join(axis_name(what, one[0]) for what, one in only if len(one) == 1)
    title, (head, _, why) = attention.provenance.title, which.partition(" (")
    facts = describe_run(attention, item).removeprefix(title).split(" · ")[1:]
    several = len(attention.maps) > 1
    lead = [one for one in facts if one.startswith("lens ") or (several and one == item.stream)]
    rest = [one for one in facts if one not in lead]
    below = [*rest, why.removesuffix(")"), reading]
    return {
        "title": " · ".join(filter(None, (title, *lead, head))),
        "subtitle": " · ".join(filter(None, below)),
    }


def orientation(item: AttentionMap) -> str:
    """Who attends to whom, in one line."""
    return _describe_direction(item, ("rows", "columns"), "the row is", "attend")


def _describe_direction(item: AttentionMap, ends: tuple[str, str], output: str, verb: str) -> str:
    query, key = ends[0], f"{ends[1]} ({item.key_side})"
    if item.stream == IMPLIED:
        return f"{query} are mixed from {ends[1]}: implied, no attention"
    if item.stream == INDEXER:
        return f"{query} score {ends[1]} before the softmax, no attention"
    if item.values == "signed" and item.query_side != item.key_side:
        return f"{query} ({item.query_side}) against {key}"
    if item.query_side == "output":
        return f"{output} what is predicted, {key} its attribution"
    if item.query_side == item.key_side:
        return f"{query} {verb} to {ends[1]}"
    return f"{query} ({item.query_side}) {verb} to {key}"


MOST_SIDE_BY_SIDE = 8  # heads with colours that the eye can distinguish


def few_heads(attention: Attention, first: View) -> tuple[AttentionMap, str]:
    """The map whose heads are compared (at most eight), and in words which heads these are."""
    item = attention.main
    layers, heads = item.weights.shape[:2]
    if 1 < layers * heads <= MOST_SIDE_BY_SIDE:
        title = " · ".join(
            f"{what}s {', '.join(names)}" if len(names) > 1 else axis_name(what, names[0])
            for what, names in (("layer", item.layers), ("head", item.heads))
            if names != (SEVERAL,)
        )
        return item, title
    return first.map, first.which


def sides(item: AttentionMap) -> str:
    """Which side attends to which, in one line."""
    return _describe_direction(item, ("left", "right"), "left is", "attends")
