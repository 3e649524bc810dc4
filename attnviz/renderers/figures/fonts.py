"""The fonts of a figure's texts, the width of texts, and characters that no font draws."""

import unicodedata
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import groupby

from matplotlib.backends.backend_agg import RendererAgg
from matplotlib.font_manager import FontProperties, fontManager, get_font
from matplotlib.ft2font import FT2Font

from attnviz.core.records import dataclass
from attnviz.renderers.look import look_option, reading_notes
from attnviz.renderers.printable import code_point, printable

DPI = 200  # pixels to the inch in which every picture is laid out
_USUAL_SIZE = 7.5
_FIRST = "DejaVu Sans"
# Preferred in this order, so that a figure looks alike on all machines that have them.
_FAMILIES = (
    *("Noto Sans CJK SC", "Noto Sans SC", "Source Han Sans SC", "PingFang SC", "Microsoft YaHei"),
    *("WenQuanYi Zen Hei", "WenQuanYi Micro Hei", "Hiragino Sans", "Yu Gothic", "Malgun Gothic"),
    *("Noto Sans Arabic", "Noto Sans Hebrew", "Noto Sans Devanagari", "Noto Sans Thai"),
    *("Noto Emoji", "Segoe UI Emoji", "Symbola", "Noto Sans Symbols", "Noto Sans Symbols 2"),
    *("Arial Unicode MS", "Unifont"),
)
# Japanese and Korean draw some Chinese characters differently.
_JAPANESE, _KOREAN = "Noto Sans CJK JP", "Noto Sans CJK KR"
# These fonts have no real outlines: boxes that name a block, bitmaps, TeX's own encodings.
_UNUSABLE = ("Last Resort", "Noto Color Emoji", "Apple Color Emoji", "cmr", "cmm", "cms", "cmb")
# Fonts draw these as nothing; beside a replaced character they have no effect.
_LEFT_TO_RIGHT = "\u200e"
_UNDRAWN = dict.fromkeys([0x200C, 0x200D, *range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0)])


@dataclass(frozen=True, slots=True)
class Typeface:
    """The font families of one figure in order; no family draws the `missing` characters."""

    families: tuple[str, ...]
    missing: frozenset[str]

    def drawable(self, text: str) -> str:
        """The text made printable, with missing characters as ‹code points›."""
        visible = printable(text)
        if not self.missing.intersection(visible):
            return _mark_directions(visible)
        pieces = groupby(visible.translate(_UNDRAWN), self.missing.__contains__)
        return _mark_directions(
            "".join(substitute(*run) if is_missing else "".join(run) for is_missing, run in pieces)
        )

    def font(self, size: float, *, bold: bool = False) -> FontProperties:
        """The `fontproperties` of matplotlib's texts; the size is in points at the usual size."""
        return FontProperties(
            family=list(self.families),
            size=size * font_share(),
            weight="bold" if bold else "normal",
        )

    def width(self, text: str, size: float, *, bold: bool = False) -> float:
        """Pixels that a line of drawable text takes."""
        font = self.font(size, bold=bold)
        measure = _ruler().get_text_width_height_descent
        return float(measure(text, font, False)[0])  # type: ignore[no-untyped-call]  # noqa: FBT003

    def wrap(self, text: str, size: float, width: float, *, bold: bool = False) -> str:
        """The drawable text in lines of so many pixels, broken at spaces where possible."""
        width *= 0.97  # letters of .pdf, and of other resolutions, are not quite as wide
        lines = [""]
        for word in text.split(" "):
            longer = f"{lines[-1]} {word}".lstrip(" ")
            if self.width(longer, size, bold=bold) <= width:
                lines[-1] = longer
                continue
            lines.append("")
            for character in word:
                if self.width(lines[-1] + character, size, bold=bold) > width:
                    lines.append("")
                lines[-1] += character
        return "\n".join(line for line in lines if line)


def font_share() -> float:
    """How many times as large as usual --style font-size makes every text."""
    return float(look_option("font_size") or _USUAL_SIZE) / _USUAL_SIZE


def typeface(texts: Iterable[str]) -> Typeface:
    """The fonts that draw all the texts of a figure, its title and notes on reading included.

    DejaVu Sans comes with matplotlib and has Latin, Greek, Cyrillic, Arabic, Hebrew and many signs.
    Other characters are searched for in the installed fonts.
    """
    every = (*texts, look_option("title") or "", *reading_notes())
    characters = {character for text in every for character in printable(text)} - {"\n"}
    characters -= set(map(chr, _UNDRAWN))
    families = [_FIRST]
    missing = {character for character in characters if not _draws(_FIRST, character)}
    for family in _candidates(missing):
        if not missing:
            break
        rest = {character for character in missing if not _draws(family, character)}
        if rest != missing:
            families.append(family)
            missing = rest
    return Typeface(tuple(families), frozenset(missing))


def can_embed(families: Iterable[str]) -> bool:
    """True where all fonts have TrueType outlines, which a .pdf can embed unchanged."""
    tables = (face.get_sfnt_table("maxp") for family in families for face in _faces(family))
    return all(table is not None and table["version"] == (1, 0) for table in tables)


def substitute(*characters: str) -> str:
    """The code points of characters that no font draws, or of a control's picture: ‹1B›."""
    codes = (
        code_point(chr(ord(item) - 0x2400) if "\u2400" <= item <= "\u241f" else item)
        for item in characters
    )
    return f"‹{' '.join(code.strip('‹›') for code in codes)}›"


def _mark_directions(text: str) -> str:
    """The text with left-to-right marks around Arabic and Hebrew, which else reorder neighbours.

    Without them "كتاب · 4 heads" has the 4 on the left. Consecutive words of such a script keep
    their order.
    """
    ends = {i for i, item in enumerate(text) if unicodedata.bidirectional(item) in ("R", "AL")}
    if not ends:
        return text
    pieces = [_LEFT_TO_RIGHT]
    for index, character in enumerate(text):
        pieces.append(character)
        if index in ends and not (
            index + 1 in ends or (text[index + 1 : index + 2] == " " and index + 2 in ends)
        ):
            pieces.append(_LEFT_TO_RIGHT)
    return "".join(pieces)


def _candidates(missing: set[str]) -> Iterator[str]:
    families = {entry.name for entry in fontManager.ttflist if entry.style == "normal"}
    first = []
    if any("\u3040" <= character <= "\u30ff" for character in missing):
        first.append(_JAPANESE)
    if any("\uac00" <= character <= "\ud7a3" for character in missing):
        first.append(_KOREAN)
    first = [family for family in (*first, *_FAMILIES) if family in families]
    yield from first
    others = families - set(first)
    yield from sorted(family for family in others if not family.startswith(_UNUSABLE))


def _draws(family: str, character: str) -> bool:
    code = ord(character)
    return all(font.get_char_index(code) != 0 for font in _faces(family))


@lru_cache(maxsize=256)
def _faces(family: str) -> tuple[FT2Font, ...]:
    return tuple(
        get_font(fontManager.findfont(FontProperties(family=family, weight=weight)))
        for weight in ("normal", "bold")
    )


@lru_cache(maxsize=1)
def _ruler() -> RendererAgg:
    return RendererAgg(1, 1, DPI)  # type: ignore[no-untyped-call]
