"""One run of `attnviz compare`: both attentions, their difference, and everything written once."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from attnviz.analyses.compare import compare_maps
from attnviz.analyses.view import describe_run
from attnviz.cli.options import CHOICE, ORIGIN, OUTPUT, Options, completing, with_options
from attnviz.cli.output import check_writable, different, note, write_file, write_text
from attnviz.cli.sinks import display_of_stdout
from attnviz.core.attention_map import Attention, AttentionMap
from attnviz.core.errors import AttnvizError, InputError, UsageError, choose
from attnviz.core.measures import Comparison
from attnviz.core.options import Choice, Origin
from attnviz.models.open import check_origin, open_source
from attnviz.renderers.text.comparison import comparison_json, comparison_table, comparison_tsv
from attnviz.runs.outputs import picture_suffix
from attnviz.runs.pipeline import Result, apply_choice, attend_one, check_choice
from attnviz.storage.texts import Text, check_text

SAVED = (".npz", ".json", ".jsonl", ".safetensors")
OUTPUTS = (".tsv", ".json", ".npz")
NAMED = 8


@dataclass(frozen=True, slots=True)
class Side:
    """A or B: a text with its model, or a saved map; and which part of it."""

    text: str
    origin: Origin
    choice: Choice

    @property
    def saved(self) -> bool:
        """True where the text is a saved map's name."""
        return Path(self.text).suffix.lower() in SAVED


@dataclass(frozen=True, slots=True)
class CompareRequest:
    """What is compared and where it goes.

    Attributes:
        sides: A and B.
        top: heads and links to name.
        format: what stdout gets.
        output: a data file.
        heatmap: a picture of the head that differs most.
        grid: a picture of every head.
        fail_above: the divergence in nats that no head may exceed.
        quiet: no notes.
    """

    sides: tuple[Side, Side]
    top: int
    format: str
    output: Path | None
    heatmap: Path | None
    grid: Path | None
    fail_above: float | None
    quiet: bool

    def check(self) -> None:
        """Find out before a model loads whether everything can be done and written.

        Raises:
            UsageError: A and B are one and the same, or a wrong suffix or choice.
            OutputError: a place that cannot be written.
        """
        if self.sides[0] == self.sides[1]:
            raise UsageError(
                "A and B are the same: give two texts or maps, --model-a and --model-b, "
                "or --head-a and --head-b"
            )
        for side in self.sides:
            check_choice(side.choice)
            if not side.saved:
                check_origin(side.origin, "self")
        if self.output is not None and self.output.suffix.lower() not in OUTPUTS:
            raise UsageError(f"-o '{self.output}' must end in {', '.join(OUTPUTS)}")
        for picture in (self.heatmap, self.grid):
            if picture is not None:
                picture_suffix(picture)
        paths = different(self.output, self.heatmap, self.grid)
        for path in paths:
            check_writable(path)


def run_comparison(asked: CompareRequest) -> int:
    """Compare A and B and write what was asked for; answers the exit status.

    Raises:
        AttnvizError: it cannot be done, or a head differs by more than is allowed.
    """
    asked.check()
    first, second = _attentions(asked.sides)
    maps = _matching(first, second)
    found = compare_maps(*maps, top=asked.top)
    captions = (_caption(first, maps[0]), _caption(second, maps[1]))
    if not asked.quiet:
        for text in dict.fromkeys((*first.provenance.notes, *second.provenance.notes)):
            note(text)
    difference = _as_attention(first, found, captions)
    sides = tuple(zip(captions, (first.provenance, second.provenance), strict=True))
    if asked.output is not None:
        write_file(asked.output, _data(asked.output, found, difference, sides))
    for picture, path in (("heatmap", asked.heatmap), ("grid", asked.grid)):
        if path is not None:
            write_file(path, _picture(found, captions, picture, path))
    if asked.format == "table":
        write_text(comparison_table(found, captions, asked.top, display_of_stdout(many=False)))
    elif asked.format == "tsv":
        write_text(comparison_tsv(found))
    elif asked.format == "json":
        write_text(comparison_json(found, sides))
    if asked.format != "table" and not asked.quiet:
        for text in found.notes:
            note(text)
    _judge(found, asked.fail_above)
    return 0


