"""attnviz compare: both attentions, their difference, and everything written once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from attnviz.analyses.compare import compare_effects, compare_maps
from attnviz.analyses.view import describe_run
from attnviz.cli.options import CHOICE, ORIGIN, OUTPUT, with_options
from attnviz.cli.report import Report
from attnviz.cli.sinks import data_of
from attnviz.core.attention_map import Attention, AttentionMap
from attnviz.core.effects import SavedEffects
from attnviz.core.errors import AttnvizError, InputError, UsageError
from attnviz.core.measures import Comparison
from attnviz.core.options import Choice, Given, Options, Origin, Width, map_options, opt
from attnviz.models.open import check_origin, open_source
from attnviz.renderers.reports import Data
from attnviz.renderers.text.comparison import (
    comparison_json,
    comparison_table,
    comparison_tsv,
    effects_json,
    effects_table,
    effects_tsv,
    head_name,
)
from attnviz.runs.pipeline import Result, apply_choice, attend_one, check_choice
from attnviz.storage.texts import Text, check_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SAVED = (".npz", ".json", ".jsonl", ".safetensors")
NAMED = 8


@dataclass(frozen=True, slots=True)
class ComparedSide:
    """A or B: a text with its model, or a saved map; and which part of it."""

    text: str
    origin: Origin
    choice: Choice

    @property
    def saved(self) -> bool:
        """True where the text is a saved map's name."""
        return isinstance(self.text, Given) or Path(self.text).suffix.lower() in SAVED


@with_options(
    *("model", "compute", "mechanism", "causal", "generate", "chat", "long"),
    *("lens", "explain", "stream", "heads", "reduce", "special", "group", "pictures"),
    writes="comparison",
)
def compare(
    a: Annotated[
        str,
        typer.Argument(
            help="A text, a saved map (.npz, .json, .safetensors), or saved effects (.npz, .json)."
        ),
    ],
    b: Annotated[
        str | None,
        typer.Argument(help="The other side; default: A with other options."),
    ] = None,
    model_a: str | None = opt(ORIGIN, "--model-a ID_OR_FOLDER", "Model of A, instead of --model."),
    model_b: str | None = opt(ORIGIN, "--model-b ID_OR_FOLDER", "Model of B, instead of --model."),
    revision_a: str | None = opt(ORIGIN, "--revision-a NAME", "Revision of A's model.", rare=True),
    revision_b: str | None = opt(ORIGIN, "--revision-b NAME", "Revision of B's model.", rare=True),
    adapter_a: str | None = opt(
        ORIGIN, "--adapter-a ID_OR_FOLDER", "Adapter of A's model.", rare=True
    ),
    adapter_b: str | None = opt(
        ORIGIN, "--adapter-b ID_OR_FOLDER", "Adapter of B's model.", rare=True
    ),
    layer_a: str | None = opt(
        CHOICE, "--layer-a WHICH", "Layers of A, instead of --layer.", rare=True
    ),
    layer_b: str | None = opt(
        CHOICE, "--layer-b WHICH", "Layers of B, instead of --layer.", rare=True
    ),
    head_a: str | None = opt(CHOICE, "--head-a WHICH", "Heads of A, instead of --head.", rare=True),
    head_b: str | None = opt(CHOICE, "--head-b WHICH", "Heads of B, instead of --head.", rare=True),
    top: int = opt(OUTPUT, "--top N", "How many heads and links to name.", default=10, min=1),
    fail_above: float | None = opt(
        OUTPUT,
        "--fail-above NATS",
        "Exit with 1 if a head's divergence (0: none, 0.693: all) or an effect's change is larger.",
        min=0,
    ),
    *,
    options: Options,
) -> None:
    """Show what changed between two attentions or two ablations.

    A and B may be two texts, models, heads or saved maps, or two files of `attnviz ablate`.

    attnviz compare "The cat sat on the mat" "The dog sat on the mat"

    attnviz compare "The cat sat" --model-a ./step-1000 --model-b ./step-2000 --fail-above 0.05

    attnviz compare before.npz after.npz --heatmap change.png
    """

    def side(text: str, own: dict[str, Any], layer: str | None, head: str | None) -> ComparedSide:
        shared, part = options.origin, options.choice
        origin = replace(shared, **{name: one for name, one in own.items() if one is not None})
        choice = replace(part, layer=layer or part.layer, head=head or part.head)
        return ComparedSide(text, origin, choice)

    of_a = {"model": model_a, "revision": revision_a, "adapter": adapter_a}
    of_b = {"model": model_b, "revision": revision_b, "adapter": adapter_b}
    sides = (side(a, of_a, layer_a, head_a), side(a if b is None else b, of_b, layer_b, head_b))
    check_sides(sides)
    saved = _saved_effects(sides, options)
    if saved is not None:
        change = compare_effects(*saved)
        with Report(options, "changes") as report:
            report.add(data_of(change, effects_table, effects_tsv, effects_json, top))
            report.finish("compared")
        both = ((one, other) for one, other in change.pairs if one and other)
        changes = [(one.label, abs(other.effect - one.effect)) for one, other in both]
        judge(changes, "effects", fail_above)
        return
    with Report(options, "comparison") as report:
        first, second = _attentions(sides)
        maps = _matching(first, second)
        found = compare_maps(*maps, top=top)
        for text in _notes(first, second):
            report.say(text)
        if report.format != "table":
            for text in found.notes:
                report.say(text)
        report.add(_data(first, second, maps, found, top, options.output.width))
        report.finish("compared")
    sizes = enumerate(found.divergences.ravel().tolist())
    judge([(head_name(found, place), size) for place, size in sizes], "heads", fail_above)


