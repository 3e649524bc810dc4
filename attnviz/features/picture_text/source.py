"""Models that read pictures and a text in one sequence: which patches each word looks at."""

import json
from collections.abc import Mapping, Sequence
from copy import copy
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from attnviz.core.attention_map import Attention, AttentionMap, Provenance, Token
from attnviz.core.errors import ModelError, UsageError
from attnviz.core.options import InMemoryModel
from attnviz.core.query import Picture, Query
from attnviz.core.records import dataclass, field, replace
from attnviz.core.registry import ANSWERS
from attnviz.core.tokens import mark_tokens, patch_tokens
from attnviz.features.picture_text.layouts import (
    BY_FAMILY,
    LAYOUTS,
    PicturesRead,
    Sheet,
    image_token_of,
    place_by_probes,
)
from attnviz.features.picture_text.outside_sequence import PictureSight, find_outside_sequence
from attnviz.features.picture_text.probe import PlacelessError, embeddings_of, find_cells
from attnviz.features.vision.pictures import (
    CAPTIONER,
    SIDE,
    check_picture_sides,
    load_processor,
    picture_of,
    pixels,
)
from attnviz.models import Source
from attnviz.models.hugging_face.capture.capture import Captured, capture, with_routes
from attnviz.models.hugging_face.capture.region import PooledGrid, TokenBlocks, each_token
from attnviz.models.hugging_face.inputs.chat import render_messages
from attnviz.models.hugging_face.inputs.generation import generate_ids, new_text, start_token
from attnviz.models.hugging_face.inputs.tokenization import (
    check_text,
    label_ids,
    pieces_of,
    tokenizer_errors,
)
from attnviz.models.hugging_face.load import checkpoint, devices, imports, loading
from attnviz.models.hugging_face.loaded_model import input_names, placed_inputs

ONE_PICTURE = (
    "blip-2",
    "instructblip",
    "florence2",
    CAPTIONER,
)  # families that read one picture only
PROMPTS = {"paligemma": "{0}{1}", **dict.fromkeys((*ONE_PICTURE, "fuyu", "idefics"), "{1}")}
"""Prompts of families without a chat template; {0}: pictures, {1}: text. Others break the line."""
PAGE_PROMPT = "Describe the image."
"""What late interaction reads behind a page (ColPali); a text stands in its place."""
WRITTEN = "written"  # the side of written words, at the rows that predict them
BESIDE_IDS = {"attention_mask": 1, "token_type_ids": 0, "mm_token_type_ids": 0}
"""Values of further inputs at a token of text."""
WRITTEN_IDS = {"paligemma": {"token_type_ids": 1}}  # their values at written tokens


@dataclass(frozen=True, slots=True, eq=False)
class Reading:
    """A prompt with its pictures as a model reads it, and what the model wrote after it."""

    inputs: dict[str, Any]
    ids: list[int]  # of the prompt
    new: list[int] = field(default_factory=list)  # without the token that ends it
    notes: tuple[str, ...] = ()
    text: str = ""  # what was asked


