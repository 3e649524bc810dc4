"""What each part of a transformers model writes, for any family, from one eager pass.

The gradient of a query, a key or a logit by a leaf of the linear pass, times the leaf, is that
leaf's part; the parts sum to the whole, or the model is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import groupby
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from attnviz.core.attention_call import AttentionCall
from attnviz.core.attention_map import Attention
from attnviz.core.effects import HeadAt
from attnviz.core.errors import AttentionError, ModelError, UsageError
from attnviz.core.query import Query
from attnviz.core.writers import SIDES, Side, Writer
from attnviz.features.audio.audio_model import AudioModel
from attnviz.features.experiments.interventions import upcast_half
from attnviz.features.targets.outputs import check_head, class_name, spell_choice, spell_piece
from attnviz.features.vision.vision_model import VisionModel
from attnviz.features.why.stream import StreamPass
from attnviz.features.writers.linear_pass import (
    AttentionScores,
    Leaf,
    LinearPass,
    Replay,
    flatten_heads,
    slopes_by,
)
from attnviz.models.hugging_face.capture.kernel import (
    copy_modules,
    eager_copy,
    layer_names,
    match_stream,
    stream_of,
)
from attnviz.models.hugging_face.capture.passes import StopForward, attending_layers
from attnviz.models.hugging_face.eager import eager_inputs, run_eager
from attnviz.models.hugging_face.inputs.encoding import EncodedQuery
from attnviz.models.hugging_face.load.imports import quiet
from attnviz.models.hugging_face.text_model import HuggingFaceModel

HIDDEN = -1e9  # a score below this hides a key


class RecordedText:
    """A text as a transformers model has read it; `spell` names the choices of its logits."""

    def __init__(self, eager: EncodedQuery, spell: Callable[[int], str] | None = str) -> None:
        self.eager = replace(eager, part=copy_modules(eager.part))
        self.part, self.spell = self.eager.part, spell or str
        self.biases = []
        for name, one in self.part.named_parameters():
            one.requires_grad_(name.endswith("bias"))
            self.biases += [one] if one.requires_grad else []
        self.recording = LinearPass(self.part)
        with self.recording.watch(self.part, eager.what):
            output, self.attention, _ = run_eager(self.eager)
        # A product of two live matrices without a softmax, as of linear attention, is a leaf.
        self.recording.leaves += [
            Leaf(one.product, "feed-forward", one.layer)
            for one in self.recording.calls
            if one.before is None
        ]
        logits = getattr(output, "logits", None) if spell else None
        self._output: Any = None if logits is None else logits.reshape(-1, logits.shape[-1])
        self._parts_at: tuple[int, dict[int, Tensor]] = -1, {}  # heads' parts of a layer's input
        self._sides: tuple[int, tuple[int, ...], dict[Side, list[Tensor]]] | None = None
        self._calls = self._name_calls()
        self.writers, self.of_leaf = self._name_writers()

    def _name_calls(self) -> dict[tuple[str, str], int]:
        """The number of the attention of each stream and layer."""
        encoding = self.eager
        numbers: dict[tuple[str, str], int] = {}
        complete = [n for n, one in enumerate(self.recording.calls) if one.value is not None]
        for stream in encoding.axes:
            own = [
                n
                for n in complete
                if match_stream(stream_of(self.recording.calls[n].path), encoding.axes) == stream
            ]
            paths = [self.recording.calls[n].path for n in own]
            names = layer_names(paths, attending_layers(self.part.config))
            # The weights decide whether a stream is "self" or "causal".
            name_of_stream = self.attention.main.stream if len(encoding.axes) == 1 else stream
            numbers |= {(name_of_stream, name): n for name, n in zip(names, own, strict=True)}
        map_names = {(item.stream, layer) for item in self.attention.maps for layer in item.layers}
        if map_names != set(numbers):
            raise AttentionError(
                f"architecture '{self.eager.kind}' attends in a way that cannot be taken apart"
            )
        return numbers

    def _name_writers(self) -> tuple[tuple[Writer, ...], list[int]]:
        """Every writer, and the first of each leaf's."""
        of_call = {n: place for place, n in self._calls.items()}
        main = self.attention.main.stream
        writers, first = [Writer("bias", main)], list[int]()
        numbers, layer = dict[Writer, int](), ""
        paths = [self.recording.calls[n].path for n in of_call]
        one_for_all = len({*paths}) < len(paths)  # ALBERT has one module for all
        for leaf in self.recording.leaves:
            if leaf.call is not None and leaf.call in of_call:
                stream, layer = of_call[leaf.call]
                first.append(len(writers))
                writers += [Writer("head", stream, layer, head) for head in range(leaf.count)]
                continue
            sides = [one for one in self.eager.axes if one != "cross"]
            side = match_stream(stream_of(leaf.layer), sides) if len(sides) > 1 else main
            digits = (part for part in reversed(leaf.layer.split(".")) if part.isdigit())
            number = layer if one_for_all and leaf.layer else next(digits, "")
            writer = Writer(leaf.kind, side or main, number)
            if writer not in numbers:
                numbers[writer] = len(writers)
                writers.append(writer)
            first.append(numbers[writer])
        return tuple(writers), first

    def _call(self, at: HeadAt) -> AttentionScores:
        return self.recording.calls[self._calls[at.stream, at.layer]]

    def sides(self, at: HeadAt) -> AttentionCall:
        call = self._call(at)
        cap = None
        if call.cap is None:
            factor = slope_of(call.before, call.product)
        else:
            reads, gives = call.cap
            cap = slope_of(call.before, gives)
            factor = slope_of(reads, call.product) * cap
        query, key, value = (
            as_array(of_head(one, at.head, call)) for one in (call.query, call.key, call.value)
        )
        keys = key.shape[0]
        before = as_array(flatten_heads(call.before)[at.head])
        plain = factor * query @ key.T
        limits = plain if cap is None else cap * np.tanh(plain / cap)
        offset = before[:, :keys] - limits
        visible = offset > HIDDEN
        position = np.where(visible, offset, 0)
        sink = before[:, keys:] if before.shape[1] > keys else None
        close = 1e-5 * max(1.0, float(np.abs(plain).max()))
        bias = None if np.abs(position).max() <= close else position
        how: Any = {"factor": factor, "position": bias, "cap": cap, "sink": sink}
        return AttentionCall(query, key, value, visible, **how)

    def _read(self, scalar: Any) -> NDArray[np.float64]:
        """Each writer's part of a number that is linear in all of them."""
        leaves = [leaf.value for leaf in self.recording.leaves]
        slopes = slopes_by(scalar, [*leaves, *self.biases])
        totals = np.zeros(len(self.writers))
        for leaf, first, slope in zip(self.recording.leaves, self.of_leaf, slopes, strict=False):
            if slope is None:
                continue
            product = slope.detach() * leaf.value.detach()
            if leaf.call is None:
                totals[first] += float(product.double().sum())
            else:
                sums = as_array(flatten_heads(product).double().sum((1, 2)))
                totals[first : first + len(sums)] += sums
        for bias, slope in zip(self.biases, slopes[len(leaves) :], strict=True):
            if slope is not None:
                totals[0] += float((slope * bias.detach()).double().sum())
        return totals

    def read(self, at: HeadAt, side: Side, direction: NDArray[Any]) -> NDArray[np.float64]:
        with torch.enable_grad():
            call = self._call(at)
            vectors = of_head(getattr(call, side), at.head, call)
            return self._read((vectors * torch.as_tensor(direction).to(vectors)).sum())

    def parts(
        self, stream: str, layer: str, side: Side, writers: Sequence[int]
    ) -> Iterator[NDArray[Any]]:
        call = self.recording.calls[self._calls[stream, layer]]
        with torch.enable_grad():
            whole = flatten_heads(getattr(call, side))
        repeats = len(flatten_heads(call.product)) // len(whole)
        if call.stream is None or len(writers) < len(flatten_heads(call.product)):
            parts: Any = self._follow(whole, writers)
        else:
            parts = self._sides_of(self._calls[stream, layer], writers)[side]
        yield from (as_array(one).repeat(repeats, 0) for one in parts)

    def _sides_of(self, number: int, writers: Sequence[int]) -> dict[Side, list[Tensor]]:
        """Each writer's part of the three sides of an attention.

        All go through the layer's maps together, from their parts of the layer's input. Only those
        that also reach a side elsewhere (a decoder's keys) are followed from where they wrote.
        """
        if self._sides is not None and self._sides[:2] == (number, tuple(writers)):
            return self._sides[2]
        call = self.recording.calls[number]
        stream = call.stream or 0
        if self._parts_at[0] > stream:
            self._parts_at = -1, {}
        for one in range(self._parts_at[0] + 1, stream + 1):
            leaves = self.recording.leaves[: self.recording.streams[one][0]]
            heads = [
                first + head
                for first, leaf in zip(self.of_leaf, leaves, strict=False)
                if leaf.call is not None and self.writers[first].kind == "head"
                for head in range(leaf.count)
            ]
            (parts,) = self._pass_on([self.recording.streams[one][1]], one - 1, heads)
            self._parts_at = one, dict(zip(heads, parts, strict=True))
        with torch.enable_grad():
            targets = [flatten_heads(getattr(call, side)) for side in SIDES]
        by_side = dict(zip(SIDES, self._pass_on(targets, stream, writers), strict=True))
        self._sides = number, tuple(writers), by_side
        return by_side

    def _pass_on(
        self, targets: Sequence[Tensor], stream: int, writers: Sequence[int]
    ) -> list[list[Tensor]]:
        """Each writer's part of some tensors, through the layer's input where possible."""
        arrivals = self._parts_at[1]
        routes = [
            {*arrivals} & self._through(target, stream) if stream >= 0 else set()
            for target in targets
        ]
        together = all(one == routes[0] for one in routes)
        if len(targets) > 1 and not together:
            return [self._pass_on([target], stream, writers)[0] for target in targets]
        through = [writer for writer in writers if writer in routes[0]]
        mapped_parts = self._push(targets, stream, [arrivals[writer] for writer in through])
        others = [writer for writer in writers if writer not in routes[0]]
        by_target = []
        for target, own in zip(targets, mapped_parts, strict=True):
            parts = dict(zip(through, own, strict=True))
            parts |= zip(others, self._follow(target, others), strict=True)
            by_target.append([parts[writer] for writer in writers])
        return by_target

    def _push(
        self, targets: Sequence[Tensor], stream: int, parts: Sequence[Tensor]
    ) -> list[Sequence[Tensor]]:
        """Parts of a layer's input, mapped to tensors that are linear in it."""
        if not parts:
            return [() for _ in targets]
        with torch.enable_grad():
            asks = [torch.zeros_like(target, requires_grad=True) for target in targets]
            inputs = self.recording.streams[stream][1]
            (slope,) = slopes_by(targets, inputs, asks, create_graph=True)
            if slope is None:
                return [list(torch.zeros((len(parts), *target.shape))) for target in targets]
            # The gradient of the gradient maps all parts at once, as the layer maps the stream.
            results = slopes_by(slope, asks, torch.stack(list(parts)), is_grads_batched=True)
        return [list(one.detach()) for one in results]

    def _through(self, target: Tensor, stream: int) -> set[int]:
        """The writers that reach a tensor only through a layer's input, by a random gradient."""
        count, inputs = self.recording.streams[stream]
        leaves = [leaf.value for leaf in self.recording.leaves[:count]]
        rng = torch.Generator(target.device).manual_seed(0)
        ask = torch.rand(target.shape, generator=rng, device=target.device, dtype=target.dtype)
        direct, (slope,) = slopes_by(target, leaves, ask), slopes_by(target, inputs, ask)
        through = [None] * count if slope is None else slopes_by(inputs, leaves, slope)
        numbers = set[int]()
        for leaf, first, one, other in zip(
            self.recording.leaves, self.of_leaf, direct, through, strict=False
        ):
            if (one is None) == (other is None) and (
                one is None or torch.allclose(one, other, 1e-3, 1e-5 * float(one.abs().max()))
            ):
                numbers |= {*range(first, first + leaf.count)}
        return numbers

    def _follow(self, whole: Any, writers: Sequence[int]) -> Iterator[Any]:
        """Each writer's part of a tensor that is linear in all of them, by double backward."""
        leaves = [*(leaf.value for leaf in self.recording.leaves), *self.biases]
        with torch.enable_grad():
            ask = torch.zeros_like(whole, requires_grad=True)
            slopes = slopes_by(whole, leaves, ask, create_graph=True)
            # Writers of one leaf share a backward path; other leaves' writers would only add work.
            for _, some in groupby(writers, lambda one: replace(self.writers[one], head=None)):
                total = torch.stack([self._total(writer, slopes, whole) for writer in some])
                if not total.requires_grad:
                    yield from torch.zeros((len(total), *whole.shape))
                    continue
                each = torch.eye(len(total), dtype=total.dtype, device=total.device)
                yield from slopes_by(total, ask, each, is_grads_batched=True)[0]

    def _total(self, writer: int, slopes: Sequence[Any], whole: Tensor) -> Tensor:
        """The sum of a writer's leaves times their gradients."""
        leaves = self.recording.leaves
        pairs = [*zip(slopes[len(leaves) :], self.biases, strict=True)] if writer == 0 else []
        for leaf, first, slope in zip(leaves, self.of_leaf, slopes, strict=False):
            if leaf.call is None and first == writer:
                pairs.append((slope, leaf.value))
            elif leaf.call is not None and slope is not None:
                own = slice(writer - first, writer - first + 1) if writer >= first else slice(0)
                pairs.append((flatten_heads(slope)[own], flatten_heads(leaf.value)[own]))
        parts = ((slope * value.detach()).sum() for slope, value in pairs if slope is not None)
        return sum(parts, whole.new_zeros(()))

    def without(self, at: HeadAt, side: Side, writer: int) -> NDArray[Any]:
        off, head = [], 0
        for leaf, first in zip(self.recording.leaves, self.of_leaf, strict=True):
            if 0 <= writer - first < leaf.count:
                off.append(leaf)
                head = writer - first
        number = self._calls[at.stream, at.layer]
        target = getattr(self.recording.calls[number], side)
        replay = Replay(self.part, self.recording, off, (number, head), target)
        with suppress(StopForward), replay.watch(self.part, self.eager.what):
            self.part(**{**self.eager.inputs, "use_cache": False})
        call = replay.calls[number]
        return as_array(of_head(getattr(call, side), at.head, call))

    def predicts(self, stream: str, row: int) -> bool:
        if self._output is None:
            return False
        # If there is a decoder, it makes the prediction.
        return len(self.eager.axes) == 1 or stream != "encoder"

    def _logits(self, row: int) -> Any:
        row = row if len(self._output) > 1 else 0
        whole, of_row = self.recording.head or (None, self._output.__getitem__)
        # With a large vocabulary, gradients of one row are much cheaper than those of all rows.
        if whole is not None and whole.ndim == 3 and whole.data_ptr() == self._output.data_ptr():
            return of_row(row)[0]
        return self._output[row]

    def argue(self, at: HeadAt, outputs: Mapping[int, NDArray[Any]]) -> NDArray[np.float64]:
        leaf = self._leaf_of(at)
        with torch.enable_grad():
            # A head's output at a row reaches the logits of this row alone.
            rows = outputs if len(self._output) > 1 else (0,)  # a class has one row
            whole = sum(self._logits(row) for row in rows)
            ask = torch.zeros_like(whole, requires_grad=True)
            (slope,) = slopes_by(whole, leaf, ask, create_graph=True)
            if slope is None:  # of another stream than the one that predicts
                return np.zeros(whole.shape[-1])
            own = flatten_heads(slope)[at.head]
            total = sum(
                (own[row] * torch.as_tensor(one).to(own)).sum() for row, one in outputs.items()
            )
            by_choice = as_array(torch.autograd.grad(total, ask)[0]).astype(np.float64)
        logits: NDArray[np.float64] = by_choice - by_choice.mean()
        return logits

    def slopes(self, row: int, choice: int) -> dict[tuple[str, str], NDArray[np.float64]]:
        leaves = {place: self._leaf_of(HeadAt(*place, 0)) for place in self._calls}
        with torch.enable_grad():
            whole = self._logits(row)
            above = whole[choice] - whole.mean()
            gradients = slopes_by(above, [*leaves.values()])
        return {
            place: as_array(flatten_heads(slope)[:, row]).astype(np.float64)
            for place, slope in zip(leaves, gradients, strict=True)
            if slope is not None and row < flatten_heads(slope).shape[1]
        }

    def _leaf_of(self, at: HeadAt) -> Any:
        number = self._calls[at.stream, at.layer]
        return next(leaf.value for leaf in self.recording.leaves if leaf.call == number)

    def logits(self, row: int) -> NDArray[np.float64]:
        return as_array(self._logits(row)).astype(np.float64)

    def layer_logits(self, row: int) -> Sequence[NDArray[np.float64]]:
        run = StreamPass(self.part, self.eager.inputs, self.eager.axes, self.eager.what)
        logits = map(run.predict, run.states)
        return [one[row if len(one) > 1 else 0] for one in logits]

    def logit_parts(self, row: int, choice: int) -> NDArray[np.float64]:
        with torch.enable_grad():
            whole = self._logits(row)
            return self._read(whole[choice] - whole.mean())


