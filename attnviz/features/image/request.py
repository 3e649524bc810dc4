"""Pictures read by a vision model: its attention as data and over the pictures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import isqrt
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from attnviz.analyses.select import reduce_attention, shows_layers, strongest_links
from attnviz.analyses.view import picture_words
from attnviz.analyses.words import merge_words
from attnviz.core.attention_map import Attention, AttentionMap
from attnviz.core.errors import UsageError, is_number
from attnviz.core.options import Choice, Options, Origin
from attnviz.core.query import Picture, Query
from attnviz.core.records import dataclass, replace
from attnviz.core.tokens import parse_patch, patch_grid
from attnviz.features.image import patches
from attnviz.features.image.patches import OBJECTS
from attnviz.features.lenses.ask import apply_lens, ask_source
from attnviz.features.lenses.links import with_links
from attnviz.features.video.frames import MOST_FRAMES, ChosenFrames, Film, open_film
from attnviz.features.vision.opening import VISION, check_vision
from attnviz.features.vision.picture_files import as_jpeg, read_picture
from attnviz.models import Source, attend_query
from attnviz.models.open import open_source
from attnviz.renderers import Views
from attnviz.renderers.reports import Item
from attnviz.runs.outputs import page_html, views_of
from attnviz.runs.pipeline import apply_choice, check_choice
from attnviz.storage.texts import check_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from attnviz.features.image.overlay import PictureCrop

ALL = "all"  # the name of every patch


def look_through(source: Source, query: Query, choice: Choice, patch: str | None) -> Attention:
    """A picture's attention over itself through a lens, for every layer and head."""
    attend = partial(attend_query, source, query)
    if choice.lens == "flow":
        return flow_of_query(attend(), patch)
    if choice.lens == "raw":
        return attend()
    ask = partial(ask_source, source, query, target=choice.explain)
    result, experiment = apply_lens(choice.lens, attend, ask, lambda attention: attention)
    if experiment is not None:
        return with_links(result, experiment, choice.check)
    if choice.lens != "norm":
        return result
    # Stream "self" sums the heads; a chosen head needs "self-by-head".
    name = "self" if choice.head is None else "self-by-head"
    return replace(result, maps=(result.map_of(name),))


def flow_of_query(attention: Attention, patch: str | None) -> Attention:
    """The flow to the shown query only: all pairs of a picture take half an hour."""
    from attnviz.features.lenses.rollout import MOST_SOLVES, flow

    tokens = attention.main.query_tokens
    place = None if patch == ALL else patches.query_place(tokens, patch)
    fits = isqrt(MOST_SOLVES) - sum(token.special for token in tokens)
    return flow(
        attention,
        None if place is None else (place,),
        f"choose one --patch ({len(tokens):,} problems), give a smaller --image-size (at most "
        f"{fits} patches), or use --lens rollout",
    )


def sheet_boxes(attention: Attention) -> Mapping[str, tuple[int, Any]]:
    """The number of the picture and the part of it that the patches of each stream cover."""
    whole = dict.fromkeys((item.stream for item in attention.maps), (0, attention.seen))
    return attention.sheets or whole


def sheet_parts(attention: Attention, images: Sequence[Any]) -> dict[str, Any]:
    """The part of a picture that the patches of each stream cover, by stream."""
    boxes = sheet_boxes(attention)
    return {name: _cut_out(images[number], box) for name, (number, box) in boxes.items()}


def _cut_out(image: Any, box: tuple[float, float, float, float] | None) -> Any:
    """A part of a picture; white where it ends beyond the right or the bottom."""
    part = image.crop(box)
    if box is None or min(box[:2]) < 0 or (box[2] <= image.width and box[3] <= image.height):
        return part
    ground = image.resize(part.size)
    ground.paste("white", (0, 0, *part.size))
    ground.paste(image, tuple(-round(side) for side in box[:2]))
    return ground


