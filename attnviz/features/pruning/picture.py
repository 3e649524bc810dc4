"""The loss over the share of heads that are off, as lines."""

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from attnviz.features.corpus.results import PruneCurve
from attnviz.renderers.colors import Color, round_up
from attnviz.renderers.figures import figure as sheet
from attnviz.renderers.figures.canvas import EDGE, RULE, chart_page
from attnviz.renderers.figures.figure import ink

ROOM = 0.1  # the note names the share of heads that cost so many nats per output at most
_CURVE_WIDTH, _CURVE_HEIGHT = 1100, 600
_LOOKS: dict[str, tuple[str, Color]] = {
    "effect": ("smallest exact effect first", (0, 114, 178)),
    "confidence": ("lowest confidence (mean of each row's largest weight) first", (213, 94, 0)),
    "chance": ("in {} orders by chance: mean and range", (120, 126, 134)),
}


@sheet.own_settings()
def prune_curve(curve: PruneCurve) -> Figure:
    """The loss over the share of heads that are off (Michel et al. 2019), a line for each order."""
    count = len(curve.orders[0])
    reading = f"heads of all streams switched off one after another, {count} in all: {curve.texts}"
    notes = [
        curve.about,
        "loss: −log p in nats per output, the mean over all outputs",
        f"heads that can go before the loss has risen by {ROOM} nats: {_format_shares(curve)}",
    ]
    names = {name: text.format(curve.names.count(name)) for name, (text, _) in _LOOKS.items()}
    full = sheet.page_width(_CURVE_WIDTH, EDGE)
    texts, room = [reading, *names.values()], (full, _CURVE_HEIGHT)
    face, [[chart]] = chart_page(curve.caption, reading, texts, notes, room)
    roof, look = round_up(float(np.nanmax(curve.losses))), sheet.words(face, sheet.TEXT_SIZE)
    chart.set(xlim=(0, 1), ylim=(0, roof))
    chart.set_xlabel("heads that are off", **look)
    chart.set_ylabel("loss", **look)
    chart.set_yticks(np.linspace(0, roof, _steps_to(roof) + 1))
    chart.yaxis.set_major_formatter("{x:.3g}")
    chart.xaxis.set_major_formatter(PercentFormatter(1))
    chart.grid(axis="y", color=ink(RULE), linewidth=0.6)
    across = np.array(curve.off) / count
    for name, (_, color) in _LOOKS.items():
        own = curve.losses_by(name)
        if len(own) > 1:
            ends = own.min(axis=0), own.max(axis=0)
            chart.fill_between(across, *ends, color=ink(color), alpha=0.18, linewidth=0)
        words, wide = face.wrap(names[name], sheet.NOTE_SIZE, full - 240), 2 - 0.6 * (len(own) > 1)
        chart.plot(across, own.mean(axis=0), color=ink(color), linewidth=wide, label=words)
    chart.legend(loc="upper left", frameon=False, prop=face.font(sheet.NOTE_SIZE))
    return chart.figure  # type: ignore[no-any-return]


def _steps_to(roof: float) -> int:
    """Even steps from 0 to a round number, each round too."""
    digit = round(roof / 10 ** np.floor(np.log10(roof)), 1)
    return int(digit) if digit in (3, 4, 5, 6, 7) else 4 if digit in (2, 8) else 5


def _format_shares(curve: PruneCurve) -> str:
    """For each order the largest share of heads before the loss exceeds `ROOM`."""
    shares = {}
    for name in dict.fromkeys(curve.names):
        mean = curve.losses_by(name).mean(axis=0)
        within = mean <= mean[0] + ROOM
        first = len(within) if within.all() else int(within.argmin())
        shares[name] = curve.off[first - 1] / curve.off[-1]
    return ", ".join(f"{share:.0%} by {name}" for name, share in shares.items())
