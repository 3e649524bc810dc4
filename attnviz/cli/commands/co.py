"""attnviz co."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer

from attnviz.cli.inputs import INPUT, texts_of
from attnviz.cli.options import ORIGIN, PLACES, VIEW, with_options
from attnviz.core.errors import UsageError, in_words
from attnviz.core.options import Options, opt
from attnviz.core.registry import MECHANISMS

CO_MECHANISMS = tuple(name for name, row in MECHANISMS.items() if row.commands == ("co",))


@with_options("compute", *VIEW, *PLACES, "reading", "files")
def co(
    a: Annotated[
        str | None, typer.Argument(help="First text; - reads pairs with a tab between.")
    ] = None,
    b: Annotated[str | None, typer.Argument(help="Second text.")] = None,
    mechanism: str = opt(
        ORIGIN,
        "--mechanism NAME",
        f"Untrained layer: {in_words(CO_MECHANISMS)}, or co-two-stream:heads=4,size=64,seed=0.",
        default="co-parallel",
        suggested=CO_MECHANISMS,
    ),
    input_file: str | None = INPUT,
    *,
    options: Options,
) -> None:
    """Show how two texts attend to each other, both directions at once.

    attnviz co "What colour is the car" "A red car stands in the street"

    attnviz co "What colour is it" "The car is red" --mechanism co-two-stream --grid heads.png
    """
    from attnviz.cli.run import run_texts

    if a is not None and a != "-" and b is None:
        raise UsageError("co-attention needs two texts: attnviz co A B")
    given = [text for text in (a, b) if text is not None]
    texts, many = texts_of(given, input_file, options.many, pairs=True)
    origin = replace(options.origin, mechanism=mechanism)
    raise typer.Exit(
        run_texts(
            "co", texts, many=many, options=replace(options, origin=origin), input_file=input_file
        )
    )
