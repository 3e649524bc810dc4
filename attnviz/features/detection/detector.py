"""Models with queries for objects: where each query looks in a picture.

In DETR (Carion et al. 2020, "End-to-End Object Detection with Transformers") an encoder attends
among the cells of the backbone's map, and a decoder's queries attend to each other and to the
cells. Detection tokens of a plain ViT (Fang et al. 2021, "YOLOS") are queries, too: they share one
sequence with the patches. Attention that samples points (Zhu et al. 2021, "Deformable DETR") has no
weights over all cells: it is left out, and a note says so.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

import numpy as np

from attnviz.core.attention_map import Attention, AttentionMap, FoundObject, Provenance, Token
from attnviz.core.errors import AttentionError, UsageError
from attnviz.core.query import Picture, Query
from attnviz.core.records import dataclass, replace
from attnviz.core.tokens import AVERAGE, check_patch, mark_tokens, patch_grid, patch_tokens
from attnviz.features.modules.weights import (
    ModulePass,
    ModuleWeights,
    read_modules,
    refuse_without_weights,
)
from attnviz.features.vision import pictures
from attnviz.mechanisms.arrays import softmax, to_numpy
from attnviz.models import Source
from attnviz.models.hugging_face.capture.capture import with_routes
from attnviz.models.hugging_face.capture.kernel import layer_names, stream_of
from attnviz.models.hugging_face.capture.region import TokenBlocks, each_token
from attnviz.models.hugging_face.load import devices, imports
from attnviz.models.hugging_face.load.loading import LoadedParts
from attnviz.models.hugging_face.loaded_model import input_names, placed_inputs

ALL = "all"  # the name of every cell
OBJECTS = "objects"  # the side of queries for objects
BACKBONE = re.compile(r"(^|\.)(backbone|conv_encoder|pixel_level_module)(\.|$)")
"""Modules that make the map of features; what they attend to are no cells of it."""
SAMPLED = (
    "attention of {} samples points and has no weights over all cells of the picture: it is left "
    "out"
)
FILM = "pixel_values_videos"  # what models of films call their input
STRIDES = (4, 8, 16, 32, 64, 14, 28)  # pixels along the side of a cell, likely ones first


@dataclass(frozen=True, slots=True)
class _Sizes:
    """What lengths of a pass mean."""

    queries: int
    height: int  # of the picture as the model reads it, in pixels
    width: int
    patch: tuple[int, int] | None  # of a plain ViT, whose queries are among its tokens
    last: bool  # whether its queries follow the patches
    marks: int  # a class token and registers

    def cells(self, count: int) -> tuple[int, int, int] | None:
        """Rows and columns of so many cells over the picture, and a cell's side; None: no fit."""
        for stride in STRIDES:
            for up in (1, 0):
                rows, columns = (
                    (side + up * (stride - 1)) // stride for side in (self.height, self.width)
                )
                if rows * columns == count:
                    return rows, columns, stride
        return None

    def grid(self, count: int) -> tuple[int, int]:
        """Rows and columns of cells of which it is known that they fit."""
        fit = self.cells(count)
        assert fit is not None
        return fit[:2]

    @property
    def patches(self) -> tuple[int, int]:
        assert self.patch is not None
        return self.height // self.patch[0], self.width // self.patch[1]

    def special(self, length: int) -> int:
        """How many tokens of a joint sequence are neither patches nor queries."""
        return length - self.queries - self.patches[0] * self.patches[1]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Detector(Source):
    """A pretrained model with queries for objects as a source of attention over a picture."""

    name: str  # what it was asked for as
    model: Any  # on its device, in evaluation mode
    processor: Any  # its image processor
    provenance: Provenance

    def _attend_one(self, query: Query) -> Attention:
        picture = self.picture(query)
        with imports.quiet():
            inputs = self._inputs(picture)
            sizes = self._sizes(inputs)
            reading = self._read(inputs, sizes, picture)
        refuse_without_weights(self.name, self.model.config.model_type, reading)
        objects = self._objects(reading.output, picture)
        names = _query_tokens(sizes.queries, objects)
        maps = tuple(self._maps(reading, sizes, picture, names))
        pixels = f"{sizes.height} × {sizes.width}"
        before = with_routes(self.provenance, [f"{self.model.config._attn_implementation}, probed"])
        data = [_as_data(one) for one in objects]
        settings = {**before.settings, "pixels": pixels, "objects": data}
        notes = [*before.notes, *_notes(reading)]
        provenance = replace(before, settings=settings, notes=tuple(notes))
        sheets = {
            item.stream: (0, self._box(item, inputs, picture))
            for item in maps
            if item.key_side == pictures.SIDE
        }
        likely = [f"{one.label} ({one.score:.0%})" for one in objects if one.score >= 0.5]
        return Attention(
            maps,
            provenance,
            found=objects,
            decision=", ".join(likely[:5]) + (", …" if len(likely) > 5 else ""),
            sheets=sheets,
            seen=next(iter(sheets.values()), (0, None))[1],
        )

    def picture(self, query: Query) -> Picture:
        picture = pictures.picture_of(query, self.name)
        if picture.lens != "raw":
            raise UsageError(
                f"'{self.name}' finds objects, and --lens {picture.lens} is for models of one "
                "sequence: leave it out"
            )
        return picture

    def _inputs(self, picture: Picture) -> dict[str, Any]:
        options: dict[str, Any] = {}
        if picture.size is not None:
            options = {"size": dict(zip(("height", "width"), picture.size, strict=True))}
        with devices.library_errors("the image processor in the model's folder fails"):
            batch = self.processor(picture.image, return_tensors="pt", **options)
        tensors = {name: batch[name] for name in ("pixel_values", "pixel_mask") if name in batch}
        inputs: dict[str, Any] = placed_inputs(self.model, tensors)
        if FILM in input_names(self.model):  # a picture is a film of one frame
            values = inputs.pop("pixel_values")
            inputs = {FILM: values if values.ndim == 5 else values[:, None]}
        return inputs

    def _sizes(self, inputs: dict[str, Any]) -> _Sizes:
        config = self.model.config
        height, width = map(int, _pixels_in(inputs).shape[-2:])
        last = hasattr(config, "num_detection_tokens")
        patch = getattr(config, "patch_size", None) if _is_plain(config) else None
        side = None if patch is None else pictures.pair(patch)
        marks = 1 + int(getattr(config, "num_register_tokens", None) or 0)
        return _Sizes(queries_of(config), height, width, side, last, marks)

    def _kind(self, path: str, lengths: tuple[int, int], sizes: _Sizes) -> str | None:
        """What an attention runs over: "joint", or the stream; None: nothing that is known."""
        queries, keys = lengths
        if BACKBONE.search(path):
            return None
        if sizes.patch is not None:
            return "joint" if queries == keys and sizes.special(keys) == sizes.marks else None
        stream = stream_of(path)
        if stream == "cross":
            return stream if queries == sizes.queries and sizes.cells(keys) else None
        if stream == "decoder":
            return stream if queries == keys == sizes.queries else None
        return "encoder" if queries == keys and sizes.cells(keys) else None

    def _read(self, inputs: dict[str, Any], sizes: _Sizes, picture: Picture) -> ModulePass:
        def choose(path: str, lengths: tuple[int, int]) -> TokenBlocks | None:
            kind, length = self._kind(path, lengths, sizes), lengths[0]
            if kind == "joint":
                first = length - sizes.queries if sizes.last else 0
                return TokenBlocks(first, first + sizes.queries)
            if kind != "encoder" or picture.patch == ALL:
                return None if kind is None else each_token(length)
            if picture.patch is None:
                return TokenBlocks(0, length, length)  # the mean over all cells
            grid = sizes.grid(length)
            row, column = check_patch(picture.patch, *grid)
            place = row * grid[1] + column
            return TokenBlocks(place, place + 1)

        return read_modules(self.model, inputs, choose)

    def _maps(
        self, reading: ModulePass, sizes: _Sizes, picture: Picture, names: tuple[Token, ...]
    ) -> Iterator[AttentionMap]:
        """The queries over the picture first, then over each other, then the encoder's."""
        by_kind = dict[str, list[ModuleWeights]]()
        for one in reading.readings:
            by_kind.setdefault(_kind_of_path(one.path, sizes), []).append(one)
        for kind in ("cross", "joint", "decoder", "encoder"):
            items = by_kind.get(kind, [])
            with_names = zip(layer_names([one.path for one in items]), items, strict=True)
            # Some decoders look at maps of several sizes in turn (Mask2Former).
            by_size = sorted(with_names, key=lambda pair: pair[1].weights.shape[-1])
            for keys, run in groupby(by_size, key=lambda pair: pair[1].weights.shape[-1]):
                own = list(run)
                weights = np.stack([one.weights[0] for _, one in own])
                layers = tuple(name for name, _ in own)
                yield self._map(kind, (layers, weights, keys), sizes, picture, names)

    def _map(
        self,
        kind: str,
        read: tuple[tuple[str, ...], Any, int],
        sizes: _Sizes,
        picture: Picture,
        names: tuple[Token, ...],
    ) -> AttentionMap:
        layers, weights, keys = read
        if kind == "decoder":
            return AttentionMap(
                kind, names, names, weights, layers, query_side=OBJECTS, key_side=OBJECTS
            )
        if kind == "joint":
            order, tokens = _joint_keys(sizes, keys, names)
            kind, weights = "self", weights[..., order]
        else:
            tokens = patch_tokens(*sizes.grid(keys))
        if kind != "encoder":
            return AttentionMap(
                kind, names, tokens, weights, layers, query_side=OBJECTS, key_side=pictures.SIDE
            )
        who = tokens
        if picture.patch is None:
            who = (AVERAGE,)
        elif picture.patch != ALL:
            row, column = check_patch(picture.patch, *sizes.grid(keys))
            who = (Token(f"{row},{column}"),)
        return AttentionMap(
            kind, who, tokens, weights, layers, query_side=pictures.SIDE, key_side=pictures.SIDE
        )

    def _box(
        self, item: AttentionMap, inputs: dict[str, Any], picture: Picture
    ) -> tuple[float, float, float, float]:
        """The part of the picture that cells cover, which may end beyond it, in its pixels."""
        values, mask = _pixels_in(inputs), inputs.get("pixel_mask")
        sides = [int(side) for side in values.shape[-2:]]
        own_sides = sides if mask is None else [int(mask[0].any(1 - axis).sum()) for axis in (0, 1)]
        grid, sizes = patch_grid(item.key_tokens), self._sizes(inputs)
        fit = sizes.cells(grid[0] * grid[1])
        stride = sizes.patch or (fit[2:] * 2 if fit else (1, 1))
        high, wide = (
            cells * one / own for cells, one, own in zip(grid, stride, own_sides, strict=True)
        )
        return 0.0, 0.0, wide * picture.image.width, high * picture.image.height

    def _objects(self, output: Any, picture: Picture) -> tuple[FoundObject, ...]:
        """What each query finds, the surest first; empty without a head."""
        logits = getattr(output, "logits", None)
        if logits is None:
            logits = getattr(output, "class_queries_logits", None)
        if logits is None:
            return ()
        numbers, names = to_numpy(logits[0]).astype(np.float64), self.model.config.id2label
        if numbers.shape[-1] == len(names) + 1:  # the last class is none
            shares = softmax(numbers)[:, :-1]
        else:
            shares = 0.5 * (1 + np.tanh(0.5 * numbers))
        boxes = getattr(output, "pred_boxes", None)
        places = [None] * len(shares) if boxes is None else to_numpy(boxes[0]).tolist()
        objects = list[FoundObject]()
        for query, (own, place) in enumerate(zip(shares, places, strict=True)):
            best = int(own.argmax())
            label = str(names.get(best, f"class {best}"))
            box = None if place is None else _corners(place, picture.image.size)
            objects.append(FoundObject(query, label, float(own[best]), box))
        return tuple(sorted(objects, key=lambda one: -one.score))


