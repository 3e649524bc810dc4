"""attnviz live."""

from __future__ import annotations

import time
from pathlib import Path

import typer

from attnviz.cli.destinations import PAGES, save_page
from attnviz.cli.options import OUTPUT, with_options
from attnviz.cli.places import note
from attnviz.core.errors import UsageError
from attnviz.core.options import Options, opt
from attnviz.storage.writing import check_writable


@with_options(also=["open_page"], report=("said",))
def live(
    output: Path | None = opt(
        OUTPUT, "--output -o FILE", "The page: .html. Without it the page is opened, as by --open."
    ),
    *,
    options: Options,
) -> None:
    """Write a page with the model inside that answers as one types.

    attnviz live

    attnviz live -o live.html
    """
    if output is not None and output.suffix.lower() not in PAGES:
        raise UsageError(f"--output '{output}' must end in {' or '.join(PAGES)}")
    if output is not None:
        check_writable(output)
    started = time.perf_counter()
    from attnviz.models.pocket.packed import packed
    from attnviz.renderers.page.document import live_page

    data = live_page("attnviz live", packed()).encode()
    path = save_page(output, data, shown=options.output.open_page or output is None)
    if options.output.verbose:
        size, seconds = len(data) / 1e6, time.perf_counter() - started
        note(f"wrote '{path}', {size:.1f} MB, in {seconds:.2f} s")
    raise typer.Exit(0)
