"""What questions about a long prompt cost, as ratios to the plain forward pass, in one run.

A Llama with random weights, a tokenizer of words and a chat template, all made here. Of each length
every question is asked in turns with the plain pass, its table printed to nowhere. Run it as a
script; it prints ratios (of the processor's own time, which neighbours hardly change; on a GPU of
the clock) and the memory above the loaded model, and asserts nothing.

    python benchmarks/long_prompts.py [--tokens N …] [--layers N] [--heads N] [--size N] [--only …]

`on_gpu.py` asks the same of a larger model on a GPU.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import capture_length
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import AutoModelForCausalLM, LlamaConfig, PreTrainedTokenizerFast

import attnviz
from attnviz.core.errors import AttnvizError, first_line

LENGTHS = (1_000, 3_000, 10_000, 32_000)
SENTENCES = 16  # of a text: hiding each of them takes about half a pass
LONG = 10_000  # tokens from which one round, of minutes, is enough
VOCABULARY = 8_000  # of the model; texts are of a few hundred words
WORDS = ["".join(letters) for letters in product("bdklmnprst", "aeiou", "bdklmnprst")]
MARKS = ("<unk>", "<s>", "</s>", "<|system|>", "<|user|>", "<|assistant|>", "<|end|>")
TEMPLATE = (
    "{% for one in messages %}<|{{ one.role }}|> {{ one.content }} <|end|> {% endfor %}"
    "{% if add_generation_prompt %}<|assistant|> {% endif %}"
)
PARTS = {"system": 0.05, "user 1": 0.6, "assistant 1": 0.1, "user 2": 0.25}
"""The share of each message in a chat."""


@dataclass(frozen=True, slots=True)
class Shape:
    """How large the model is."""

    layers: int = 4
    heads: int = 8
    groups: int = 4  # heads of keys and values
    size: int = 64  # of a head; of smaller ones a plain pass costs little beside its weights
    dtype: torch.dtype = torch.float32

    def __str__(self) -> str:
        kind = str(self.dtype).removeprefix("torch.")
        sizes = f"{self.heads} heads ({self.groups} of keys) of size {self.size}"
        return f"Llama of {self.layers} layers × {sizes}, random weights, {kind}"


@dataclass(frozen=True, slots=True)
class Asked:
    """A model with a text and a chat of one length."""

    model: Any
    tokenizer: Any
    text: str
    chat: Sequence[Mapping[str, str]]

    def plain(self) -> object:
        """The forward pass that everything is compared with."""
        ids = self.tokenizer(self.text, return_tensors="pt").input_ids.to(self.model.device)
        with torch.no_grad():
            return self.model.base_model(ids, use_cache=False)

    @property
    def own(self) -> dict[str, Any]:
        """What every function of attnviz is given."""
        return {"model": self.model, "tokenizer": self.tokenizer}


QUESTIONS: dict[str, Callable[[Asked], Any]] = {
    "self": lambda it: attnviz.attend(it.text, **it.own),  # its first lines say what sinks take
    "chat": lambda it: attnviz.attend(it.chat, chat=True, **it.own),
    "heads": lambda it: attnviz.heads(it.text, no_repeat=True, **it.own),
    "kv": lambda it: attnviz.attend(it.text, kv=True, **it.own),
    "trace": lambda it: attnviz.sources(it.text, of="output", **it.own),
    "lens": lambda it: attnviz.why(it.text, layers=True, **it.own),
}
"""Each question by its name in the table; its answer has a method `table`."""


def make_model(shape: Shape, most: int, device: str) -> tuple[Any, Any]:
    """A model that reads so many tokens, on the device from the start, and its tokenizer."""
    torch.manual_seed(0)
    vocabulary = {word: number for number, word in enumerate([*MARKS, ".", *WORDS])}
    own = Tokenizer(models.WordLevel(vocabulary, unk_token=MARKS[0]))
    own.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Punctuation()]
    )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=own,
        unk_token=MARKS[0],
        bos_token=MARKS[1],
        eos_token=MARKS[2],
        additional_special_tokens=[*MARKS[3:]],
        chat_template=TEMPLATE,
    )
    width = shape.heads * shape.size
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=width,
        intermediate_size=-(-8 * width // 3 // 128) * 128,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.groups,
        max_position_embeddings=most,
        bos_token_id=1,
        eos_token_id=2,
    )
    with torch.device(device):
        model = AutoModelForCausalLM.from_config(config, dtype=shape.dtype).eval()
    return model, tokenizer


def write_text(tokens: int, sentences: int, seed: int = 0) -> str:
    """Sentences of random words, so many tokens in all."""
    draw = random.Random(seed)
    ends = {tokens * number // sentences for number in range(1, sentences + 1)}
    words = (draw.choice(WORDS) + (" ." if at + 2 in ends else "") for at in range(tokens)
             if at + 1 not in ends)  # fmt: skip
    return " ".join(words).replace(" .", ".")


def ask_of(model: Any, tokenizer: Any, tokens: int) -> Asked:
    """A text and a chat of so many tokens; those of the template come on top."""
    chat = [
        {"role": name.split()[0], "content": write_text(int(share * tokens), SENTENCES // 4, seed)}
        for seed, (name, share) in enumerate(PARTS.items())
    ]
    return Asked(model, tokenizer, write_text(tokens - 1, SENTENCES), chat)


def measure(work: Callable[[], object], device: str) -> tuple[float, float]:
    """What work takes, in seconds of the processor or of a GPU's clock, and MiB at its peak."""
    if device == "cpu":
        _, used, peak = capture_length.measure(work)
        return used, peak
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before, start = torch.cuda.memory_allocated(), perf_counter()
    work()
    torch.cuda.synchronize()
    took = perf_counter() - start
    return took, (torch.cuda.max_memory_allocated() - before) / 2**20


