"""Attention over the patches of a picture: what one patch looks at, and where that lies."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.analyses.overview import MOST_HEADS, MOST_LINKS
from attnviz.analyses.select import link_at, reduce_map
from attnviz.analyses.view import describe_run, head_lines
from attnviz.core.attention_map import Attention, AttentionMap, MeasuredLink, Token, known_mean
from attnviz.core.errors import UsageError, is_number
from attnviz.core.measures import HeadLinks, Link, Overview, View
from attnviz.core.registry import LENSES
from attnviz.core.tokens import AVERAGE, check_patch, patch_grid
from attnviz.features.lenses.rollout import UNIT as FLOW


def look_from(attention: Attention, patch: str | None) -> Attention:
    """The attention of one query only: that of a patch, "ROW,COLUMN".

    None: the first special token (the class token), or the mean over the patches if there is none.

    Raises:
        UsageError: a patch that the picture does not have.
    """
    maps = tuple(_one_query(item, patch) for item in attention.maps)
    query = maps[0].query_tokens[0].text
    tokens = attention.main.query_tokens
    place = None if len(tokens) == 1 else query_place(tokens, patch)
    return _looking(attention, maps, query, place)


def _looking(
    attention: Attention, maps: tuple[AttentionMap, ...], who: str, place: int | None
) -> Attention:
    """The one query's maps, with the links of its place."""

    def its(one: MeasuredLink) -> MeasuredLink | None:
        link = replace(one.link, query_position=0)
        return replace(one, link=link) if one.link.query_position == place else None

    return attention.with_maps(maps, f"look from {who}").with_links(its)


def look_from_token(attention: Attention, which: str | None) -> Attention:
    """The attention of one token of a text over a picture, by its number from 0.

    None: the last one, from which the next is predicted.

    Raises:
        UsageError: the text has no such token.
    """
    tokens = attention.main.query_tokens
    last = len(tokens) - 1
    if which is not None and (not is_number(which) or int(which) > last):
        names = " ".join(f"{number}:{token.text}" for number, token in enumerate(tokens))
        raise UsageError(f"token {which} does not exist: the text has 0 to {last} ({names[:200]})")
    place = last if which is None else int(which)
    maps = tuple(
        item.with_weights(item.weights[:, :, place : place + 1], query_tokens=(tokens[place],))
        for item in attention.maps
        if item.query_tokens == tokens
    )
    return _looking(attention, maps, f"token {place} ('{tokens[place].text}')", place)


OBJECTS = "objects"  # the side of queries for objects
MOST_OBJECTS, SURE = 8, 0.5  # queries that are shown, and the score from which on; of fewer, four


def look_from_objects(attention: Attention, which: str | None, patch: str | None) -> Attention:
    """The attention of the queries that find most, or of one by its number; "all": of every one.

    A `patch` puts the encoder's look from it first.

    Raises:
        UsageError: there is no such query, or an encoder whose look were asked for.
    """
    maps = attention.maps
    if patch is not None:
        if not (own := [item for item in maps if item.query_side == "picture"]):
            raise UsageError("this model has no encoder over the picture: leave --patch out")
        return attention.with_maps((*own, *(item for item in maps if item not in own)))
    names = next(item.query_tokens for item in maps if item.query_side == OBJECTS)
    if which is not None and which != "all" and not (is_number(which) and int(which) < len(names)):
        raise UsageError(f"query {which} does not exist: the model has 0 to {len(names) - 1}")
    if which == "all":
        numbers = [*range(len(names))]
    elif which is not None:
        numbers = [int(which)]
    else:
        sure = [one.query for one in attention.found if one.score >= SURE]
        best = [one.query for one in attention.found] or [*range(len(names))]
        numbers = (sure if len(sure) >= 4 else best[:4])[:MOST_OBJECTS]
    tokens = tuple(names[number] for number in numbers)
    looks = tuple(
        item.with_weights(item.weights[:, :, numbers], query_tokens=tokens)
        if item.query_side == OBJECTS
        else item
        for item in maps
    )
    step = "" if which == "all" else f"queries {', '.join(map(str, numbers))} of {len(names)}"
    return attention.with_maps(looks, *([step] if step else []))


