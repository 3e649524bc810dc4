"""attnviz image: a picture seen through a lens, for the query that is to be shown."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from attnviz.analyses.patches import (
    look_from,
    look_from_token,
    one_picture,
    over_picture,
    picture_views,
    said_looks,
)
from attnviz.analyses.view import describe_run
from attnviz.cli.options import CHOICE, ORIGIN, OUTPUT, with_options
from attnviz.cli.report import Report
from attnviz.cli.sinks import Item
from attnviz.core.attention_map import Attention, AttentionMap
from attnviz.core.errors import UsageError
from attnviz.core.options import LENS_NAMES, Options, Origin, opt
from attnviz.core.query import Picture, Query
from attnviz.core.tokens import parse_patch, patch_grid
from attnviz.models import Source
from attnviz.models.open import LOADING, is_shipped, load_shipped, name_of
from attnviz.runs.pictures import ALL, as_jpeg, look_through
from attnviz.runs.pipeline import apply_choice, check_choice
from attnviz.storage.texts import check_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from attnviz.renderers.figures.overlay import Seen

LENSES = tuple(name for name in LENS_NAMES if name != ALL)
SHIPPED_MODEL = "pocket-vit"
"""What reads the picture where no model is named."""


@with_options(
    *("model", "compute", "explain", "heads", "reduce", "special", "page"), also=("grid",)
)
def image(
    file: Annotated[str, typer.Argument(metavar="FILE", help="Picture: .png, .jpg, .webp, ….")],
    patch: str | None = opt(
        CHOICE,
        "--patch ROW,COLUMN",
        "Patch that looks, from 0,0 at the upper left, or all (as data); "
        "default: the class token, else the mean over patches.",
    ),
    image_size: str | None = opt(
        ORIGIN,
        "--image-size SIZE",
        "Pixels to read the picture in: 384, or HEIGHTxWIDTH; "
        "default: what the model was trained on.",
    ),
    text: str | None = opt(
        ORIGIN,
        "--text TEXT",
        "Text that is read with the picture, by a model like LLaVA: its tokens look.",
    ),
    token: str | None = opt(
        CHOICE,
        "--token N",
        "Token of --text that looks, from 0, or all (as data); default: the last.",
    ),
    lens: str = opt(
        CHOICE,
        "--lens NAME",
        "What to make of the weights first: {choices}.",
        default="raw",
        choices=LENSES,
    ),
    overlay: Path | None = opt(
        OUTPUT,
        "--overlay FILE",
        "One head, or the mean over a layer's heads, over the picture: .png, .svg, .pdf.",
    ),
    *,
    options: Options,
) -> None:
    """Show where in a picture a vision model looks: patch by patch, over the picture and as data.

    attnviz image sample_inputs/shapes.png --overlay look.png

    attnviz image sample_inputs/shapes.png --patch 3,5 --grid heads.png

    attnviz image sample_inputs/shapes.png --model ./my-vit --head 2 -f csv

    attnviz image sample_inputs/shapes.png --model ./my-vit --lens gradient --target cat

    attnviz image sample_inputs/shapes.png --model ./my-llava --text "Where is the tree?"
    """
    options = replace(options, choice=replace(options.choice, lens=lens))
    check_request(options, patch, image_size, overlay, text, token)
    from attnviz.models.hugging_face.vision.pictures import parse_size, read_picture

    output, path = options.output, Path(file)
    with Report(options, pictures={"overlay": overlay, "grid": output.grid}) as report:
        size = None if image_size is None else parse_size(image_size)
        picture = Picture(read_picture(path), size, patch, lens)
        source = load_source(options.origin, text)
        query = Query(text or "", kind="picture", picture=picture)
        attention = look_through(source, query, options.choice, patch)
        settings = {**attention.provenance.settings, "picture": path.name}
        provenance = replace(attention.provenance, settings=settings)
        attention = replace(attention, id=path.stem, provenance=provenance)
        looks = attention
        if text is None and patch != ALL:
            looks = look_from(attention, patch)
        elif text is not None and token != ALL:
            looks = look_from_token(attention, token)
        # The lens has been held over it already.
        choice = replace(options.choice, lens="raw", explain=None)
        found = apply_choice(looks, choice)
        part = picture.image.crop(attention.seen)
        with_page = output.html is not None or output.open_page
        report.say_of(found)
        report.add(
            Item(
                found,
                cache(partial(picture_views, found, every_layer=options.choice.layer is not None)),
                pictures_of(found, lambda: seen(attention, part, patch)),
                apply_choice(attention, choice) if with_page else None,
                as_jpeg(part) if with_page else None,
            )
        )
        report.finish()
        report.say_done("1 picture")


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
    named = SHIPPED_MODEL if origin.model is None else origin.model
    if is_shipped(origin) and named != SHIPPED_MODEL:
        raise UsageError(
            f"'{named}' reads texts, and 'attnviz image' needs a vision model: leave --model out "
            f"for '{SHIPPED_MODEL}', or name one by --model ID_OR_FOLDER"
        )
    if text is not None and named == SHIPPED_MODEL:
        raise UsageError(f"'{named}' reads no text: --text needs --model ID_OR_FOLDER")
    check_choice(options.choice)
    if patch is not None and patch != ALL:
        parse_patch(patch)
    shown = overlay or output.grid or output.format in (None, "table")
    if ALL in (patch, token) and shown:
        what = "patch" if patch == ALL else "token"
        raise UsageError(
            f"--{what} all gives every {what}'s look, which is data: use -f json, csv, …, or "
            f"choose one {what} to see"
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
        way = " or use --lens raw" if given == ["--lens"] else ""
        raise UsageError(f"{given[0]} is for a picture alone: leave --text out{way}")
    check_text(text)


def load_source(origin: Origin, text: str | None) -> Source:
    """The model that reads the picture, and a text behind it if there is one."""
    if is_shipped(origin):
        source: Source = load_shipped(origin, SHIPPED_MODEL)
        return source
    from attnviz.models.hugging_face.vision.picture_text import load_picture_text_model
    from attnviz.models.hugging_face.vision.vision import load_vision_model

    load = load_vision_model if text is None else load_picture_text_model
    terms = {name: getattr(origin, name) for name in LOADING}
    return load(name_of(origin), **terms)


def seen(attention: Attention, part: Any, patch: str | None) -> Seen:
    """The part of the picture that the patches cover, with the one that looks."""
    from attnviz.renderers.figures.overlay import Seen

    outlined = None
    if patch is not None:
        outlined = (*parse_patch(patch), *patch_grid(attention.main.key_tokens))
    return Seen(np.asarray(part), outlined)


def pictures_of(found: Attention, picture: Callable[[], Seen]) -> dict[str, Callable[[], Figure]]:
    """The last chosen layer, and every chosen head, over the picture."""
    item = found.maps[-1]
    words: dict[str, Any] = {"subtitle": said_looks(item), "unit": item.unit, "values": item.values}

    def one() -> Figure:
        from attnviz.renderers.figures.overlay import overlay

        shown, which = one_picture(item)
        title = f"{describe_run(found, item)} · {which}"
        return overlay(picture(), over_picture(shown)[0, 0], title=title, **words)

    def every() -> Figure:
        from attnviz.renderers.figures.overlay import overlay_grid

        heads, told = every_head(found), dict(words)
        title = describe_run(found, as_one(found.main, heads) if len(found.maps) > 1 else item)
        if len(found.maps) > 1:
            told["subtitle"] += "; what goes to a coarser patch is shared out over what it covers"
        return overlay_grid(picture(), **heads, title=title, **told)

    return {"overlay": one, "grid": every}


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
