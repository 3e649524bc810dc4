"""attnviz cross."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from attnviz.cli.commands.align import AGAINST, SCORE, SYMMETRIZE
from attnviz.cli.inputs import INPUT, texts_of
from attnviz.cli.options import MANY_TEXTS, MODELS, PLACES, VIEW, with_options
from attnviz.core.errors import UsageError
from attnviz.core.options import Options, map_options


@with_options(
    *(*MODELS, *VIEW, *PLACES, "to", "explain", *MANY_TEXTS), writes=("maps", "alignment", "scores")
)
def cross(
    source: Annotated[
        str | None,
        typer.Argument(help="Source, attended to (keys); - reads pairs from stdin."),
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

    attnviz cross --input pairs.jsonl -f jsonl | jq .id
    """
    from attnviz.cli.run import run_texts
    from attnviz.models.open import brings_tokens
    from attnviz.storage.texts import Text

    given = [text for text in (source, target) if text is not None]
    if brings_tokens(options.origin) and not given and input_file is None:
        raise typer.Exit(run_texts("cross", [Text("0", "")], many=False, options=options))
    aligned = options.output.format == "pharaoh" or score is not None
    texts, many = texts_of(given, input_file, options.many, pairs=True, keep_blank=aligned)
    if aligned:
        if shown := map_options(options, "layer", "head"):
            how = "-f pharaoh" if score is None else "--score"
            raise UsageError(f"{how} aligns words and shows no maps: leave {shown[0]} out")
        from attnviz.cli.commands.align import run_alignment

        raise typer.Exit(
            run_alignment(texts, options, input_file, symmetrize, against, score, many=many)
        )
    raise typer.Exit(run_texts("cross", texts, many=many, options=options, input_file=input_file))
