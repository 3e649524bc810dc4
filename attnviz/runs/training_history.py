"""The samples of a training run, measured one after the other, and drawn over the steps."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from attnviz.analyses.history import HistoryStudy
from attnviz.core.attention_map import Attention, AttentionMap
from attnviz.core.errors import InputError
from attnviz.core.measures import DRIFT, History
from attnviz.core.notices import notify
from attnviz.core.options import Choice
from attnviz.renderers.reports import Item, data_of
from attnviz.renderers.text.history import history_json, history_table, history_tsv
from attnviz.runs.comparing import Change
from attnviz.runs.outputs import page_html
from attnviz.runs.pipeline import apply_choice
from attnviz.storage.matrices import read_bytes
from attnviz.storage.saved import read_any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Samples = Callable[[], Iterator[tuple[int, Attention]]]
"""Reads the samples one by one, as often as they are needed: together they may not fit."""


def sample_files(folder: Path) -> dict[int, Path]:
    """The samples in a folder by step, in order."""
    found = (re.fullmatch(r"step-(\d+)\.npz", path.name) for path in folder.iterdir())
    return dict(sorted((int(one[1]), folder / one[0]) for one in found if one))


def read_sample(path: Path) -> Attention:
    """The maps of one sample.

    Raises:
        InputError: the file holds something else.
    """
    found = list(read_any(read_bytes(path), f"'{path}'"))
    if len(found) != 1:
        raise InputError(f"'{path}' holds {len(found)} texts: a sample is one")
    return found[0]


def training_history(folder: str | Path, choice: Choice) -> tuple[Item, History]:
    """How heads change over the samples in a folder.

    Raises:
        InputError: there is no such folder, or it holds no samples.
    """
    if not Path(folder).is_dir():
        raise InputError(f"there is no folder '{folder}'")
    files = sample_files(Path(folder))
    if not files:
        raise InputError(f"'{folder}' holds no samples: they are named step-00000100.npz")

    def samples() -> Iterator[tuple[int, Attention]]:
        for step, path in files.items():
            yield step, apply_choice(read_sample(path), choice)

    study = HistoryStudy()
    for step, sample in samples():
        study.add(step, sample)
    found = study.report()
    for note in (*found.provenance.notes, *found.notes):
        notify(note)
    figures = {"plot": partial(_plot, found), "gif": partial(_frames, found, samples)}
    data = data_of(found, history_table, history_tsv, history_json, figures=figures)
    return Item(data, tuple, figures, partial(_page, found, samples)), found


def last_drifts(found: History) -> list[Change]:
    """How far each head drifted between the last two samples, in nats."""
    names = [f"layer {layer} head {head}" for _, layer, head in found.heads]
    return list(zip(names, found.values[DRIFT][-1].tolist(), strict=True))


def _page(found: History, samples: Samples, command: str) -> str:
    maps = tuple(item for step, sample in samples() for item in _named_maps(step, sample))
    return page_html(Attention(maps, found.provenance), command)


def _named_maps(step: int, sample: Attention) -> Iterator[AttentionMap]:
    """The maps of a sample as streams that the page has a slider for."""
    for item in sample.maps:
        stream = f" · {item.stream}" if len(sample.maps) > 1 else ""
        yield replace(item, stream=f"step {step}{stream}")


def _plot(found: History) -> Figure:
    from attnviz.renderers.figures.history import history_figure

    return history_figure(found)


def _frames(found: History, samples: Samples) -> Figure:
    """One head in each sample on one scale: the figure of the last one, with all as its frames."""
    from attnviz.renderers.figures.history import frames

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
    return frames(maps, found.provenance.title, which)
