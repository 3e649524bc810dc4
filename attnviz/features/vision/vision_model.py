"""A vision model as a source: the attention of a picture over its patches.

A Swin layer attends inside square windows of patches (Liu et al. 2021, section 3.2); every second
layer first rolls the picture by half a window. To put these weights back into the picture, the
patches' numbers take the same way.
"""

from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from attnviz.core import lens_inputs, locks, registry
from attnviz.core.attention_call import AttentionCall
from attnviz.core.attention_map import Attention, AttentionMap, Provenance, Token, not_finite
from attnviz.core.errors import AttentionError, ModelError, UsageError
from attnviz.core.options import InMemoryModel
from attnviz.core.query import Picture, Query
from attnviz.core.tokens import AVERAGE, check_patch, patch_name, patch_tokens
from attnviz.features.vision import pictures
from attnviz.models import Source
from attnviz.models.hugging_face.capture.capture import capture, with_routes
from attnviz.models.hugging_face.capture.kernel import eager_copy, watch_kernels
from attnviz.models.hugging_face.capture.probe import broken_head, dtype_of, key_masses
from attnviz.models.hugging_face.capture.region import Region, each_token, heads_of
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
            if window_layers(self.tower):
                inputs, grid = self._inputs(picture)
                maps = window_maps(self.tower, self.name, inputs, picture.patch)
                attention = replace(self._without_maps(picture, inputs, grid), maps=maps)
                route = f"{self.model.config._attn_implementation}, probed"
                provenance = with_routes(attention.provenance, [route])
                attention = replace(attention, provenance=provenance)
            else:
                encoding = self.encode(picture)
                length = len(encoding.tokens[pictures.SIDE])
                heads = heads_of(self.config, "self")
                needs = 3 * 4 * heads * length**2  # float32, and two copies by what reads them
                what, cpu = f"a picture of {length:,} tokens", devices.choose_device("cpu")
                devices.check_fit(needs, cpu, what, "choose a smaller --image-size")
                region = Region(max_size=length)
                captures = capture(encoding.part, encoding.inputs, encoding.sides, region=region)
                attention = encoding.build_attention(captures)
        if self.task is None or not logits:
            return attention
        return family.show_decision(attention, self.task, logits[-1], ())

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
        return self.tower.config

    def _inputs(self, picture: Picture) -> tuple[dict[str, Any], tuple[int, int]]:
        """The picture as the model takes it, and its rows and columns of patches."""
        high, wide = self.patch_size
        values = self._pixels(picture).to(self.model.device, self.model.dtype)
        inputs: dict[str, Any] = {"pixel_values": values}
        height, width = values.shape[-2:]
        usual, takes = getattr(self.config, "image_size", None), input_names(self.tower)
        if "interpolate_pos_encoding" in takes and pictures.pair(usual) != (height, width):
            inputs["interpolate_pos_encoding"] = True
        if window_layers(self.tower):  # pixels beyond the last whole patch are padded to one
            return inputs, (-(-height // high), -(-width // wide))
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
        return *(Token(name, special=True) for name in names), *patch_tokens(rows, columns)

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

        # no_grad, not inference mode: BEiT caches its positions, and gradients must pass later.
        with devices.running_errors(self.model, "picture"), torch.no_grad():
            output = self.tower(**inputs, output_hidden_states=True)
        states = getattr(output, "last_hidden_state", None)
        if states is None:
            states = (getattr(output, "hidden_states", None) or (torch.empty(0),))[-1]
        return int(states.shape[1]) if states.ndim == 3 else 0


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
    if model.main_input_name != "pixel_values" and vision_tower(model) is model:
        raise ModelError(
            f"'{name}' ({model.config.model_type}) reads no pictures: it asks for "
            f"'{model.main_input_name}'"
        )
    provenance, task = parts.provenance, parts.task
    return VisionModel(
        name=str(name), model=model, processor=parts.reader, provenance=provenance, task=task
    )


def _class_of(config: Any) -> Any:
    """The class that loads a model; one that finds objects keeps its head."""
    finds = ("ObjectDetection", "Segmentation")
    with_head = str((config.architectures or [""])[0]).endswith(finds)
    return model_class(config, with_head=with_head)


def vision_tower(model: Any) -> Any:
    """The part of a model that reads pictures; those of CLIP's kind and captioners have two."""
    if model.config.model_type == pictures.CAPTIONER:
        return model.encoder
    whole = getattr(model, "base_model", model)  # numpy's model is no module
    towers = (getattr(whole, name, None) for name in ("vision_model", "image_model"))
    return next((tower for tower in towers if tower is not None), model)


PADDED = -1  # the number of no patch


@dataclass(frozen=True, slots=True, eq=False)
class Windows:
    """One layer's attention inside its windows; the positions of a window are its slots."""

    weights: NDArray[np.float32]  # (windows, heads, slots, slots)
    places: NDArray[np.int64]  # the patch in each slot, (windows, slots); PADDED beyond the picture
    rows: int
    columns: int

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.rows, self.columns, self.weights.shape[1]

    def row(self, patch: int) -> NDArray[np.float32]:
        """The row of one patch, shape (heads, patches); 0 outside its window."""
        window, slot = (int(places[0]) for places in np.nonzero(self.places == patch))
        return self._spread(self.weights[window, :, slot], self.places[window])

    def mean(self) -> NDArray[np.float32]:
        """The mean row of all patches, shape (heads, patches)."""
        inside = self.places != PADDED
        totals = np.einsum("whqk,wq->hwk", self.weights.astype(np.float64), inside)
        total = totals / (self.rows * self.columns)
        return self._spread(total.reshape(len(total), -1), self.places.ravel())

    def _spread(
        self, weights: NDArray[np.floating], places: NDArray[np.int64]
    ) -> NDArray[np.float32]:
        """Weights of slots (heads, slots), put where their patches lie in the picture."""
        spread = np.zeros((len(weights), self.rows * self.columns), dtype=np.float32)
        inside = places != PADDED
        spread[:, places[inside]] = weights[:, inside]
        return spread


def window_places(rows: int, columns: int, window: int, shift: int) -> NDArray[np.int64]:
    """The patch in each slot of each window, shape (windows, slots).

    The picture is padded at its right and bottom to whole windows, then rolled up and to the left.
    """
    numbers = np.arange(rows * columns).reshape(rows, columns)
    beyond = ((0, -rows % window), (0, -columns % window))
    whole = np.pad(numbers, beyond, constant_values=PADDED)
    picture = np.roll(whole, (-shift, -shift), axis=(0, 1))
    down, across = picture.shape[0] // window, picture.shape[1] // window
    tiles = picture.reshape(down, window, across, window).transpose(0, 2, 1, 3)
    return tiles.reshape(down * across, window * window)


def _read_windows(model: Any, inputs: dict[str, Any]) -> list[Windows]:
    import torch

    layers = {id(part.attention): part for part in window_layers(model)}
    grids = dict[int, tuple[int, int]]()
    layer_windows = list[Windows]()

    def remember(layer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        grid = kwargs["input_dimensions"] if "input_dimensions" in kwargs else args[1]
        grids[id(layer)] = (int(grid[0]), int(grid[1]))

    def read(call: AttentionCall) -> None:
        layer = layers[id(call.module)]
        rows, columns = grids[id(layer)]
        faulty = broken_head(call)
        if faulty is not None:
            raise not_finite("self", str(len(layer_windows)), str(faulty), dtype_of(model))
        slots = call.key.shape[-2]
        masses = torch.cat([part for _, part in key_masses(call, each_token(slots))], dim=-1)
        weights = masses.transpose(1, 2).float().cpu().numpy()
        places = window_places(rows, columns, int(layer.window_size), int(layer.shift_size))
        layer_windows.append(Windows(weights, places, rows, columns))

    with ExitStack() as hooks:
        for layer in layers.values():
            hook = layer.register_forward_pre_hook(locks.thread_hook(remember), with_kwargs=True)
            hooks.enter_context(hook)
        hooks.enter_context(watch_kernels(read))
        model(**inputs)
    return layer_windows


def window_layers(model: Any) -> list[Any]:
    """The layers of a model that attend in windows."""
    return [part for part in model.modules() if hasattr(part, "shift_size")]


def window_maps(
    model: Any, name: str, inputs: dict[str, Any], patch: str | None
) -> tuple[AttentionMap, ...]:
    """One query's row in each layer; later layers have coarser patches."""
    import torch

    if patch == "all":
        raise UsageError(f"'{name}' attends in windows: choose one --patch, or none for the mean")
    with devices.running_errors(model, "picture"), torch.inference_mode():
        layers = _read_windows(model, inputs)
    if not layers:
        raise AttentionError(
            f"architecture '{model.config.model_type}' computes attention in windows "
            "without an attention kernel: it cannot be read"
        )
    finest = layers[0]
    at = None if patch is None else check_patch(patch, finest.rows, finest.columns)
    query = AVERAGE if at is None else Token(patch_name(*at))
    by_name = [(str(number), layer) for number, layer in enumerate(layers)]
    maps = []
    for (rows, columns, _), run in groupby(by_name, key=lambda item: item[1].shape):
        stage = list(run)
        weights = np.stack([_window_row(layer, at, finest) for _, layer in stage])
        keys = patch_tokens(rows, columns)
        names = tuple(name for name, _ in stage)
        maps.append(pictures.over_patches(names, weights[:, :, None], (query,), keys))
    return tuple(maps)


def _window_row(layer: Windows, at: tuple[int, int] | None, finest: Windows) -> Any:
    """The row of the coarse patch that contains a patch of the finest layer."""
    if at is None:
        return layer.mean()
    row = at[0] * layer.rows // finest.rows
    column = at[1] * layer.columns // finest.columns
    return layer.row(row * layer.columns + column)
