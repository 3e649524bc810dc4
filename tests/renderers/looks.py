"""Samples of every picture and table, and what is drawn of them as lines of text."""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.collections import LineCollection, QuadMesh
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.text import Text

from attnviz.core.attention_map import IMPLIED, Attention, Provenance, Token
from attnviz.core.effects import Effect, HeadAt, SavedEffects
from attnviz.core.measures import Role
from attnviz.features.ablate import table as ablation_table
from attnviz.features.ablate.picture import effect_bars, effect_grid, effect_words
from attnviz.features.ablate.report import AblationReport, LensReport, LensRow, Prediction
from attnviz.features.atlas.picture import corpus_overview
from attnviz.features.compare import history_table
from attnviz.features.compare import table as comparison
from attnviz.features.compare.differences import compare_effects, compare_maps
from attnviz.features.compare.head_pictures import history_figure
from attnviz.features.compare.report import HISTORY, History
from attnviz.features.corpus.results import PruneCurve
from attnviz.features.corpus.rows import SHOWS, corpus_json, corpus_tsv
from attnviz.features.corpus.table import corpus_table
from attnviz.features.grid.picture import grid, panels
from attnviz.features.heads import table as head_tables
from attnviz.features.heads.picture import head_overview, head_plane
from attnviz.features.image.overlay import (
    Overlaying,
    PictureCrop,
    contact_sheet,
    overlay,
    overlay_grid,
)
from attnviz.features.lines.picture import lines
from attnviz.features.pruning.picture import prune_curve
from attnviz.features.terminal.heatmap import TerminalGrid, TerminalHeatmap
from attnviz.features.treebank.table import treebank_table
from attnviz.renderers import Display
from attnviz.renderers.figures.heatmap import heatmap
from attnviz.renderers.page import Patches, page_parts
from attnviz.renderers.text.link_list import LinksRenderer
from attnviz.renderers.text.table import TableRenderer
from attnviz.runs.outputs import views_of
from tests.features.treebank.test_table import REPORT
from tests.renderers.corpus import corpus
from tests.renderers.heads import report, row, similarity
from tests.renderers.page.samples import (
    WORDS,
    encoder,
    pair,
    picture,
    previous_token,
    random_map,
    with_projections,
)
from tests.renderers.pictures import fitted, map_of, shares, tokens
from tests.samples import attention_of, effects, effects_map, self_map, weights_of

PROVENANCE = Provenance("file", "sample")
T = {"title": "a model", "subtitle": "rows attend to columns"}
ROW = (Token("[CLS]", special=True), Token("Merkel", label="B-PER"), Token("ran"), Token("far"))
LONG = tuple(Token(f"word{i}", label="B" if i in (7, 40) else None) for i in range(120))
GREY = PictureCrop(np.full((40, 60, 3), 128, np.uint8), (0, 1, 2, 2))


NATS = (0.5, -1.2, 0.0, np.nan, 2.4, 0.01)


def effect(kind: str, place: dict[str, Any], nats: float, **fields: Any) -> Effect:
    label = " ".join(map(str, (kind, *place.values())))
    return Effect(label, kind, place, nats, **fields)


def ablation(texts: int = 1) -> AblationReport:
    """Effects of every kind; of several texts with intervals and fewer texts for one."""
    heads = [
        effect("head", {"stream": stream, "layer": str(layer), "head": head}, nats)
        for stream in ("encoder", "cross")
        for (layer, head), nats in zip(np.ndindex(2, 3), NATS, strict=True)
    ]
    words = [
        effect("token", {"side": "text", "position": place}, nats)
        for place, nats in enumerate((0.31, -0.62, np.nan, 1.4))
    ]
    every = [*heads, *words]
    if texts > 1:
        every = [
            replace(one, interval=(one.effect - 0.2, one.effect + 0.3), texts=texts)
            for one in every
        ]
        every[0] = replace(every[0], texts=1)
    together = effect("together", {}, 3.0, texts=texts)
    first = Prediction("rouge", 2, -0.2, -1.4, (("rouge", 0.8), ("vert", 0.1)), (("vert", 0.6),))
    said = (first, replace(first, name="est", position=None, after=-0.21))
    maps = attention_of(self_map(["the", "cat", "sat", "猫"]), text="the cat sat 猫")
    return AblationReport(
        "ablate · made up",
        "zero",
        tuple(every),
        together,
        said if texts == 1 else (),
        ("La voiture", "Le train") if texts == 1 else None,
        texts,
        ("a note",),
        maps,
    )


