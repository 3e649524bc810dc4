"""What a decoder reads: a given target, or what the model writes: a target or a continuation."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from attnviz.core.attention_map import PARTS, SECOND_PART, Token
from attnviz.core.errors import InputError, ModelError
from attnviz.models.hugging_face.inputs.tokens import (
    TokenizedText,
    label_ids,
    tokenize,
    tokenize_generated,
    tokenizing,
)
from attnviz.models.hugging_face.load.errors import first_line, foreign, running
from attnviz.models.hugging_face.model import LoadedModel

LONGEST = 256
"""Tokens after which a model that does not end its output by itself is stopped."""


@dataclass(frozen=True, slots=True)
class Target:
    """A decoder's input."""

    text: str
    ids: list[int]  # the decoder's start token first
    tokens: tuple[Token, ...]
    notes: tuple[str, ...] = ()


QUERIES = "the decoder's input: each token looks before the next one is predicted"
"""What the rows of a decoder's maps stand for."""


def given_target(model: Any, tokenizer: Any, text: str) -> Target:
    """A text as the decoder reads it while it predicts that text: shifted by one start token."""
    written = tokenize(tokenizer, text, as_target=True)
    ids, tokens = list(written.ids), list(written.tokens)
    if not tokens[-1].special:
        # Shifting drops the last token, which must not be one of the text's.
        ids.append(tokenizer.eos_token_id if tokenizer.eos_token_id is not None else ids[-1])
        tokens.append(tokens[-1])
    shifted = _shift(model, ids)
    start = Token(str(tokenizer.convert_ids_to_tokens(shifted[0])), special=True)
    return Target(text, shifted, (start, *tokens[:-1]))


def _shift(model: Any, ids: list[int]) -> list[int]:
    """What a decoder reads to predict these tokens: a start token, then all but the last of them.

    A model's own way is asked first: mBART starts with the language, which stands last.
    """
    import torch

    if hasattr(model, "prepare_decoder_input_ids_from_labels"):
        with running(model):
            own = model.prepare_decoder_input_ids_from_labels(torch.tensor([ids]))
            return [int(number) for number in own[0]]
    start = getattr(model.config, "decoder_start_token_id", None)
    if start is None:
        raise ModelError(
            f"the decoder of architecture '{model.config.model_type}' does not say how it starts "
            "(decoder_start_token_id)"
        )
    return [start, *ids[:-1]]


def generated_target(loaded: LoadedModel, read: TokenizedText) -> Target:
    """What an encoder–decoder writes for a source, taking the likeliest token each time."""
    if not loaded.can_generate:
        raise ModelError(
            f"'{loaded.name}' has no language-model head to write a target with: give a target"
        )
    model, tokenizer = loaded.model, loaded.tokenizer
    most = min(loaded.max_new_tokens or LONGEST, (loaded.limit or 1 << 20) - 1)
    inputs = loaded.tensors(read.inputs, model)
    # transformers sizes T5's cache by the encoder, which is too small for a deeper decoder.
    deeper = getattr(model.config, "num_decoder_layers", 0) > model.config.num_hidden_layers
    kept, cut = _generate(loaded, inputs, most, use_cache=not deeper)
    text, tokens = tokenize_generated(tokenizer, kept)
    if not text:
        raise ModelError("the model wrote nothing about this text: give a target")
    # The token that a decoder starts with stands for no text, whatever it is called.
    tokens = (replace(tokens[0], special=True), *tokens[1:])
    notes = ("the target was generated greedily, then read in one teacher-forced pass", *cut)
    return Target(text, kept, tokens, notes)


def _generate(
    loaded: LoadedModel, inputs: dict[str, Any], most: int, **options: Any
) -> tuple[list[int], tuple[str, ...]]:
    """What a model gives out greedily, without the token that ends it, and notes on that."""
    import torch

    # What a folder's generation_config.json says besides (more sequences, another kind of answer)
    # is not for one greedy output.
    plain = {"num_return_sequences": 1, "return_dict_in_generate": False, "do_sample": False}
    with running(loaded.model), torch.inference_mode():
        written = loaded.model.generate(
            **inputs, **plain, num_beams=1, max_new_tokens=most, **options
        )
    ids = written[0].tolist()
    if ids[-1] in _end_ids(loaded):
        return ids[:-1], ()
    return ids, (f"the model was stopped after {most} tokens",)


def _end_ids(loaded: LoadedModel) -> set[int]:
    named = loaded.model.generation_config.eos_token_id
    listed = named if isinstance(named, list) else [named]
    return {number for number in (*listed, loaded.tokenizer.eos_token_id) if number is not None}


@dataclass(frozen=True, slots=True)
class Continuation:
    """A prompt and its output, as one text."""

    text: str
    read: TokenizedText
    settings: dict[str, Any]  # where the output begins, and how many tokens are whose
    notes: tuple[str, ...]


def writer_class(config: Any, name: str) -> Any:
    """The auto class that loads a model with the head it writes with."""
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