def _attentions(sides: tuple[Side, Side]) -> tuple[Result, Result]:
    """Both attentions; a model that both have is loaded once."""
    sources: dict[Origin, object] = {}

    def attention(side: Side) -> Result:
        if side.saved:
            return apply_choice(_saved(side.text), side.choice)
        text = check_text(side.text)
        source = sources.get(side.origin) or open_source(side.origin, "self")
        sources[side.origin] = source
        return attend_one(source, Text("0", text), side.choice, "self")  # type: ignore[arg-type]

    return attention(sides[0]), attention(sides[1])


def _saved(name: str) -> Attention:
    from attnviz.storage.matrices import read_bytes
    from attnviz.storage.saved import read_any

    found = list(read_any(read_bytes(Path(name)), f"'{name}'"))
    if len(found) != 1:
        raise InputError(
            f"'{name}' holds {len(found)} texts, not one: "
            "save one with 'attnviz render FILE --record ID -o ONE.npz'"
        )
    return found[0]


def _matching(first: Attention, second: Attention) -> tuple[AttentionMap, AttentionMap]:
    """The main map of A and B's of the same stream; where each has only one, those.

    Raises:
        UsageError: B lacks the stream.
    """
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


def _as_attention(first: Result, found: Comparison, captions: tuple[str, str]) -> Attention:
    """The difference as an attention of its own, which renders and saves like any other."""
    provenance = replace(
        first.provenance,
        model="B − A",
        trained=None,
        focus={},
        notes=(f"A: {captions[0]}", f"B: {captions[1]}", *first.provenance.notes, *found.notes),
        steps=(*first.provenance.steps, "difference B − A"),
    )
    return Attention((found.map,), provenance, first.text, first.source, first.target, id=first.id)


def _data(path: Path, found: Comparison, difference: Attention, sides: object) -> bytes:
    suffix = path.suffix.lower()
    if suffix == ".tsv":
        return comparison_tsv(found).encode()
    if suffix == ".json":
        return comparison_json(found, sides).encode()  # type: ignore[arg-type]
    from attnviz.storage.archive import dump_archive

    return dump_archive([difference])


def _picture(found: Comparison, captions: tuple[str, str], picture: str, path: Path) -> bytes:
    from attnviz.core.registry import PICTURES
    from attnviz.renderers.figures.figure import figure_bytes

    item, many = found.map, found.divergences.size > 1
    title = "B − A"
    if picture == "heatmap":
        layer, head = np.unravel_index(
            int(np.nanargmax(np.nan_to_num(found.divergences, nan=-1.0))), found.divergences.shape
        )
        title += f" · layer {item.layers[layer]} head {item.heads[head]}"
        title += f", which differs most of {found.divergences.size}" if many else ""
        item = item.with_weights(
            item.weights[layer : layer + 1, :, :, :][:, head : head + 1],
            layers=(item.layers[layer],),
            heads=(item.heads[head],),
        )
    figure = PICTURES[picture].load()(
        item, title=title, subtitle=f"A: {captions[0]}; B: {captions[1]}"
    )
    return figure_bytes(figure, picture_suffix(path))


def _judge(found: Comparison, limit: float | None) -> None:
    """Refuse a divergence above the limit.

    Raises:
        AttnvizError: it names the heads, the worst first.
    """
    if limit is None:
        return
    values = found.divergences.ravel()
    over = [
        place for place in np.argsort(-np.nan_to_num(values, nan=-1.0)) if values[place] > limit
    ]
    if not over:
        return
    named = []
    for place in over[:NAMED]:
        (layer, head), other = found.heads[place]
        became = "" if other == (layer, head) else f" → layer {other[0]} head {other[1]}"
        named.append(f"layer {layer} head {head}{became} ({values[place]:.3f})")
    more = f" and {len(over) - NAMED} more" if len(over) > NAMED else ""
    raise AttnvizError(
        f"{len(over)} of {values.size} heads differ by more than {limit:g} nats: "
        f"{', '.join(named)}{more}"
    )


# <compare> attnviz compare.

FORMATS = ("table", "tsv", "json", "none")


def _side(panel: str, name: str, metavar: str, text: str) -> Any:
    return typer.Option(name, metavar=metavar, rich_help_panel=panel, help=text)