def _corners(place: Sequence[float], size: tuple[int, int]) -> tuple[float, float, float, float]:
    """Left, top, right and bottom in pixels of a middle, a width and a height in shares."""
    across, down, wide, high = place
    width, height = size
    return (
        (across - wide / 2) * width,
        (down - high / 2) * height,
        (across + wide / 2) * width,
        (down + high / 2) * height,
    )


def _pixels_in(inputs: dict[str, Any]) -> Any:
    return inputs[FILM] if FILM in inputs else inputs["pixel_values"]


def _kind_of_path(path: str, sizes: _Sizes) -> str:
    if sizes.patch is not None:
        return "joint"
    return stream if (stream := stream_of(path)) in ("cross", "decoder") else "encoder"


def _joint_keys(
    sizes: _Sizes, length: int, names: tuple[Token, ...]
) -> tuple[list[int], tuple[Token, ...]]:
    """The keys of a joint sequence in the order of a map, the patches last, with their names."""
    special = sizes.special(length)
    start = 0 if sizes.last else sizes.queries
    queries = length - sizes.queries if sizes.last else 0
    cells = patch_tokens(*sizes.patches)
    order = [
        *range(start, start + special),
        *range(queries, queries + sizes.queries),
        *range(start + special, start + special + len(cells)),
    ]
    marks = mark_tokens(pictures.special_names("", special))
    return order, (*marks, *(replace(one, special=True) for one in names), *cells)