@dataclass(frozen=True, slots=True, eq=False)
class PictureTextModel(Source):
    """A pretrained model of pictures and text, as a source of attention.

    Each grid of patches (`Sheet`) has a map, in which tokens of the text attend to the patches of
    the pictures before them. A row sums to the share that goes to this grid; the rest goes to the
    text and to other grids. Where the model writes, the rows are the words that it wrote, each with
    the weights of the position that predicts it.
    """

    answers = ANSWERS["picture-text"]

    name: str  # what it was asked for as
    model: Any  # on its device, in evaluation mode
    processor: Any  # its tokenizer and image processor in one
    provenance: Provenance  # of the model; each picture adds to it
    max_new_tokens: int | None = None  # None: it writes nothing

    @property
    def kind(self) -> str:
        return str(self.model.config.model_type)

    @property
    def tokenizer(self) -> Any:
        return self.processor.tokenizer

    def _attend_one(self, query: Query) -> Attention:
        picture = picture_of(query, self.name)
        if not query.text and self.max_new_tokens is not None:
            if self.kind != CAPTIONER:
                raise UsageError("--generate is read together with --text: give that too")
        else:
            check_text(query.text)
        if picture.frames and not mark_of(self.processor, self.model.config, "video"):
            raise UsageError(f"'{self.name}' reads no video: leave --video out")
        pages = hasattr(self.processor, "visual_prompt_prefix")
        if picture.more and (pages or self.kind in ONE_PICTURE):
            raise UsageError(
                f"'{self.name}' reads one picture, and {len(picture.images)} are given"
            )
        with imports.quiet():
            reading = self.read(picture, query.text)
            sight = self.sight_of(reading, picture)
            sheets = sight.sheets
            if self.max_new_tokens is not None:
                reading = self.write(reading)
            text, tokens = self._words(reading, int(sight.places[-1]) + 1)
            every = self._capture(reading, sight, tokens)
        captures = [item for item in every if item.layout is None]
        others = ", ".join(dict.fromkeys(item.stream for item in every if item.layout is not None))
        if others:  # Inkling 2 attends over depth too
            left = (f"attention of the stream {others} is left out: its keys are no tokens",)
            reading = replace(reading, notes=(*reading.notes, *left))
        maps = self._maps(captures, reading, sight, tokens)
        shapes = {sheet.name: " × ".join(map(str, sheet.cells.shape)) for sheet in sheets}
        patches = shapes.values() if len(shapes) == 1 else map(" ".join, shapes.items())
        if not sheets:  # whose patches they gather from is not shown
            left = ("the picture's tokens have no place in it, so no map lies over it",)
            reading = replace(reading, notes=(*reading.notes, *left))
        provenance = with_routes(self.provenance, [item.route for item in captures])
        settings = {**provenance.settings, "patches": "; ".join(patches)}
        notes = (*provenance.notes, *reading.notes)
        provenance = replace(provenance, settings=settings, notes=notes)
        who = "queries" if sight.queries else "text"
        over = {f"{who}-to-{one.name}": (one.picture, one.box) for one in sheets}
        box = next((one.box for one in sheets), None)
        return Attention(maps, provenance, text=text, seen=box, sheets=over)

    @property
    def looks(self) -> str:
        return "queries" if BY_FAMILY.get(self.kind) == "queries" else "text"

    def sight_of(self, reading: Reading, picture: Picture) -> PictureSight:
        """Where the tokens of the pictures are, and which parts of them they are made of."""
        ids, row = np.array(reading.ids), BY_FAMILY.get(self.kind)
        places = self.places_of_pictures(reading.ids, video=picture.frames)
        read = PicturesRead(
            name=self.name,
            config=self.model.config,
            processor=self.processor,
            inputs=reading.inputs,
            pictures=picture.images,
            places=places,
            video=picture.frames,
        )
        made_of = partial(self._made_of, picture, reading.text)
        embed = partial(self._embed, length=len(ids))
        if row is not None:
            if self.looks == "queries":
                sheets = LAYOUTS[row].place(read)
                keys = sheets[0].cells.size + len(sheets[0].placeless)
                sight = PictureSight(places, sheets, "cross", keys, queries=True)
            else:
                sight = PictureSight(places, LAYOUTS[row].place(read))
        else:
            try:
                cells = find_cells(self.model, made_of, picture.images, embed)
                places = np.flatnonzero(np.isin(ids, ids[cells.places]))
                sight = PictureSight(places, place_by_probes(replace(read, places=places), cells))
            except PlacelessError:
                plain = partial(embed, plain=True)
                outside = find_outside_sequence(self.model, made_of, plain, read, len(ids))
                if outside is None:
                    raise
                sight = outside
        if not len(sight.places) or sight.places[-1] + 1 == len(ids):
            raise ModelError(f"the prompt of '{self.name}' puts no text behind the pictures")
        return sight

    def _made_of(self, picture: Picture, text: str, images: Sequence[Any]) -> dict[str, Any]:
        return self._inputs(replace_images(picture, images), text)

    def places_of_pictures(self, ids: Sequence[int], *, video: bool) -> Any:
        """The positions of the tokens of pictures, or of a video, as the configuration says."""
        number = image_token_of(self.model.config, "video") if video else None
        if number is None:
            number = image_token_of(self.model.config)
        mark = mark_of(self.processor, self.model.config, "image") if number is None else ""
        if mark and self.kind != CAPTIONER:
            number = self.tokenizer.convert_tokens_to_ids(mark)
        return np.flatnonzero(np.array(ids) == (-1 if number is None else number))

    def _embed(self, inputs: Mapping[str, Any], *, length: int, plain: bool = False) -> Any:
        """What the text reads of the pictures, from the model's inputs."""
        with devices.running_errors(self.model, SIDE):
            if self.kind == CAPTIONER:
                return self.model.encoder(**inputs).last_hidden_state
            return embeddings_of(self.model, inputs, length, plain=plain)

    def prompt(self, text: str, picture: Picture) -> str:
        """The pictures, then the text, in the form of the model's training."""
        what, count = picture_word(picture), 1 if picture.frames else len(picture.images)
        if getattr(self.processor, "chat_template", None):
            content = [*[{"type": what}] * count, {"type": "text", "text": text}]
            return render_messages(
                self.tokenizer, [{"role": "user", "content": content}], self.name, self.processor
            )
        mark = mark_of(self.processor, self.model.config, what)
        form = PROMPTS.get(self.kind, "{0}\n{1}")
        return form.format(("\n" if "\n" in form else "").join([mark] * count), text)

    def read(self, picture: Picture, text: str) -> Reading:
        """The prompt; of a captioner the tokens of the picture, as ids of -1, and a text."""
        import torch

        inputs = self._inputs(picture, text)
        if self.kind != CAPTIONER:
            return Reading(inputs, inputs["input_ids"][0].tolist(), text=text)
        with devices.running_errors(self.model, SIDE), torch.no_grad():
            output = self.model.encoder(**inputs)
        start = start_token(self.model)
        with tokenizer_errors(self.tokenizer):
            ids = self.tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
        prompt = torch.tensor([[start, *ids]], device=self.model.device)
        inputs |= {"encoder_outputs": output, "decoder_input_ids": prompt}
        return Reading(inputs, [-1] * output.last_hidden_state.shape[1] + [start, *ids], text=text)

    def _inputs(self, picture: Picture, text: str) -> dict[str, Any]:
        """What the processor makes of a prompt with pictures, or of a captioner's picture."""
        if self.kind == CAPTIONER:
            values = pixels(self.processor.image_processor, picture.image, None)
            return placed_inputs(self.model, {"pixel_values": values})
        check_picture_sides(self.processor.image_processor)
        if (page := getattr(self.processor, "visual_prompt_prefix", None)) is not None:
            return placed_inputs(self.model, self._read_page(page, picture, text))
        prompt, images = self.prompt(text, picture), [*picture.images]
        pictures: dict[str, Any] = {"images": [images] if len(images) > 1 else images[0]}
        if picture.frames:
            frames = np.stack([np.asarray(image) for image in images])
            pictures = {"videos": [frames], "do_sample_frames": False}  # what is given is read
            if getattr(self.processor, "video_processor", None) is None:
                raise ModelError(f"the video processor of '{self.name}' needs torchvision")
        kinds = "mm_token_type_ids"  # some processors give them only where they are asked for
        if kinds in input_names(self.model):
            pictures[f"return_{kinds}"] = True
        with devices.library_errors(f"the processor of '{self.name}' fails"):
            inputs = self.processor(text=prompt, **pictures, return_tensors="pt")
        inputs.pop("labels", None)
        return placed_inputs(self.model, inputs)

    def _read_page(self, prompt: str, picture: Picture, text: str) -> Any:
        """What a processor of pages and queries makes of pages, with a text in their prompt."""
        if PAGE_PROMPT not in prompt:
            raise ModelError(f"the prompt for pages of '{self.name}' has no '{PAGE_PROMPT}'")
        processor = copy(self.processor)
        processor.visual_prompt_prefix = prompt.replace(PAGE_PROMPT, text)
        with devices.library_errors(f"the processor of '{self.name}' fails"):
            inputs = processor.process_images([*picture.images])
        inputs.pop("labels", None)
        return inputs

    def write(self, reading: Reading) -> Reading:
        """The prompt with the model's output after it, or in its decoder."""
        import torch

        assert self.max_new_tokens is not None
        ids, cut = generate_ids(self, reading.inputs, self.max_new_tokens)
        decoder = self.model.config.is_encoder_decoder and "decoder_input_ids" not in reading.inputs
        start = [] if decoder else [number for number in reading.ids if number >= 0]
        new = ids[len(start) :] if ids[: len(start)] == start else ids
        if len(new) <= decoder:
            raise ModelError("the model wrote nothing about this picture: give another --text")
        inputs = dict(reading.inputs)
        # Nothing that the last token predicts is shown: leave it out.
        more = torch.tensor([new[:-1]], device=self.model.device)
        if decoder:
            inputs["decoder_input_ids"] = more
            new = new[1:]
        else:
            values = {**BESIDE_IDS, **WRITTEN_IDS.get(self.kind, {})}
            for name in inputs.keys() & {"input_ids", "decoder_input_ids", *values}:
                behind = more if name.endswith("input_ids") else torch.full_like(more, values[name])
                inputs[name] = torch.cat([inputs[name], behind.to(inputs[name])], dim=1)
        note = (
            "the output was generated greedily, then read in one pass: each word has the weights "
            "of the position that predicts it"
        )
        return replace(reading, inputs=inputs, new=new, notes=(note, *cut))

    def _words(self, reading: Reading, behind: int) -> tuple[str, tuple[Token, ...]]:
        """The text from position `behind`, and its tokens or, if it has any, the written ones."""
        ids = reading.ids[behind:]
        text = new_text(self.tokenizer, [], ids)
        if not reading.new:
            return text, label_ids(self.tokenizer, ids, text)
        output = new_text(self.tokenizer, ids, reading.new)
        return text + output, label_ids(self.tokenizer, reading.new, output, before=text)

    def _capture(
        self, reading: Reading, sight: PictureSight, tokens: Sequence[Token]
    ) -> list[Captured]:
        """The tokens' rows in every layer; where a family has them, those of its queries too."""
        config, length, inputs = self.model.config, len(reading.ids), reading.inputs
        behind, stream = max(len(reading.new) - 1, 0), sight.text
        sides = {stream: (length + behind, length + behind)}
        if (words := reading.inputs.get("decoder_input_ids")) is not None:
            stream = "cross"  # a captioner's ids are those of two sides
            sides = {stream: (words.shape[1], reading.ids.count(-1) or length)}
        elif sight.stream and not sight.queries:
            stream = sight.stream
            sides = {stream: (length + behind, sight.keys)}
        elif config.is_encoder_decoder:
            stream = "encoder"
            sides = {stream: (length, length)}
            if "decoder_input_ids" in input_names(self.model):  # the decoder runs, and is not read
                import torch

                first = torch.tensor([[start_token(self.model)]], device=self.model.device)
                inputs = {**inputs, "decoder_input_ids": first}
        last = sides[stream][0]
        grids = {
            stream: PooledGrid(TokenBlocks(last - len(tokens), last), each_token(sides[stream][1]))
        }
        if sight.stream and sight.queries:
            sides[sight.stream] = (len(sight.places), sight.keys)
            grids[sight.stream] = PooledGrid(*map(each_token, sides[sight.stream]))
        return capture(self.model, inputs, sides, grids=grids)

    def _maps(
        self,
        captures: Sequence[Captured],
        reading: Reading,
        sight: PictureSight,
        tokens: tuple[Token, ...],
    ) -> tuple[AttentionMap, ...]:
        """A map for each grid of patches and each run of layers of one shape."""
        side, sheets, places = WRITTEN if reading.new else "text", sight.sheets, sight.places
        if sight.queries:
            return self._query_maps(captures, sight, tokens, side)
        cells = {int(place) for sheet in sheets for place in sheet.cells.flat}
        names = {place: name for sheet in sheets for place, name in sheet.placeless.items()}
        among = range(sight.keys) if sight.stream else range(places[0], places[-1] + 1)
        loose = [place for place in among if place not in cells]
        if sight.stream:  # padding of tiles is left out
            weighty = np.any([item.weights.any(axis=(0, 1, 2)) for item in captures], axis=0)
            loose = [place for place in loose if weighty[place]]
            names |= {place: f"[key {place}]" for place in loose if place not in names}
        # A token without a place belongs to the last grid that begins before it.
        starts = np.array([sheet.cells.min() for sheet in sheets])
        marks: list[dict[int, str]] = [{} for _ in sheets]
        for place in loose:
            owner = int(np.where(starts <= place, starts, -1).argmax())
            name = names.get(place) or pieces_of(self.tokenizer, [reading.ids[place]])[0]
            marks[owner][place] = name
        return tuple(
            _patch_map(item, sheet, tokens, side, own)
            for sheet, own in zip(sheets, marks, strict=True)
            for item in captures
        )

    @staticmethod
    def _query_maps(
        items: Sequence[Captured], sight: PictureSight, tokens: tuple[Token, ...], side: str
    ) -> tuple[AttentionMap, ...]:
        """The maps of the queries over the patches, then of the text over the queries."""
        queries = tuple(Token(f"query {number}") for number in range(len(sight.places)))
        over_patches, over_queries = list[AttentionMap](), list[AttentionMap]()
        for item in items:
            if item.stream == sight.stream:
                over_patches += [
                    _patch_map(item, sheet, queries, "queries", sheet.placeless)
                    for sheet in sight.sheets
                ]
                continue
            weights, layers = item.weights[..., sight.places], item.layers
            attention = AttentionMap("text-to-queries", tokens, queries, weights, layers=layers)
            over_queries.append(replace(attention, query_side=side, key_side="queries"))
        return (*over_patches, *over_queries)


