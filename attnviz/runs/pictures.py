"""A picture through a lens, and as a page shows it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from io import BytesIO
from math import isqrt, sqrt
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnviz.analyses.effects.links import with_links
from attnviz.analyses.patches import query_place
from attnviz.core.attention_map import Attention
from attnviz.core.corpus_report import CorpusReport
from attnviz.core.errors import InputError
from attnviz.core.lens_inputs import AttentionGradients, ValueVectors
from attnviz.core.notices import notify
from attnviz.core.options import Choice
from attnviz.core.query import Query
from attnviz.core.registry import Needs
from attnviz.models import Source, attend_query
from attnviz.models.lens import apply_lens, ask_source
from attnviz.storage.pictures import read_picture

if TYPE_CHECKING:
    from attnviz.core.effects import Experiment

ALL = "all"
"""The name of every patch."""
MOST_PIXELS = 1000
"""Of a side of the picture on a page."""
THUMBNAIL = 96
"""Pixels of a side of a picture in an atlas at most; fewer where all would take more than
`MOST_BYTES`."""
MOST_BYTES = 8 * 2**20


def look_through(source: Source, query: Query, choice: Choice, patch: str | None) -> Attention:
    """A picture's attention over itself through the lens asked for, every layer and head of it."""
    attend = partial(attend_query, source, query)
    if choice.lens == "flow":
        return flow_shown(attend(), patch)
    experiments: list[Experiment] = []

    def ask(needs: Needs) -> AttentionGradients | ValueVectors:
        answer = ask_source(source, query, needs, choice.explain)
        if isinstance(answer, AttentionGradients) and answer.experiment is not None:
            experiments.append(answer.experiment)
        return answer

    found = apply_lens(choice.lens, attend, ask, lambda attention: attention)
    if experiments:
        return with_links(found, experiments[0], choice.check)
    if choice.lens != "norm":
        return found
    # Heads are summed unless one is asked for, which only the map of their own has.
    name = "self" if choice.head is None else "self-by-head"
    return replace(found, maps=(found.map_of(name),))


def flow_shown(attention: Attention, patch: str | None) -> Attention:
    """The flow to the query that is shown: all pairs of a picture take half an hour."""
    from attnviz.analyses.lenses.flow import MOST_SOLVES, flow

    tokens = attention.main.query_tokens
    place = None if patch == ALL else query_place(tokens, patch)
    fits = isqrt(MOST_SOLVES) - sum(token.special for token in tokens)
    return flow(
        attention,
        None if place is None else (place,),
        f"choose one --patch ({len(tokens):,} problems), give a smaller --image-size (at most "
        f"{fits} patches), or use --lens rollout",
    )


def sheet_parts(attention: Attention, images: Sequence[Any]) -> dict[str, Any]:
    """For each stream over a picture the part that its patches cover, cut out of the pictures."""
    whole = dict.fromkeys((item.stream for item in attention.maps), (0, attention.seen))
    sheets = attention.sheets or whole
    return {name: images[number].crop(box) for name, (number, box) in sheets.items()}


def as_jpeg(part: Any, most: int = MOST_PIXELS) -> bytes:
    """A picture as a file, made smaller where a side has more pixels than a page shows."""
    file = BytesIO()
    small = part.copy()
    small.thumbnail((most, most))
    small.save(file, "JPEG", quality=90)
    return file.getvalue()


def thumbnails(report: CorpusReport) -> dict[str, bytes]:
    """Of each picture that an atlas shows, by its file, the part that its patches cover, small."""
    from PIL import Image

    atlases = [stream.atlas for stream in report.streams if stream.atlas is not None]
    shown = {text.id: text.seen for atlas in atlases for text in atlas.texts.values() if text.seen}
    found = dict[str, bytes]()
    for name, (left, top, right, bottom) in shown.items():
        try:
            part = read_picture(Path(name)).crop((left, top, right, bottom))
            found[name] = as_jpeg(part, THUMBNAIL)
        except InputError as error:
            notify(f"no picture in the atlas: {error}")
    size = sum(map(len, found.values())) * len(atlases)
    if size > MOST_BYTES:
        side = max(int(THUMBNAIL * sqrt(MOST_BYTES / size) * 0.8), 8)
        found = {name: as_jpeg(Image.open(BytesIO(one)), side) for name, one in found.items()}
    return found
