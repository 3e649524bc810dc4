"""The colours of weights, the same in the terminal, in pictures and on pages.

Two colour maps: light to dark blue for shares of attention, and dark orange over light to dark blue
for signed values. They are computed in OKLab (Ottosson 2020), where equal distances look equally
large. Lightness changes evenly, so both can be read in grey and by colour-blind readers, who can
also tell blue from orange.
"""

import math

import numpy as np
from numpy.typing import NDArray

from attnviz.core import measures, registry, tokens
from attnviz.core.attention_map import AttentionMap
from attnviz.renderers.look import chosen_scale, chosen_table, look_option, relative_luminance

Limits = tuple[float, float]  # ends of the colour scale: (0, top), or (-top, top) if signed
Color = tuple[int, int, int]  # red, green and blue, each 0 to 255

BEYOND = "weights beyond the scale are drawn in the colour of its end"
BEYOND_SHARE = 0.005  # of the cells shown, at most, lie beyond a scale
FIRST_ROWS = 3, 0.1  # of a causal map, at least and as a share of all: large, whatever a head does
SAMPLE = 2**18  # weights that set a scale at most: of more a fixed random choice

LABELLED: Color = (180, 60, 0)
SPECIAL: Color = (125, 125, 125)
INK: Color = (26, 26, 26)
FAINT: Color = (90, 90, 90)
PAPER: Color = (255, 255, 255)
BLACK: Color = (0, 0, 0)
NO_VALUE: Color = (190, 190, 190)

# Anchors as lightness (0 black, 1 white), chroma, hue in degrees.
_BLUES = ((0.970, 0.013, 240.0), (0.80, 0.085, 243.0), (0.60, 0.130, 250.0), (0.25, 0.090, 262.0))
_ORANGES = ((0.970, 0.0, 60.0), (0.80, 0.085, 62.0), (0.60, 0.120, 50.0), (0.32, 0.085, 45.0))
_BLUES_OF_SIGNED = ((0.970, 0.0, 240.0), *_BLUES[1:3], (0.32, 0.100, 260.0))
_OKLAB_TO_CONE = np.array(
    [
        [1.0, 0.3963377774, 0.2158037573],
        [1.0, -0.1055613458, -0.0638541728],
        [1.0, -0.0894841775, -1.2914855480],
    ]
)
_CONE_TO_LINEAR = np.array(
    [
        [4.0767416621, -3.3077115913, 0.2309699292],
        [-1.2684380046, 2.6097574011, -0.3413193965],
        [-0.0041960863, -0.7034186147, 1.7076147010],
    ]
)


def even_path(anchors: tuple[tuple[float, float, float], ...], steps: int) -> NDArray[np.uint8]:
    """Colours in sRGB along the anchors in steps of equal length in OKLab; shape (steps, 3)."""
    lightness, chroma, hue = np.array(anchors).T
    fine = np.linspace(0, 1, 1024)
    # Anchors are placed by lightness, so lightness rises evenly along the path.
    at = (lightness[0] - lightness) / (lightness[0] - lightness[-1])
    angle = np.radians(np.interp(fine, at, hue))
    strength = np.interp(fine, at, chroma)
    level = np.interp(fine, at, lightness)
    lab = np.stack([level, strength * np.cos(angle), strength * np.sin(angle)], axis=-1)
    length = np.concatenate([[0.0], np.cumsum(np.linalg.norm(np.diff(lab, axis=0), axis=-1))])
    even = np.linspace(0, length[-1], steps)
    lab = np.stack([np.interp(even, length, axis) for axis in lab.T], axis=-1)
    linear = np.clip((lab @ _OKLAB_TO_CONE.T) ** 3 @ _CONE_TO_LINEAR.T, 0, 1)
    gamma = np.where(linear <= 0.0031308, 12.92 * linear, 1.055 * linear ** (1 / 2.4) - 0.055)
    colors: NDArray[np.uint8] = np.rint(gamma * 255).astype(np.uint8)
    return colors


def diverging_path(
    down: tuple[tuple[float, float, float], ...], up: tuple[tuple[float, float, float], ...]
) -> NDArray[np.uint8]:
    """Two paths from a common middle, the first one backwards; shape (257, 3)."""
    return np.concatenate([even_path(down, 129)[:0:-1], even_path(up, 129)])


SHADES = even_path(_BLUES, 256)  # from 0, nearly white, to the top of the scale; shape (256, 3)
SIGNED_SHADES = diverging_path(_ORANGES, _BLUES_OF_SIGNED)
"""From the most negative over 0, in the middle, to the most positive; shape (257, 3)."""
GLOW = even_path(((0.30, 0.14, 310), (0.50, 0.21, 355), (0.72, 0.19, 410), (0.95, 0.15, 465)), 256)
"""Shares over a picture: from violet over red to yellow, since few pictures are full of these."""


