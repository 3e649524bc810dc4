"""Effects of heads and links against plain forward passes, and the effect lens against gradients.

Run it as a script; it prints medians over turns and their ratios and asserts nothing. The models
have random weights: 12 layers of 12 heads, size 768, as BERT and GPT-2 have, and MiniLM's 6 of 12,
size 384.

    python benchmarks/effects_hugging_face.py [TOKENS]
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from statistics import median
from time import perf_counter
from typing import Any

import torch
import transformers

from attnviz.core.attention_map import Attention, Provenance, Token
from attnviz.core.effects import HeadAt, Intervention, PredictedToken
from attnviz.features.experiments.kernel import KernelExperiment
from attnviz.features.experiments.outputs import ExperimentRequest
from attnviz.features.experiments.texts import explained_by
from attnviz.features.lenses.effect import effect
from attnviz.features.lenses.gradient import gradient
from attnviz.features.lenses.links import with_measured
from attnviz.models.hugging_face.inputs.encoding import EncodedQuery

WORDS, ROUNDS = 8_000, 3
SIZES = {"hidden_size": 768, "num_hidden_layers": 12, "intermediate_size": 3072}
SMALL = {"hidden_size": 384, "num_hidden_layers": 6, "intermediate_size": 1536}


def question(model: Any, tokens: int) -> ExperimentRequest:
    """What a model of language makes of random words, and what it says at the last of them."""
    torch.manual_seed(0)
    ids = torch.randint(5, WORDS, (1, tokens))
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    named = {"text": tuple(Token(str(place)) for place in range(tokens))}
    empty = Attention((), Provenance("hugging face", "random"))
    encoded = EncodedQuery(model, inputs, named, {"self": ("text", "text")}, empty)
    return ExperimentRequest(
        model,
        {**inputs, **({"use_cache": False} if model.can_generate() else {})},
        encoded,
        lambda logits: (
            PredictedToken(tokens - 1, int(logits[0, -1].argmax()), "last", tokens - 1),
        ),
        str,
    )


def seconds(*tasks: Callable[[], object], rounds: int = ROUNDS) -> list[float]:
    """The median of each task, all of them in turns."""
    took: list[list[float]] = [[] for _ in tasks]
    for turn in range(rounds + 1):
        for task, times in zip(tasks, took, strict=True):
            started = perf_counter()
            task()
            if turn:  # the first is to warm up
                times.append(perf_counter() - started)
    return [median(times) for times in took]


def plain(asked: ExperimentRequest) -> None:
    """One forward pass."""
    with torch.no_grad():
        asked.model(**asked.inputs)


def heads(asked: ExperimentRequest) -> None:
    """The exact effect of each head."""
    experiment = KernelExperiment(asked)
    changes = [
        Intervention((HeadAt(item.stream, layer, head),))
        for item in experiment.attention.maps
        for layer in item.layers
        for head in range(len(item.heads))
    ]
    list(experiment.run(changes))


def by_effect(asked: ExperimentRequest, count: int) -> None:
    """The effect lens, with some of its links measured."""
    experiment = KernelExperiment(asked)
    found = effect(explained_by(experiment))
    if count:
        with_measured(found, experiment, count)


def by_gradient(asked: ExperimentRequest) -> None:
    """The gradient lens."""
    gradient(KernelExperiment(asked).explain_first())


def main(tokens: int) -> None:
    """Print the figures."""
    gpt2 = transformers.GPT2Config(vocab_size=WORDS, bos_token_id=1, eos_token_id=2)
    bert = transformers.BertConfig(vocab_size=WORDS, num_attention_heads=12, **SIZES)
    small = transformers.BertConfig(vocab_size=WORDS, num_attention_heads=12, **SMALL)
    for name, auto, config in (
        ("gpt2", transformers.GPT2LMHeadModel, gpt2),
        ("bert", transformers.BertForMaskedLM, bert),
        ("minilm", transformers.BertForMaskedLM, small),
    ):
        asked = question(auto(config).eval(), tokens)
        estimate, measured, other = seconds(
            partial(by_effect, asked, 0), partial(by_effect, asked, 20), partial(by_gradient, asked)
        )
        print(
            f"{name:>7}  gradient lens {other:.3f} s  effect lens {estimate / other:.2f} ×, "
            f"with 20 links measured {measured / other:.2f} ×",
            flush=True,
        )
        if name != "minilm":
            one, every = seconds(partial(plain, asked), partial(heads, asked), rounds=1)
            print(
                f"{name:>7}  plain pass {one:.3f} s  144 heads {every / 144 / one:.2f} passes each"
            )


if __name__ == "__main__":
    main(int(sys.argv[1]) if sys.argv[1:] else 128)