@dataclass(frozen=True, slots=True)
class PictureRequest:
    """Which pictures are read, and how they are drawn; `attnviz.image` explains each field."""

    files: tuple[Any, ...]  # paths, or pictures and arrays in memory
    patch: str | None = None
    image_size: str | None = None
    text: str | None = None
    video: bool = False
    token: str | None = None
    lens: str = "raw"
    smooth: bool = False
    screen: str = ""  # the option that shows one patch to a person; empty if the result is data

    def check(self, options: Options) -> None:
        origin = options.origin
        check_vision(origin)
        model = origin.model or VISION
        flag = "--text" if self.text is not None else "--generate"
        if self.has_text(origin) and model == VISION:
            raise UsageError(f"'{model}' reads no text: {flag} needs --model ID_OR_FOLDER")
        check_choice(replace(options.choice, lens=self.lens))
        if options.pictures.get("gif") and not self.video:
            raise UsageError(
                "a .gif is a film, which --video reads; of a picture: --picture FILE.png"
            )
        if self.patch is not None and self.patch != ALL:
            step, _, place = self.patch.partition(",")
            parse_patch(place if self.video and "," in place and is_number(step) else self.patch)
        if self.patch == ALL and self.screen:
            raise UsageError(
                f"--patch all is data, and {self.screen} shows one patch: use -f json, csv, …, or "
                "choose a patch"
            )
        if self.lens == "gradient" and self.patch is not None:
            raise UsageError(
                "--lens gradient explains what the model decides, which no patch does: leave "
                "--patch out"
            )
        if not self.has_text(origin):
            self._check_alone(str(model))
            return
        raw = None if self.lens == "raw" else self.lens
        alone = {"--patch": self.patch, "--image-size": self.image_size, "--lens": raw}
        if flags := [option for option, value in alone.items() if value is not None]:
            raise UsageError(f"{flags[0]} is for a picture without {flag}: leave one of them out")
        if self.text is not None:
            check_text(self.text)

    def _check_alone(self, model: str) -> None:
        """Refuse what needs a text, or another model than the one inside."""
        if self.token is not None and model == VISION:
            raise UsageError("--token chooses a token of --text: give that too")
        if self.video and model == VISION:
            raise UsageError(f"'{model}' reads no film: --video needs --model ID_OR_FOLDER")
        if len(self.files) > 1 and not self.video:
            raise UsageError("a second picture is read together with --text: give that too")

    def has_text(self, origin: Origin) -> bool:
        """Whether a text looks: one that is given, or what the model writes."""
        return self.text is not None or origin.generate is not None

    @property
    def names(self) -> list[str]:
        """A name for each: its file's, or its number."""
        files = enumerate(self.files)
        return [one.name if isinstance(one, Path) else f"picture {place}" for place, one in files]

    def read(self) -> Film | list[Any]:
        """The pictures; of a film what is to be read, once the model says how much."""
        return open_film(self.files) if self.video else [*map(read_picture, self.files)]


def look_at_pictures(
    request: PictureRequest, images: Film | Sequence[Any], options: Options
) -> Item:
    """Where a model looks in the pictures, as data, in pictures of its own and on a page."""
    from attnviz.features.vision.pictures import parse_size

    patch, choice = request.patch, replace(options.choice, lens=request.lens)
    size = None if request.image_size is None else parse_size(request.image_size)
    has_text = request.has_text(options.origin)
    source = open_source(options.origin, "picture-text" if has_text else "picture")
    film = _choose_frames(source, images, has_text=has_text)
    images = film.frames
    picture = Picture(images[0], size, patch, request.lens, tuple(images[1:]), request.video)
    query = Query(request.text or "", kind="picture", picture=picture)
    attention = look_through(source, query, choice, patch)
    settings = {**attention.provenance.settings, "picture": ", ".join(request.names)}
    notes = (*attention.provenance.notes, *([film.note] if film.note else []))
    provenance = replace(attention.provenance, settings=settings, notes=notes)
    attention = replace(attention, id=Path(request.names[0]).stem, provenance=provenance)
    if request.lens == "raw":  # of other values, a large sum may be what the patch shows
        attention = patches.with_sinks(attention)
    looks, every = _choose_looks(request, attention, has_text=has_text)
    # The lens has been applied already.
    choice = replace(choice, lens="raw", explain=None)
    result = apply_choice(looks, choice)
    parts, smooth = sheet_parts(attention, images), request.smooth
    crop = partial(_crop, result, images, result.main.stream, patch)
    if request.video:
        figures = _film_pictures(result, film, parts, smooth=smooth, has_text=has_text)
    elif result.main.key_side == OBJECTS:
        figures = dict.fromkeys(("overlay", "grid"), partial(patches.refuse_objects, result))
    elif every or (has_text and len(parts) > 1):
        figures = _contact_sheets(result, parts, partial(_crop, result, images), smooth=smooth)
    else:
        figures = _layer_pictures(result, crop, smooth=smooth)

    def page(command: str) -> str:
        from attnviz.renderers.page import MOST_WEIGHTS

        maps: Attention = apply_choice(attention, choice)
        if sum(item.weights.size for item in maps.maps) > MOST_WEIGHTS:
            maps = reduce_attention(maps, "mean", "heads")  # else patches would be pooled
        files = {name: as_jpeg(part) for name, part in parts.items()}
        return page_html(maps, command, picture=files)

    every_layer = shows_layers(choice.layer, choice.head)
    views = Views(
        partial(patches.picture_views, result, every_layer=every_layer),
        partial(strongest_links, result.main, options.origin.top),
        find_overviews=partial(patches.picture_overviews, result, every_layer=every_layer),
    )
    if result.main.key_side == OBJECTS:  # without weights over the picture
        views = views_of(result, choice, options.origin.top)
    return Item(result, views, figures, page)


