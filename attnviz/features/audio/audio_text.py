"""Models that read a recording and a text in one sequence: when each word listens.

The recording stands in the sequence as placeholders, one for each frame (Qwen2-Audio, Voxtral,
Audio Flamingo 3, Granite Speech, the thinker of Qwen2.5-Omni, …).
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from io import BytesIO
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.core.attention_map import Attention, AttentionMap, Provenance, Token
from attnviz.core.errors import InputError, ModelError, UsageError
from attnviz.core.options import InMemoryModel
from attnviz.core.query import Query, Recording
from attnviz.core.records import dataclass, field, replace
from attnviz.features.audio.recordings import RATES, check_extractor, frame_tokens, resample
from attnviz.models import Source
from attnviz.models.hugging_face.capture.capture import Captured, capture, with_routes
from attnviz.models.hugging_face.capture.region import PooledGrid, TokenBlocks, each_token
from attnviz.models.hugging_face.inputs.chat import render_messages
from attnviz.models.hugging_face.inputs.generation import generate_ids, new_text
from attnviz.models.hugging_face.inputs.tokenization import (
    add_vocabulary,
    check_text,
    label_ids,
    label_tokens,
    pieces_of,
)
from attnviz.models.hugging_face.load import checkpoint, devices, imports, loading
from attnviz.models.hugging_face.load.locate import locate
from attnviz.models.hugging_face.loaded_model import input_names, placed_inputs

SIDE, WRITTEN = "recording", "written"
STREAM = "text-to-recording"
PLACEHOLDERS = "audio_token_id", "audio_token_index"
"""The names of the placeholder's number in a configuration."""
HEARING = (
    "audio_config",
    "encoder_config",
    "thinker_config",
    "acoustic_tokenizer_encoder_config",
)
"""The names of the part of a configuration that is about sound."""
PROBE = 30.0  # seconds of silence whose frames are counted, or as many as the model takes at once
ROUND = 0.01  # frames are multiples of the spectrogram's steps of so many seconds, as a rule
BESIDE_IDS = {"attention_mask": 1, "token_type_ids": 0, "mm_token_type_ids": 0}
"""Values of further inputs at a token of text."""
NOISE, WITHOUT_NOISE = "sample", "the noise that the model adds to its vectors of sound is left out"
"""The input of a model that switches this noise (VibeVoice)."""
MISTRAL = "[INST][BEGIN_AUDIO]{0}{1}[/INST]"
"""The prompt of Voxtral, which mistral-common writes and no template of a folder."""


def placeholder_of(config: Any) -> int | None:
    """The number of the token that stands for a frame of sound; None: there is none."""
    for one in (config, getattr(config, "thinker_config", None)):
        for name in PLACEHOLDERS:
            if (number := getattr(one, name, None)) is not None:
                return int(number)
    return None


def reads_sound_and_text(name: str | InMemoryModel, *, allow_code: bool = False) -> bool:
    """Whether a model reads placeholders of sound in a text, by its configuration."""
    if isinstance(name, InMemoryModel):
        config = getattr(name.model, "config", None)
        return any(hasattr(config, one) for one in HEARING) and placeholder_of(config) is not None
    folder = locate(name, allow_code=allow_code)
    entries = checkpoint.read_config(folder)
    if entries.keys().isdisjoint(HEARING) or "auto_map" in entries:
        return False
    return placeholder_of(loading.load_configuration(folder)) is not None


