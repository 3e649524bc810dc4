"""`attnviz reach`: how far the heads of a text look, as a table, data and a picture."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from attnviz.commands.command import Run, command
from attnviz.core.options.option import arg, opt

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from attnviz.commands.findings import Findings


@command("model", "look", writes="listing", draws={"bars": "the reach of each head as bars"})
def reach(
    text: str = arg("Text to read.", default=...),
    *,
    top: int = opt("Where it goes", "--top N", "Heads to list.", default=5, min=1),
    **options: Any,
) -> Findings:
    """Show how far the heads of a text look.

    attnviz reach "The cat sat on the mat" --picture reach.png

    Returns:
        A row for each head, and the picture "bars".
    """
    import numpy as np

    from attnviz import attend
    from attnviz.renderers.reports import listing

    run = Run("reach", options)
    main = attend(text, model=run.options.origin.model).main
    places = np.arange(len(main.key_tokens))
    means = (main.weights * abs(places[:, None] - places)).sum(axis=-1).mean(axis=-1)
    reaches = {
        f"{layer}.{head}": float(means[row, column])
        for row, layer in enumerate(main.layers)
        for column, head in enumerate(main.heads)
    }
    far = dict(sorted(reaches.items(), key=lambda one: -one[1])[:top])
    rows = [(head, f"{tokens:.2f}") for head, tokens in far.items()]
    data = listing("reach", ("head", "tokens"), rows)
    return run.write(replace(data, figures={"bars": lambda: _bars(far)}))


def _bars(far: dict[str, float]) -> Figure:
    from matplotlib.figure import Figure

    figure = Figure(layout="constrained")
    axes = figure.subplots()
    axes.bar(list(far), list(far.values()))
    axes.set_xlabel("head")
    axes.set_ylabel("tokens away, in the mean")
    return figure