def check_sides(sides: tuple[ComparedSide, ComparedSide]) -> None:
    """Find out before a model loads whether A and B can be compared."""
    if sides[0] == sides[1]:
        raise UsageError(
            "A and B are the same: give two texts or maps, --model-a and --model-b, "
            "or --head-a and --head-b"
        )
    for side in sides:
        check_choice(side.choice)
        if not side.saved:
            check_origin(side.origin, "self")


def _attentions(sides: tuple[ComparedSide, ComparedSide]) -> tuple[Result, Result]:
    load = cache(open_source)

    def attention(side: ComparedSide) -> Result:
        if side.saved:
            return apply_choice(_saved(side.text), side.choice)
        text = Text("0", check_text(side.text))
        return attend_one(load(side.origin, "self"), text, side.choice, "self")

    return attention(sides[0]), attention(sides[1])


def _saved_effects(
    sides: tuple[ComparedSide, ComparedSide], options: Options
) -> tuple[SavedEffects, SavedEffects] | None:
    """The effects of two saved ablations; None where neither side is one."""
    from attnviz.storage.matrices import read_bytes
    from attnviz.storage.saved_maps import read_effects

    def effects(side: ComparedSide) -> SavedEffects | None:
        if isinstance(side.text, Given):  # a result, or the document of an ablation
            (given,) = side.text.things
            return read_effects(given, side.text) if isinstance(given, bytes) else None
        return read_effects(read_bytes(Path(side.text)), f"'{side.text}'") if side.saved else None

    first, second = map(effects, sides)
    if first is None and second is None:
        return None
    if first is None or second is None:
        names = ("A holds effects of an ablation, and B", "B holds effects of an ablation, and A")
        raise UsageError(f"{names[first is None]} does not: give two files of 'attnviz ablate'")
    for side in sides:
        if given := map_options(replace(options, choice=side.choice)):
            raise UsageError(
                f"'{side.text}' holds effects, which are compared as they were saved: leave "
                f"{given[0]} out"
            )
    return first, second