def continue_prompt(loaded: LoadedModel, prompt: str, read: TokenizedText) -> Continuation:
    """A prompt with what the model writes after it, taking the likeliest token each time.

    Step by step with a cache or all at once, a causal model attends alike; so prompt and output are
    read once more, in one pass, instead of stitching steps together.
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
    kept, cut = _generate(loaded, loaded.tensors(inputs, loaded.model), most)
    new = kept[length:]
    output = _new_text(tokenizer, read.ids, new)
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
    return Continuation(prompt + output, both, settings, notes)


def _new_text(tokenizer: Any, before: list[int], new: list[int]) -> str:
    """What new tokens add to the text, with the space that they may begin with."""

    def decoded(ids: list[int]) -> str:
        with tokenizing(tokenizer):
            return str(
                tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
            )

    start, text = decoded(before), decoded([*before, *new])
    return text[len(start) :] if text.startswith(start) else decoded(new)


def apply_chat_template(tokenizer: Any, content: Any, name: str, owner: Any = None) -> str:
    """A user's turn of a conversation, the way the model was taught to read one.

    The template is the owner's, a processor's or else the tokenizer's.

    A template is a program that comes with the model: it runs in a process of its own, which has
    little memory and little time.
    """
    import json

    source = owner or tokenizer
    if not source.chat_template:
        raise ModelError(f"'{name}' has no chat template: leave --chat out")
    with foreign(f"the chat template of '{name}' fails"):
        # Of several templates by name it is the one called "default".
        named = source.chat_template
        template = named["default"] if isinstance(named, dict) else str(named)
        marks = json.dumps(tokenizer.special_tokens_map, sort_keys=True, default=str)
    return _renderer(template, marks, name).render([{"role": "user", "content": content}])


TEMPLATE_SECONDS, TEMPLATE_BYTES = 5, 1 << 30
"""What a template may take for a text; real ones take milliseconds."""
LONGEST_TURN = 1 << 20
"""Characters that a template may make of a text."""


class TemplateProcess:
    """A process that renders one chat template for one text after another."""

    def __init__(self, template: str, marks: str, name: str) -> None:
        import json
        import subprocess
        import sys
        import weakref

        self.name = name
        code = (
            "import json, sys; sys.path[:] = json.loads(sys.argv[1]);"
            f"from {__name__} import serve_template; serve_template(*sys.argv[2:])"
        )
        limits = str(TEMPLATE_SECONDS), str(TEMPLATE_BYTES)
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-c", code, json.dumps(sys.path), *limits],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        weakref.finalize(self, _end, self.process)
        self._send({"template": template, "marks": json.loads(marks)})

    def render(self, messages: list[dict[str, Any]]) -> str:
        """The text that a model reads of a conversation."""
        import json

        self._send(messages)
        assert self.process.stdout is not None
        answer = self.process.stdout.readline()
        if not answer.endswith(b"\n"):
            _renderer.cache_clear()
            raise ModelError(
                f"the chat template of '{self.name}' was stopped: it ran for more than "
                f"{TEMPLATE_SECONDS} seconds or took more than {TEMPLATE_BYTES >> 20} MiB"
            )
        found = json.loads(answer)
        if "error" in found:
            raise ModelError(f"the chat template of '{self.name}' fails: {found['error']}")
        return str(found["text"])

    def _send(self, document: Any) -> None:
        import json
        from contextlib import suppress

        assert self.process.stdin is not None
        with suppress(BrokenPipeError):  # the answer that is missing says it
            self.process.stdin.write(json.dumps(document).encode() + b"\n")
            self.process.stdin.flush()


_renderer = lru_cache(maxsize=4)(TemplateProcess)


def _end(process: Any) -> None:
    process.kill()
    process.communicate()


def serve_template(seconds: str, memory: str) -> None:
    """Render what stdin asks for, a line each, until it ends; the work of `TemplateProcess`."""
    import json
    import sys

    import psutil
    from transformers.utils.chat_template_utils import render_jinja_template

    asked = json.loads(sys.stdin.readline())
    most = psutil.Process().memory_info().vms + int(memory)
    for line in sys.stdin:
        _limit(int(seconds), most)
        try:
            made: Any = render_jinja_template(
                [json.loads(line)],
                chat_template=asked["template"],
                add_generation_prompt=True,
                **asked["marks"],
            )
            text = str(made[0][0])
            answer = {"text": text}
            if len(text) > LONGEST_TURN:
                answer = {"error": f"it makes {len(text):,} characters of this text"}
        except Exception as error:
            answer = {"error": first_line(error)}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


def _limit(seconds: int, memory: int) -> None:
    """Let this process have so many more seconds of a processor, and so many bytes in all."""
    try:
        import resource
    except ImportError:  # Windows has no such limits
        return
    spent = resource.getrusage(resource.RUSAGE_SELF)
    most = int(spent.ru_utime + spent.ru_stime) + 1 + seconds
    for kind, limit in ((resource.RLIMIT_CPU, most), (resource.RLIMIT_AS, memory)):
        hard = resource.getrlimit(kind)[1]
        soft = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
        resource.setrlimit(kind, (soft, hard))
