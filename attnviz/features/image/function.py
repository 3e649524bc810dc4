"""The function of Python: where in a picture a vision model looks."""

from collections.abc import Sequence
from pathlib import Path
from typing import Unpack

from attnviz.api import arguments
from attnviz.api.collected import collect, only_result
from attnviz.core.errors import UsageError, choose, in_short
from attnviz.core.options import LENS_NAMES
from attnviz.features.image.request import ALL, PictureRequest, look_at_pictures
from attnviz.runs.pipeline import Result
from attnviz.runs.reporting import hold_notes


@arguments.public
def image(
    file: arguments.InMemoryInput,
    more: Sequence[arguments.InMemoryInput] = (),
    *,
    patch: str | None = None,
    image_size: str | None = None,
    text: str | None = None,
    video: bool = False,
    token: str | None = None,
    lens: str = "raw",
    smooth: bool = False,
    **options: Unpack[arguments.ImageOptions],
) -> Result:
    """Where in a picture a vision model looks, patch by patch.

    Args:
        file: the picture: .png, .jpg, .webp, …; or one in memory, of Pillow, or an array (height,
            width) or (height, width, channels) of 8 or 16 bits, or of floats from 0 to 1.
        more: further pictures, with a text.
        patch: the patch that looks, "row,column" from "0,0" at the upper left, or "all"; None: the
            class token, else the mean over patches.
        image_size: pixels to read the picture in: "384", or "HEIGHTxWIDTH".
        text: what is read with the pictures, by a model like LLaVA, or a caption: its tokens look.
        video: the frames of an animated picture, or all pictures in order, are a video.
        token: the token of the text that looks, from 0, or "all".
        lens: what to make of the weights first.
        smooth: smooth weights between patches in pictures.
        options: those of `attnviz image`, by name.

    Returns:
        The attention; `.picture("overlay")` and `.picture("grid")` lie over the picture.
    """
    choose(lens, [name for name in LENS_NAMES if name != ALL], "lens")
    if not isinstance(more, list | tuple):
        raise UsageError(f"more={in_short(more)} is no list of pictures")
    request = PictureRequest(
        files=tuple(Path(one) if isinstance(one, str) else one for one in (file, *more)),
        patch=patch,
        image_size=image_size,
        text=text,
        video=video,
        token=token,
        lens=lens,
        smooth=smooth,
    )
    how = arguments.read_options(options)
    request.check(how)
    with collect("image", "maps", how) as report:
        item = look_at_pictures(request, request.read(), how)
        hold_notes(item.attention, report)
        report.add(item)
    return only_result(report)