def picture_word(picture: Picture) -> str:
    """What a chat template calls it."""
    return "video" if picture.frames else "image"


def replace_images(picture: Picture, images: Sequence[Any]) -> Picture:
    """As many other pictures, read in the same way."""
    return replace(picture, image=images[0], more=tuple(images[1:]))


def mark_of(processor: Any, config: Any, what: str) -> str:
    """The token of an image or a video in a prompt, from the processor or the model; "": none."""
    tokenizer = processor.tokenizer
    for owner in (processor, tokenizer):
        if isinstance(mark := getattr(owner, f"{what}_token", None), str):
            return mark
    number = image_token_of(config, what)
    return "" if number is None else str(tokenizer.convert_ids_to_tokens(number))


def _patch_map(
    item: Captured, sheet: Sheet, tokens: tuple[Token, ...], side: str, marks: Mapping[int, str]
) -> AttentionMap:
    """The map over one grid: first the keys without a place, then the patches."""
    looks = "queries" if side == "queries" else "text"
    names = mark_tokens(marks.values())
    return AttentionMap(
        f"{looks}-to-{sheet.name}",
        tokens,
        names + patch_tokens(*sheet.cells.shape),
        item.weights[..., [*marks, *sheet.cells.flat]],
        layers=item.layers,
        query_side=side,
        key_side=SIDE,
    )