def refuse_objects(attention: Attention) -> Any:
    """What stands for a picture where queries have no weights over it."""
    raise UsageError(
        f"'{attention.provenance.title}' has no weights from its queries to the picture, so there "
        "is none to draw: -f json and -f csv have its other maps"
    )


def query_place(tokens: Sequence[Token], patch: str | None) -> int | None:
    """The patch whose attention is shown, or else the class token; None: the mean is shown.

    The tokens are special ones, if any, then the patches.
    """
    if patch is None:
        return 0 if tokens[0].special else None
    rows, columns = patch_grid(tokens)
    row, column = check_patch(patch, rows, columns)
    return len(tokens) - rows * columns + row * columns + column


def _one_query(item: AttentionMap, patch: str | None) -> AttentionMap:
    tokens = item.query_tokens
    if len(tokens) == 1:
        return item
    place = query_place(tokens, patch)
    if place is None:
        mean = known_mean(item.weights.astype(np.float64), (-2,), keepdims=True)
        return item.with_weights(mean.astype(np.float32), query_tokens=(AVERAGE,))
    return item.with_weights(item.weights[:, :, place : place + 1], query_tokens=(tokens[place],))


SINK_TIMES = 5  # a sink gets this many times its even share, in more than half of the heads


def with_sinks(attention: Attention) -> Attention:
    """The attention with its sinks named, in a note and as data ("sinks" of the settings).

    A sink of a picture is a patch, or a token without a place in it (a class token, a register, a
    break), that receives more than `SINK_TIMES` the even share of what goes to its grid, in more
    than half of the heads of all layers (Darcet et al. 2024, "Vision Transformers Need Registers";
    Kang et al. 2025, "See What You Are Told"): what it receives says little about what is there.
    """
    rows = [row for item in attention.maps for row in _sinks(item)]
    if not rows:
        return attention
    names = "; ".join(
        f"{row['key']} ({row['where']}) of {row['stream']}, {row['times']:g} ×" for row in rows[:3]
    )
    more = f"; and {len(rows) - 3} more" if len(rows) > 3 else ""
    note = f"sinks (over {SINK_TIMES} times the even share in most heads): {names}{more}"
    return attention.with_maps(attention.maps, notes=(note,), settings={"sinks": rows})


def _sinks(item: AttentionMap) -> Iterator[dict[str, Any]]:
    if item.values != "share" or item.key_side != "picture":
        return
    by_key = item.weights.astype(np.float64).mean(axis=2)
    total = by_key.sum(axis=-1, keepdims=True)
    times = by_key / np.where(total > 0, total, 1) * by_key.shape[-1]
    heads = (times > SINK_TIMES).mean(axis=(0, 1))
    rows, columns = patch_grid(item.key_tokens)
    first = len(item.key_tokens) - rows * columns
    for place in np.flatnonzero(heads > 0.5).tolist():
        where = "no place in the picture"
        if place >= first:
            row, column = divmod(place - first, columns)
            edges = (row in (0, rows - 1)) + (column in (0, columns - 1))
            where = ("inside", "at the border", "in a corner")[edges]
        yield {
            "stream": item.stream,
            "key": item.key_tokens[place].text,
            "where": where,
            "times": round(float(times[..., place].mean()), 1),
            "heads": round(float(heads[place]), 2),
        }


def over_picture(item: AttentionMap, query: int = 0) -> NDArray[np.float32]:
    """A single query's attention where the patches lie, shape (layers, heads, rows, columns)."""
    rows, columns = patch_grid(item.key_tokens)
    weights = item.weights[:, :, query, -rows * columns :]
    return weights.reshape(*weights.shape[:2], rows, columns)


