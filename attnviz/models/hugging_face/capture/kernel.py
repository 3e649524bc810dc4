"""Watch the attention kernels that transformers calls, and change their outputs.

Models ask `AttentionInterface.get_interface` for their kernel by the name of their implementation.
Only the function is wrapped, while a block of code runs; the name stays, because the code for masks
and several models test it.

A call's stream and layer are read from its module's dotted path, because the module's own number
(`layer_idx`) is missing or wrong in a quarter of the families.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from threading import get_ident
from typing import Any
from weakref import WeakKeyDictionary

from attnviz.core import errors, locks
from attnviz.core.attention_call import AttentionCall
from attnviz.models.fingerprints import ModelFingerprint, hooks_of


def group_size(call: AttentionCall) -> int:
    """How many query heads share each head of keys and values of a call."""
    return int(call.query.shape[1] // call.key.shape[1])


# Functions that watch kernel calls, each with its thread (None: all threads), and whether it is
# called instead of the kernel.
_WATCHERS: list[tuple[int | None, Callable[[AttentionCall], Any], bool]] = []


@contextmanager
def watch_kernels(
    look: Callable[[AttentionCall], Any], *, all_threads: bool = False, instead: bool = False
) -> Iterator[None]:
    """Call `look` after every kernel call of a block of code, in this thread or in all.

    What `look` returns, unless None, replaces the kernel's output; a second watcher sees the
    output of the first. With `instead` the kernel does not run, and `look` returns an output.
    transformers is restored even if blocks fail or end in another order.
    """
    watcher = None if all_threads else get_ident(), look, instead
    with _INTERFACE:
        _WATCHERS.append(watcher)
        try:
            yield
        finally:
            _WATCHERS.remove(watcher)


@contextmanager
def _watched_interface() -> Iterator[None]:
    from transformers.modeling_utils import AttentionInterface

    interface: Any = AttentionInterface
    original = interface.get_interface

    def get_interface(self: Any, *names: Any, **kwargs: Any) -> Callable[..., Any]:
        kernel: Callable[..., Any] = original(self, *names, **kwargs)
        own = [watcher for watcher in (*_WATCHERS,) if watcher[0] in (None, get_ident())]
        looks = [look for _, look, _ in own]
        runs = not any(instead for *_, instead in own)

        def call_and_look(
            module: Any, query: Any, key: Any, value: Any, attention_mask: Any = None, **more: Any
        ) -> Any:
            arguments = module, query, key, value, attention_mask
            output, *rest = kernel(*arguments, **more) if runs else (None, None)
            for look in looks:
                call = AttentionCall(*arguments[1:], output, rest[0], None, kernel, module, more)
                replacement = look(call)
                output = output if replacement is None else replacement
            return output, *rest

        return call_and_look if looks else kernel

    interface.get_interface = get_interface
    try:
        yield
    finally:
        interface.get_interface = original


_INTERFACE = locks.SharedSetting(_watched_interface)


@contextmanager
def eager_attention(model: Any) -> Iterator[None]:
    """Run a model eagerly in a block, if it can switch: cheaper than probing short texts."""
    if not can_be_eager(model):
        yield
        return
    model.set_attn_implementation("eager")
    try:
        yield
    finally:
        model.set_attn_implementation("sdpa")


def can_be_eager(model: Any) -> bool:
    """Whether a model now runs with sdpa and can switch to eager attention."""
    from transformers import PreTrainedModel

    parts = [part for part in model.modules() if isinstance(part, PreTrainedModel)]
    return {part.config._attn_implementation for part in parts} == {"sdpa"} and all(
        part._can_set_attn_implementation() for part in parts
    )


CROSS = re.compile(r"cross|encoder_attn|EncDec|enc_dec|encdec")
SIDE = re.compile(r"^(?:\w+\.){0,2}?(encoder|decoder)\.")  # the outermost: a decoder may be a BERT
ENCLOSED = re.compile(r"^(?:\w+\.)?(encoder|decoder)\.text_model\.")
"""A tower for texts inside a side (T5Gemma 2, whose encoder has one for pictures too)."""
TOWERS = {
    "vision": re.compile(r"(^|\.)(vision|visual|image|vpm|img|vqmodel)"),
    "audio": re.compile(r"(^|\.)(audio|speech|sound)"),
    "text": re.compile(r"(^|\.)text"),
    "queries": re.compile(r"(^|\.)(qformer|perceiver|resampler|multi_modal_projector)"),
}
"""Names of the parts of a model with several kinds of input; each part is a stream."""


def stream_of(path: str) -> str:
    """The stream of an attention module by its path: "cross", a tower, a side or "self"."""
    if any(CROSS.search(part) for part in path.split(".")[-3:]):
        return "cross"
    if side := ENCLOSED.match(path):
        return side[1]
    for name, pattern in TOWERS.items():
        if pattern.search(path):
            return name
    side = SIDE.match(path)
    return side[1] if side else "self"


def layer_names(paths: Sequence[str], attending: Sequence[int] = ()) -> list[str]:
    """The layer number of each call of one stream, in the order of calls.

    It is the first number of the path in which all calls differ, so a hybrid keeps its true layer
    numbers. If there is none (ALBERT calls one module for all layers, Swin has stages of blocks),
    calls are counted.
    """
    numbers = [re.findall(r"(?<=\.)\d+(?=\.)", f".{path}.") for path in paths]
    for column in zip(*numbers, strict=False):
        if len(set(column)) == len(column):
            return list(column)
    return list(map(str, attending if len(attending) == len(paths) else range(len(paths))))


def match_stream(stream: str, streams: Collection[str]) -> str | None:
    """The wanted stream of a module's stream, or None; a model with one stack has one stream."""
    if stream in streams:
        return stream
    alone = [name for name in streams if name != "cross"]
    others = {"self", "encoder", "text"}
    if "encoder" not in streams:
        others.add("decoder")
    return alone[0] if len(alone) == 1 and stream in others else None


