"""attnviz co."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer

from attnviz.cli.inputs import InputOption, reading, texts_of
from attnviz.cli.options import FILES, READING, Options, completing, with_options
from attnviz.core.errors import UsageError, choose
from attnviz.core.registry import CO_VARIANTS


@with_options(
    without=(
        "model",
        "mechanism",
        "weights",
        "causal",
        "to",
        "generate",
        "chat",
        "revision",
        "allow_pickle",
        "allow_code",
        "device_map",
        "keep_qk",
        *("max_size", "rows", "window"),
        "explain",
    ),
    many=(*READING, *FILES),
)
def co(
    a: Annotated[
        str | None, typer.Argument(help="First text; - reads tab-separated pairs.")
    ] = None,
    b: Annotated[str | None, typer.Argument(help="Second text.")] = None,
    variant: Annotated[
        str,
        typer.Option(
            "--variant",
            metavar="NAME",
            help=f"{', '.join(CO_VARIANTS[:-1])} or {CO_VARIANTS[-1]}.",
            autocompletion=completing(CO_VARIANTS),
        ),
    ] = "parallel",
    input_file: InputOption = None,
    *,
    options: Options,
) -> None:
    """Show how two texts attend to each other, both directions at once.

    attnviz co "What colour is the car" "A red car stands in the street"

    attnviz co "What colour is it" "The car is red" --variant two-stream --grid heads.png
    """
    from attnviz.cli.run import run_texts

    choose(variant, CO_VARIANTS, "variant")
    if a is not None and a != "-" and b is None:
        raise UsageError("co-attention needs two texts: attnviz co A B")
    given = [text for text in (a, b) if text is not None]
    texts, many = texts_of(given, input_file, pairs=True, **reading(options))
    origin = replace(options.origin, mechanism=f"co-{variant}")
    raise typer.Exit(run_texts("co", texts, many, replace(options, origin=origin), input_file))
