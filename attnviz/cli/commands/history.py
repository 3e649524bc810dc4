"""attnviz history."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from attnviz.cli.options import OUTPUT, with_options
from attnviz.cli.report import Report
from attnviz.core.errors import UsageError
from attnviz.core.options import Options, opt
from attnviz.runs.comparing import check_changes
from attnviz.runs.pipeline import check_choice
from attnviz.runs.training_history import last_drifts, training_history


@with_options("stream", "heads", "page", writes="history")
def history(
    folder: Annotated[str, typer.Argument(help="Folder of samples: step-00000100.npz, …")],
    plot: Path | None = opt(
        OUTPUT, "--plot FILE", "Every head over the steps as a picture: .png, .svg or .pdf."
    ),
    gif: Path | None = opt(
        OUTPUT,
        "--gif FILE",
        "One head over the steps: .gif. Of several, the one that drifted most.",
    ),
    fail_above: float | None = opt(
        OUTPUT,
        "--fail-above NATS",
        "Exit with 1 if a head's drift between the last two samples (0: none, 0.693: all) is "
        "larger.",
        min=0,
    ),
    *,
    options: Options,
) -> None:
    """Show how heads change over a training run, of samples that attnviz.callbacks took.

    attnviz history samples --plot heads.png --html steps.html

    attnviz history samples --head 1.0 --gif head.gif

    attnviz history samples -f tsv --fail-above 0.05
    """
    check_choice(options.choice)
    with Report(options, "history", pictures={"plot": plot, "gif": gif}) as report:
        item, found = training_history(folder, options.choice)
        if fail_above is not None and len(found.steps) < 2:
            raise UsageError("--fail-above compares two samples, and there is one")
        report.add(item)
        report.finish(f"{len(found.steps)} sample{'s' if len(found.steps) != 1 else ''}")
    check_changes(last_drifts(found), "heads", fail_above)
