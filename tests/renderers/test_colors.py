import base64
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnviz.core.attention_map import AttentionMap, Token
from attnviz.features.lines.picture import PALE
from attnviz.renderers.colors import (
    BEYOND,
    GLOW,
    HEAD_COLORS,
    HEAD_COLORS_ON_DARK,
    INK,
    LABELLED,
    NO_ROLE,
    OTHER,
    PAPER,
    ROLE_COLORS,
    SHADES,
    SIGNED_SHADES,
    SPECIAL,
    UNNAMED,
    _between_words,
    beyond_note,
    color_of,
    colors_of,
    ink_on,
    is_beyond,
    limits_of,
    reach,
    round_up,
    scale_of,
    shades,
)
from attnviz.renderers.page.data import schemes

SIDES = {"shares": SHADES, "positive": SIGNED_SHADES[128:], "negative": SIGNED_SHADES[128::-1]}


def linear(colors):
    channels = np.asarray(colors) / 255
    return np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)


def cielab(colors):
    """CIE L*a*b* by the book (D65), another space than the one the colours were made in."""
    matrix = [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
    xyz = linear(colors) @ np.array(matrix).T / [0.95047, 1.0, 1.08883]
    f = np.where(xyz > 216 / 24389, np.cbrt(xyz), (24389 / 27 * xyz + 16) / 116)
    x, y, z = f[..., 0], f[..., 1], f[..., 2]
    return np.stack([116 * y - 16, 500 * (x - y), 200 * (y - z)], axis=-1)


@pytest.mark.parametrize("side", SIDES)
def test_lightness_falls_evenly_in_equal_steps(side):
    lightness = cielab(SIDES[side])[:, 0]
    coarse = lightness[:: len(lightness) // 16]
    steps = -np.diff(coarse)
    assert (np.diff(lightness) <= 1e-9).all()
    assert steps.max() / steps.min() < 1.6
    assert lightness[0] > 95
    assert lightness[-1] < 30
    lab = cielab(SIDES[side])[:: len(SIDES[side]) // 16]
    steps = np.linalg.norm(np.diff(lab, axis=0), axis=-1)
    assert steps.max() / steps.min() < 2


# Machado, Oliveira and Fernandes 2009, severity 1: red-blind, green-blind, blue-blind.
BLINDNESS = np.array(
    [
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216]],
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413]],
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602]],
    ]
)
BLUE_OF_BLINDNESS = np.array(
    [
        [[-0.003882, -0.048116, 1.051998]],
        [[-0.011820, 0.042940, 0.968881]],
        [[0.004733, 0.691367, 0.303900]],
    ]
)


KINDS = {
    "everyone": np.eye(3),
    **dict(
        zip(
            ("red-blind", "green-blind", "blue-blind"),
            np.concatenate([BLINDNESS, BLUE_OF_BLINDNESS], axis=1),
            strict=True,
        )
    ),
}
EYES = pytest.mark.parametrize("eyes", KINDS)
SCHEMES = {
    f"{name} {ground}": np.frombuffer(base64.b64decode(colors), np.uint8).reshape(-1, 3)
    for name, grounds in schemes().items()
    for ground, colors in grounds.items()
}


def unnamed():
    """The atlas' colours of heads without a role, on light and dark ground."""
    styles = Path(schemes.__code__.co_filename).parent / "styles"
    faint = re.search(r"--faint: #(\w{6})", (styles / "layout.css").read_text())
    own = re.search(r"--no-role: #(\w{6})", (styles / "atlas.css").read_text())
    return faint[1], own[1]


CATEGORIES = {
    "heads": (*HEAD_COLORS, PALE),
    "heads on dark": HEAD_COLORS_ON_DARK,
    "roles on tiles": (*ROLE_COLORS.values(), UNNAMED),
    "roles of points": (*ROLE_COLORS.values(), NO_ROLE),
    **{
        f"roles in the atlas, {ground}": (*ROLE_COLORS.values(), tuple(bytes.fromhex(code)))
        for ground, code in zip(("light", "dark"), unnamed(), strict=True)
    },
    "labels": (INK, LABELLED, SPECIAL),
}


