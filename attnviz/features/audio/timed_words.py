"""Words with the times at which they are spoken, from and to .tsv, Praat's .TextGrid and .vtt.

A .tsv has the columns word, start and end (seconds). Of a TextGrid the first tier of intervals is
read, without blank ones (Boersma, "TextGrid file formats"). Each cue of a .vtt is one word (W3C,
"WebVTT").
"""

import re
from collections.abc import Callable, Iterator, Sequence
from html import escape, unescape
from itertools import pairwise
from pathlib import Path

from attnviz.core.errors import InputError, in_words
from attnviz.core.records import dataclass


@dataclass(frozen=True, slots=True)
class TimedWord:
    """A word, and when it is spoken, in seconds from the beginning of the file."""

    text: str
    start: float
    end: float


def read_timed_words(path: Path) -> list[TimedWord]:
    """The words of a file in order.

    Raises:
        InputError: it has another format, or its words overlap.
    """
    reader = READERS.get(path.suffix.lower())
    if reader is None:
        raise InputError(f"'{path}' holds no times of words: end it in {in_words([*READERS])}")
    try:
        words = list(reader(path.read_text("utf-8-sig")))
    except OSError as error:
        raise InputError(f"'{path}' cannot be read: {error.strerror}") from error
    except (ValueError, IndexError) as error:
        raise InputError(f"'{path}' is no complete {path.suffix} of words and times") from error
    if not words:
        raise InputError(f"'{path}' holds no words with times")
    before = 0.0
    for word in words:
        if not before <= word.start <= word.end < 1e6:
            raise InputError(
                f"'{path}': '{word.text}' is spoken from {word.start:g} to {word.end:g} s, before "
                f"what stands in front of it ends ({before:g} s)"
            )
        before = word.end
    return words


def _from_tsv(text: str) -> Iterator[TimedWord]:
    for number, line in enumerate(text.splitlines()):
        word, start, end = line.split("\t")[:3]
        if number or start != "start":  # a header may stand above them
            yield TimedWord(_one_word(word), float(start), float(end))


_FREE = re.compile(r'"((?:[^"]|"")*)"|(?<![^\s])(-?\d[\d.eE+-]*)(?![^\s])')
"""What Praat reads of a TextGrid, long or short: strings, and numbers that stand free."""


def _from_textgrid(text: str) -> Iterator[TimedWord]:
    parts = [(match[1] is not None, match[1] or match[2]) for match in _FREE.finditer(text)]
    first = parts.index((True, "IntervalTier"))
    count = int(parts[first + 4][1])
    for place in range(first + 5, first + 5 + 3 * count, 3):
        (_, start), (_, end), (is_text, label) = parts[place : place + 3]
        if not is_text and label:
            raise ValueError
        if (label or "").strip():
            yield TimedWord(_one_word(label.replace('""', '"')), float(start), float(end))


_CUE = re.compile(r"^([\d:.]+)[ \t]+-->[ \t]+([\d:.]+)[^\n]*\n(.+)", re.MULTILINE)


def _from_vtt(text: str) -> Iterator[TimedWord]:
    for start, end, word in _CUE.findall(text.replace("\r\n", "\n")):
        yield TimedWord(_one_word(unescape(word)), _seconds(start), _seconds(end))


def _seconds(clock: str) -> float:
    total = 0.0
    for part in clock.split(":"):
        total = 60 * total + float(part)
    return total


def _one_word(text: str) -> str:
    word = text.strip()
    if len(word.split()) != 1:
        raise InputError(f"'{text}' is no single word: times are read word by word")
    return word


READERS: dict[str, Callable[[str], Iterator[TimedWord]]] = {
    ".tsv": _from_tsv,
    ".textgrid": _from_textgrid,
    ".vtt": _from_vtt,
}


def as_textgrid(words: Sequence[TimedWord], end: float) -> str:
    """A TextGrid of one tier, "words", to the recording's end, without words of no length."""
    edges = pairwise([TimedWord("", 0, 0), *words, TimedWord("", max(end, words[-1].end), end)])
    silent_or_said = (
        part for before, word in edges for part in (TimedWord("", before.end, word.start), word)
    )
    parts = [part for part in silent_or_said if part.end > part.start]
    labels = ((part, part.text.replace('"', '""')) for part in parts)
    lines = [f'{part.start:.3f}\n{part.end:.3f}\n"{text}"\n' for part, text in labels]
    span = f"0\n{parts[-1].end:.3f}\n"
    head = f'File type = "ooTextFile"\nObject class = "TextGrid"\n\n{span}<exists>\n1\n'
    return "".join([head, f'"IntervalTier"\n"words"\n{span}{len(parts)}\n', *lines])


def as_vtt(words: Sequence[TimedWord]) -> str:
    """WebVTT with a cue for each word."""

    def clock(seconds: float) -> str:
        minutes, rest = divmod(round(seconds * 1000), 60_000)
        return f"{minutes // 60:02}:{minutes % 60:02}:{rest // 1000:02}.{rest % 1000:03}"

    cues = (f"{clock(w.start)} --> {clock(w.end)}\n{escape(w.text, quote=False)}\n" for w in words)
    return "\n".join(["WEBVTT\n", *cues])
