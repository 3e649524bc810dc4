"""Fused attention functions: each call of one, to be repeated with other values.

Queries, keys and values of one item of the batch come out as (1, heads, tokens, size), whatever the
function. A call is repeated exactly as it ran, but without dropout.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from types import FunctionType
from typing import Any

from torch.nn import functional

from attnviz.core.attention_call import AttentionCall
from attnviz.core.records import dataclass


@dataclass(frozen=True, slots=True)
class Kernel:
    """How a fused function is called.

    Attributes:
        parameters: the names of its arguments in order, the first three query, key and value.
        dropout, mask, scale, causal: the names of these arguments; "" where it has none.
        tokens_first: whether the axis of tokens stands before that of heads.
        own: arguments to change when it is called again, so that it returns its output alone.
    """

    parameters: str
    dropout: str = ""
    mask: str = ""
    scale: str = "scale"
    causal: str = ""
    tokens_first: bool = False
    own: tuple[tuple[str, Any], ...] = ()


SDPA = Kernel(
    "query key value attn_mask dropout_p is_causal", "dropout_p", "attn_mask", causal="is_causal"
)
KERNELS = {
    ("torch.nn.attention.flex_attention", "flex_attention"): Kernel(
        "query key value score_mod block_mask scale enable_gqa return_lse kernel_options",
        own=(("return_lse", False), ("return_aux", None)),
    ),
    ("xformers.ops", "memory_efficient_attention"): Kernel(
        "query key value attn_bias p scale", "p", tokens_first=True
    ),
    ("flash_attn", "flash_attn_func"): Kernel(
        "q k v dropout_p softmax_scale causal window_size softcap alibi_slopes deterministic"
        " return_attn_probs",
        "dropout_p",
        scale="softmax_scale",
        tokens_first=True,
        own=(("return_attn_probs", False),),
    ),
}
"""Fused functions that torch does not dispatch: they are replaced while the block is watched."""


@dataclass(frozen=True, slots=True, eq=False)
class KernelCall:
    """One call of a fused function for a whole batch, with its arguments by name."""

    kernel: Kernel
    run: Callable[..., Any]
    arguments: dict[str, Any]
    output: Any

    @property
    def inputs(self) -> list[Any]:
        """Query, key and value as given."""
        return [self.arguments[name] for name in self.kernel.parameters.split()[:3]]

    @property
    def dropout(self) -> bool:
        """Whether some of the weights were dropped."""
        return bool(self.arguments.get(self.kernel.dropout))

    def calls(self) -> tuple[int, Callable[[int], AttentionCall]]:
        """The number of items in the batch, and a function that makes a call of each."""
        return self._heads_first(self.inputs[0]).shape[0], self._item

    def _item(self, number: int) -> AttentionCall:
        inputs = [_detach(tensor, self.output.dtype) for tensor in self.inputs]
        one = [_item_of(self._heads_first(tensor), number) for tensor in inputs]
        names = self.kernel.parameters.split()[:3]
        whole = self.arguments | dict(zip(names, inputs, strict=True))
        whole |= {name: value for name, value in self.kernel.own if name in whole}
        if self.kernel.dropout:
            whole[self.kernel.dropout] = 0.0
        mask = self._mask(number)
        alone = self.kernel is SDPA and inputs[0].ndim == 4
        if alone:
            whole |= {names[0]: one[0], names[1]: one[1], "attn_mask": mask}

        def mix(*call: Any, **_options: Any) -> Any:
            values = call[3] if alone else self._as_given(call[3], inputs[2])
            output = self.run(**{**whole, names[2]: values})
            return (_item_of(self._heads_first(output), 0 if alone else number).transpose(1, 2),)

        output = _item_of(self._heads_first(self.output.detach()), number).transpose(1, 2)
        options = {
            "scaling": self.arguments.get(self.kernel.scale),
            "is_causal": bool(self.arguments.get(self.kernel.causal, False)),
        }
        output = output.contiguous()
        return AttentionCall(one[0], one[1], one[2], mask, output, kernel=mix, options=options)

    def _heads_first(self, tensor: Any) -> Any:
        """A tensor as (batch, heads, tokens, size)."""
        if tensor.ndim == 4:
            return tensor.transpose(1, 2) if self.kernel.tokens_first else tensor
        return tensor.reshape(-1, 1 if tensor.ndim < 4 else tensor.shape[-3], *tensor.shape[-2:])

    def _as_given(self, values: Any, like: Any) -> Any:
        """Values of one item, repeated for every item, in the shape of those given."""
        if like.ndim == 4:
            values = self._heads_first(values)  # the same exchange of axes puts them back
        else:
            values = values[0 if like.ndim > 3 else (0, 0)]
        return values.expand(like.shape)

    def _mask(self, number: int) -> Any:
        """The mask of one item, shape (1, heads or 1, queries, keys), if there is one."""
        mask = self.arguments.get(self.kernel.mask)
        if mask is None:
            return None
        mask = _detach(mask, self.output.dtype if mask.is_floating_point() else mask.dtype)
        if self.inputs[0].ndim == mask.ndim == 3:  # (batch, queries, keys): one head
            mask = mask[:, None]
        while mask.ndim < 4:
            mask = mask[None]
        return _item_of(mask.flatten(0, -4), number)


def _item_of(tensor: Any, number: int) -> Any:
    """One item of a batch as a batch of one; a batch of one is shared by all items."""
    return tensor[number : number + 1] if len(tensor) > 1 else tensor


def _detach(tensor: Any, dtype: Any) -> Any:
    """A tensor without its history; copied in inference mode, as it could not be derived there."""
    tensor = tensor.detach()
    return (tensor.clone() if tensor.is_inference() else tensor).to(dtype)


@contextmanager
def replace_kernels(look: Callable[..., Any]) -> Iterator[None]:
    """Send calls of fused functions to `look`, from every module that has imported them."""
    places = []
    for (home, name), kernel in KERNELS.items():
        original = getattr(sys.modules.get(home), name, None)
        if original is None:
            continue
        stand_in = partial(look, kernel, original)
        for module in list(sys.modules.values()):
            with suppress(Exception):  # a program may have put anything there
                for key, value in list(vars(module).items()):
                    if value is original:
                        places.append((vars(module), key, original, stand_in))
    for names, key, _, stand_in in places:
        names[key] = stand_in
    try:
        yield
    finally:
        for names, key, original, stand_in in places:
            if names.get(key) is stand_in:
                names[key] = original


_INSIDE = {**vars(functional), "has_torch_function": lambda _: False}
OPEN_MULTI_HEAD: Callable[..., Any] = FunctionType(
    functional.multi_head_attention_forward.__code__,
    _INSIDE,
    argdefs=functional.multi_head_attention_forward.__defaults__,
)
"""`F.multi_head_attention_forward` without the test that hides its own calls from a mode."""
