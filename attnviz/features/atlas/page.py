"""The atlas of a corpus: one page with all heads by any two measures, and what each does."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Mapping
from io import BytesIO
from math import sqrt
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from attnviz.core import attention_map, errors, measures, tokens
from attnviz.core.notices import notify
from attnviz.features.corpus.results import (
    Atlas,
    CorpusReport,
    SourceText,
    StreamReport,
    group_by_head,
)
from attnviz.features.vision.picture_files import as_jpeg, read_picture
from attnviz.renderers.colors import ROLE_COLORS, hex_of
from attnviz.renderers.page.document import assemble, facts
from attnviz.renderers.printable import printable
from attnviz.storage.matrices import read_bytes

WORDS, PAIRS = 8, 5
"""How many of the most frequent ends of its links, and of its strongest pairs, a head names."""


def atlas_page(
    report: CorpusReport, command: str = "", pictures: Mapping[str, bytes] | None = None
) -> str:
    """The page; for a corpus of pictures, `pictures` holds a small one for each file."""
    return assemble(atlas_document(report, command, pictures or {}), {}, "atlas")


def atlas_document(
    report: CorpusReport, command: str, pictures: Mapping[str, bytes]
) -> dict[str, Any]:
    """What the page shows, as plain values."""
    first = next(atlas for atlas in (one.atlas for one in report.streams) if atlas is not None)
    failures = f"{report.failed:,} {report.things} could not be read" if report.failed else ""
    about = measures.about_effects(report.provenance)
    mass = dict.fromkeys(measures.mass_note(stream.measures) for stream in report.streams)
    return {
        "title": printable(f"Heads of {report.provenance.title}"),
        "caption": printable(report.caption),
        "texts": report.texts,
        "thing": report.things[:-1],
        "interval": report.interval,
        "fewest": report.fewest,
        "rule": first.rule,
        "distance": first.distance,
        "notes": [printable(one) for one in (failures, *report.notes, about, *mass) if one],
        "provenance": [[name, printable(value)] for name, value in facts(report.provenance)],
        "command": printable(command),
        "colors": {name: hex_of(color) for name, color in ROLE_COLORS.items()},
        "streams": [
            _stream(stream, stream.atlas, pictures)
            for stream in report.streams
            if stream.atlas is not None
        ],
    }


def read_atlas(file: Path) -> tuple[str, dict[str, list[str]]]:
    """The model of an atlas, and its heads by stream, such as "1.4".

    Raises:
        InputError: the file is no page of an atlas.
    """
    try:
        text = read_bytes(file).decode()
        document = json.loads(text.partition(_START)[2].partition("</script>")[0])
        heads = {
            str(one["stream"]): [f"{head['layer']}.{head['head']}" for head in one["heads"]]
            for one in document["streams"]
        }
        return str(dict(document["provenance"])["model"]), heads
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        line = f"--atlas '{file}' is no atlas: attnviz heads -i FILE --atlas PAGE makes one"
        raise errors.InputError(line) from error


_START = '<script type="application/json" id="document">'


def link_atlas(attention: attention_map.Attention, file: Path, page: Path) -> dict[str, Any] | None:
    """The address of an atlas seen from a page, and its heads by stream; None: another model's."""
    model, heads = read_atlas(file)
    own = printable(attention.provenance.model)
    if model != own:
        notify(f"no head is linked: the atlas is of {printable(model)}, and the page of {own}")
        return None

    def seen_from(other: Path, here: Path) -> str:
        return quote(Path(os.path.relpath(other.absolute(), here.absolute().parent)).as_posix())

    return {"href": seen_from(file, page), "back": seen_from(page, file), "heads": heads}


def _stream(stream: StreamReport, atlas: Atlas, pictures: Mapping[str, bytes]) -> dict[str, Any]:
    rows = {(row.layer, row.head): row for row in stream.rows}
    pairs = group_by_head(stream.pairs)
    places = {number: place for place, number in enumerate(atlas.texts)}
    heads = [(layer, head) for layer in stream.layers for head in stream.heads]
    return {
        "stream": printable(stream.stream),
        "measures": [
            {name: getattr(one, name) for name in ("name", "unit", "low", "high")}
            for one in stream.measures
        ],
        "first": heads.index((stream.rows[0].layer, stream.rows[0].head)),
        "offsets": stream.offsets,
        "classes": stream.classes,
        "texts": [_text(text) for text in atlas.texts.values()],
        "pictures": [_picture(text, pictures) for text in atlas.texts.values() if text.seen],
        "heads": [
            {
                **_head(stream, atlas, number, rows[name], places),
                "pairs": [
                    [printable(pair.query), printable(pair.key), _short(pair.mean), pair.count]
                    for pair in pairs.get(name, [])[:PAIRS]
                ],
            }
            for number, name in enumerate(heads)
        ],
    }


