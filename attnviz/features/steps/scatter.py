"""Inputs, values and outputs as points in space: an output is a mixture of the values."""

import attnviz.renderers.figures  # isort: skip  # noqa: F401 - first: it loads matplotlib

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from mpl_toolkits.mplot3d.art3d import Line3DCollection  # type: ignore[import-untyped]
from mpl_toolkits.mplot3d.proj3d import proj_transform  # type: ignore[import-untyped]
from numpy.typing import NDArray

from attnviz.core.records import dataclass
from attnviz.features.steps.arithmetic import Steps
from attnviz.renderers.colors import FAINT, LABELLED, Color, color_of
from attnviz.renderers.figures.figure import (
    NOTE_SIZE,
    TEXT_SIZE,
    ink,
    overlap_area,
    own_settings,
    points,
    titled_figure,
)
from attnviz.renderers.figures.fonts import Typeface, typeface

Axes3D = Any  # axes in three dimensions, for which matplotlib has no types
Box = tuple[float, float, float, float]  # left, bottom, right and top in pixels
Points = NDArray[np.float64]

INPUT, OUTPUT = color_of(0.6), color_of(0.95)
MOST_LABELS = 40
FAINTEST = 0.01  # a line of a smaller weight would not be seen


@dataclass(frozen=True, slots=True, eq=False)
class Cloud:
    """Points of one kind: a name for the legend, a label each, their looks."""

    name: str
    points: Points
    labels: tuple[str, ...]
    color: Color
    marker: str


@own_settings()
def scatter(steps: Steps) -> Figure:
    """Two spaces side by side: the inputs, and the values with the outputs mixed from them.

    Without projections both are the same space, drawn once. Lines join an output to its values;
    the larger the weight, the darker the line. More than three features are reduced to their first
    three principal components, fewer are padded with 0; the title of the panel says so.
    """
    panels = _panels(steps)
    face = typeface([steps.title, *steps.query_tokens, *steps.key_tokens])
    width = 3.9 * len(panels) + 0.2
    figure = titled_figure(steps.title, width, 4.4, 0.02 * width, 0.97, face)
    for number, clouds in enumerate(panels):
        axes = figure.add_axes(
            ((number + 0.02) / len(panels), 0.13, 0.92 / len(panels), 0.75), projection="3d"
        )
        _draw(axes, clouds, steps["weights"], face)
    return figure


def project_to_3d(cloud: Points) -> tuple[Points, str]:
    """The points with three coordinates each, and a note on how they were computed."""
    size = cloud.shape[1]
    if size <= 3:
        flat = np.pad(cloud, ((0, 0), (0, 3 - size)))
        return flat, f"{size} features" + (", padded with 0" if size < 3 else "")
    deviations = cloud - cloud.mean(axis=0)
    _, spread, directions = np.linalg.svd(deviations, full_matrices=False)
    # A direction's sign is arbitrary; its largest entry is made positive, so that runs agree.
    largest = np.abs(directions).argmax(axis=1)
    directions *= np.sign(directions[np.arange(len(directions)), largest])[:, None]
    coordinates = deviations @ directions[:3].T
    total = float((spread**2).sum())
    share = float((spread[:3] ** 2).sum()) / total if total else 1.0
    words = f"principal components 1–3 of {size} features, {share:.0%} of the variance"
    return np.pad(coordinates, ((0, 0), (0, 3 - coordinates.shape[1]))), words


def _panels(steps: Steps) -> list[list[Cloud]]:
    """The clouds of each panel; the clouds of a panel share one space."""
    names = [matrix.name for matrix in steps]
    queries, keys = steps.query_tokens, steps.key_tokens
    output = Cloud("output", steps["output"], queries, OUTPUT, "o")
    if "inputs" in names:
        inputs = [Cloud("inputs", steps["inputs"], queries, INPUT, "s")]
    elif "query_input" not in names:  # queries and keys are given, and meet in one space
        inputs = [
            Cloud("query", steps["query"], queries, INPUT, "s"),
            Cloud("key", steps["key"], keys, LABELLED, "^"),
        ]
    elif np.array_equal(steps["query_input"], steps["key_value_input"]):
        name = "query_input = key_value_input"
        inputs = [Cloud(name, steps["query_input"], queries, INPUT, "s")]
    else:
        inputs = [
            Cloud("query_input", steps["query_input"], queries, INPUT, "s"),
            Cloud("key_value_input", steps["key_value_input"], keys, LABELLED, "^"),
        ]
    if "value" in names:
        return [inputs, [Cloud("value", steps["value"], keys, LABELLED, "^"), output]]
    return [[*inputs, output]]


