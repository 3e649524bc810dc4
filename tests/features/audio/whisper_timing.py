"""Word times as Whisper's own code has them (`find_alignment` in `timing.py`), in slow loops.

Written from its description: queries times keys of the alignment heads are cut to the frames that
are heard and softmaxed over them; each frame is standardised over all tokens, the first marks and
the ending one included; a median of 7 frames is taken; heads are averaged; the rows from the last
mark before the text to the last of its tokens go through dynamic time warping; a token begins in
the frame in which the path reaches its row.
"""

from itertools import accumulate
from math import exp, inf, sqrt
from statistics import fmean, median
from typing import Any

import torch


def mean_scores(model: Any, features: Any, ids: list[int], marks: int, frames: int) -> Any:
    """What each token of the text and its end gathers in each frame, by the alignment heads.

    `ids` begin with `marks` special tokens and end with that which ends the text.
    """
    heads = model.generation_config.alignment_heads
    matrices = [_smooth(scores) for scores in _products(model, features, ids, heads, frames)]
    return [
        [fmean(matrix[row][frame] for matrix in matrices) for frame in range(frames)]
        for row in range(marks - 1, len(ids) - 1)
    ]


def _products(model: Any, features: Any, ids: list[int], heads: Any, frames: int) -> Any:
    """Of each head the scores (tokens, frames) before their softmax."""
    made: dict[Any, Any] = {}
    hooks = []
    for number, layer in enumerate(model.model.decoder.layers):
        for name in ("q_proj", "k_proj"):

            def keep(_part: Any, _given: Any, out: Any, key: Any = (number, name)) -> None:
                made[key] = out[0].double()

            hooks.append(getattr(layer.encoder_attn, name).register_forward_hook(keep))
    with torch.no_grad():
        model(features, decoder_input_ids=torch.tensor([ids]))
    for hook in hooks:
        hook.remove()
    size = model.config.d_model // model.config.decoder_attention_heads
    for layer, head in heads:
        part = slice(head * size, (head + 1) * size)
        queries, keys = (made[layer, name][:, part].tolist() for name in ("q_proj", "k_proj"))
        yield [
            [
                sum(a * b for a, b in zip(query, key, strict=True)) / sqrt(size)
                for key in keys[:frames]
            ]
            for query in queries
        ]


def _smooth(scores: list[list[float]]) -> list[list[float]]:
    rows = []
    for row in scores:
        parts = [exp(score - max(row)) for score in row]
        rows.append([part / sum(parts) for part in parts])
    for frame in range(len(rows[0])):
        column = [row[frame] for row in rows]
        centre = fmean(column)
        spread = sqrt(fmean((value - centre) ** 2 for value in column))
        for row, value in zip(rows, column, strict=True):
            row[frame] = (value - centre) / spread
    mirrored = [row[3:0:-1] + row + row[-2:-5:-1] for row in rows]
    return [[median(row[n : n + 7]) for n in range(len(row) - 6)] for row in mirrored]


def path(gains: list[list[float]]) -> list[int]:
    """The frame in which the path that gathers most reaches each row."""
    rows, frames = len(gains), len(gains[0])
    best = [[-inf] * frames for _ in range(rows)]
    came: dict[tuple[int, int], tuple[int, int]] = {}
    best[0] = list(accumulate(gains[0]))
    came |= {(0, frame): (0, frame - 1) for frame in range(1, frames)}
    for row in range(1, rows):
        for frame in range(frames):
            places = [(row, frame - 1), (row - 1, frame - 1), (row - 1, frame)]
            before = [place for place in places if place[1] >= 0]
            came[row, frame] = max(before, key=lambda place: best[place[0]][place[1]])
            at = came[row, frame]
            best[row][frame] = best[at[0]][at[1]] + gains[row][frame]
    place, found = (rows - 1, frames - 1), {}
    while place != (0, 0):
        found[place[0]] = place[1]
        place = came[place]
    return [0, *(found[row] for row in range(1, rows))]
