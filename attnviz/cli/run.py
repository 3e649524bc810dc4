"""One run of a command: check everything, load, attend to each text, and write each result once."""

from __future__ import annotations

import gc
import re
import time
from collections.abc import Iterable, Iterator

from attnviz.analyses.special import notable_holders
from attnviz.announce import heard_by
from attnviz.cli.app import complain
from attnviz.cli.options import Options
from attnviz.cli.output import note
from attnviz.cli.sinks import Sinks
from attnviz.errors import AttnvizError
from attnviz.pipeline import Result, attend_texts, check_choice
from attnviz.registry import Command
from attnviz.sources.lens import needs_head
from attnviz.sources.open import check_origin, open_source
from attnviz.texts import BadText, Text


def run_texts(
    command: Command, texts: Iterable[Text | BadText], many: bool, options: Options
) -> int:
    """Attend to texts and write what was asked for; answers the exit status.

    Whatever could be asked wrongly is found before a model loads.

    Raises:
        AttnvizError: nothing could be done, or nothing more.
    """
    started = time.perf_counter()
    check_choice(options.choice)
    check_origin(options.origin, command)
    with Sinks(options, many) as sinks:
        with_head = needs_head(options.choice.lens)
        source = open_source(options.origin, command, with_head=with_head)
        gc.enable()
        loaded = time.perf_counter()
        found = attend_texts(source, texts, options.choice, command)
        done, failed = write_all(found, sinks, options, many)
        if done:
            sinks.finish()
    if options.output.verbose:
        took = time.perf_counter() - loaded
        texts_done = f"{done} text{'s' * (done != 1)}"
        note(f"loaded in {loaded - started:.2f} s, {texts_done} in {took:.2f} s")
    return 1 if failed else 0


def write_all(
    results: Iterable[Result | AttnvizError], sinks: Sinks, options: Options, many: bool
) -> tuple[int, int]:
    """Write each result, say each note once, and each failure; answers how many there were."""
    done, failed = 0, 0
    notes = Notes()
    with heard_by(None if options.output.quiet else notes.say):
        for result in _with_progress(results, many and not options.output.quiet):
            if isinstance(result, AttnvizError):
                failed += 1
                complain(str(result))
                continue
            done += 1
            if not options.output.quiet:
                notes.say_of(result)
            sinks.add(result)
    return done, failed


class Notes:
    """Notes on stderr, each once; one that differs in its numbers only counts as said."""

    def __init__(self) -> None:
        self.said: set[str] = set()

    def say(self, text: str) -> None:
        """Say a note, unless it was said."""
        kind = re.sub(r"\d+%|'.*'", "", text)
        if kind not in self.said:
            note(text)
        self.said.add(kind)

    def say_of(self, result: Result) -> None:
        """Say what a reader must know of a result."""
        for text in (*result.provenance.notes, *notable_holders(result)):
            self.say(text)


def _with_progress(
    results: Iterable[Result | AttnvizError], wanted: bool
) -> Iterator[Result | AttnvizError]:
    """The results, with a count and a rate on stderr once they take longer than a second."""
    import sys

    if not wanted or not sys.stderr.isatty():
        yield from results
        return
    from attnviz.cli.progress import counted

    yield from counted(results)
