"""The attention of a text or of many, of a picture, of a recording."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Literal, overload

from attnviz.commands import arguments
from attnviz.commands.command import in_python, read_options
from attnviz.core.errors import AttnvizError, UsageError
from attnviz.core.options import DECLARED, Choice, Options, Origin
from attnviz.core.registry import CHAT, Command, needs_head
from attnviz.models.open import brings_tokens, check_origin, check_pair
from attnviz.runs import pipeline
from attnviz.runs.engines import open_engine
from attnviz.runs.many_texts import AttendChunk, attend_all, close_sources, source_for
from attnviz.storage.texts import Text, check_text, chunks

EVERY = (*DECLARED[Origin], *DECLARED[Choice])


@overload
def attend(
    text: arguments.Sentence,
    target: arguments.Sentence | None = None,
    *,
    pair: arguments.Sentence | None = None,
    command: Literal["self", "cross"] | None = None,
    **options: Any,
) -> pipeline.Result: ...


@overload
def attend(
    text: arguments.Conversation, **options: Any
) -> Any: ...  # the parts of a chat; a `pipeline.Result` where options are about maps of all tokens


@in_python(EVERY)
def attend(
    text: arguments.Sentence | arguments.Conversation,
    target: arguments.Sentence | None = None,
    *,
    pair: arguments.Sentence | None = None,
    command: Literal["self", "cross"] | None = None,
    **options: Any,
) -> Any:
    """The attention of a text over itself or, with a target, of the target over the text.

    Args:
        text: the text; with a target, the source whose tokens are the keys; or a conversation, a
            list of messages with `role` and `content`, or an object with it as `messages`.
        target: the text whose tokens are the queries.
        pair: the second text of a sentence pair, which a model reads as one sequence.
        command: "cross" lets the model write the target itself.
        options: those of the shell, by name; `model` may be a model of transformers with its
            `tokenizer` (it is left as it is).

    Returns:
        `.weights` (layers, heads, queries, keys), `.tokens`, `.maps`, `.heatmap()`, `.grid()`,
        `.page()`, `.save()`, `.select()`. Of a conversation the parts that its answer looks at
        (`.value`, a `ChatReport`; `.table()`, `.picture()`, `.to_rows()`), and in `.attention`
        these maps; the maps alone where options (`lens`, `rows`, …) are about them.

    Raises:
        AttnvizError: what the shell would say in one line.
    """
    if arguments.is_conversation(text) and target is pair is None:
        what: Command = command or "self"
        request = _read_request({"chat": True, **options}, what)
        origin, chat = request.origin, arguments.conversation_of(text)
        if what == "self" and origin.chat:
            again = pipeline.AttentionRequest(origin, what, chat, _attend_text)
            if (parts := CHAT.load()(chat, request, again)) is not None:
                return parts
        return _attend_text(origin, what, chat, request.choice)
    for name, value in (("text", text), ("target", target), ("pair", pair)):
        if not isinstance(value, str) and (value is not None or name == "text"):
            kind = type(value).__name__
            raise UsageError(f"the {name} is of type {kind}: attend_many takes several texts")
    assert isinstance(text, str)
    reads: Command = command or ("self" if target is None else "cross")
    request = _read_request(options, reads)
    if pair is not None:
        if target is not None or reads != "self":
            raise UsageError("pair= is the second text of one sequence: leave target, command out")
        check_pair(request.origin)
        target = check_text(pair, "second text")
    if not brings_tokens(request.origin):
        check_text(text)
        if target is not None:
            check_text(target, "target")
    return _attend_text(request.origin, reads, Text("0", text, target), request.choice)


def _attend_text(origin: Origin, command: Command, text: Text, choice: Choice) -> pipeline.Result:
    with arguments.in_evaluation(origin.model):
        source = source_for(origin, command, with_head=needs_head(choice.lens) or origin.keep_qk)
        result = pipeline.attend_one(source, text, choice, command)
    return replace(result, again=pipeline.AttentionRequest(origin, command, text, _attend_text))


@in_python(EVERY)
def attend_many(
    texts: arguments.Texts,
    *,
    batch_size: arguments.Positive | None = None,
    workers: arguments.Positive | None = None,
    command: Literal["self", "cross"] | None = None,
    **options: Any,
) -> Iterator[pipeline.Result | AttnvizError]:
    """The attention of each text or pair in order; an error stands in the place of its text.

    Args:
        texts: texts, or pairs of a source and its target; they are read together.
        batch_size: how many texts the model reads at once at most; None: as many as fit.
        workers: how many processes share the work.
        command: "cross" lets the model write targets itself.
        options: those of `attend`.
    """
    records = arguments.records_of(texts)
    pairs = any(isinstance(record, Text) and record.target is not None for record in records)
    kind: Command = command or ("cross" if pairs else "self")
    request = _read_request(options, kind)
    origin = request.origin
    work = AttendChunk(origin, request.choice, kind, batch_size)

    def read_results() -> Iterator[pipeline.Result | AttnvizError]:
        with open_engine("local", workers) as engine:
            results = attend_all(work, chunks(iter(records)), engine)
            while True:
                with arguments.in_evaluation(
                    origin.model
                ):  # between two results the model is its owner's
                    record, outcome = next(results, (None, None))
                if outcome is None:
                    return
                if isinstance(outcome, pipeline.Result) and isinstance(record, Text):
                    outcome = replace(
                        outcome, again=pipeline.AttentionRequest(origin, kind, record, _attend_text)
                    )
                yield outcome

    return read_results()


def unload() -> None:
    """Let go of the models that stay loaded between calls: the last two at most."""
    close_sources()


def _read_request(options: dict[str, Any], command: Command) -> Options:
    request = pipeline.keep_scores(read_options(options, top=Origin().top))
    pipeline.check_choice(request.choice)
    check_origin(request.origin, command)
    pipeline.check_kept(request.origin, request.choice)
    return request
