"""A vision model as a source: the attention of a picture over its patches.

A model whose tokens are one grid of patches is read like one of texts. Of all others, which attend
in windows, pool, merge or pack patches, the patches are traced through the model.
"""

from collections.abc import Iterator, Mapping
from typing import Any, cast

from attnviz.core import lens_inputs, registry
from attnviz.core.attention_map import Attention, AttentionMap, Provenance, Token
from attnviz.core.errors import (
    AttentionError,
    AttnvizError,
    ModelError,
    UsageError,
)
from attnviz.core.options import InMemoryModel
from attnviz.core.query import Picture, Query
from attnviz.core.records import dataclass, replace
from attnviz.core.tokens import mark_tokens, patch_tokens
from attnviz.features.vision import pictures
from attnviz.models import Source
from attnviz.models.hugging_face.capture.capture import capture, with_routes
from attnviz.models.hugging_face.capture.kernel import eager_copy
from attnviz.models.hugging_face.capture.region import Region, heads_of
from attnviz.models.hugging_face.eager import value_vectors
from attnviz.models.hugging_face.inputs.encoding import EncodedQuery
from attnviz.models.hugging_face.load import devices, family, imports
from attnviz.models.hugging_face.load.loading import LoadOptions, load_parts, model_class
from attnviz.models.hugging_face.loaded_model import LoadedModel, input_names


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class VisionModel(Source):
    """A pretrained vision model as a source of attention of a picture over itself, by patches."""

    answers = registry.ANSWERS["picture"]

    name: str  # what it was asked for as
    model: Any  # on its device, in evaluation mode
    processor: Any  # its image processor
    provenance: Provenance  # of the model; each picture adds to it
    task: family.Task | None = None  # of its head

    def _attend_one(self, query: Query) -> Attention:
        picture = self.picture(query)
        with imports.quiet(), family.record_logits(self.model) as logits:
            attention = self._over_one_grid(picture)
        if self.task is None or not logits:
            return attention
        return family.show_decision(attention, self.task, logits[-1], ())

    def _over_one_grid(self, picture: Picture) -> Attention:
        """Attention of all patches over all patches; where there is none, patches are traced."""
        if window_layers(self.tower) or pictures.required_extras(self.processor):
            return self._trace(picture, None)
        try:
            encoding = self.encode(picture)
        except (AttentionError, ModelError) as error:
            return self._trace(picture, error)
        length = len(encoding.tokens[pictures.SIDE])
        heads = heads_of(self.config, "self")
        needs = 3 * 4 * heads * length**2  # float32, and two copies by what reads them
        what, cpu = f"a picture of {length:,} tokens", devices.choose_device("cpu")
        devices.check_fit(needs, cpu, what, "choose a smaller --image-size")
        region = Region(max_size=length)
        try:
            captures = capture(encoding.part, encoding.inputs, encoding.sides, region=region)
        except AttentionError as error:
            return self._trace(picture, error)
        return encoding.build_attention(captures)

    def _trace(self, picture: Picture, before: AttnvizError | None) -> Attention:
        """Attention whose patches are traced through the model, from the picture's pixels on.

        Where no part of the model can be read so, the error is that of before.
        """
        # Tracing needs torch, and numpy answers of this module's sources without.
        from attnviz.features.windows import geometry, maps
        from attnviz.features.windows.layers import NotOverPatches

        inputs_of_all = pictures.inputs_of(self.processor, picture.image, picture.size)
        places = geometry.trace_processor(
            lambda one: pictures.inputs_of(self.processor, one, picture.size), picture.image
        )
        first = before
        for path, part in readers_of(self.model):
            inputs = self._inputs_for(part, inputs_of_all)
            own = pictures.part_inputs(part, places)
            missing = pictures.missing_in(part, inputs)
            if not own or missing:
                first = first or (asks_for(self.name, missing) if missing else None)
                continue
            try:
                with devices.running_errors(self.model, "picture"):
                    picture_maps = maps.read_picture(
                        part,
                        inputs,
                        own,
                        name=self.name,
                        patch=picture.patch,
                        whole=picture.lens != "raw",
                    )
            except (AttentionError, ModelError) as error:
                if first is None or (part is self.tower and isinstance(error, NotOverPatches)):
                    first = error
                continue
            bare = Attention((), self._provenance_of(inputs_of_all))
            attention = picture_maps.fill(bare, picture.image.size)
            if path and part is not self.tower:
                note = (
                    f"read through its {path} ({type(part).__name__}): the whole model asks for "
                    "more than a picture"
                )
                attention = attention.with_maps(attention.maps, notes=(note,))
            route = f"{self.model.config._attn_implementation}, patches traced"
            return replace(attention, provenance=with_routes(attention.provenance, [route]))
        assert first is not None
        raise first

    def _inputs_for(self, part: Any, inputs_of_all: Mapping[str, Any]) -> dict[str, Any]:
        """What a part of the model takes of what its processor makes."""
        import torch

        takes, inputs = input_names(part), dict[str, Any]()
        for name, value in pictures.part_inputs(part, inputs_of_all).items():
            if isinstance(value, torch.Tensor):
                value = value.to(self.model.device)
                inputs[name] = value.to(self.model.dtype) if value.is_floating_point() else value
        usual = getattr(getattr(part, "config", None), "image_size", None)
        values = inputs.get("pixel_values")
        if "interpolate_pos_encoding" in takes and values is not None and values.ndim == 4:
            sides = tuple(values.shape[-2:])
            if not isinstance(usual, int | tuple | list) or pictures.pair(usual) != sides:
                inputs["interpolate_pos_encoding"] = True
        return inputs

    def _provenance_of(self, inputs_of_all: Mapping[str, Any]) -> Provenance:
        values = next(inputs_of_all[name] for name in pictures.PIXELS if name in inputs_of_all)
        pixels = " × ".join(map(str, values.shape[-2:] if values.ndim >= 4 else values.shape))
        what = "pixels" if values.ndim >= 4 else "packed patches"
        beside = {one: pictures.EXTRAS[one][1] for one in pictures.required_extras(self.processor)}
        settings = {**self.provenance.settings, what: pixels, **beside}
        return replace(self.provenance, settings=settings)

    def values(self, query: Query) -> lens_inputs.ValueVectors:
        with imports.quiet():
            encoding = self.encode(self.picture(query))
            return value_vectors(replace(encoding, part=eager_copy(self.tower)))

    head_weights = LoadedModel.head_weights

    def picture(self, query: Query) -> Picture:
        """A query's picture; refused if its lens needs all pairs of tokens."""
        picture = pictures.picture_of(query, self.name)
        if picture.lens != "raw" and window_layers(self.tower):
            raise AttentionError(
                f"'{self.name}' attends in windows, and --lens {picture.lens} needs every token to "
                "attend to every other one: use --lens raw"
            )
        return picture

    def encode(self, picture: Picture) -> EncodedQuery:
        """A picture as the tower reads it, with a token for each patch."""
        inputs, grid = self._inputs(picture)
        tokens = {pictures.SIDE: self._tokens(inputs, grid)}
        attention = self._without_maps(picture, inputs, grid)
        sides = {"self": (pictures.SIDE, pictures.SIDE)}
        return EncodedQuery(self.tower, inputs, tokens, sides, attention, what=pictures.SIDE)

    @property
    def tower(self) -> Any:
        return vision_tower(self.model)

    @property
    def config(self) -> Any:
        return getattr(self.tower, "config", self.model.config)

    def _inputs(self, picture: Picture) -> tuple[dict[str, Any], tuple[int, int]]:
        """The picture as the model takes it, and its rows and columns of patches."""
        high, wide = self.patch_size
        values = self._pixels(picture).to(self.model.device, self.model.dtype)
        inputs: dict[str, Any] = {"pixel_values": values}
        height, width = values.shape[-2:]
        usual, takes = getattr(self.config, "image_size", None), input_names(self.tower)
        if "interpolate_pos_encoding" in takes and pictures.pair(usual) != (height, width):
            inputs["interpolate_pos_encoding"] = True
        return inputs, (height // high, width // wide)

    def _pixels(self, picture: Picture) -> Any:
        """The picture as its processor makes it, shape (1, 3, height, width)."""
        size, (high, wide) = picture.size, self.patch_size
        if size is not None and (size[0] % high or size[1] % wide):
            raise UsageError(
                f"--image-size {size[0]}x{size[1]} is no multiple of '{self.name}'s patches of "
                f"{high} × {wide} pixels"
            )
        return pictures.pixels(self.processor, picture.image, size)

    @property
    def patch_size(self) -> tuple[int, int]:
        size = getattr(self.config, "patch_size", None)
        if size is None or (not isinstance(size, int) and len(size) != 2):
            raise AttentionError(
                f"'{self.name}' ({self.model.config.model_type}) does not cut pictures into "
                "patches of one size: its attention cannot be put back into the picture"
            )
        return pictures.pair(size)

    def _tokens(self, inputs: dict[str, Any], grid: tuple[int, int]) -> tuple[Token, ...]:
        """The special tokens, then the patches."""
        (rows, columns), length = grid, self._count_tokens(inputs)
        special, kind = length - rows * columns, self.config.model_type
        registers = int(getattr(self.config, "num_register_tokens", None) or 0)
        if special not in {0, 1, 1 + registers} and not (special == 2 and kind == "deit"):
            raise AttentionError(
                f"'{self.name}' ({kind}) makes {length} tokens of {rows} × {columns} patches: its "
                "attention cannot be put back into the picture"
            )
        names = pictures.special_names(kind, special)
        return *mark_tokens(names), *patch_tokens(rows, columns)

    def _without_maps(
        self, picture: Picture, inputs: dict[str, Any], grid: tuple[int, int]
    ) -> Attention:
        height, width = inputs["pixel_values"].shape[-2:]
        settings = {"pixels": f"{height} × {width}", "patches": f"{grid[0]} × {grid[1]}"}
        provenance = replace(self.provenance, settings={**self.provenance.settings, **settings})
        left, top, right, bottom = pictures.seen_box(self.processor, picture.image, picture.size)
        # The pixels beyond the last whole patch are not seen.
        high, wide = (
            min(many * side / length, 1)
            for many, side, length in zip(grid, self.patch_size, (height, width), strict=True)
        )
        box = left, top, left + wide * (right - left), top + high * (bottom - top)
        return Attention((), provenance, seen=box)

    def _count_tokens(self, inputs: dict[str, Any]) -> int:
        """The number of tokens of a picture; 0: they are not in one row."""
        import torch

        if missing := pictures.missing_in(self.tower, inputs):
            raise asks_for(self.name, missing)
        # no_grad, not inference mode: BEiT caches its positions, and gradients must pass later.
        with devices.running_errors(self.model, "picture"), torch.no_grad():
            output = self.tower(**inputs, output_hidden_states=True)
        states = getattr(output, "last_hidden_state", None)
        if states is None:
            states = (getattr(output, "hidden_states", None) or (torch.empty(0),))[-1]
        return int(states.shape[1]) if states.ndim == 3 else 0


def asks_for(name: str, missing: list[str]) -> AttentionError:
    """That a model cannot run on a picture alone."""
    words = " and ".join(f"'{one}'" for one in missing)
    return AttentionError(
        f"'{name}' asks for {words} beside a picture, which no option gives here: use a model that "
        "reads pictures alone"
    )


def load_vision_model(name: str | InMemoryModel, **options: Any) -> VisionModel:
    """A pretrained vision model, or one with a tower; options are the fields of `LoadOptions`."""
    source = load_picture_model(name, **options)
    if not isinstance(source, VisionModel):
        raise ModelError(f"'{name}' reads pictures in another way than by patches alone")
    return source


def load_picture_model(name: str | InMemoryModel, **options: Any) -> Source:
    """The source of a model that reads pictures or films, by what its mechanism is."""
    parts = load_parts(name, LoadOptions(**options), pictures.load_processor, _class_of)
    for row in registry.PICTURE_READERS.values():
        if (source := cast("Source | None", row.load()(str(name), parts))) is not None:
            return source
    model = parts.model
    if model.main_input_name not in pictures.PIXELS and not any(
        pictures.takes_pixels(part) for _, part in readers_of(model)
    ):
        raise ModelError(
            f"'{name}' ({model.config.model_type}) reads no pictures: it asks for "
            f"'{model.main_input_name}'"
        )
    provenance, task = parts.provenance, parts.task
    return VisionModel(
        name=str(name), model=model, processor=parts.reader, provenance=provenance, task=task
    )


def _class_of(config: Any) -> Any:
    """The class that loads a model; one that finds objects, or reads letters, keeps its head."""
    finds = (
        "TextRecognition",
        "ObjectDetection",
        "InstanceSegmentation",
        "UniversalSegmentation",
        "DetrForSegmentation",
    )
    with_head = str((config.architectures or [""])[0]).endswith(finds)
    return model_class(config, with_head=with_head)


def vision_tower(model: Any) -> Any:
    """The part of a model that reads pictures; those of CLIP's kind and captioners have two."""
    if model.config.model_type == pictures.CAPTIONER:
        return model.encoder
    whole = getattr(model, "base_model", model)  # numpy's model is no module
    towers = (getattr(whole, name, None) for name in ("vision_model", "image_model"))
    return next((tower for tower in towers if tower is not None), model)


def window_layers(model: Any) -> list[Any]:
    """The layers of a model that attend in windows."""
    return [part for part in model.modules() if hasattr(part, "shift_size")]


def window_maps(
    model: Any, name: str, inputs: dict[str, Any], patch: str | None
) -> tuple[AttentionMap, ...]:
    """One query's row in each layer of a model that attends in windows, of given pixels."""
    from attnviz.features.windows import geometry, maps

    places = {"pixel_values": geometry.pixel_places(inputs["pixel_values"])}
    with devices.running_errors(model, "picture"):
        return maps.read_picture(model, inputs, places, name=name, patch=patch).maps


def readers_of(model: Any) -> Iterator[tuple[str, Any]]:
    """The parts of a model that take a picture's pixels, with their paths: its tower first."""
    tower = vision_tower(model)
    yield next(path for path, part in model.named_modules() if part is tower), tower
    for path, part in model.named_modules():
        if part is not tower and pictures.takes_pixels(part):
            yield path, part