_EAGER_COPIES: WeakKeyDictionary[Any, tuple[ModelFingerprint, Any]] = WeakKeyDictionary()


def eager_copy(model: Any) -> Any:
    """The model itself if it runs eagerly, else an eager copy that shares its weights."""
    if model.config._attn_implementation == "eager":
        return model
    state = ModelFingerprint(model)
    if model not in _EAGER_COPIES or _EAGER_COPIES[model][0] != state:
        _EAGER_COPIES.pop(model, None)
        copy = copy_modules(model) if can_be_eager(model) else _rebuild_eager(model)
        _EAGER_COPIES[model] = state, copy.eval()
    return _EAGER_COPIES[model][1]


def copy_modules(model: Any) -> Any:
    """A copy of a model's modules that shares its weights and runs eager attention."""
    from torch import Tensor
    from torch.nn import Parameter
    from transformers import PreTrainedModel

    memo = dict[int, Any]()
    for one in (*model.parameters(), *model.buffers()):
        plain = one.detach()
        numbers = isinstance(one, Parameter)
        floating = plain.is_floating_point()
        memo[id(one)] = Parameter(plain, requires_grad=floating) if numbers else plain
    for part in model.modules():
        hooks = [hook for kind in hooks_of(part) for hook in kind.values()]
        memo |= {id(one): one for one in (*hooks, getattr(part, "_hf_hook", None))}
        # A tensor that a pass has left, such as a recurrent state, may be part of a graph.
        memo |= {id(t): t.detach() for t in vars(part).values() if isinstance(t, Tensor)}
    copy = deepcopy(model, memo)
    for part in copy.modules():
        for kind in hooks_of(part):  # hooks that watch a pass of the model must not run twice
            for number in [n for n, hook in kind.items() if hasattr(hook, "passing")]:
                del kind[number]
        if isinstance(part, PreTrainedModel):
            part.set_attn_implementation("eager")
        elif getattr(getattr(part, "config", None), "_attn_implementation", "eager") != "eager":
            part.config._attn_implementation = "eager"  # a layer with a configuration of its own
    return copy


def _rebuild_eager(model: Any) -> Any:
    """A new model around the same numbers, with the layers that were put into the old one.

    Some families choose their attention's class in the constructor, so switching has no effect.
    """
    from transformers.initialization import no_init_weights

    with no_init_weights():
        copy = type(model)._from_config(
            deepcopy(model.config), attn_implementation="eager", dtype=model.dtype
        )
    mine, its = (dict(one.named_modules()) for one in (model, copy))
    put_in = dict[str, Any]()  # such as peft's

    def is_own(name: str) -> bool:
        return not any(f"{name}.".startswith(f"{outer}.") for outer in put_in)

    for name, part in mine.items():
        if is_own(name) and _kind_of(part) != _kind_of(its.get(name)):
            put_in[name] = part
    plain = {name: one for name, one in model.state_dict().items() if is_own(name)}
    lacking = copy.load_state_dict(plain, strict=False, assign=True).missing_keys
    inside = [_kind_of(one) for part in put_in.values() for one in part.modules()]
    if "Attention" in inside or any(map(is_own, [*lacking, *(its.keys() - mine.keys())])):
        raise errors.AttentionError(
            f"architecture '{model.config.model_type}' chooses its attention when it is made, and "
            "layers of this model were added or removed since: load it with "
            "attn_implementation='eager'"
        )
    for name, part in put_in.items():
        copy.set_submodule(name, part)
    for name, one in model.named_buffers():  # including those that are not in the state dict
        owner, _, last = name.rpartition(".")
        copy.get_submodule(owner)._buffers[last] = one
    return copy.to(model.device)


def _kind_of(part: Any) -> Any:
    return "Attention" if "Attention" in type(part).__name__ else type(part)


def output_attentions(
    model: Any, inputs: Mapping[str, Any], streams: Sequence[str]
) -> tuple[Any, dict[str, Sequence[Any] | None]]:
    """A model's output, and each stream's attention: a tensor or None for each layer."""
    output = model(**inputs, output_attentions=True, return_dict=True)
    together = getattr(output, "attentions", None)
    return output, {
        stream: getattr(output, f"{stream}_attentions", None) if together is None else together
        for stream in streams
    }
