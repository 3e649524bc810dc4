"""Decoder inputs: a given target, or a target or continuation that the model writes."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from attnviz.core.attention_map import PARTS, SECOND_PART, Token
from attnviz.core.errors import InputError, ModelError
from attnviz.models.hugging_face.inputs.tokenization import (
    TokenizedText,
    label_ids,
    tokenize,
    tokenize_generated,
    tokenizer_errors,
)
from attnviz.models.hugging_face.load.model_errors import running_errors
from attnviz.models.hugging_face.loaded_model import LoadedModel

LONGEST = 256  # tokens after which a model that does not end its output is stopped
FEW = 20  # tokens that show how a model continues a text


@dataclass(frozen=True, slots=True)
class DecoderInput:
    """A decoder's input."""

    text: str
    ids: list[int]  # the decoder's start token first
    tokens: tuple[Token, ...]
    notes: tuple[str, ...] = ()


# What rows of a decoder's maps mean.
QUERIES = "the decoder's input: each token looks before the next one is predicted"


def shift_target(model: Any, tokenizer: Any, text: str) -> DecoderInput:
    """A text as the decoder reads it to predict that text: shifted by a start token."""
    written = tokenize(tokenizer, text, as_target=True)
    ids, tokens = list(written.ids), list(written.tokens)
    if not tokens[-1].special:
        # Shifting drops the last token, which must not belong to the text.
        ids.append(tokenizer.eos_token_id if tokenizer.eos_token_id is not None else ids[-1])
        tokens.append(tokens[-1])
    shifted = _shift(model, ids)
    start = Token(str(tokenizer.convert_ids_to_tokens(shifted[0])), special=True)
    return DecoderInput(text, shifted, (start, *tokens[:-1]))


def _shift(model: Any, ids: list[int]) -> list[int]:
    """A start token, then all tokens but the last.

    The model's own method comes first: mBART starts with the language, its last token.
    """
    if hasattr(model, "prepare_decoder_input_ids_from_labels"):
        import torch

        with running_errors(model):
            own = model.prepare_decoder_input_ids_from_labels(torch.tensor([ids]))
            return [int(number) for number in own[0]]
    start = getattr(model.config, "decoder_start_token_id", None)
    if start is None:
        raise ModelError(
            f"the decoder of architecture '{model.config.model_type}' does not say how it starts "
            "(decoder_start_token_id)"
        )
    return [start, *ids[:-1]]


def write_target(loaded: LoadedModel, read: TokenizedText) -> DecoderInput:
    """The target that an encoder–decoder writes greedily for a source."""
    if not loaded.can_generate:
        raise ModelError(
            f"'{loaded.name}' has no language-model head to write a target with: give a target"
        )
    model, tokenizer = loaded.model, loaded.tokenizer
    most = min(loaded.max_new_tokens or LONGEST, (loaded.limit or 1 << 20) - 1)
    inputs = loaded.tensors(read.inputs, model)
    # transformers sizes T5's cache by the encoder: too small for a deeper decoder.
    above, below = (
        getattr(model.config, f"num_{name}_layers", 0) for name in ("decoder", "hidden")
    )
    kept, cut = generate_ids(loaded, inputs, most, use_cache=above <= below)
    text, tokens = tokenize_generated(tokenizer, kept)
    if not text:
        raise ModelError("the model wrote nothing about this text: give a target")
    # The start token stands for no text, whatever its name.
    tokens = (replace(tokens[0], special=True), *tokens[1:])
    notes = ("the target was generated greedily, then read in one teacher-forced pass", *cut)
    return DecoderInput(text, kept, tokens, notes)