def of_head(one: Any, head: int, call: AttentionScores) -> Any:
    """A head's part of a side (heads or groups of them, positions, size)."""
    parts = flatten_heads(one)
    return parts[head * len(parts) // len(flatten_heads(call.product))]


def slope_of(after: Any, before: Any) -> float:
    """The factor between a tensor and another that is a linear function of it.

    Raises:
        AttentionError: one does not lead to the other.
    """
    slope = None
    if after is not None and after.requires_grad:
        with torch.enable_grad():
            (slope,) = slopes_by(after[(0,) * after.ndim], before)
    if slope is None:
        raise AttentionError("scores become weights in a way that cannot be taken apart")
    return float(slope[(0,) * slope.ndim])


def as_array(one: Any) -> NDArray[Any]:
    """A tensor's numbers, of half precision as float32."""
    numbers: NDArray[Any] = upcast_half(one.detach()).cpu().numpy()
    return numbers


def record_text(source: HuggingFaceModel, query: Query) -> RecordedText:
    eager, spell = eager_inputs(source, source.encode_whole(query), is_copied=True), None
    with suppress(ModelError):
        check_head(source, query.kind)
        spell = partial(spell_choice, source)
    with quiet():
        return RecordedText(eager, spell)


def record_picture(source: VisionModel, query: Query) -> RecordedText:
    with quiet():
        encoding = source.encode(source.picture(query))
        part = eager_copy(source.tower if source.task is None else source.model)
        return RecordedText(replace(encoding, part=part), partial(class_name, source.model.config))


def record_speech(source: AudioModel, query: Query) -> RecordedText:
    """A recording, read with its padding, and its text if any."""
    from attnviz.features.audio.recordings import frame_tokens
    from attnviz.features.audio.sound_inputs import SIDE

    recording = query.recording
    if recording is None:
        raise UsageError(f"'{source.name}' hears recordings: give the file of one")
    with quiet():
        heard, _ = source.encode_recording(recording, source.cut(recording))
        inputs, tokens = dict(heard.features), {SIDE: heard.tokens}
        if not source.has_patches:
            step = source.step(heard.features, heard.count)
            tokens[SIDE] = frame_tokens(heard.count, recording.start, step)
        notes = list(recording.notes)
        axes = {"self": (SIDE, SIDE)}
        if source.writes:
            target = source.target(query, heard)
            inputs["decoder_input_ids"] = torch.tensor([target.ids], device=source.model.device)
            tokens["text"], notes = target.tokens, [*notes, *target.notes]
            axes = {"cross": ("text", SIDE), "encoder": (SIDE, SIDE), "decoder": ("text",) * 2}
        empty = Attention((), source.provenance).with_maps((), notes=notes)
        # What a transducer decides needs a text, which it reads without attention.
        has_text = source.model.config.is_encoder_decoder and not source.writes
        part = eager_copy(source.listener if has_text else source.model)
        encoding = EncodedQuery(part, inputs, tokens, axes, empty, what=SIDE)
        spell = partial(spell_piece, source) if source.can_generate else None
        return RecordedText(encoding, spell)
