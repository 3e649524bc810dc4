"""When each word of a text is spoken, read off a decoder's attention over a recording's frames.

As Whisper's word timestamps (Radford et al. 2023; `find_alignment` in `timing.py` of its code): of
each chosen head the softmax runs over the frames of the recording alone, the weights of a frame are
standardised over every token that the decoder reads, the marks before and behind the text included,
smoothed along time by a median filter, then averaged over the heads. Dynamic time warping (Sakoe &
Chiba 1978) finds the path from the first token in the first frame to the last token in the last
one that gathers most; a token begins where the path reaches its row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from attnviz.analyses.words import split_words, word_numbers
from attnviz.core.attention_map import AttentionMap
from attnviz.core.errors import UsageError
from attnviz.core.tokens import text_places
from attnviz.storage.timed_words import TimedWord

MOST_HEADS, CANDIDATES, ENOUGH = 20, 40, 30
"""Heads of a best set at most, single heads that it is chosen from at most, and words it takes."""
SILENT = frozenset("\"'“”‘’«»¿¡([{)]}-–—.,:;!?…。，！？：；、")
"""Punctuation, during which nothing is spoken."""
_DIAGONAL, _DOWN, _ALONG = range(3)
Heads = list[tuple[int, int]]
"""Layers and heads by number."""


def smoothed(weights: NDArray[np.floating], width: int) -> NDArray[np.float32]:
    """Weights (…, tokens, frames) standardised over tokens, then a median over `width` frames.

    A frame that all tokens look at alike is 0; edges are mirrored; fewer frames than half the width
    stay as they are.
    """
    scores: NDArray[np.float32]
    given = weights.astype(np.float64)
    spread = given.std(axis=-2, keepdims=True)
    centred = given - given.mean(axis=-2, keepdims=True)
    scores = np.divide(centred, spread, out=np.zeros_like(given), where=spread > 0).astype("f4")
    half = width // 2
    if given.shape[-1] <= half:
        return scores
    padded = np.pad(scores, [(0, 0)] * (scores.ndim - 1) + [(half, half)], mode="reflect")
    windows = np.lib.stride_tricks.sliding_window_view(padded, width, axis=-1)
    scores = np.median(windows, axis=-1)
    return scores


def first_frames(scores: NDArray[np.floating]) -> NDArray[np.int64]:
    """The frame at which the best path reaches each row: (paths, rows, frames) to (paths, rows).

    A path goes on by a frame, a row, or both, and gathers the score of each cell on it.
    """
    paths, rows, frames = scores.shape
    moves = np.full((paths, rows, frames), _ALONG, dtype=np.int8)
    # Diagonals of the table of costs, by row from 1; row 0 and frame 0 lie outside.
    before, last = (np.full((paths, rows + 1), np.inf) for _ in range(2))
    before[:, 0] = 0
    for diagonal in range(2, rows + frames + 1):
        row = np.arange(max(1, diagonal - frames), min(rows, diagonal - 1) + 1)
        both, down, along = before[:, row - 1], last[:, row - 1], last[:, row]
        best = np.minimum(np.minimum(both, down), along)
        moves[:, row - 1, diagonal - row - 1] = np.where(
            along == best, _ALONG, np.where(both == best, _DIAGONAL, _DOWN)
        )
        here = np.full_like(last, np.inf)
        here[:, row] = best - scores[:, row - 1, diagonal - row - 1]
        before, last = last, here
    found = np.zeros((paths, rows), dtype=np.int64)
    each = np.arange(paths)
    row, frame = np.full(paths, rows - 1), np.full(paths, frames - 1)
    found[each, row] = frame
    while (moving := (row > 0) | (frame > 0)).any():
        move = moves[each, row, frame]
        row = row - (moving & (move != _ALONG))
        frame = frame - (moving & (move != _DOWN))
        found[each, row] = frame
    return found


@dataclass(frozen=True, slots=True, eq=False)
class WordClock:
    """A map of a text over a recording, from which the times of its words are read.

    Attributes:
        item: keys are frames; special tokens stand before the text's.
        step: seconds of a frame, the first of which begins at `start`.
        width: frames of the median filter, odd.
        against: whether a row stands for the token that it predicts ("output"), as in Whisper's
            own code, or for the one that it has read ("input"), as in transformers, which besides
            takes the weights as they are and standardises over the text's tokens alone.
    """

    item: AttentionMap
    text: str
    step: float
    start: float = 0.0
    width: int = 7
    against: str = "output"

    @property
    def end(self) -> float:
        """Where the last frame ends, in seconds."""
        return self.start + self.step * len(self.item.key_tokens)

    def scores(self, heads: Heads) -> NDArray[np.float32]:
        """The smoothed weights of heads, shape (heads, rows, frames).

        Rows are the text's tokens; against "output" one more, that predicts the end.
        """
        rows = text_places(self.item.query_tokens)
        layers, numbers = (np.array(part) for part in zip(*heads, strict=True))
        weights = self.item.weights[layers, numbers]
        if self.against == "input":
            return smoothed(weights[:, rows], self.width)
        heard = np.maximum(weights.sum(axis=-1, keepdims=True), np.finfo(np.float32).tiny)
        return smoothed(weights / heard, self.width)[:, [rows[0] - 1, *rows]]

    def times(self, scores: NDArray[np.floating]) -> NDArray[np.floating]:
        """Seconds, shape (paths, words, beginning and end), by scores (paths, rows, frames).

        The pieces of a word that are punctuation, before and behind it, count for no part of it.
        """
        frames = first_frames(scores)
        if self.against == "input":
            frames = np.pad(frames, ((0, 0), (0, 1)), constant_values=scores.shape[-1])
        tokens = [self.item.query_tokens[place] for place in text_places(self.item.query_tokens)]
        numbers = np.array(word_numbers(tokens, self.text))
        pieces = [self.text[token.start : token.end].strip() for token in tokens]
        silent = np.array([bool(piece) and SILENT.issuperset(piece) for piece in pieces])
        each = np.arange(len(split_words(self.text)))
        bounds = np.stack([np.searchsorted(numbers, each, side) for side in ("left", "right")])
        for word, (first, last) in enumerate(bounds.T):
            spoken = first + np.flatnonzero(~silent[first:last])
            if spoken.size:
                bounds[:, word] = spoken[0], spoken[-1] + 1
        return self.start + self.step * frames[:, bounds.T]

    def spoken(self, heads: Heads) -> list[TimedWord]:
        """When each word is spoken, by the mean over heads."""
        times = self.times(self.scores(heads).mean(axis=0, keepdims=True))[0]
        words = zip(split_words(self.text), times.round(3).tolist(), strict=True)
        return [TimedWord(word.text, start, end) for word, (start, end) in words]


@dataclass(frozen=True, slots=True)
class TimingError:
    """How far the mean of some heads errs: the mean distance from true times, in seconds."""

    heads: Heads
    start: float  # of the words' beginnings
    end: float

    @property
    def error(self) -> float:
        """That of beginnings and ends."""
        return (self.start + self.end) / 2


def timing_errors(
    clock: WordClock, heads: Heads, true: Sequence[TimedWord]
) -> tuple[TimingError, TimingError | None, list[TimingError]]:
    """The error of the heads that are given, of the best set, and of every head, the best first.

    The set is chosen by the first half of the words, and every error is that of the second half.
    By fewer than `ENOUGH` words no set is chosen, and the errors are those of all. It is chosen
    greedily among the `CANDIDATES` that err least by themselves, and not twice as much as the best:
    that one, then each time the head that lowers the error of the mean most, until none lowers it
    by a tenth or there are `MOST_HEADS`.
    """
    if clock.text.split() != [word.text for word in true]:
        raise UsageError("the text and the true times must have the same words: leave --text out")
    if true[-1].end > clock.end + 0.1 or true[0].start < clock.start:
        raise UsageError(
            f"the true times run from {true[0].start:g} to {true[-1].end:g} s, and "
            f"{clock.start:g} to {clock.end:g} s are heard"
        )
    wanted = np.array([[word.start, word.end] for word in true])
    half = len(true) // 2 if len(true) >= ENOUGH else 0

    def distances(scores: NDArray[np.floating]) -> NDArray[np.floating]:
        """Of each path (paths, words, beginning and end) from the true times."""
        off: NDArray[np.floating] = np.abs(clock.times(scores) - wanted)
        return off

    def error(heads: Heads, off: NDArray[np.floating]) -> TimingError:
        return TimingError(heads, *off[half:].mean(axis=0).tolist())

    places = list(np.ndindex(clock.item.weights.shape[:2]))
    scores = np.stack([clock.scores([place])[0] for place in places])
    off = distances(scores)
    every = [error([place], one) for place, one in zip(places, off, strict=True)]
    every.sort(key=lambda one: one.error)
    (asked,) = (error(heads, one) for one in distances(clock.scores(heads).mean(0, keepdims=True)))
    if not half:
        return asked, None, every
    alone = off[:, :half].mean(axis=(1, 2))
    order = np.argsort(alone, kind="stable")[:CANDIDATES].tolist()
    best, left = order[:1], [n for n in order[1:] if alone[n] <= 2 * alone[order[0]]]
    total, now = scores[best[0]], off[best[0]]
    while left and len(best) < MOST_HEADS:
        tried = distances(total + scores[left])
        errors = tried[:, :half].mean(axis=(1, 2))
        better = int(errors.argmin())
        if errors[better] > 0.9 * now[:half].mean():
            break
        now = tried[better]
        best.append(left.pop(better))
        total = total + scores[best[-1]]
    return asked, error([places[number] for number in best], now), every
