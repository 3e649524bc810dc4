"""One pass of a model whose code is its own, read as `watch` reads it, as layers of its streams.

The batch is one text, so whatever stands on the axis of a batch beside it are heads. Layers whose
queries or keys are no tokens of the text are left out, and a note says so.
"""

from __future__ import annotations

import inspect
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from threading import RLock
from typing import Any

import numpy as np

from attnviz.core.errors import AttentionError, AttnvizError
from attnviz.core.records import dataclass, replace
from attnviz.features.observer.observer import CapturedCall, WatchLog, WatchRequest, observe
from attnviz.features.watch.maps import failures_of, notes_on_reading, reasons_for_none
from attnviz.models.hugging_face.capture import kernel
from attnviz.models.hugging_face.capture.capture import Captured, group_layers, without_cache
from attnviz.models.hugging_face.capture.passes import Sides, check_rows
from attnviz.models.hugging_face.capture.region import ALL_TOKENS, Region
from attnviz.models.hugging_face.load.devices import running_errors

_ONE_AT_A_TIME = RLock()  # only one thread can watch: others take turns


@dataclass(frozen=True, slots=True, eq=False)
class WatchedPass:
    """What was seen of a pass over one text, and what the model returned."""

    calls: tuple[CapturedCall, ...]  # in order, each with all heads
    log: WatchLog
    request: WatchRequest
    output: Any


def logits_of(output: Any) -> Any:
    """Scores of a vocabulary, (tokens, vocabulary), in a model's output; None without a head."""
    logits: Any = getattr(output, "logits", None)
    return logits[0] if getattr(logits, "ndim", 0) == 3 else None


def watch_pass(model: Any, inputs: Mapping[str, Any], region: Region) -> WatchedPass:
    """Run a model on one text, and read every attention in it; compiled code runs uncompiled."""
    import torch

    request = WatchRequest(batch=None, region=region)
    for eager in (False, True):
        with (
            _ONE_AT_A_TIME,
            running_errors(model),
            torch.no_grad(),
            observe(model, request, eager=eager) as log,
        ):
            output = model(**without_cache(model, inputs, return_dict=True))
        if not log.ran_compiled:
            break
    by_call = dict[tuple[str, int], list[CapturedCall]]()
    for one in log.captures:
        by_call.setdefault((one.path, one.call), []).append(one)
    return WatchedPass(tuple(map(_join_heads, by_call.values())), log, request, output)


def _join_heads(items: Sequence[CapturedCall]) -> CapturedCall:
    """One call of all heads; those that stand on the axis of the batch came as items."""
    if len(items) == 1:
        return items[0]
    offs = [one.off for one in items if one.off is not None]
    return replace(
        items[0],
        weights=np.concatenate([one.weights for one in items]),
        links=tuple(head for one in items for head in one.links),
        off=max(offs, default=None),
        scores={},
    )


def layers_of(
    reading: WatchedPass, model: Any, sides: Sides
) -> tuple[list[Captured], tuple[str, ...]]:
    """The streams' layers of a pass, and notes.

    Raises:
        AttentionError: there are none, and why.
    """
    by_stream: dict[str, list[CapturedCall]] = {stream: [] for stream in sides}
    others = dict[str, CapturedCall]()
    for call in reading.calls:
        stream = _stream_of(call, sides)
        if stream is None:
            others[call.path] = call
        else:
            by_stream[stream].append(call)
    if not any(by_stream.values()):
        why = next(_strange(others, sides), "")
        why = why or next(reasons_for_none(reading.log, reading.request))
        raise AttentionError(f"'{model.config.model_type}' runs code of its own: {why}")
    captures = list[Captured]()
    for stream, calls in by_stream.items():
        names = _layer_names(calls)
        for name, call in zip(names, calls, strict=True):
            check_rows(call.weights, name, model, stream)
        captures += group_layers(
            stream,
            {name: call.weights for name, call in zip(names, calls, strict=True)},
            {name: call.links for name, call in zip(names, calls, strict=True) if call.links},
            grid=calls[0].grid if calls else None,
            route=", ".join(dict.fromkeys(call.route for call in calls)),
        )
    notes = (
        *_strange(others, sides),
        *failures_of(reading.log),
        *notes_on_reading(reading.calls, reading.log),
        *_overflow(reading.log),
    )
    return captures, tuple(dict.fromkeys(notes))


