"""The frames of films: files of video, folders of pictures, animated pictures, pictures in order.

A file is opened once to find its frames and their times, and again to decode those that were
chosen: a film of an hour takes no more memory than the few frames that a model reads.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from attnviz.core.errors import AttnvizError, InputError, UsageError, first_line
from attnviz.core.records import dataclass
from attnviz.features.vision.picture_files import (
    MOST_PIXELS,
    name_of,
    on_white,
    open_picture,
    picture_of,
    read_picture,
)

if TYPE_CHECKING:
    from PIL.Image import Image

MOST_FRAMES = 64  # frames that a model reads at most, if it does not say: each has many patches
MOST_IN_A_FILE = 1 << 20  # nine hours at thirty a second
SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm", ".avif")
"""Of the files of a folder that are frames."""
CONTAINERS = (
    (4, b"ftyp", "mov"),
    (0, b"\x1aE\xdf\xa3", "matroska"),
    (8, b"AVI ", "avi"),
    (0, b"OggS", "ogg"),
    (0, b"FLV\x01", "flv"),
    (0, b"\x00\x00\x01\xba", "mpeg"),
    (0, b"\x47\x40", "mpegts"),
)
"""Where the mark of a file of video stands, the mark, and FFmpeg's name of its format. No other
format is tried: some of FFmpeg's open further files, or addresses that a file names."""
STILL = (b"avif", b"avis", b"mif1", b"msf1", b"heic", b"heix")  # pictures in such a file
NEEDS_AV = "a file of video needs PyAV: pip install 'attnviz[video]'"


@dataclass(frozen=True, slots=True, eq=False)
class Film:
    """Frames in order, not read yet.

    Attributes:
        name: in messages.
        count: of its frames.
        times: the seconds at which they begin; empty where no file says them.
        read: the frames of these numbers, which rise, upright and in RGB.
    """

    name: str
    count: int
    times: tuple[float, ...]
    read: Callable[[Sequence[int]], list[Image]]

    def __len__(self) -> int:
        return self.count

    def choose(self, most: int, *, exactly: bool = False) -> ChosenFrames:
        """So many frames, evenly from the first to the last; `exactly`: some twice if it has fewer.

        Raises:
            InputError: frames of several sizes, too large, or damaged.
        """
        count = most if exactly else min(most, self.count)
        places = np.rint(np.linspace(0, self.count - 1, count)).astype(int).tolist()
        numbers = sorted(set(places))
        by_number = dict(zip(numbers, self.read(numbers), strict=True))
        frames = [by_number[place] for place in places]
        _check_sizes(frames, self.name)
        times = tuple(self.times[place] for place in places) if self.times else ()
        return ChosenFrames(tuple(frames), times, self._note(places))

    def _note(self, places: Sequence[int]) -> str:
        if len(places) == self.count:
            return ""
        if len(places) < self.count:
            how = f"{len(places)} of {self.count:,} frames are read, evenly"
        else:
            how = f"the model reads {len(places)} frames, and the film has {self.count}: some twice"
        numbers = list(dict.fromkeys(places))
        if self.times:
            return f"{how}, at {_some_of([f'{self.times[place]:.2f}' for place in numbers])} s"
        return f"{how}: {_some_of([*map(str, numbers)])}"


@dataclass(frozen=True, slots=True, eq=False)
class ChosenFrames:
    """Frames that were read, the seconds at which they begin (or none), and which these are."""

    frames: tuple[Image, ...]
    times: tuple[float, ...] = ()
    note: str = ""


def _some_of(words: Sequence[str]) -> str:
    return ", ".join(words if len(words) <= 16 else [*words[:7], "…", *words[-2:]])


def _check_sizes(frames: Sequence[Image], name: str) -> None:
    if sum(one.width * one.height for one in frames) > 2 * MOST_PIXELS:
        raise InputError(
            f"{name} brings the video to more than {2 * MOST_PIXELS:,} pixels: make the frames "
            "smaller, or give fewer"
        )
    sizes = sorted({frame.size for frame in frames})
    if len(sizes) > 1:
        two = " and ".join(f"{width} × {height}" for width, height in sizes[:2])
        raise InputError(f"frames of a video are of one size, and these have {two} pixels")


def open_film(sources: Sequence[Path | Any]) -> Film:
    """The film of a folder of frames, of files of video or animated pictures, or of pictures.

    Several sources follow each other; they have times only if there is one.

    Raises:
        InputError: no film, fewer than two frames, or one that cannot be read.
        UsageError: a file of video where PyAV is not installed.
    """
    paths = [path for source in sources for path in _in_folder(source)]
    films = [_film_of(path) for path in paths]
    film = films[0] if len(films) == 1 else _join_films(films)
    if film.count < 2:
        raise InputError(f"{film.name} is a single picture: --video needs two frames or more")
    return film


def _in_folder(source: Path | Any) -> list[Path | Any]:
    """The frames of a folder in their order, numbers as numbers; any other source itself."""
    if not isinstance(source, Path) or not source.is_dir():
        return [source]
    files = [one for one in source.iterdir() if one.suffix.lower() in SUFFIXES and one.is_file()]
    if not files:
        raise InputError(f"'{source}' is a folder without frames: none ends in {SUFFIXES[0]}, …")

    def order(path: Path) -> list[tuple[int, int, str]]:
        parts = re.split(r"(\d+)", path.name)
        return [(0, int(one), "") if one.isdecimal() else (1, 0, one.lower()) for one in parts]

    return sorted(files, key=order)