def judge(differences: Sequence[tuple[str, float]], what: str, limit: float | None) -> None:
    """Fail where something differs by more than the limit, and name it."""
    over = [one for one in differences if limit is not None and one[1] > limit]
    if over:
        over.sort(key=lambda one: -one[1])
        named = ", ".join(f"{label} ({size:.3f})" for label, size in over[:NAMED])
        more = f" and {len(over) - NAMED} more" if len(over) > NAMED else ""
        raise AttnvizError(
            f"{len(over)} of {len(differences)} {what} differ by more than {limit:g} nats: "
            f"{named}{more}"
        )


def _saved(name: str) -> Attention:
    from attnviz.storage.matrices import read_bytes
    from attnviz.storage.saved_maps import read_any

    if isinstance(name, Given):
        attention: Attention = name.things[0]
        return attention
    found = list(read_any(read_bytes(Path(name)), f"'{name}'"))
    if len(found) != 1:
        raise InputError(
            f"'{name}' holds {len(found)} texts, not one: "
            "save one with 'attnviz render FILE --record ID -o ONE.npz'"
        )
    return found[0]


def _matching(first: Attention, second: Attention) -> tuple[AttentionMap, AttentionMap]:
    """The main map of A and B's of the same stream; where each has only one, those."""
    wanted = first.main.stream
    same = [item for item in second.maps if item.stream == wanted]
    if same:
        return first.main, same[0]
    if len(second.maps) == 1 or len(first.maps) == 1:
        return first.main, second.main
    raise UsageError(
        f"B has no stream '{wanted}': it has {', '.join(item.stream for item in second.maps)}; "
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


def _notes(first: Result, second: Result) -> tuple[str, ...]:
    """What a reader must know of either side, each once."""
    return tuple(dict.fromkeys((*first.provenance.notes, *second.provenance.notes)))


def _as_attention(
    first: Result, found: Comparison, captions: tuple[str, str], notes: tuple[str, ...]
) -> Attention:
    """The difference as an attention of its own, which renders and saves like any other."""
    provenance = replace(
        first.provenance,
        model="B − A",
        trained=None,
        notes=(f"A: {captions[0]}", f"B: {captions[1]}", *notes, *found.notes),
        steps=(*first.provenance.steps, "difference B − A"),
    )
    return Attention((found.map,), provenance, first.text, first.source, first.target, id=first.id)


def _data(
    first: Result,
    second: Result,
    maps: tuple[AttentionMap, AttentionMap],
    found: Comparison,
    top: int,
    width: Width | None,
) -> Data:
    captions, notes = (_caption(first, maps[0]), _caption(second, maps[1])), _notes(first, second)
    under = "\n".join((f"A: {captions[0]}; B: {captions[1]}", *notes, *found.notes))
    sides = tuple(zip(captions, (first.provenance, second.provenance), strict=True))

    def archive() -> bytes:
        from attnviz.storage.archive import dump_archive

        return dump_archive([_as_attention(first, found, captions, notes)])

    return Data(
        text=lambda display: comparison_table(found, captions, top, display),
        rows=lambda: comparison_tsv(found),
        document=lambda: comparison_json(found, sides),
        arrays=archive,
        figures={
            name: partial(_picture, found, under, name, width) for name in ("heatmap", "grid")
        },
        value=found,
    )


def _picture(found: Comparison, subtitle: str, picture: str, width: Width | None) -> Figure:
    from attnviz.core.registry import PICTURES
    from attnviz.renderers.figures.figure import fit_width

    item, title = found.map, "B − A"
    if picture == "heatmap":
        layer, head = np.unravel_index(
            int(np.nanargmax(np.nan_to_num(found.divergences, nan=-1.0))), found.divergences.shape
        )
        title += f" · layer {item.layers[layer]} head {item.heads[head]}"
        if found.divergences.size > 1:
            title += f", which differs most of {found.divergences.size}"
        item = item.with_weights(
            item.weights[layer : layer + 1, head : head + 1],
            layers=(item.layers[layer],),
            heads=(item.heads[head],),
        )
    return fit_width(PICTURES[picture].load(), item, width, title=title, subtitle=subtitle)