def _strange(others: Mapping[str, CapturedCall], sides: Sides) -> Iterator[str]:
    """What is said of layers whose queries or keys are no tokens of the text."""
    if others:
        path, call = next(iter(others.items()))
        more = f" and {len(others) - 1} more" if len(others) > 1 else ""
        tokens = " and ".join(dict.fromkeys(f"{one:,}" for side in sides.values() for one in side))
        yield (
            f"the attention of '{path}'{more} is of {call.sides[0]:,} × {call.sides[1]:,} places, "
            f"and the text has {tokens} tokens: it is not shown"
        )


def _overflow(log: WatchLog) -> Iterator[str]:
    if log.overflow:
        yield f"{log.overflow} further calls were not kept: their maps would not fit into memory"


def _stream_of(call: CapturedCall, sides: Sides) -> str | None:
    """The stream of a call by its module's path, its lengths, its inputs and its mask; or None."""
    fits = [stream for stream, side in sides.items() if side == call.sides]
    path_stream = kernel.stream_of(call.path)
    if len(fits) < 2 or (path_stream in fits and path_stream != "decoder"):
        return path_stream if len(fits) > 1 else next(iter(fits), None)
    back = looks_back(call)
    if "cross" in fits and not (call.same_input or back):
        return "cross"
    own = [stream for stream in fits if stream != "cross"]
    return own[-1] if back or path_stream == "decoder" else own[0]


def looks_back(call: CapturedCall) -> bool:
    """Whether no query attends to a later key."""
    rows, keys = call.grid.queries, call.grid.keys
    return not np.triu(call.weights, 1 + (rows.start - keys.start) // keys.length).any()


def _layer_names(calls: Sequence[CapturedCall]) -> list[str]:
    """Numbers of layers, or paths where these differ by more; repeated ones with their call."""
    paths = list(dict.fromkeys(call.path for call in calls))
    names = kernel.layer_names(paths)
    inside = [re.findall(r"(?<=\.)\d+(?=\.)", f".{path}.") for path in paths]
    if len(paths) > 1 and not any(list(column) == names for column in zip(*inside, strict=False)):
        names = paths  # several modules of a layer
    if len(paths) == 1:  # one module for all layers
        return list(map(str, range(len(calls))))
    if len(calls) == len(paths):
        return names
    by_path, counts, several = dict(zip(paths, names, strict=True)), Counter[str](), list[str]()
    for call in calls:
        counts[call.path] += 1
        several.append(f"{by_path[call.path]} · call {counts[call.path]}")
    return several


@dataclass(frozen=True, slots=True, eq=False)
class OwnCodeTrial:
    """What a pass over a few tokens showed.

    Attributes:
        calls_kernel: whether the model calls the attention kernel of transformers.
        takes_mask: whether it reads an attention mask of ones.
        two_stacks: whether it reads a source and a target.
        causal: whether all of its self-attention looks back only.
        heads: how many there are in all layers.
        predicts: whether it gives out scores of tokens.
    """

    calls_kernel: bool
    takes_mask: bool
    two_stacks: bool
    causal: bool
    heads: int
    predicts: bool


LENGTHS = (7, 5)
"""Tokens of a trial's text, and of its target."""


def try_reading(model: Any, vocabulary: int) -> tuple[OwnCodeTrial, WatchedPass, dict[str, Any]]:
    """Run a model on a few tokens: what that shows, and the pass and its inputs.

    Raises:
        ModelError: it does not run, with and without a mask.
    """
    import torch

    two_stacks = reads_two(model)
    ids, target = (
        torch.tensor([[(5 + n) % vocabulary for n in range(length)]], device=model.device)
        for length in LENGTHS
    )
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    if two_stacks:
        inputs["decoder_input_ids"] = target
    kernels, takes_mask = list[Any](), True
    with kernel.watch_kernels(kernels.append):
        try:
            reading = watch_pass(model, inputs, ALL_TOKENS)
        except AttnvizError as error:
            takes_mask = False
            del inputs["attention_mask"]
            kernels.clear()
            try:
                reading = watch_pass(model, inputs, ALL_TOKENS)
            except AttnvizError:
                raise error from None
    alike = [one for one in reading.calls if one.sides == (LENGTHS[0], LENGTHS[0])]
    trial = OwnCodeTrial(
        bool(kernels),
        takes_mask,
        two_stacks,
        bool(alike) and all(map(looks_back, alike)),
        sum(len(one.weights) for one in reading.calls),
        logits_of(reading.output) is not None,
    )
    return trial, reading, inputs


def reads_two(model: Any) -> bool:
    """Whether a model reads a source and a target."""
    own = inspect.signature(model.forward).parameters
    return bool(getattr(model.config, "is_encoder_decoder", False)) or "decoder_input_ids" in own