def generate_ids(
    loaded: Any, inputs: dict[str, Any], most: int, **options: Any
) -> tuple[list[int], tuple[str, ...]]:
    """The ids that `loaded.model` writes greedily, without the end token, and notes."""
    if hasattr(loaded, "write_ids"):  # without torch
        ids = loaded.write_ids(inputs, most)
    else:
        import torch

        # A folder's generation_config.json may ask for more sequences or another kind of answer.
        plain = {"num_return_sequences": 1, "return_dict_in_generate": False, "do_sample": False}
        with running_errors(loaded.model), torch.inference_mode():
            written = loaded.model.generate(
                **inputs, **plain, num_beams=1, max_new_tokens=most, **options
            )
        ids = written[0].tolist()
    if ids[-1] in _end_ids(loaded):
        return ids[:-1], ()
    # Whisper leaves the end token out: an output shorter than allowed was not cut.
    return ids, (f"the model was stopped after {most} tokens",) if len(ids) >= most else ()


def _end_ids(loaded: Any) -> set[int]:
    named = loaded.model.generation_config.eos_token_id
    listed = named if isinstance(named, list) else [named]
    return {number for number in (*listed, loaded.tokenizer.eos_token_id) if number is not None}


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
    loaded: LoadedModel, prompt: str, read: TokenizedText
) -> tuple[str, TokenizedText, dict[str, Any], tuple[str, ...]]:
    """A prompt and its continuation as one text, with tokens, settings and notes.

    A causal model attends alike step by step with a cache and in one pass, so prompt and output are
    read again in one pass.
    """
    if loaded.family == "encoder–decoder":
        raise ModelError(
            f"'{loaded.name}' is encoder–decoder and writes a target: use 'attnviz cross TEXT'"
        )
    if not loaded.can_generate:
        raise ModelError(
            f"'{loaded.name}' has no trained language-model head: leave --generate out"
        )
    tokenizer = loaded.tokenizer
    length, most, limit = len(read.ids), loaded.max_new_tokens or 0, loaded.limit
    if limit is not None and length + most > limit:
        raise InputError(
            f"the prompt is {length:,} tokens long and the model reads {limit:,}: --generate can "
            f"be {max(limit - length, 0)} at most"
        )
    inputs = {"input_ids": read.ids, "attention_mask": [1] * length}
    kept, cut = generate_ids(loaded, loaded.tensors(inputs, loaded.model), most)
    new = kept[length:]
    output = new_text(tokenizer, read.ids, new)
    if not output.strip():
        raise ModelError("the model wrote nothing after this text: give another one")
    tokens = (*read.tokens, *label_ids(tokenizer, new, output, before=prompt))
    settings = {
        PARTS: "prompt and output",
        SECOND_PART: len(prompt),
        "prompt tokens": length,
        "output tokens": len(new),
    }
    notes = ("the output was generated greedily, then read in one pass with the prompt", *cut)
    both = TokenizedText(tokens, {"input_ids": [*read.ids, *new]})
    return prompt + output, both, settings, notes


def continue_text(loaded: LoadedModel, inputs: Mapping[str, Any]) -> str:
    """What a model writes greedily: a target, or at most `FEW` tokens after the text.

    It uses no cache, so that an intervention acts on every step.
    """
    read = {name: row for name, row in inputs.items() if not name.startswith("decoder_")}
    given = loaded.tensors(read, loaded.model)
    if loaded.family == "encoder–decoder":
        most = min(loaded.max_new_tokens or LONGEST, (loaded.limit or 1 << 20) - 1)
        kept, _ = generate_ids(loaded, given, most, use_cache=False)
        return tokenize_generated(loaded.tokenizer, kept)[0]
    before = list(read["input_ids"])
    if not (room := room_after(before, loaded.limit)):
        return ""
    kept, _ = generate_ids(loaded, given, room, use_cache=False)
    return new_text(loaded.tokenizer, before, kept[len(before) :])


def room_after(before: list[int], limit: int | None) -> int:
    """How many tokens the model can still write after a text."""
    return FEW if limit is None else max(0, min(FEW, limit - len(before)))


def new_text(tokenizer: Any, before: list[int], new: list[int]) -> str:
    def decode(ids: list[int]) -> str:
        with tokenizer_errors(tokenizer):
            return str(
                tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
            )

    start, text = decode(before), decode([*before, *new])
    return text[len(start) :] if text.startswith(start) else decode(new)
