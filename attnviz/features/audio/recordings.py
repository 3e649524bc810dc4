"""A recording as the input of a speech model: samples of one channel, features and frames."""

from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from attnviz.core import attention_map, query, values
from attnviz.core.errors import InputError, ModelError, UsageError, first_line
from attnviz.models.hugging_face.load import checkpoint, devices, imports

MISSING = "a recording needs the packages soundfile and soxr: pip install 'attnviz[audio]'"
RATES = (1_000, 400_000)  # samples a second that a file or a model may have


def read_recording(path: Path | tuple[Any, int], start: float, seconds: float) -> query.Recording:
    """A part of a file (.wav, .flac, .ogg, .mp3, …), its channels mixed to one.

    Instead of a file: samples in memory, and how many are a second.

    Raises:
        InputError: it is no recording, or holds NaN or infinity.
        UsageError: it ends before `start`.
    """
    try:
        import soundfile
        import soxr  # noqa: F401 - resampling needs it; fail before the model loads
    except ImportError as error:
        raise InputError(MISSING) from error
    if not isinstance(path, Path):
        every, rate = _by_channel(path[0]), path[1]
        total = _length_of("the recording", rate, len(every), start)
        samples = every[round(start * rate) :][: round(seconds * rate)]
        return _in_one_channel("the recording", samples, rate, start, total)
    if not path.is_file():
        what = "is a folder, not a recording" if path.is_dir() else "does not exist"
        raise InputError(f"'{path}' {what}")
    try:
        # The decoder of a damaged .mp3 prints a line for each frame.
        with imports.quiet_native(notes=False), soundfile.SoundFile(path) as file:
            rate = file.samplerate
            total = _length_of(f"'{path}'", rate, file.frames, start)
            file.seek(round(start * rate))
            samples = file.read(round(seconds * rate), dtype="float32", always_2d=True)
    except (soundfile.SoundFileError, OSError, ValueError) as error:
        raise InputError(f"'{path}' cannot be read as a recording: {first_line(error)}") from error
    return _in_one_channel(f"'{path}'", samples, rate, start, total)


def _length_of(name: str, rate: int, count: int, start: float) -> float:
    """The seconds of a recording, which go beyond `start`."""
    if not RATES[0] <= rate <= RATES[1]:
        raise InputError(f"{name} has {rate:,} samples a second: it is no recording")
    if 0 < (total := count / rate) <= start:
        raise UsageError(f"--start {start:g}: {name} ends at {total:.2f} s")
    return total


def _by_channel(sound: Any) -> NDArray[np.float32]:
    """An array or tensor as floats (samples, channels); integers by the range of their type."""
    samples = values.as_array(sound)
    if samples.dtype.kind not in "fi" or samples.ndim not in (1, 2):
        raise InputError(
            f"the recording is a {type(sound).__name__} of {samples.dtype} with {samples.ndim} "
            "axes: give a file, or floats or signed integers, (samples,) or with channels"
        )
    most = 1.0 if samples.dtype.kind == "f" else -float(np.iinfo(samples.dtype).min)
    samples = samples[:, None] if samples.ndim == 1 else samples
    if len(samples) < samples.shape[1]:
        samples = samples.T
    return (samples / most).astype(np.float32)


def _in_one_channel(
    name: str, samples: NDArray[np.float32], rate: int, start: float, total: float
) -> query.Recording:
    if not samples.size:
        raise InputError(f"{name} holds no sound")
    if not np.isfinite(samples).all():
        raise InputError(f"{name} holds samples that are NaN or infinite")
    channels = samples.shape[1]
    notes = (f"{channels} channels were mixed to one",) if channels > 1 else ()
    return query.Recording(samples.mean(axis=1), rate, start, total, notes=notes)


def resample(samples: NDArray[np.float32], rate: int, target_rate: int) -> NDArray[np.float32]:
    """Samples at the wanted rate, by soxr."""
    if rate == target_rate:
        return samples
    import soxr

    return np.asarray(soxr.resample(samples, rate, target_rate), dtype=np.float32)


MOST = {"n_fft": 1 << 14, "feature_size": 1 << 10, "num_mel_bins": 1 << 10, "chunk_length": 600}
"""Limits of a feature extractor's numbers: larger ones fill the memory."""


def check_extractor(folder: Path, name: str) -> None:
    """Refuse a folder without a feature extractor, or with one that would fill the memory."""
    files = [folder / file for file in ("preprocessor_config.json", "processor_config.json")]
    facts = next((checkpoint.read_json(file) for file in files if file.is_file()), None)
    if not isinstance(facts, dict):
        raise ModelError(f"'{name}' has no feature extractor (preprocessor_config.json)")
    own = {**facts, **dict(facts.get("feature_extractor") or {})}
    for key, most in MOST.items():
        if not isinstance(own.get(key, 0), int) or own.get(key, 0) > most:
            raise ModelError(
                f"the feature extractor of '{name}' says '{key}' {own[key]!r}: at most {most:,} "
                "is allowed"
            )


def load_extractor(folder: Path, name: str) -> Any:
    """The feature extractor of a model."""
    import transformers

    check_extractor(folder, name)
    auto: Any = transformers.AutoFeatureExtractor
    with devices.library_errors(f"the feature extractor of '{name}' cannot be loaded"):
        extractor = auto.from_pretrained(folder, local_files_only=True)
    rate = getattr(extractor, "sampling_rate", None)
    if not isinstance(rate, int) or not RATES[0] <= rate <= RATES[1]:
        raise ModelError(f"the feature extractor of '{name}' wants {rate!r} samples a second")
    return extractor


def log_mel(samples: NDArray[np.float32], extractor: Any) -> NDArray[np.float32]:
    """A log-mel spectrogram (bands from low to high, time): the model's own, or Whisper's usual."""
    import transformers

    rate, usual = extractor.sampling_rate, cast(Any, transformers.WhisperFeatureExtractor)
    if isinstance(extractor, transformers.ASTFeatureExtractor):
        with devices.library_errors("the feature extractor in the model's folder fails"):
            bands = extractor(samples, sampling_rate=rate)["input_values"][0]
        return np.asarray(bands, dtype=np.float32).T[:, : max(1, len(samples) * 100 // rate)]
    if not isinstance(extractor, usual):
        extractor = usual(sampling_rate=rate)
    short = max(0, extractor.n_fft - len(samples))
    with devices.library_errors("the feature extractor in the model's folder fails"):
        features = extractor(
            np.pad(samples, (0, short)), sampling_rate=rate, padding="longest", truncation=False
        )
    return np.asarray(features["input_features"][0], dtype=np.float32)


def frame_tokens(count: int, start: float, step: float) -> tuple[attention_map.Token, ...]:
    """One token for each frame, named by the second at which it begins ("1.26")."""
    return tuple(attention_map.Token(f"{start + place * step:.2f}") for place in range(count))
