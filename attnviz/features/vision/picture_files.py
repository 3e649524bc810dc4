"""Pictures from files; nothing else in the package opens a file as a picture."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from io import BytesIO
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from attnviz.core.errors import AttnvizError, InputError, first_line
from attnviz.core.values import as_array

if TYPE_CHECKING:
    from PIL.Image import Image

FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF", "PPM", "AVIF", "JPEG2000")
"""The formats that are read, whatever a file's name. Others of Pillow's start a program (EPS runs
Ghostscript) or read further files."""
MOST_PIXELS = 1 << 26  # pixels of a picture at most; in colours they take 256 MiB


@contextmanager
def open_picture(
    file: Path | IO[bytes] | Image, name: str, formats: tuple[str, ...] = FORMATS
) -> Iterator[Image]:
    """A picture whose pixels are not read yet; one of Pillow's own stays open.

    Raises:
        InputError: it is damaged, too large or of another format, whatever Pillow raised for it.
    """
    from PIL import Image, UnidentifiedImageError

    Image.init()
    readable = [one for one in formats if one in Image.OPEN]  # AVIF is newer than the lowest Pillow
    try:
        handle: Any = nullcontext(file)
        if not isinstance(file, Image.Image):
            handle = Image.open(file, formats=readable)
        with handle as picture:
            if (count := picture.width * picture.height) > MOST_PIXELS:
                raise InputError(
                    f"{name} has {count:,} pixels: {MOST_PIXELS:,} at most, make it smaller"
                )
            yield picture
    except (AttnvizError, MemoryError):
        raise
    except UnidentifiedImageError as error:
        names = ", ".join(formats)
        raise InputError(f"{name} cannot be read as a picture: it is none of {names}") from error
    except Exception as error:  # the decoders raise whatever a damaged file leads them to
        raise InputError(f"{name} cannot be read as a picture: {first_line(error)}") from error


def read_picture(path: Path | Any) -> Image:
    """A picture from a file or in memory, upright, in RGB, white where it is transparent."""
    if not isinstance(path, Path):
        return upright_picture(picture_of(path), name_of(path))
    if not path.is_file():
        what = "is a folder: --video reads one of frames" if path.is_dir() else "does not exist"
        raise InputError(f"'{path}' {what}")
    return upright_picture(path, f"'{path}'")


def upright_picture(
    file: Path | IO[bytes] | Image, name: str, formats: tuple[str, ...] = FORMATS
) -> Image:
    """The same for an open file; errors begin with `name`, and formats are Pillow's names."""
    from PIL import ImageOps

    with open_picture(file, name, formats) as picture:
        return on_white(ImageOps.exif_transpose(picture), name, picture.format)


def name_of(picture: Path | Any) -> str:
    """The words for a picture in messages."""
    return f"'{picture}'" if isinstance(picture, Path) else "the picture"


def picture_of(source: Any) -> Image:
    """A picture of Pillow's, or an array (height, width) of grey, or with 3 or 4 channels last.

    Raises:
        InputError: it is none, or its numbers have no range from black to white.
    """
    from PIL import Image

    if isinstance(source, Image.Image):
        return source
    array = as_array(source)
    if array.ndim != 2 and array.shape[2:] not in ((3,), (4,)):
        raise InputError(
            f"the picture is a {type(source).__name__} of the shape {array.shape}: give a file, a "
            "picture of Pillow, or an array (height, width) or (height, width, 3 or 4 channels)"
        )
    return to_bytes(array, "the picture")


def on_white(picture: Image, name: str, form: str | None = None) -> Image:
    """A picture in RGB, with white where it is transparent; `form` is the format of its file."""
    from PIL import Image

    if picture.mode in ("I", "F") or picture.mode.startswith("I;16"):
        picture = to_bytes(picture, name, form)
    if not picture.has_transparency_data:
        return picture.convert("RGB")
    layers = picture.convert("RGBA")
    ground = Image.new("RGBA", layers.size, "white")
    return Image.alpha_composite(ground, layers).convert("RGB")


def to_bytes(picture: Any, name: str, form: str | None = None) -> Image:
    """A picture or an array of 16 bits, or of floats from 0 to 1, with 8 bits a pixel.

    Raises:
        InputError: its numbers have no range from black to white.
    """
    import numpy as np
    from PIL import Image

    values = np.asarray(picture)
    whole = values.dtype.kind in "iu"
    # Pillow reads PNG and PGM of 16 bits into 32.
    if values.dtype.itemsize == 2 or (values.dtype == np.int32 and form in ("PNG", "PPM")):
        most = 65535
    else:
        most = 255 if whole else 1
    if values.dtype.kind not in "uif" or (whole and values.dtype.itemsize > 2 and most == 255):
        raise InputError(f"{name} has {values.dtype} pixels: 8 or 16 bits, or floats from 0 to 1")
    low, high = (float(values.min()), float(values.max())) if values.size else (0.0, 0.0)
    if not 0 <= low <= high <= most:
        raise InputError(f"{name} has pixels from {low:g} to {high:g}: 0 to {most:,} can be read")
    return Image.fromarray(np.rint(values * (255 / most)).astype(np.uint8))


PAGE_PIXELS = 1000  # of a side of the picture on a page


def as_jpeg(part: Any, most: int = PAGE_PIXELS) -> bytes:
    """A picture as JPEG, made smaller if a side has more pixels than a page shows."""
    file = BytesIO()
    small = part.copy()
    small.thumbnail((most, most))
    small.save(file, "JPEG", quality=90)
    return file.getvalue()