def load_picture_text_model(
    name: str | InMemoryModel, generate: int | None = None, **options: Any
) -> PictureTextModel:
    """A pretrained model of pictures and text that writes at most `generate` tokens, or none."""
    parts = loading.load_parts(
        name,
        loading.LoadOptions(**options),
        _load_processor,
        partial(loading.model_class, with_head=True),
    )
    config, model = parts.model.config, parts.model
    kind = str(config.model_type)
    reads = hasattr(parts.reader, "image_processor") and hasattr(parts.reader, "tokenizer")
    if not reads or not (kind in (CAPTIONER, *BY_FAMILY) or mark_of(parts.reader, config, "image")):
        token = "token in its prompts that stands for a picture"
        both = "processor of pictures and texts"
        raise ModelError(
            f"'{name}' ({kind}) has no {token if reads else both}: leave "
            f"{'--text' if generate is None else '--generate'} out, or use a model of LLaVA's kind"
        )
    if BY_FAMILY.get(kind) == "queries" and config.text_config.is_encoder_decoder:
        raise ModelError(
            f"'{name}' ({kind}) writes with an encoder and a decoder; their attention cannot be "
            "told apart from that of its queries: use a model with a decoder alone"
        )
    silent = not model.can_generate() or any(
        "lm_head" in key for key in parts.report["missing_keys"]
    )
    if generate is not None and silent:
        raise ModelError(f"'{name}' has no trained language-model head: leave --generate out")
    return PictureTextModel(str(name), model, parts.reader, parts.provenance, generate)