def seen(colors, eyes):
    """CIE L*a*b* of colours as such eyes see them."""
    light = np.clip(linear(colors) @ KINDS[eyes].T, 0, 1)
    gamma = np.where(light <= 0.0031308, 12.92 * light, 1.055 * light ** (1 / 2.4) - 0.055)
    return cielab(gamma * 255)


@EYES
@pytest.mark.parametrize("palette", CATEGORIES)
def test_everybody_tells_the_colours_of_names_apart(palette, eyes):
    """At least 15 apart, six times the difference that is just seen (2.3, Mahy 1994)."""
    lab = seen(np.array(CATEGORIES[palette]), eyes)
    apart = np.linalg.norm(lab[:, None] - lab, axis=-1)[np.triu_indices(len(lab), 1)]
    assert apart.min() > 15


@EYES
@pytest.mark.parametrize("scheme", SCHEMES)
def test_everybody_sees_every_scale_in_order(scheme, eyes):
    """Lightness never turns, so that it reads in grey; each sign of a signed scale by itself."""
    lightness = seen(SCHEMES[scheme], eyes)[:, 0]
    signed = len(lightness) % 2
    for side in (lightness[:129][::-1], lightness[128:]) if signed else (lightness,):
        steps = np.diff(side[::8])
        assert np.abs(steps).min() > 1
        assert (np.sign(steps) == np.sign(steps[0])).all()


@EYES
@pytest.mark.parametrize("scheme", [name for name in SCHEMES if name.endswith("signed")])
def test_the_colour_blind_tell_the_signs_apart(scheme, eyes):
    lab = seen(SCHEMES[scheme], eyes)
    apart = np.linalg.norm((lab - lab[::-1])[:96], axis=-1)
    assert apart.min() > 20


def test_zero_and_ends_of_signed_scales():
    lightness, a, b = cielab(SIGNED_SHADES).T
    assert abs(a[128]) < 1
    assert abs(b[128]) < 1
    assert lightness[0] == pytest.approx(lightness[-1], abs=4)
    assert color_of(1.5) == color_of(1.0) == tuple(SHADES[-1])
    assert color_of(-1.0) == color_of(0.0) == tuple(SHADES[0])
    assert color_of(0.0, (-0.3, 0.3)) == tuple(shades((-0.3, 0.3))[128])
    assert limits_of(np.array([0.1, -0.31], dtype=np.float32), "signed") == (-0.4, 0.4)
    assert limits_of(np.zeros(3, dtype=np.float32), "signed") == (-1.0, 1.0)
    item = resting(0.2)
    signed = item.with_weights(-item.weights, values="signed")
    assert scale_of(signed) == (-0.2, 0.2)
    assert beyond_note(signed, (-0.2, 0.2)) == BEYOND
    assert beyond_note(signed, (-0.8, 0.8)) == ""
    weights = np.array([[-0.3, 0.2]], np.float32)
    assert is_beyond(weights, (-0.3, 0.3)) == (False, False)
    assert is_beyond(weights, (-0.2, 0.2)) == (True, False)
    assert is_beyond(weights, (-0.4, 0.1)) == (False, True)


@given(st.floats(-2, 2), st.sampled_from([(0.0, 1.0), (0.0, 0.2), (-0.5, 0.5)]))
def test_one_value_has_one_colour(value, limits):
    table = colors_of(np.full((2, 3), value), limits)
    assert table.shape == (2, 3, 3)
    assert table.dtype == np.uint8
    assert (table == color_of(value, limits)).all()


@pytest.mark.parametrize(
    ("largest", "top"),
    [(1.0, 1.0), (0.5, 1.0), (0.499, 0.5), (0.17, 0.2), (0.2, 0.2), (0.0123, 0.02), (0.0, 1.0)],
)
def test_shares_are_shown_to_a_round_number(largest, top):
    weights = np.array([[0.0, largest]], dtype=np.float32)
    assert limits_of(weights, "share") == (0.0, top)