def _choose_looks(
    request: PictureRequest, attention: Attention, *, has_text: bool
) -> tuple[Attention, bool]:
    """The looks to show, and whether those of several words or queries are shown apart."""
    patch, wrote = request.patch, attention.main.query_side != "text"
    if OBJECTS in {item.query_side for item in attention.maps}:
        looks = patches.look_from_objects(attention, request.token, patch)
        return looks, len(looks.main.query_tokens) > 1 and looks.main.query_side == OBJECTS
    if has_text:
        every = request.token == ALL or (request.token is None and wrote)
        return attention if every else patches.look_from_token(attention, request.token), every
    if request.token is not None:
        raise UsageError("--token chooses a token of --text: give that too")
    if request.video or patch == ALL:
        return attention, False
    return patches.look_from(attention, patch), False


def _choose_frames(source: Source, images: Film | Sequence[Any], *, has_text: bool) -> ChosenFrames:
    """The pictures; of a film as many frames as the model reads, evenly."""
    if not isinstance(images, Film):
        return ChosenFrames(tuple(images))
    if has_text:
        return images.choose(MOST_FRAMES)
    if not source.most_frames:
        raise UsageError(
            "this model reads single pictures: leave --video out, name a model of videos "
            "(VideoMAE, ViViT, TimeSformer), or give a --text to one of pictures and text"
        )
    return images.choose(source.most_frames, exactly=True)


def _crop(
    attention: Attention, images: Sequence[Any], stream: str, patch: str | None = None
) -> PictureCrop:
    """The whole picture and the part that patches cover, with an outline of the query patch."""
    from attnviz.features.image.overlay import PictureCrop

    query_patch = None
    if patch is not None:
        query_patch = (*parse_patch(patch), *patch_grid(attention.main.key_tokens))
    if attention.sheets:  # parts of pictures that are read one by one
        part = PictureCrop(np.asarray(sheet_parts(attention, images)[stream]), query_patch)
        item = attention.map_of(stream)
        return _with_object(attention, part, item, 0) if len(item.query_tokens) == 1 else part
    number, box = sheet_boxes(attention)[stream]
    sides = images[number].size * 2
    region = tuple(x / side for x, side in zip(box or (0, 0, *sides[:2]), sides, strict=True))
    return PictureCrop(np.asarray(images[number]), query_patch, region=region)


def _with_object(
    attention: Attention, crop: PictureCrop, item: AttentionMap, row: int
) -> PictureCrop:
    """The crop with the box of what the query of a row finds, if there is one."""
    boxes = {f"query {one.query}": one.box for one in attention.found}
    box = boxes.get(item.query_tokens[row].text.partition(":")[0])
    if box is None or item.query_side != OBJECTS:
        return crop
    left, top, right, bottom = attention.sheets[item.stream][1]
    sides = (right - left, bottom - top) * 2
    shares = [
        (x - first) / side for x, first, side in zip(box, (left, top) * 2, sides, strict=True)
    ]
    return replace(crop, box=(shares[0], shares[1], shares[2], shares[3]))


def _layer_pictures(
    attention: Attention, picture: Callable[[], PictureCrop], *, smooth: bool
) -> dict[str, Callable[[], Figure]]:
    """The last chosen layer, and every chosen head, over the picture."""
    own = [one for one in attention.maps if one.stream == attention.main.stream]
    attention = replace(attention, maps=tuple(own))
    item = own[-1]
    words: dict[str, Any] = {"unit": item.unit, "values": item.values}
    looks = patches.said_looks(item)

    def one() -> Figure:
        from attnviz.features.image.overlay import Overlaying, overlay
        from attnviz.renderers.figures.figure import fit_width

        one_map, which = patches.one_picture(item)
        words.update(picture_words(attention, item, looks, which), how=Overlaying(smooth=smooth))
        return fit_width(overlay, picture(), weights=patches.over_picture(one_map)[0, 0], **words)

    def every() -> Figure:
        from attnviz.features.image.overlay import Overlaying, overlay_grid
        from attnviz.renderers.figures.figure import fit_width

        heads, more, one_map = patches.spread_heads(attention.maps), "", item
        if len(attention.maps) > 1:  # one map for several runs of layers, for a title
            cells = np.nan_to_num(heads["weights"]).reshape(*heads["weights"].shape[:2], 1, -1)
            one_map = attention.main.with_weights(
                cells, layers=heads["layers"], heads=heads["heads"]
            )
            more = "; what goes to a coarser patch is shared out over what it covers"
        words.update(picture_words(attention, one_map, looks + more), how=Overlaying(smooth=smooth))
        return fit_width(overlay_grid, picture(), **heads, **words)

    return {"overlay": one, "grid": every}