def _query_tokens(count: int, objects: Sequence[FoundObject]) -> tuple[Token, ...]:
    """The queries' names, with the label and the score of what each finds."""
    said = {one.query: f": {one.label} {_short(one.score)}" for one in objects}
    return tuple(Token(f"query {number}{said.get(number, '')}") for number in range(count))


def _short(score: float) -> str:
    return f"{score:.2f}".removeprefix("0") if score < 0.995 else "1.0"


def _notes(reading: ModulePass) -> list[str]:
    notes = list[str]()
    if reading.sampled:
        kinds = dict.fromkeys(
            "the encoder" if stream_of(path) == "encoder" else "the queries over the picture"
            for path in reading.sampled
        )
        notes.append(SAMPLED.format(" and ".join(kinds)))
    if any(BACKBONE.search(path) for path in reading.skipped):
        notes.append("attention inside the backbone, which makes the map of features, is left out")
    return notes


def _as_data(one: FoundObject) -> dict[str, Any]:
    box = None if one.box is None else [round(side, 2) for side in one.box]
    return {"query": one.query, "label": one.label, "score": round(one.score, 6), "box": box}


def _is_plain(config: Any) -> bool:
    """Whether queries are among the tokens of a ViT, which has no decoder."""
    sides = ("decoder_layers", "backbone_config", "decoder_config")
    return not any(getattr(config, side, None) for side in sides)


def queries_of(config: Any) -> int:
    """How many objects a model asks for; 0: it asks for none."""
    names = ("num_detection_tokens", "num_queries")
    parts = (config, getattr(config, "decoder_config", None))
    numbers = (getattr(part, name, None) for part in parts for name in names)
    return next((number for number in numbers if isinstance(number, int) and number), 0)


def open_detector(name: str, parts: LoadedParts) -> Source | None:
    """A model with queries for objects; None: it has none, or reads a text as well.

    Raises:
        AttentionError: one that finds what a text names.
    """
    config = parts.model.config
    if not queries_of(config):
        return None
    if getattr(config, "text_config", None) is not None or hasattr(config, "task_seq_len"):
        raise AttentionError(
            f"'{name}' ({config.model_type}) finds what a text names, which no option gives here: "
            "use a model that reads pictures alone"
        )
    return Detector(
        name=name, model=parts.model, processor=parts.reader, provenance=parts.provenance
    )
