"""Attention over the frames of a film: every head beside each other, and the film itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from attnviz.core.attention_map import Attention
from attnviz.features.image import patches

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from attnviz.core.attention_map import AttentionMap
    from attnviz.features.image.overlay import Overlaying, PictureCrop

FILM_SHARE = 0.55  # of the width that the picture of one frame has


def frame_names(attention: Attention, times: Sequence[float]) -> dict[str, str]:
    """What stands over the frames of each stream: their numbers, and the second of the first."""
    names = dict[str, str]()
    for stream, (number, _) in attention.sheets.items():
        name = stream.partition("-to-")[2]
        if times:  # the numbers alone leave room for the time
            name = f"{name.removeprefix('frames ').removeprefix('frame ')} · {times[number]:.2f} s"
        names[stream] = name
    return names


def film_scale(attention: Attention, *, smooth: bool) -> Overlaying:
    """Colours of the frames of one film: an even look is that over all of them."""
    from attnviz.features.image.overlay import Overlaying

    own = [item for item in attention.maps if item.stream in attention.sheets]
    last = {item.stream: patches.one_picture(item)[0] for item in own}
    shares = np.concatenate([patches.over_picture(item).ravel() for item in last.values()])
    return Overlaying(smooth=smooth, film=(float(shares.mean()), float(shares.max())))


def film_crop(attention: Attention, images: Sequence[Any], stream: str) -> PictureCrop:
    """The first frame of a stream, and the part of it that patches cover."""
    from attnviz.features.image.overlay import PictureCrop

    number, box = attention.sheets[stream]
    sides = images[number].size * 2
    region = tuple(x / side for x, side in zip(box, sides, strict=True))
    return PictureCrop(np.asarray(images[number]), region=region)


def draw_strips(
    attention: Attention,
    images: Sequence[Any],
    names: Mapping[str, str],
    how: Overlaying,
    *,
    by_head: bool,
) -> Figure:
    """A strip of frames of the mean over the last layer's heads, or one for each of them."""
    from attnviz.features.image.overlay import contact_sheet
    from attnviz.renderers.figures.figure import fit_width

    maps = {item.stream: item for item in attention.maps if item.stream in names}
    means = {name: patches.one_picture(item) for name, item in maps.items()}
    first, (_, which) = next(iter(maps.values())), next(iter(means.values()))
    rows = {name: patches.over_picture(item)[-1:] for name, (item, _) in means.items()}
    words = [""]
    if by_head:
        rows = {name: patches.over_picture(item)[-1:] for name, item in maps.items()}
        words = [f"head {head}" for head in first.heads]
        which = f"every head of layer {first.layers[-1]}"
    crops = {name: film_crop(attention, images, name) for name in maps}
    return fit_width(
        contact_sheet,
        [[(crops[name], rows[name][0, head]) for name in maps] for head in range(len(words))],
        words=words,
        columns=[names[name] for name in maps],
        title=f"{attention.provenance.title} · {which}",
        subtitle=said_film(first),
        unit=first.unit,
        how=how,
    )


def said_film(item: AttentionMap) -> str:
    """One line: who looks over the frames."""
    if item.query_side == "video" and not item.query_tokens[0].special:
        return f"where patch {item.query_tokens[0].text} looks, frame by frame"
    return patches.said_looks(item).partition(":")[0] + ", frame by frame"


def draw_film(
    attention: Attention,
    images: Sequence[Any],
    names: Mapping[str, str],
    how: Overlaying,
) -> Figure:
    """Every frame under its weights: the figure of the first one, with all as its frames."""
    from attnviz.features.image.overlay import overlay
    from attnviz.renderers.figures.figure import Fit, fit_width
    from attnviz.renderers.look import look_option

    maps = {
        item.stream: patches.one_picture(item) for item in attention.maps if item.stream in names
    }
    starts = {attention.sheets[name][0]: name for name in maps}
    draw: Callable[..., Figure] = partial(overlay, fit=Fit(share=FILM_SHARE))
    if look_option("width") is not None:
        draw = partial(fit_width, overlay)
    figures = list[Any]()
    for number, image in enumerate(images):
        name = starts[max(start for start in starts if start <= number)]
        item, which = maps[name]
        weights = np.mean(
            [patches.over_picture(item, row)[0, 0] for row in range(len(item.query_tokens))], axis=0
        )
        crop = replace(film_crop(attention, images, name), pixels=np.asarray(image))
        figures.append(
            draw(
                crop,
                weights.astype(np.float32),
                title=f"{attention.provenance.title} · {which}",
                subtitle=f"{names[name]}\n{said_film(item)}",
                unit=item.unit,
                how=how,
            )
        )
    figures[0].frames = tuple(figures)
    whole: Figure = figures[0]
    return whole
