"""Attention becomes what is written: data, pictures and pages as bytes, named by suffix."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np

from attnviz.analyses import overview, select, sinks
from attnviz.analyses.kv_groups import LIKENESS, groups_in_words, groups_of, likeness_of, sizes_of
from attnviz.analyses.view import divisions, first_focus
from attnviz.analyses.view import views as every_view
from attnviz.core.attention_map import AGREEMENT, Attention, AttentionMap
from attnviz.core.errors import UsageError, choose, in_words
from attnviz.core.notices import notices_to, notify
from attnviz.core.options import DECLARED, Choice
from attnviz.core.options.look import Look, LookOptions
from attnviz.core.registry import ATLAS_LINKS, PANELS, PICTURES, DataKind, is_reduced
from attnviz.core.values import check_value
from attnviz.renderers import Display, Views, reports
from attnviz.storage.columns import KIND_OF, value_of
from attnviz.storage.writing import write_file

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from numpy.typing import NDArray
    from pandas import DataFrame

    from attnviz.core.measures import View
    from attnviz.renderers.page import Patches


class Presentable:
    """Results for Python, in every form in which the command line could write them."""

    __slots__ = ()

    def _results(self) -> tuple[str, DataKind, Sequence[reports.Item]]:
        raise NotImplementedError

    def table(
        self, width: int = 100, rows: int = 0, *, whole: bool = False, pieces: bool = False
    ) -> str:
        """A table to read, at most `width` columns wide.

        Args:
            width: cells of a terminal.
            rows: the most rows, of a matrix those that say most; 0: all.
            whole: every column of a matrix, in blocks that fit.
            pieces: tokens, special ones too, in place of words.
        """
        many = len(self._results()[2]) > 1
        display = Display(width, many=many, rows=rows, whole=whole, pieces=pieces)
        return self.render_as("table", display).decode()

    def to_json(self) -> Any:
        """Everything as plain values: what the shell writes as JSON."""
        return json.loads(self.render_as("json"))

    def to_rows(self) -> list[dict[str, Any]]:
        """The rows that the shell writes, by column, numbers as numbers; None: no value."""
        header, *rows = (line.split("\t") for line in self.render_as("tsv").decode().splitlines())
        return [dict(zip(header, map(value_of, header, row), strict=True)) for row in rows]

    def to_pandas(self) -> DataFrame:
        """The rows as a data frame, numbers as numbers; a UsageError if pandas is not installed."""
        try:
            import pandas
        except ImportError as error:
            raise UsageError("to_pandas() needs pandas: pip install pandas") from error
        import io

        tsv = io.BytesIO(self.render_as("tsv"))
        texts = [name for name, kind in KIND_OF.items() if kind == "text"]
        frame = pandas.read_csv(
            *(tsv,),
            sep="\t",
            quoting=3,
            keep_default_na=False,
            na_values=[""],
            dtype=dict.fromkeys(texts, str),
        )
        for name, kind in KIND_OF.items():
            if name in frame and kind == "place" and frame[name].dtype == object:
                frame[name] = [value_of(name, str(one)) for one in frame[name]]
        return frame

    def picture(
        self, name: str = "", file: str | Path | None = None, **look: Unpack[LookOptions]
    ) -> Figure:
        """A picture by its name, by default the first, also written to a file if given.

        A warning says what of the look misleads or changes nothing.
        """
        command, _, items = self._results()
        figures = items[0].figures if items else {}
        if not figures:
            raise UsageError(f"{command} draws no picture")
        name = choose(name or next(iter(figures)), figures, "picture")
        return save_figure(items[0], name, file, look)

    def page(self, file: str | Path | None = None) -> str:
        """One interactive HTML file of the first result, also written to a file if given."""
        command, _, items = self._results()
        page = page_of(items[0]) if items else None
        if page is None:
            raise UsageError(f"{command} makes no page")
        if file is not None:
            write_file(Path(file), reports.as_bytes(page))
        return page

    def save(self, file: str | Path, *, digits: int | None = None) -> None:
        """Write the data; the suffix names the format.

        Args:
            file: .npz, .json, …
            digits: decimals of each weight in .json, .jsonl, .tsv and .csv; None: all.

        Raises:
            UsageError: a suffix that is no format's; digits of what has no weights as text.
        """
        _, kind, items = self._results()
        name = reports.format_of(Path(file), kind)
        reports.check_digits(digits, {name}, kind)
        write_file(Path(file), self.render_as(name, Display(many=len(items) > 1, digits=digits)))

    def render_as(self, name: str, display: Display | None = None) -> bytes:
        """The data in a format; "table" is the first that the kind of data has."""
        command, kind, items = self._results()
        formats = reports.formats_of(kind)
        if name == "table":
            name = next(iter(formats))
        if name not in formats:
            raise UsageError(f"{command} gives no {name}, but {in_words(formats)}")
        renderer = reports.make_renderer(name, display or Display(many=len(items) > 1), kind)
        return reports.render_all(renderer, ((item.data, item.views) for item in items))


def views_of(attention: Attention, choice: Choice | None = None, top: int = 1) -> Views:
    """The views of a text for whatever shows it, worked out once and only if asked for.

    A reader who chose layers sees each of them, and so does one who chose a head of every layer;
    who chose heads or reduced them, these alone.
    """
    own = choice or Choice()
    every_layer = select.shows_layers(own.layer, own.head)
    as_chosen = every_layer or own.head is not None or own.reduce != "none"
    every_head = bool(select.named_heads(own.head)) and own.reduce == "none"
    number = own.head is not None and own.head.isdecimal()
    one_by_one = every_head or (number and own.reduce == "none")
    make = partial(
        every_view,
        attention,
        every_layer=every_layer,
        every_head=every_head,
        as_chosen=as_chosen,
        top=top,
    )
    return Views(
        make,
        lambda: select.strongest_links(attention.main, top),
        lambda: overview.overviews(attention, as_chosen=as_chosen, each=one_by_one),
        lambda: sinks.sink_shares(attention),
    )


def draw_item(item: reports.Item, picture: str, look: Look) -> Figure:
    """A picture of one result, by its name; notes on how to read the data stand in it."""
    import attnviz.renderers.figures  # noqa: F401 - first: it loads matplotlib
    from attnviz.renderers.look import drawing

    data = item.data
    notes = data.notes if isinstance(data, reports.Data) else data.provenance.notes
    # Panels have their correlation in their headings.
    notes = tuple(note for note in notes if not note.startswith(AGREEMENT))
    if line := sinks.sinks_in_words(item.views.sinks):
        notes = (*notes, f"over all heads: {line}")
    if isinstance(data, Attention) and (line := sinks.kinds_in_line(data.main)):
        notes = (*notes, f"over all heads: {line}")
    with drawing(look, notes, picture):
        if picture in item.figures:
            return item.figures[picture]()
        if isinstance(data, reports.Data) or picture not in PICTURES:
            raise UsageError(f"this result has no picture '{picture}': leave it out")
        return draw(data, picture, item.views)


def draw(
    attention: Attention, picture: str, views: Views | None = None, **above: NDArray[np.float32]
) -> Figure:
    """A picture of the main map; a heat map may have a spectrogram `above` its columns."""
    from attnviz.analyses.view import few_heads, orientation, picture_words, sides
    from attnviz.renderers.colors import picture_scale
    from attnviz.renderers.figures.figure import fit_width
    from attnviz.renderers.look import look_option

    views, function = views or views_of(attention), PICTURES[picture].load()
    if picture == "heatmap":
        first_views = [view for view in views() if not view.second]
        heads = [view.map.heads[0] for view in first_views]
        if len(heads) > 1 and (attention.lens_name == "all" or not any(map(is_reduced, heads))):
            return draw_side_by_side(attention, first_views)
        view, main = first_views[0], attention.main
        _tell_layer(first_views, view.map)
        words: dict[str, Any] = picture_words(attention, view.map, view.orientation, view.which)
        if look_option("scale") == "shared" and view.map.stream == main.stream:
            words["limits"] = picture_scale(main)
        words["second_part"] = divisions(attention, view.map)
        words["texts"] = attention.texts_of(view.map)
        return fit_width(function, view.map, **words, **above)
    if picture == "lines":
        item, which = few_heads(attention, views()[0])
        _tell_layer([view for view in views() if not view.second], item)
        return fit_width(function, item, **picture_words(attention, item, sides(item), which))
    item = attention.every_call(attention.main)
    words = picture_words(attention, item, orientation(item))
    if picture == "grid" and item is attention.main:
        own = groups_of(item, sizes_of(attention, item))
        groups = [[*layer.values()] for layer in own]
        return fit_width(function, item, **words, groups=groups)
    return fit_width(function, item, **words)


def _tell_layer(views: Sequence[View], item: AttentionMap) -> None:
    layers = list(dict.fromkeys(view.map.layers[0] for view in views))
    if len(layers) > 1 and len(item.layers) == 1 and item.layers[0] in layers:
        one = f"layer {item.layers[0]} of the chosen {in_words(layers, 'and')}"
        notify(f"the picture shows {one}: --grid shows every one")


def draw_side_by_side(attention: Attention, views: Sequence[View]) -> Figure:
    """A text through every lens, or by heads of several layers, one panel each."""
    from attnviz.analyses.view import orientation
    from attnviz.renderers.figures.figure import fit_width

    correlation = "\nrank correlation with hiding tokens"
    whiches = (view.which.replace(f", {AGREEMENT}", correlation) for view in views)
    headings = [f"{which}\n{view.map.unit}" for which, view in zip(whiches, views, strict=True)]
    what = "every lens" if attention.lens_name == "all" else f"{len(views)} heads"
    title = f"{attention.provenance.title} · {what} side by side"
    words: dict[str, Any] = {"title": title, "subtitle": orientation(attention.main)}
    words["texts"] = attention.texts_of(views[0].map)
    return fit_width(PANELS.load(), [view.map for view in views], **words, headings=headings)


def page_of(
    item: reports.Item, command: str = "", atlas: tuple[Path, Path] | None = None
) -> str | None:
    """The page of one result with the command line that makes it; None: it has no page.

    `atlas`: the file of the atlas that its heads link to, and the file of the page itself.
    """
    if item.page is not None:
        return item.page(command)
    if isinstance(item.data, reports.Data):
        return None
    return page_html(item.data, command, atlas, views=item.views)


def page_html(
    attention: Attention, command: str = "", atlas: tuple[Path, Path] | None = None, **settings: Any
) -> str:
    """Every map of one text as one interactive HTML file; more options as of `page_data`."""
    from attnviz.renderers.page import assemble

    document, blobs = page_data(attention, command, **settings)
    if atlas is not None:
        document["atlas"] = ATLAS_LINKS.load()(attention, *atlas)
    return assemble(document, blobs)


def page_data(
    attention: Attention,
    command: str = "",
    most_weights: int | None = None,
    picture: Mapping[str, bytes] | None = None,
    views: Views | None = None,
) -> tuple[dict[str, Any], dict[str, str]]:
    """What the page shows of one text, with the measures of its heads: a document, and numbers.

    It opens on the first of the `views`; `command` makes it again. Of more than
    `most_weights`, by default as many as a browser opens quickly, tokens are pooled. For a stream,
    a picture is a PNG, JPEG or WebP file, whose patches stand at the end of its keys.
    """
    from attnviz.analyses.heads import measure_heads
    from attnviz.analyses.masks import MeasuredMap
    from attnviz.analyses.words import word_numbers, words_of
    from attnviz.renderers.page import MOST_WEIGHTS, page_parts

    parts: dict[str, dict[int, Any]]
    parts = {name: {} for name in ("measures", "words", "projections", "patches")}
    for number, item in enumerate(attention.maps):
        if item.values == "share" and not item.is_pooled:
            measures = measure_heads(MeasuredMap.of(attention, item), repeated=False)
            parts["measures"][number] = list(measures.values())
        sides = zip((item.query_tokens, item.key_tokens), attention.texts_of(item), strict=True)
        parts["words"][number] = tuple(word_numbers(t, s, words_of(t, s)) for t, s in sides)
        vectors = attention.projections.get(item.stream)
        if vectors is not None and (own := vectors.of(item)) is not None:
            parts["projections"][number] = own
        if picture and item.stream in picture:
            parts["patches"][number] = _patches(picture[item.stream], item)
    views = views or views_of(attention)
    every = (one for one in parts["measures"].get(0, ()) if one.name == LIKENESS)
    alike = likeness_of(attention.main, next(every, None))
    groups = groups_in_words(alike, sizes_of(attention, attention.main))
    lines = [line for line in (groups, sinks.sinks_in_words(views.sinks)) if line]
    attention = attention.with_maps(attention.maps, notes=lines)
    return page_parts(
        _with_focus(attention, views()),
        title=" · ".join([attention.provenance.title, *attention.provenance.steps]),
        command=command,
        most_weights=most_weights or MOST_WEIGHTS,
        **parts,
    )


def _with_focus(attention: Attention, views: Sequence[View]) -> Attention:
    as_chosen = not any(view.second for view in views)
    focuses = {
        item.stream: first_focus(attention, item, as_chosen=as_chosen)
        for item in attention.maps[1:]
    } | {attention.main.stream: views[0].focus}
    return replace(attention, focus={name: one for name, one in focuses.items() if one is not None})


def _patches(picture: bytes, item: AttentionMap) -> Patches:
    from attnviz.core.tokens import patch_grid
    from attnviz.renderers.page import Patches

    rows, columns = patch_grid(item.key_tokens)
    return Patches(picture, rows, columns, first=len(item.key_tokens) - rows * columns)


def save_figure(
    item: reports.Item, picture: str, file: str | Path | None, look: LookOptions
) -> Figure:
    """A picture of a result for Python, also written to a file if one is given."""
    types = DECLARED[Look]
    values: dict[str, Any] = {
        name: check_value(name, value, *types[choose(name, types, "option")])
        for name, value in look.items()
    }
    with notices_to(partial(warnings.warn, stacklevel=2)):
        figure = draw_item(item, picture, Look(**values))
    if file is not None:
        from attnviz.renderers.figures.figure import figure_bytes

        path = Path(file)
        write_file(path, figure_bytes(figure, reports.picture_suffix(path, picture)))
    return figure
