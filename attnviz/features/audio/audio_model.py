"""A speech model as a source: the attention of text, or of frames, over a recording.

In an encoder–decoder (Whisper, Moonshine, Speech2Text) the text attends to the recording, and
frames attend to each other. In an encoder (wav2vec 2.0, HuBERT, WavLM, AST) only frames do.
"""

import inspect
from functools import partial
from itertools import takewhile
from math import ceil, prod
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from attnviz.core.attention_call import AttentionCall
from attnviz.core.attention_map import Attention, AttentionMap, Token
from attnviz.core.errors import AttentionError, InputError, ModelError, UsageError, choose
from attnviz.core.options import InMemoryModel
from attnviz.core.query import Query, Recording
from attnviz.core.records import dataclass, replace
from attnviz.core.registry import ANSWERS
from attnviz.core.tokens import mark_tokens, patch_tokens
from attnviz.features.audio import windows
from attnviz.features.audio.recordings import frame_tokens, load_extractor, resample
from attnviz.features.audio.sound_inputs import (
    PARALLEL,
    SIDE,
    SOUNDS,
    EncodedRecording,
    has_class_token,
    inputs_of_part,
    sound_inputs,
    watch_frames,
)
from attnviz.models.hugging_face.capture.capture import Captured, capture
from attnviz.models.hugging_face.capture.kernel import stream_of, watch_kernels
from attnviz.models.hugging_face.capture.region import Region
from attnviz.models.hugging_face.inputs import tokenization
from attnviz.models.hugging_face.inputs.encoding import EncodedQuery
from attnviz.models.hugging_face.inputs.generation import (
    LONGEST,
    QUERIES,
    generate_ids,
    start_token,
)
from attnviz.models.hugging_face.load import devices, family, imports, loading
from attnviz.models.hugging_face.loaded_model import (
    LoadedModel,
)

