"""Where the image tokens of a text model's sequence lie in the pictures that it reads.

A layout maps positions of the sequence to cells of pictures, from what the processor returns
(numbers of tokens, grids and sizes). `LAYOUTS` has a row for each, with its families. Image tokens
that are no cell (a class token, the end of a row, the name of a tile) stay keys without a place.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import isqrt, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.core.errors import AttentionError
from attnviz.features.vision.pictures import (
    CAPTIONER,
    Box,
    pair,
    seen_box,
    special_names,
)


@dataclass(frozen=True, slots=True, eq=False)
class Sheet:
    """One grid of cells over a picture, or over one frame of a video."""

    name: str  # "picture", "picture 1 tiles", "frame 3"
    picture: int  # the number of its picture or frame
    cells: NDArray[np.int64]  # positions in the sequence, shape (rows, columns)
    box: Box  # the part of the picture that the cells cover, in its pixels
    placeless: Mapping[int, str] = field(default_factory=dict)  # names of tokens without a cell


@dataclass(frozen=True, slots=True, eq=False)
class PicturesRead:
    """Pictures with the model's inputs that the processor made of them."""

    name: str
    config: Any
    processor: Any
    inputs: Mapping[str, Any]
    pictures: Sequence[Any]
    places: NDArray[np.int64]  # the positions of all image tokens in the sequence, in order
    video: bool = False

    def misfit(self, grids: str) -> AttentionError:
        """The error if image tokens do not fit the grids."""
        what = "a video" if self.video else f"{len(self.pictures)} picture(s)"
        return AttentionError(
            f"'{self.name}' ({self.config.model_type}) makes {len(self.places)} tokens of {what}, "
            f"which does not fit {grids}: they cannot be put back into it"
        )

    def picture_name(self, number: int) -> str:
        if self.video:
            return f"frame {number}"
        return "picture" if len(self.pictures) == 1 else f"picture {number}"

    def whole_box(self, number: int) -> Box:
        width, height = self.pictures[number].size
        return 0.0, 0.0, float(width), float(height)

    def padded_box(self, number: int, high: float = 1, wide: float = 1) -> Box:
        """A picture with the padding around it that gives it the shape of a canvas, or a square."""
        _, _, width, height = self.whole_box(number)
        scale = max(width / wide, height / high)
        across, down = (scale * wide - width) / 2, (scale * high - height) / 2
        return -across, -down, width + across, height + down

    def split_places(self, counts: Sequence[int], grids: str) -> list[NDArray[np.int64]]:
        """The image tokens in runs of these lengths; none may be left."""
        if sum(counts) != len(self.places) or not all(counts):
            raise self.misfit(grids)
        return np.split(self.places, np.cumsum(counts)[:-1].tolist())


def fit_grid(
    count: int, height: int, width: int, extras: Sequence[int] = (0, 1)
) -> tuple[int, int, int] | None:
    """Rows and columns of square cells that fill these pixels, and the spare tokens; or None."""
    for extra in extras:
        rows = round(sqrt(max(count - extra, 0) * height / width))
        columns = (count - extra) // rows if rows else 0
        if rows and rows * columns == count - extra and rows * width == columns * height:
            return rows, columns, extra
    return None


