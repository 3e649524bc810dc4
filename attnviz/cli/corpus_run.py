"""One run of `attnviz corpus`: shards of texts become aggregates, and these are written once."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

from attnviz.analyses.corpus.words import Vocabulary
from attnviz.announce import announce, heard_by
from attnviz.cli.corpus_adding import Adding
from attnviz.cli.corpus_asked import Asked
from attnviz.cli.corpus_study import Study
from attnviz.cli.corpus_texts import Texts, read_frequencies, read_twice
from attnviz.cli.corpus_write import finish
from attnviz.cli.input import texts_of
from attnviz.cli.rejects import failures
from attnviz.cli.run import Notes, count_texts, sharing
from attnviz.engines import open_engine
from attnviz.many_texts import AttendWindow


def run(asked: Asked) -> int:
    """Study a corpus and write what was asked for; answers the exit status.

    Raises:
        AttnvizError: nothing could be done, or nothing more.
    """
    asked.check()
    options = asked.options
    checkpoint = asked.checkpoint()
    vocabulary, texts, total = _read(asked)
    attend = AttendWindow(options.origin, options.choice, asked.command, options.many.batch_size)
    study = Study(attend, vocabulary, asked.replicates, asked.seed)
    say = None if options.output.quiet else Notes().say
    with failures(options) as failed, open_engine(*sharing(options)) as engine, heard_by(say):
        adding = Adding(study, failed, checkpoint)
        if options.many.resume and not adding.go_on():
            announce("there is nothing to go on with: beginning")
        left = None if total is None else total - adding.reached.records
        with _progress(left, asked) as advance:
            adding.add_all(texts, engine, advance)
        for text in adding.notes():
            announce(text)
    if adding.aggregates.texts:
        finish(adding.aggregates, asked)
    if checkpoint is not None:
        checkpoint.discard()
    return 1 if failed.count or not adding.aggregates.texts else 0


def _read(asked: Asked) -> tuple[Vocabulary, Texts, int | None]:
    """The frequent words, the texts and, where it is known, how many these are."""
    many = asked.options.many

    def open_texts() -> Texts:
        texts, _ = texts_of(
            [],
            asked.file,
            pairs=asked.command == "cross",
            columns=many.columns,
            input_format=many.input_format,
        )
        return texts

    if asked.frequencies is None:
        return read_twice(open_texts, asked.file)
    vocabulary = read_frequencies(asked.frequencies)
    return vocabulary, open_texts(), count_texts(asked.file, asked.command, asked.options)


def _progress(total: int | None, asked: Asked) -> AbstractContextManager[Callable[[int], None]]:
    """A count, a rate and the time that remains, on a terminal."""
    if asked.options.output.quiet or not sys.stderr.isatty():
        return nullcontext(lambda done: None)
    from attnviz.cli.progress import advancing

    return advancing(total)
