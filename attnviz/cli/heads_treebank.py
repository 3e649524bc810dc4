"""`attnviz heads --treebank`: every sentence of a file, its map, and what each head finds in it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from attnviz.analyses.treebank import TreebankStudy
from attnviz.cli.app import complain
from attnviz.cli.heads_run import Asked, write_report
from attnviz.errors import InputError
from attnviz.pipeline import attend_one
from attnviz.renderers.treebank import treebank_json, treebank_table, treebank_tsv
from attnviz.sources.open import open_source
from attnviz.storage.conllu import Sentence, read_sentences
from attnviz.texts import Text


def relations(file: str, asked: Asked) -> int:
    """Score every head on every relation of a treebank; answers the exit status.

    A sentence that the model cannot take is named and left out.

    Raises:
        InputError: the file cannot be read, holds no sentence, or none could be used.
    """
    sentences = read_treebank(file)
    source = open_source(asked.options.origin, "self")
    study, failed = TreebankStudy(), 0
    said: set[str] = set()
    for sentence in _counted(sentences, asked):
        try:
            found = attend_one(source, Text("0", sentence.text), asked.options.choice, "self")
            study.add(sentence, found)
        except InputError as error:
            failed += 1
            complain(f"the sentence at {sentence.where}: {error}")
            continue
        for text in found.provenance.notes:
            if text not in said:
                asked.say(text)
            said.add(text)
    if not study.sentences:
        raise InputError(f"'{file}' holds no sentence that could be used")
    report = study.report()
    for text in report.notes:
        asked.say(text)
    write_report(
        {
            "table": lambda display: treebank_table(report, display),
            "tsv": lambda _: treebank_tsv(report),
            "json": lambda _: treebank_json(report),
        },
        asked,
    )
    return 1 if failed else 0


def read_treebank(file: str) -> list[Sentence]:
    """The sentences of a file, all of which are read before a model loads; "-" is stdin.

    Raises:
        InputError: it cannot be read, or is no CoNLL-U.
    """
    if file == "-":
        return list(read_sentences(sys.stdin.buffer, "stdin"))
    try:
        with Path(file).open("rb") as lines:
            return list(read_sentences(lines, f"'{file}'"))
    except FileNotFoundError as error:
        raise InputError(f"there is no file '{file}'") from error
    except IsADirectoryError as error:
        raise InputError(f"'{file}' is a folder, not a file") from error
    except OSError as error:
        raise InputError(f"cannot read '{file}': {error.strerror}") from error


def _counted(sentences: list[Sentence], asked: Asked) -> Iterator[Sentence]:
    """The sentences, counted on stderr where someone watches."""
    if asked.options.output.quiet or not sys.stderr.isatty():
        yield from sentences
        return
    from attnviz.cli.progress import counted

    yield from counted(sentences)
