"""The look of the picture that is being drawn: the options that all pictures share.

Whoever draws a picture wraps that in `drawing`, as matplotlib's users do with `rc_context`; the
functions that write a title, choose colours or measure a text ask `chosen` for an option.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.core.errors import UsageError, did_you_mean, in_words
from attnviz.core.notices import notify
from attnviz.core.options.look import Look, parse_scale
from attnviz.core.records import dataclass, field

_STRIDE = 16
_MOST_SPREAD = 0.45  # largest deviation of steps in lightness, as a share of their mean
_LEAST_RANGE, _MOST_ASKEW = 30.0, 12.0
"""Of L*, which is 0 for black and 100 for white: from end to end, and between the two ends."""


@dataclass(frozen=True, slots=True)
class Drawing:
    """One picture: its look, the notes on how to read it, and the options it has used."""

    look: Look = field(default_factory=Look)
    notes: tuple[str, ...] = ()
    options: set[str] = field(default_factory=set)
    tables: dict[bool, NDArray[np.uint8]] = field(default_factory=dict)


_NO_DRAWING = Drawing()
_drawing: ContextVar[Drawing] = ContextVar("drawing", default=_NO_DRAWING)


@contextmanager
def drawing(look: Look, notes: Iterable[str] = (), picture: str = "picture") -> Iterator[None]:
    """Draw the block's picture with this look and notes; an option without use is noted."""
    state = Drawing(look, tuple(notes))
    token = _drawing.set(state)
    try:
        yield
    finally:
        _drawing.reset(token)
    if idle := [option for name, option in look.flags.items() if name not in state.options]:
        verb = "changes" if len(idle) == 1 else "change"
        notify(f"{in_words(idle, 'and')} {verb} nothing in the {picture.replace('_', ' ')}")


def look_option(name: str) -> Any:
    """An option of the look; the picture is then known to use it."""
    state = _drawing.get()
    state.options.add(name)
    return getattr(state.look, name)


def reading_notes() -> tuple[str, ...]:
    """Notes that a reader of the picture needs to understand its data."""
    return _drawing.get().notes


def chosen_scale(*, signed: bool) -> tuple[float, float] | None:
    """The ends of the scale where scale= names them; for signed values 0-0.1 is −0.1 to 0.1."""
    text = look_option("scale")
    ends = None if text is None else parse_scale(text)
    return (-ends[1], ends[1]) if ends and signed and ends[0] >= 0 else ends


def color_table(name: str) -> NDArray[np.uint8]:
    """The colours of matplotlib's map of that name, shape (257, 3).

    Raises:
        UsageError: there is none.
    """
    from matplotlib import colormaps

    if name not in colormaps:
        like = did_you_mean(name, colormaps)
        raise UsageError(f"--style cmap='{name}' is no colour map of matplotlib.{like}")
    colors = colormaps[name](np.linspace(0, 1, 257))
    table: NDArray[np.uint8] = np.rint(colors[:, :3] * 255).astype(np.uint8)
    return table


def chosen_table(*, signed: bool) -> NDArray[np.uint8] | None:
    """The colours of --style cmap; None without one. A note says where they mislead."""
    name, tables = look_option("cmap"), _drawing.get().tables
    if name is None:
        return None
    if signed not in tables:
        tables[signed] = color_table(name)
        if doubt := doubt_of(tables[signed], signed=signed):
            notify(f"--style cmap={name}: {doubt}")
    return tables[signed]


def doubt_of(table: NDArray[np.uint8], *, signed: bool) -> str:
    """Why a reader would misjudge values in these colours; empty if these are even.

    Even colours differ in lightness (L* of CIELAB) by about as much at every step: in one
    direction, or for signed values in two that are symmetric about the middle.
    """
    levels = lightness(table)
    middle = len(levels) // 2
    halves = levels[: middle + 1], levels[middle:][::-1]
    askew = float(np.abs(halves[0] - halves[1]).max())
    if _is_even(levels):
        return "signed values need two colours that meet at 0, such as RdBu" if signed else ""
    if all(map(_is_even, halves)) and askew <= _MOST_ASKEW:
        return "" if signed else "shares need one direction of colours, such as cividis"
    return "equal steps in value are unequal steps in lightness (L*); even are " + (
        "RdBu and BrBG" if signed else "viridis, cividis and gray_r"
    )


def _is_even(levels: NDArray[np.float64]) -> bool:
    steps = np.diff(levels[::_STRIDE])
    one_way = bool((steps > 0).all() or (steps < 0).all())
    spread = float(np.std(steps)) / max(abs(float(np.mean(steps))), 1e-9)
    return one_way and spread <= _MOST_SPREAD and abs(levels[-1] - levels[0]) >= _LEAST_RANGE


def lightness(colors: NDArray[np.uint8]) -> NDArray[np.float64]:
    """L* of CIELAB, 0 black to 100 white, of colours in sRGB."""
    level = relative_luminance(colors)
    return np.where(level > 216 / 24389, 116 * np.cbrt(level) - 16, level * 24389 / 27)


def relative_luminance(colors: Any) -> NDArray[np.float64]:
    """The light of colours in sRGB, 0 black to 1 white (WCAG 2.2); their last axis is RGB."""
    share = np.asarray(colors, dtype=np.float64) / 255
    linear = np.where(share <= 0.04045, share / 12.92, ((share + 0.055) / 1.055) ** 2.4)
    return np.asarray(linear @ np.array([0.2126, 0.7152, 0.0722]))
