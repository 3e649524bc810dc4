"""The loss of a model while its heads are switched off, as Michel et al. (2019) draw it."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from attnviz.core.effects import PruneCurve
from attnviz.renderers.colors import FAINT, INK, Color, round_up
from attnviz.renderers.figures.canvas import EDGE, Canvas, page_with_room
from attnviz.renderers.figures.figure import NOTE_SIZE, TEXT_SIZE, ink, line_height, own_settings

ROOM = 0.1
"""The note names the share of heads that cost so many nats per output at most."""
_WIDTH, _HEIGHT, _LEFT = 1100, 520, 90
_RULE: Color = (222, 226, 231)
_LOOKS: dict[str, tuple[str, Color]] = {
    "effect": ("smallest exact effect first", (0, 114, 178)),
    "confidence": ("lowest confidence (mean of each row's largest weight) first", (213, 94, 0)),
    "chance": ("in {} orders by chance: mean and range", (120, 126, 134)),
}


@own_settings()
def prune_curve(curve: PruneCurve) -> Figure:
    """The loss over the share of heads that are off, a line for each order, a band for chance."""
    count = len(curve.orders[0])
    reading = f"heads of all streams switched off one after another, {count} in all: {curve.texts}"
    notes = [
        curve.about,
        "loss: −log p in nats per output, the mean over all outputs",
        f"heads that can go before the loss has risen by {ROOM} nats: {_format_shares(curve)}",
    ]
    names = {name: text.format(curve.names.count(name)) for name, (text, _) in _LOOKS.items()}
    line = line_height(NOTE_SIZE)
    texts, room = [reading, *names.values(), "0123456789.%"], (_WIDTH, _HEIGHT + 3.6 * line)
    canvas, top = page_with_room(curve.caption, reading, texts, notes, room, 1.6 * line)
    left, width = EDGE + _LEFT, _WIDTH - _LEFT - 30
    roof = round_up(float(np.nanmax(curve.losses)))
    across = left + np.array(curve.off) / count * width

    def height(losses: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray(top + _HEIGHT * (1 - losses / roof))

    _scales(canvas, (left, top, width), roof)
    for name, (_, color) in _LOOKS.items():
        own = curve.losses_by(name)
        if len(own) > 1:
            ends = height(own.min(axis=0)), height(own.max(axis=0))
            canvas.axes.fill_between(across, *ends, color=ink(color), alpha=0.18, linewidth=0)
        way = np.stack([across, height(own.mean(axis=0))], axis=-1)
        canvas.strokes(way[None], color, 2.0 if len(own) == 1 else 1.4, label=name)
    for place, (name, (_, color)) in enumerate(_LOOKS.items()):
        y = top + (0.8 + 1.15 * place) * line
        canvas.strokes(np.array([[(left + 16, y), (left + 52, y)]]), color, 2.0)
        canvas.text(left + 62, y, names[name], NOTE_SIZE, INK)
    return canvas.figure


def _scales(canvas: Canvas, at: tuple[float, float, float], roof: float) -> None:
    left, top, width = at
    line = line_height(NOTE_SIZE)
    digit = round(roof / 10 ** np.floor(np.log10(roof)), 1)
    steps = int(digit) if digit in (3, 4, 5, 6) else 4 if digit in (2, 8) else 5
    for step in range(steps + 1):
        y = top + _HEIGHT * (1 - step / steps)
        canvas.strokes(np.array([[(left, y), (left + width, y)]]), _RULE, 0.6)
        canvas.text(left - 12, y, f"{roof * step / steps:.3g}", NOTE_SIZE, FAINT, align="right")
    for step in range(6):
        x = left + width * step / 5
        y = top + _HEIGHT + 0.8 * line
        canvas.text(x, y, f"{step * 20}%", NOTE_SIZE, FAINT, align="center")
    canvas.text(left - 12, top - 0.9 * line, "loss", TEXT_SIZE, INK, align="right")
    middle = left + width / 2, top + _HEIGHT + 2.1 * line
    canvas.text(*middle, "heads that are off", TEXT_SIZE, INK, align="center")


def _format_shares(curve: PruneCurve) -> str:
    """For each order the largest share of heads before the loss exceeds `ROOM`."""
    shares = {}
    for name in dict.fromkeys(curve.names):
        mean = curve.losses_by(name).mean(axis=0)
        within = mean <= mean[0] + ROOM
        first = len(within) if within.all() else int(within.argmin())
        shares[name] = curve.off[first - 1] / curve.off[-1]
    return ", ".join(f"{share:.0%} by {name}" for name, share in shares.items())