Heads = list[tuple[int, int]]  # layers and heads by number


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class AudioModel(LoadedModel):
    """A pretrained speech model as a source of attention over recordings.

    A text attends to its recording, or the recording to itself. Padding after a recording is left
    out: a row sums to the share that goes to the recording itself.
    """

    answers = ANSWERS["recording"]

    extractor: Any  # makes features of samples

    def _attend_one(self, query: Query) -> Attention:
        recording = query.recording
        if recording is None:
            raise UsageError(f"'{self.name}' hears recordings: use 'attnviz audio FILE'")
        alone = recording.encoder or not self.writes
        if alone and (query.text or recording.language or recording.task):
            raise UsageError(
                f"of '{self.name}' ({self.model.config.model_type}) frames attend to each other: "
                "leave --text, --language and --task out"
            )
        with imports.quiet():
            samples = self.cut(recording)
            heard, settings = self.encode_recording(recording, samples)
            if recording.rate != self.rate:
                settings["rate"] = f"{recording.rate:,} Hz, resampled to {self.rate:,} Hz"
            end, notes = recording.start + len(samples) / self.rate, list(recording.notes)
            settings["heard"] = f"{recording.start:.2f} to {end:.2f} s"
            if end < recording.total - 0.005:  # times are shown with two decimals
                notes.append(
                    f"only {settings['heard']} of {recording.total:.2f} s are heard: "
                    f"--start {end:g} goes on"
                )
            if heard.places and (padding := heard.count - len(heard.places)):
                notes.append(f"{padding:,} keys of padding behind the recording are left out")
            if hasattr(heard.output, "latents") or hasattr(heard.output, "audio_codes"):
                notes.append("of a codec the part that attends before the codes is read")
            attention = self._over_itself(heard) if alone else self._by_text(query, heard)
        return attention.with_maps(attention.maps, settings=settings, notes=notes)

    @property
    def writes(self) -> bool:
        """Whether a text attends to the recording."""
        return has_cross(self.model)

    @property
    def is_ast(self) -> bool:
        """Whether all patches of time and frequency attend to each other."""
        return bool(self.model.config.model_type == "audio-spectrogram-transformer")

    @property
    def has_patches(self) -> bool:
        """Whether its tokens are patches of time and frequency; those of CLAP attend in windows."""
        return self.is_ast or hasattr(self.model.config, "spec_size")

    @property
    def rate(self) -> int:
        return int(self.extractor.sampling_rate)

    def cut(self, recording: Recording) -> NDArray[np.float32]:
        """The part of a recording that the model takes at once, at its own rate."""
        names = "n_samples", "nb_max_samples"
        most = next((n for one in names if (n := getattr(self.extractor, one, None))), None)
        if self.is_ast:  # the frames of AST are 10 ms apart
            most = self.extractor.max_length * self.rate // 100
        return resample(recording.samples, recording.rate, self.rate)[:most]

    def encode_recording(
        self, recording: Recording, samples: NDArray[np.float32]
    ) -> tuple[EncodedRecording, dict[str, Any]]:
        """The encoder's output for the samples of a recording, and its tokens."""
        features = sound_inputs(self.model, self.extractor, samples, self.rate)
        seconds = len(samples) / self.rate
        if self.has_patches and not self.is_ast:
            columns = ceil(seconds * self.rate / self.extractor.hop_length)
            return EncodedRecording(features, None, (), [], columns), {}
        part, lengths, stacks = self.listener, set[int](), set[str]()
        paths = {one: path for path, one in part.named_modules()}

        def look(call: AttentionCall) -> None:
            lengths.add(call.query.shape[2])
            stacks.add(paths[call.module].partition("layers")[0])

        watch = watch_kernels(look)
        with devices.running_errors(self.model, SIDE), torch.no_grad():
            if part is getattr(self.model, PARALLEL, None):
                features = inputs_of_part(self.model, part, features)
            with watch, watch_frames(part, lengths):
                output = part(**features)
        states = getattr(output, "last_hidden_state", None)
        if states is None and (len(lengths) != 1 or len(stacks) != 1):
            raise ModelError(
                f"'{self.model.config.model_type}' gives out no vectors of frames, as encoders of "
                "speech do, and is no codec whose encoder alone attends: it is not read"
            )
        # SEW joins frames for its attention, and parts them again.
        count = 0 if states is None else int(states.shape[1]) // self.squeeze_factor
        if len(lengths) == 1 and not self.writes:  # others join them behind it (AudioFlamingo)
            count = lengths.pop()
        if self.is_ast:
            tokens, places, settings = self._patches(count, seconds)
        else:
            marks = has_class_token(part, count, states)
            step = self.step(features, count - marks)
            frames = max(1, min(count - marks, int(seconds / step + 1e-6)))
            places = list(range(marks + frames))
            tokens = frame_tokens(frames, recording.start, step)
            tokens = (*mark_tokens(["[CLS]"] * marks), *tokens)
            settings = {"seconds of a frame": step}
        return EncodedRecording(features, output, tokens, places, count), settings

    @property
    def listener(self) -> Any:
        """The part whose frames attend to each other, without a head of letters or classes."""
        if self.writes:
            return self.model.get_encoder()
        whole = self.model.base_model
        if (part := getattr(whole, PARALLEL, None)) is not None:
            return part
        part = getattr(whole, "encoder", None)
        takes = () if part is None else inspect.signature(part.forward).parameters
        return part if whole.main_input_name in takes else whole

    @property
    def squeeze_factor(self) -> int:
        """How many frames of the output are one of the attention."""
        return int(getattr(self.listener.config, "squeeze_factor", 1))

    def step(self, features: dict[str, Any], frames: int) -> float:
        config = self.listener.config
        if ratios := getattr(config, "upsampling_ratios", None):  # of a codec
            return float(prod(ratios)) / self.rate
        if strides := getattr(config, "conv_stride", None):
            return float(prod(strides)) * self.squeeze_factor / self.rate
        if config.model_type == "moonshine":  # its strides of 64, 3 and 2 stand in its code
            return 384 / self.rate
        values = features.get("input_values", next(iter(features.values())))
        if "input_values" in features and values.shape[-2] == 1:  # a wave
            return float(round(values.shape[-1] / frames)) / self.rate
        time = 2 if values.shape[1] == getattr(self.extractor, "feature_size", 0) else 1
        hop = getattr(self.extractor, "hop_length", self.rate // 100)
        hop *= getattr(self.extractor, "stride", 1)  # steps of 10 ms in one row of features
        return float(hop * max(1, round(values.shape[time] / frames))) / self.rate

    def _patches(
        self, count: int, seconds: float
    ) -> tuple[tuple[Token, ...], list[int], dict[str, Any]]:
        """Patches by row, the highest band first, and column, behind two special tokens."""
        config = self.model.config
        rows = (config.num_mel_bins - config.patch_size) // config.frequency_stride + 1
        columns = (config.max_length - config.patch_size) // config.time_stride + 1
        if count != rows * columns + 2:
            raise ModelError(f"'{self.name}' makes {count} tokens of {rows} × {columns} patches")
        wide = max(1, min(columns, ceil(100 * seconds / config.time_stride)))
        places = [2 + row * columns + n for row in reversed(range(rows)) for n in range(wide)]
        marks = (Token("[CLS]", special=True), Token("[DIST]", special=True))
        patches = f"{rows} bands, the highest first, × {wide} of {config.time_stride / 100:g} s"
        return (*marks, *patch_tokens(rows, wide)), [0, 1, *places], {"patches": patches}

    def _over_itself(self, heard: EncodedRecording) -> Attention:
        if self.has_patches and not self.is_ast:
            return windows.over_patches(self, heard)
        region, axes = self.region, {"encoder" if self.writes else "self": (SIDE, SIDE)}
        if self.is_ast:
            region = replace(region, max_size=heard.count)
        elif len(heard.places) < heard.count:
            region = replace(region, window=(0, len(heard.places) - 1))
        try:
            return self._read(self.listener, heard.features, heard, axes, region)
        except AttentionError as error:
            return windows.over_frames(self, heard, axes, error)

    def _by_text(self, query: Query, heard: EncodedRecording) -> Attention:
        target = self.target(query, heard)
        inputs = {
            "encoder_outputs": heard.output,
            "decoder_input_ids": torch.tensor([target.ids], device=self.model.device),
            **{name: row for name, row in heard.features.items() if name == "attention_mask"},
        }
        axes = {"cross": ("text", SIDE), "decoder": ("text", "text")}
        region = replace(self.region, max_size=max(len(target.ids), heard.count))
        attention = self._read(self.model, inputs, heard, axes, region, target.tokens)
        prompt = takewhile(lambda token: token.special, target.tokens)
        settings = {"queries": QUERIES, "prompt": "".join(token.text for token in prompt)}
        attention = attention.with_maps(attention.maps, settings=settings, notes=target.notes)
        return replace(attention, text=target.text)

    def _read(
        self,
        part: Any,
        inputs: dict[str, Any],
        heard: EncodedRecording,
        axes: dict[str, tuple[str, str]],
        region: Region,
        text: tuple[Token, ...] = (),
    ) -> Attention:
        """The maps of one pass, without the padding behind the recording."""
        counts, tokens = {SIDE: heard.count, "text": len(text)}, {SIDE: heard.tokens, "text": text}
        sides = {name: (counts[rows], counts[keys]) for name, (rows, keys) in axes.items()}
        encoding = EncodedQuery(part, inputs, tokens, axes, Attention((), self.provenance))
        items = capture(part, inputs, sides, region=region)
        return encoding.build_attention([self._cut_padding(i, heard) for i in items], sides=sides)

    def _cut_padding(self, item: Captured, heard: EncodedRecording) -> Captured:
        """Weights without the padding that the pass had to include."""
        if not self.is_ast and item.stream != "cross":
            return item
        weights = item.weights[:, :, heard.places] if self.is_ast else item.weights
        return replace(item, weights=weights[..., heard.places], grid=None)

    def target(self, query: Query, heard: EncodedRecording) -> tokenization.TokenizedText:
        """The spoken text as the decoder reads it; the model writes it if it is not given."""
        assert query.recording is not None
        prompt, options, notes = self.prompt(query.recording, heard)
        mark = self.tokenizer.eos_token_id if query.recording.ended else None
        end = [] if mark is None else [mark]
        most, text = (self.limit or LONGEST) - len(prompt) - len(end), query.text
        if text:
            tokenization.check_text(text)
            # Whisper was trained on texts with a space before the first word.
            line = f" {text.strip()}" if self.model.config.model_type == "whisper" else text
            with tokenization.tokenizer_errors(self.tokenizer):
                ids = self.tokenizer(line, add_special_tokens=False, verbose=False)["input_ids"]
            if len(ids) > most:
                raise InputError(
                    f"the text is {len(ids):,} tokens long and '{self.name}' reads {most:,}"
                )
        else:
            if not self.can_generate:
                raise ModelError(f"'{self.name}' has no trained head to write with: give --text")
            ids, cut = generate_ids(self, heard.features, min(most - 1, LONGEST), **options)
            marks = {*self.tokenizer.all_special_ids, *self.tokenizer.added_tokens_decoder}
            ids = [number for number in ids if number not in marks]
            with tokenization.tokenizer_errors(self.tokenizer):
                text = self.tokenizer.decode(ids).strip()
            notes += ["the text was written greedily by the model, then read in one pass", *cut]
        tokens = tokenization.label_ids(self.tokenizer, [*prompt, *ids], text)
        if all(token.special for token in tokens[len(prompt) :]):
            nothing = "the model wrote nothing about this recording: give --text"
            raise InputError(
                "the model's tokenizer knows none of the text" if query.text else nothing
            )
        start = (replace(token, special=True) for token in tokens[: len(prompt)])
        last = (Token(self.tokenizer.eos_token, special=True) for _ in end)
        both = (*start, *tokens[len(prompt) :], *last)
        return tokenization.TokenizedText(
            both, {"input_ids": [*prompt, *ids, *end]}, text, tuple(notes)
        )

    def prompt(
        self, recording: Recording, heard: EncodedRecording
    ) -> tuple[list[int], dict[str, str], list[str]]:
        """The ids before the text, `generate` options that give the same ids, and notes."""
        config = self.model.generation_config
        languages = dict(getattr(config, "lang_to_id", None) or {})
        names = ("no_timestamps_token_id", "forced_bos_token_id")
        more = (getattr(config, name, None) for name in names)
        ending = [number for number in more if number is not None]
        start = start_token(self.model)
        if not languages:
            if recording.language or recording.task:
                raise UsageError(
                    f"'{self.name}' has no marks of languages and tasks: leave --language and "
                    "--task out"
                )
            return [start, *ending], {}, []
        from transformers.models.whisper.tokenization_whisper import TO_LANGUAGE_CODE

        notes = list[str]()
        if recording.language is None:
            with devices.running_errors(self.model, SIDE), torch.no_grad():
                number = int(self.model.detect_language(encoder_outputs=heard.output)[0])
            code = next(name for name, own in languages.items() if own == number).strip("<|>")
            notes.append(f"the model takes the language for '{code}': --language says another")
        else:
            codes = [name.strip("<|>") for name in languages]
            code = TO_LANGUAGE_CODE.get(recording.language.lower(), recording.language.lower())
            code = choose(code, codes, "language")
        task = choose(recording.task or "transcribe", config.task_to_id, "task")
        ids = [start, languages[f"<|{code}|>"], config.task_to_id[task], *ending]
        return ids, {"language": code, "task": task}, notes

    def timing_heads(self, item: AttentionMap, option: Heads | None) -> tuple[Heads, str]:
        """The heads that time the words, and the source of the choice: an option, or the model.

        Raises:
            UsageError: no map of words over a recording, or no such head.
            ModelError: the model's configuration names no heads.
        """
        if item.stream != "cross":
            raise UsageError(f"'{self.name}' writes no text: its words have no times")
        layers, heads = item.weights.shape[:2]
        choice, why = option, "--timing-heads"
        if choice is None:
            choice = getattr(self.model.generation_config, "alignment_heads", None)
            why = "alignment_heads of its generation config"
        if choice is None:
            choice = [(n, head) for n in range(layers // 2, layers) for head in range(heads)]
            why = "all of the decoder's later half: the model names none"
        with devices.library_errors(f"'{self.name}' names alignment_heads that are no heads"):
            pairs = [(int(layer), int(head)) for layer, head in choice]
        if not pairs or not all(0 <= n < layers and 0 <= head < heads for n, head in pairs):
            raise UsageError(
                f"{why}, {pairs}: the decoder has {layers} layers of {heads} heads, from 0"
            )
        return pairs, why


def load_audio_model(name: str | InMemoryModel, **options: Any) -> AudioModel:
    """A pretrained speech model; options are the fields of `LoadOptions`."""
    terms = loading.LoadOptions(**options)

    def load_reader(folder: Path, name: str) -> Any:
        tokenizer = partial(loading.load_tokenizer, folder, name, allow_code=terms.allow_code)
        return load_extractor(folder, name), tokenizer

    parts = loading.load_parts(name, terms, load_reader, speech_class)
    (path, model), reader = hearing_part(parts.model), parts.reader
    if model.main_input_name not in SOUNDS:
        raise ModelError(
            f"'{name}' ({model.config.model_type}) hears no recordings: it asks for "
            f"'{model.main_input_name}'"
        )
    if isinstance(reader, tuple):
        extractor, tokenizer = reader[0], reader[1]() if has_cross(model) else None
    else:  # a processor from Python
        extractor = getattr(reader, "feature_extractor", reader)
        tokenizer = getattr(reader, "tokenizer", None)
    limit = getattr(model.config, "max_target_positions", None)
    if tokenizer and family.parts_of(model.config) != [model.config]:
        limit = family.reading_limit(model, tokenizer)
    notes = [f"of two towers the one for recordings is read: {path}"] if path else []
    if hasattr(model, PARALLEL):
        notes.append(f"of two encoders the one for words is read: {PARALLEL}")
    return AudioModel(
        name=str(name),
        model=model,
        tokenizer=tokenizer,
        extractor=extractor,
        family=family.family_of(model),
        limit=limit,
        provenance=replace(parts.provenance, notes=(*parts.provenance.notes, *notes)),
        can_generate=model.can_generate(),
        task=parts.task,
    )


def hearing_part(model: Any) -> tuple[str, Any]:
    """A model, or of two towers the one for recordings, with its path."""
    towers = any("logit_scale" in name for name, _ in model.named_parameters())
    if model.main_input_name not in SOUNDS and towers:
        for path, part in model.named_modules():
            if getattr(part, "main_input_name", "") in SOUNDS:
                return path, part
    return "", model


def speech_class(config: Any) -> Any:
    """The class of a speech model, with its language-model head if it has one."""
    import transformers

    writers = transformers.MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING
    decides = (config.architectures or [""])[0].endswith("ForAudioClassification")
    if config.is_encoder_decoder and type(config) in writers and not decides:
        writers.get(type(config), None)
        return transformers.AutoModelForSpeechSeq2Seq
    return loading.model_class(config, with_head=config.is_encoder_decoder)


def has_cross(model: Any) -> bool:
    """Whether a model's text attends to what its encoder reads; that of a transducer does not."""
    return any(stream_of(name) == "cross" for name, _ in model.named_modules())