@pytest.mark.parametrize(
    ("sizes", "far"),
    [
        ([0.3] + [0.01] * 198, 0.3),  # of 199 cells not one may lie beyond
        ([0.3] + [0.01] * 199, 0.01),  # of 200 one may
        ([0.3, 0.2, 0.1] + [0.01] * 397, 0.1),
        # Two sharp cells hold nearly all: the scale reaches for half of the sum.
        ([0.9, 0.8] + [0.0001] * 398, 0.9),
        ([0.3] + [0.0] * 5000, 0.3),  # what a mask hides is no cell
        ([np.nan, 0.2, 0.1], 0.2),
        ([0.0, 0.0], 0.0),
    ],
)
def test_a_scale_reaches_for_all_but_a_few_cells(sizes, far):
    assert reach(np.array(sizes, np.float32)) == pytest.approx(far)


def even_causal(count: int, first: int = 0) -> AttentionMap:
    tokens = tuple(map(Token, map(str, range(count))))
    weights = np.tri(count, dtype=np.float32)
    weights /= weights.sum(axis=1, keepdims=True)
    return AttentionMap("causal", tokens, tokens, weights[None, None], starts=(first, first))


def test_samples_and_first_rows_do_not_set_a_scale(monkeypatch):
    # Row i gives 1 / (i + 1) to each key, 1 in the corner. Of 495,450 cells from row 100 on, 2,477
    # may lie beyond: those of 22 rows, up to 1 / 122 = 0.0082.
    assert scale_of(even_causal(1000))[1] == 0.009
    assert scale_of(even_causal(8))[1] == 0.3  # three rows at least: 1 / 4 is left
    assert scale_of(even_causal(2))[1] == 1.0  # nothing else is there
    assert scale_of(even_causal(8, first=4))[1] == 1.0  # the rows of a window are no first rows

    random = np.random.default_rng(3)
    weights = random.exponential(size=(4, 600, 600)).astype(np.float32) ** 3
    weights /= weights.sum(axis=-1, keepdims=True)
    tokens = tuple(map(Token, map(str, range(600))))
    item = AttentionMap("self", tokens, tokens, weights[None])
    sampled = reach(_between_words(item))
    assert _between_words(item).size < weights.size
    assert sampled == pytest.approx(reach(weights), rel=0.02)
    assert limits_of(weights, "share") == scale_of(item)


@given(st.floats(1e-30, 1e30))
def test_a_number_rounded_up_is_near(value):
    assert value * (1 - 1e-6) <= round_up(value) <= 2 * value * (1 + 1e-6)


@pytest.mark.parametrize("table", [SHADES, SIGNED_SHADES])
def test_ink_can_be_read_on_every_colour(table):
    for color in table:
        ground, ink = (float(linear(c) @ [0.2126, 0.7152, 0.0722]) for c in (color, ink_on(color)))
        assert (max(ground, ink) + 0.05) / (min(ground, ink) + 0.05) >= 4.5
    assert ink_on((255, 255, 255)) == (0, 0, 0)
    assert ink_on((0, 0, 0)) == PAPER


def resting(largest: float) -> AttentionMap:
    """Words that give each other little, and a special token much."""
    tokens = (*map(Token, "abc"), Token("<eos>", special=True))
    weights = np.full((1, 1, 4, 4), 0.05, np.float32)
    weights[..., 0, 1] = largest
    weights[..., 3] = 0.8
    return AttentionMap("self", tokens, tokens, weights)


@pytest.mark.parametrize(("largest", "top"), [(0.24, 0.3), (0.46, 0.5), (0.51, 1.0)])
def test_words_set_the_scale(largest, top):
    item = resting(largest)
    limits = scale_of(item)
    assert limits == (0, top)
    assert beyond_note(item, limits) == (BEYOND if top < 0.8 else "")


def test_no_byte_lacks_a_colour_and_no_role_is_grey():
    assert [len(table) for table in (SHADES, SIGNED_SHADES, GLOW)] == [256, 257, 256]
    assert len({*OTHER}) == 1
