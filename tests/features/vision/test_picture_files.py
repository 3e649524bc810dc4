"""Picture files of others: which formats are read, and one line for what is damaged or huge."""

import random
import struct
import zlib
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import EpsImagePlugin, Image

from attnviz.core.errors import InputError
from attnviz.features.image.overlay import picture_crop
from attnviz.features.video.frames import open_film
from attnviz.features.vision.picture_files import FORMATS, MOST_PIXELS, read_picture
from tests.invoke import attnviz

EPS = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\n{} loop\n"


@pytest.fixture
def postscript(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program in PostScript under a picture's name; whoever runs it fails."""

    def run(*_: object, **__: object) -> None:
        raise AssertionError("Ghostscript was started")

    monkeypatch.setattr(EpsImagePlugin, "Ghostscript", run)
    (tmp_path / "a.png").write_bytes(EPS)
    return tmp_path / "a.png"


@pytest.mark.parametrize(
    "read",
    [read_picture, picture_crop, lambda path: open_film([path])],
    ids=["picture", "shown", "frames"],
)
def test_postscript_under_a_pictures_name_is_not_run(read, postscript):
    with pytest.raises(InputError, match=r"a\.png' cannot be read as a picture: it is none of PNG"):
        read(postscript)


@pytest.mark.parametrize("words", [["image"], ["heads", "--input"]])
def test_commands_run_no_postscript(words, postscript):
    done = attnviz(*words, postscript)
    assert done.status == 1
    assert "cannot be read as a picture" in done.err
    assert "Traceback" not in done.err


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_of_the_list_is_read(name, tmp_path):
    Image.init()
    if name not in Image.SAVE:
        pytest.skip(f"this Pillow writes no {name}")
    Image.new("RGB", (4, 3), "red").save(tmp_path / "a.png", name)
    assert read_picture(tmp_path / "a.png").size == (4, 3)


def test_a_small_file_of_a_huge_picture_is_refused(tmp_path):
    def chunk(kind: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    side = int(MOST_PIXELS**0.5) + 1
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0))
    (tmp_path / "a.png").write_bytes(
        b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", zlib.compress(b""))
    )
    with pytest.raises(InputError, match="pixels: 67,108,864 at most, make it smaller"):
        read_picture(tmp_path / "a.png")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # Pillow's own, of what is damaged
@pytest.mark.parametrize("name", ["PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF", "PPM"])
def test_a_damaged_file_is_a_picture_or_one_line(name, tmp_path):
    draw = random.Random(name)
    path, exif = tmp_path / "a.png", Image.Exif()
    exif[0x0112] = 6
    frames = [Image.effect_noise((24, 16), 60 + step).convert("RGB") for step in range(3)]
    more = {"save_all": True, "append_images": frames[1:]} if name in ("GIF", "WEBP") else {}
    frames[0].save(path, name, exif=exif, **more)
    whole = path.read_bytes()
    for _ in range(150):
        damaged = bytearray(whole[: draw.randint(1, len(whole))])
        for _ in range(draw.randint(0, 4)):
            damaged[draw.randrange(min(len(damaged), 200))] = draw.randrange(256)
        path.write_bytes(damaged)
        for read in (read_picture, lambda one: open_film([one]).choose(4)):
            with suppress(InputError):
                read(path)


@pytest.mark.parametrize("kind", ["sixteen.png", "sixteen.tif", "float.tif", "pgm"])
def test_deep_pictures_look_like_those_of_8_bits(kind, tmp_path):
    grey = np.linspace(0, 1, 48).reshape(6, 8)
    file = tmp_path / ("deep.pgm" if kind == "pgm" else kind)
    if kind == "pgm":
        file.write_bytes(b"P5 8 6 65535\n" + np.rint(grey * 65535).astype(">u2").tobytes())
    elif kind == "float.tif":
        Image.fromarray(grey.astype(np.float32)).save(file)
    else:
        Image.fromarray(np.rint(grey * 65535).astype(np.uint16)).save(file)
    shades = np.asarray(read_picture(file))
    np.testing.assert_allclose(shades[..., 0], grey * 255, atol=0.51)
    assert (shades == shades[..., :1]).all()


def test_pictures_in_memory_are_those_of_their_files(tmp_path):
    shades = np.random.default_rng(0).integers(0, 256, (6, 8, 4), np.uint8)
    for count, form in ((3, "png"), (4, "png"), (3, "ppm")):
        own = shades[..., :count]
        Image.fromarray(own).save(tmp_path / f"a.{form}")
        from_file = np.asarray(read_picture(tmp_path / f"a.{form}"))
        half = own.astype(np.float64) / 255
        wide = own.astype(np.uint16) * 257
        for one in (own, Image.fromarray(own), half, wide, torch.tensor(own), torch.tensor(half)):
            np.testing.assert_allclose(np.asarray(read_picture(one)), from_file, atol=1)
    grey = np.asarray(read_picture(shades[..., 0]))
    np.testing.assert_array_equal(grey, np.repeat(shades[..., :1], 3, axis=-1))
    frames = open_film([shades, Image.fromarray(shades)]).choose(2).frames
    assert len(frames) == 2
    np.testing.assert_array_equal(*map(np.asarray, frames))


@pytest.mark.parametrize("given", [5, np.zeros((3, 6, 8)), np.zeros(4), np.zeros((4, 4, 2))])
def test_what_is_no_picture_in_memory_is_refused(given):
    with pytest.raises(InputError, match=r"give a file, a picture of Pillow, or an array \(height"):
        read_picture(given)


@pytest.mark.parametrize(
    ("pixels", "says"),
    [
        (np.full((4, 4), 70000, np.int32), "has int32 pixels: 8 or 16 bits"),
        (np.full((4, 4), np.nan, np.float32), "has pixels from nan to nan: 0 to 1"),
        (np.full((4, 4), 200.0, np.float32), "has pixels from 200 to 200: 0 to 1"),
    ],
)
def test_pixels_without_a_black_and_a_white_are_refused(pixels, says, tmp_path):
    Image.fromarray(pixels).save(tmp_path / "deep.tif")
    with pytest.raises(InputError, match=says):
        read_picture(tmp_path / "deep.tif")
