"""Times of spoken words, from a decoder's attention over the frames of a recording.

The method is Whisper's (Radford et al. 2023; `find_alignment` in `timing.py` of its code). The
softmax of each chosen head runs over the frames of the recording alone. The weights of each frame
are standardised over all tokens that the decoder reads, special ones included, smoothed in time by
a median filter, and averaged over the heads. Dynamic time warping (Sakoe & Chiba 1978) finds the
path with the largest sum from the first token and frame to the last; a token begins where the path
enters its row.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from attnviz.analyses.words import split_words, word_numbers
from attnviz.core.attention_map import AttentionMap
from attnviz.core.errors import UsageError
from attnviz.core.records import dataclass
from attnviz.core.tokens import text_places
from attnviz.features.audio.timed_words import TimedWord

MOST_HEADS, CANDIDATES, ENOUGH = 20, 40, 30  # most heads, most candidates, fewest words
SILENT = frozenset("\"'“”‘’«»¿¡([{)]}-–—.,:;!?…。，！？：；、")  # punctuation is not spoken
_DIAGONAL, _DOWN, _ALONG = range(3)
Heads = list[tuple[int, int]]  # layers and heads by number


def smooth_weights(weights: NDArray[np.floating], width: int) -> NDArray[np.float32]:
    """Weights (…, tokens, frames) standardised over tokens, then a median over `width` frames.

    A frame with equal weights is 0. The median mirrors edges; it is left out for too few frames.
    """
    exact = weights.astype(np.float64)
    spread = exact.std(axis=-2, keepdims=True)
    apart = exact - exact.mean(axis=-2, keepdims=True)
    scores: NDArray[np.float32] = np.divide(
        apart, spread, out=np.zeros_like(exact), where=spread > 0
    ).astype("f4")
    half = width // 2
    if exact.shape[-1] <= half:
        return scores
    mirror = np.pad(scores, [(0, 0)] * (scores.ndim - 1) + [(half, half)], mode="reflect")
    windows = np.lib.stride_tricks.sliding_window_view(mirror, width, axis=-1)
    return np.asarray(np.median(windows, axis=-1))


def first_frames(scores: NDArray[np.floating]) -> NDArray[np.int64]:
    """The frame at which the best path reaches each row: (paths, rows, frames) to (paths, rows).

    Each step of a path goes to the next frame, the next row, or both; it adds the cell's score.
    """
    paths, rows, frames = scores.shape
    moves = np.full((paths, rows, frames), _ALONG, dtype=np.int8)
    # Cells of one diagonal do not depend on each other, so numpy computes them together. Rows count
    # from 1; row 0 and frame 0 are the border.
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
    entries = np.zeros((paths, rows), dtype=np.int64)
    each = np.arange(paths)
    row, frame = np.full(paths, rows - 1), np.full(paths, frames - 1)
    entries[each, row] = frame
    while (moving := (row > 0) | (frame > 0)).any():
        move = moves[each, row, frame]
        row = row - (moving & (move != _ALONG))
        frame = frame - (moving & (move != _DOWN))
        entries[each, row] = frame
    return entries


@dataclass(frozen=True, slots=True, eq=False)
class WordClock:
    """A map of a text over a recording, to time its words."""

    item: AttentionMap  # keys are frames; special tokens stand before the text's
    text: str
    step: float  # seconds of a frame; the first one begins at `start`
    start: float = 0.0
    width: int = 7  # frames of the median filter, odd
    # "output": a row stands for the token that it predicts (Whisper); "input": for the one it reads
    against: str = "output"

    @property
    def end(self) -> float:
        return self.start + self.step * len(self.item.key_tokens)

    def scores(self, heads: Heads) -> NDArray[np.float32]:
        """The smoothed weights of heads, shape (heads, rows, frames).

        Rows are the text's tokens; against "output", one more row predicts the end.
        """
        rows = text_places(self.item.query_tokens)
        layers, numbers = (np.array(part) for part in zip(*heads, strict=True))
        weights = self.item.weights[layers, numbers]
        if self.against == "input":
            return smooth_weights(weights[:, rows], self.width)
        sums = np.maximum(weights.sum(axis=-1, keepdims=True), np.finfo(np.float32).tiny)
        return smooth_weights(weights / sums, self.width)[:, [rows[0] - 1, *rows]]

    def times(self, scores: NDArray[np.floating]) -> NDArray[np.floating]:
        """Seconds (paths, words, beginning and end) by scores; outer punctuation takes no time."""
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
            sounds = first + np.flatnonzero(~silent[first:last])
            if sounds.size:
                bounds[:, word] = sounds[0], sounds[-1] + 1
        return self.start + self.step * frames[:, bounds.T]

    def word_times(self, heads: Heads) -> list[TimedWord]:
        """The time of each word, by the mean over heads."""
        times = self.times(self.scores(heads).mean(axis=0, keepdims=True))[0]
        words = zip(split_words(self.text), times.round(3).tolist(), strict=True)
        return [TimedWord(word.text, start, end) for word, (start, end) in words]


@dataclass(frozen=True, slots=True)
class TimingError:
    """The error of the mean of some heads: the mean distance from true times, in seconds."""

    heads: Heads
    start: float  # of the words' beginnings
    end: float

    @property
    def error(self) -> float:
        """The error of beginnings and ends together."""
        return (self.start + self.end) / 2


def timing_errors(
    clock: WordClock, heads: Heads, true: Sequence[TimedWord]
) -> tuple[TimingError, TimingError | None, list[TimingError]]:
    """The errors of the given heads, of the best set, and of every head, best first.

    The first half of the words chooses the set, and the second half gives all errors. With fewer
    than `ENOUGH` words there is no set, and all words give the errors. The choice is greedy among
    the best `CANDIDATES` with at most twice the error of the best: it begins with the best, and
    adds the head that lowers the error most, until none lowers it by a tenth or there are
    `MOST_HEADS`.
    """
    if clock.text.split() != [word.text for word in true]:
        raise UsageError("the text and the true times must have the same words: leave --text out")
    if true[-1].end > clock.end + 0.1 or true[0].start < clock.start:
        raise UsageError(
            f"the true times run from {true[0].start:g} to {true[-1].end:g} s, and "
            f"{clock.start:g} to {clock.end:g} s are heard"
        )
    truth = np.array([[word.start, word.end] for word in true])
    half = len(true) // 2 if len(true) >= ENOUGH else 0

    def distances(scores: NDArray[np.floating]) -> NDArray[np.floating]:
        """The distances from the true times, (paths, words, begin and end)."""
        return np.asarray(np.abs(clock.times(scores) - truth))

    def error(heads: Heads, off: NDArray[np.floating]) -> TimingError:
        return TimingError(heads, *off[half:].mean(axis=0).tolist())

    places = list(np.ndindex(clock.item.weights.shape[:2]))
    scores = np.stack([clock.scores([place])[0] for place in places])
    off = distances(scores)
    every = [error([place], one) for place, one in zip(places, off, strict=True)]
    every.sort(key=lambda one: one.error)
    (own,) = (error(heads, one) for one in distances(clock.scores(heads).mean(0, keepdims=True)))
    if not half:
        return own, None, every
    alone = off[:, :half].mean(axis=(1, 2))
    order = np.argsort(alone, kind="stable")[:CANDIDATES].tolist()
    best, others = order[:1], [n for n in order[1:] if alone[n] <= 2 * alone[order[0]]]
    total, now = scores[best[0]], off[best[0]]
    while others and len(best) < MOST_HEADS:
        trials = distances(total + scores[others])
        errors = trials[:, :half].mean(axis=(1, 2))
        better = int(errors.argmin())
        if errors[better] > 0.9 * now[:half].mean():
            break
        now = trials[better]
        best.append(others.pop(better))
        total = total + scores[best[-1]]
    return own, error([places[number] for number in best], now), every
