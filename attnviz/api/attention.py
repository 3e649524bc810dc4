"""The attention of one text, or of many."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Unpack

from attnviz.api.arguments import (
    Positive,
    Sentence,
    Texts,
    in_evaluation,
    public,
    read_options,
    records_of,
)
from attnviz.api.options import AttendOptions
from attnviz.core.errors import AttnvizError, UsageError
from attnviz.core.options import Choice, Options, Origin
from attnviz.core.registry import Command
from attnviz.models.lens import needs_head
from attnviz.models.open import brings_tokens, check_origin
from attnviz.runs.engines import open_engine
from attnviz.runs.many_texts import AttendChunk, attend_all, close_sources, source_for
from attnviz.runs.pipeline import Attended, Result, attend_one, check_choice, check_kept
from attnviz.storage.texts import Text, check_text, chunks


@public
def attend(
    text: Sentence, target: Sentence | None = None, **options: Unpack[AttendOptions]
) -> Result:
    """The attention of a text over itself or, with a target, of the target over the text.

    Args:
        text: the text; with a target, the source whose tokens are the keys.
        target: the text whose tokens are the queries.
        options: those of the shell, by name; `model` may be a model of transformers with its
            `tokenizer` (it is left as it is), and `command` "cross", to let the model write the
            target itself, or "co".

    Returns:
        `.weights` (layers, heads, queries, keys), `.tokens`, `.maps`, `.heatmap()`, `.grid()`,
        `.page()`, `.save()`, `.select()`.

    Raises:
        AttnvizError: what the shell would say in one line.
    """
    for what, given in (("text", text), ("target", target)):
        if not isinstance(given, str) and (given is not None or what == "text"):
            kind = type(given).__name__
            raise UsageError(f"the {what} is of type {kind}: attend_many takes several texts")
    command, asked = _asked(options, "self" if target is None else "cross")
    if not brings_tokens(asked.origin):
        check_text(text)
        if target is not None:
            check_text(target, "target")
    return _attended(asked.origin, command, Text("0", text, target), asked.choice)


def _attended(origin: Origin, command: Command, text: Text, choice: Choice) -> Result:
    with in_evaluation(origin.model):
        source = source_for(origin, command, with_head=needs_head(choice.lens))
        found = attend_one(source, text, choice, command)
    return replace(found, again=Attended(origin, command, text, _attended))


@public
def attend_many(
    texts: Texts,
    *,
    batch_size: Positive | None = None,
    workers: Positive | None = None,
    **options: Unpack[AttendOptions],
) -> Iterator[Result | AttnvizError]:
    """The attention of each text or pair in order; an error stands in the place of its text.

    Args:
        texts: texts, or pairs of a source and its target; they are read together.
        batch_size: how many texts the model reads at once at most; None: as many as fit.
        workers: how many processes share the work.
        options: those of `attend`.
    """
    records = records_of(texts)
    pairs = any(isinstance(record, Text) and record.target is not None for record in records)
    command, asked = _asked(options, "cross" if pairs else "self")
    origin = asked.origin
    work = AttendChunk(origin, asked.choice, command, batch_size)

    def found() -> Iterator[Result | AttnvizError]:
        with open_engine("local", workers, None) as engine:
            results = attend_all(work, chunks(iter(records)), engine)
            while True:
                with in_evaluation(origin.model):  # between two results the model is its owner's
                    record, outcome = next(results, (None, None))
                if outcome is None:
                    return
                if isinstance(outcome, Result) and isinstance(record, Text):
                    outcome = replace(outcome, again=Attended(origin, command, record, _attended))
                yield outcome

    return found()


def unload() -> None:
    """Let go of the models that stay loaded between calls: the last two at most."""
    close_sources()


def _asked(options: AttendOptions, usual: Command) -> tuple[Command, Options]:
    command: Command = options.get("command") or usual
    asked = read_options(options, top=Origin().top)
    check_choice(asked.choice)
    check_origin(asked.origin, command)
    check_kept(asked.origin, asked.choice)
    return command, asked