def _text(text: SourceText) -> list[Any]:
    """A text's name, its query words and, where they differ, its key words; no names of patches."""

    def word(raw: str) -> str:
        # A leading space or tab stays, since the page joins the words of a sentence.
        before = raw[: len(raw) - len(raw.lstrip(" \t"))][:1]
        return before + printable(raw[len(before) :])

    if text.seen:
        return [printable(text.id), []]
    queries, keys = ([*map(word, side)] for side in (text.queries, text.keys))
    return [printable(text.id), queries, *([keys] if keys != queries else [])]


def _picture(text: SourceText, pictures: Mapping[str, bytes]) -> dict[str, Any]:
    rows, columns = (last + 1 for last in tokens.parse_patch(text.keys[-1]))
    special = [printable(word) for word in text.keys[: len(text.keys) - rows * columns]]
    data = base64.b64encode(pictures.get(text.id, b"")).decode("ascii")
    image = f"data:image/jpeg;base64,{data}" if data else ""
    return {"special": special, "rows": rows, "columns": columns, "image": image}


def _head(
    stream: StreamReport, atlas: Atlas, number: int, row: measures.HeadRow, places: dict[int, int]
) -> dict[str, Any]:
    at = divmod(number, len(stream.heads))

    def of_head(array: NDArray[Any]) -> list[float | None]:
        return [_short(value) for value in array[(slice(None), *at)].tolist()]

    of_measures = (stream.mean, stream.low, stream.high, stream.uniform, stream.texts)
    near = zip(atlas.nearest[number].tolist(), atlas.distances[number].tolist(), strict=True)
    slots = atlas.drawn[number].tolist()
    return {
        "layer": printable(row.layer),
        "head": printable(row.head),
        "roles": [
            [printable(role.label), _short(role.share), _short(role.uniform), role.name]
            for role in row.roles
        ],
        "values": [*zip(*map(of_head, of_measures), strict=True)],
        "offsets": of_head(stream.offset_shares),
        "classes": of_head(stream.class_shares),
        "even": of_head(stream.class_even),
        "counts": atlas.counts[number].tolist(),
        "drawn": [[_link(link, places) for link in slot if link[1] >= 0] for slot in slots],
        "queries": _ends(atlas, number, 0),
        "keys": _ends(atlas, number, 1),
        "nearest": [[other, _short(apart)] for other, apart in near],
    }


def _link(numbers: list[float], places: dict[int, int]) -> list[float]:
    """The text's number, the query word, and key words with weights, the link's own key first."""
    text, query, *keys = numbers[1:]
    entry: list[float] = [places[int(text)], int(query)]
    for key, share in zip(keys[::2], keys[1::2], strict=True):
        if key >= 0:
            entry += [int(key), _short(share) or 0.0]
    return entry


def _ends(atlas: Atlas, number: int, side: int) -> list[list[Any]]:
    """The words that stand most often at one end of a head's strongest links, with counts."""
    counts = atlas.ends[number, side]
    order = np.argsort(-counts[:-1], kind="stable")[:WORDS]
    return [[printable(atlas.words[place]), int(counts[place])] for place in order if counts[place]]


def _short(value: float) -> float | None:
    if isinstance(value, int):
        return value
    return float(f"{value:.4g}") if np.isfinite(value) else None


THUMBNAIL = 96  # pixels of a side in an atlas at most; `MOST_BYTES` in all
MOST_BYTES = 8 * 2**20


def thumbnails(report: CorpusReport) -> dict[str, bytes]:
    """A small copy of each picture that an atlas shows, cut to its patches."""
    from PIL import Image

    atlases = [stream.atlas for stream in report.streams if stream.atlas is not None]
    boxes = {text.id: text.seen for atlas in atlases for text in atlas.texts.values() if text.seen}
    files = dict[str, bytes]()
    for name, (left, top, right, bottom) in boxes.items():
        try:
            part = read_picture(Path(name)).crop((left, top, right, bottom))
            files[name] = as_jpeg(part, THUMBNAIL)
        except errors.InputError as error:
            notify(f"no picture in the atlas: {error}")
    size = sum(map(len, files.values())) * len(atlases)
    if size > MOST_BYTES:
        side = max(int(THUMBNAIL * sqrt(MOST_BYTES / size) * 0.8), 8)
        files = {name: as_jpeg(Image.open(BytesIO(one)), side) for name, one in files.items()}
    return files