def place_grid(read: PicturesRead) -> list[Sheet]:
    """Cells of one size over the resized picture, pooled or not, maybe after special tokens."""
    images, pixels = len(read.pictures), read.inputs["pixel_values"]
    height, width = pixels.shape[-2:]
    vision = getattr(read.config, "vision_config", None) or read.config.encoder
    patch = getattr(vision, "patch_size", None)
    down, across = pair(patch) if isinstance(patch, int) else (1, 1)
    grids = f"{height // down} × {width // across} patches each"
    registers = int(getattr(vision, "num_register_tokens", None) or 0)
    extras = sorted({0, 1, 1 + registers, 1 + (vision.model_type == "deit")})
    grid = fit_grid(len(read.places) // images, height, width, extras)
    if grid is None or (height // down) % grid[0] or (width // across) % grid[1]:
        raise read.misfit(grids)
    rows, columns, extra = grid
    sheets = []
    for number, own in enumerate(read.split_places([rows * columns + extra] * images, grids)):
        images_by = read.processor.image_processor
        box = seen_box(images_by, read.pictures[number], None)
        fits = hasattr(images_by, "pad_to_square") or getattr(images_by, "do_thumbnail", False)
        if fits and getattr(images_by, "do_pad", False):
            box = read.padded_box(number, height, width)
        _, _, wide, high = read.whole_box(number)
        if getattr(images_by, "do_align_long_axis", False) and (wide - high) * (width - height) < 0:
            raise read.misfit("its long side, along which the picture is turned")
        cells = own[extra:].reshape(rows, columns)
        names = dict(zip(map(int, own), special_names(vision.model_type, extra), strict=False))
        sheets.append(Sheet(read.picture_name(number), number, cells, box, names))
    return sheets


def merge_patches(read: PicturesRead) -> list[Sheet]:
    """Patches merged in squares: of a picture in its own shape, or of a few frames of a video."""
    side = int(getattr(read.config.vision_config, "spatial_merge_size", 1))
    grids = read.inputs["video_grid_thw" if read.video else "image_grid_thw"].tolist()
    shapes = [(times, rows // side, columns // side) for times, rows, columns in grids]
    grid_names = " and ".join(" × ".join(map(str, shape)) for shape in shapes)
    sheets = list[Sheet]()
    for number, own in enumerate(
        read.split_places([int(np.prod(one)) for one in shapes], grid_names)
    ):
        times, rows, columns = shapes[number]
        if read.video:
            sheets += place_frames(read, own.reshape(times, rows, columns))
        else:
            cells = own.reshape(rows, columns)
            sheets.append(Sheet(read.picture_name(number), number, cells, read.whole_box(number)))
    return sheets


def place_frames(read: PicturesRead, cells: NDArray[np.int64]) -> list[Sheet]:
    """A sheet for each step of a video, cells of shape (steps, rows, columns), over its frames."""
    each = int(getattr(read.config.vision_config, "temporal_patch_size", 1))
    if -(-len(read.pictures) // each) != len(cells):
        raise read.misfit(f"{len(cells)} steps of {each} of its {len(read.pictures)} frames")
    sheets = []
    for step, own in enumerate(cells):
        first, last = step * each, min((step + 1) * each, len(read.pictures)) - 1
        name = f"frame {first}" if first == last else f"frames {first}-{last}"
        sheets.append(Sheet(name, first, own, read.whole_box(first)))
    return sheets


def place_rows(read: PicturesRead) -> list[Sheet]:
    """Patches of a picture in its own shape, with a token after each row."""
    side = int(getattr(read.config, "spatial_merge_size", 1)) * read.config.vision_config.patch_size
    shapes = [(high // side, wide // side) for high, wide in read.inputs["image_sizes"].tolist()]
    names = " and ".join(f"{rows} × {columns}" for rows, columns in shapes)
    runs = read.split_places([rows * columns for rows, columns in shapes], names)
    return [
        Sheet(read.picture_name(number), number, own.reshape(shape), read.whole_box(number))
        for number, (own, shape) in enumerate(zip(runs, shapes, strict=True))
    ]


def place_tiles(
    read: PicturesRead, shape_of: Callable[[Any, int, int], tuple[int, int]]
) -> list[Sheet]:
    """Tiles (`shape_of`: rows and columns) as one grid, then the whole picture, smaller."""
    values = read.inputs["pixel_values"]
    count = int(np.prod(values.shape[:-3]))
    images = len(read.pictures)
    shapes = [(1, 1)] * images
    if count != images:
        sizes = [(picture.height, picture.width) for picture in read.pictures]
        shapes = [shape_of(read.processor.image_processor, *size) for size in sizes]
    tiles = [down * across + (down * across > 1) for down, across in shapes]
    grids = f"{sum(tiles)} tiles" + ("" if sum(tiles) == count else f" where there are {count}")
    side = isqrt(len(read.places) // max(count, 1))
    if side * side * count != len(read.places) or sum(tiles) != count:
        raise read.misfit(grids)
    sheets = []
    for number, own in enumerate(read.split_places([side * side * many for many in tiles], grids)):
        (down, across), box, name = (
            shapes[number],
            read.whole_box(number),
            read.picture_name(number),
        )
        every = own.reshape(-1, side, side)
        if len(every) == 1:
            sheets.append(Sheet(name, number, every[0], box))
            continue
        inner = every[:-1].reshape(down, across, side, side).transpose(0, 2, 1, 3)
        cells = inner.reshape(down * side, across * side)
        sheets += [
            Sheet(f"{name} tiles", number, cells, box),
            Sheet(f"{name} overview", number, every[-1], box),
        ]
    return sheets


def canvas_tiles(processor: Any, height: int, width: int) -> tuple[int, int]:
    """Tiles of the shape nearest to the picture's (InternVL)."""
    from transformers.models.got_ocr2.image_processing_pil_got_ocr2 import get_optimal_tiled_canvas

    size, most = processor.size, (processor.min_patches, processor.max_patches)
    across, down = get_optimal_tiled_canvas((height, width), (size.height, size.width), *most)
    return down, across


def count_tiles(processor: Any, height: int, width: int) -> tuple[int, int]:
    """Tiles of the picture in its own shape, as its processor counts them (Idefics3)."""
    _, down, across = processor.get_number_of_image_patches(height, width, {})
    return max(down, 1), max(across, 1)


def place_anyres(read: PicturesRead) -> list[Sheet]:
    """The whole picture small, then its tiles without padding, a token after each row."""
    if read.video:  # every frame is pooled to a smaller square, and one token follows the last
        steps = int(read.inputs["pixel_values_videos"].shape[1])
        edge = isqrt(len(read.places) // steps)
        if edge * edge * steps + 1 != len(read.places):
            raise read.misfit(f"{steps} squares and a break")
        frames = place_frames(read, read.places[:-1].reshape(steps, edge, edge))
        frames[-1] = replace(frames[-1], placeless={int(read.places[-1]): "[newline]"})
        return frames
    if int(read.inputs.get("batch_num_images", [1])[0]) > 1:
        return _with_newline(read)
    from transformers.image_processing_utils import select_best_resolution

    vision = read.config.vision_config
    side = vision.image_size // vision.patch_size
    sheets, start = list[Sheet](), 0
    for number, (height, width) in enumerate(read.inputs["image_sizes"].tolist()):
        best = select_best_resolution((height, width), read.config.image_grid_pinpoints)
        rows, columns, box = _unpad(best, (height, width), vision.patch_size)
        # LLaVA-OneVision pools too many tiles, as `pack_image_features` of transformers does.
        most = str(getattr(read.config, "vision_aspect_ratio", "")).removeprefix("anyres_max_")
        if most.isdecimal() and (ratio := sqrt(rows * columns / (int(most) * side**2))) > 1.1:
            rows, columns = int(rows // ratio), int(columns // ratio)
        name, end = read.picture_name(number), start + side**2 + rows * (columns + 1)
        own, start = read.places[start:end], end
        if len(own) < side**2 + rows * (columns + 1):
            raise read.misfit(f"{side} × {side} and {rows} rows of {columns} and a break")
        tiles = own[side**2 :].reshape(rows, columns + 1)
        breaks = {int(place): "[newline]" for place in tiles[:, -1]}
        small = own[: side**2].reshape(side, side)
        sheets += [
            Sheet(f"{name} tiles", number, tiles[:, :-1], box, breaks),
            Sheet(f"{name} overview", number, small, read.whole_box(number)),
        ]
    if start != len(read.places):
        raise read.misfit(f"{start} cells and breaks")
    return sheets


def _unpad(canvas_size: tuple[int, int], size: tuple[int, int], patch: int) -> tuple[int, int, Box]:
    """Rows and columns of tiles without their padding, and the part of the picture they show."""
    cells, edges = list[int](), list[tuple[float, float]]()
    scale = min(whole / own for whole, own in zip(canvas_size, size, strict=True))
    grid = [whole // patch for whole in canvas_size]
    wide = size[1] / size[0] > grid[1] / grid[0]
    for axis, (whole, own) in enumerate(zip(canvas_size, size, strict=True)):
        is_padded = axis == (0 if wide else 1)
        share = grid[1] / size[1] if wide else grid[0] / size[0]
        # Rounded to 7 digits as in `unpad_image` of transformers.
        cut = (grid[axis] - int(round(own * share, 7))) // 2 if is_padded else 0
        inner = min(int(np.ceil(own * scale)), whole) if is_padded else whole
        before = (whole - inner) // 2
        cells.append(grid[axis] - 2 * cut)
        ends = cut * patch, (grid[axis] - cut) * patch
        edges.append(((ends[0] - before) / inner * own, (ends[1] - before) / inner * own))
    (top, bottom), (left, right) = edges
    return cells[0], cells[1], (left, top, right, bottom)


def _with_newline(read: PicturesRead) -> list[Sheet]:
    """Several pictures: each is one grid without tiles, and one token after it."""
    each = len(read.places) // len(read.pictures)
    side = isqrt(each)
    if side * side + 1 != each:
        raise read.misfit("a square and a break for each picture")
    sheets = []
    for number, own in enumerate(read.split_places([each] * len(read.pictures), "one grid each")):
        cells, breaks = own[:-1].reshape(side, side), {int(own[-1]): "[newline]"}
        sheets.append(
            Sheet(read.picture_name(number), number, cells, read.padded_box(number), breaks)
        )
    return sheets


def place_queries(read: PicturesRead) -> list[Sheet]:
    """The patches that a fixed number of queries attend to; a query has no place in a picture."""
    side = read.config.vision_config.patch_size
    height, width = (length // side for length in read.inputs["pixel_values"].shape[-2:])
    cells = 1 + np.arange(height * width).reshape(height, width)
    return [Sheet("picture", 0, cells, read.whole_box(0), {0: "[CLS]"})]


@dataclass(frozen=True, slots=True)
class PatchLayout:
    """A way to put image tokens into pictures, and its families."""

    about: str  # the cells in one line
    place: Callable[[PicturesRead], list[Sheet]]
    families: tuple[str, ...]
    video: tuple[str, ...] = ()  # the families that also read a video


LAYOUTS = {
    "grid": PatchLayout(
        "one grid a picture, as the vision tower cuts it, or pooled to fewer cells",
        place_grid,
        ("llava", "vipllava", "paligemma", "gemma3", "florence2", "janus", CAPTIONER),
    ),
    "merged": PatchLayout(
        "patches merged 2 × 2, as many as the picture's own shape has",
        merge_patches,
        ("qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe", "glm4v"),
        ("qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe"),
    ),
    "anyres": PatchLayout(
        "tiles without their padding, each row ended by a token, and the whole picture once more",
        place_anyres,
        ("llava_next", "llava_onevision"),
        ("llava_onevision",),
    ),
    "canvas": PatchLayout(
        "tiles of the shape nearest to the picture's, and the whole picture once more",
        partial(place_tiles, shape_of=canvas_tiles),
        ("internvl", "aya_vision"),
        ("internvl",),
    ),
    "split": PatchLayout(
        "tiles that the picture is cut into, each named, and the whole picture once more",
        partial(place_tiles, shape_of=count_tiles),
        ("idefics3", "smolvlm"),
    ),
    "rows": PatchLayout(
        "patches in the picture's own shape, merged or not, each row ended by a token",
        place_rows,
        ("mistral3", "pixtral"),
    ),
    "queries": PatchLayout(
        "a fixed number of queries without a place, which attend to the patches",
        place_queries,
        ("blip-2", "instructblip"),
    ),
}
"""The layouts of image tokens, by name."""
BY_FAMILY = {family: name for name, row in LAYOUTS.items() for family in row.families}


def family_of_pictures(config: Any) -> str:
    """The family in `LAYOUTS`: the model's; with Pixtral's tower, the tower's."""
    tower = getattr(getattr(config, "vision_config", None), "model_type", "")
    return tower if tower == "pixtral" else str(config.model_type)
