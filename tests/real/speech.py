"""Speech with known words at known times, by espeak-ng."""

import io
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
import soxr

RATE = 16_000
BEFORE, BETWEEN, AFTER = 0.4, 0.06, 0.7
"""Seconds of silence before the first word, between two words, and after a sentence."""


@dataclass(frozen=True)
class Spoken:
    """A recording, its words, and when each begins and ends: seconds, shape (words, 2)."""

    path: Path
    samples: Any
    text: str
    times: Any

    @property
    def table(self) -> Path:
        """The times as a file for `--times`."""
        path = self.path.with_suffix(".tsv")
        rows = zip(self.text.split(), self.times, strict=True)
        path.write_text("".join(f"{word}\t{a:.3f}\t{b:.3f}\n" for word, (a, b) in rows), "utf-8")
        return path


def sound(text: str) -> Any:
    """What espeak-ng makes of a text, without the silence around it."""
    run = ["espeak-ng", "-v", "en-us", "-s", "150", "--stdout", text]
    made = subprocess.run(run, capture_output=True, check=True).stdout
    samples, rate = soundfile.read(io.BytesIO(made), dtype="float32")
    samples = soxr.resample(samples, rate, RATE)
    loud = np.flatnonzero(np.abs(samples) > 0.01 * np.abs(samples).max())
    return samples[loud[0] : loud[-1] + 1]


def speak(text: str, path: Path) -> Spoken:
    """A recording of the words of a text, each spoken by itself and joined by silence."""
    parts, times, now = [np.zeros(round(BEFORE * RATE), "f4")], [], BEFORE
    for word in text.split():
        samples = sound(word.strip(".,"))
        silence = AFTER if word.endswith(".") else BETWEEN
        times.append((now, now + len(samples) / RATE))
        parts += [samples, np.zeros(round(silence * RATE), "f4")]
        now += len(samples) / RATE + round(silence * RATE) / RATE
    samples = np.concatenate(parts)
    soundfile.write(path, samples, RATE)
    return Spoken(path, samples, text, np.array(times))
