"""Where the image tokens of a text model's sequence lie in the pictures that it reads.

A layout says which positions of the sequence are which cells of which picture. It is worked out
from what the processor returns (numbers of tokens, grids and sizes), and a family is a name in a
row of `LAYOUTS`. What lies between the pictures' tokens without being a cell (a class token, the
end of a row, the name of a tile) has no place, and stays a key beside the cells.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import isqrt, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.core.errors import AttentionError
from attnviz.models.hugging_face.vision.pictures import Box, pair, seen_box


@dataclass(frozen=True, slots=True, eq=False)
class Sheet:
    """One grid of cells over a picture, or over one frame of a video.

    Attributes:
        name: what it is ("picture", "picture 1 tiles", "frame 3").
        picture: the number of the picture or frame that it lies over.
        cells: positions in the sequence, shape (rows, columns).
        box: the part of the picture that the cells cover, in its pixels.
        placeless: positions of image tokens that are no cell, and what they are.
    """

    name: str
    picture: int
    cells: NDArray[np.int64]
    box: Box
    placeless: Mapping[int, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class PicturesRead:
    """What is known of pictures that were made inputs of a model.

    Attributes:
        places: the positions of all image tokens in the sequence, in order.
    """

    name: str
    config: Any
    processor: Any
    inputs: Mapping[str, Any]
    pictures: Sequence[Any]
    places: NDArray[np.int64]
    video: bool = False

    def refused(self, grids: str) -> AttentionError:
        """The error where tokens do not fit the grids."""
        what = "a video" if self.video else f"{len(self.pictures)} picture(s)"
        return AttentionError(
            f"'{self.name}' ({self.config.model_type}) makes {len(self.places)} tokens of {what}, "
            f"which does not fit {grids}: they cannot be put back into it"
        )

    def named(self, number: int) -> str:
        """What a picture is called."""
        if self.video:
            return f"frame {number}"
        return "picture" if len(self.pictures) == 1 else f"picture {number}"

    def whole(self, number: int) -> Box:
        """All of a picture."""
        width, height = self.pictures[number].size
        return 0.0, 0.0, float(width), float(height)

    def square(self, number: int) -> Box:
        """A picture with what pads it to a square around its middle."""
        _, _, width, height = self.whole(number)
        across, down = max(height - width, 0) / 2, max(width - height, 0) / 2
        return -across, -down, width + across, height + down

    def in_turn(self, counts: Sequence[int], grids: str) -> list[NDArray[np.int64]]:
        """The image tokens in runs of these lengths, which must be all."""
        if sum(counts) != len(self.places) or not all(counts):
            raise self.refused(grids)
        return np.split(self.places, np.cumsum(counts)[:-1].tolist())


def fitted(count: int, height: int, width: int) -> tuple[int, int, int] | None:
    """Rows and columns of the square cells that fill so many pixels, and tokens left over: 0 or 1.

    None: no such grid has that many cells.
    """
    for extra in (0, 1):
        rows = round(sqrt(max(count - extra, 0) * height / width))
        columns = (count - extra) // rows if rows else 0
        if rows and rows * columns == count - extra and rows * width == columns * height:
            return rows, columns, extra
    return None


def one_grid(read: PicturesRead) -> list[Sheet]:
    """Cells of one size over what a picture was made to, pooled or not, behind a class token."""
    images, pixels = len(read.pictures), read.inputs["pixel_values"]
    height, width = pixels.shape[-2:]
    patch = getattr(read.config.vision_config, "patch_size", None)
    down, across = pair(patch) if isinstance(patch, int) else (1, 1)
    grids = f"{height // down} × {width // across} patches each"
    grid = fitted(len(read.places) // images, height, width)
    if grid is None or (height // down) % grid[0] or (width // across) % grid[1]:
        raise read.refused(grids)
    rows, columns, extra = grid
    sheets = []
    for number, own in enumerate(read.in_turn([rows * columns + extra] * images, grids)):
        images_by = read.processor.image_processor
        box = seen_box(images_by, read.pictures[number], None)
        if getattr(images_by, "do_pad", False) and hasattr(images_by, "pad_to_square"):
            box = read.square(number)
        cells = own[extra:].reshape(rows, columns)
        named = {int(place): "[CLS]" for place in own[:extra]}
        sheets.append(Sheet(read.named(number), number, cells, box, named))
    return sheets


def merged(read: PicturesRead) -> list[Sheet]:
    """Patches merged in squares, of a picture in its own shape; of a video some frames at once."""
    side = int(getattr(read.config.vision_config, "spatial_merge_size", 1))
    grids = read.inputs["video_grid_thw" if read.video else "image_grid_thw"].tolist()
    shapes = [(times, rows // side, columns // side) for times, rows, columns in grids]
    told = " and ".join(" × ".join(map(str, shape)) for shape in shapes)
    sheets = list[Sheet]()
    for number, own in enumerate(read.in_turn([int(np.prod(one)) for one in shapes], told)):
        times, rows, columns = shapes[number]
        if read.video:
            sheets += frames(read, own.reshape(times, rows, columns))
        else:
            cells = own.reshape(rows, columns)
            sheets.append(Sheet(read.named(number), number, cells, read.whole(number)))
    return sheets


def frames(read: PicturesRead, cells: NDArray[np.int64]) -> list[Sheet]:
    """A sheet for each step of a video, cells of shape (steps, rows, columns), over its frames."""
    each = int(getattr(read.config.vision_config, "temporal_patch_size", 1))
    if -(-len(read.pictures) // each) != len(cells):
        raise read.refused(f"{len(cells)} steps of {each} of its {len(read.pictures)} frames")
    sheets = []
    for step, own in enumerate(cells):
        first, last = step * each, min((step + 1) * each, len(read.pictures)) - 1
        name = f"frame {first}" if first == last else f"frames {first}-{last}"
        sheets.append(Sheet(name, first, own, read.whole(first)))
    return sheets


def rows_apart(read: PicturesRead) -> list[Sheet]:
    """Patches of a picture in its own shape, with a token that breaks the row behind each."""
    side = int(getattr(read.config, "spatial_merge_size", 1)) * read.config.vision_config.patch_size
    shapes = [(high // side, wide // side) for high, wide in read.inputs["image_sizes"].tolist()]
    told = " and ".join(f"{rows} × {columns}" for rows, columns in shapes)
    runs = read.in_turn([rows * columns for rows, columns in shapes], told)
    return [
        Sheet(read.named(number), number, own.reshape(shape), read.whole(number))
        for number, (own, shape) in enumerate(zip(runs, shapes, strict=True))
    ]


def tiled(read: PicturesRead, shape_of: Callable[[Any, int, int], tuple[int, int]]) -> list[Sheet]:
    """Tiles row by row, put together to one grid, then the whole picture once more, smaller.

    `shape_of` says how many tiles lie below and beside each other in a picture.
    """
    values = read.inputs["pixel_values"]
    count = int(np.prod(values.shape[:-3]))
    images = len(read.pictures)
    shapes = [(1, 1)] * images
    if count != images:
        sizes = [(picture.height, picture.width) for picture in read.pictures]
        shapes = [shape_of(read.processor.image_processor, *size) for size in sizes]
    tiles = [down * across + (down * across > 1) for down, across in shapes]
    told = f"{sum(tiles)} tiles" + ("" if sum(tiles) == count else f" where there are {count}")
    side = isqrt(len(read.places) // max(count, 1))
    if side * side * count != len(read.places) or sum(tiles) != count:
        raise read.refused(told)
    sheets = []
    for number, own in enumerate(read.in_turn([side * side * many for many in tiles], told)):
        (down, across), box, name = shapes[number], read.whole(number), read.named(number)
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


def canvas(processor: Any, height: int, width: int) -> tuple[int, int]:
    """Tiles of the shape nearest to the picture's (InternVL)."""
    from transformers.models.got_ocr2.image_processing_pil_got_ocr2 import get_optimal_tiled_canvas

    size, most = processor.size, (processor.min_patches, processor.max_patches)
    across, down = get_optimal_tiled_canvas((height, width), (size.height, size.width), *most)
    return down, across


