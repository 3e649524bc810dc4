"""attnviz image."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from attnviz.commands.arguments import InMemoryInput
from attnviz.commands.command import CHOICE, ORIGIN, OUTPUT, Run, command
from attnviz.core.errors import UsageError, choose, in_short
from attnviz.core.options import LENS_NAMES
from attnviz.core.options.option import arg, opt, rare
from attnviz.features.image.request import ALL, PictureRequest, look_at_pictures
from attnviz.runs.pipeline import Result
from attnviz.runs.reporting import hold_notes

LENSES = tuple(name for name in LENS_NAMES if name != ALL)


@command(
    *(
        "model",
        "compute",
        "generate",
        "explain",
        "heads",
        "reduce",
        "special",
        "show",
        "look",
        "page",
        "browse",
        "top",
        "digits",
    ),
    also=("grid",),
    python=["check"],
    draws={
        "overlay": "the weights of one head, or the mean over a layer, over the picture",
        "gif": "the same over the frames of --video, as a film",
    },
)
def image(
    file: InMemoryInput = arg(
        "Picture: .png, .jpg, .webp, …; with --video a film or a folder of frames.",
        "FILE",
        default=...,
        shell=str,
        python="the picture: .png, .jpg, .webp, …; or one in memory, of Pillow, or an array "
        "(height, width) or (height, width, channels) of 8 or 16 bits, or of floats from 0 to 1.",
    ),
    more: Sequence[InMemoryInput] | None = arg(
        "Further pictures, with --text or --video.", "FILE…", shell=list[str] | None
    ),
    *,
    patch: str | None = opt(
        CHOICE,
        "--patch ROW,COLUMN",
        "Patch whose attention is shown, from 0,0 at the upper left (of a video "
        "STEP,ROW,COLUMN), or all (as data); default: the class token, or else the mean over all "
        "patches.",
    ),
    image_size: str | None = rare(
        ORIGIN,
        "--image-size SIZE",
        "Size in pixels to read the picture in: 384, or HEIGHTxWIDTH; default: the size that "
        "the model was trained on.",
    ),
    text: str | None = opt(
        ORIGIN,
        "--text TEXT",
        "Prompt that a model like LLaVA reads with the pictures, or a captioner's caption; its "
        "tokens are the rows.",
    ),
    video: bool = rare(
        ORIGIN,
        "--video",
        "Read a video: a folder of frames, an animated picture, a file of video, or pictures in "
        "order; evenly as many frames as the model reads.",
    ),
    token: str | None = opt(
        CHOICE,
        "--token N",
        "Token of --text or of what --generate wrote, or query for objects, whose attention is "
        "shown, from 0, or all; default: the last, all that was written, or the surest queries.",
    ),
    lens: str = opt(
        CHOICE,
        "--lens NAME",
        "What to compute from the weights: {choices}. raw shows them as they are.",
        default="raw",
        choices=LENSES,
    ),
    smooth: bool = rare(OUTPUT, "--smooth", "Smooth the weights between patches in pictures."),
    **options: Any,
) -> "Result":
    """Show where in a picture a vision model looks: patch by patch, over the picture and as data.

    attnviz image shapes.png --picture look.png

    attnviz image shapes.png --patch 3,5 --grid heads.png

    attnviz image shapes.png --head 2 -f csv

    attnviz image shapes.png --lens gradient --target star

    attnviz image shapes.png --model microsoft/trocr-small-printed --generate 20

    Returns:
        The attention; `.picture("overlay")` and `.picture("grid")` lie over the picture.
    """
    run = Run("image", options)
    output = run.options.output
    choose(lens, LENSES, "lens")
    if not isinstance(more, list | tuple | None):
        raise UsageError(f"more={in_short(more)} is no list of pictures")
    on_screen = output.format in (None, "table")
    screens = {
        "--picture": output.picture,
        "--grid": output.grid,
        "--show": output.show,
    }
    screens["-f table"] = on_screen and run.in_shell
    request = PictureRequest(
        files=tuple(Path(one) if isinstance(one, str) else one for one in (file, *(more or ()))),
        patch=patch,
        image_size=image_size,
        text=text,
        video=video,
        token=token,
        lens=lens,
        smooth=smooth,
        screen=next((name for name, value in screens.items() if value), ""),
    )
    request.check(run.options)
    with run.report() as report:
        images = request.read()
        item = look_at_pictures(request, images, run.options)
        hold_notes(item.attention, report)
        report.add(item)
        what = "frame" if video else "picture"
        report.finish(f"{len(images)} {what}{'s' if len(images) > 1 else ''}")
    return run.attention