def spread_heads(maps: Sequence[AttentionMap]) -> dict[str, Any]:
    """All layers of all maps on the finest grid, a patch's weight shared out, with axis names."""
    grids = [over_picture(item) for item in maps]
    rows, columns = (max(grid.shape[axis] for grid in grids) for axis in (-2, -1))
    heads = max((item.heads for item in maps), key=len)
    count = sum(len(grid) for grid in grids)
    spread = np.full((count, len(heads), rows, columns), np.nan, dtype=np.float32)
    place = 0
    for item, grid in zip(maps, grids, strict=True):
        down = np.arange(rows) * grid.shape[-2] // rows
        across = np.arange(columns) * grid.shape[-1] // columns
        share = grid[0, 0].size / (rows * columns)
        fine = grid[:, :, down[:, None], across] * share
        for head, name in enumerate(item.heads):
            spread[place : place + len(grid), heads.index(name)] = fine[:, head]
        place += len(grid)
    layers = tuple(name for item in maps for name in item.layers)
    return {"weights": spread, "layers": layers, "heads": heads}


def picture_views(attention: Attention, *, every_layer: bool = False) -> list[View]:
    """The matrices to show for one picture, rows and columns being those of its patches.

    A picture has hundreds of patches, whose shares are all small: they are shown in relation to the
    largest. The attention is of one query, or of the mean over several words, of the last layer or
    of every one.
    """
    maps = [
        item if len(item.query_tokens) == 1 else _mean_look(item)
        for item in attention.maps
        if not attention.sheets or item.stream in attention.sheets
    ]
    layers = [(item, place) for item in maps for place in range(len(item.layers))]
    last = {one[0].stream: one for one in layers}
    return [_view(attention, *one) for one in (layers if every_layer else last.values())]


HALF, SHARP = 0.5, 3.0
"""Of a look that goes elsewhere; times the even share from which on a patch is listed."""


def picture_overviews(attention: Attention, *, every_layer: bool = False) -> list[Overview]:
    """The heads whose look is least even, with the patches it falls on, and one matrix.

    The gain of a head is Σ a ln(a n) over the n patches, in nats, of shares made to sum to 1, times
    the share that the picture has. Empty of effects, of a single head, and where several pictures
    or layers are shown.
    """
    views = picture_views(attention, every_layer=every_layer)
    item = attention.maps[-1]
    shares = item.values == "share" and item.unit != FLOW
    if len(views) > 1 or not shares or len(item.query_tokens) > 1 or item.weights[..., 0].size < 2:
        return []
    looks = over_picture(item).astype(np.float64)
    flat = looks.reshape(*looks.shape[:2], -1)
    mass = flat.sum(axis=-1, keepdims=True)
    even = flat / np.where(mass > 0, mass, 1)
    count, columns = flat.shape[-1], looks.shape[-1]
    gains = (np.log(even * count + 1e-12) * even).sum(axis=-1) * mass[..., 0]
    results = []
    for at in np.argsort(-gains, axis=None, kind="stable")[:MOST_HEADS].tolist():
        layer, head = map(int, np.unravel_index(at, gains.shape))
        largest = np.argsort(-flat[layer, head], kind="stable")[:MOST_LINKS]
        links = [
            link_at(
                item,
                (layer, head, 0, len(item.key_tokens) - count + int(key)),
                float(flat[layer, head, key]),
            )
            for key in largest
            if even[layer, head, key] * count > SHARP
        ]
        results.append(HeadLinks(item.layers[layer], item.heads[head], tuple(links)))
    (view,) = views
    top = tuple(one for one in results if one.links)
    names = {(one.layer, one.head) for one in top}
    away = [
        bool(mass[layer, head, 0] < HALF)
        for layer, head in np.ndindex(gains.shape)
        if (item.layers[layer], item.heads[head]) not in names
    ]
    counts = [f"{sum(away)} look mostly elsewhere"] if any(away) else []
    counts += [f"{away.count(False)} look more evenly"] if not all(away) else []
    first = Overview(
        run=describe_run(attention, item),
        shares=f"shares of a look, over {count // columns} × {columns} patches",
        heads=top,
        others=f"the other {len(away)}: {', '.join(counts)}" if top and away else "",
        note="" if top else "every head looks about evenly",
        map=view.map,
        which=view.which,
        orientation=view.orientation,
        resting=(),
        order=(),
    )
    return [first]


