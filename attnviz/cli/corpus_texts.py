"""The texts of a corpus, read twice: once to count its words, once for the model."""

from __future__ import annotations

import pickle
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, cast

from attnviz.analyses.corpus.counts import WordCounts, vocabulary_of
from attnviz.analyses.corpus.words import Vocabulary
from attnviz.errors import InputError, OutputError
from attnviz.texts import BadText, Text

Texts = Iterator[Text | BadText]


def read_twice(open_texts: Callable[[], Texts], file: str) -> tuple[Vocabulary, Texts, int]:
    """The frequent words of a corpus, its texts, and how many of them, good and bad, there are.

    What can be read only once, such as stdin, is kept in a temporary file meanwhile.

    Args:
        open_texts: begins to read them.
        file: where from.

    Raises:
        AttnvizError: what reading raises.
    """
    counts, number = WordCounts(), 0
    once = file == "-" or not Path(file).is_file()
    kept = _place() if once else None
    for text in open_texts():
        number += 1
        if isinstance(text, Text):
            counts.add(text.text)
            counts.add(text.target or "")
        if kept is not None:
            _keep(text, kept)
    texts = open_texts() if kept is None else _kept(kept)
    return counts.vocabulary(), texts, number


def _place() -> BinaryIO:
    return cast(BinaryIO, tempfile.TemporaryFile())


def _keep(text: Text | BadText, file: BinaryIO) -> None:
    try:
        pickle.dump(text, file)
    except OSError as error:
        raise OutputError(
            f"cannot keep the texts in '{tempfile.gettempdir()}': {error.strerror}; give them as "
            "a file, or word counts by --frequencies"
        ) from error


def _kept(file: BinaryIO) -> Texts:
    """The texts in a temporary file that this process wrote."""
    with file:
        file.seek(0)
        while True:
            try:
                yield pickle.load(file)
            except EOFError:
                return


def read_frequencies(path: Path) -> Vocabulary:
    """The frequent words by a file of words and counts, a line each, with a tab between.

    Raises:
        InputError: it cannot be read, or a line is something else.
    """
    counts: dict[str, int] = {}
    try:
        with path.open(encoding="utf-8-sig") as lines:
            for number, line in enumerate(lines, 1):
                word, _, count = line.rstrip("\n").rpartition("\t")
                if not word or not count.strip().isdecimal():
                    raise InputError(
                        f"line {number} of '{path}' is no word, tab and count: '{line.strip()}'"
                    )
                counts[word.lower()] = counts.get(word.lower(), 0) + int(count)
    except UnicodeDecodeError as error:
        raise InputError(f"'{path}' is not valid UTF-8") from error
    except OSError as error:
        raise InputError(f"cannot read '{path}': {error.strerror}") from error
    return vocabulary_of(counts.items())
