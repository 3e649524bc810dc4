"""The data of a page: weights as codes, pooled if they are many, gaps, patches, colours.

The code of a weight w is levels × √(w / scale), rounded. It is off by at most scale / levels at the
top of the scale, and by much less for small weights, which are most. Where a page would be larger
than 12 MB, shares have 650 levels of (w / scale) ** (1 / 1.3): one is off by at most 0.001, of
0.0027 by 0.0003, and takes two bits less.

Few weights have 32,767 levels and take two bytes each. Many shares have 1,020 levels (errors below
0.001): a code below 255 takes one byte, a larger one the mark 255, and two bytes behind all of the
first. Many signed values have 510 levels on either side: one byte holds -126 to 126 as 2 to 254,
and 1 and 255 are the marks. No value is -32,768, or 0 in one byte.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise, product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from attnviz.core.attention_map import AttentionMap, Link, Token
from attnviz.core.errors import InputError
from attnviz.core.records import dataclass
from attnviz.renderers import colors

_PLACES = 85 ** np.arange(4, -1, -1, dtype="u4")
FINE_LEVELS, SHARE_LEVELS, SIGNED_LEVELS = 32767, 1020, 510  # 1020: small weights fit a byte
MANY_LEVELS, MANY_POWER = 650, 1.3
SHARE_MARK, SIGNED_MARK, NO_VALUE = 255, 127, -32768  # a mark: two more bytes follow


class Codes(NamedTuple):
    """The codes of one map, packed layer by layer."""

    scale: float
    levels: int
    layers: tuple[str, ...]
    power: float = 2  # of a code's share of the levels; others than 2 are in base 85


def code_scale(weights: NDArray[np.float32], *, signed: bool) -> float:
    """The weight of the highest code: 1 for shares."""
    if signed:
        return float(np.nan_to_num(np.abs(weights)).max()) or 1.0
    largest = float(weights.max())
    # A share of 1.0004 is rounding, not a share above 1.
    return largest if largest > 1 + 1e-3 else 1.0


def encode_weights(
    weights: NDArray[np.float32], signed: bool, fine: bool, *, many: bool = False
) -> Codes:
    """The codes of a map's weights, layer by layer; of few, of some or of many."""
    scale, many = code_scale(weights, signed=signed), many and not signed
    levels = FINE_LEVELS if fine else SIGNED_LEVELS if signed else SHARE_LEVELS
    levels, power = (MANY_LEVELS, MANY_POWER) if many else (levels, 2)
    pack = _pack_fine if fine else _pack_signed if signed else _pack_shares

    def encode(layer: NDArray[np.float32]) -> str:
        shares = np.minimum(np.abs(layer) * np.float32(1 / scale), 1)
        roots = (shares ** np.float32(1 / power) if many else np.sqrt(shares)) * np.float32(levels)
        codes = np.rint(np.copysign(roots, layer))
        data = pack(np.where(np.isnan(codes), NO_VALUE, codes).astype(np.int16))
        return pack_base85(data, zlib.Z_HUFFMAN_ONLY) if many else deflate(data)

    try:  # zlib lets other threads run
        with ThreadPoolExecutor() as threads:
            return Codes(scale, levels, tuple(threads.map(encode, weights)), power)
    except RuntimeError:  # the system allows no more threads
        return Codes(scale, levels, tuple(map(encode, weights)), power)


def deflate(data: bytes) -> str:
    """The bytes packed by zlib, in base64."""
    return base64.b64encode(zlib.compress(data, 6)).decode("ascii")