def _draw(axes: Axes3D, clouds: Sequence[Cloud], weights: NDArray[Any], face: Typeface) -> None:
    coordinates, words = project_to_3d(np.concatenate([cloud.points for cloud in clouds]))
    parts = np.split(coordinates, np.cumsum([len(cloud.points) for cloud in clouds])[:-1])
    if clouds[-1].name == "output":
        # Implied weights may be signed, and larger than 1.
        strength = np.minimum(np.abs(weights), 1)
        rows, columns = np.nonzero(strength >= FAINTEST)
        if rows.size:  # a mask may leave no weight
            ends = np.stack([parts[-1][rows], parts[-2][columns]], axis=1)
            colors = [(*ink(OUTPUT), float(weight)) for weight in strength[rows, columns]]
            axes.add_collection3d(Line3DCollection(ends, colors=colors, linewidths=0.8))
            words += "\na line is as dark as its weight"
    for cloud, part in zip(clouds, parts, strict=True):
        own = {"color": ink(cloud.color), "marker": cloud.marker, "label": cloud.name, "s": 26}
        axes.scatter(*part.T, **own, depthshade=False, edgecolors="white", linewidths=0.5)
    _draw_frame(axes, coordinates)
    if len(coordinates) <= MOST_LABELS:
        _label_points(axes, clouds, parts, face)
    else:
        words += "\ntoo many points to name"
    axes.set_title(words, fontproperties=face.font(NOTE_SIZE), color=ink(FAINT), y=-0.085, va="top")
    looks: dict[str, Any] = {"loc": "upper left", "frameon": False, "ncols": 2}
    axes.legend(prop=face.font(TEXT_SIZE), bbox_to_anchor=(0.0, 1.07), **looks)


def _label_points(
    axes: Axes3D, clouds: Sequence[Cloud], parts: Sequence[Points], face: Typeface
) -> None:
    """Write a label beside each point, on the side where it covers least."""
    axes.apply_aspect()
    places = [
        axes.transData.transform(np.stack(proj_transform(*part.T, axes.get_proj())[:2], axis=-1))
        for part in parts
    ]
    obstacles = [(x - 6, y - 6, x + 6, y + 6) for x, y in np.concatenate(places)]
    for cloud, spots in zip(clouds, places, strict=True):
        bold = cloud.name == "output"
        for label, (x, y) in zip(cloud.labels, spots, strict=True):
            text = face.drawable(label)
            box = _freest_box(x, y, face.width(text, NOTE_SIZE, bold=bold), obstacles)
            obstacles.append(box)
            axes.annotate(
                text,
                axes.transData.inverted().transform(box[:2]),
                fontproperties=face.font(NOTE_SIZE, bold=bold),
                color=ink(cloud.color),
                parse_math=False,
                annotation_clip=False,
            )


def _freest_box(x: float, y: float, width: float, obstacles: Sequence[Box]) -> Box:
    """Of eight boxes around a point, the one that overlaps the others least."""
    height = points(NOTE_SIZE)
    lefts = {"right": x + 9, "middle": x - width / 2, "left": x - 9 - width}
    bottoms = {"above": y + 8, "middle": y - height / 2.6, "below": y - 8 - height}
    sides = [
        (lefts[side], bottoms[level])
        for side, level in (
            *(("right", "middle"), ("left", "middle"), ("middle", "above"), ("middle", "below")),
            *(("right", "above"), ("right", "below"), ("left", "above"), ("left", "below")),
        )
    ]
    boxes = [(left, bottom, left + width, bottom + height) for left, bottom in sides]
    return min(boxes, key=lambda box: sum(overlap_area(box, other) for other in obstacles))


def _draw_frame(axes: Axes3D, coordinates: Points) -> None:
    """Draw a cube with the same scale on its three sides, so that distances can be compared."""
    middle = (coordinates.max(axis=0) + coordinates.min(axis=0)) / 2
    half = max(float(np.ptp(coordinates, axis=0).max()) / 2, 0.5) * 1.08
    for name, centre in zip("xyz", middle, strict=True):
        getattr(axes, f"set_{name}lim")(centre - half, centre + half)
        side = getattr(axes, f"{name}axis")
        side.set_pane_color((0.975, 0.975, 0.975, 1.0))
        side.line.set_color(ink(FAINT))
        side.set_major_locator(MaxNLocator(4))
        side._axinfo["grid"].update(color=(0.88, 0.88, 0.88), linewidth=0.5)
    axes.set_box_aspect((1, 1, 1), zoom=1.08)
    axes.tick_params(labelsize=NOTE_SIZE - 1, pad=-2, colors=ink(FAINT))
    axes.view_init(elev=22, azim=-58)
