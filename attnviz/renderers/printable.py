"""Texts made safe and visible for a screen, a picture or a page; numbers in few digits.

A token may hold anything: an escape that colours the terminal, an override that reverses a line
(Boucher and Anderson 2021, "Trojan Source"), an invisible space. Control characters become their
pictures; every other invisible character becomes its code point in ‹angle quotes›.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Sequence
from os.path import commonprefix
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # it imports numpy, and `attnviz models` must start without it
    pass

UNKNOWN = "–"


def two_digits(weight: float) -> str:
    """Two digits in three columns, four below 0: .46, 1.0, -.20; – for NaN."""
    return _short(f"{weight:.2f}")


def one_digit(weight: float) -> str:
    """One digit in two columns, three below 0: .5, 1., -.2."""
    return _short(f"{weight:.1f}")


def _short(number: str) -> str:
    whole, _, digits = number.partition(".")
    if whole == "nan":
        return UNKNOWN
    if whole.lstrip("-") != "0":
        return number[:-1]
    return f"-.{digits}" if whole == "-0" and digits.strip("0") else f".{digits}"


SPACE = "␣"
_PICTURES = {"\n": "⏎", "\t": "⇥", "\x7f": "␡"}
_JOINERS = "\u200c\u200d"
# Format characters that fonts draw: signs that span Arabic, Syriac and Kaithi numbers.
_DRAWN_FORMATS = frozenset("\u0600\u0601\u0602\u0603\u0604\u0605\u06dd\u070f\u0890\u0891\u08e2") | {
    "\U000110bd",
    "\U000110cd",
}
# Letters and signs without ink: fillers, the grapheme joiner, the blank Braille pattern.
_BLANKS = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")
# Scripts in which a joiner between two letters changes how they are written: Arabic, Syriac,
# N'Ko and their extensions; the scripts of India to Myanmar; Khmer and Mongolian.
_JOINING_SCRIPTS = ((0x0600, 0x08FF), (0x0900, 0x109F), (0x1780, 0x18AF), (0xFB50, 0xFEFC))


def printable(text: str) -> str:
    """The text without characters that hide, style, break or reverse a line.

    Control characters become pictures (␛, ⏎, ⇥), invisible characters their code point (‹202E›),
    and a text of spaces alone as many ␣. A joiner stays where it has an effect: within an emoji and
    between two letters of Arabic or Indic scripts. A leading accent gets a dotted circle.
    """
    if text.isascii() and text.isprintable() and not text.isspace():
        return text
    if text and not text.strip(" "):
        return SPACE * len(text)
    blank = text.isspace()
    characters = [_show_character(text, index, blank=blank) for index in range(len(text))]
    if characters and unicodedata.category(text[0]) in ("Mn", "Me") and characters[0] == text[0]:
        characters.insert(0, "◌")
    return "".join(characters)


def code_point(character: str) -> str:
    """The character's code point in angle quotes: ‹202E›."""
    code = ord(character)
    return f"‹{code:04X}›" if code > 0xFF else f"‹{code:02X}›"


_FOLDERS = re.compile(r"(?<![^\s'\"=])(?:[A-Za-z]:[\\/]|~?/)[^\s'\"]*[\\/](?=[^\s'\"\\/])")


def without_folders(text: str) -> str:
    """The text with each whole path as its last part: …/model. Who shares it shows no home."""
    return _FOLDERS.sub("…/", text)


def shorten(text: str, width: int) -> str:
    """The text cut to a number of terminal cells, with … at the end of a cut text.

    Wide characters (Chinese, emoji) take two cells. A width of 0 or less gives an empty text.
    """
    from rich.cells import cell_len

    if width <= 0:
        return ""
    if len(text) <= width * 8 and cell_len(text) <= width:
        return text
    end = cells = 0
    # Marks and joiners take no cell: one letter could have thousands, hence a bound in characters.
    while end < min(len(text), width * 8) and cells + cell_len(text[end]) < width:
        cells += cell_len(text[end])
        end += 1
    # A sequence may be wider than its parts: a heart with an emoji selector takes two cells.
    while end and cell_len(text[:end]) > width - 1:
        end -= 1
    return text[:end].rstrip(_JOINERS) + "…"


