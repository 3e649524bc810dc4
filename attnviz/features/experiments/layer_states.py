"""What a model's layers put out, kept so that later runs need not run them again."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from attnviz.core.effects import HeadOutputs, Intervention
from attnviz.core.records import dataclass
from attnviz.models.hugging_face.loaded_model import input_names

if TYPE_CHECKING:
    from torch import Tensor

    from attnviz.core.attention_map import Attention

BYTES = 1 << 26  # of the states that are kept


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """A layer of the model, its kernel calls by number, and its output in the unchanged model."""

    module: Any
    calls: range
    output: Any


class LayerStates:
    """What each layer put out in runs with changes, found again by the changes up to there.

    Runs whose changes are the same up to some layer have the same state there. A layer whose heads
    are all off has no weights, so that hidden keys change nothing in it.
    """

    def __init__(
        self, blocks: Sequence[Block], places: Sequence[tuple[str, str] | None], maps: Attention
    ) -> None:
        self.blocks, self._places = blocks, places
        self._maps = {item.stream: item for item in maps.maps}
        self._states: dict[int, Any] = {}
        self._numbers: dict[Hashable, int] = {}
        self._replacements: list[HeadOutputs | None] = [None]
        self._bytes = 0

    def keys(self, change: Intervention, instead: HeadOutputs | None) -> list[int | None]:
        """For each layer a number of what a change does up to its end; None: nothing."""
        if all(instead is not one for one in self._replacements):
            self._replacements.append(instead)  # kept, so that another one is never taken for it
        number = next(n for n, one in enumerate(self._replacements) if one is instead)
        key, first, keys = None, 0, list[int | None]()
        for block in self.blocks:
            for call in range(first, block.calls.stop):
                place = self._places[call]
                part = None if place is None else self._part(change, *place, number)
                if key is not None or part is not None:
                    key = self._numbers.setdefault((key, call, part), len(self._numbers))
            first = block.calls.stop
            keys.append(key)
        return keys

    def _part(self, change: Intervention, stream: str, layer: str, instead: int) -> Hashable:
        """What a change does in a kernel call; None: nothing."""
        if any(one.stream == stream for one in change.evictions):
            return object()  # it follows the weights: like nothing else
        item, off = self._maps[stream], frozenset(change.outputs_off(stream, layer))
        heads = {head for head, query in off if query is None}
        if len(heads) == item.weights.shape[1]:
            return instead
        links = frozenset(
            (one.query, one.key, one.head)
            for one in change.links
            if one.stream == stream and one.layer in (None, layer) and one.head not in heads
        )
        tokens = frozenset(one.position for one in change.tokens if one.side == item.key_side)
        return (instead if off else 0, off, links, tokens) if off or links or tokens else None

    def depth(self, keys: Sequence[int | None]) -> int:
        """How many layers from the first on are known."""
        open_keys = (n for n, key in enumerate(keys) if key is not None and key not in self._states)
        return next(open_keys, len(keys))

    def first_layers(
        self, keys: Sequence[Sequence[int | None]], depth: int
    ) -> list[tuple[Block, Any]]:
        """The first layers, each with its output for a batch of runs."""

        def state(block: Block, key: int | None) -> Any:
            return block.output if key is None else self._states[key]

        return [
            (block, join_batch([state(block, own[number]) for own in keys]))
            for number, block in enumerate(self.blocks[:depth])
        ]

    def keep(self, number: int, keys: Sequence[Sequence[int | None]], output: Any) -> None:
        """Keep what a layer has put out for a batch of runs; the oldest states leave."""
        for item, own in enumerate(keys):
            key = own[number]
            if key is None or key in self._states:
                continue
            state = _item(output, item, len(keys))
            self._states[key] = state
            self._bytes += _bytes_of(state)
            while self._bytes > BYTES:
                self._bytes -= _bytes_of(self._states.pop(next(iter(self._states))))


def _item(value: Any, number: int, count: int) -> Any:
    """A copy of one item of a batch of `count`; what all items share is copied whole."""

    def own(one: Tensor) -> Tensor:
        some = one[number : number + 1] if one.ndim and len(one) == count else one
        return some.detach().clone()

    return map_tensors(value, own)


def _bytes_of(value: Any) -> int:
    return sum(one.nbytes for one in tensors_in(value))


def tensors_in(value: Any) -> list[Tensor]:
    """The tensors in a value, at any depth."""
    tensors: list[Tensor] = []

    def note(one: Tensor) -> Tensor:
        tensors.append(one)
        return one

    map_tensors(value, note)
    return tensors


def join_batch(values: Sequence[Any]) -> Any:
    """One value whose tensors are the batch of those in several values of the same make."""
    import torch

    tensors = zip(*map(tensors_in, values), strict=True)
    batches = (torch.cat(own) if own[0].ndim else own[0] for own in tensors)
    return map_tensors(values[0], lambda _: next(batches))


def cache_of(model: Any, memory: Iterable[tuple[Any, Any, Any]], stop: int, count: int) -> Any:
    """The argument by which a model goes on behind a text's start: its keys and values so far.

    `memory` has the number, keys and values of each layer; a batch of `count` begins alike.
    """
    from transformers import DynamicCache

    cache = DynamicCache()
    for number, *pair in memory:
        keys, values = (one[:, :, :stop].expand(count, -1, -1, -1) for one in pair)
        cache.update(keys, values, number or 0)
    # transformers renamed the argument in 5.24, own code may not have.
    name = "cache" if "cache" in input_names(model) else "past_key_values"
    return {name: cache, "use_cache": True}


def unchanged_layers(
    blocks: Sequence[Block], first: int, count: int, row: int = 0
) -> list[tuple[Block, Any]]:
    """The layers before a kernel call, each with its own output for a batch, from a row on."""

    def later(one: Tensor) -> Tensor:
        return one[:, row:] if row else one

    before = [block for block in blocks if block.calls.stop <= first]
    return [(block, repeat_batch(map_tensors(block.output, later), count)) for block in before]


@contextmanager
def skip_module(module: Any, value: Any) -> Iterator[None]:
    """Let a module return a given value without computing it, in a block of code."""
    own = vars(module).get("forward")
    module.forward = lambda *_, **__: value
    try:
        yield
    finally:
        if own is None:
            del module.forward
        else:
            module.forward = own


def repeat_batch(value: Any, count: int) -> Any:
    """A value whose tensors are repeated from a batch of one to a batch of `count`."""
    return map_tensors(
        value,
        lambda one: (
            one.expand(count, *one.shape[1:]).contiguous()
            if one.ndim and one.shape[0] == 1 < count
            else one
        ),
    )


def map_tensors(value: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """A value with each tensor in it changed, at any depth."""
    import torch

    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, dict):
        return type(value)({name: map_tensors(item, change) for name, item in value.items()})
    if isinstance(value, tuple | list):
        items = [map_tensors(item, change) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    return value


def layers_of(model: Any) -> Iterable[Any]:
    """The modules in outermost module lists, such as a model's layers."""
    from torch import nn

    inside: list[str] = []
    for name, module in model.named_modules():
        if isinstance(module, nn.ModuleList) and not any(name.startswith(one) for one in inside):
            inside.append(f"{name}.")
            yield from module
