"""Models that read pictures and a text in one sequence: which patches each word looks at."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from attnviz.core.attention_map import Attention, AttentionMap, Provenance, Token
from attnviz.core.errors import ModelError, UsageError
from attnviz.core.options import InMemoryModel
from attnviz.core.query import Picture, Query
from attnviz.core.tokens import patch_tokens
from attnviz.models import UnbatchedSource
from attnviz.models.hugging_face.capture.capture import Captured, capture
from attnviz.models.hugging_face.capture.maps import with_routes
from attnviz.models.hugging_face.capture.region import PooledGrid, TokenBlocks, each_token
from attnviz.models.hugging_face.inputs.chat import apply_chat_template
from attnviz.models.hugging_face.inputs.generation import generate_ids, new_text
from attnviz.models.hugging_face.inputs.tokens import check_text, label_ids, pieces_of
from attnviz.models.hugging_face.load.checkpoint import check_growth
from attnviz.models.hugging_face.load.errors import foreign
from attnviz.models.hugging_face.load.imports import quiet
from attnviz.models.hugging_face.load.loading import LoadOptions, load_parts, model_class
from attnviz.models.hugging_face.vision.layouts import (
    BY_FAMILY,
    LAYOUTS,
    PatchLayout,
    PicturesRead,
    Sheet,
    family_of_pictures,
)
from attnviz.models.hugging_face.vision.pictures import SIDE, check_sides, picture_of

ONE_PICTURE = ("blip-2", "instructblip", "florence2")
"""Families that read no further pictures."""
PROMPTS = {"paligemma": "{0}{1}", **dict.fromkeys(ONE_PICTURE, "{1}")}
"""How pictures and text are put together where no template says it and a line break is wrong."""
WRITTEN = "written"
"""The side of the words that a model wrote, each with the look of the place that predicts it."""
BESIDE_IDS = {"attention_mask": 1, "token_type_ids": 0, "mm_token_type_ids": 0}
"""What further inputs say of a token of text."""
WRITTEN_IDS = {"paligemma": {"token_type_ids": 1}}
"""What they say of one that was written, where that is another."""


@dataclass(frozen=True, slots=True, eq=False)
class Reading:
    """A prompt with its pictures as a model reads it, and what is written behind it."""

    inputs: dict[str, Any]
    ids: list[int]  # of the prompt
    new: list[int] = field(default_factory=list)  # without the token that ends it
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class PictureTextModel(UnbatchedSource):
    """A pretrained model of pictures and text, as a source of attention.

    There is a map for each grid of patches (`Sheet`), in which the tokens of the text attend to
    the patches of the pictures before them. Its rows sum to the share that goes there; the rest
    goes to the text and to other grids. Where the model writes, the rows are the words that it
    wrote, each with the look of the place that it is predicted from.
    """

    name: str  # what it was asked for as
    model: Any  # on its device, in evaluation mode
    processor: Any  # its tokenizer and image processor in one
    provenance: Provenance  # what is made of the model is added for each picture
    max_new_tokens: int | None = None  # None: it writes nothing

    @property
    def layout(self) -> PatchLayout:
        """How its image tokens lie in a picture."""
        return LAYOUTS[BY_FAMILY[family_of_pictures(self.model.config)]]

    @property
    def tokenizer(self) -> Any:
        """What makes tokens of a text."""
        return self.processor.tokenizer

    def _attend_one(self, query: Query) -> Attention:
        picture = picture_of(query, self.name)
        check_text(query.text)
        if picture.frames and self.model.config.model_type not in self.layout.video:
            raise UsageError(f"'{self.name}' reads no video: leave --video out")
        if picture.more and self.model.config.model_type in ONE_PICTURE:
            raise UsageError(
                f"'{self.name}' reads one picture, and {len(picture.images)} are given"
            )
        with quiet():
            reading = self._read(picture, query.text)
            places = self._places(reading.ids, video=picture.frames)
            if not len(places) or places[-1] + 1 == len(reading.ids):
                raise ModelError(f"the prompt of '{self.name}' puts no text behind the pictures")
            seen = PicturesRead(
                self.name, self.model.config, self.processor, reading.inputs, picture.images,
                places, picture.frames,
            )  # fmt: skip
            sheets = self.layout.place(seen)
            if self.max_new_tokens is not None:
                reading = self._written(reading)
            text, tokens = self._words(reading, int(places[-1]) + 1)
            found = self._captured(reading, sheets, tokens)
        maps = self._maps(found, reading, sheets, places, tokens)
        shapes = {sheet.name: " × ".join(map(str, sheet.cells.shape)) for sheet in sheets}
        told = shapes.values() if len(shapes) == 1 else map(" ".join, shapes.items())
        provenance = with_routes(self.provenance, [item.route for item in found])
        provenance = replace(
            provenance,
            settings={**provenance.settings, "patches": "; ".join(told)},
            notes=(*provenance.notes, *reading.notes),
        )
        over = {f"{self._looks}-to-{one.name}": (one.picture, one.box) for one in sheets}
        return Attention(maps, provenance, text=text, seen=sheets[0].box, sheets=over)

    @property
    def _looks(self) -> str:
        return "queries" if self.layout is LAYOUTS["queries"] else "text"

    def _places(self, ids: Sequence[int], *, video: bool) -> Any:
        """Where the tokens stand that are patches of pictures, or of a video."""
        config, both = self.model.config, ("id", "index")
        names = [f"{what}_token_{one}" for what in ("video", "image")[not video :] for one in both]
        number = next((n for name in names if (n := getattr(config, name, None)) is not None), -1)
        return np.flatnonzero(np.array(ids) == number)

    def prompt(self, text: str, picture: Picture) -> str:
        """The pictures, then the text, as the model was taught to read them."""
        what, count = ("video", 1) if picture.frames else ("image", len(picture.images))
        if getattr(self.processor, "chat_template", None):
            content = [*[{"type": what}] * count, {"type": "text", "text": text}]
            return apply_chat_template(self.tokenizer, content, self.name, self.processor)
        mark = str(getattr(self.processor, f"{what}_token", ""))
        form = PROMPTS.get(family_of_pictures(self.model.config), "{0}\n{1}")
        return form.format(("\n" if "\n" in form else "").join([mark] * count), text)

    def _read(self, picture: Picture, text: str) -> Reading:
        prompt = self.prompt(text, picture)
        check_sides(self.processor.image_processor)
        images = [*picture.images]
        given: dict[str, Any] = {"images": [images] if len(images) > 1 else images[0]}
        if picture.frames:
            frames = np.stack([np.asarray(image) for image in images])
            given = {"videos": [frames], "do_sample_frames": False}  # what is given is read
            if getattr(self.processor, "video_processor", None) is None:
                raise ModelError(f"the video processor of '{self.name}' needs torchvision")
        with foreign(f"the processor of '{self.name}' fails"):
            inputs = self.processor(text=prompt, **given, return_tensors="pt")
        device, dtype = self.model.device, self.model.dtype
        taken = {
            name: row.to(device, dtype if row.is_floating_point() else row.dtype)
            for name, row in inputs.items()
            if name != "labels"
        }
        return Reading(taken, taken["input_ids"][0].tolist())

    def _written(self, reading: Reading) -> Reading:
        """The prompt with what the model writes behind it, or into its decoder."""
        import torch

        assert self.max_new_tokens is not None
        kept, cut = generate_ids(self, reading.inputs, self.max_new_tokens)
        decoder = self.model.config.is_encoder_decoder
        start = [] if decoder else reading.ids
        new = kept[len(start) :] if kept[: len(start)] == start else kept
        if len(new) <= decoder:
            raise ModelError("the model wrote nothing about this picture: give another --text")
        inputs = dict(reading.inputs)
        # The last token predicts nothing that is shown, and is left out.
        more = torch.tensor([new[:-1]], device=self.model.device)
        if decoder:
            inputs["decoder_input_ids"] = more
            new = new[1:]
        else:
            written = {**BESIDE_IDS, **WRITTEN_IDS.get(self.model.config.model_type, {})}
            for name in inputs.keys() & {"input_ids", *written}:
                behind = more if name == "input_ids" else torch.full_like(more, written[name])
                inputs[name] = torch.cat([inputs[name], behind.to(inputs[name])], dim=1)
        note = (
            "the output was generated greedily, then read in one pass: each word with the look of "
            "the place that it is predicted from"
        )
        return replace(reading, inputs=inputs, new=new, notes=(note, *cut))

    def _words(self, reading: Reading, behind: int) -> tuple[str, tuple[Token, ...]]:
        """The text behind the pictures, and the tokens that look: what was written, or all of it.

        `behind` is where the text begins.
        """
        ids = reading.ids[behind:]
        text = new_text(self.tokenizer, [], ids)
        if not reading.new:
            return text, label_ids(self.tokenizer, ids, text)
        output = new_text(self.tokenizer, reading.ids, reading.new)
        return text + output, label_ids(self.tokenizer, reading.new, output, before=text)

    def _captured(
        self, reading: Reading, sheets: Sequence[Sheet], tokens: Sequence[Token]
    ) -> list[Captured]:
        """The rows of the tokens in every layer, and what a fixed number of queries look at."""
        config, length = self.model.config, len(reading.ids)
        behind, decoder = max(len(reading.new) - 1, 0), config.is_encoder_decoder
        stream = "self" if not decoder else "cross" if reading.new else "encoder"
        sides = {stream: (length + behind, length + behind)}
        if decoder:
            sides = {stream: (len(reading.new) if reading.new else length, length)}
        last = sides[stream][0]
        grids = {
            stream: PooledGrid(TokenBlocks(last - len(tokens), last), each_token(sides[stream][1]))
        }
        if self._looks == "queries":
            keys = sheets[0].cells.size + len(sheets[0].placeless)
            sides["cross"] = (int(config.num_query_tokens), keys)
            grids["cross"] = PooledGrid(*map(each_token, sides["cross"]))
        return capture(self.model, reading.inputs, sides, grids=grids)

    def _maps(
        self,
        found: Sequence[Captured],
        reading: Reading,
        sheets: Sequence[Sheet],
        places: Any,
        tokens: tuple[Token, ...],
    ) -> tuple[AttentionMap, ...]:
        """A map for each grid of patches and each run of layers of one shape."""
        side = WRITTEN if reading.new else "text"
        if self._looks == "queries":
            words, looks = (
                [item for item in found if (item.stream == "cross") == cross]
                for cross in (False, True)
            )
            rows = tuple(Token(f"query {number}") for number in range(len(places)))
            return (
                *(_over(item, sheets[0], rows, "queries", sheets[0].placeless) for item in looks),
                *(
                    AttentionMap("text-to-queries", tokens, rows, item.weights[..., places],
                                 layers=item.layers, query_side=side, key_side="queries")
                    for item in words
                ),
            )  # fmt: skip
        cells = {int(place) for sheet in sheets for place in sheet.cells.flat}
        named = {place: name for sheet in sheets for place, name in sheet.placeless.items()}
        loose = [place for place in range(places[0], places[-1] + 1) if place not in cells]
        pieces = pieces_of(self.tokenizer, [reading.ids[place] for place in loose])
        marks = {place: named.get(place, piece) for place, piece in zip(loose, pieces, strict=True)}
        # What has no place is told of with the grid whose first cell is the last before it.
        starts = np.array([sheet.cells.min() for sheet in sheets])
        owner = {place: int(np.where(starts <= place, starts, -1).argmax()) for place in marks}
        return tuple(
            _over(item, sheet, tokens, side,
                  {place: name for place, name in marks.items() if owner[place] == number})
            for number, sheet in enumerate(sheets)
            for item in found
        )  # fmt: skip


def _over(
    item: Captured,
    sheet: Sheet,
    tokens: tuple[Token, ...],
    side: str,
    marks: Mapping[int, str],
) -> AttentionMap:
    """What the tokens give to one grid of patches, behind what has no place in it."""
    looks = "queries" if side == "queries" else "text"
    return AttentionMap(
        f"{looks}-to-{sheet.name}",
        tokens,
        (
            *(Token(name, special=True) for name in marks.values()),
            *patch_tokens(*sheet.cells.shape),
        ),
        item.weights[..., [*marks, *sheet.cells.flat]],
        layers=item.layers,
        query_side=side,
        key_side=SIDE,
    )


def load_picture_text_model(
    name: str | InMemoryModel, generate: int | None = None, **options: Any
) -> PictureTextModel:
    """A pretrained model of pictures and text; options are the fields of `LoadOptions`.

    `generate` is how many tokens it writes at most; None: none.
    """
    parts = load_parts(
        name, LoadOptions(**options), _load_both, partial(model_class, with_head=True)
    )
    config, model = parts.model.config, parts.model
    kind = family_of_pictures(config)
    if kind not in BY_FAMILY:
        both = hasattr(config, "vision_config") and hasattr(parts.reader, "image_token")
        raise ModelError(
            f"'{name}' ({config.model_type}) "
            + (
                "reads pictures and text, but it is not known where its image tokens lie in a "
                f"picture; known are {', '.join(BY_FAMILY)}"
                if both
                else "does not read a picture and a text in one sequence: leave --text out, or use "
                "a model of LLaVA's kind"
            )
        )
    if BY_FAMILY[kind] == "queries" and config.text_config.is_encoder_decoder:
        raise ModelError(
            f"'{name}' ({kind}) writes with an encoder and a decoder, whose attention is not told "
            "apart from that of its queries: use one with a decoder alone"
        )
    silent = not model.can_generate() or any(
        "lm_head" in key for key in parts.report["missing_keys"]
    )
    if generate is not None and silent:
        raise ModelError(f"'{name}' has no trained language-model head: leave --generate out")
    return PictureTextModel(str(name), model, parts.reader, parts.provenance, generate)


def _load_both(folder: Path, name: str) -> Any:
    import transformers
    from transformers.models.auto import processing_auto
    from transformers.utils.import_utils import is_torchvision_available

    check_growth(folder)
    auto: Any = transformers.AutoProcessor
    known = vars(processing_auto)["PROCESSOR_MAPPING_NAMES"]
    with foreign(f"the processor of '{name}' cannot be loaded"):
        if not is_torchvision_available():
            files = [folder / one for one in NAMING]
            told = [json.loads(file.read_bytes()) for file in files if file.is_file()]
            named = [one["processor_class"] for one in told if "processor_class" in one]
            called = [*named, known.get(told[0]["model_type"])][0]
            kind = getattr(transformers, called or "", None)
            if "video_processor" in getattr(kind, "get_attributes", list)():
                auto = still(kind)
        return auto.from_pretrained(folder, local_files_only=True)


NAMING = (
    *("config.json", "processor_config.json", "preprocessor_config.json", "tokenizer_config.json"),
)
"""The files that say which architecture a model is of, and may say which processor it has."""


def still(kind: Any) -> Any:
    """A class of processors without what reads videos, for which transformers needs torchvision."""
    attributes = [name for name in kind.get_attributes() if name != "video_processor"]
    return type(kind.__name__, (kind,), {"get_attributes": classmethod(lambda _: attributes)})
