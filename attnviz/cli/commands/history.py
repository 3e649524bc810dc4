"""attnviz history: the samples of a training run, measured one after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
import typer

from attnviz.analyses.history import HistoryStudy
from attnviz.callbacks import read_sample, sample_files
from attnviz.cli.commands.compare import judge
from attnviz.cli.options import OUTPUT, with_options
from attnviz.cli.report import Report
from attnviz.cli.sinks import Item, data_of
from attnviz.core.attention_map import Attention, AttentionMap
from attnviz.core.errors import InputError, UsageError
from attnviz.core.measures import DRIFT, History
from attnviz.core.options import Options, opt
from attnviz.renderers.text.history_table import history_json, history_table, history_tsv
from attnviz.runs.pipeline import apply_choice, check_choice

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@with_options("stream", "heads", "page", writes="history")
def history(
    folder: Annotated[str, typer.Argument(help="Folder of samples: step-00000100.npz, …")],
    plot: Path | None = opt(
        OUTPUT, "--plot FILE", "Every head over the steps as a picture: .png, .svg or .pdf."
    ),
    gif: Path | None = opt(
        OUTPUT,
        "--gif FILE",
        "One head over the steps (.gif): the chosen one, or the one that drifts most.",
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
    """Show how heads change over a training run, from samples saved by attnviz.callbacks.

    attnviz history samples --plot heads.png --html steps.html

    attnviz history samples --head 1.0 --gif head.gif

    attnviz history samples -f tsv --fail-above 0.05
    """
    check_choice(options.choice)
    place = Path(folder)
    if not place.is_dir():
        raise InputError(f"there is no folder '{folder}'")
    with Report(options, "history", pictures={"plot": plot, "gif": gif}) as report:
        files = sample_files(place)
        if not files:
            raise InputError(f"'{folder}' holds no samples: they are named step-00000100.npz")
        if fail_above is not None and len(files) < 2:
            raise UsageError("--fail-above compares two samples, and there is one")

        def samples() -> Iterator[tuple[int, Attention]]:
            for step, path in files.items():
                yield step, apply_choice(read_sample(path), options.choice)

        study = HistoryStudy()
        for step, sample in samples():
            study.add(step, sample)
        found = study.report()
        for note in (*found.provenance.notes, *found.notes):
            report.say(note)
        report.add(_item(found, samples, options))
        report.finish(f"{len(files)} sample{'s' * (len(files) != 1)}")
    named = [f"layer {layer} head {head}" for _, layer, head in found.heads]
    judge(list(zip(named, found.values[DRIFT][-1].tolist(), strict=True)), "heads", fail_above)


Samples = Callable[[], Iterator[tuple[int, Attention]]]
"""Reads the samples one by one, as often as they are needed."""


def _item(found: History, samples: Samples, options: Options) -> Item:
    page = None
    if options.output.html or options.output.open_page:
        maps = tuple(item for step, sample in samples() for item in _named(step, sample))
        page = Attention(maps, found.provenance)
    figures = {"plot": partial(_plot, found), "gif": partial(_frames, found, samples)}
    data = data_of(found, history_table, history_tsv, history_json, figures=figures)
    return Item(data, tuple, figures, page)


def _named(step: int, sample: Attention) -> Iterator[AttentionMap]:
    """The maps of a sample as streams that the page has a slider for."""
    for item in sample.maps:
        stream = f" · {item.stream}" if len(sample.maps) > 1 else ""
        yield replace(item, stream=f"step {step}{stream}")


def _plot(found: History) -> Figure:
    from attnviz.renderers.figures.head_history import history_figure

    return history_figure(found)


def _frames(found: History, samples: Samples) -> Figure:
    """One head in each sample on one scale: the figure of the last one, with all as its frames."""
    from attnviz.renderers.figures.head_history import head_frames

    most = int(np.nan_to_num(found.values[DRIFT]).sum(axis=0).argmax())
    _, layer, head = found.heads[most]
    maps = {
        step: item.with_weights(
            item.weights[item.layers.index(layer), item.heads.index(head), None, None],
            layers=(layer,),
            heads=(head,),
        )
        for step, sample in samples()
        for item in sample.maps
        if layer in item.layers and head in item.heads
    }
    which = f"layer {layer} head {head}"
    if len(found.heads) > 1:
        which += f", which drifted most of {len(found.heads)}"
    return head_frames(maps, found.provenance.title, which)
