"""Decoder inputs: a given target, or a target or continuation that the model writes.

Also the rules of a checkpoint's files for greedy texts, by which numpy writes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.core.attention_map import PARTS, SECOND_PART, Token
from attnviz.core.errors import InputError, ModelError, UsageError, did_you_mean
from attnviz.core.records import dataclass, replace
from attnviz.models.hugging_face.inputs import tokenization
from attnviz.models.hugging_face.load.checkpoint import read_json
from attnviz.models.hugging_face.load.devices import running_errors
from attnviz.models.hugging_face.load.family import parts_of
from attnviz.models.hugging_face.loaded_model import LoadedModel
from attnviz.models.light.network import UnknownArchitecture

LONGEST = 256  # tokens after which a model that does not end its output is stopped
FEW = 20  # tokens that show how a model continues a text


# What rows of a decoder's maps mean.
QUERIES = "the decoder's input: each token looks before the next one is predicted"


def shift_target(model: Any, tokenizer: Any, text: str) -> tokenization.TokenizedText:
    """A text as the decoder reads it to predict that text: shifted by a start token."""
    target = tokenization.tokenize(tokenizer, text, as_target=True)
    ids, tokens = list(target.ids), list(target.tokens)
    if not tokens[-1].special:
        # Shifting drops the last token, which must not belong to the text.
        ids.append(tokenizer.eos_token_id if tokenizer.eos_token_id is not None else ids[-1])
        tokens.append(tokens[-1])
    decoder_ids = _shift(model, ids)
    start = Token(str(tokenizer.convert_ids_to_tokens(decoder_ids[0])), special=True)
    return tokenization.TokenizedText((start, *tokens[:-1]), {"input_ids": decoder_ids}, text)


def _shift(model: Any, ids: list[int]) -> list[int]:
    """A start token, or what the model itself puts there, then all tokens but the last."""
    if hasattr(model, "prepare_decoder_input_ids_from_labels"):
        import torch

        with running_errors(model):
            own = model.prepare_decoder_input_ids_from_labels(torch.tensor([ids]))
            return [int(number) for number in own[0]]
    return [start_token(model), *ids[:-1]]


def start_token(model: Any) -> int:
    """The token that a decoder starts with; `generate` takes that of the generation config."""
    rules = (getattr(model, "generation_config", None), model.config, parts_of(model.config)[-1])
    starts = (getattr(one, "decoder_start_token_id", None) for one in rules)
    start = next((number for number in starts if number is not None), None)
    if start is None:
        raise ModelError(
            f"the decoder of architecture '{model.config.model_type}' does not say how it starts "
            "(decoder_start_token_id)"
        )
    return int(start)


def set_languages(
    model: Any, tokenizer: Any, languages: tuple[str | None, str | None], name: str
) -> tuple[dict[str, int], tuple[str, ...]]:
    """Set a translator's tokenizer to the languages of source and target by codes; None: default.

    Returns:
        How `generate` is told the target's language, and a note if one is a default; both empty for
        a tokenizer without codes.
    """
    codes: dict[str, int] = getattr(tokenizer, "lang_code_to_id", None) or {}
    if not codes and hasattr(tokenizer, "src_lang"):
        tokens = map(str, getattr(tokenizer, "extra_special_tokens", None) or ())
        codes = {token: tokenizer.convert_tokens_to_ids(token) for token in tokens}
    options = "--from", "--to"
    for option, code in zip(options, languages, strict=True):
        if code is not None and code not in codes:
            has = f"knows {', '.join(codes)[:200]}…" if codes else "has no codes of languages"
            raise UsageError(
                f"{option} '{code}': the tokenizer of '{name}' {has}.{did_you_mean(code, codes)}"
            )
    source = languages[0] or (tokenizer.src_lang if codes else None)
    if source is None:
        return {}, ()
    rules, names = model.generation_config, ("forced_bos_token_id", "decoder_start_token_id")
    starts = [getattr(rules, name, None) for name in names]
    usual = next((code for code, number in codes.items() if number in starts), source)
    target = languages[1] or tokenizer.tgt_lang or usual
    tokenizer.src_lang, tokenizer.tgt_lang = source, target
    # The code is what the decoder starts with (mBART), or stands behind that (mBART-50, NLLB).
    first = _shift(model, tokenizer(text_target=source)["input_ids"])[0] == codes[target]
    start = {names[first]: codes[target]}
    sides = zip(("reads", "writes"), (source, target), options, languages, strict=True)
    sentence = [
        f"{verb} {code}" + ("" if own else f" (default: {option} names another)")
        for verb, code, option, own in sides
    ]
    return start, () if all(languages) else (f"it {' and '.join(sentence)}",)


def write_target(
    source: LoadedModel, read: tokenization.TokenizedText
) -> tokenization.TokenizedText:
    """The target that an encoder–decoder writes greedily for a source."""
    if not source.can_generate:
        raise ModelError(
            f"'{source.name}' has no language-model head to write a target with: give a target"
        )
    most, how = how_to_write(source)
    ids, cut = generate_ids(source, source.tensors(read.inputs, source.model), most, **how)
    text, tokens = tokenization.tokenize_generated(source.tokenizer, ids)
    if not text:
        raise ModelError("the model wrote nothing about this text: give a target")
    # The start token stands for no text, whatever its name.
    tokens = (replace(tokens[0], special=True), *tokens[1:])
    notes = (
        "the model wrote the target, each time the likeliest token, and then read it in one pass",
        *cut,
    )
    return tokenization.TokenizedText(tokens, {"input_ids": ids}, text, notes)


def how_to_write(source: LoadedModel) -> tuple[int, dict[str, Any]]:
    """How many tokens a target may have, and the options of `generate` for it."""
    # transformers sizes T5's cache by the encoder: too small for a deeper decoder.
    above, below = (
        getattr(source.model.config, f"num_{name}_layers", 0) for name in ("decoder", "hidden")
    )
    most = min(source.max_new_tokens or LONGEST, (source.limit or 1 << 20) - 1)
    return most, {"use_cache": above <= below, **source.first_token}


def generate_ids(
    source: Any, inputs: dict[str, Any], most: int, **options: Any
) -> tuple[list[int], tuple[str, ...]]:
    """The ids that `loaded.model` writes greedily, without the end token, and notes."""
    if hasattr(source, "write_ids"):  # without torch
        ids = source.write_ids(inputs, most)
    else:
        (ids,) = generate_rows(source, inputs, most, **options)
    if ids[-1] in ends_of(source):
        return ids[:-1], ()
    # Whisper leaves the end token out: an output shorter than allowed was not cut.
    return ids, (f"the model was stopped after {most} tokens",) if len(ids) >= most else ()


def generate_rows(
    source: Any, inputs: dict[str, Any], most: int, **options: Any
) -> list[list[int]]:
    """The ids that a model of transformers writes greedily for each text, end and padding too."""
    import torch

    # A folder's generation_config.json may ask for more sequences or another kind of answer.
    plain = {"num_return_sequences": 1, "return_dict_in_generate": False, "do_sample": False}
    with running_errors(source.model), torch.inference_mode():
        rows: list[list[int]] = source.model.generate(
            **inputs, **plain, num_beams=1, max_new_tokens=most, **options
        ).tolist()
    return rows


def ends_of(source: Any) -> set[int]:
    """The tokens that end what a model writes."""
    ends = getattr(getattr(source.model, "generation_config", None), "eos_token_id", None)
    ends = ends if isinstance(ends, list) else [ends]
    return {*ends, source.tokenizer.eos_token_id} - {None}


def writer_class(config: Any, name: str) -> Any:
    """The auto class that loads a model with its language-model head."""
    import transformers
    from transformers.models.auto import modeling_auto as auto

    if config.is_encoder_decoder:
        return transformers.AutoModelForSeq2SeqLM
    kind = config.model_type
    fills_in = kind in auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES
    if type(config) not in transformers.MODEL_FOR_CAUSAL_LM_MAPPING or fills_in:
        raise ModelError(
            f"'{name}' is of architecture '{kind}', which writes no text: leave --generate out"
        )
    return transformers.AutoModelForCausalLM


def continue_prompt(
    source: LoadedModel, prompt: str, read: tokenization.TokenizedText
) -> tuple[str, tokenization.TokenizedText, dict[str, Any], tuple[str, ...]]:
    """A prompt and its continuation as one text, with tokens, settings and notes.

    A causal model attends alike step by step with a cache and in one pass, so prompt and output are
    read again in one pass.
    """
    if source.family == "encoder–decoder":
        raise ModelError(
            f"'{source.name}' is encoder–decoder and writes a target: use 'attnviz cross TEXT'"
        )
    if not source.can_generate:
        raise ModelError(
            f"'{source.name}' has no trained language-model head: leave --generate out"
        )
    tokenizer = source.tokenizer
    length, most, limit = len(read.ids), source.max_new_tokens or 0, source.limit
    if limit is not None and length + most > limit:
        raise InputError(
            f"the prompt is {length:,} tokens long and the model reads {limit:,}: --generate can "
            f"be {max(limit - length, 0)} at most"
        )
    inputs = {"input_ids": read.ids, "attention_mask": [1] * length}
    ids, cut = generate_ids(source, source.tensors(inputs, source.model), most)
    new = ids[length:]
    output = new_text(tokenizer, read.ids, new)
    if not output.strip():
        raise ModelError("the model wrote nothing after this text: give another one")
    tokens = (*read.tokens, *tokenization.label_ids(tokenizer, new, output, before=prompt))
    settings = {
        PARTS: "prompt and output",
        SECOND_PART: len(prompt),
        "prompt tokens": length,
        "output tokens": len(new),
    }
    notes = ("the output was generated greedily, then read in one pass with the prompt", *cut)
    both = tokenization.TokenizedText(tokens, {"input_ids": [*read.ids, *new]})
    return prompt + output, both, settings, notes


def continue_text(source: LoadedModel, inputs: Mapping[str, Any]) -> str:
    """A target, or up to `FEW` tokens after the text; without a cache every step is changed."""
    read = {name: row for name, row in inputs.items() if not name.startswith("decoder_")}
    tensors = source.tensors(read, source.model)
    if source.family == "encoder–decoder":
        most, how = how_to_write(source)
        ids, _ = generate_ids(source, tensors, most, **how | {"use_cache": False})
        return tokenization.tokenize_generated(source.tokenizer, ids)[0]
    before = list(read["input_ids"])
    room = FEW if source.limit is None else min(FEW, source.limit - len(before))
    if room <= 0:
        return ""
    ids, _ = generate_ids(source, tensors, room, use_cache=False)
    return new_text(source.tokenizer, before, ids[len(before) :])


def new_text(tokenizer: Any, before: list[int], new: list[int]) -> str:
    def decode(ids: list[int]) -> str:
        with tokenization.tokenizer_errors(tokenizer):
            return str(
                tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
            )

    start, text = decode(before), decode([*before, *new])
    return text[len(start) :] if text.startswith(start) else decode(new)


IGNORED = (
    "_from_model_config bos_token_id cache_implementation do_sample early_stopping "
    "length_penalty max_length max_new_tokens num_beams num_return_sequences output_attentions "
    "output_hidden_states pad_token_id return_dict_in_generate temperature top_k top_p "
    "transformers_version use_cache"
)
"""Keys of generation_config.json that change no greedy text."""
NUMBERS = (
    "decoder_start_token_id forced_bos_token_id forced_eos_token_id no_repeat_ngram_size min_length"
)
"""Keys that are read here, besides the tokens that end a text and single tokens that are banned."""


@dataclass(frozen=True, slots=True)
class WritingRules:
    """What changes the likeliest next token."""

    ends: frozenset[int] = frozenset()  # tokens at which a text ends
    bans: tuple[int, ...] = ()
    decoder_start_token_id: int | None = None
    forced_bos_token_id: int | None = None
    forced_eos_token_id: int | None = None
    no_repeat_ngram_size: int = 0
    min_length: int = 0

    def choose(self, ids: Sequence[int], scores: NDArray[np.floating], most: int) -> int:
        """The next token after others, of a text with at most so many."""
        only = self.forced_eos_token_id if len(ids) == most - 1 else None
        if only is None and len(ids) == 1:
            only = self.forced_bos_token_id
        if only is not None:
            return only
        bans, run = list(self.bans), self.no_repeat_ngram_size
        if run and len(ids) >= run:
            last = list(ids[len(ids) - run + 1 :])
            starts = range(len(ids) - run + 1)
            bans += [ids[n + run - 1] for n in starts if list(ids[n : n + run - 1]) == last]
        if len(ids) < self.min_length:
            bans += self.ends
        scores = scores.copy()
        scores[bans] = -np.inf
        return int(scores.argmax())


def writing_rules(folder: Path, config: Mapping[str, Any], vocabulary: int) -> WritingRules:
    """The rules of a folder, or of its configuration where it has no generation_config.json.

    Raises:
        UnknownArchitecture: transformers may write another text.
    """
    file, read = folder / "generation_config.json", (*NUMBERS.split(), "eos_token_id")
    try:
        entries = read_json(file) if file.is_file() else {key: config.get(key) for key in read}
        settings: dict[str, Any] = {key: one for key, one in entries.items() if one is not None}
        odd = settings.keys() - {*IGNORED.split(), *read, "bad_words_ids"}
        ends, bad_words = settings.get("eos_token_id"), settings.get("bad_words_ids", [])
        if not file.is_file() and "eos_token_id" not in config:
            raise UnknownArchitecture("its folder does not say how its texts end")
        ends = ends if isinstance(ends, list) else [] if ends is None else [ends]
        single = [one for words in bad_words for one in words if len(words) == 1]
        numbers = {key: settings[key] for key in NUMBERS.split() if key in settings}
    except (ModelError, AttributeError, TypeError) as error:
        raise UnknownArchitecture("its folder does not say how its texts end") from error
    whole = all(type(one) is int and one >= 0 for one in (*ends, *single, *numbers.values()))
    tokens = [*ends, *single, *(one for key, one in numbers.items() if key.endswith("token_id"))]
    beyond = whole and max(tokens, default=0) >= vocabulary
    if odd or not whole or beyond or len(single) != len(bad_words):
        raise UnknownArchitecture("its generation_config.json changes what it writes")
    return WritingRules(frozenset(ends), tuple({*single} - {*ends}), **numbers)