def split(processor: Any, height: int, width: int) -> tuple[int, int]:
    """Tiles of the picture in its own shape, as its processor counts them (Idefics3)."""
    _, down, across = processor.get_number_of_image_patches(height, width, {})
    return max(down, 1), max(across, 1)


def anyres(read: PicturesRead) -> list[Sheet]:
    """The whole picture small, then tiles without what pads them, a token behind each row."""
    if read.video:
        return _pooled_frames(read)
    if int(read.inputs.get("batch_num_images", [1])[0]) > 1:
        return _with_newline(read)
    from transformers.image_processing_utils import select_best_resolution

    vision = read.config.vision_config
    side = vision.image_size // vision.patch_size
    sheets, start = list[Sheet](), 0
    for number, (height, width) in enumerate(read.inputs["image_sizes"].tolist()):
        best = select_best_resolution((height, width), read.config.image_grid_pinpoints)
        rows, columns, box = _unpadded(best, (height, width), vision.patch_size)
        most = str(getattr(read.config, "vision_aspect_ratio", "")).removeprefix("anyres_max_")
        if most.isdecimal() and (ratio := sqrt(rows * columns / (int(most) * side**2))) > 1.1:
            rows, columns = int(rows // ratio), int(columns // ratio)
        name, end = read.named(number), start + side**2 + rows * (columns + 1)
        own, start = read.places[start:end], end
        if len(own) < side**2 + rows * (columns + 1):
            raise read.refused(f"{side} × {side} and {rows} rows of {columns} and a break")
        tiles = own[side**2 :].reshape(rows, columns + 1)
        breaks = {int(place): "[newline]" for place in tiles[:, -1]}
        sheets += [
            Sheet(f"{name} tiles", number, tiles[:, :-1], box, breaks),
            Sheet(f"{name} overview", number, own[: side**2].reshape(side, side),
                  read.whole(number)),
        ]  # fmt: skip
    if start != len(read.places):
        raise read.refused(f"{start} cells and breaks")
    return sheets


def _unpadded(
    canvas_size: tuple[int, int], size: tuple[int, int], patch: int
) -> tuple[int, int, Box]:
    """Rows and columns of what is left of padded tiles, and which part of the picture that is."""
    cells, edges = list[int](), list[tuple[float, float]]()
    scale = min(whole / own for whole, own in zip(canvas_size, size, strict=True))
    grid = [whole // patch for whole in canvas_size]
    wide = size[1] / size[0] > grid[1] / grid[0]
    for axis, (whole, own) in enumerate(zip(canvas_size, size, strict=True)):
        padded = axis == (0 if wide else 1)
        share = grid[1] / size[1] if wide else grid[0] / size[0]
        cut = (grid[axis] - int(round(own * share, 7))) // 2 if padded else 0
        made = min(int(np.ceil(own * scale)), whole) if padded else whole
        before = (whole - made) // 2
        cells.append(grid[axis] - 2 * cut)
        ends = cut * patch, (grid[axis] - cut) * patch
        edges.append(((ends[0] - before) / made * own, (ends[1] - before) / made * own))
    (top, bottom), (left, right) = edges
    return cells[0], cells[1], (left, top, right, bottom)


def _with_newline(read: PicturesRead) -> list[Sheet]:
    """Of several pictures each is one grid without tiles, and one token behind it."""
    each = len(read.places) // len(read.pictures)
    side = isqrt(each)
    if side * side + 1 != each:
        raise read.refused("a square and a break for each picture")
    return [
        Sheet(read.named(number), number, own[:-1].reshape(side, side), read.square(number),
              {int(own[-1]): "[newline]"})
        for number, own in enumerate(read.in_turn([each] * len(read.pictures), "one grid each"))
    ]  # fmt: skip


def _pooled_frames(read: PicturesRead) -> list[Sheet]:
    """Every frame pooled to a smaller square, and one token behind the last."""
    steps = int(read.inputs["pixel_values_videos"].shape[1])
    side = isqrt(len(read.places) // steps)
    if side * side * steps + 1 != len(read.places):
        raise read.refused(f"{steps} squares and a break")
    sheets = frames(read, read.places[:-1].reshape(steps, side, side))
    sheets[-1] = replace(sheets[-1], placeless={int(read.places[-1]): "[newline]"})
    return sheets


def queries(read: PicturesRead) -> list[Sheet]:
    """The patches that a fixed number of queries look at; the queries have no place themselves."""
    side = read.config.vision_config.patch_size
    height, width = (length // side for length in read.inputs["pixel_values"].shape[-2:])
    cells = 1 + np.arange(height * width).reshape(height, width)
    return [Sheet("picture", 0, cells, read.whole(0), {0: "[CLS]"})]


@dataclass(frozen=True, slots=True)
class PatchLayout:
    """A way to put image tokens into pictures, and the families that have it.

    Attributes:
        about: what the cells are, in one line.
        video: families of these that also read a video.
    """

    about: str
    place: Callable[[PicturesRead], list[Sheet]]
    families: tuple[str, ...]
    video: tuple[str, ...] = ()


LAYOUTS = {
    "grid": PatchLayout(
        "one grid a picture, as the vision tower cuts it, or pooled to fewer cells",
        one_grid,
        ("llava", "vipllava", "paligemma", "gemma3", "florence2", "janus"),
    ),
    "merged": PatchLayout(
        "patches merged 2 × 2, as many as the picture's own shape has",
        merged,
        ("qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe", "glm4v"),
        ("qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe"),
    ),
    "anyres": PatchLayout(
        "tiles without their padding, each row ended by a token, and the whole picture once more",
        anyres,
        ("llava_next", "llava_onevision"),
        ("llava_onevision",),
    ),
    "canvas": PatchLayout(
        "tiles of the shape nearest to the picture's, and the whole picture once more",
        partial(tiled, shape_of=canvas),
        ("internvl", "aya_vision"),
        ("internvl",),
    ),
    "split": PatchLayout(
        "tiles that the picture is cut into, each named, and the whole picture once more",
        partial(tiled, shape_of=split),
        ("idefics3", "smolvlm"),
    ),
    "rows": PatchLayout(
        "patches in the picture's own shape, merged or not, each row ended by a token",
        rows_apart,
        ("mistral3", "pixtral"),
    ),
    "queries": PatchLayout(
        "a fixed number of queries without a place, which look at the patches themselves",
        queries,
        ("blip-2", "instructblip"),
    ),
}
"""How image tokens lie in a picture, by name."""
BY_FAMILY = {family: name for name, row in LAYOUTS.items() for family in row.families}


def family_of_pictures(config: Any) -> str:
    """The family that a layout is known by: of LLaVA with Pixtral's tower it is the tower's."""
    tower = getattr(getattr(config, "vision_config", None), "model_type", "")
    return tower if tower == "pixtral" else str(config.model_type)