def _mean_look(item: AttentionMap) -> AttentionMap:
    mean = item.weights.astype(np.float64).mean(axis=2, keepdims=True).astype(np.float32)
    what = "queries" if item.query_side in ("queries", OBJECTS) else "words"
    who = "" if item.query_side == "written" else "the mean over "
    one = Token(f"{who}{len(item.query_tokens)} {what}", special=True)
    return item.with_weights(mean, query_tokens=(one,))


def _view(attention: Attention, item: AttentionMap, place: int) -> View:
    one = item.part([item.layers[place]])
    matrix, which = one_picture(one)
    grid = over_picture(matrix)
    largest = float(np.nan_to_num(np.abs(grid)).max())
    what = "largest effect" if item.values == "signed" else "largest weight"
    laid_out = AttentionMap(
        item.stream,
        tuple(Token(str(row)) for row in range(grid.shape[-2])),
        tuple(Token(str(column)) for column in range(grid.shape[-1])),
        grid / (largest or 1.0),
        layers=matrix.layers,
        heads=matrix.heads,
        values=item.values,
        unit=f"share of the {what}, {largest:.2g}",
        key_side="columns",
    )
    many = len(item.heads) > 1
    return View(
        map=laid_out,
        caption=f"{describe_run(attention, item)} · {which}",
        orientation=f"{said_looks(item)}; 1 stands for the {what}, {largest:.2g}",
        heads=head_lines(one) if many else (),
        strongest=strongest_patch(item),
        which=which,
    )


def one_picture(item: AttentionMap) -> tuple[AttentionMap, str]:
    """One matrix of a map's last layer, and in words which one it is."""
    last = item.part(item.layers[-1:])
    layer = f"layer {last.layers[0]}" if last.layers[0].isdecimal() else f"{last.layers[0]} layer"
    if last.layers[0] in LENSES:
        return last, "through all layers"
    if len(item.heads) == 1:
        is_sum = last.heads[0] == "sum"
        return last, f"{layer}, its heads summed" if is_sum else f"{layer} head {last.heads[0]}"
    return reduce_map(last, "mean", "heads"), f"mean over the heads of {layer}"


def said_looks(item: AttentionMap) -> str:
    """One line: who looks, and which share of its attention goes to the picture."""
    query = item.query_tokens[0]
    within = item.query_side == item.key_side
    who = query.text if query.special else f"patch {query.text}" if within else f"'{query.text}'"
    elsewhere = 1 - float(over_picture(item)[-1].sum((-1, -2)).mean())
    output = item.query_side == "output"
    goes = "lies in other tokens" if output else "goes elsewhere"
    # Flows to patches are independent numbers: a row has no total, so there are no shares.
    shares = item.unit != FLOW and item.values == "share"
    beside = f"; {elsewhere:.0%} {goes}" if shares and elsewhere >= 0.005 else ""
    if output:
        output_name = query.text.removeprefix("→ ")
        return f"attribution of {output_name}: rows and columns of patches{beside}"
    looks = "the patches look on average" if query == AVERAGE else f"{who} looks"
    if item.query_side == "written":
        looks = f"the model looked when it wrote {who}"
    return f"where {looks}: rows and columns of patches{beside}"


def strongest_patch(item: AttentionMap) -> Link:
    """The patch that gets the largest weight in any layer and head."""
    grid = over_picture(item)
    sizes = np.nan_to_num(np.abs(grid))
    layer, head, row, column = np.unravel_index(sizes.argmax(), grid.shape)
    key = len(item.key_tokens) - grid[0, 0].size + row * grid.shape[-1] + column
    return link_at(item, (layer, head, 0, key), float(grid[layer, head, row, column]))