def shades(limits: Limits) -> NDArray[np.uint8]:
    """The colour map of a scale: that of cmap, or the signed one if the scale starts below 0."""
    signed = limits[0] < 0
    if (table := chosen_table(signed=signed)) is not None:
        return table
    return SIGNED_SHADES if signed else SHADES


def reach(sizes: NDArray[np.float32]) -> float:
    """How far a scale has to reach for these sizes; 0 if all are 0.

    At most `BEYOND_SHARE` of the cells lie beyond (so none of fewer than 200), and those within
    hold at least half of the sum: else sharp heads of long texts, whose few large weights are all
    they say, would end in the colour of their noise. Cells that are 0 or NaN do not count: most of
    them are hidden by a mask.
    """
    sizes = np.sort(sizes[sizes > 0])
    if not sizes.size:
        return 0.0
    sums = np.cumsum(sizes, dtype=np.float64)
    rank = math.ceil(round((1 - BEYOND_SHARE) * sizes.size, 6)) - 1
    return float(sizes[max(rank, int(np.searchsorted(sums, sums[-1] / 2)))])


def limits_of(weights: NDArray[np.float32], values: str) -> Limits:
    """The scale of weights, one for all that stand side by side (see `reach`)."""
    flat = weights.ravel()
    if flat.size > SAMPLE:
        flat = flat[np.random.default_rng(0).integers(flat.size, size=SAMPLE)]
    return up_to(reach(np.abs(flat) if values == "signed" else flat), values)


def up_to(largest: float, values: str) -> Limits:
    """A scale up to a weight.

    Shares go from 0 to 1. Where all are below a half, and so would all look pale, the scale ends at
    the next round number. Signed values go as far on both sides of 0.
    """
    if values == "signed":
        top = round_up(largest)
        return -top, top
    return 0.0, 1.0 if largest >= 0.5 else round_up(largest)


def scale_of(item: AttentionMap) -> Limits:
    """The scale of a map, from its links between words (see `limits_of`).

    Special tokens and sinks often exceed all else and would leave words pale, and so do the first
    rows of a causal map (`FIRST_ROWS`), which see few keys: they count only where all other weights
    are 0.
    """
    return limits_of(_between_words(item), item.values)


def picture_scale(item: AttentionMap) -> Limits:
    """The scale of a map in a picture: what scale= says, or else `scale_of`.

    With scale=shared it ends at the largest weight, and with own at that, rounded to two digits.
    """
    signed = item.values == "signed"
    if limits := chosen_scale(signed=signed):
        return limits
    match look_option("scale"):
        case None:
            return scale_of(item)
        case "own":
            top = round_up(largest_of(item), 2)
            return -top if signed else 0.0, top
    return up_to(largest_of(item), item.values)


def line_scale(item: AttentionMap) -> Limits:
    """The scale of lines, which are drawn for the largest weights alone: up to the largest."""
    limits = chosen_scale(signed=item.values == "signed")
    return limits or up_to(largest_of(item), item.values)


def largest_of(item: AttentionMap) -> float:
    """The largest weight between words; of all weights if those are 0."""
    sizes = np.abs(item.weights) if item.values == "signed" else item.weights
    peaks: NDArray[np.float32] = np.nan_to_num(np.fmax.reduce(sizes, axis=(0, 1)))
    between = peaks[tokens.word_cells(item)]
    return float((between if between.any() else peaks).max())


def _between_words(item: AttentionMap) -> NDArray[np.float32]:
    """The weights that set a map's scale, or a fixed random choice of `SAMPLE` of them."""
    cells = tokens.word_cells(item, blocks=True)
    if tokens.is_causal(item):
        later = cells.copy()
        later[: max(FIRST_ROWS[0], int(FIRST_ROWS[1] * len(cells)))] = False
        cells = later if later.any() else cells
    flat, places = item.weights.reshape(-1, cells.size), np.flatnonzero(cells)
    if len(flat) * len(places) > SAMPLE:
        random = np.random.default_rng(0)
        heads, picks = (random.integers(len(one), size=SAMPLE) for one in (flat, places))
        between = flat[heads, places[picks]]
    else:
        between = flat[:, places]
    return between if np.nan_to_num(between).any() else item.weights


def is_beyond(weights: NDArray[np.float32], limits: Limits) -> tuple[bool, bool]:
    """Whether weights lie below a scale, and above it, by more than rounding."""
    low, high = (float(end.reduce(weights, axis=None)) for end in (np.fmin, np.fmax))
    margin = 1e-3 * max(map(abs, limits))
    return low < limits[0] - margin, high > limits[1] + margin


