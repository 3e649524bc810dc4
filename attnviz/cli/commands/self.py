"""attnviz self."""

import os
from dataclasses import replace
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


@with_options(
    *(*MODELS, "contacts", *VIEW, *PLACES, "atlas", "causal", "chat", "range", "explain"),
    *MANY_TEXTS,
    also=["from_"],
    rare=("generate", "explain", "grid", "picture", "show", "quiet"),
    draws=MAP_PICTURES,
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
    from attnviz.runs.inputs import given_texts, texts_of
    from attnviz.storage.texts import Text, check_text

    if pair is not None:
        if input_file is not None:
            raise UsageError("--pair belongs to one TEXT, and --input reads many: give one of them")
        if text is None or len(text) != 1 or text == ["-"]:
            raise UsageError("--pair is the second text of one: attnviz self TEXT --pair TEXT")
        check_pair(options.origin)
        both = Text("0", check_text(text[0]), check_text(pair, "second text"))
        raise typer.Exit(run_texts("self", given_texts(both), options))
    first = text[0] if text and options.origin.chat and input_file is None else ""
    if text and first.endswith(".jsonl") and os.path.isfile(first):  # noqa: PTH113
        (input_file, *text), options = text, replace(options, given=())
    if brings_tokens(options.origin) and not text and input_file is None:
        # A file of weights can bring its own tokens.
        raise typer.Exit(run_texts("self", given_texts(Text("0", "")), options))
    texts = texts_of(text or [], input_file, options.many)
    raise typer.Exit(run_texts("self", texts, options))
