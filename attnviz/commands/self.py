"""attnviz self."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from attnviz.commands.command import (
    INPUT,
    MANY_TEXTS,
    MAP_PICTURES,
    MODELS,
    ORIGIN,
    PLACES,
    VIEW,
    Run,
    command,
)
from attnviz.core.errors import UsageError
from attnviz.core.options import Options
from attnviz.core.options.option import arg, rare
from attnviz.core.registry import CHATS


@command(
    *(*MODELS, "contacts", *VIEW, *PLACES, "atlas", "causal", "chat", "range", "explain"),
    *MANY_TEXTS,
    also=["from_"],
    writes=("maps", "chat"),
    rare=("generate", "explain", "grid", "picture", "show", "quiet"),
    draws=MAP_PICTURES | {"parts": "the parts of a chat, one above the other"},
)
def self_command(
    text: list[str] | None = arg("Texts, each in quotes; - reads stdin.", "[TEXT]..."),
    *,
    input: str | None = INPUT,  # noqa: A002 - as the option is called
    pair: str | None = rare(
        ORIGIN,
        "--pair TEXT",
        "Second text of a sentence pair; --stream a-to-b or b-to-a shows one direction.",
    ),
    **options: Any,
) -> Any:
    r"""Show how a text attends to itself.

    attnviz self "The cat sat on the mat" --head 0.2

    attnviz self "The cat sat on the mat" --model pocket-lm --grid heads.png

    attnviz self --input sentences.txt -o maps.jsonl --digits 4 -f none

    echo "The cat sat" | attnviz self - -f tsv | sort -t$'\t' -k9 -gr | head
    """
    from attnviz.commands.run import run_texts
    from attnviz.models.open import brings_tokens, check_pair
    from attnviz.runs.inputs import chats_in, given_texts, texts_of
    from attnviz.storage.texts import Text, check_text

    run, file = Run("self", options), input
    if pair is not None:
        if file is not None:
            raise UsageError("--pair belongs to one TEXT, and --input reads many: give one of them")
        if text is None or len(text) != 1 or text == ["-"]:
            raise UsageError("--pair is the second text of one: attnviz self TEXT --pair TEXT")
        check_pair(run.options.origin)
        both = Text("0", check_text(text[0]), check_text(pair, "second text"))
        return run_texts(run, "self", given_texts(both))
    run.options, pictures = _pictures_of_maps(run.options)
    if run.options.origin.chat:
        chats = chats_in(text or [], file, run.options.many)
        names = text if file is None else [file]
        if isinstance(chats, list):
            usual, run.options = run.options, replace(run.without_files(), pictures=pictures)
            if CHATS.load()(chats, run):
                return run.result
            run.options = usual
            if len(chats) == 1:
                run.options = run.without_files()
                return run_texts(run, "self", given_texts(*chats))
            (file,), text = names or ["-"], None
        elif chats is not None:
            return run_texts(run, "self", chats)
    if brings_tokens(run.options.origin) and not text and file is None:
        # A file of weights can bring its own tokens.
        return run_texts(run, "self", given_texts(Text("0", "")))
    return run_texts(run, "self", texts_of(text or [], file, run.options.many))


def _pictures_of_maps(options: Options) -> tuple[Options, dict[str, Path | None]]:
    """The options without the picture of a chat, and all pictures that were asked for."""
    pictures = {name: file for name, file in options.pictures.items() if name != "parts"}
    if options.pictures["parts"] is not None and not options.origin.chat:
        raise UsageError("--picture parts:FILE is of a chat: add --chat, and a file of messages")
    return replace(options, pictures=pictures), options.pictures
