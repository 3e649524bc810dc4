"""The residual stream of a transformers model after each layer, and what its head makes of it.

No family is named: a layer's input is the stream, and logits come of the model itself, run with its
layers skipped, so that a last norm, a scale or a cap of logits is the model's own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from attnviz.core.errors import AttentionError, ModelError
from attnviz.core.locks import thread_hook
from attnviz.core.query import Query
from attnviz.core.writers import NORMALISES_SUMS, ResidualStream
from attnviz.features.experiments.interventions import upcast_half
from attnviz.features.experiments.layer_states import layers_of, map_tensors, skip_module
from attnviz.features.targets.outputs import check_head, spell_choice
from attnviz.models import Choose
from attnviz.models.hugging_face.capture import capture, passes
from attnviz.models.hugging_face.capture.kernel import match_stream, stream_of, watch_kernels
from attnviz.models.hugging_face.load import devices, imports
from attnviz.models.hugging_face.text_model import HuggingFaceModel

ADDS = 1e-4  # a layer without its maps that changes its input by more of its size has other sums
_UNKNOWN = "architecture '{}' attends in a way that cannot be taken apart"
_NO_HEADS = "architecture '{}' has no attention whose outputs could be added up"
_OTHER = (
    "architecture '{}' does not hand on a state for each token from layer to layer, so no layer's "
    "predictions can be read"
)
DECODER = "decoder_"  # before the names of its inputs


class StreamPass:
    """One pass of a model, with its stream before each layer and after the last.

    Attributes:
        states: the stream at the wanted rows, (…, rows, size) each. With `attention_only` the
            embeddings plus what attention adds up to each layer, then the model's own last state.
    """

    def __init__(
        self,
        part: Any,
        inputs: Mapping[str, Any],
        streams: Collection[str],
        what: str = "text",
        rows: Sequence[int] | None = None,
        tokens: int | None = None,
        *,
        attention_only: bool = False,
    ) -> None:
        """`rows` of so many `tokens` are kept; None: all, as a model needs that predicts a class.

        Raises:
            AttentionError: the layers hand on something else than a state for each token.
        """
        self.part, self.what, self.rows, self.tokens = part, what, rows, tokens
        self.inputs = capture.without_cache(part, inputs)
        self.names = {id(module): name for name, module in part.named_modules()}
        sides = [one for one in streams if one != "cross"]
        self.has_encoder = len(sides) > 1
        config = part.config.get_text_config()
        depth = 0 if self.has_encoder else getattr(config, "num_hidden_layers", None) or 0
        self.layers = [
            one
            for one in layers_of(part)
            if not self.has_encoder
            or match_stream(stream_of(self.names[id(one)]), sides) == "decoder"
        ]
        lists = [self.names[id(one)].rpartition(".")[0] for one in self.layers]
        if depth in {*(count := Counter(lists)).values()}:  # other lists hold no layers
            self.layers = [
                one for one, own in zip(self.layers, lists, strict=True) if count[own] == depth
            ]
        if tokens is not None and 0 < depth < len(self.layers):
            raise AttentionError(_OTHER.format(part.config.model_type))
        # ALBERT has one module for all layers.
        self.count = max(len(self.layers), depth)
        self.states: list[Any] = []
        self._last: Any = None
        self._device: Any = None  # of the last layer
        self._rest: tuple[Any, ...] | None = None  # what a layer gives beside its stream
        self._encoded: Any = None
        self._changes: list[Any] = []  # what each layer's attention adds
        self._found = False  # whether some layer attends
        self._calls: list[str] = []  # the paths of the running layer's attentions
        with devices.running_errors(part, what), torch.no_grad(), ExitStack() as hooks:
            for number, module in enumerate(self.layers):
                begin, end = self._hooks(number, attention_only=attention_only)
                before = module.register_forward_pre_hook(thread_hook(begin), with_kwargs=True)
                hooks.enter_context(before)
                after = module.register_forward_hook(thread_hook(end), with_kwargs=True)
                hooks.enter_context(after)
            if self.has_encoder:
                note = thread_hook(lambda *call: setattr(self, "_encoded", call[-1]))
                hooks.enter_context(part.get_encoder().register_forward_hook(note))
            hooks.enter_context(suppress(passes.StopForward))
            hooks.enter_context(watch_kernels(self._note_call))
            part(**self.inputs)
        if tokens is not None and depth not in (0, len(self.states)):
            raise AttentionError(_OTHER.format(part.config.model_type))
        self.states.append(self._last)
        if attention_only:
            if not self._found:
                raise AttentionError(_NO_HEADS.format(part.config.model_type))
            first, *_, last = self.states
            total = torch.stack(self._changes).cumsum(0)
            self.states = [first, *(first + one for one in total), last]

    def _hooks(self, number: int, *, attention_only: bool) -> tuple[Any, Any]:
        """What runs before a layer and after it."""

        def begin(_: Any, inputs: tuple[Any, ...], kwargs: Any) -> None:
            self._calls.clear()
            self.states.append(self._keep(stream_in(inputs, kwargs)))

        def end(module: Any, inputs: tuple[Any, ...], kwargs: Any, output: Any) -> None:
            if isinstance(output, list) and self.rows is not None:
                raise AttentionError(_OTHER.format(self.part.config.model_type))
            if attention_only:
                self._changes.append(self._attention_adds(module, inputs, kwargs))
            if number == len(self.layers) - 1:
                stream, *rest = output if isinstance(output, tuple) else (output,)
                self._rest = (*rest,) if isinstance(output, tuple) else None
                self._last, self._device = self._keep(stream), stream.device
                if len(self.states) >= self.count:
                    raise passes.StopForward  # logits of every position may not fit

        return begin, end

    def _keep(self, stream: Any) -> Any:
        if self.rows is None:
            return stream
        if not isinstance(stream, torch.Tensor) or stream.shape[-2] != self.tokens:
            raise AttentionError(_OTHER.format(self.part.config.model_type))
        some = stream[..., list(self.rows), :]
        return some.to(self.states[0].device) if self.states else some  # layers may be spread

    def _note_call(self, call: Any) -> None:
        self._calls.append(self.names.get(id(call.module), ""))

    def _attention_adds(self, module: Any, inputs: tuple[Any, ...], kwargs: Any) -> Any:
        """What a layer adds to its input if its maps outside of attention give nothing."""
        stream, own = stream_in(inputs, kwargs), self._attentions(self.names[id(module)])

        def change(silent: Sequence[Any], factor: int = 1) -> Any:
            twice = factor * stream
            with silence(silent):
                if inputs:
                    output = module.forward(twice, *inputs[1:], **kwargs)
                else:
                    output = module.forward(**{**kwargs, "hidden_states": twice})
            return (output[0] if isinstance(output, tuple) else output) - twice

        maps = [one for one in module.modules() if is_map(one)]
        # Twice the stream: a norm would leave what is normal as it is.
        if not self._changes and change(maps, 2).abs().max() > ADDS * stream.abs().max():
            raise AttentionError(
                NORMALISES_SUMS.format(f"architecture '{self.part.config.model_type}'")
            )
        self._found |= bool(own)
        inside = {id(one) for root in own for one in self.part.get_submodule(root).modules()}
        return self._keep(change([one for one in maps if id(one) not in inside]))

    def _attentions(self, layer: str) -> list[str]:
        """The paths of a layer's parts that attend, by its kernel's calls or else by their names.

        From a call up to where something else is inside.
        """
        if not self._calls:  # a family may compute its weights by itself
            modules = self.part.get_submodule(layer).named_modules()
            return [f"{layer}.{name}" for name, one in modules if _attends(name, one)]
        roots = list[str]()
        for path in self._calls:
            while (above := path.rpartition(".")[0]) != layer and above:
                if isinstance(self.part.get_submodule(above), torch.nn.ModuleList):
                    break
                path = above
            if not path.startswith(f"{layer}."):
                raise AttentionError(_UNKNOWN.format(self.part.config.model_type))
            roots.append(path)
        return roots

    def predict(self, state: Any, rows: slice | None = None) -> NDArray[np.float64]:
        """The logits of some rows of a state, (rows, choices); of a class, None and one row."""
        value = (state if rows is None else state[..., rows, :]).to(self._device)
        output = value if self._rest is None else (value, *self._rest)
        inputs = self.inputs
        if rows is not None:
            count = value.shape[-2]
            inputs = {name: self._cut(name, one, count) for name, one in inputs.items()}
        with devices.running_errors(self.part, self.what), torch.no_grad(), ExitStack() as skips:
            for module in self.layers:
                skips.enter_context(skip_module(module, output))
            if self.has_encoder:
                skips.enter_context(skip_module(self.part.get_encoder(), self._encoded))
            logits = self.part(**inputs).logits
        numbers = upcast_half(logits).reshape(-1, logits.shape[-1]).cpu().numpy()
        result: NDArray[np.float64] = numbers.astype(np.float64)
        return result

    def _cut(self, name: str, one: Any, count: int) -> Any:
        """An input for fewer positions; which tokens these are no longer matters."""
        own = name.startswith(DECODER) or not self.has_encoder
        is_row = own and isinstance(one, torch.Tensor) and one.ndim > 1
        return one[:, :count] if is_row else one


def stream_in(inputs: tuple[Any, ...], kwargs: Any) -> Any:
    """The stream among the inputs of a layer."""
    return inputs[0] if inputs else kwargs["hidden_states"]


def _attends(name: str, module: Any) -> bool:
    """Whether a module of a layer is called an attention, and is no norm before or after one."""
    last = name.rpartition(".")[2].lower()
    return ("attn" in last or "attention" in last) and any(map(is_map, module.modules()))


def is_map(module: Any) -> bool:
    """Whether a module multiplies by a matrix of its own; a norm's scale is none."""
    return any(one.ndim > 1 for one in module.parameters(recurse=False))


