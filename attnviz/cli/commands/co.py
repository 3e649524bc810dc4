"""attnviz co."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer

from attnviz.cli.options import INPUT, ORIGIN, PLACES, VIEW, with_options
from attnviz.core.errors import UsageError
from attnviz.core.options import Options, opt
from attnviz.core.registry import CO_VARIANTS


@with_options("layer", "compute", *VIEW, *PLACES, "reading", "files")
def co(
    a: Annotated[
        str | None, typer.Argument(help="First text; - reads tab-separated pairs.")
    ] = None,
    b: Annotated[str | None, typer.Argument(help="Second text.")] = None,
    variant: str = opt(
        ORIGIN, "--variant NAME", "{choices}.", default="parallel", choices=tuple(CO_VARIANTS)
    ),
    input_file: str | None = INPUT,
    *,
    options: Options,
) -> None:
    """Show how two texts attend to each other, both directions at once.

    attnviz co "What colour is the car" "A red car stands in the street"

    attnviz co "What colour is it" "The car is red" --variant two-stream --grid heads.png
    """
    from attnviz.cli.run import run_texts
    from attnviz.runs.inputs import texts_of

    if a is not None and a != "-" and b is None:
        raise UsageError("co-attention needs two texts: attnviz co A B")
    given = [text for text in (a, b) if text is not None]
    texts = texts_of(given, input_file, options.many, pairs=True)
    origin = replace(options.origin, mechanism=f"co-{variant}")
    raise typer.Exit(run_texts("co", texts, replace(options, origin=origin)))