def _film_of(path: Path | Any) -> Film:
    if isinstance(path, Path) and (form := _container(path)):
        return _open_video_file(path, form)
    read_picture(path)  # says in one line what is no picture
    name = name_of(path)
    source = path if isinstance(path, Path) else picture_of(path)
    times, start = [0.0], 0.0
    with open_picture(source, name) as picture:
        count = int(getattr(picture, "n_frames", 1))
        for number in range(count if count > 1 else 0):
            picture.seek(number)
            picture.load()  # WebP says how long a frame lasts only then
            start += float(picture.info.get("duration") or 0) / 1000
            times.append(start)
    own_times = tuple(times[:count]) if start else ()
    return Film(name, count, own_times, partial(_read_pages, source, name))


def _read_pages(source: Path | Image, name: str, numbers: Sequence[int]) -> list[Image]:
    if numbers == [0]:  # upright, as a camera's pictures are
        return [read_picture(source)]
    frames = []
    with open_picture(source, name) as picture:
        for number in numbers:
            picture.seek(number)
            frames.append(on_white(picture.copy(), name, picture.format))
    return frames


def _join_films(films: Sequence[Film]) -> Film:
    """Films one after the other as one."""
    places = [(film, number) for film in films for number in range(film.count)]

    def read(numbers: Sequence[int]) -> list[Image]:
        frames = list[Any]()
        for film in films:
            own = [places[number][1] for number in numbers if places[number][0] is film]
            frames += film.read(own) if own else []
        return frames

    return Film(films[0].name, len(places), (), read)


def _container(path: Path) -> str:
    """FFmpeg's name for the format of a file of video; empty: it is none that is known."""
    try:
        with path.open("rb") as file:
            head = file.read(16)
    except OSError:
        return ""  # what reads it says why
    if head[8:12] in STILL:
        return ""
    return next((form for at, mark, form in CONTAINERS if head[at:].startswith(mark)), "")


def _open_video_file(path: Path, form: str) -> Film:
    """The film of a file of video, from the times of its packets; nothing is decoded."""
    name = f"'{path}'"
    with _open_container(path, form) as (container, stream):
        size = stream.codec_context.width * stream.codec_context.height
        if size > MOST_PIXELS:
            raise InputError(
                f"{name} has {size:,} pixels: {MOST_PIXELS:,} at most, make it smaller"
            )
        stamps = list[int]()
        keys = list[int]()
        for packet in container.demux(stream):
            if packet.pts is None or packet.is_discard:
                continue
            stamps.append(packet.pts)
            keys += [packet.pts] * packet.is_keyframe
            if len(stamps) > MOST_IN_A_FILE:
                raise InputError(f"{name} has more than {MOST_IN_A_FILE:,} frames: cut it")
        base = float(stream.time_base)
    if not stamps:
        raise InputError(f"{name} has no frame that can be read")
    stamps.sort()
    times = tuple((stamp - stamps[0]) * base for stamp in stamps)
    read = partial(_decode, path, form, stamps, sorted(keys))
    return Film(name, len(stamps), times, read)


def _decode(
    path: Path, form: str, stamps: Sequence[int], keys: Sequence[int], numbers: Sequence[int]
) -> list[Image]:
    """Frames by number, decoded from the last key frame before each."""
    chosen_stamps = [stamps[number] for number in numbers]
    frames = list[Any]()
    with _open_container(path, form) as (container, stream):
        later_frames, last = container.decode(stream), -(1 << 62)
        for stamp in chosen_stamps:
            key = keys[max(bisect_right(keys, stamp) - 1, 0)] if keys else stamps[0]
            if key > last:  # nothing between what is decoded and the key frame is needed
                container.seek(key, stream=stream)
                later_frames = container.decode(stream)
            frame = next(
                (one for one in later_frames if one.pts is not None and one.pts >= stamp), None
            )
            if frame is None:
                raise InputError(f"'{path}' ends before its frame at {stamp * stream.time_base} s")
            last = int(frame.pts)
            picture = frame.to_image()
            rotation = int(getattr(frame, "rotation", 0) or 0)
            frames.append(picture.rotate(rotation, expand=True) if rotation else picture)
    return frames


@contextmanager
def _open_container(path: Path, form: str) -> Iterator[tuple[Any, Any]]:
    """A file of video and its stream of pictures; whatever PyAV raises is one line."""
    try:
        import av
    except ImportError as error:
        raise UsageError(f"'{path}': {NEEDS_AV}") from error
    try:
        with av.open(str(path.absolute()), format=form) as container:
            if not container.streams.video:
                raise InputError(f"'{path}' has sound and no pictures")
            stream = container.streams.video[0]
            yield container, stream
    except (AttnvizError, MemoryError):
        raise
    except Exception as error:  # decoders raise whatever a damaged file leads them to
        raise InputError(f"'{path}' cannot be read as a video: {first_line(error)}") from error
