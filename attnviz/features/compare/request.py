"""What changed: between two attentions or ablations, and over the samples of a training run."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, partial
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from attnviz.analyses.view import describe_run
from attnviz.core.attention_map import Attention, AttentionMap
from attnviz.core.effects import SavedEffects
from attnviz.core.errors import AttnvizError, InputError, UsageError
from attnviz.core.notices import notify
from attnviz.core.options import Choice, InMemoryMaps, Options, Origin, map_options
from attnviz.core.records import dataclass, fields, replace
from attnviz.features.compare import history_table
from attnviz.features.compare import table as tables
from attnviz.features.compare.differences import compare_effects, compare_maps
from attnviz.features.compare.history import HistoryStudy
from attnviz.features.compare.report import DRIFT, Comparison, History
from attnviz.models.open import check_origin, open_source
from attnviz.renderers import NO_VIEWS
from attnviz.renderers.page.document import assemble
from attnviz.renderers.reports import Data, Item, data_of, draw_by
from attnviz.runs.outputs import page_data
from attnviz.runs.pipeline import Result, apply_choice, attend_one, check_choice
from attnviz.storage.matrices import read_bytes
from attnviz.storage.saved_maps import read_any, read_effects
from attnviz.storage.texts import Text, check_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SUFFIXES = (".npz", ".json", ".jsonl", ".safetensors")
MOST_NAMES = 8  # heads and effects that a failure names
Change = tuple[str, float]  # a head or an effect by name, and how much it changed


@dataclass(frozen=True, slots=True)
class ComparedSide:
    """A or B: a text with its model, maps or effects; and which part of it."""

    content: str | InMemoryMaps | SavedEffects  # a text, the name of a file, or data
    origin: Origin
    choice: Choice

    @property
    def is_text(self) -> bool:
        """Whether a model has to read this side first."""
        return isinstance(self.content, str) and Path(self.content).suffix.lower() not in SUFFIXES


Sides = tuple[ComparedSide, ComparedSide]


def sides_of(
    contents: tuple[str | InMemoryMaps | SavedEffects, str | InMemoryMaps | SavedEffects],
    options: Options,
    origins: Sequence[Mapping[str, Any]],
    choices: Sequence[Mapping[str, Any]],
) -> Sides:
    """A and B by the shared options and by their own, which win where they are given.

    Raises:
        UsageError: A and B cannot be compared.
    """
    first, second = (
        ComparedSide(
            one,
            replace(options.origin, **{name: own for name, own in of.items() if own is not None}),
            replace(options.choice, **{name: own for name, own in part.items() if own}),
        )
        for one, of, part in zip(contents, origins, choices, strict=True)
    )
    _check_models((first, second), options.origin, origins)
    if first == second:
        raise UsageError(
            "A and B are the same: give two texts or maps, --model-a and --model-b, "
            "or --head-a and --head-b"
        )
    for side in (first, second):
        check_choice(side.choice, rows=True)
        if side.is_text:
            check_origin(side.origin, "self")
    return first, second


def _check_models(sides: Sides, common: Origin, origins: Sequence[Mapping[str, Any]]) -> None:
    """Refuse options of a model where none is read."""
    for name, side, own in zip("AB", sides, origins, strict=True):
        names = [f"--{one}-{name.lower()}" for one, value in own.items() if value is not None]
        if names and not side.is_text:
            raise UsageError(f"{names[0]} names a model, and {name} is saved: leave it out")
    if any(side.is_text for side in sides):
        return
    for item in fields(common):
        # compare has a --top of its own
        if item.name != "top" and getattr(common, item.name) != item.default:
            option = item.metadata["option"].names[0]
            raise UsageError(f"{option} is for a model, and A and B are saved: leave it out")


def saved_effects(sides: Sides, options: Options) -> tuple[SavedEffects, SavedEffects] | None:
    """The effects of two saved ablations; None where neither side is one.

    Raises:
        UsageError: only one side is, or an option chooses, draws or shows maps.
    """
    first, second = map(_effects_of, sides)
    if first is None and second is None:
        return None
    if first is None or second is None:
        names = ("A holds effects of an ablation, and B", "B holds effects of an ablation, and A")
        raise UsageError(f"{names[first is None]} does not: give two files of 'attnviz ablate'")
    for letter, side in zip("ab", sides, strict=True):
        if flags := map_options(replace(options, choice=side.choice)):
            own = "" if flags[0] in map_options(options) else f"-{letter}"
            raise UsageError(
                f"'{side.content}' holds effects, which are compared as they were saved: leave "
                f"{flags[0]}{own} out"
            )
    return first, second


def _effects_of(side: ComparedSide) -> SavedEffects | None:
    if isinstance(side.content, SavedEffects):
        return side.content
    if isinstance(side.content, InMemoryMaps) or side.is_text:
        return None
    return read_effects(read_bytes(Path(side.content)), f"'{side.content}'")


def effect_changes(both: tuple[SavedEffects, SavedEffects], top: int) -> tuple[Data, list[Change]]:
    """What changed between two ablations, and by how much each effect did."""
    report = compare_effects(*both)
    pairs = ((one, other) for one, other in report.pairs if one and other)
    changes = [(one.label, abs(other.effect - one.effect)) for one, other in pairs]
    return data_of(report, *tables.EFFECTS, top), changes


def map_changes(sides: Sides, top: int) -> tuple[Data, list[Change]]:
    """What changed between two attentions, and by how much each head did."""
    load = cache(open_source)

    def attend(side: ComparedSide) -> Result:
        if side.is_text:
            text = Text("0", check_text(str(side.content)))
            return attend_one(load(side.origin, "self"), text, side.choice, "self")
        return apply_choice(_saved_maps(side), side.choice)

    first, second = attend(sides[0]), attend(sides[1])
    maps = _pair_maps(first, second)
    comparison = compare_maps(*maps, top=top)
    notes = tuple(dict.fromkeys((*first.provenance.notes, *second.provenance.notes)))
    for text in notes:
        notify(text)
    sizes = enumerate(comparison.divergences.ravel().tolist())
    changes = [(tables.head_name(comparison, place), size) for place, size in sizes]
    return _difference_data((first, second), maps, comparison, notes, top), changes


def _saved_maps(side: ComparedSide) -> Attention:
    if isinstance(side.content, InMemoryMaps):
        attention: Attention = side.content.maps[0]
        return attention
    name = str(side.content)
    maps = list(read_any(read_bytes(Path(name)), f"'{name}'"))
    if len(maps) != 1:
        raise InputError(
            f"'{name}' holds {len(maps)} texts, not one: "
            "save one with 'attnviz render FILE --record ID -o ONE.npz'"
        )
    return maps[0]


def _pair_maps(first: Attention, second: Attention) -> tuple[AttentionMap, AttentionMap]:
    """The main map of A and B's map of the same stream; the only ones, if each has one."""
    stream = first.main.stream
    same = [item for item in second.maps if item.stream == stream]
    if same:
        return first.main, same[0]
    if len(second.maps) == 1 or len(first.maps) == 1:
        return first.main, second.main
    raise UsageError(
        f"B has no stream '{stream}': it has {', '.join(item.stream for item in second.maps)}; "
        "choose one that both have with --stream"
    )


