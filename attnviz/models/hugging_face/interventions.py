"""Changes in the output of an attention kernel: heads switched off, keys hidden.

`ablate_heads` switches heads off in the user's own model and loop (Michel, Levy and Neubig 2019;
for means Wang et al. 2022, section 2.2). The output of the kernel is changed before the output
projection, where heads are still apart.
"""

from __future__ import annotations

import inspect
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from attnviz.core import effects
from attnviz.core.errors import AttentionError, UsageError, choose, in_short
from attnviz.models.hugging_face.capture.kernel import Call, layer_names, stream_of, watch_kernels
from attnviz.models.hugging_face.capture.passes import CaptureSpec, attending_layers, read_call
from attnviz.models.hugging_face.capture.probe import is_causal, sink_logits, sink_shares
from attnviz.models.hugging_face.capture.region import PooledGrid, each_token
from attnviz.models.hugging_face.load.family import check_family

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor, nn


def check_heads_apart(call: Call, kind: str) -> None:
    """Refuse a kernel that returns its heads together."""
    batch, heads, queries, _ = call.query.shape
    if call.output.shape != (batch, queries, heads, call.value.shape[-1]):
        raise AttentionError(
            f"the attention kernel of architecture '{kind}' returns its heads together, so that "
            "one cannot be switched off"
        )


def change_output(
    call: Call,
    changes: Sequence[effects.Intervention],
    place: tuple[str, str],
    sides: tuple[str, str],
    instead: effects.HeadOutputs | None,
    start: int = 0,
) -> Any:
    """A call's output (batch, queries, heads, value size) with each item's change made.

    Its first query is that of position `start`.
    """
    import torch

    _, queries, heads, size = call.output.shape
    # Hidden tokens are the same cells for every head: a long text's are stored once.
    apart = any(link.head is not None for change in changes for link in change.links)
    shape = (heads if apart else 1, start + queries, call.key.shape[2])
    output, masks, whole = call.output.clone(), {}, cache(partial(read_weights, call))
    off = [change.outputs_off(*place) for change in changes]
    for number, change in enumerate(changes):
        silent = [head for head, query in off[number] if query is None]
        if any(one.stream == place[0] for one in change.evictions):
            output[number] = _mix_held(call, whole(), number, change, place, sides)
        elif len({*silent}) < heads:
            cells = change.hidden_cells(*place, sides, shape)
            if cells is not None:
                masks[number] = cells[:, start:]
    if any(cells.any() for cells in masks.values()):
        rows, others = masked_output(call, masks) or without_keys(call, masks)
        output[rows] = others[rows]
    # Last: a head that is off puts out nothing of the keys that are left.
    if any(off):
        rows = effects.replacement_outputs(instead, place, (heads, queries, size), start)
        put = torch.as_tensor(rows.swapaxes(0, 1)).to(output)
        for number, own in enumerate(off):
            silent = [head for head, query in own if query is None]
            output[number, :, silent] = put[:, silent]
            for head, query in own:
                if query is not None:
                    output[number, query, head] = put[query, head]
    return output


def read_weights(call: Call) -> tuple[Any, Any]:
    """A call's weights (batch, heads, queries, keys), and its sinks' (batch, heads, queries)."""
    import torch

    grid = PooledGrid(each_token(call.query.shape[2]), each_token(call.key.shape[2]))
    reading = read_call(type(call.module).__name__, call, CaptureSpec(grid, from_kernel=True))
    if reading.faulty_head is not None:  # a row before it had no key left
        nothing = torch.full((*call.query.shape[:3], call.key.shape[2]), torch.nan)
        return nothing.to(call.query.device), nothing[..., 0].to(call.query.device)
    weights = torch.as_tensor(reading.weights, device=call.query.device)
    if sink_logits(call) is not None:
        return weights, sink_shares(call)[..., 0].transpose(1, 2).to(weights)
    remainder = 1 - weights.sum(-1)
    return weights, remainder.where(remainder > effects.SINK, 0)