@dataclass(frozen=True, slots=True, eq=False)
class SoundReading:
    """A prompt with its recording as a model reads it, and what the model wrote after it."""

    inputs: dict[str, Any]
    ids: list[int]  # of the prompt
    new: list[int] = field(default_factory=list)  # without the token that ends it
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class AudioTextModel(Source):
    """A pretrained model of sound and text, as a source of attention.

    Tokens behind the recording attend to its frames. A row sums to the share that goes to the
    recording; the rest goes to the text. Where the model writes, the rows are the words that it
    wrote, each with the weights of the position that predicts it.
    """

    name: str  # what it was asked for as
    model: Any  # on its device, in evaluation mode
    processor: Any  # its tokenizer and feature extractor in one
    provenance: Provenance  # of the model; each recording adds to it
    max_new_tokens: int | None = None  # None: it writes nothing
    has_patches = False  # its frames are times

    @property
    def tokenizer(self) -> Any:
        return self.processor.tokenizer

    @property
    def extractor(self) -> Any:
        return extractor_of(self.processor)

    @property
    def rate(self) -> int:
        return int(self.extractor.sampling_rate)

    def cut(self, recording: Recording) -> NDArray[np.float32]:
        """The part of a recording that the model is given, at its own rate."""
        samples = resample(recording.samples, recording.rate, self.rate)
        return samples[: round(self._most * self.rate)]

    @property
    def _most(self) -> float:
        """Seconds that are read at once; longer recordings may be cut by the processor."""
        most = getattr(self.extractor, "n_samples", None)
        return most / self.rate if most else PROBE

    def timing_heads(self, item: AttentionMap, option: Any) -> Any:
        """Refuse: words that are read or written beside a recording are not its transcript."""
        raise UsageError(
            f"'{self.name}' reads a text beside the recording, not what is spoken: its words have "
            "no times"
        )

    def _attend_one(self, query: Query) -> Attention:
        recording = query.recording
        if recording is None:
            raise UsageError(f"'{self.name}' hears recordings: use 'attnviz audio FILE'")
        if recording.language or recording.task or recording.encoder:
            raise UsageError(
                f"'{self.name}' reads a text beside the recording: leave --language, --task and "
                "--stream out, and ask by --text"
            )
        if not query.text:
            raise UsageError(
                f"'{self.name}' reads a text beside the recording: give --text, such as 'What is "
                "said?', and --generate N for its answer"
            )
        check_text(query.text)
        with imports.quiet():
            samples = self.cut(recording)
            reading = self.read(samples, query.text)
            places = self._places(reading.ids)
            if not len(places) or places[-1] + 1 == len(reading.ids):
                raise ModelError(f"the prompt of '{self.name}' puts no text behind the recording")
            step, seconds = self.step(), len(samples) / self.rate
            heard = min(len(places), max(1, ceil(seconds / step - 1e-6)))
            if self.max_new_tokens is not None:
                reading = self.write(reading)
            text, tokens = self._words(reading, int(places[-1]) + 1)
            captures = self._capture(reading, tokens)
        frames = frame_tokens(heard, recording.start, step)
        side = WRITTEN if reading.new else "text"
        maps = tuple(
            AttentionMap(
                STREAM,
                tokens,
                frames,
                item.weights[..., places[:heard]],
                layers=item.layers,
                query_side=side,
                key_side=SIDE,
            )
            for item in captures
        )
        provenance = with_routes(self.provenance, [item.route for item in captures])
        settings = {**provenance.settings, "seconds of a frame": step}
        end = recording.start + seconds
        settings["heard"] = f"{recording.start:.2f} to {end:.2f} s"
        if recording.rate != self.rate:
            settings["rate"] = f"{recording.rate:,} Hz, resampled to {self.rate:,} Hz"
        notes = [*recording.notes, *reading.notes]
        if end < recording.total - 0.005:  # times are shown with two decimals
            notes.append(
                f"only {settings['heard']} of {recording.total:.2f} s are heard: --start {end:g} "
                "goes on"
            )
        if padding := len(places) - heard:
            notes.append(f"{padding:,} keys of padding behind the recording are left out")
        notes.append("a row sums to the share that goes to the recording; the rest goes to text")
        provenance = replace(provenance, settings=settings, notes=(*provenance.notes, *notes))
        return Attention(maps, provenance, text=text)

    def _places(self, ids: Sequence[int]) -> NDArray[np.intp]:
        return np.flatnonzero(np.array(ids) == placeholder_of(self.model.config))

    def read(self, samples: NDArray[np.float32], text: str) -> SoundReading:
        """The prompt of a recording and a text as the model reads it."""
        if self._is_mistral:
            inputs = self._read_mistral(samples, text)
        else:
            how: dict[str, Any] = {"audio": [samples], "return_tensors": "pt"}
            how["audio_kwargs"] = {"sampling_rate": self.rate}
            if steps := getattr(self.extractor, "pad_to_multiple_of", None):
                how["audio_kwargs"]["pad_to_multiple_of"] = steps
            with devices.library_errors(f"the processor of '{self.name}' fails"):
                inputs = self.processor(text=[self._prompt(text)], **how)
        tensors = placed_inputs(
            self.model, {name: row for name, row in inputs.items() if hasattr(row, "dtype")}
        )
        notes = tuple[str, ...]()
        if NOISE in input_names(self.model):
            tensors[NOISE], notes = False, (WITHOUT_NOISE,)
        return SoundReading(tensors, tensors["input_ids"][0].tolist(), notes=notes)

    def _prompt(self, text: str) -> str:
        """The recording, then the text, in the form of the model's training."""
        owner = self.processor if getattr(self.processor, "chat_template", None) else None
        mark = str(getattr(self.processor, "audio_token", ""))
        if owner or getattr(self.tokenizer, "chat_template", None):
            content: Any = [{"type": "audio", "audio": ""}, {"type": "text", "text": text}]
            if owner is None:  # a template of texts
                content = f"{mark}{text}"
            messages = [{"role": "user", "content": content}]
            return render_messages(self.tokenizer, messages, self.name, owner)
        marks = [
            getattr(self.processor, f"audio_{end}_token", None) or "" for end in ("bos", "eos")
        ]
        return f"{marks[0]}{mark}{marks[1]}{text}"

    @property
    def _is_mistral(self) -> bool:
        return bool(self.model.config.model_type == "voxtral")

    def _read_mistral(self, samples: NDArray[np.float32], text: str) -> Mapping[str, Any]:
        """Voxtral's prompt: by mistral-common, or by a tokenizer that has its marks."""
        processor, tokenizer = self.processor, self.tokenizer
        if not hasattr(tokenizer, "is_fast"):  # that of mistral-common
            import soundfile

            file = BytesIO()
            soundfile.write(file, samples, self.rate, format="wav")
            sound = {"type": "audio", "base64": b64encode(file.getvalue()).decode()}
            content = [sound, {"type": "text", "text": text}]
            with devices.library_errors(f"the processor of '{self.name}' fails"):
                inputs: Mapping[str, Any] = processor.apply_chat_template(
                    [{"role": "user", "content": content}], return_dict=True, tokenize=True
                )
            return inputs
        import torch

        with devices.library_errors(f"the processor of '{self.name}' fails"):
            most = self.extractor.nb_max_frames
            how = {"sampling_rate": self.rate, "padding": True, "truncation": False}
            how["pad_to_multiple_of"] = most * self.extractor.hop_length
            features = processor._retrieve_input_features(
                [samples], most, return_tensors="pt", **how
            )
            frames = self.model.config.audio_config.max_source_positions
            sizes = self.model.config.audio_config
            joint = sizes.intermediate_size // sizes.hidden_size  # vectors that are one frame
            count = len(features) * frames // joint
            before, _, behind = MISTRAL.partition("{0}")
            ids = [
                *([] if tokenizer.bos_token_id is None else [tokenizer.bos_token_id]),
                *tokenizer(before, add_special_tokens=False)["input_ids"],
                *[placeholder_of(self.model.config)] * count,
                *tokenizer(behind.format("", text), add_special_tokens=False)["input_ids"],
            ]
        return {
            "input_ids": torch.tensor([ids]),
            "attention_mask": torch.ones(1, len(ids), dtype=torch.long),
            "input_features": features,
        }

    def step(self) -> float:
        """Seconds of a frame: how many frames the processor gives silence of known length."""
        seconds = min(self._most, PROBE)
        silence = np.zeros(round(seconds * self.rate), dtype=np.float32)
        count = len(self._places(self.read(silence, "a").ids))
        if not count:
            raise ModelError(f"the processor of '{self.name}' puts no frames into the prompt")
        step = seconds / count
        near = max(round(step / ROUND), 1) * ROUND
        return round(near, 4) if abs(near - step) < step * ROUND else step

    def write(self, reading: SoundReading) -> SoundReading:
        """The prompt with the model's output after it."""
        import torch

        assert self.max_new_tokens is not None
        ids, cut = generate_ids(self, reading.inputs, self.max_new_tokens)
        new = ids[len(reading.ids) :] if ids[: len(reading.ids)] == reading.ids else ids
        if not new:
            raise InputError("the model wrote nothing about this recording: give another --text")
        inputs = dict(reading.inputs)
        # Nothing that the last token predicts is shown: leave it out.
        more = torch.tensor([new[:-1]], device=self.model.device)
        for name in inputs.keys() & {"input_ids", *BESIDE_IDS}:
            behind = more if name == "input_ids" else torch.full_like(more, BESIDE_IDS[name])
            inputs[name] = torch.cat([inputs[name], behind.to(inputs[name])], dim=1)
        note = (
            "the output was generated greedily, then read in one pass: each word has the weights "
            "of the position that predicts it"
        )
        return replace(reading, inputs=inputs, new=new, notes=(*reading.notes, note, *cut))

    def _words(self, reading: SoundReading, behind: int) -> tuple[str, tuple[Token, ...]]:
        """The text from position `behind`, and its tokens or, if it has any, the written ones."""
        ids = reading.ids[behind:]
        text = new_text(self.tokenizer, [], ids)
        if not reading.new:
            return text, name_ids(self.tokenizer, ids, text)
        output = new_text(self.tokenizer, ids, reading.new)
        return text + output, name_ids(self.tokenizer, reading.new, output, before=text)

    def _capture(self, reading: SoundReading, tokens: Sequence[Token]) -> list[Captured]:
        """The tokens' rows over the whole sequence, in every layer of the text model."""
        length = len(reading.ids) + max(len(reading.new) - 1, 0)
        rows = TokenBlocks(length - len(tokens), length)
        grids = {"self": PooledGrid(rows, each_token(length))}
        return capture(self.model, reading.inputs, {"self": (length, length)}, grids=grids)