def _caption(attention: Attention, item: AttentionMap) -> str:
    text = attention.text or " / ".join(filter(None, (attention.source, attention.target)))
    which = [
        f"{what} {names[0]}"
        for what, names in (("layer", item.layers), ("head", item.heads))
        if len(names) == 1
    ]
    return " · ".join([describe_run(attention, item), *which, *([f"“{text}”"] if text else [])])


def _difference_data(
    results: tuple[Result, Result],
    maps: tuple[AttentionMap, AttentionMap],
    comparison: Comparison,
    notes: tuple[str, ...],
    top: int,
) -> Data:
    first, second = results
    captions = _caption(first, maps[0]), _caption(second, maps[1])
    under = f"A: {captions[0]}\nB: {captions[1]}"
    sides = tuple(zip(captions, (first.provenance, second.provenance), strict=True))

    def archive() -> bytes:
        """The difference as an attention, which can be drawn and saved as any other."""
        from attnviz.storage.archive import dump_archive

        provenance = replace(
            first.provenance,
            model="B − A",
            trained=None,
            notes=(f"A: {captions[0]}", f"B: {captions[1]}", *notes, *comparison.notes),
            steps=(*first.provenance.steps, "difference B − A"),
        )
        texts = first.text, first.source, first.target
        return dump_archive([Attention((comparison.map,), provenance, *texts, id=first.id)])

    return Data(
        text=lambda display: tables.comparison_table(comparison, captions, top, display),
        rows=lambda: tables.comparison_tsv(comparison),
        document=lambda: tables.comparison_json(comparison, sides),
        arrays=archive,
        figures={
            name: partial(
                draw_by,
                "attnviz.features.compare.head_pictures:draw_difference",
                comparison,
                name,
                under,
            )
            for name in ("heatmap", "grid")
        },
        value=comparison,
        notes=(*notes, *comparison.notes),
    )


