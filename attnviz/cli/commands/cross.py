"""attnviz cross."""

from pathlib import Path
from typing import Annotated

import typer

from attnviz.cli.options import (
    CHOICE,
    INPUT,
    MANY_TEXTS,
    MAP_PICTURES,
    MODELS,
    OUTPUT,
    PLACES,
    VIEW,
    with_options,
)
from attnviz.core.errors import UsageError
from attnviz.core.options import Options, Origin, map_options, opt
from attnviz.core.registry import ALIGNER, SYMMETRIZATIONS

HOW = "How two directions are joined: {choices}."
SYMMETRIZE = opt(CHOICE, "--symmetrize HOW", HOW, choices=tuple(SYMMETRIZATIONS))
SIDE = "Whether a decoder row stands for the token it reads (input) or predicts (output)."
AGAINST = opt(CHOICE, "--against SIDE", SIDE, default="input", choices=("input", "output"))
GOLD = "Correct links, a line a pair (0-0 sure, 1?1 possible), to score every layer and head."
SCORE = opt(OUTPUT, "--score GOLD", GOLD)


@with_options(
    *(*MODELS, *VIEW, *PLACES, "atlas", "to", "explain", *MANY_TEXTS),
    writes=("maps", "alignment", "scores"),
    rare=("symmetrize", "against", "score", "generate", "explain", "grid", "picture", "show"),
    draws=MAP_PICTURES,
)
def cross(
    source: Annotated[
        str | None, typer.Argument(help="Source, attended to (keys); - reads pairs from stdin.")
    ] = None,
    target: Annotated[
        str | None,
        typer.Argument(help="Target, which attends (queries); else the model writes one."),
    ] = None,
    input_file: str | None = INPUT,
    symmetrize: str | None = SYMMETRIZE,
    against: str = AGAINST,
    score: Path | None = SCORE,
    *,
    options: Options,
) -> None:
    """Show how a target attends to a source: rows are the target's tokens.

    attnviz cross "The red car is fast" "La voiture rouge est rapide"

    attnviz cross "The red car is fast" "La voiture rouge est rapide" -f pharaoh

    attnviz cross "What colour is it" "The car is red" --mechanism co --grid heads.png

    attnviz cross --input pairs.jsonl -f jsonl | jq .id
    """
    from attnviz.cli.run import run_texts
    from attnviz.models.open import brings_tokens
    from attnviz.runs.inputs import given_texts, texts_of
    from attnviz.storage.texts import Text

    aligns = options.output.format == "pharaoh" or score is not None
    if not aligns and (symmetrize is not None or against != "input"):
        name = "--against" if symmetrize is None else "--symmetrize"
        raise UsageError(f"{name} is for word alignments: add -f pharaoh or --score GOLD")
    arguments = [text for text in (source, target) if text is not None]
    if brings_tokens(options.origin) and not arguments and input_file is None:
        raise typer.Exit(run_texts("cross", given_texts(Text("0", "")), options))
    texts = texts_of(arguments, input_file, options.many, pairs=True, keep_blank=aligns)
    if aligns:
        flags = map_options(options, "layer", "head")
        if flags := flags or (["--top"] if options.origin.top != Origin().top else []):
            how = "-f pharaoh" if score is None else "--score"
            raise UsageError(f"{how} aligns words and shows no maps: leave {flags[0]} out")
        raise typer.Exit(ALIGNER.load()(texts, symmetrize, against, score, options))
    raise typer.Exit(run_texts("cross", texts, options))