def name_ids(
    tokenizer: Any, ids: Sequence[int], text: str, *, before: str = ""
) -> tuple[Token, ...]:
    """The tokens of ids whose text stands behind the text `before`."""
    if hasattr(tokenizer, "is_fast"):
        return label_ids(tokenizer, ids, text, before=before)
    # That of mistral-common joins no pieces: each ends where the text of all up to it ends.
    ends = [len(new_text(tokenizer, [], [*ids[: n + 1]])) for n in range(len(ids))]
    pieces = pieces_of(tokenizer, ids)
    specials = [int(number in tokenizer.all_special_ids) for number in ids]
    spans = [(len(before) + a, len(before) + b) for a, b in zip([0, *ends], ends, strict=False)]
    return add_vocabulary(label_tokens(pieces, spans, specials, before + text, None), ids, pieces)


def extractor_of(processor: Any) -> Any:
    """What makes features of samples in a processor."""
    for name in ("feature_extractor", "audio_processor"):
        if (part := getattr(processor, name, None)) is not None:
            return part
    raise ModelError(f"a {type(processor).__name__} has no feature extractor of sound")


def load_audio_text_model(
    name: str | InMemoryModel, generate: int | None = None, **options: Any
) -> AudioTextModel:
    """A pretrained model of sound and text that writes at most `generate` tokens, or none."""
    parts = loading.load_parts(
        name,
        loading.LoadOptions(**options),
        _load_processor,
        partial(loading.model_class, with_head=True),
    )
    model = getattr(parts.model, "thinker", parts.model)
    silent = not model.can_generate() or any(
        "lm_head" in key for key in parts.report["missing_keys"]
    )
    if generate is not None and silent:
        raise ModelError(f"'{name}' has no trained language-model head: leave --generate out")
    if not hasattr(parts.reader, "tokenizer"):
        raise UsageError(
            f"a recording with a text needs a processor: a {type(parts.reader).__name__} is none"
        )
    rate = getattr(extractor_of(parts.reader), "sampling_rate", None)
    if not isinstance(rate, int) or not RATES[0] <= rate <= RATES[1]:
        raise ModelError(f"the feature extractor of '{name}' wants {rate!r} samples a second")
    return AudioTextModel(str(name), model, parts.reader, parts.provenance, generate)


def _load_processor(folder: Path, name: str) -> Any:
    import transformers

    checkpoint.check_growth(folder)
    check_extractor(folder, name)
    needs_tekken = (folder / "tekken.json").is_file() and not (folder / "tokenizer.json").is_file()
    if needs_tekken and find_spec("mistral_common") is None:
        raise ModelError(
            f"the tokenizer of '{name}' (tekken.json) needs the package mistral-common: pip "
            "install 'mistral-common[audio]'"
        )
    auto: Any = transformers.AutoProcessor
    with devices.library_errors(f"the processor of '{name}' cannot be loaded"):
        return auto.from_pretrained(folder, local_files_only=True)
