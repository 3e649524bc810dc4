"""attnviz self."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from attnviz.cli.options import (
    INPUT,
    MANY_TEXTS,
    MAP_PICTURES,
    MODELS,
    ORIGIN,
    PLACES,
    VIEW,
    with_options,
)
from attnviz.core.errors import UsageError
from attnviz.core.options import Options, rare
from attnviz.core.registry import CHATS


@with_options(
    *(*MODELS, "contacts", *VIEW, *PLACES, "atlas", "causal", "chat", "range", "explain"),
    *MANY_TEXTS,
    also=["from_"],
    writes=("maps", "chat"),
    rare=("generate", "explain", "grid", "picture", "show", "quiet"),
    draws=MAP_PICTURES | {"parts": "the parts of a chat, one above the other"},
)
def self_command(
    text: Annotated[
        list[str] | None,
        typer.Argument(metavar="[TEXT]...", help="Texts, each in quotes; - reads stdin."),
    ] = None,
    input_file: str | None = INPUT,
    pair: str | None = rare(
        ORIGIN,
        "--pair TEXT",
        "Second text of a sentence pair; --stream a-to-b or b-to-a shows one direction.",
    ),
    *,
    options: Options,
) -> None:
    r"""Show how a text attends to itself.

    attnviz self "The cat sat on the mat" --head 0.2

    attnviz self "The cat sat on the mat" --model pocket-lm --grid heads.png

    attnviz self --input sentences.txt -o maps.jsonl --digits 4 -f none

    echo "The cat sat" | attnviz self - -f tsv | sort -t$'\t' -k9 -gr | head
    """
    from attnviz.cli.run import run_texts
    from attnviz.models.open import brings_tokens, check_pair
    from attnviz.runs.inputs import chats_in, given_texts, texts_of
    from attnviz.storage.texts import Text, check_text

    if pair is not None:
        if input_file is not None:
            raise UsageError("--pair belongs to one TEXT, and --input reads many: give one of them")
        if text is None or len(text) != 1 or text == ["-"]:
            raise UsageError("--pair is the second text of one: attnviz self TEXT --pair TEXT")
        check_pair(options.origin)
        both = Text("0", check_text(text[0]), check_text(pair, "second text"))
        raise typer.Exit(run_texts("self", given_texts(both), options))
    options, pictures = _pictures_of_maps(options)
    if options.origin.chat:
        chats = chats_in(text or [], input_file, options.many)
        names = text if input_file is None else [input_file]
        if isinstance(chats, list):
            status = CHATS.load()(chats, replace(options, pictures=pictures, given=()))
            if status is not None:
                raise typer.Exit(status)
            if len(chats) == 1:
                raise typer.Exit(run_texts("self", given_texts(*chats), replace(options, given=())))
            (input_file,), text = names or ["-"], None
        elif chats is not None:
            raise typer.Exit(run_texts("self", chats, options))
    if brings_tokens(options.origin) and not text and input_file is None:
        # A file of weights can bring its own tokens.
        raise typer.Exit(run_texts("self", given_texts(Text("0", "")), options))
    texts = texts_of(text or [], input_file, options.many)
    raise typer.Exit(run_texts("self", texts, options))


def _pictures_of_maps(options: Options) -> tuple[Options, dict[str, Path | None]]:
    """The options without the picture of a chat, and all pictures that were asked for."""
    pictures = {name: file for name, file in options.pictures.items() if name != "parts"}
    if options.pictures["parts"] is not None and not options.origin.chat:
        raise UsageError("--picture parts:FILE is of a chat: add --chat, and a file of messages")
    return replace(options, pictures=pictures), options.pictures
