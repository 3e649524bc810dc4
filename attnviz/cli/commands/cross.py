"""attnviz cross."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from attnviz.cli.commands.align import AGAINST, SCORE, SYMMETRIZE
from attnviz.cli.options import INPUT, MANY_TEXTS, MODELS, PLACES, VIEW, with_options
from attnviz.core.options import Options


@with_options(
    *(*MODELS, *VIEW, *PLACES, "to", "explain", *MANY_TEXTS),
    writes=("maps", "alignment", "scores"),
)
def cross(
    source: Annotated[
        str | None, typer.Argument(help="Text attended to (keys); - reads tab-separated pairs.")
    ] = None,
    target: Annotated[
        str | None,
        typer.Argument(help="Text that attends (queries); without it the model writes one."),
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

    attnviz cross --input pairs.jsonl -f jsonl | jq .id
    """
    from attnviz.cli.run import run_texts
    from attnviz.models.open import brings_tokens
    from attnviz.runs.inputs import given_texts, texts_of
    from attnviz.storage.texts import Text

    given = [text for text in (source, target) if text is not None]
    if brings_tokens(options.origin) and not given and input_file is None:
        raise typer.Exit(run_texts("cross", given_texts(Text("0", "")), options))
    aligned = options.output.format == "pharaoh" or score is not None
    texts = texts_of(given, input_file, options.many, pairs=True, keep_blank=aligned)
    if aligned:
        from attnviz.cli.commands.align import align_texts

        raise typer.Exit(align_texts(texts, symmetrize, against, score, options))
    raise typer.Exit(run_texts("cross", texts, options))