def check_changes(differences: Sequence[Change], what: str, limit: float | None) -> None:
    """Fail where something differs by more than the limit, and name it."""
    over = [one for one in differences if limit is not None and one[1] > limit]
    if over:
        over.sort(key=lambda one: -one[1])
        names = ", ".join(f"{label} ({size:.3f})" for label, size in over[:MOST_NAMES])
        more = f" and {len(over) - MOST_NAMES} more" if len(over) > MOST_NAMES else ""
        raise AttnvizError(
            f"{len(over)} of {len(differences)} {what} differ by more than {limit:g} nats: "
            f"{names}{more}"
        )


def sample_files(folder: Path) -> dict[int, Path]:
    """The samples in a folder by step, in order."""
    matches = (re.fullmatch(r"step-(\d+)\.npz", path.name) for path in folder.iterdir())
    return dict(sorted((int(one[1]), folder / one[0]) for one in matches if one))


def read_sample(path: Path) -> Attention:
    """The maps of one sample; an InputError if the file holds something else."""
    maps = list(read_any(read_bytes(path), f"'{path}'"))
    if len(maps) != 1:
        raise InputError(f"'{path}' holds {len(maps)} texts: a sample is one")
    return maps[0]


@dataclass(frozen=True, slots=True)
class TrainingRun:
    """A folder of samples, which are read one by one as often as they are needed."""

    folder: Path
    choice: Choice

    def __post_init__(self) -> None:
        if not self.folder.is_dir():
            raise InputError(f"there is no folder '{self.folder}'")

    @property
    def name(self) -> str:
        """The folder's own name, as titles and streams show it."""
        return self.folder.resolve().name.replace(" · ", " ")

    def samples(self) -> Iterator[tuple[int, Attention]]:
        """Each step with its maps, in order."""
        for step, path in sample_files(self.folder).items():
            yield step, apply_choice(read_sample(path), self.choice)

    def history(self) -> History:
        """What its heads did.

        Raises:
            InputError: it holds no samples.
        """
        study = HistoryStudy()
        for step, sample in self.samples():
            study.add(step, sample)
        if study.last is None:
            raise InputError(f"'{self.folder}' holds no samples: they are named step-00000100.npz")
        return study.report()


def check_runs(
    sides: Sequence[object],
    options: Options,
    own: Sequence[Mapping[str, object]],
    of_runs: Mapping[str, object],
) -> bool:
    """Whether training runs are compared: folders of samples.

    `own` has the options of A, of B, of A, …; `of_runs` those that only runs have.

    Raises:
        UsageError: only one side is a run, or an option is for what the other kind of side is.
    """
    runs = [isinstance(one, str) and is_folder(one) for one in sides]
    if not any(runs):
        page = {"--html": options.output.html, "--open": options.output.open_page}
        if flags := [name for name, value in {**of_runs, **page}.items() if value]:
            raise UsageError(f"{flags[0]} is for a training run: give its folder of samples")
        return False
    if not all(runs):
        place = runs.index(False)
        raise UsageError(
            f"{'BA'[place]} is a folder of samples of a training run, and {'AB'[place]} is none"
        )
    if len(sides) > 1 and Path(str(sides[0])).samefile(str(sides[1])):
        raise UsageError("A and B are the same folder: give one of them, or another run")
    flags = [
        f"--{name}-{letter}"
        for letter, part in zip(cycle("ab"), own, strict=False)
        for name, value in part.items()
        if value is not None
    ]
    of_both = "stream", "layer", "head", "picture", "html", "open_page", "overwrite"
    flags += map_options(options, *of_both)
    flags += [
        item.metadata["option"].names[0]
        for item in fields(options.origin)
        if item.name != "top" and getattr(options.origin, item.name) != item.default
    ]
    if flags:
        raise UsageError(f"a training run is shown as its samples are: leave {flags[0]} out")
    check_choice(options.choice, rows=True)
    return True


