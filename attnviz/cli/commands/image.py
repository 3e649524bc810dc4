"""A picture seen through a lens, for the query that is to be shown."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, fields, replace
from io import BytesIO
from math import isqrt
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
    query_place,
    said_looks,
)
from attnviz.analyses.view import describe_run
from attnviz.cli.options import CHOICE, ORIGIN, OUTPUT, Options, Output, completing, with_options
from attnviz.cli.output import (
    Draft,
    check_writable,
    different,
    refuse_binary_on_terminal,
    write_bytes,
    write_file,
)
from attnviz.cli.run import Notes
from attnviz.cli.sinks import PageSink, display_of_stdout
from attnviz.core.attention_map import Attention, AttentionMap
from attnviz.core.errors import UsageError, choose
from attnviz.core.notices import notices_to
from attnviz.core.options import Choice, Origin
from attnviz.core.registry import FORMATS, Needs
from attnviz.core.tokens import parse_patch, patch_grid
from attnviz.models.lens import apply_lens
from attnviz.renderers import Display
from attnviz.runs.outputs import as_bytes, format_of, make_renderer, picture_suffix
from attnviz.runs.pipeline import apply_choice, check_choice
from attnviz.storage.texts import check_text

if TYPE_CHECKING:
    from PIL.Image import Image

    from attnviz.core.lens_inputs import AttentionGradients, ValueVectors
    from attnviz.models.hugging_face.vision.vision import VisionModel
    from attnviz.renderers.figures.overlay import Seen


def look_through(
    model: VisionModel, picture: Image, asked: ImageRequest, size: tuple[int, int] | None
) -> Attention:
    """A picture's attention over itself through the lens asked for, every layer and head of it.

    Raises:
        AttnvizError: the model has no such attention, or the lens does not apply to it.
    """
    choice = asked.options.choice
    if choice.lens != "raw":
        model.check_tokens(choice.lens)

    def attend() -> Attention:
        return model.attend_image(picture, asked.patch, size)

    def ask(needs: Needs) -> AttentionGradients | ValueVectors:
        if needs == "gradients":
            return model.explain_image(picture, choice.explain, size)
        return model.transform_image(picture, size)

    if choice.lens == "flow":
        return flow_shown(attend(), asked)
    found = apply_lens(choice.lens, attend, ask, lambda attention: attention)
    if choice.lens != "norm":
        return found
    # Heads are summed unless one is asked for, which only the map of their own has.
    name = "self" if choice.head is None else "self-by-head"
    return replace(found, maps=(found.stream(name),))


def flow_shown(attention: Attention, asked: ImageRequest) -> Attention:
    """The flow to the query that is shown: all pairs of a picture take half an hour.

    Raises:
        UsageError: more than one query is shown, and they are too many.
    """
    from attnviz.analyses.lenses.flow import MOST_SOLVES, flow

    tokens = attention.main.query_tokens
    place = None if asked.everything else query_place(tokens, asked.patch)
    fits = isqrt(MOST_SOLVES) - sum(token.special for token in tokens)
    one = f"choose one --patch ({len(tokens):,} problems)"
    return flow(
        attention,
        None if place is None else (place,),
        f"{one}, give a smaller --image-size (at most {fits} patches), or use --lens rollout",
    )


# <image_run> One run of `attnviz image`: a picture's attention, written as data and over the
# picture.

ALL = "all"
MOST_PIXELS = 1000
"""Of a side of the picture on a page."""
TERMS = ("device", "dtype", "revision", "allow_pickle", "allow_code", "device_map")
"""What of an origin says how a model is loaded."""


@dataclass(frozen=True, slots=True)
class ImageRequest:
    """What was asked for beside the shared options.

    Attributes:
        options: the shared ones.
        file: the picture.
        patch: the query: "ROW,COLUMN", "all", or None for the class token or the mean.
        size: height and width to read it in, or None.
        overlay: a file for one head, or a mean of heads, over the picture.
        text: what is read with the picture, or None.
        token: of that text the query: its number, "all", or None for the last.
    """

    options: Options
    file: Path
    patch: str | None = None
    size: str | None = None
    overlay: Path | None = None
    text: str | None = None
    token: str | None = None

    @property
    def everything(self) -> bool:
        """True where no single query was chosen."""
        return ALL in (self.patch, self.token)

    @property
    def grid(self) -> Path | None:
        """A file for every head over the picture."""
        return self.options.output.grid

    @property
    def seen_choice(self) -> Choice:
        """The choice from what a lens has been held over already."""
        return replace(self.options.choice, lens="raw", explain=None)

    def check(self) -> None:
        """Find out before a model loads whether everything can be done and written.

        Raises:
            UsageError: a wrong suffix, choice or patch, or one file asked for twice.
            OutputError: a place that cannot be written.
        """
        output, origin = self.options.output, self.options.origin
        if origin.model is None or origin.model == "pocket":
            raise UsageError("'attnviz image' needs a vision model: --model ID_OR_FOLDER")
        check_choice(self.options.choice)
        choose(self.options.choice.lens, LENSES, "lens for pictures")
        choose(output.format, FORMATS, "format")
        paths = different(output.output, self.overlay, self.grid, output.html)
        for path in (self.overlay, self.grid):
            if path is not None:
                picture_suffix(path)
        if self.patch is not None and self.patch != ALL:
            parse_patch(self.patch)
        if self.everything and (self.overlay or self.grid or output.format == "table"):
            what = "patch" if self.patch == ALL else "token"
            raise UsageError(
                f"--{what} all gives every {what}'s look, which is data: use -f json, csv, …, or "
                f"choose one {what} to see"
            )
        if self.options.choice.lens == "gradient" and self.patch is not None:
            raise UsageError(
                "--lens gradient explains what the model decides, which no patch does: leave "
                "--patch out"
            )
        self.check_text()
        for path in paths:
            check_writable(path)

    def check_text(self) -> None:
        """Refuse options that are for pictures alone, or for pictures with a text.

        Raises:
            UsageError: one of them.
        """
        if self.text is None:
            if self.token is not None:
                raise UsageError("--token chooses a token of --text: give that too")
            return
        lens = self.options.choice.lens
        alone = {"--patch": self.patch, "--image-size": self.size}
        alone["--lens"] = None if lens == "raw" else lens
        if given := [option for option, value in alone.items() if value is not None]:
            way = " or use --lens raw" if given == ["--lens"] else ""
            raise UsageError(f"{given[0]} is for a picture alone: leave --text out{way}")
        check_text(self.text)


def show(asked: ImageRequest) -> None:
    """Read the picture, ask the model, and write what was asked for.

    Raises:
        AttnvizError: something could not be done.
    """
    from attnviz.models.hugging_face.vision.picture_text import load_picture_text_model
    from attnviz.models.hugging_face.vision.pictures import parse_size, read_picture
    from attnviz.models.hugging_face.vision.vision import load_vision_model

    asked.check()
    output = asked.options.output
    wanted = output.html is not None or output.open_page
    page = PageSink(output.html, many=False, shown=output.open_page) if wanted else None
    size = None if asked.size is None else parse_size(asked.size)
    picture = read_picture(asked.file)
    origin = asked.options.origin
    if FORMATS[asked.options.output.format].binary:
        refuse_binary_on_terminal(asked.options.output.format)
    terms = {name: getattr(origin, name) for name in TERMS}
    load = load_vision_model if asked.text is None else load_picture_text_model
    model: Any = load(str(origin.model), **terms)
    notes = Notes()
    with ExitStack() as stack:
        stack.enter_context(notices_to(None if asked.options.output.quiet else notes.say))
        path = asked.options.output.output
        draft = stack.enter_context(Draft(path)) if path else None
        if asked.text is None:
            attention = look_through(model, picture, asked, size)
        else:
            attention = model.attend_image(picture, asked.text)
        settings = {**attention.provenance.settings, "picture": asked.file.name}
        attention = replace(
            attention,
            id=asked.file.stem,
            provenance=replace(attention.provenance, settings=settings),
        )
        found = chosen(attention, asked)
        left, top, right, bottom = map(round, model.seen(picture, size))
        part = picture.crop((left, top, right, bottom))
        if not asked.options.output.quiet:
            notes.say_of(found)
        if asked.overlay is not None or asked.grid is not None:
            write_pictures(found, asked, seen(attention, part, asked.patch))
        if page is not None:
            page.write(apply_choice(attention, asked.seen_choice), as_jpeg(part))
        write_data(found, asked, draft)


def as_jpeg(part: Any) -> bytes:
    """A picture as a file, made smaller where it has more pixels than a page shows."""
    file = BytesIO()
    small = part.copy()
    small.thumbnail((MOST_PIXELS, MOST_PIXELS))
    small.save(file, "JPEG", quality=90)
    return file.getvalue()


def chosen(attention: Attention, asked: ImageRequest) -> Any:
    """What is seen from one query, selected and reduced, in this order."""
    choice = asked.seen_choice
    if asked.everything:
        return apply_choice(attention, choice)
    if asked.text is not None:
        return apply_choice(look_from_token(attention, asked.token), choice)
    return apply_choice(look_from(attention, asked.patch), choice)


def seen(attention: Attention, part: Any, patch: str | None) -> Seen:
    """The part of the picture that the patches cover, with the one that looks."""
    from attnviz.renderers.figures.overlay import Seen

    outlined = None
    if patch is not None:
        outlined = (*parse_patch(patch), *patch_grid(attention.main.key_tokens))
    return Seen(np.asarray(part), outlined)


def write_pictures(found: Attention, asked: ImageRequest, picture: Seen) -> None:
    """Draw the last chosen layer, and every chosen head, over the picture."""
    from attnviz.renderers.figures.figure import figure_bytes
    from attnviz.renderers.figures.overlay import overlay, overlay_grid

    item = found.maps[-1]
    words: dict[str, Any] = {"subtitle": said_looks(item), "unit": item.unit}
    if asked.overlay is not None:
        shown, which = one_picture(item)
        title = f"{describe_run(found, item)} · {which}"
        figure = overlay(picture, over_picture(shown)[0, 0], title=title, **words)
        write_file(asked.overlay, figure_bytes(figure, picture_suffix(asked.overlay)))
    if asked.grid is not None:
        heads = every_head(found)
        title = describe_run(found, as_one(found.main, heads) if len(found.maps) > 1 else item)
        if len(found.maps) > 1:
            words["subtitle"] += "; what goes to a coarser patch is shared out over what it covers"
        figure = overlay_grid(picture, **heads, title=title, **words)
        write_file(asked.grid, figure_bytes(figure, picture_suffix(asked.grid)))


def every_head(found: Attention) -> dict[str, Any]:
    """All layers of all maps as one array; coarser ones are spread, their shares shared out."""
    grids = [over_picture(item) for item in found.maps]
    rows, columns = (max(grid.shape[axis] for grid in grids) for axis in (-2, -1))
    heads = max((item.heads for item in found.maps), key=len)
    count = sum(len(grid) for grid in grids)
    whole = np.full((count, len(heads), rows, columns), np.nan, dtype=np.float32)
    place = 0
    for item, grid in zip(found.maps, grids, strict=True):
        down = np.arange(rows) * grid.shape[-2] // rows
        across = np.arange(columns) * grid.shape[-1] // columns
        share = grid[0, 0].size / (rows * columns)
        spread = grid[:, :, down[:, None], across] * share
        for head, name in enumerate(item.heads):
            whole[place : place + len(grid), heads.index(name)] = spread[:, head]
        place += len(grid)
    layers = tuple(name for item in found.maps for name in item.layers)
    return {"weights": whole, "layers": layers, "heads": heads}


def as_one(item: AttentionMap, heads: dict[str, Any]) -> AttentionMap:
    """A map of all layers, to be named in a title."""
    weights = np.nan_to_num(heads["weights"]).reshape(*heads["weights"].shape[:2], 1, -1)
    return item.with_weights(weights, layers=heads["layers"], heads=heads["heads"])


def write_data(found: Any, asked: ImageRequest, draft: Draft | None) -> None:
    """The numbers on stdout and, if asked, in a file."""
    display = display_of_stdout(many=False)
    every_layer = asked.options.choice.layer is not None

    def views() -> Any:
        return picture_views(found, every_layer)

    if draft is not None:
        renderer = make_renderer(format_of(draft.path), Display(width=display.width))
        draft.write(as_bytes(renderer.add(found, views)))
        draft.write(as_bytes(renderer.finish()))
        draft.keep()
    renderer = make_renderer(asked.options.output.format, display)
    write_bytes(as_bytes(renderer.add(found, views)))
    write_bytes(as_bytes(renderer.finish()))


# <image> attnviz image.

LENSES = ("raw", "rollout", "flow", "gradient", "norm")
OFFERED = {
    *("model", "device", "device_map", "dtype", "revision", "allow_pickle", "allow_code"),
    *("explain", "layer", "head", "reduce", "over", "special"),
    *("format", "output", "grid", "html", "open_page", "quiet"),
}
"""The shared options that mean something for a picture."""


@with_options(
    without=[
        item.name
        for half in (Origin, Choice, Output)
        for item in fields(half)
        if item.name not in OFFERED
    ]
)
def image(
    file: Annotated[str, typer.Argument(metavar="FILE", help="Picture: .png, .jpg, .webp, ….")],
    patch: Annotated[
        str | None,
        typer.Option(
            "--patch",
            metavar="ROW,COLUMN",
            rich_help_panel=CHOICE,
            help="Patch that looks, from 0,0 at the upper left, or all (as data); "
            "default: the class token, else the mean over patches.",
        ),
    ] = None,
    image_size: Annotated[
        str | None,
        typer.Option(
            "--image-size",
            metavar="SIZE",
            rich_help_panel=ORIGIN,
            help="Pixels to read the picture in: 384, or HEIGHTxWIDTH; "
            "default: what the model was trained on.",
        ),
    ] = None,
    text: Annotated[
        str | None,
        typer.Option(
            "--text",
            metavar="TEXT",
            rich_help_panel=ORIGIN,
            help="Text that is read with the picture, by a model of LLaVA's kind: its tokens look.",
        ),
    ] = None,
    token: Annotated[
        str | None,
        typer.Option(
            "--token",
            metavar="N",
            rich_help_panel=CHOICE,
            help="Token of --text that looks, from 0, or all (as data); default: the last.",
        ),
    ] = None,
    lens: Annotated[
        str,
        typer.Option(
            "--lens",
            metavar="NAME",
            rich_help_panel=CHOICE,
            help=f"What to make of the weights first: {', '.join(LENSES)}.",
            autocompletion=completing(LENSES),
        ),
    ] = "raw",
    overlay: Annotated[
        Path | None,
        typer.Option(
            "--overlay",
            metavar="FILE",
            rich_help_panel=OUTPUT,
            help="One head, or the mean over a layer's heads, over the picture: .png, .svg, .pdf.",
        ),
    ] = None,
    *,
    options: Options,
) -> None:
    """Show where in a picture a vision model looks: patch by patch, over the picture and as data.

    attnviz image sample_inputs/shapes.png --model ./my-vit --overlay look.png

    attnviz image sample_inputs/shapes.png --model ./my-vit --patch 3,5 --grid heads.png

    attnviz image sample_inputs/shapes.png --model ./my-vit --head 2 -f csv

    attnviz image sample_inputs/shapes.png --model ./my-vit --lens gradient --target cat

    attnviz image sample_inputs/shapes.png --model ./my-llava --text "Where is the tree?"
    """
    options = replace(options, choice=replace(options.choice, lens=lens))
    show(ImageRequest(options, Path(file), patch, image_size, overlay, text, token))
