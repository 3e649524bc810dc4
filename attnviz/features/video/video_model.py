"""Video models: where a film's class token, or its tubes on average, look, frame by frame.

A tube covers a few frames and a patch of each (Arnab et al. 2021, "ViViT"; Tong et al. 2022,
"VideoMAE"); tubes follow each other by time, then row by row. Attention over all tubes has a map
for each step of time, all in one softmax. Where space and time attend apart (Bertasius et al. 2021,
"TimeSformer"), a map of space runs over one frame, and the map of time over frames at one place.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from inspect import signature
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from attnviz.core.attention_map import Attention, AttentionMap, Provenance, Token
from attnviz.core.errors import AttentionError, InputError, ModelError, UsageError, is_number
from attnviz.core.query import Picture, Query
from attnviz.core.records import dataclass, replace
from attnviz.core.tokens import AVERAGE, mark_tokens, parse_patch, patch_tokens
from attnviz.features.modules.weights import (
    ModulePass,
    ModuleWeights,
    read_modules,
    refuse_without_weights,
)
from attnviz.features.vision import pictures
from attnviz.models import Source
from attnviz.models.hugging_face.capture.capture import with_routes
from attnviz.models.hugging_face.capture.kernel import layer_names
from attnviz.models.hugging_face.capture.region import TokenBlocks, each_token
from attnviz.models.hugging_face.load import devices, family, imports
from attnviz.models.hugging_face.load.loading import LoadedParts
from attnviz.models.hugging_face.loaded_model import input_names

ALL = "all"  # the name of every tube
APART = (
    "space and time attend apart: rows of a map of space sum to 1 over one frame, rows of the map "
    "'time' over the frames at one place"
)


class Tubes(NamedTuple):
    """How many tubes a film has, and how many frames and pixels each covers."""

    steps: int
    rows: int
    columns: int
    frames: int  # of a step
    height: int
    width: int

    @property
    def places(self) -> int:
        return self.rows * self.columns

    def step_name(self, step: int) -> str:
        first, last = step * self.frames, (step + 1) * self.frames - 1
        return f"frame {first}" if first == last else f"frames {first}-{last}"


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class VideoModel(Source):
    """A pretrained video model as a source of attention of a film over itself."""

    name: str  # what it was asked for as
    model: Any  # on its device, in evaluation mode
    processor: Any  # its image or video processor
    provenance: Provenance
    task: family.Task | None = None  # of its head

    @property
    def most_frames(self) -> int:
        """How many frames it reads; no other number fits its positions."""
        return frames_of(self.model.config)

    def _attend_one(self, query: Query) -> Attention:
        picture = self.picture(query)
        with imports.quiet():
            inputs = self._inputs(picture)
            tubes = self._tubes(inputs)
            place = parse_tube(picture.patch, tubes)
            self._check_room(picture, tubes)
            reading = self._read(inputs, tubes, place, every=picture.patch == ALL)
        refuse_without_weights(self.name, self.model.config.model_type, reading)
        maps, notes = self._maps(reading, tubes, place, every=picture.patch == ALL)
        box = self._box(picture, tubes, inputs)
        numbers = {tubes.step_name(step): step * tubes.frames for step in range(tubes.steps)}
        sheets = {
            item.stream: (numbers[item.stream.partition("-to-")[2]], box)
            for item in maps
            if item.key_side == pictures.SIDE
        }
        settings: dict[str, Any] = {
            "frames": len(picture.images),
            "tubes": f"{tubes.steps} × {tubes.rows} × {tubes.columns}",
        }
        before = with_routes(self.provenance, [f"{self.model.config._attn_implementation}, probed"])
        settings = {**before.settings, **settings}
        provenance = replace(before, settings=settings, notes=(*before.notes, *notes))
        attention = Attention(maps, provenance, seen=box, sheets=sheets)
        logits = getattr(reading.output, "logits", None)
        if self.task is None or logits is None:
            return attention
        return family.show_decision(attention, self.task, logits, ())

    def picture(self, query: Query) -> Picture:
        """The film of a query; refused if it is a picture, or another lens is asked for."""
        picture = pictures.picture_of(query, self.name)
        if not picture.frames:
            raise UsageError(
                f"'{self.name}' reads films of {self.most_frames} frames: give a video file, a "
                "folder of frames or several pictures, and --video"
            )
        if picture.lens != "raw":
            raise UsageError(f"--lens {picture.lens} is for pictures and texts: leave it out")
        if len(picture.images) != self.most_frames:
            raise InputError(
                f"'{self.name}' reads {self.most_frames} frames, and {len(picture.images)} are "
                "given"
            )
        return picture

    def _inputs(self, picture: Picture) -> dict[str, Any]:
        """The frames as the model takes them, shape (1, frames, channels, height, width)."""
        frames, options = [*picture.images], dict[str, Any]()
        if picture.size is not None:
            options = {"size": dict(zip(("height", "width"), picture.size, strict=True))}
            options["do_center_crop"] = False
        pictures.check_picture_sides(self.processor)
        word = self.model.main_input_name
        with devices.library_errors("the processor in the model's folder fails"):
            if _reads_films(self.processor):
                film = np.stack([np.asarray(frame) for frame in frames])
                values = self.processor(videos=film, return_tensors="pt", **options)[word]
            else:
                values = self.processor(frames, return_tensors="pt", **options)["pixel_values"]
                values = values[None] if values.ndim == 4 else values
        inputs = {word: values.to(self.model.device, self.model.dtype)}
        if "skip_predictor" in input_names(self.model):  # it reads masked tubes, in another order
            inputs["skip_predictor"] = True
        return inputs

    def _tubes(self, inputs: dict[str, Any]) -> Tubes:
        config, values = self.model.config, inputs[self.model.main_input_name]
        if values.ndim != 5:
            raise ModelError(
                f"the processor of '{self.name}' makes an array of {values.ndim} axes of a film, "
                "not of 5"
            )
        tube = getattr(config, "tubelet_size", None) or 1
        deep, *sides = [tube] if isinstance(tube, int) else tube
        high, wide = sides or pictures.pair(config.patch_size)
        frames, _, height, width = map(int, values.shape[1:])
        return Tubes(frames // deep, height // high, width // wide, int(deep), high, wide)

    def _read(
        self,
        inputs: dict[str, Any],
        tubes: Tubes,
        place: tuple[int, int, int] | None,
        *,
        every: bool,
    ) -> ModulePass:
        count = tubes.steps * tubes.places

        def choose(path: str, sizes: tuple[int, int]) -> TokenBlocks | None:
            (queries, keys) = sizes
            kind = _kind_of(path, queries, tubes)
            if queries != keys or kind is None:
                return None
            if kind == "time" or every:
                return each_token(queries)
            own = count if kind == "tubes" else tubes.places
            special = queries - own
            if place is not None:
                step, row, column = place
                at = row * tubes.columns + column
                number = at if kind == "space" else self._position(step, at, tubes)
                return TokenBlocks(special + number, special + number + 1)
            if special:
                return TokenBlocks(0, 1)
            return TokenBlocks(0, queries, queries)  # the mean over all

        return read_modules(self.model, inputs, choose)

    @property
    def _by_place(self) -> bool:
        """Whether tubes follow each other by place, then by time."""
        return getattr(self.model.config, "attention_type", "") == "joint_space_time"

    def _position(self, step: int, place: int, tubes: Tubes) -> int:
        return place * tubes.steps + step if self._by_place else step * tubes.places + place

    def _maps(
        self, reading: ModulePass, tubes: Tubes, place: tuple[int, int, int] | None, *, every: bool
    ) -> tuple[tuple[AttentionMap, ...], list[str]]:
        by_kind = dict[str, list[ModuleWeights]]()
        for one in reading.readings:
            by_kind.setdefault(_kind_of(one.path, one.weights.shape[-1], tubes) or "", []).append(
                one
            )
        notes, maps = list[str](), list[AttentionMap]()
        for kind, items in by_kind.items():
            own, others = _main_stack(items)
            if others:
                notes.append(f"attention of {', '.join(others)} is left out: its tubes are others")
            names = tuple(layer_names([one.path for one in own]))
            if kind == "time":
                maps.append(_time_map(own, names, tubes, place))
            else:
                maps += self._frame_maps(kind, own, names, tubes, place, every=every)
        if "time" in by_kind and "space" in by_kind:
            notes.append(APART)
        maps.sort(key=lambda item: item.stream == "time")
        return tuple(maps), notes

    def _frame_maps(
        self,
        kind: str,
        items: Sequence[ModuleWeights],
        layers: tuple[str, ...],
        tubes: Tubes,
        place: tuple[int, int, int] | None,
        *,
        every: bool,
    ) -> Iterator[AttentionMap]:
        """A map for each step, its keys the patches of that step."""
        weights = np.stack([one.weights for one in items])  # (layers, batch, heads, rows, keys)
        count = tubes.steps * tubes.places if kind == "tubes" else tubes.places
        special = weights.shape[-1] - count
        marks = mark_tokens(pictures.special_names("", special))
        patches = patch_tokens(tubes.rows, tubes.columns)
        for step in range(tubes.steps):
            own = [special + self._position(step, at, tubes) for at in range(tubes.places)]
            batch, first = 0, step == 0 or kind == "space"
            if kind == "space":
                batch, own = step, [*range(special, special + count)]
            keys = [*range(special if first else 0), *own]
            yield AttentionMap(
                f"{'video' if kind == 'tubes' else 'space'}-to-{tubes.step_name(step)}",
                self._queries(kind, special, tubes, place, every=every),
                (*(marks if first else ()), *patches),
                weights[:, batch][..., keys],
                layers=layers,
                query_side="video",
                key_side=pictures.SIDE,
            )

    def _queries(
        self,
        kind: str,
        special: int,
        tubes: Tubes,
        place: tuple[int, int, int] | None,
        *,
        every: bool,
    ) -> tuple[Token, ...]:
        marks = mark_tokens(pictures.special_names("", special))
        if every and kind == "space":
            return (*marks, *patch_tokens(tubes.rows, tubes.columns))
        if every:
            names = [""] * (tubes.steps * tubes.places)
            for step in range(tubes.steps):
                for at in range(tubes.places):
                    row, column = divmod(at, tubes.columns)
                    names[self._position(step, at, tubes)] = f"{step},{row},{column}"
            return (*marks, *map(Token, names))
        if place is not None:
            step, row, column = place
            return (Token(f"{row},{column}" if kind == "space" else f"{step},{row},{column}"),)
        return marks[:1] or (AVERAGE,)

    def _box(self, picture: Picture, tubes: Tubes, inputs: dict[str, Any]) -> pictures.Box:
        """The part of each frame that its patches cover."""
        height, width = inputs[self.model.main_input_name].shape[-2:]
        left, top, right, bottom = pictures.seen_box(self.processor, picture.image, picture.size)
        high, wide = tubes.rows * tubes.height / height, tubes.columns * tubes.width / width
        return left, top, left + wide * (right - left), top + high * (bottom - top)

    def _check_room(self, picture: Picture, tubes: Tubes) -> None:
        if picture.patch != ALL:
            return
        count = tubes.steps * tubes.places + 1
        config = self.model.config
        heads = config.num_hidden_layers * config.num_attention_heads
        what, cpu = f"a film of {count:,} tubes", devices.choose_device("cpu")
        devices.check_fit(3 * 4 * heads * count**2, cpu, what, "choose one --patch")


def _reads_films(processor: Any) -> bool:
    """Whether a processor reads films, or pictures."""
    return "videos" in signature(processor).parameters


def _kind_of(path: str, length: int, tubes: Tubes) -> str | None:
    """What an attention over that many positions runs over; None: nothing that is known."""
    lengths = {
        "tubes": tubes.steps * tubes.places,
        "space": tubes.places,
        "time": tubes.steps,
    }
    fits = [kind for kind, own in lengths.items() if length in (own, own + 1)]
    if {"space", "time"} <= {*fits}:
        return "time" if "tempor" in path else "space"
    return fits[0] if fits else None


def _main_stack(items: Sequence[ModuleWeights]) -> tuple[list[ModuleWeights], list[str]]:
    """The layers of the deepest stack, and the names of others (a predictor, a pooler)."""
    stacks = dict[str, list[ModuleWeights]]()
    for one in items:
        stacks.setdefault(re.sub(r"\d+", "#", one.path), []).append(one)
    deepest = max(stacks, key=lambda name: len(stacks[name]))
    others = [name.partition(".#")[0] for name in stacks if name != deepest]
    return stacks[deepest], others


def _time_map(
    items: Sequence[ModuleWeights],
    layers: tuple[str, ...],
    tubes: Tubes,
    place: tuple[int, int, int] | None,
) -> AttentionMap:
    """Frames over frames at one place, or in the mean over places."""
    at = None if place is None else place[1] * tubes.columns + place[2]
    weights: list[NDArray[np.floating]] = [
        one.weights.mean(axis=0, dtype=np.float64) if at is None else one.weights[at]
        for one in items
    ]
    special = weights[0].shape[-1] - tubes.steps
    marks = mark_tokens(pictures.special_names("", special))
    frames = (*marks, *(Token(tubes.step_name(step)) for step in range(tubes.steps)))
    array = np.stack(weights).astype(np.float32)
    return AttentionMap(
        "time", frames, frames, array, layers=layers, query_side="frames", key_side="frames"
    )


def parse_tube(patch: str | None, tubes: Tubes) -> tuple[int, int, int] | None:
    """Step, row and column of "STEP,ROW,COLUMN", or of "ROW,COLUMN" in the first step."""
    if patch in (None, ALL):
        return None
    first, _, rest = str(patch).partition(",")
    step, (row, column) = 0, (0, 0)
    if "," in rest and is_number(first.strip()):
        step, (row, column) = int(first), parse_patch(rest)
    else:
        row, column = parse_patch(str(patch))
    if step >= tubes.steps or row >= tubes.rows or column >= tubes.columns:
        raise UsageError(
            f"patch {patch} does not exist: the film has {tubes.steps} steps of {tubes.rows} × "
            f"{tubes.columns}, 0,0,0 to {tubes.steps - 1},{tubes.rows - 1},{tubes.columns - 1}"
        )
    return step, row, column


def frames_of(config: Any) -> int:
    """How many frames a video model reads; 0: it reads no film alone."""
    if getattr(config, "text_config", None) is not None:
        return 0
    names = ("num_frames", "frames_per_clip")
    is_film = hasattr(config, "tubelet_size") or hasattr(config, "attention_type")
    numbers = (getattr(config, name, None) for name in names)
    return next((int(n) for n in numbers if isinstance(n, int) and is_film), 0)


def open_video(name: str, parts: LoadedParts) -> Source | None:
    """A model that reads films, or the part of one that does; None: it reads something else."""
    model, provenance = parts.model, parts.provenance
    if not frames_of(model.config):
        towers = [(path, one) for path, one in model.named_children() if hasattr(one, "config")]
        path, model = next(
            ((path, one) for path, one in towers if frames_of(one.config)), ("", None)
        )
        if model is None:
            if hasattr(getattr(parts.model.config, "vision_config", 0), "num_frames"):  # X-CLIP
                raise AttentionError(
                    f"'{name}' reads the frames of a film as a batch of pictures: films are read "
                    "of models whose frames are one sequence"
                )
            return None
        note = f"read through its {path} ({type(model).__name__}): the model reads texts as well"
        provenance = replace(provenance, notes=(*provenance.notes, note))
    if parts.reader is None:
        raise AttentionError(f"'{name}' has no processor of films")
    return VideoModel(
        name=name,
        model=model,
        processor=parts.reader,
        provenance=provenance,
        task=parts.task,
    )
