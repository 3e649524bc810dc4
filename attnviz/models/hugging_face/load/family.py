"""What kind of model it is: its family, which may be refused, its limits, and the task of its head.

A classifier decides a class, tags, a number, or a label for each token.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from contextlib import contextmanager
from typing import Any, Literal

import numpy as np

from attnviz.core.attention_map import DECISION, PROBABILITIES, Attention, AttentionMap, Token
from attnviz.core.errors import AttentionError, ModelError
from attnviz.core.locks import thread_hook
from attnviz.core.records import dataclass, replace
from attnviz.core.tokens import continues_word
from attnviz.mechanisms.arrays import softmax, to_numpy

Family = Literal["encoder-only", "decoder-only", "encoder–decoder"]

UNLIMITED = 10**9  # tokenizers that know no limit name a huge one (1e30)


def family_of(model: Any) -> Family:
    """Which of the three transformer shapes a model has."""
    from transformers.models.auto import modeling_auto as auto

    config = model.config
    if config.is_encoder_decoder:
        return "encoder–decoder"
    kind = config.model_type
    writes = kind in auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
    fills_in = kind in auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES
    causal = any(getattr(part, "is_causal", None) is True for part in model.modules())
    is_decoder = getattr(config, "is_decoder", False) or causal or (writes and not fills_in)
    return "decoder-only" if is_decoder else "encoder-only"


def reading_limit(model: Any, tokenizer: Any) -> int | None:
    """How many tokens a model reads, special ones included; None if there is no limit.

    A model fails beyond its learned positions, and was not trained beyond its tokenizer's limit.
    """
    texts = (part.get_text_config() for part in parts_of(model.config))
    positions = (getattr(text, "max_position_embeddings", None) for text in texts)
    offset = _reserved_positions(model)
    limits = [tokenizer.model_max_length, *(most - offset for most in positions if most)]
    for limit in limits:
        if isinstance(limit, bool) or not isinstance(limit, int | float):
            raise ModelError(
                f"the model's folder says that it reads {limit!r} tokens (model_max_length, "
                "max_position_embeddings): that is no number"
            )
    return min((int(limit) for limit in limits if 0 < limit < UNLIMITED), default=None)


def parts_of(config: Any) -> list[Any]:
    """The configurations of the encoder and the decoder of a model made of two, else its own."""
    names = "encoder" if hasattr(config, "encoder") else "text_encoder", "decoder"
    sides = [getattr(config, name, None) for name in names]
    return sides if all(hasattr(one, "model_type") for one in sides) else [config]


def _reserved_positions(model: Any) -> int:
    """Unused positions: RoBERTa-like models count from one past the padding's."""
    for name, part in model.named_modules():
        padding = getattr(part, "padding_idx", None)
        if name.endswith("position_embeddings") and padding is not None:
            return int(padding) + 1
    return 0


def count_left_over(report: Mapping[str, Any], model: Any) -> int:
    """How many weights of a checkpoint belong to layers that the configuration leaves out."""
    kinds = {_without_number(key) for key in model.state_dict() if _without_number(key) != key}
    return sum(_without_number(key) in kinds for key in report["unexpected_keys"])


def _without_number(key: str) -> str:
    return re.sub(r"\.\d+\.", ".#.", key)


NOT_WEIGHTS = {
    "canine": "its characters attend in windows, and its deep layers to every fourth of them only",
    "diffllama": "each head subtracts one attention from another, so that what it mixes is signed",
    "funnel": "its layers pool their tokens, so that rows and columns stand for several",
    "longformer": "it attends in windows, with a few tokens that see all",
    "nystromformer": "it goes through landmarks, and gives out only the way to them",
    "prophetnet": "its decoder attends in several streams, for tokens further ahead",
    "reformer": "it attends within buckets of a hash",
    "rwkv": "it is a recurrence",
    "squeezebert": "it gives out scores before the softmax",
    "yoso": "it samples by a hash and has no weights",
}
"""By model type: why its attention is no weights between tokens, even if it gives some out."""

ENCODER_APART = {
    "led": "its encoder attends in windows, with a few tokens that see all",
    "longt5": "its encoder attends in windows or to summaries of blocks",
    "pegasus_x": "its encoder attends in blocks, with tokens of its own that see all",
}
"""By model type: why only its decoder, over itself and over the source, has weights."""

BLOCK_SPARSE = ("big_bird", "bigbird_pegasus")


def check_family(config: Any, longest: int, streams: Iterable[str] = ()) -> None:
    """Refuse a family whose attention is no weights between tokens, before it runs."""
    for part in parts_of(config):
        _check_one(part, longest, streams)


def _check_one(config: Any, longest: int, streams: Iterable[str]) -> None:
    kind = config.model_type
    reason = NOT_WEIGHTS.get(kind)
    if "encoder" in streams:
        reason = reason or ENCODER_APART.get(kind)
    if kind in BLOCK_SPARSE and config.attention_type == "block_sparse":
        full = int((5 + 2 * config.num_random_blocks) * config.block_size)
        if longest > full:
            reason = (
                f"over {longest:,} tokens it attends in blocks, some drawn by chance, and gives "
                f"out a reconstruction that loses some of it; up to {full:,} it is full"
            )
    if reason:
        raise AttentionError(
            f"architecture '{kind}' has no attention weights between all tokens: {reason}"
        )


