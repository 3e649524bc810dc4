"""A causal model reads a reasoning: how sentences look at each other, and what hiding one changes.

Rows before a sentence do not change when its keys are hidden, so a pass begins behind it, with the
keys and values of what is before from the first pass. Every pass is in blocks of rows, and none has
a matrix of tokens × tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from attnviz.core.attention_call import AttentionCall
from attnviz.core.attention_map import Token
from attnviz.core.errors import AttentionError, InputError
from attnviz.features.experiments.interventions import upcast_half
from attnviz.features.experiments.layer_states import cache_of, skip_module
from attnviz.features.trace.anchors import TINY, Numbers, vertical_scores
from attnviz.models.hugging_face.capture import passes, probe
from attnviz.models.hugging_face.capture.kernel import layer_names, watch_kernels
from attnviz.models.hugging_face.inputs import generation, tokenization
from attnviz.models.hugging_face.load.devices import running_errors
from attnviz.models.hugging_face.load.imports import quiet
from attnviz.models.hugging_face.loaded_model import input_names
from attnviz.models.hugging_face.text_model import HuggingFaceModel

if TYPE_CHECKING:
    from torch import Tensor

ROWS, LOGITS = 512, 1 << 25  # rows of a pass, and logits at once
EXACT = {"cpu": 1 << 16}  # logits in float64 at once: what a processor's cache holds
STORED = 1 << 26  # logits of the plain pass that are kept, not computed again
WIDTH = 128  # sentences whose weights are folded at once, where heads are smaller
TOGETHER = 1 << 16  # tokens in a cache of continuations
TOP_P = 0.95  # the mass of the likeliest tokens that a continuation is drawn from
CLOSE = 1e-3  # how far logits from cached keys may lie off, of the largest; half precision 5e-2

Span = tuple[int, int]


class SentencePasses:
    """A text and its sentences in a model.

    Attributes:
        spans: the tokens of each sentence, first and one past the last.
        vertical: the vertical scores of each head, (layers, heads, sentences).
        tokens_run: how many tokens have passed through the model, all passes together.
    """

    def __init__(
        self,
        source: HuggingFaceModel,
        read: tokenization.TokenizedText,
        sentences: Sequence[Token],
        *,
        control_depth: bool = False,
    ) -> None:
        import torch

        self.source, self.model = source, source.model
        self.base = source.model.base_model
        self.ids = torch.tensor([read.ids], device=self.model.device)
        self.count = len(read.ids)
        self.spans = spans_of(read.tokens, sentences)
        self.control_depth = control_depth
        self.paths = {id(module): name for name, module in self.model.named_modules()}
        self.memory: list[tuple[int | None, Tensor, Tensor]] = []
        self.tokens_run = 0
        self.layers, self.vertical = self._read_plain()

    def _read_plain(self) -> tuple[list[str], Numbers]:
        """One pass that keeps keys, values and the last states, and folds weights over sentences.

        A kernel is linear in its values: with the sentence of each key as values it puts out how
        much each row looks at each sentence, whatever masks, windows or sinks it has.
        """
        import torch

        names, scores = list[str](), list[Numbers]()
        owner = np.full(self.count, -1)
        for number, (first, stop) in enumerate(self.spans):
            owner[first:stop] = number
        owners = torch.as_tensor(owner, device=self.model.device)

        def look(call: AttentionCall) -> None:
            if id(call.module) not in self.paths:
                return
            if call.query.shape[2] != call.key.shape[2]:
                raise AttentionError(self._refusal("does not read a text in one causal pass"))
            self.memory.append((getattr(call.module, "layer_idx", None), call.key, call.value))
            names.append(self.paths[id(call.module)])
            means = self._means(call, owners)
            scores.append(vertical_scores(means, control_depth=self.control_depth))

        with self._run(), watch_kernels(look):
            outputs = list[Any]()
            hook = self.base.register_forward_hook(lambda _, __, output: outputs.append(output))
            try:
                self._call(self.ids, slice(0, self.count), **self._few_logits(1))
            finally:
                hook.remove()
            self.states = outputs[0]
        if not names:
            raise AttentionError(
                self._refusal("calls no attention kernel, so that no sentence can be hidden in it")
            )
        if len({one.shape for one in scores}) > 1:
            raise AttentionError(self._refusal("has layers with different numbers of heads"))
        return layer_names(names, passes.attending_layers(self.model.config)), np.array(scores)

    def _means(self, call: AttentionCall, owners: Tensor) -> Numbers:
        """The mean weight from each sentence's tokens to each other's, (heads, later, earlier)."""
        import torch

        sentences = len(self.spans)
        call, size = pad_heads(call, sentences)
        lengths = np.array([stop - first for first, stop in self.spans], dtype=np.float64)
        heads = call.query.shape[1]
        sums = np.zeros((heads, sentences, sentences))
        for first in range(0, sentences, size):
            columns = torch.arange(first, first + size, device=owners.device)
            indicator = (owners[:, None] == columns).to(call.value.dtype)
            masses = call.mix(indicator.expand(*call.value.shape[:3], size))[0]
            if masses.shape[:2] != (self.count, heads):
                raise AttentionError(self._refusal("returns its heads together"))
            own = [masses[a:b].sum(0, dtype=torch.float64) for a, b in self.spans]
            width = min(size, sentences - first)
            rows = torch.stack(own, 1)[..., :width]
            sums[:, :, first : first + width] = rows.cpu().numpy()
        return sums / lengths[:, None] / lengths

    @cached_property
    def remembers(self) -> bool:
        """Whether the model continues a text from its keys and values as if it had read it."""
        numbers = [number for number, *_ in self.memory]
        if numbers != [*range(len(numbers))] or self.count < 3:
            return False
        row = self.count // 2
        last = slice(self.count - 1, self.count)
        ran = self.tokens_run
        try:
            with self._run():
                *_, (_, logits) = self._later_logits(row)
                plain = self._plain_logits(last)
        except (AttentionError, RuntimeError, ValueError, TypeError):
            return False
        finally:
            self.tokens_run = ran + self.count - row
        most = 5e-2 if plain.itemsize < 4 else CLOSE
        return bool((logits[-1:] - plain).abs().max() <= most * plain.abs().max())

    def effects(self, number: int, temperature: float = 1.0) -> Numbers:
        """KL(plain ‖ without a sentence) of what each token predicts, nats; 0 before it ends.

        The sentence's keys are hidden from all later rows in every layer and head.
        """
        first, stop = self.spans[number]
        losses = np.zeros(self.count)
        if stop == self.count:
            return losses
        start = stop if self.remembers else 0

        def edit(call: AttentionCall) -> Any:
            if id(call.module) not in self.paths:
                return call.mix(call.value)
            return output_without(call, (first, stop))

        with self._run(), watch_kernels(edit, instead=True):
            for rows, logits in self._later_logits(start):
                plain = self._plain_logits(rows)
                losses[rows] = divergences(plain, logits, temperature)
        losses[:stop] = 0
        return losses

    def _later_logits(self, start: int) -> Iterator[tuple[slice, Tensor]]:
        """The logits of the rows from `start` on, in blocks, after the stored ones before it."""
        if not start:
            yield slice(0, self.count), self._call(self.ids, slice(0, self.count)).logits[0]
            return
        vocabulary = self.source.vocabulary
        step, cache = (
            max(16, min(ROWS, LOGITS // vocabulary)),
            cache_of(self.model, self.memory, start, 1),
        )
        for first in range(start, self.count, step):
            rows = slice(first, min(first + step, self.count))
            yield rows, self._call(self.ids[:, rows], rows, **cache).logits[0]

    def _plain_logits(self, rows: slice) -> Tensor:
        """The logits of the unchanged text: the model's own head over what its layers put out."""
        if self._all_logits is not None:
            return self._all_logits[rows]
        return self._head(self.states.last_hidden_state[:, rows])

    @cached_property
    def _all_logits(self) -> Tensor | None:
        if self.count * self.source.vocabulary > STORED:
            return None
        return self._head(self.states.last_hidden_state)

    def _head(self, states: Tensor) -> Tensor:
        # transformers scales, caps or shifts logits behind the head: so its own code runs.
        ids = self.ids[:, : states.shape[1]]
        with watch_kernels(lambda _: None), skip_module(self.base, type(self.states)(states)):
            logits: Tensor = self.model(input_ids=ids, use_cache=False).logits[0]
        return logits

    def continuations(
        self, stop: int, count: int, most: int, temperature: float, seed: int
    ) -> list[str]:
        """Texts that the model writes behind the first `stop` tokens, drawn from the likeliest."""
        texts = list[str]()
        before = self.ids[0, :stop].tolist()
        step = max(1, TOGETHER // (stop + most))
        for first in range(0, count, step):
            some = min(step, count - first)
            rows = self._draw(stop, some, most, temperature, seed + first)
            texts += [generation.new_text(self.source.tokenizer, before, row) for row in rows]
        return texts

    def _draw(
        self, stop: int, count: int, most: int, temperature: float, seed: int
    ) -> list[list[int]]:
        import torch

        generator = torch.Generator().manual_seed(seed)
        ends, rows = generation.ends_of(self.source), [list[int]() for _ in range(count)]
        open_rows, remembers = set(range(count)), self.remembers and stop > 1
        read = self.ids[:, :stop].expand(count, -1)
        with self._run():
            cache = cache_of(self.model, self.memory, stop - 1, count) if remembers else {}
            for place in range(stop, stop + most):
                ids = read[:, place - 1 :] if remembers else read
                span = slice(place - ids.shape[1], place)
                logits = self._call(ids, span, **cache, **self._few_logits(1)).logits[:, -1]
                tokens = sample(logits, temperature, generator)
                for row in [*open_rows]:
                    number = int(tokens[row])
                    if number in ends:
                        open_rows.discard(row)
                    else:
                        rows[row].append(number)
                if not open_rows:
                    break
                read = torch.cat([read, tokens.to(read)[:, None]], 1)
        return rows

    def meaning(self, text: str) -> Numbers:
        """The mean over a text's tokens of what the last layer puts out."""
        return embed(self.source, text)

    def _call(self, ids: Tensor, rows: slice, **more: Any) -> Any:
        import torch

        if "position_ids" in input_names(self.model):
            places = torch.arange(rows.start, rows.stop, device=ids.device)
            more["position_ids"] = places[None].expand(len(ids), -1)
        self.tokens_run += ids.numel()
        return self.model(input_ids=ids, **{"use_cache": False, **more})

    def _few_logits(self, count: int) -> dict[str, int]:
        return {"logits_to_keep": count} if "logits_to_keep" in input_names(self.model) else {}

    @contextmanager
    def _run(self) -> Iterator[None]:
        import torch

        with quiet(), running_errors(self.model), torch.inference_mode():
            yield

    def _refusal(self, why: str) -> str:
        return f"architecture '{self.model.config.model_type}' {why}"


def spans_of(tokens: Sequence[Token], sentences: Sequence[Token]) -> list[Span]:
    """The tokens of each sentence: those that begin in it, or in the space behind it.

    Raises:
        InputError: a sentence has no token.
    """
    starts = [one.start for one in sentences]
    end = sentences[-1].end
    owner = np.full(len(tokens), -1)
    for place, token in enumerate(tokens):
        if token.end > token.start and starts[0] <= token.start < end:
            owner[place] = int(np.searchsorted(starts, token.start, "right")) - 1
    spans = list[Span]()
    for number, one in enumerate(sentences):
        own = np.flatnonzero(owner == number)
        if not len(own):
            raise InputError(f"the tokenizer gives no token to the sentence '{one.text}'")
        spans.append((int(own[0]), int(own[-1]) + 1))
    return spans


def pad_heads(call: AttentionCall, columns: int) -> tuple[AttentionCall, int]:
    """A call of the same weights that mixes wider values, and how wide they may be.

    Zeros behind queries and keys change no score, as long as its scale does not depend on their
    size, and a kernel of heads as small as 8 is about as slow as one of 128.
    """
    from torch.nn.functional import pad

    size = int(call.value.shape[-1])
    wide = -(-columns // -(-columns // WIDTH))  # as wide as each of the fewest rounds needs
    wide = -(-wide // 8) * 8
    if wide <= size or call.query.shape[-1] != size or not call.options.get("scaling"):
        return call, size
    query, key = (pad(one, (0, wide - size)) for one in (call.query, call.key))
    return replace(call, query=query, key=key), wide


def output_without(call: AttentionCall, keys: Span) -> Any:
    """The output (batch, rows, heads, value size) of a call whose rows behind some keys miss these.

    For them the kernel runs with the other keys alone, in blocks: hidden keys weigh nothing.
    """
    import torch

    rows, length = call.query.shape[2], call.key.shape[2]
    offset, mask = length - rows, call.mask
    if not (mask is None or (isinstance(mask, torch.Tensor) and mask.ndim == 4)):
        raise AttentionError(
            "a sentence cannot be hidden from this attention implementation: load the model with "
            "attn_implementation 'sdpa' or 'eager'"
        )
    others = [slice(0, keys[0]), slice(keys[1], length)]

    def without(one: Tensor, axis: int) -> Tensor:
        return torch.cat([one[(slice(None),) * axis + (part,)] for part in others], axis)

    key, value = without(call.key, 2), without(call.value, 2)
    start = max(keys[1] - offset, 0)
    parts = [call.mix(call.value)[:, :start]] if start else []
    places = torch.arange(length, device=key.device)
    follows = mask is None and probe.is_causal(call)
    for first in range(start, rows, ROWS):
        some = slice(first, min(first + ROWS, rows))
        own = mask
        if mask is not None:
            own = without(mask[:, :, some if mask.shape[2] > 1 else slice(None), :length], 3)
        elif follows and rows > 1:
            visible = (
                places <= offset + torch.arange(some.start, some.stop, device=key.device)[:, None]
            )
            own = torch.zeros(visible.shape, dtype=key.dtype, device=key.device)
            own = without(own.masked_fill(~visible, -torch.inf)[None, None], 3)
        options = {**call.options, "is_causal": False}
        query = call.query[:, :, some]
        parts.append(call.kernel(call.module, query, key, value, own, **options)[0])
    return torch.cat(parts, 1)


def divergences(plain: Tensor, others: Tensor, temperature: float) -> Numbers:
    """KL(plain ‖ others) of each row of logits, nats."""
    import torch

    step = max(1, EXACT.get(plain.device.type, 1 << 22) // plain.shape[-1])
    parts = list[Any]()
    for first in range(0, len(plain), step):
        one, other = (
            (logits[first : first + step].double() / temperature).log_softmax(-1)
            for logits in (plain, others)
        )
        parts.append((one.exp() * (one - other)).nan_to_num(0).sum(-1).clamp(min=0))
    return np.asarray(torch.cat(parts).cpu().numpy())


def log_kl(losses: Numbers, spans: Sequence[Span], number: int) -> Numbers:
    """The mean logarithm of a divergence over each later sentence's tokens; NaN before."""
    row = np.full(len(spans), np.nan)
    for later, (first, stop) in enumerate(spans):
        if later > number:
            row[later] = np.log(losses[first:stop] + TINY).mean()
    return row


def sample(logits: Tensor, temperature: float, generator: Any) -> Tensor:
    """A token for each row, from the likeliest that have a share of .95 together."""
    import torch

    chances, order = (logits.double().cpu() / temperature).softmax(-1).sort(-1, descending=True)
    before = chances.cumsum(-1) - chances
    chances = chances.masked_fill(before >= TOP_P, 0)
    places = torch.multinomial(chances, 1, generator=generator)
    return order.gather(-1, places)[:, 0]


def embed(source: HuggingFaceModel, text: str) -> Numbers:
    """The mean over a text's tokens of what the last layer of a model puts out."""
    import torch

    from attnviz.models.hugging_face.inputs.tokenization import tokenize

    read = tokenize(source.tokenizer, text)
    inputs = source.tensors(
        {name: row[: source.limit] for name, row in read.inputs.items()}, source.model.base_model
    )
    with quiet(), running_errors(source.model), torch.inference_mode():
        states = source.model.base_model(**inputs).last_hidden_state[0]
    return np.asarray(upcast_half(states).double().mean(0).cpu().numpy())


Meaning = Callable[[str], Numbers]