def beyond_note(item: AttentionMap, limits: Limits) -> str:
    """A note if weights of a map lie beyond its scale, else empty."""
    return BEYOND if any(is_beyond(item.weights, limits)) else ""


def no_value_note(item: AttentionMap, mark: str = "grey") -> str:
    """A note on the mark of cells without a value; empty where every cell has one."""
    absent = item.values == "signed" and bool(np.isnan(item.weights).any())
    return f"{mark}: no value, the query sees nothing else" if absent else ""


def round_up(value: float, digits: int = 1) -> float:
    """The next number of one digit (0.2, 3, 50), or of more, at or above the value; 1 for 0."""
    if value <= 0:
        return 1.0
    mantissa, exponent = f"{value:.6e}".split("e")
    whole = math.ceil(round(float(mantissa) * 10 ** (digits - 1), 5))
    return float(f"{whole}e{int(exponent) - digits + 1}")


def colors_of(
    values: NDArray[np.float32], limits: Limits = (0.0, 1.0), table: NDArray[np.uint8] | None = None
) -> NDArray[np.uint8]:
    """The colours of values, beyond the limits those of the ends; grey for NaN."""
    table = shades(limits) if table is None else table
    share = (np.asarray(values, dtype=np.float64) - limits[0]) / (limits[1] - limits[0])
    places = np.rint(np.clip(np.nan_to_num(share), 0, 1) * (len(table) - 1)).astype(int)
    colors: NDArray[np.uint8] = table.take(places, axis=0)
    colors[np.isnan(share)] = NO_VALUE
    return colors


def color_of(value: float, limits: Limits = (0.0, 1.0)) -> Color:
    """The colour of one value; see `colors_of`."""
    red, green, blue = colors_of(np.asarray(value), limits).tolist()
    return red, green, blue


def hex_of(color: Color) -> str:
    return "#" + bytes(color).hex()


def ink_on(ground: Color) -> Color:
    """The colour of text on a ground: white or black, at a contrast of 4.5 at least.

    Contrast is the ratio of relative luminances (WCAG 2.2, section 1.4.3). Grey as dark as `INK`
    would not reach it on middle blues.
    """
    return PAPER if 1.05 / (float(relative_luminance(ground)) + 0.05) >= 4.5 else BLACK


# Colours of heads and roles, which colour-blind readers can tell apart (after Okabe and Ito 2008).


def _colors(names: str) -> tuple[Color, ...]:
    return tuple((*bytes.fromhex(name),) for name in names.split())


HEAD_COLORS = _colors("026aaf b74700 009e73 be5a96 6690fc c28b00 282828 703f17")
"""One colour for each head where a few are shown together."""
HEAD_COLORS_ON_DARK = _colors("5cedff ff8a3d 2fc59a d291bf 8fb2ff f1c51a e4e1da c4b771")
"""The same heads on dark ground."""
OTHER: Color = (120, 120, 120)  # the colour of a role that names none
ROLE_COLORS: dict[str, Color] = {
    name: measure.color or OTHER for name, measure in registry.MEASURES.items() if measure.role
}
UNNAMED: Color = (238, 240, 243)
NO_ROLE: Color = (180, 200, 226)  # points and bars of heads without a clear role


def role_color(row: measures.HeadRow, without: Color = NO_ROLE) -> Color:
    """The colour of a head's clearest role."""
    return ROLE_COLORS[row.roles[0].name] if row.roles else without


def block_peaks(weights: NDArray[np.float32], rows: int, columns: int) -> NDArray[np.float32]:
    """The weight furthest from 0 in each block, so that a thin line stays visible when pooled.

    Shape (…, queries, keys) becomes (…, ⌈queries / rows⌉, ⌈keys / columns⌉).
    """
    least = float(weights.min())
    if least >= 0:
        return _by_block(np.maximum, weights, rows, columns)
    # fmax prefers a number to NaN, but is slower than maximum.
    most, fewest = (np.fmax, np.fmin) if np.isnan(least) else (np.maximum, np.minimum)
    highest = _by_block(most, weights, rows, columns)
    lowest = _by_block(fewest, weights, rows, columns)
    return np.where(-lowest > highest, lowest, highest)


def _by_block(
    function: np.ufunc, weights: NDArray[np.float32], rows: int, columns: int
) -> NDArray[np.float32]:
    for axis, length in ((-1, columns), (-2, rows)):
        if length > 1:
            starts = np.arange(0, weights.shape[axis], length)
            weights = function.reduceat(weights, starts, axis=axis)
    return weights
