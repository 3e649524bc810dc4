"""Heads switched off in the user's own model and loop.

Michel, Levy and Neubig 2019; for means Wang et al. 2022, section 2.2.
"""

from __future__ import annotations

import inspect
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Literal

from attnviz.core.attention_call import AttentionCall
from attnviz.core.errors import AttentionError, UsageError, choose, in_short
from attnviz.models.hugging_face.capture.kernel import layer_names, stream_of, watch_kernels
from attnviz.models.hugging_face.capture.passes import attending_layers
from attnviz.models.hugging_face.load.family import ENCODER_APART, check_family

if TYPE_CHECKING:
    from torch import Tensor, nn
from attnviz.features.experiments.interventions import check_heads_apart, upcast_half

Head = str | tuple[int, int] | tuple[str, int, int]  # (3, 5), "3.5" or "decoder.3.5", from 0
HEADS = ("num_heads", "num_attention_heads", "n_heads", "n_head", "nh", "decoder_attention_heads")
"""Names of the number of heads in attention modules, or in their configurations."""


@contextmanager
def ablate_heads(
    model: nn.Module, heads: Sequence[Head], *, by: Literal["zero", "mean"] = "zero"
) -> Iterator[None]:
    """Switch heads of a transformers model off for every forward pass in a block of code.

    Gradients flow through the other heads, so the model can be trained. After the block, however it
    ends, the model is as before. With gradient checkpointing the backward pass runs layers again,
    so call it inside the block too.

    Args:
        model: the model, or a module around it.
        heads: (layer, head) of a model of one stack; ("encoder", layer, head), ("decoder", …) and
            ("cross", …) of an encoder–decoder; ("vision", …) of a model's picture tower.
        by: the output of such a head: zeros, or its mean over the positions of the same text in
            the same pass, without padding; in windows of pictures, over the window.

    Raises:
        UsageError: a head that does not exist; a model that is compiled or not of transformers; a
            mean where a cache leaves only the newest token in the pass (use_cache=False has all).
        AttentionError: the kernel of this architecture does not show single heads, or a pass did
            not call it.
    """
    choose(by, ("zero", "mean"), "replacement")
    part = _transformer(model)
    streams = _attentions(part)
    off = _heads_by_module(part, streams, heads)
    unseen = set[Any]()
    texts = _Positions({module: name for name, own in streams.items() for module in own.values()})

    def look(call: AttentionCall) -> Any:
        positions = texts.of(call) if by == "mean" else None
        own = off.get(call.module)
        if own is None:
            return None
        unseen.discard(call.module)
        check_heads_apart(call, part.config.model_type)
        _check_head(max(own), call.query.shape[1])
        output = call.output.clone()
        output[:, :, own] = 0 if positions is None else _mean(output[:, :, own], positions)
        return output

    def end(module: Any, *_: Any) -> None:
        if module in unseen:
            raise AttentionError(
                "a pass did not go through the attention kernels of transformers, so no head was "
                "switched off in it: use attn_implementation 'sdpa' or 'eager' on one device"
            )

    with ExitStack() as stack:
        for module in off:
            stack.enter_context(module.register_forward_pre_hook(lambda one, _: unseen.add(one)))
            stack.enter_context(module.register_forward_hook(end))
        stack.enter_context(watch_kernels(look, all_threads=True))
        yield


def _transformer(model: nn.Module) -> Any:
    """The single transformers model that a module is or contains."""
    from torch.nn import Module
    from transformers import PreTrainedModel

    parts = model.modules() if isinstance(model, Module) else ()
    models = [part for part in parts if isinstance(part, PreTrainedModel)]
    if not models or set(map(id, models)) - set(map(id, models[0].modules())):
        raise UsageError(
            f"ablate_heads() takes one transformers model, and {type(model).__name__} holds "
            f"{'several' if models else 'none'}"
        )
    if any(hasattr(part, "_orig_mod") or part._compiled_call_impl for part in model.modules()):
        raise UsageError(
            "a compiled model does not ask for its attention kernels again: give the model as it "
            "was before torch.compile"
        )
    check_family(models[0].config, 1)
    return models[0]