def compare(asked: Asked, question: str, device: str, rounds: int) -> str:
    """A cell of the table: the ratio to the plain pass and the memory, or why there is none."""

    def answer() -> object:
        return QUESTIONS[question](asked).table()

    try:
        pairs = [(measure(asked.plain, device), measure(answer, device)) for _ in range(rounds)]
    except AttnvizError as error:
        return f"refused: {first_line(error)}"
    ratio = median(own[0] / plain[0] for plain, own in pairs)
    return f"{ratio:5.2f} × {max(own[1] for _, own in pairs):6.0f} MiB"


def run_all(
    shape: Shape, lengths: Sequence[int], questions: Sequence[str], device: str, seconds: float
) -> None:
    """Print the table, a line for each length and question, until the seconds are over."""
    start = perf_counter()
    model, tokenizer = make_model(shape, max(lengths) + 64, device)
    warm = ask_of(model, tokenizer, 200)
    for question in questions:  # not counted: what is imported and compiled at first
        compare(warm, question, device, 1)
    for tokens in lengths:
        asked = ask_of(model, tokenizer, tokens)
        rounds = 1 if tokens >= LONG and device == "cpu" else 3
        plain = [measure(asked.plain, device) for _ in range(rounds)]
        took, memory = median(one[0] for one in plain), max(one[1] for one in plain)
        print(f"{tokens:7,} tokens, plain: {took:.3f} s {memory:.0f} MiB", flush=True)
        for question in questions:
            if perf_counter() - start > seconds:
                print(f"{seconds:.0f} s are over: the rest is left out")
                return
            print(f"        {question:6} {compare(asked, question, device, rounds)}", flush=True)


def ask(shape: Shape, lengths: Sequence[int], device: str, most_seconds: float) -> None:
    """Read the options, say what is measured where, and print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--tokens", type=int, nargs="+", default=lengths, help="of a text")
    parser.add_argument("--layers", type=int, default=shape.layers)
    parser.add_argument("--heads", type=int, default=shape.heads)
    parser.add_argument("--size", type=int, default=shape.size, help="of a head")
    parser.add_argument("--only", nargs="+", choices=QUESTIONS, default=[*QUESTIONS])
    parser.add_argument("--device", default=device)
    given = parser.parse_args()
    if given.device != "cpu" and not torch.cuda.is_available():
        sys.exit("no CUDA device is at hand: --device cpu runs a small model on the processor")
    groups = next(n for n in (shape.groups, 2, 1) if given.heads % n == 0)
    shape = replace(shape, layers=given.layers, heads=given.heads, groups=groups, size=given.size)
    name = processor() if given.device == "cpu" else torch.cuda.get_device_name(given.device)
    print(f"{name}: {shape}")
    run_all(shape, given.tokens, given.only, given.device, most_seconds)


def processor() -> str:
    """The processor's name, and how many threads torch has."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    name = next((line.partition(": ")[2] for line in lines if line.startswith("model name")), "?")
    return f"{name}, {torch.get_num_threads()} threads"


if __name__ == "__main__":
    ask(Shape(), LENGTHS, "cpu", 3600)