def _load_processor(folder: Path, name: str) -> Any:
    import transformers
    from transformers.models.auto import processing_auto
    from transformers.utils.import_utils import is_torchvision_available

    checkpoint.check_growth(folder)
    if checkpoint.read_config(folder)["model_type"] == CAPTIONER:  # it has a reader for each half
        tokenizer = loading.load_tokenizer(folder, name, allow_code=False)
        return SimpleNamespace(tokenizer=tokenizer, image_processor=load_processor(folder, name))
    auto: Any = transformers.AutoProcessor
    classes = vars(processing_auto)["PROCESSOR_MAPPING_NAMES"]
    with devices.library_errors(f"the processor of '{name}' cannot be loaded"):
        files = [folder / one for one in NAMING]
        facts = [json.loads(file.read_bytes()) for file in files if file.is_file()]
        if not is_torchvision_available() or not _says_how_videos_are_read(folder, facts):
            own_classes = [one["processor_class"] for one in facts if "processor_class" in one]
            class_name = [*own_classes, classes.get(facts[0]["model_type"])][0]
            kind = getattr(transformers, class_name or "", None)
            if "video_processor" in getattr(kind, "get_attributes", list)():
                auto = without_videos(kind)
        return auto.from_pretrained(folder, local_files_only=True)


def _says_how_videos_are_read(folder: Path, facts: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a folder's files hold the settings of a video processor, or stand for them."""
    names = ("video_preprocessor_config.json", "preprocessor_config.json")
    return any((folder / name).is_file() for name in names) or any(
        "video_processor" in one for one in facts
    )


NAMING = ["config.json"]
NAMING += [f"{name}_config.json" for name in ("processor", "preprocessor", "tokenizer")]
"""The files that name a model's architecture, and maybe its processor."""


def without_videos(kind: Any) -> Any:
    """A class of processors without its video processor, which needs torchvision."""
    attributes = [name for name in kind.get_attributes() if name != "video_processor"]
    return type(kind.__name__, (kind,), {"get_attributes": classmethod(lambda _: attributes)})
