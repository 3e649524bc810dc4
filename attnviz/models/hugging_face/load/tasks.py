"""What a classifier decides about a text: a class, tags, a number, or a label for each token."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from attnviz.core.attention_map import DECISION, PROBABILITIES, Attention, AttentionMap, Token
from attnviz.core.errors import ModelError
from attnviz.core.locks import thread_hook
from attnviz.core.tokens import continues_word
from attnviz.mechanisms.arrays import softmax, to_numpy

SUFFIXES = {
    "ForSequenceClassification": "AutoModelForSequenceClassification",
    "ForTokenClassification": "AutoModelForTokenClassification",
    "ForImageClassification": "AutoModelForImageClassification",
}
"""Endings of architectures of classifiers, and the auto classes that load them."""
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
    labels = tuple(str(config.id2label[number]) for number in sorted(config.id2label))
    if loader.endswith("TokenClassification"):
        kind = "tokens"
    elif config.problem_type == "regression" or len(labels) == 1:
        kind = "number"
    else:
        kind = "tags" if config.problem_type == "multi_label_classification" else "classes"
    return Task(loader, labels, kind)


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
    if logits.shape[-1] != len(task.labels):
        raise ModelError(
            f"the model has {logits.shape[-1]} outputs, and its configuration names "
            f"{len(task.labels)} labels"
        )
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