def _mix_held(
    call: Call,
    whole: tuple[Any, Any],
    number: int,
    change: effects.Intervention,
    place: tuple[str, str],
    sides: tuple[str, str],
) -> Any:
    """An item's output (queries, heads, value size) by the weights of the keys that it holds."""
    import torch

    weights, sinks = (one[number] for one in whole)
    caches = call.value.shape[1]
    layer = effects.LayerWeights(weights.cpu().numpy(), sinks.cpu().numpy(), caches)
    cells = change.hidden_cells(*place, sides, weights.shape, lambda: layer)
    shares = weights.masked_fill(torch.as_tensor(cells, device=weights.device), 0)
    shares = shares / (shares.sum(-1, keepdim=True) + sinks[..., None])
    value = upcast_half(call.value[number]).repeat_interleave(len(weights) // caches, 0)
    return (shares.to(value) @ value).transpose(0, 1)


def masked_output(
    call: Call, masks: Mapping[int, NDArray[np.bool_]]
) -> tuple[Tensor, Tensor] | None:
    """As `without_keys`, by the kernel itself with another mask; None if it may not take one."""
    import torch
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    (batch, heads, queries, _), keys, mask = call.query.shape, call.key.shape[2], call.mask
    follows = mask is None and queries > 1 and is_causal(call)
    is_known = call.kernel is sdpa_attention_forward and sink_logits(call) is None
    if not is_known or (follows and queries != keys) or (mask is not None and mask.ndim != 4):
        return None
    count = max(len(cells) for cells in masks.values())
    cells = np.zeros((batch, count, queries, keys), dtype=np.bool_)
    for number, own in masks.items():
        cells[number] = own
    off = torch.as_tensor(cells, device=call.query.device)
    nothing = torch.finfo(call.query.dtype).min
    new = call.query.new_zeros((1, 1, queries, keys))
    if follows:
        new = new.masked_fill(torch.ones_like(new, dtype=torch.bool).triu(1), -torch.inf)
    elif mask is not None:
        new = new.masked_fill(~mask, -torch.inf) if mask.dtype == torch.bool else mask
    visible = (new > nothing) & ~off  # transformers' masks hide by this number
    new = new.masked_fill(off, -torch.inf)
    output = call.kernel(
        *(call.module, call.query, call.key, call.value, new),
        **{**call.options, "is_causal": False},
    )[0]
    rows, empty = (
        one.expand(-1, heads, -1).transpose(1, 2) for one in (off.any(-1), ~visible.any(-1))
    )
    return rows, output.masked_fill(empty[..., None], torch.nan)


def without_keys(call: Call, masks: Mapping[int, NDArray[np.bool_]]) -> tuple[Any, Any]:
    """The rows (batch, queries, heads) that hide keys, and the kernel's outputs without these.

    `masks` has the hidden cells (heads, queries, keys) of items of the batch. Every key that some
    row of an item hides is left out of all its rows, and put back by its weight where a row does
    not hide it.
    """
    import torch

    value, (batch, queries, heads, _) = call.value, call.output.shape
    keys, size = value.shape[2:]
    masks = {
        number: np.broadcast_to(cells, (heads, queries, keys)) for number, cells in masks.items()
    }
    off = np.zeros((batch, keys), dtype=np.bool_)
    for number, cells in masks.items():
        off[number] = cells.any(axis=(0, 1))
    width = int(off.sum(1).max())
    order = np.argsort(~off, axis=1, kind="stable")[:, :width]
    back = np.zeros((batch, queries, heads, width), dtype=np.bool_)
    rows = np.zeros((batch, queries, heads), dtype=np.bool_)
    for number, cells in masks.items():
        rows[number] = cells.any(-1).T
        puts_back = ~cells[..., order[number]] & off[number, order[number]]
        back[number] = puts_back.swapaxes(0, 1) & rows[number][..., None]
    visible = torch.as_tensor(~off, device=value.device)
    output, rest, loss = call.mix(value * visible[:, None, :, None]), 0, 0
    for first in range(0, width + 1, size):
        some = torch.as_tensor(order[:, first : first + size], device=value.device)
        one_hot = value.new_zeros((batch, keys, size)).scatter_(1, some[:, None], 1)
        is_last = width < first + size
        if is_last:  # the column after the hidden keys is for all others together
            one_hot[..., width - first] = visible.to(value.dtype)
        shares = call.mix(one_hot[:, None].expand(value.shape))
        if is_last:
            rest = rest + shares[..., width - first, None]
        shares = shares[..., : some.shape[1]] * ~visible.gather(1, some)[:, None, None]
        mask = torch.as_tensor(back[..., first : first + size], device=value.device)
        shares_back = shares.masked_fill(~mask, 0)
        rest = rest + shares_back.sum(-1, keepdim=True)
        loss = loss + (shares - shares_back).sum(-1, keepdim=True)
        if mask.any():
            values = torch.stack([own[:, at] for own, at in zip(value, some, strict=True)])
            values = values.repeat_interleave(heads // value.shape[1], 1)
            output = output + (shares_back.to(value.dtype).transpose(1, 2) @ values).transpose(1, 2)
    sink = sink_shares(call)
    share = (rest + sink) / (rest + loss + sink)
    # Below its smallest normal number a type has few digits left: count that as nothing.
    share = share.where(share >= torch.finfo(share.dtype).tiny, torch.nan)
    return torch.as_tensor(rows, device=value.device), (output / share).to(value.dtype)


def upcast_half(numbers: Tensor) -> Tensor:
    """Half-precision numbers as float32."""
    return numbers.float() if numbers.itemsize < 4 else numbers


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

    def look(call: Call) -> Any:
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
    if not {"encoder", "decoder"} <= set(streams):
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

    def of(self, call: Call) -> Tensor | None:
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
