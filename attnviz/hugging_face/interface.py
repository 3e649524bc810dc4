"""Where transformers hands attention to a kernel: each such call can be looked at, none is changed.

Every model of the common kind asks `AttentionInterface.get_interface` for its kernel, by the name
of the implementation it was loaded with. The name is kept (the making of masks and several models
test it); only what is handed out is wrapped, for as long as a block of code lasts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """One call of an attention kernel.

    Attributes:
        kernel: the function, called as `kernel(module, query, key, value, mask, **options)`.
        module: the attention module that called it.
        query: shape (batch, heads, queries, head size).
        key: shape (batch, heads or groups of them, keys, head size).
        value: shape (batch, heads or groups of them, keys, value size).
        mask: whatever the kernel takes, or None.
        options: scaling, sinks, windows, ….
        output: what the kernel gave back, shape (batch, queries, heads, value size).
        weights: what it handed over besides, shape (batch, heads, queries, keys); None: nothing.
    """

    kernel: Callable[..., Any]
    module: Any
    query: Any
    key: Any
    value: Any
    mask: Any
    options: Mapping[str, Any]
    output: Any
    weights: Any = None

    def mix(self, value: Any) -> Any:
        """What the kernel makes of other values of the same shape."""
        return self.kernel(self.module, self.query, self.key, value, self.mask, **self.options)[0]


@contextmanager
def watching(look: Callable[[Call], None]) -> Iterator[None]:
    """Show every kernel call of a block of code to a function, after it has been done.

    The models get what they would get without it. Whatever happens, transformers is left as it was.
    """
    from transformers.modeling_utils import AttentionInterface

    hand_out = AttentionInterface.get_interface

    def get_interface(self: Any, *names: Any, **named: Any) -> Callable[..., Any]:
        kernel = hand_out(self, *names, **named)

        def watched(
            module: Any,
            query: Any,
            key: Any,
            value: Any,
            attention_mask: Any = None,
            **options: Any,
        ) -> Any:
            given = kernel(module, query, key, value, attention_mask, **options)
            output, weights = given[:2]
            look(Call(kernel, module, query, key, value, attention_mask, options, output, weights))
            return given

        return watched

    interface: Any = AttentionInterface
    interface.get_interface = get_interface
    try:
        yield
    finally:
        interface.get_interface = hand_out


@contextmanager
def eagerly(model: Any) -> Iterator[None]:
    """Let a model attend eagerly in a block of code, where that can be chosen as it runs.

    Its kernels then hand over their weights, which for short texts on a CPU costs less than to
    probe a faster one.
    """
    from transformers import PreTrainedModel

    parts = [part for part in model.modules() if isinstance(part, PreTrainedModel)]
    if {part.config._attn_implementation for part in parts} != {"sdpa"} or not all(
        part._can_set_attn_implementation() for part in parts
    ):
        yield
        return
    model.set_attn_implementation("eager")
    try:
        yield
    finally:
        model.set_attn_implementation("sdpa")
