"""Where the image tokens of a text model's sequence lie in the pictures that it reads.

Positions of the sequence are cells of sheets: grids over pictures. Probes find them for any family
(`place_by_probes`). `LAYOUTS` has a row for what they cannot find, with the reason, and places it
by what the processor returns (numbers of tokens, grids and sizes). Image tokens that are no cell (a
class token, the end of a row, the name of a tile) stay keys without a place.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from math import isqrt, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.core.errors import AttentionError
from attnviz.core.records import dataclass, field, replace
from attnviz.features.picture_text.probe import Cells
from attnviz.features.picture_text.sheets import grids_of
from attnviz.features.vision.pictures import Box, special_names


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
    """A way to put image tokens into pictures that probes do not find, and its families."""

    about: str  # the cells in one line
    why: str  # why a row stands here
    place: Callable[[PicturesRead], list[Sheet]]
    families: tuple[str, ...]


LAYOUTS = {
    "anyres": PatchLayout(
        "tiles without their padding, each row ended by a token, and the whole picture once more",
        "patches of a video, and of many tiles, are interpolated: one goes into several tokens",
        place_anyres,
        ("llava_onevision",),
    ),
    "queries": PatchLayout(
        "a fixed number of queries without a place, which attend to the patches",
        "a query has no patches of its own: where it looks is its own attention",
        place_queries,
        ("blip-2", "instructblip"),
    ),
}
"""The layouts of image tokens that are written down, by name."""
BY_FAMILY = {family: name for name, row in LAYOUTS.items() for family in row.families}


def place_by_probes(read: PicturesRead, cells: Cells) -> list[Sheet]:
    """The cells that probes have found, in grids over the pictures."""
    grids = grids_of(cells, [picture.size for picture in read.pictures])
    if grids is None:
        raise read.misfit("any grid of its patches")
    loose = {int(place) for place in read.places} - {int(place) for place in cells.places}
    names = {place: cells.names[place] for place in loose if place in cells.names}
    tower = getattr(read.config, "vision_config", None) or getattr(read.config, "encoder", None)
    first = min(int(grid.cells.min()) for grid in grids)
    before = sorted(place for place in loose - names.keys() if place < first)
    kind = str(getattr(tower, "model_type", ""))
    names |= dict(zip(before, special_names(kind, len(before)), strict=True))
    many = Counter((grid.first, grid.last) for grid in grids)
    sheets, order = list[Sheet](), Counter[tuple[int, int]]()
    for grid in grids:
        own = grid.first, grid.last
        name = read.picture_name(grid.first)
        if grid.last > grid.first:
            name = f"frames {grid.first}-{grid.last}"
        if many[own] > 1:
            part = "overview" if order[own] == many[own] - 1 else "tiles"
            number = f" {order[own] + 1}" if part == "tiles" and many[own] > 2 else ""
            name = f"{name} {part}{number}"
        order[own] += 1
        sheets.append(Sheet(name, grid.first, grid.cells, grid.box, names))
    return sheets


def image_token_of(config: Any, what: str = "image") -> int | None:
    """The token that stands for a part of a picture, or video, in a model's texts; or None."""
    numbers = (getattr(config, f"{what}_token_{one}", None) for one in ("id", "index"))
    return next((number for number in numbers if isinstance(number, int)), None)