def _attentions(part: Any) -> dict[str, dict[str, Any]]:
    """The modules that call an attention kernel, by stream and layer; "" is the only stack."""
    streams: dict[str, dict[str, Any]] = defaultdict(dict)
    for path, module in part.named_modules():
        code = getattr(inspect.unwrap(type(module).forward), "__code__", None)
        if code is not None and "get_interface" in code.co_names:
            streams[stream_of(path)][path] = module
    kind = part.config.model_type
    if not streams:
        raise AttentionError(
            f"architecture '{kind}' calls no attention kernel, so its heads cannot be switched off "
            "one by one"
        )
    if not {"encoder", "decoder"} <= set(streams) and kind not in ENCODER_APART:
        stack = [name for name in streams if name in ("self", "encoder", "decoder", "text")]
        streams[""] = {path: one for name in stack for path, one in streams.pop(name).items()}
    attending = attending_layers(part.config)
    layers = getattr(part.config.get_text_config(), "num_hidden_layers", 0)
    if 0 < len(streams.get("", ())) < layers and not attending:
        raise AttentionError(
            f"architecture '{kind}' has {len(streams[''])} attention modules for {layers} layers, "
            "which share them: a head of one layer cannot be switched off"
        )
    return {
        name: dict(zip(layer_names([*own], attending), own.values(), strict=True))
        for name, own in streams.items()
    }


def _heads_by_module(
    part: Any, streams: dict[str, dict[str, Any]], heads: Sequence[Head]
) -> dict[Any, list[int]]:
    """The heads to switch off of each module."""
    off: dict[Any, list[int]] = defaultdict(list)
    if isinstance(heads, str) or not isinstance(heads, Iterable):
        raise UsageError(f"heads= is a list, as [(3, 5)], and {in_short(heads)} is none")
    for one in heads:
        names = one.rsplit(".", 2) if isinstance(one, str) else one
        if not isinstance(names, list | tuple) or not 2 <= len(names) <= 3:
            raise UsageError(f"{in_short(one)} is no head: write (3, 5) or '3.5'")
        *stream, layer, head = map(str, names)
        name = stream[0] if stream else ""
        if "" in streams and name in ("self", "causal", "encoder", "decoder", "text"):
            name = ""
        if name not in streams:
            raise UsageError(
                f"head {one} names no stream of this model: write ({', '.join(streams)}, …)"
            )
        layers = streams[name]
        if layer not in layers or not head.isdecimal():
            raise UsageError(f"there is no head {layer}.{head}: layers {', '.join(layers)}")
        module = layers[layer]
        owners = (module, getattr(module, "config", None), part.config)
        counts = (getattr(owner, size, None) for owner in owners for size in HEADS)
        _check_head(int(head), next((n for n in counts if isinstance(n, int)), int(head) + 1))
        off[module].append(int(head))
    return off


def _check_head(head: int, count: int) -> None:
    if head >= count:
        raise UsageError(f"there is no head {head}: heads 0 to {count - 1}")


class _Positions:
    """The query positions of a pass that are text and no padding."""

    def __init__(self, streams: dict[Any, str]) -> None:
        self.streams = streams
        self.of_target: Tensor | None = None

    def of(self, call: AttentionCall) -> Tensor | None:
        """1 where a query is text, (batch, queries, 1, 1); None: a kernel of another model."""
        import torch

        stream = self.streams.get(call.module)
        if stream is None:
            return None
        batch, _, queries, _ = call.query.shape
        every: Tensor = call.query.new_ones(batch, queries, 1, 1, dtype=torch.float32)
        if stream == "cross":  # its mask knows the padding of keys only
            return every if self.of_target is None else self.of_target
        if queries < call.key.shape[2]:
            raise UsageError(
                f"by='mean' needs all positions in one pass, and here are {queries} of "
                f"{call.key.shape[2]}: give use_cache=False, or by='zero'"
            )
        mask = call.mask
        if mask is not None:
            if not isinstance(mask, torch.Tensor) or mask.ndim != 4:
                raise AttentionError(
                    "by='mean' cannot tell padding from text in this attention implementation's "
                    "masks: use attn_implementation 'sdpa' or 'eager', or by='zero'"
                )
            shows = mask if mask.dtype == torch.bool else mask > torch.finfo(mask.dtype).min
            every = every * shows.any(2).any(1)[:, :queries, None, None]  # keys that anyone sees
        if stream == "decoder":
            self.of_target = every
        return every


def _mean(output: Tensor, positions: Tensor) -> Tensor:
    """The mean over the positions that are text, (batch, 1, heads, value size)."""
    total = (upcast_half(output) * positions).sum(1, keepdim=True)
    return (total / positions.sum(1, keepdim=True).clamp(min=1)).to(output.dtype)