@with_options(
    without=(
        *("to", "weights", "labels", "format", "output", "heatmap", "grid", "links", "top"),
        *("html", "open_page", "keep_qk", "verbose", "rows", "window"),
    )
)
def compare(
    a: Annotated[str, typer.Argument(help="Text, or a saved map: .npz, .json, .safetensors.")],
    b: Annotated[
        str | None, typer.Argument(help="The other; without it the same text or map.")
    ] = None,
    model_a: Annotated[
        str | None, _side(ORIGIN, "--model-a", "ID_OR_FOLDER", "Model of A, instead of --model.")
    ] = None,
    model_b: Annotated[
        str | None, _side(ORIGIN, "--model-b", "ID_OR_FOLDER", "Model of B, instead of --model.")
    ] = None,
    revision_a: Annotated[
        str | None, _side(ORIGIN, "--revision-a", "NAME", "Revision of A's model.")
    ] = None,
    revision_b: Annotated[
        str | None, _side(ORIGIN, "--revision-b", "NAME", "Revision of B's model.")
    ] = None,
    layer_a: Annotated[
        str | None, _side(CHOICE, "--layer-a", "WHICH", "Layers of A, instead of --layer.")
    ] = None,
    layer_b: Annotated[
        str | None, _side(CHOICE, "--layer-b", "WHICH", "Layers of B, instead of --layer.")
    ] = None,
    head_a: Annotated[
        str | None, _side(CHOICE, "--head-a", "WHICH", "Heads of A, instead of --head.")
    ] = None,
    head_b: Annotated[
        str | None, _side(CHOICE, "--head-b", "WHICH", "Heads of B, instead of --head.")
    ] = None,
    top: Annotated[
        int,
        typer.Option(
            "--top", metavar="N", min=1, rich_help_panel=OUTPUT, help="Heads and links to name."
        ),
    ] = 10,
    format_name: Annotated[
        str,
        typer.Option(
            "--format",
            "-f",
            metavar="NAME",
            rich_help_panel=OUTPUT,
            help=f"What stdout gets: {', '.join(FORMATS)}.",
            autocompletion=completing(FORMATS),
        ),
    ] = "table",
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            rich_help_panel=OUTPUT,
            help="Data file: .tsv or .json; .npz keeps B − A as a map for 'attnviz render'.",
        ),
    ] = None,
    heatmap: Annotated[
        Path | None,
        typer.Option(
            "--heatmap",
            metavar="FILE",
            rich_help_panel=OUTPUT,
            help="B − A in the head that differs most: .png, .svg or .pdf.",
        ),
    ] = None,
    grid: Annotated[
        Path | None,
        typer.Option("--grid", metavar="FILE", rich_help_panel=OUTPUT, help="B − A in every head."),
    ] = None,
    fail_above: Annotated[
        float | None,
        typer.Option(
            "--fail-above",
            metavar="NATS",
            min=0,
            rich_help_panel=OUTPUT,
            help="Exit with 1 if a head's divergence is larger (0: none, 0.693: all).",
        ),
    ] = None,
    *,
    options: Options,
) -> None:
    """Show what changed between two attentions: of texts, models, heads or saved maps.

    attnviz compare "The cat sat on the mat" "The dog sat on the mat"

    attnviz compare "The cat sat" --model-a ./step-1000 --model-b ./step-2000 --fail-above 0.05

    attnviz compare before.npz after.npz --heatmap change.png
    """
    choose(format_name, FORMATS, "format")

    def side(text: str, model: str | None, revision: str | None, *which: str | None) -> Side:
        origin = replace(
            options.origin,
            model=model or options.origin.model,
            revision=revision or options.origin.revision,
        )
        layer, head = which
        choice = replace(
            options.choice,
            layer=layer or options.choice.layer,
            head=head or options.choice.head,
        )
        return Side(text, origin, choice)

    sides = (
        side(a, model_a, revision_a, layer_a, head_a),
        side(a if b is None else b, model_b, revision_b, layer_b, head_b),
    )
    asked = CompareRequest(
        sides, top, format_name, output, heatmap, grid, fail_above, options.output.quiet
    )
    raise typer.Exit(run_comparison(asked))