def is_folder(name: str) -> bool:
    """Whether a text names a folder; it may be longer than a name can be."""
    return os.path.isdir(name)  # noqa: PTH112 - Path.is_dir() raises there


def training_history(folders: Sequence[str | Path], choice: Choice) -> tuple[Item, list[History]]:
    """How heads change over the samples in a folder, or in two beside each other.

    Raises:
        InputError: there is no such folder, or it holds no samples.
    """
    runs = [TrainingRun(Path(folder), choice) for folder in folders]
    by_run = {one: one.history() for one in runs}
    histories = list(by_run.values())
    names = [one.name if len({run.name for run in runs}) > 1 else str(one.folder) for one in runs]
    if len(by_run) > 1:
        histories = [replace(one, run=name) for name, one in zip(names, histories, strict=True)]
    for note in dict.fromkeys(
        note for one in histories for note in (*one.provenance.notes, *one.notes)
    ):
        notify(note)
    plot = partial(draw_by, "attnviz.features.compare.head_pictures:history_figure", *histories)
    figures = {"plot": plot, "gif": partial(_frames, histories[0], runs[0])}
    value = histories[0] if len(histories) == 1 else tuple(histories)
    data = data_of(
        value,
        history_table.history_table,
        history_table.history_tsv,
        history_table.history_json,
        figures=figures,
    )
    page = partial(_page, dict(zip(names, by_run.items(), strict=True)))
    return Item(data, NO_VIEWS, figures, page), histories


def last_drifts(history: History) -> list[Change]:
    """How far each head drifted between the last two samples, in nats."""
    names = [f"layer {layer} head {head}" for _, layer, head in history.heads]
    return list(zip(names, history.values[DRIFT][-1].tolist(), strict=True))


def _page(runs: Mapping[str, tuple[TrainingRun, History]], command: str) -> str:
    """A page whose streams are the steps, which it has a slider for, under maps of the measures."""
    maps, scores, panels = list[AttentionMap](), dict[Any, Any](), list[dict[str, Any]]()
    for name, (run, history) in runs.items():
        before, places = f"{name}: " if len(runs) > 1 else "", []
        for step, sample in run.samples():
            at = dict[tuple[str, str, str], tuple[int, int, int]]()
            for number, item in enumerate(sample.maps):
                same = [one.stream for one in sample.maps[:number]].count(item.stream)
                own = f"{item.stream} {same + 1}" if same else item.stream
                stream = f"{before}step {step}" + (f" · {own}" if sample.maps[1:] else "")
                for layer, head in np.ndindex(item.weights.shape[:2]):
                    names = item.layers[layer], item.heads[head]
                    at[_kind(own), *names] = len(maps), layer, head
                    scores[stream, *names] = sample.scores.get((item.stream, *names), {})
                maps.append(replace(item, stream=stream))
            places.append([at.get((_kind(head[0]), *head[1:])) for head in history.heads])
        panels.append(history_table.history_panel(history, name, places))
    last = next(iter(runs.values()))[1]
    document, blobs = page_data(Attention(tuple(maps), last.provenance, scores=scores), command)
    return assemble(document | {"history": panels}, blobs)


def _kind(stream: str) -> str:
    """A stream's name in every sample: sharp weights may seem causal for a while."""
    return re.sub(r"\bcausal\b", "self", stream)


def _frames(history: History, run: TrainingRun) -> Figure:
    """One head in each sample on one scale: the figure of the last one, with all as its frames."""
    most = int(np.nan_to_num(history.values[DRIFT]).sum(axis=0).argmax())
    _, layer, head = history.heads[most]
    maps = {
        step: item.part([layer], [head])
        for step, sample in run.samples()
        for item in sample.maps
        if layer in item.layers and head in item.heads
    }
    which = f"layer {layer} head {head}"
    if len(history.heads) > 1:
        which += f", which drifted most of {len(history.heads)}"
    frames = "attnviz.features.compare.head_pictures:head_frames"
    return draw_by(frames, maps, history.provenance.title, which)