def history(streams: tuple[str, ...]) -> History:
    heads = tuple(
        (s, f"body.{layer}.attend", str(h)) for s in streams for layer, h in np.ndindex(2, 2)
    )
    random = np.random.default_rng(0).random((len(HISTORY), 3, len(heads)))
    values = dict(zip(HISTORY, random, strict=True))
    values["drift"][0] = values["entropy"][:2, 1] = np.nan
    roles = tuple(("induction", "") * (len(heads) // 2) for _ in range(2))
    roles = (*roles, ("self", "induction") * (len(heads) // 2))
    even, most = (0.2,) * len(heads), (1.6,) * len(heads)
    about = PROVENANCE, ("a note",), even, most
    return History("made up", (0, 100, 400), heads, roles, values, *about)


def lens_report(texts: int) -> LensReport:
    numbers = (0.81, 0.2, 1.3, 2.04, 12.5, 0.1, -0.05)
    rows = [
        LensRow(name, tuple(x * sign for x in numbers), *ends, texts)
        for name, sign, ends in (
            ("raw", 1, [(0.1,) * 7, (0.9,) * 7]),
            ("random", -1, [(np.nan,) * 7] * 2),
        )
    ]
    rows.append(LensRow("grad", (np.nan,) * 7, (np.nan,) * 7, (np.nan,) * 7, 0, "no gradient"))
    return LensReport("made up", tuple(rows), "raw can be trusted", "a rule", texts, (), PROVENANCE)


def curve() -> PruneCurve:
    heads = tuple(HeadAt("cross", "0", head) for head in range(4))
    losses = np.array([[1, 1.05, 1.5, 2, 5], [1, 1, 2, 3, 5], [1, 2, 3, 4, 5], [1, 3, 4, 4.5, 5]])
    names = ("effect", "confidence", "chance", "chance")
    return PruneCurve("made up", names, (heads,) * 4, (0, 1, 2, 3, 4), losses, "5 texts", "about")


def heads_of(layers: int, heads: int) -> list[Any]:
    return [row(*at, 0.9 if at == (0, 1) else 0.2) for at in np.ndindex(layers, heads)]


def with_roles() -> Any:
    """A corpus whose heads have a role, or two alike, or none."""
    (stream,) = corpus().streams
    roles = (Role("induction", 0.81, 0.1), Role("self", 0.7, 0.2), Role("self", 0.6, 0.2), None)
    rows = [replace(one, roles=(role,) if role else ())
            for one, role in zip(stream.rows, roles, strict=True)]  # fmt: skip
    return replace(corpus(), streams=(replace(stream, rows=tuple(rows)),))


def signed_map() -> Any:
    item = effects_map()
    return item.with_weights(item.weights[:1, 1:2], layers=("0",), heads=("1",))


def lens_panels() -> list[Any]:
    words = ["the", "cat", "sat", "on", "a", "mat"]
    first, second = (replace(self_map(words, seed=n), stream=f"lens {n}") for n in range(2))
    below = first.with_weights(
        np.full((1, 1, 1, 4), 0.25, np.float32),
        query_tokens=(Token("→ mat"),),
        key_tokens=first.key_tokens[:4],
        query_side="output",
    )
    third = first.with_weights(first.weights - 0.3, values="signed", unit="nats")
    return [first, second, replace(third, stream="signed"), replace(below, stream="one output")]


def sheet(columns: list[str]) -> Figure:
    parts = [(GREY, shares(2, 2)), (PictureCrop(np.zeros((60, 20, 3), np.uint8)), shares(3, 1))]
    tiles = [parts[: len(columns)]] * 6
    return contact_sheet(tiles, ["a", "b", "c", "d", "e", "f" * 60], columns, unit="share", **T)


GRID = {"layers": ("0", "5"), "heads": ("0", "1", "2"), "unit": "share", **T}
ROWS = [row(place // 12, place % 12, 0.9 if place % 3 else 0.1) for place in range(20)]
FIGURES: dict[str, Callable[[], Figure]] = {
    "corpus": lambda: corpus_overview(with_roles()),
    "effect-bars": lambda: effect_bars(ablation(4)),
    "effect-grid": lambda: effect_grid(ablation()),
    "effect-words": lambda: effect_words(ablation()),
    "grid": lambda: grid(map_of(shares(2, 3, 5, 9)), **T),
    "grid-layers": lambda: grid(map_of(shares(80, 17, 8, 8)), **T),
    "grid-narrow": lambda: grid(
        map_of(shares(3, 20, 30, 2), layers=("encoder.layers.0.self_attention", "b", "c")), **T
    ),
    "grid-pooled": lambda: fitted(grid, map_of(shares(2, 2, 400, 500)), "single", **T),
    "head-history": lambda: history_figure(history(("self",))),
    "head-history-streams": lambda: history_figure(history(("self", "cross"))),
    "head-overview": lambda: head_overview(report(*heads_of(2, 3))),
    "head-overview-many": lambda: head_overview(report(*heads_of(12, 40))),
    "head-plane": lambda: head_plane(similarity(20), ROWS),
    "heatmap": lambda: heatmap(map_of(shares(4, 4), ROW, ROW), second_part=(1, 2), **T),
    "heatmap-above": lambda: heatmap(map_of(shares(3, 30)), above=shares(8, 30), **T),
    "heatmap-long": lambda: heatmap(map_of(shares(120, 60), LONG, LONG[:60]), **T),
    "heatmap-pooled": lambda: heatmap(map_of(shares(1600, 900)), **T),
    "heatmap-signed": lambda: fitted(heatmap, signed_map(), "double", **T),
    "lines": lambda: lines(map_of(shares(4, 5), ROW, tokens(5)), **T),
    "lines-eight": lambda: lines(map_of(shares(1, 8, 3, 3)), **T),
    "lines-heads": lambda: lines(map_of(shares(2, 3, 4, 4), ROW, ROW), **T),
    "lines-long": lambda: fitted(
        lines,
        replace(
            map_of(shares(200, 60) - 0.02, tokens(200), LONG[:60], values="signed"), stream=IMPLIED
        ),
        "double",
        **T,
    ),
    "overlay": lambda: overlay(GREY, shares(2, 2), unit="share", **T),
    "overlay-grid": lambda: overlay_grid(GREY, weights_of((2, 3, 2, 2)), **GRID),
    "overlay-shared": lambda: overlay_grid(
        replace(GREY, blank=True),
        weights_of((2, 3, 2, 2), signed=True),
        values="signed",
        how=Overlaying("shared", smooth=True),
        columns="block",
        **GRID,
    ),
    "panels": lambda: panels(lens_panels(), notes=["a note"], **T),
    "prune-curve": lambda: prune_curve(curve()),
    "prune-curve-low": lambda: prune_curve(replace(curve(), losses=curve().losses * 0.55)),
    "sheet": lambda: sheet([""]),
    "sheet-rows": lambda: sheet(["tiles", "whole"]),
}


def map_text(renderer: Any, found: Attention, **display: Any) -> str:
    drawn = renderer(Display(**display))
    return str(drawn.add(found, views_of(found)) + drawn.finish())


def compared(show: Display) -> str:
    one, other = (
        attention_of(self_map(["the", "cat", "the", "猫"], 2, 2, seed)) for seed in (0, 1)
    )
    captions = ("one · sample", "other · sample")
    return comparison.comparison_table(compare_maps(one.main, other.main, top=5), captions, 3, show)


def compared_effects() -> Any:
    one, other = ablation(), ablation()
    changed = [replace(e, effect=e.effect * 2) for e in other.effects[1:]]
    first = SavedEffects("A", "zero", one.effects, PROVENANCE)
    link = effect("link", {"query": 1}, 0.2)
    return compare_effects(first, SavedEffects("B", "", (*changed, link), PROVENANCE))


MASKS = report(
    *(row(at, 0, 0.9, stream=s, even=at / 9) for s in ("self", "cross") for at in range(3))
)
SIGNED = attention_of(signed_map())
SIGNED_ROWS = map_of(weights_of((1, 1, 3, 30), signed=True), values="signed")
TABLES: dict[str, Callable[[Display], str]] = {
    "ablation": lambda show: ablation_table.ablation_table(ablation(), 6, show),
    "ablation-texts": lambda show: ablation_table.ablation_table(ablation(4), 20, show),
    "comparison": compared,
    "comparison-effects": lambda show: comparison.effects_table(compared_effects(), 4, show),
    **{
        f"corpus-{name}": lambda show, name=name: corpus_table(corpus(), name, show)
        for name in SHOWS
    },
    "heads": lambda show: head_tables.measures_table(report(sinks="a sink"), show),
    "heads-streams": lambda show: head_tables.measures_table(MASKS, show, keep="offset"),
    "history": lambda show: history_table.history_table(history(("self",)), show),
    "history-streams": lambda show: history_table.history_table(history(("self", "x")), show),
    "lenses": lambda show: ablation_table.lenses_table(lens_report(3), show),
    "lenses-one": lambda show: ablation_table.lenses_table(lens_report(1), show),
    "similarity": lambda show: head_tables.similarity_table(similarity(20), show),
    "treebank": lambda show: treebank_table(REPORT, show),
}
MAPS: dict[str, tuple[Any, Attention]] = {
    "effects": (TableRenderer, effects()),
    "words": (TableRenderer, attention_of(map_of(shares(2, 3, 4, 4), ROW, ROW))),
    "pieces": (TableRenderer, attention_of(map_of(shares(1, 2, 4, 18)))),
    "strongest": (TableRenderer, attention_of(map_of(shares(9, 150)))),
    "signed": (TableRenderer, SIGNED),
    "signed-shades": (TableRenderer, attention_of(SIGNED_ROWS)),
    "heatmap": (TerminalHeatmap, attention_of(map_of(shares(7, 90), tokens(7)))),
    "heatmap-signed": (TerminalHeatmap, SIGNED),
    "grid": (TerminalGrid, attention_of(map_of(shares(3, 12, 60, 30)))),
    "grid-signed": (TerminalGrid, effects()),
    "links": (LinksRenderer, attention_of(self_map(["the", "cat", "the"], 2, 2))),
}


FLAT = re.compile(r"[\[{][^\[\]{}]+[\]}]")
"""A list or a mapping with nothing inside that is one, which stands in a line."""


def page_text(found: Attention, **parts: Any) -> str:
    """A page's document without colours, with the names of its packed numbers."""
    document, blobs = page_parts(found, **parts)
    document = {name: x for name, x in document.items() if name not in ("schemes", "head_colors")}
    text = json.dumps([document, sorted(blobs)], ensure_ascii=False, indent=1)
    return FLAT.sub(lambda found: re.sub(r"\n *", " ", found[0]), text)


DATA: dict[str, Callable[[], str]] = {
    "ablation.tsv": lambda: ablation_table.ablation_tsv(ablation(4)),
    "comparison-effects.tsv": lambda: comparison.effects_tsv(compared_effects()),
    "comparison-effects.json": lambda: comparison.effects_json(compared_effects()),
    "prune curve": lambda: corpus_json(replace(corpus(3), curve=curve(), streams=())),
    "heads.tsv": lambda: head_tables.measures_tsv(report()),
    "heads.json": lambda: head_tables.measures_json(report()),
    "history.tsv": lambda: history_table.history_tsv(history(("self",))),
    "history.json": lambda: history_table.history_json(history(("self",))),
    "lenses.tsv": lambda: ablation_table.lenses_tsv(lens_report(3)),
    "lenses.json": lambda: ablation_table.lenses_json(lens_report(3)),
    "page encoder": lambda: page_text(
        encoder(),
        measures={0: [previous_token(encoder())]},
        words={0: (WORDS, WORDS)},
        command="attnviz x",
    ),
    "page pair": lambda: page_text(pair()),
    "page pooled": lambda: page_text(random_map(1, 2, 100), most_weights=5000),
    "page query-key": lambda: page_text(
        with_projections()[0], projections={0: with_projections()[1]}, title="a title"
    ),
    "page effects": lambda: page_text(replace(effects(), measured=effects().measured * 11)),
    "page patches": lambda: page_text(picture()[0], patches={0: Patches(b"RIFF", 2, 2, 1)}),
    "similarity.tsv": lambda: head_tables.similarity_tsv(similarity()),
    **{f"corpus-{name}.tsv": lambda name=name: corpus_tsv(corpus(3), name) for name in SHOWS},
}


def texts() -> Iterator[tuple[str, str]]:
    """Every table at two widths without colours and once with them; every map; all data."""
    for name, table in TABLES.items():
        for display in (Display(100), Display(44), Display(70, "truecolor", rows=9)):
            yield f"{name} {display.width}", table(display)
    for name, (renderer, found) in MAPS.items():
        colored = ("truecolor",) if renderer is TableRenderer else ("truecolor", "256", "standard")
        for width in (100, 48):
            yield f"{name} {width}", map_text(renderer, found, width=width)
        for colors in colored if name != "grid" else ():
            yield f"{name} {colors}", map_text(renderer, found, width=72, colors=colors)
        yield f"{name} rows", map_text(renderer, found, width=60, rows=3, many=True)
    for name, data in DATA.items():
        yield name, data()


def describe(figure: Figure) -> Iterator[str]:
    """A line for each artist of a figure: where it is, in pixels, and how it looks."""
    yield f"size {_numbers(figure.bbox.size)}"
    yield from map(_text, figure.texts)
    for axes in figure.axes:
        yield f"axes {axes.get_label()!r} {_numbers(axes.bbox.extents)}"
        yield f"limits {_numbers([*axes.get_xlim(), *axes.get_ylim()])}"
        for axis, ticks in (("x", axes.get_xticklabels()), ("y", axes.get_yticklabels())):
            named = [*ticks, getattr(axes, f"{axis}axis").label]
            yield from (f"{axis} {_text(text)}" for text in named if text.get_text())
        if legend := axes.get_legend():
            yield from map(_text, legend.get_texts())
        for artist in axes.get_children():
            yield from _artist(artist)


def _artist(artist: Artist) -> Iterator[str]:
    label = str(artist.get_label())
    name = f"{type(artist).__name__} {'' if label.startswith('_') else label}"
    if isinstance(artist, Text):
        if artist.get_text():
            yield _text(artist)
    elif isinstance(artist, AxesImage):
        values = np.asarray(artist.get_array(), float)
        known = values[np.isfinite(values)]
        where = _numbers([*artist.get_extent(), *artist.get_clim(), *values.shape])
        yield f"{name} {where} mean {known.mean():.4f} spread {known.std():.4f}"
    elif isinstance(artist, QuadMesh):
        ends = artist.cmap([0.0, 0.5, 1.0])
        yield f"{name} {_numbers(artist.get_clim())} {_colors(ends)}"
    elif isinstance(artist, LineCollection):
        ends = np.array([one[[0, -1]] for one in artist.get_segments()]).reshape(-1, 4)
        yield f"{name} {_numbers(artist.get_linewidths()[:40])} {_colors(artist.get_colors())}"
        yield from (f"  {_numbers(one)}" for one in ends[:40])
    elif hasattr(artist, "get_facecolors"):
        yield f"{name} {_colors(artist.get_facecolors())} {artist.get_zorder()}"
        if len(artist.get_offsets()) > 1:
            yield from (f"  {_numbers(one)}" for one in artist.get_offsets())
            return
        boxes = [path.get_extents().extents for path in artist.get_paths()]
        yield from (f"  {_numbers(box)}" for box in boxes[:40])
    elif isinstance(artist, Line2D):
        points = [*artist.get_xdata(), *artist.get_ydata()]
        yield f"{name} {_numbers(points)} {artist.get_linewidth():.2f} {_hex(artist.get_color())}"
    elif isinstance(artist, Rectangle) and artist.get_width() > 1.5:
        color = _hex(artist.get_facecolor()), _hex(artist.get_edgecolor())
        yield f"{name} {_numbers(artist.get_bbox().extents)} {color} {artist.get_linewidth():.2f}"


def _text(text: Text) -> str:
    place = text.get_transform().transform(text.get_position())
    looks = [text.get_ha(), text.get_va(), text.get_weight(), _hex(text.get_color())]
    size = f"{text.get_fontsize():.2f} {text.get_rotation():.0f}"
    return f"text {_numbers(place)} {size} {' '.join(map(str, looks))} {text.get_text()!r}"


def _numbers(values: Any) -> str:
    return " ".join(f"{value:.1f}" for value in np.ravel(values).tolist())


def _hex(color: Any) -> str:
    return str(to_hex(color, keep_alpha=True)).removesuffix("ff")


def _colors(colors: Any) -> str:
    """The colours in order, each once where it repeats."""
    found = [_hex(color) for color in colors][:40]
    return " ".join(found[:1] + [new for old, new in pairwise(found) if new != old])