def _film_pictures(
    attention: Attention,
    film: ChosenFrames,
    parts: Mapping[str, Any],
    *,
    smooth: bool,
    has_text: bool,
) -> dict[str, Callable[[], Figure]]:
    """A strip of frames, or one for each word; every head; and the film with its weights."""
    from attnviz.features.image import film as film_module

    names = film_module.frame_names(attention, film.times)
    how = partial(film_module.film_scale, attention, smooth=smooth)
    moving = {"gif": lambda: film_module.draw_film(attention, film.frames, names, how())}
    if has_text:
        crop = partial(_crop, attention, film.frames)
        return _contact_sheets(attention, parts, crop, smooth=smooth, names=names) | moving

    def strips(*, by_head: bool) -> Figure:
        return film_module.draw_strips(attention, film.frames, names, how(), by_head=by_head)

    return {
        "overlay": partial(strips, by_head=False),
        "grid": partial(strips, by_head=True),
    } | moving


def _contact_sheets(
    attention: Attention,
    parts: Mapping[str, Any],
    crop: Callable[[str], PictureCrop],
    *,
    smooth: bool,
    names: Mapping[str, str] | None = None,
) -> dict[str, Callable[[], Figure]]:
    """Every word over every picture, in the mean over heads or head by head.

    `names` stand over the pictures of streams.
    """
    main_tokens = attention.main.query_tokens
    maps = [
        one for one in attention.maps if one.stream in parts and one.query_tokens == main_tokens
    ]
    last = {item.stream: item for item in maps}  # of several runs of layers the last

    def draw(columns: Sequence[tuple[str, AttentionMap]], which: str) -> Figure:
        from attnviz.features.image.overlay import Overlaying, contact_sheet
        from attnviz.renderers.figures.figure import fit_width

        queries = attention.main.query_side in ("queries", OBJECTS)
        text = "" if queries else attention.text or ""
        word_maps = [(name, merge_words(item, text, "")) for name, item in columns]
        main = word_maps[0][1]
        pictures = {name: crop(name) for name in parts}
        tiles = [
            [
                (
                    _with_object(attention, pictures[item.stream], item, row),
                    patches.over_picture(item, row)[-1, 0],
                )
                for _, item in word_maps
            ]
            for row in range(len(main.query_tokens))
        ]
        return fit_width(
            contact_sheet,
            tiles,
            words=[token.text for token in main.query_tokens],
            columns=[name for name, _ in word_maps] if len(word_maps) > 1 else [""],
            title=f"{attention.provenance.title} · {which}",
            subtitle=looks_of(attention),
            unit=main.unit,
            how=Overlaying(smooth=smooth),
        )

    def overlay() -> Figure:
        means = [
            ((names or {}).get(name, name.partition("-to-")[2]), *patches.one_picture(item))
            for name, item in last.items()
        ]
        return draw([(name, item) for name, item, _ in means], means[0][2])

    def grid() -> Figure:
        item = last[attention.main.stream]
        item = item.part(item.layers[-1:])
        heads = [(f"head {name}", item.part(heads=[name])) for name in item.heads]
        return draw(heads, f"every head of layer {item.layers[0]}")

    return {"overlay": overlay, "grid": grid}


LOOKS = {
    "written": "each word: where the model looked when it wrote it; pieces of a word averaged",
    "queries": "each query: which patches it reads; the text model sees queries, not patches",
    "text": "each word: where it looks; pieces of a word averaged",
    OBJECTS: "each query: where it looks",
}
"""The subtitle of a contact sheet, by the side of its queries."""


def looks_of(attention: Attention) -> str:
    """The subtitle of a contact sheet: a detector without a head predicts no boxes."""
    boxes = ", and the box that it predicts" if any(one.box for one in attention.found) else ""
    return LOOKS.get(attention.main.query_side, "") + boxes