def pack_base85(data: bytes, strategy: int = zlib.Z_DEFAULT_STRATEGY) -> str:
    """The bytes packed by zlib, in base 85 with "," for "<", a sixteenth shorter than base 64."""
    letters = [base64.b85encode(bytes((0, 0, 0, one)))[4:].replace(b"<", b",") for one in range(85)]
    packer = zlib.compressobj(6, strategy=strategy)
    whole = (short := packer.compress(data) + packer.flush()) + bytes(room := -len(short) % 4)
    digits = np.frombuffer(whole, ">u4").astype("u4")[:, None] // _PLACES % 85
    text: bytes = np.array(letters)[digits].tobytes()
    return text[: len(whole) * 5 // 4 - room].decode("ascii")


def _pack_fine(codes: NDArray[np.int16]) -> bytes:
    return codes.astype("<i2").tobytes()


def _pack_shares(codes: NDArray[np.int16]) -> bytes:
    codes = np.maximum(codes, 0)
    low = np.minimum(codes, SHARE_MARK).astype(np.uint8)
    return low.tobytes() + codes[codes >= SHARE_MARK].astype("<u2").tobytes()


def _pack_signed(codes: NDArray[np.int16]) -> bytes:
    low = (np.clip(codes, -SIGNED_MARK, SIGNED_MARK) + 128).astype(np.uint8)
    low[codes == NO_VALUE] = 0
    sizes = np.where(codes == NO_VALUE, 0, np.abs(codes))
    return low.tobytes() + sizes[sizes >= SIGNED_MARK].astype("<u2").tobytes()


def gap(before: Token | None, token: Token, text: str | None) -> str:
    """The gap between two tokens in running text: nothing, a space or a line break."""
    if before is None:
        return ""
    if not text or _has_no_place(before) or _has_no_place(token):
        return " "
    between = text[before.end : token.start] if before.end <= token.start else ""
    if "\n" in between or "\n" in token.text:
        return "\n"
    starts_blank = text[token.start : token.start + 1].isspace()
    return " " if between or starts_blank else ""


def _has_no_place(token: Token) -> bool:
    return token.special or token.end <= token.start


_TYPES = {b"\x89PNG": "image/png", b"\xff\xd8\xff": "image/jpeg", b"RIFF": "image/webp"}


@dataclass(frozen=True, slots=True)
class Patches:
    """A picture (a PNG, JPEG or WebP file, cut to what the model saw) and its rows of patches.

    The token of the top left patch is the `first`; the others follow row by row.
    """

    image: bytes
    rows: int
    columns: int
    first: int = 0

    def as_json(self, tokens: Sequence[Token]) -> dict[str, Any]:
        """The picture and its patches as the page reads them."""
        if self.first + self.rows * self.columns > len(tokens):
            raise InputError(
                f"{self.rows} × {self.columns} patches from token {self.first} on, "
                f"but there are {len(tokens)} tokens"
            )
        kind = next((kind for mark, kind in _TYPES.items() if self.image.startswith(mark)), None)
        if kind is None:
            raise InputError("the picture is neither PNG, JPEG nor WebP")
        data = base64.b64encode(self.image).decode("ascii")
        place = {"rows": self.rows, "columns": self.columns, "first": self.first}
        return {"image": f"data:{kind};base64,{data}", **place}


STRONGEST = 20
"""So many links of each head are kept exactly where tokens are pooled."""
_SMALLEST_AXIS = 64

Tokens = tuple[Token, ...]


def pool_to_fit(item: AttentionMap, room: int) -> AttentionMap:
    """The map with at most `room` weights, in blocks on axes of more than 64 tokens."""
    layers, heads, queries, keys = item.weights.shape
    room = max(room // (layers * heads), 1)
    if queries * keys <= room:
        return item
    if queries <= _SMALLEST_AXIS or keys <= _SMALLEST_AXIS:
        length = -(-queries * keys // room)
        return pool(item, 1, length) if queries <= _SMALLEST_AXIS else pool(item, length, 1)
    length = 2
    while -(-queries // length) * -(-keys // length) > room and length < max(queries, keys):
        length += 1
    return pool(item, length, length)


def pool(item: AttentionMap, rows: int, columns: int) -> AttentionMap:
    """The map in blocks: each the mean over its queries of the sum over its keys.

    So the sums of rows stay as they are. The strongest links are those of single cells; a map that
    is pooled already keeps its links.
    """
    starts = np.arange(0, item.weights.shape[3], columns)
    there = ~np.isnan(item.weights)
    whole = bool(there.all())
    weights = item.weights if whole else np.where(there, item.weights, np.float32(0))
    pooled = np.add.reduceat(weights, starts, axis=3)
    counts = None if whole else np.logical_or.reduceat(there, starts, axis=3)
    starts = np.arange(0, item.weights.shape[2], rows)
    pooled = np.add.reduceat(pooled, starts, axis=2)
    if counts is None:
        pooled /= np.diff([*starts, item.weights.shape[2]])[:, None]
    else:  # rows without a value count in no mean
        counts = np.add.reduceat(counts.astype(np.float32), starts, axis=2)
        pooled = np.where(counts, pooled / np.maximum(counts, 1), np.float32(np.nan))
    if item.values == "share" and item.weights.max() <= 1:
        # Rounding may lift a sum of shares a little above 1.
        pooled = np.minimum(pooled, 1)
    return item.with_weights(
        pooled,
        query_tokens=join_tokens(item.query_tokens, rows),
        key_tokens=join_tokens(item.key_tokens, columns),
        blocks=(item.blocks[0] * rows, item.blocks[1] * columns),
        links=item.links if item.is_pooled else keep_strongest(item),
    )


def join_tokens(tokens: Tokens, length: int) -> Tokens:
    """One token for each block, named after its first and its last token."""
    if length == 1:
        return tokens
    edges = [*range(0, len(tokens), length), len(tokens)]
    return tuple(_block(tokens[low:high]) for low, high in pairwise(edges))


def _block(tokens: Tokens) -> Token:
    first, last = tokens[0], tokens[-1]
    text = first.text if len(tokens) == 1 else f"{first.text} … {last.text}"
    return Token(text, first.start, last.end, all(token.special for token in tokens))


def keep_strongest(item: AttentionMap, count: int = STRONGEST) -> tuple[Link, ...]:
    """Each head's cells with the largest absolute weights, largest first."""
    keys = len(item.key_tokens)
    links = []
    for layer, head in product(range(len(item.layers)), range(len(item.heads))):
        weights = np.nan_to_num(item.weights[layer, head].ravel())
        places = np.argpartition(np.abs(weights), -min(count, weights.size))[-count:]
        for place in places[np.argsort(-np.abs(weights[places]), kind="stable")].tolist():
            query, key = divmod(place, keys)
            tokens = item.query_tokens[query].text, item.key_tokens[key].text
            names = item.layers[layer], item.heads[head]
            links.append(Link(*tokens, float(weights[place]), *names, query, key))
    return tuple(links)


# Anchors as lightness, chroma, hue in degrees; all fall or rise evenly in lightness.
_BLUES_ON_DARK = ((0.215, 0.012, 262), (0.45, 0.115, 260), (0.70, 0.12, 245), (0.97, 0.03, 215))
_GREYS = ((0.970, 0.0, 0.0), (0.22, 0.0, 0.0))
_GREYS_ON_DARK = ((0.215, 0.004, 262.0), (0.97, 0.0, 262.0))
# Hues are interpolated in degrees: -60 in place of 300 keeps them from passing through green.
_SUNSET = ((0.975, 0.020, 95.0), (0.80, 0.115, 60.0), (0.55, 0.17, 15.0), (0.25, 0.10, -60.0))
_SUNSET_ON_DARK = ((0.215, 0.03, -70), (0.45, 0.15, -15), (0.72, 0.15, 50), (0.97, 0.06, 100))
_UP_ON_DARK = ((0.215, 0.0, 262.0), *_BLUES_ON_DARK[1:3], (0.92, 0.05, 225.0))
_DOWN_ON_DARK = ((0.215, 0.0, 50.0), (0.45, 0.11, 45.0), (0.70, 0.13, 58.0), (0.92, 0.07, 80.0))


def schemes() -> dict[str, dict[str, str]]:
    """Name → {"light", "dark", "light_signed", "dark_signed"} → 256 or 257 colours in base64."""
    dark_signed = colors.diverging_path(_DOWN_ON_DARK, _UP_ON_DARK)
    signed = {"light_signed": _bytes(colors.SIGNED_SHADES), "dark_signed": _bytes(dark_signed)}
    shares = {
        "blue": (colors.SHADES, colors.even_path(_BLUES_ON_DARK, 256)),
        "sunset": (colors.even_path(_SUNSET, 256), colors.even_path(_SUNSET_ON_DARK, 256)),
        "grey": (colors.even_path(_GREYS, 256), colors.even_path(_GREYS_ON_DARK, 256)),
        "glow": (colors.GLOW, colors.GLOW),
    }
    return {
        name: {"light": _bytes(light), "dark": _bytes(dark), **signed}
        for name, (light, dark) in shares.items()
    }


def head_colors() -> dict[str, list[str]]:
    """The colours of heads shown together, "light" and "dark", as style sheets write them."""
    sides = {"light": colors.HEAD_COLORS, "dark": colors.HEAD_COLORS_ON_DARK}
    return {name: [*map(colors.hex_of, shades)] for name, shades in sides.items()}


def _bytes(colors: NDArray[np.uint8]) -> str:
    return base64.b64encode(colors.tobytes()).decode("ascii")
