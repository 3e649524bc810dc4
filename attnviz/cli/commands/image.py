"""attnviz image: a picture seen through a lens, for the query that is to be shown."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from attnviz.analyses.patches import (
    by_word,
    look_from,
    look_from_token,
    one_picture,
    over_picture,
    picture_views,
    said_looks,
    with_sinks,
)
from attnviz.analyses.select import reduce_attention
from attnviz.analyses.view import describe_run, under_title
from attnviz.cli.options import CHOICE, ORIGIN, OUTPUT, with_options
from attnviz.cli.report import Report
from attnviz.cli.sinks import Item
from attnviz.core.attention_map import Attention, AttentionMap
from attnviz.core.errors import UsageError
from attnviz.core.options import LENS_NAMES, Options, PictureScale, opt
from attnviz.core.query import Picture, Query
from attnviz.core.tokens import parse_patch, patch_grid
from attnviz.models.open import VISION, check_vision, open_source
from attnviz.runs.pictures import ALL, as_jpeg, look_through, sheet_parts
from attnviz.runs.pipeline import apply_choice, check_choice
from attnviz.storage.pictures import read_frames, read_picture
from attnviz.storage.texts import check_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from attnviz.renderers.figures.overlay import PictureCrop

LENSES = tuple(name for name in LENS_NAMES if name != ALL)


@with_options(
    *("model", "compute", "generate", "explain", "heads", "reduce", "special", "page"),
    also=("grid",),
)
def image(
    file: Annotated[str, typer.Argument(metavar="FILE", help="Picture: .png, .jpg, .webp, ….")],
    more: Annotated[
        list[str] | None, typer.Argument(metavar="FILE…", help="Further pictures, with --text.")
    ] = None,
    patch: str | None = opt(
        CHOICE,
        "--patch ROW,COLUMN",
        "Patch whose attention is shown, from 0,0 at the upper left, or all (as data); "
        "default: the class token, or else the mean over all patches.",
    ),
    image_size: str | None = opt(
        ORIGIN,
        "--image-size SIZE",
        "Size in pixels to read the picture in: 384, or HEIGHTxWIDTH; default: the size that "
        "the model was trained on.",
        rare=True,
    ),
    text: str | None = opt(
        ORIGIN,
        "--text TEXT",
        "Prompt that a model like LLaVA reads with the pictures; its tokens are the rows.",
    ),
    video: bool = opt(
        ORIGIN,
        "--video",
        "Read the frames of an animated picture, or several pictures in order, as a video.",
        rare=True,
    ),
    token: str | None = opt(
        CHOICE,
        "--token N",
        "Token of --text or of what --generate wrote whose attention is shown, from 0, or "
        "all; default: the last, or all that was written.",
    ),
    lens: str = opt(
        CHOICE,
        "--lens NAME",
        "What to compute from the weights: {choices}. raw shows them as they are.",
        default="raw",
        choices=LENSES,
    ),
    overlay: Path | None = opt(
        OUTPUT,
        "--overlay FILE",
        "The weights of one head, or the mean over a layer, over the picture: .png, .svg or "
        ".pdf. Several words get one picture each.",
    ),
    scale: PictureScale = opt(
        OUTPUT,
        "--scale HOW",
        "Colours up to the largest weight of each picture (own) or of all (shared).",
        default="own",
    ),
    smooth: bool = opt(OUTPUT, "--smooth", "Smooth the weights between patches in pictures."),
    *,
    options: Options,
) -> None:
    """Show where in a picture a vision model looks: patch by patch, over the picture and as data.

    attnviz image sample_inputs/shapes.png --overlay look.png

    attnviz image sample_inputs/shapes.png --patch 3,5 --grid heads.png

    attnviz image sample_inputs/shapes.png --model ./my-vit --head 2 -f csv

    attnviz image sample_inputs/shapes.png --model ./my-vit --lens gradient --target cat

    attnviz image sample_inputs/shapes.png --model ./my-llava --text "Where is the tree?"

    attnviz image a.png b.png --model ./my-llava --text "What differs?" --generate 20
    """
    options = replace(options, choice=replace(options.choice, lens=lens))
    files = [Path(file), *map(Path, more or ())]
    check_request(options, patch, image_size, overlay, text, token)
    with_text = {"--video": video, "--generate": options.origin.generate}
    with_text["a second picture"] = len(files) > 1
    if text is None and (given := [name for name, value in with_text.items() if value]):
        raise UsageError(f"{given[0]} is read together with --text: give that too")
    from attnviz.models.hugging_face.vision.pictures import parse_size

    output = options.output
    with Report(options, pictures={"overlay": overlay, "grid": output.grid}) as report:
        size = None if image_size is None else parse_size(image_size)
        images = [*(read_frames(files) if video else map(read_picture, files))]
        picture = Picture(images[0], size, patch, lens, tuple(images[1:]), video)
        source = open_source(options.origin, "picture" if text is None else "picture-text")
        query = Query(text or "", kind="picture", picture=picture)
        attention = look_through(source, query, options.choice, patch)
        named = ", ".join(path.name for path in files)
        settings = {**attention.provenance.settings, "picture": named}
        provenance = replace(attention.provenance, settings=settings)
        attention = replace(attention, id=files[0].stem, provenance=provenance)
        if lens == "raw":  # of other values, a large sum may be what the patch shows
            attention = with_sinks(attention)
        looks, wrote = attention, attention.main.query_side != "text"
        every = text is not None and (token == ALL or (token is None and wrote))
        if text is None and patch != ALL:
            looks = look_from(attention, patch)
        elif text is not None and not every:
            looks = look_from_token(attention, token)
        # The lens has been held over it already.
        choice = replace(options.choice, lens="raw", explain=None)
        found = apply_choice(looks, choice)
        parts = sheet_parts(attention, images)
        with_page = output.html is not None or output.open_page
        drawn = (
            contact_sheets(found, parts, (scale, smooth))
            if every or len(parts) > 1
            else pictures_of(
                found, lambda: seen(attention, parts[found.main.stream], patch), (scale, smooth)
            )
        )
        report.say_of(found)
        report.add(
            Item(
                found,
                cache(partial(picture_views, found, every_layer=options.choice.layer is not None)),
                drawn,
                within_page(apply_choice(attention, choice)) if with_page else None,
                {name: as_jpeg(part) for name, part in parts.items()} if with_page else None,
            )
        )
        report.finish(f"{len(images)} picture{'s' * (len(images) > 1)}")


def within_page(attention: Attention) -> Attention:
    """The maps of a page; where it does not hold all heads their mean, so that patches stay."""
    from attnviz.renderers import page

    if sum(item.weights.size for item in attention.maps) <= page.MOST_WEIGHTS:
        return attention
    return reduce_attention(attention, "mean", "heads")


def check_request(
    options: Options,
    patch: str | None,
    size: str | None,
    overlay: Path | None,
    text: str | None,
    token: str | None,
) -> None:
    """Find out before a model loads whether everything can be done."""
    output, origin, lens = options.output, options.origin, options.choice.lens
    named = origin.model or VISION
    check_vision(origin)
    if text is not None and named == VISION:
        raise UsageError(f"'{named}' reads no text: --text needs --model ID_OR_FOLDER")
    check_choice(options.choice)
    if patch is not None and patch != ALL:
        parse_patch(patch)
    on_screen = options.collect is None and output.format in (None, "table")
    shown = {"--overlay": overlay, "--grid": output.grid, "-f table": on_screen}
    if patch == ALL and any(shown.values()):
        clash = next(name for name, value in shown.items() if value)
        raise UsageError(
            f"--patch all is data, and {clash} shows one patch: use -f json, csv, …, or choose a "
            "patch"
        )
    if lens == "gradient" and patch is not None:
        raise UsageError(
            "--lens gradient explains what the model decides, which no patch does: leave "
            "--patch out"
        )
    if text is None:
        if token is not None:
            raise UsageError("--token chooses a token of --text: give that too")
        return
    alone = {"--patch": patch, "--image-size": size, "--lens": None if lens == "raw" else lens}
    if given := [option for option, value in alone.items() if value is not None]:
        raise UsageError(f"{given[0]} is for a picture without --text: leave one of them out")
    check_text(text)


def seen(attention: Attention, part: Any, patch: str | None) -> PictureCrop:
    """The part of the picture that the patches cover, with the one that looks."""
    from attnviz.renderers.figures.overlay import PictureCrop

    outlined = None
    if patch is not None:
        outlined = (*parse_patch(patch), *patch_grid(attention.main.key_tokens))
    return PictureCrop(np.asarray(part), outlined)


def pictures_of(
    found: Attention, picture: Callable[[], PictureCrop], how: tuple[PictureScale, bool]
) -> dict[str, Callable[[], Figure]]:
    """The last chosen layer, and every chosen head, over the picture."""
    item = found.maps[-1]
    words: dict[str, Any] = {"unit": item.unit, "values": item.values}
    looks = said_looks(item)

    def one() -> Figure:
        from attnviz.renderers.figures.overlay import Overlaying, overlay

        shown, which = one_picture(item)
        title = f"{describe_run(found, item)} · {which}"
        weights, words["subtitle"] = over_picture(shown)[0, 0], under_title(found, looks)
        return overlay(picture(), weights, title=title, how=Overlaying(*how), **words)

    def every() -> Figure:
        from attnviz.renderers.figures.overlay import Overlaying, overlay_grid

        heads, more = every_head(found), ""
        title = describe_run(found, as_one(found.main, heads) if len(found.maps) > 1 else item)
        if len(found.maps) > 1:
            more = "; what goes to a coarser patch is shared out over what it covers"
        words["subtitle"] = under_title(found, looks + more)
        return overlay_grid(picture(), **heads, title=title, how=Overlaying(*how), **words)

    return {"overlay": one, "grid": every}


def contact_sheets(
    found: Attention, parts: Mapping[str, Any], how: tuple[PictureScale, bool]
) -> dict[str, Callable[[], Figure]]:
    """Every word over every picture, in the mean over heads or head by head."""
    maps = [item for item in found.maps if item.stream in parts]
    last = {item.stream: item for item in maps}  # of several runs of layers the last

    def draw(columns: Sequence[tuple[str, AttentionMap]], which: str) -> Figure:
        from attnviz.renderers.figures.overlay import Overlaying, PictureCrop, contact_sheet

        text = "" if found.main.query_side == "queries" else found.text or ""
        shown = [(name, by_word(item, text)) for name, item in columns]
        main = shown[0][1]
        pictures = {name: PictureCrop(np.asarray(part)) for name, part in parts.items()}
        tiles = [
            [(pictures[item.stream], over_picture(item, row)[-1, 0]) for _, item in shown]
            for row in range(len(main.query_tokens))
        ]
        return contact_sheet(
            tiles,
            [token.text for token in main.query_tokens],
            [name for name, _ in shown] if len(shown) > 1 else [""],
            title=f"{found.provenance.title} · {which}",
            subtitle=under_title(found, LOOKS.get(main.query_side, "")),
            unit=main.unit,
            how=Overlaying(*how),
        )

    def overlay() -> Figure:
        shown = [(name.partition("-to-")[2], *one_picture(item)) for name, item in last.items()]
        return draw([(name, item) for name, item, _ in shown], shown[0][2])

    def grid() -> Figure:
        item = last[found.main.stream]
        item = item.with_weights(item.weights[-1:], layers=item.layers[-1:])
        heads = [
            (f"head {name}", item.with_weights(item.weights[:, [number]], heads=(name,)))
            for number, name in enumerate(item.heads)
        ]
        return draw(heads, f"every head of layer {item.layers[0]}")

    return {"overlay": overlay, "grid": grid}


LOOKS = {
    "written": "each word: where the model looked when it wrote it; pieces of a word averaged",
    "queries": "each query: which patches it reads; the text model sees queries, not patches",
    "text": "each word: where it looks; pieces of a word averaged",
}
"""Who looks on a contact sheet, by the side that the queries are of."""


def every_head(found: Attention) -> dict[str, Any]:
    """All layers of all maps as one array; coarser ones are spread, their shares shared out."""
    grids = [over_picture(item) for item in found.maps]
    rows, columns = (max(grid.shape[axis] for grid in grids) for axis in (-2, -1))
    heads = max((item.heads for item in found.maps), key=len)
    count = sum(len(grid) for grid in grids)
    spread = np.full((count, len(heads), rows, columns), np.nan, dtype=np.float32)
    place = 0
    for item, grid in zip(found.maps, grids, strict=True):
        down = np.arange(rows) * grid.shape[-2] // rows
        across = np.arange(columns) * grid.shape[-1] // columns
        share = grid[0, 0].size / (rows * columns)
        shared = grid[:, :, down[:, None], across] * share
        for head, name in enumerate(item.heads):
            spread[place : place + len(grid), heads.index(name)] = shared[:, head]
        place += len(grid)
    layers = tuple(name for item in found.maps for name in item.layers)
    return {"weights": spread, "layers": layers, "heads": heads}


def as_one(item: AttentionMap, heads: dict[str, Any]) -> AttentionMap:
    """A map of all layers, to be named in a title."""
    weights = np.nan_to_num(heads["weights"]).reshape(*heads["weights"].shape[:2], 1, -1)
    return item.with_weights(weights, layers=heads["layers"], heads=heads["heads"])