def shorten_words(text: str, width: int) -> str:
    """The text cut as by `shorten`, but at the end of a word unless that leaves too little."""
    cut = shorten(text, width)
    start = cut[:-1]
    if cut == text or text[len(start) : len(start) + 1].isspace():
        return cut if cut == text else f"{start.rstrip()}…"
    words = start.rpartition(" ")[0].rstrip()
    return f"{words}…" if len(words) >= width // 3 else cut


def _show_character(text: str, index: int, *, blank: bool) -> str:
    """One character of the text made visible; `blank`: the whole text is white space."""
    character = text[index]
    if character == " " and blank:
        return SPACE
    if character in _PICTURES:
        return _PICTURES[character]
    if character < " ":
        return chr(0x2400 + ord(character))
    category = unicodedata.category(character)
    invisible = (
        category in ("Cc", "Cs", "Zl", "Zp")
        or character in _BLANKS
        or (blank and category == "Zs")
        or (category == "Cf" and not _has_effect(text, index))
        or (_is_selector(character) and not _follows_base(text, index))
    )
    return code_point(character) if invisible else character


def _has_effect(text: str, index: int) -> bool:
    """True for a format character that changes how its neighbours are drawn."""
    character = text[index]
    if character in _DRAWN_FORMATS:
        return True
    if character not in _JOINERS or not 0 < index < len(text) - 1:
        return False
    before, after = text[index - 1], text[index + 1]
    if _can_join(before) and _can_join(after):
        return True
    return character == "\u200d" and _is_emoji(before) and _is_emoji(after)


def _can_join(character: str) -> bool:
    """True for letters and vowel signs of scripts with joiners."""
    code = ord(character)
    in_script = any(first <= code <= last for first, last in _JOINING_SCRIPTS)
    return in_script and unicodedata.category(character)[0] in "LM"


def _is_emoji(character: str) -> bool:
    return (
        character == "\ufe0f"
        or 0x1F000 <= ord(character) <= 0x1FAFF
        or unicodedata.category(character) == "So"
    )


def _is_selector(character: str) -> bool:
    return "\ufe00" <= character <= "\ufe0f" or "\U000e0100" <= character <= "\U000e01ef"


def _follows_base(text: str, index: int) -> bool:
    return index > 0 and unicodedata.category(text[index - 1])[0] in "LNPS"


def short_paths(names: Sequence[str]) -> tuple[dict[str, str], str]:
    """Paths of modules without the parts that all share at either end; and the shared parts."""
    paths = {name: name.split(".") for name in dict.fromkeys(names)}
    ends = [path[::-1] for path in paths.values()]
    # At least one part of each name stays.
    most = min(map(len, paths.values())) - 1 if len(paths) > 1 else 0
    first = min(len(commonprefix([*paths.values()])), most)  # noqa: RUF071 - of lists
    last = min(len(commonprefix(ends)), most - first)  # noqa: RUF071 - of lists
    if not first + last:
        return {name: name for name in paths}, ""
    path = next(iter(paths.values()))
    common = ".".join([*path[:first], "*", *path[len(path) - last :]])
    return {name: ".".join(own[first : len(own) - last]) for name, own in paths.items()}, common


def decimals(value: float, digits: int = 2) -> str:
    """So many decimals; – for NaN."""
    return UNKNOWN if math.isnan(value) else f"{value:.{digits}f}"


def all_digits(value: float) -> str:
    """All digits of a number; empty for NaN."""
    return "" if math.isnan(value) else repr(value)


def six_digits(value: float) -> str:
    """The shortest form of six digits; empty for NaN."""
    return "" if math.isnan(value) else f"{value:.6g}"


def nats(value: float) -> str:
    """A change in nats, at most seven columns: a sign and two digits; – for NaN."""
    if math.isnan(value):
        return UNKNOWN
    size = abs(value)
    if size < 1e-6:  # less than what float32 tells apart in a sum of logarithms
        return "0"
    form = ".2f" if size >= 0.095 else ".0e" if size < 0.001 else ".3f" if size >= 0.0095 else ".4f"
    return f"{value:+{form}}".replace("-", "−")


def with_sign(value: float) -> str:
    """A sign and two decimals."""
    return f"{round(value, 2) + 0.0:+.2f}".replace("-", "−")  # what rounds to 0 is not below it


def printable_texts(value: Any) -> Any:
    """A value whose texts neither style nor break a page."""
    if isinstance(value, dict):
        return {name: printable_texts(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [printable_texts(one) for one in value]
    return printable(value) if isinstance(value, str) else value