@contextmanager
def silence(modules: Sequence[Any]) -> Iterator[None]:
    """Let modules give zeros, in a block of code."""

    def nothing(*call: Any) -> Any:
        return map_tensors(call[-1], torch.zeros_like)

    with ExitStack() as hooks:
        for module in modules:
            hooks.enter_context(module.register_forward_hook(thread_hook(nothing)))
        yield


def read_stream(
    source: HuggingFaceModel, query: Query, choose: Choose, *, attention_only: bool
) -> ResidualStream | None:
    """The stream of a query at some of the positions that predict; None: it predicts no tokens."""
    try:
        check_head(source, query.kind)
    except ModelError:
        return None
    if source.task is not None or source.model.get_output_embeddings() is None:
        return None
    with imports.quiet():
        encoding, spell = source.encode(query), partial(spell_choice, source)
        axes, part = encoding.axes, encoding.part
        tokens = encoding.tokens[axes.get("decoder", next(iter(axes.values())))[0]]
        rows = tuple(choose(tokens))
        inputs = source.tensors(encoding.inputs, part)
        run = StreamPass(
            *(part, inputs, axes), rows=rows, tokens=len(tokens), attention_only=attention_only
        )
        about = encoding.attention.provenance
        return ResidualStream(tokens, rows, run.states, run.predict, spell, about)
