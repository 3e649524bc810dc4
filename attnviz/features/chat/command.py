"""What `attnviz self --chat FILE` does: the parts of each conversation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from attnviz.analyses import group, select
from attnviz.commands.command import MAP_PICTURES, Run
from attnviz.core.errors import AttnvizError, UsageError
from attnviz.core.options import Options, map_options
from attnviz.core.registry import FORMATS
from attnviz.features.chat.report import ChatReport
from attnviz.features.chat.table import CHAT
from attnviz.models.open import check_origin
from attnviz.renderers.reports import Data, data_of, formats_of
from attnviz.runs.many_texts import source_for
from attnviz.runs.reporting import RunReport, good_results
from attnviz.storage.texts import Text

OWN = ("layer", "head", "stream", "group", "words")
"""Options of maps that the parts of a chat have, too."""
PLACES = ("format", "output", "picture", "html", "overwrite", "open_page", "max_rows", "pieces",
          "show", "fields", "errors", "quiet", "verbose")  # fmt: skip


def show_chats(chats: Sequence[Text], run: Run) -> bool:
    """Report the parts of each conversation; False where options are about maps of all tokens."""
    options = run.options
    if wants_maps(options):
        return False
    check_choice(options)
    for option, value in (
        ("--workers", options.many.workers),
        ("--resume", options.many.resume),
        ("--shard-size", options.many.shard_size),
    ):
        if value:
            raise UsageError(f"{option} is for maps, not for the parts of a chat: leave it out")
    file = options.pictures.get("parts") or options.pictures.get("lines")
    run.options = replace(options, pictures={"parts": file})
    with run.report("chat", many=len(chats) > 1) as report:
        report_chats(chats, run.options, report)
    return True


def wants_maps(options: Options) -> bool:
    """Whether options ask for weights between tokens, in numbers or as a picture."""
    output, origin = options.output, options.origin
    if map_options(options, *OWN, *PLACES) or output.browse or output.atlas:
        return True
    if origin.rows or origin.window or origin.keep_qk or origin.max_size or origin.scores:
        return True
    if options.many.columns is not None or output.digits is not None:
        return True
    own = formats_of("chat")
    suffixes = {entry.suffix for entry in own.values()}
    if output.format is not None and output.format not in own:
        return True
    if output.output is not None and output.output.suffix.lower() not in suffixes:
        return output.output.suffix.lower() in {entry.suffix for entry in FORMATS.values()}
    kinds = (str(file).partition(":")[0] for file in output.picture or [])
    return any(kind in MAP_PICTURES for kind in kinds)


def check_choice(options: Options) -> None:
    """Refuse heads and groups that cannot be, before a model is loaded."""
    choice = options.choice
    select.check_selection(choice.layer, choice.head)
    group.check_group(choice.group)
    check_origin(options.origin, "self")
    if choice.words and choice.group not in (None, "words"):
        raise UsageError(f"--words and --group {choice.group} contradict each other: give one")


def report_chats(chats: Sequence[Text], options: Options, report: RunReport) -> None:
    """Report each conversation, or why it cannot be read."""
    from attnviz.features.chat.reading import read_chat

    choice = options.choice
    choice = replace(choice, group="words") if choice.words else choice
    source: Any = source_for(options.origin, "self")

    def outcomes() -> Iterator[tuple[Text, ChatReport | AttnvizError]]:
        for one in chats:
            try:
                yield one, read_chat(source, one, choice, pieces=options.output.pieces)
            except AttnvizError as error:
                if len(chats) == 1:
                    raise
                yield one, error

    total = (lambda: len(chats)) if len(chats) > 1 else None
    for _, chat in good_results(outcomes(), report, total):
        for note in chat.provenance.notes:
            report.hold(note)
        report.add(chat_data(chat))
    report.finish()


def chat_data(chat: ChatReport) -> Data:
    """A report in every form."""

    def draw() -> Any:
        from attnviz.features.chat.picture import chat_picture

        return chat_picture(chat)

    def page(command: str) -> str:
        from attnviz.features.chat.picture import chat_page

        return chat_page(chat, command)

    return data_of(chat, *CHAT, figures={"parts": draw}, page=page, notes=chat.notes)