SUFFIXES = {
    "ForSequenceClassification": "AutoModelForSequenceClassification",
    "ForTokenClassification": "AutoModelForTokenClassification",
    "ForImageClassification": "AutoModelForImageClassification",
    "ForVideoClassification": "AutoModelForVideoClassification",
}
"""Endings of architectures of classifiers, and the auto classes that load them."""
HEADLESS = ("ForMultipleChoice", "ElectraForPreTraining")
"""Endings of architectures whose outputs are neither classes nor tokens."""
# Weights of such heads; no attention depends on them.
HEAD = re.compile(r"^(\w*classifier|classification_head|score|sequence_summary|logits_proj)\.")
OUTSIDE = "O"  # the label of a token outside of all entities
MOST_CLASSES = 20  # with more classes only the decision is kept, not every probability


@dataclass(frozen=True, slots=True)
class Task:
    """What a classifier's head predicts."""

    loader: str  # the auto class that loads the model with its head
    labels: tuple[str, ...]  # of its outputs
    kind: str  # "classes" (one is true), "tags" (each may be), "number" or "tokens"


def task_of(config: Any, architecture: str = "") -> Task | None:
    """The task of a named architecture, or of the checkpoint's own; None if it has none."""
    import transformers

    task = task_named(architecture or (getattr(config, "architectures", None) or ("",))[0], config)
    loads = task and type(config) in getattr(transformers, task.loader)._model_mapping
    return task if loads else None


def task_named(architecture: str, config: Any) -> Task | None:
    """The task of an architecture by its name; the configuration names classes by number."""
    loader = next((auto for end, auto in SUFFIXES.items() if architecture.endswith(end)), None)
    if loader is None:
        return None
    # PVT's own configuration counts its classes, and names none.
    names = config.id2label or {n: f"LABEL_{n}" for n in range(config.num_labels)}
    labels = tuple(str(names[number]) for number in sorted(names))
    if loader.endswith("TokenClassification"):
        kind = "tokens"
    elif config.problem_type == "regression" or len(labels) == 1:
        kind = "number"
    else:
        kind = "tags" if config.problem_type == "multi_label_classification" else "classes"
    return Task(loader, labels, kind)


def check_labels(outputs: int, names: Sized) -> None:
    """Refuse a model with outputs that its configuration does not name."""
    if outputs != len(names):
        raise ModelError(
            f"the model has {outputs} outputs, and its configuration names {len(names)} labels"
        )


@contextmanager
def record_logits(model: Any) -> Iterator[list[Any]]:
    """Record a model's logits in a block of code, one item for each pass; None: it has none."""
    logits = list[Any]()
    record = thread_hook(lambda *call: logits.append(getattr(call[-1], "logits", None)))
    with model.register_forward_hook(record):
        yield logits


def show_decision(
    attention: Attention, task: Task, logits: Any, tokens: Sequence[Token]
) -> Attention:
    """The attention with the model's decision on its tokens or in its provenance."""
    logits = to_numpy(logits[0])
    check_labels(logits.shape[-1], task.labels)
    if task.kind == "tokens":
        names = [task.labels[number] for number in logits.argmax(-1).tolist()]
        labels = word_labels(names, tokens, attention.text or "")
        maps = tuple(_label_map(item, tokens, labels) for item in attention.maps)
        return replace(attention, maps=maps)
    facts = DECIDERS[task.kind](logits, task.labels)
    decision = attention.with_maps(attention.maps, settings=facts)
    return replace(decision, decision=str(facts.get(DECISION, "")))


def word_labels(names: Sequence[str], tokens: Sequence[Token], text: str) -> tuple[str | None, ...]:
    """A label for each token: that of its word's first piece, which models are trained on."""
    labels = list[str | None]()
    for place, (name, token) in enumerate(zip(names, tokens, strict=True)):
        before = tokens[place - 1] if place else token
        same = place > 0 and (before.start, before.end) == (token.start, token.end)
        inside = same or continues_word(text, token.start)
        if token.special:
            labels.append(None)
        elif inside and place and not before.special:
            labels.append(labels[-1])
        else:
            labels.append(None if name == OUTSIDE else name)
    return tuple(labels)


def _label_map(
    item: AttentionMap, tokens: Sequence[Token], labels: Sequence[str | None]
) -> AttentionMap:
    """A map with labels on the axes of these tokens; axes of blocks get none."""
    new_tokens = tuple(
        replace(token, label=name) for token, name in zip(tokens, labels, strict=True)
    )
    return replace(
        item,
        query_tokens=new_tokens if item.query_tokens == tuple(tokens) else item.query_tokens,
        key_tokens=new_tokens if item.key_tokens == tuple(tokens) else item.key_tokens,
    )


def likeliest_class(logits: Any, labels: Sequence[str]) -> dict[str, Any]:
    """The likeliest of exclusive classes, from logits."""
    shares = dict(zip(labels, softmax(logits).tolist(), strict=True))
    best = max(shares, key=lambda name: shares[name])
    return {DECISION: f"{best} ({shares[best]:.0%})", **_probabilities(shares)}


def likely_tags(logits: Any, labels: Sequence[str]) -> dict[str, Any]:
    """Every tag with a probability of 0.5 or more, from logits."""
    shares = dict(
        zip(labels, (0.5 * (1 + np.tanh(0.5 * np.asarray(logits)))).tolist(), strict=True)
    )
    true = [f"{name} ({share:.0%})" for name, share in shares.items() if share >= 0.5]
    return {DECISION: ", ".join(true) or "none of its tags", **_probabilities(shares)}


def _probabilities(shares: Mapping[str, float]) -> dict[str, Any]:
    if len(shares) > MOST_CLASSES:
        return {}
    return {PROBABILITIES: {name: round(share, 6) for name, share in shares.items()}}


DECIDERS: dict[str, Callable[[Any, Sequence[str]], dict[str, Any]]] = {
    "classes": likeliest_class,
    "tags": likely_tags,
    "number": lambda logits, _: {DECISION: ", ".join(f"{one:.3g}" for one in logits.tolist())},
}
