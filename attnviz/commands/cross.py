"""attnviz cross."""

from pathlib import Path
from typing import Any

from attnviz.commands.command import (
    CHOICE,
    INPUT,
    MANY_TEXTS,
    MAP_PICTURES,
    MODELS,
    OUTPUT,
    PLACES,
    VIEW,
    Run,
    command,
)
from attnviz.core.errors import UsageError
from attnviz.core.options import Origin, map_options
from attnviz.core.options.option import arg, opt
from attnviz.core.registry import ALIGNER, SYMMETRIZATIONS

HOW = "How two directions are joined: {choices}."
SYMMETRIZE = opt(CHOICE, "--symmetrize HOW", HOW, choices=tuple(SYMMETRIZATIONS))
SIDE = "Whether a decoder row stands for the token it reads (input) or predicts (output)."
AGAINST = opt(CHOICE, "--against SIDE", SIDE, default="input", choices=("input", "output"))
GOLD = "Correct links, a line a pair (0-0 sure, 1?1 possible), to score every layer and head."
SCORE = opt(OUTPUT, "--score GOLD", GOLD)


@command(
    *(*MODELS, *VIEW, *PLACES, "atlas", "to", "explain", *MANY_TEXTS),
    writes=("maps", "alignment", "scores"),
    rare=("symmetrize", "against", "score", "generate", "explain", "grid", "picture", "show"),
    draws=MAP_PICTURES,
)
def cross(
    source: str | None = arg("Source, attended to (keys); - reads pairs from stdin."),
    target: str | None = arg("Target, which attends (queries); else the model writes one."),
    *,
    input: str | None = INPUT,  # noqa: A002 - as the option is called
    symmetrize: str | None = SYMMETRIZE,
    against: str = AGAINST,
    score: Path | None = SCORE,
    **options: Any,
) -> Any:
    """Show how a target attends to a source: rows are the target's tokens.

    attnviz cross "The red car is fast" "La voiture rouge est rapide"

    attnviz cross "The red car is fast" "La voiture rouge est rapide" -f pharaoh

    attnviz cross "What colour is it" "The car is red" --mechanism co --grid heads.png

    attnviz cross --input pairs.jsonl -f jsonl | jq .id
    """
    from attnviz.commands.run import run_texts
    from attnviz.models.open import brings_tokens
    from attnviz.runs.inputs import given_texts, texts_of
    from attnviz.storage.texts import Text

    run = Run("cross", options)
    how = run.options
    aligns = how.output.format == "pharaoh" or score is not None
    if not aligns and (symmetrize is not None or against != "input"):
        name = "--against" if symmetrize is None else "--symmetrize"
        raise UsageError(f"{name} is for word alignments: add -f pharaoh or --score GOLD")
    arguments = [text for text in (source, target) if text is not None]
    if brings_tokens(how.origin) and not arguments and input is None:
        return run_texts(run, "cross", given_texts(Text("0", "")))
    texts = texts_of(arguments, input, how.many, pairs=True, keep_blank=aligns)
    if aligns:
        flags = map_options(how, "layer", "head")
        if flags := flags or (["--top"] if how.origin.top != Origin().top else []):
            option = "-f pharaoh" if score is None else "--score"
            raise UsageError(f"{option} aligns words and shows no maps: leave {flags[0]} out")
        return ALIGNER.load()(run, texts, symmetrize, against, score)
    return run_texts(run, "cross", texts)
