"""Every attention layer and how to call it, for the tests of what all have in common."""

from typing import Any, NamedTuple

import torch

from attnviz.layers import (
    AlternatingCoAttention,
    CausalAttention,
    CoAttention,
    CrossAttention,
    DecoderBlock,
    EncoderBlock,
    LinearAttention,
    MultiHeadAttention,
    ParallelCoAttention,
    SelfAttention,
    TwoStreamCoAttention,
)

SIZE, OTHER_SIZE = 8, 6
FIRST, SECOND = 4, 5


class Row(NamedTuple):
    """A layer's class, its options, and the masks that hide its keys."""

    layer: type[torch.nn.Module]
    options: dict[str, Any]
    sequences: int = 1
    masks: tuple[str, ...] = ("key_mask",)
    sizes: tuple[int, int] = (SIZE, SIZE)


def co(layer: type[torch.nn.Module], **options: Any) -> Row:
    """A row of co-attention between sequences of different size."""
    given = {"size": SIZE, "second_size": OTHER_SIZE, "hidden_size": 4, **options}
    return Row(layer, given, 2, ("first_mask", "second_mask"), (SIZE, OTHER_SIZE))


LAYERS = {
    "self": Row(SelfAttention, {"size": SIZE}),
    "self unscaled": Row(SelfAttention, {"size": SIZE, "head_size": 3, "scaled": False}),
    "causal": Row(CausalAttention, {"size": SIZE, "context_length": FIRST, "bias": True}),
    "cross": Row(
        CrossAttention,
        {"size": SIZE, "source_size": OTHER_SIZE, "joined_size": 4, "heads": 2},
        2,
        sizes=(SIZE, OTHER_SIZE),
    ),
    "multi-head": Row(MultiHeadAttention, {"size": SIZE, "heads": 2}),
    "multi-head causal": Row(MultiHeadAttention, {"size": SIZE, "heads": 2, "causal": True}),
    "multi-head cross": Row(
        MultiHeadAttention,
        {"size": SIZE, "heads": 4, "key_size": OTHER_SIZE, "bias": False},
        2,
        sizes=(SIZE, OTHER_SIZE),
    ),
    "linear": Row(LinearAttention, {"size": SIZE, "heads": 2}),
    "linear causal": Row(LinearAttention, {"size": SIZE, "heads": 2, "causal": True}),
    "co parallel": co(ParallelCoAttention),
    "co alternating": co(AlternatingCoAttention),
    "co two-stream": co(TwoStreamCoAttention, heads=2),
    "co by name": co(CoAttention, variant="alternating"),
    "encoder block": Row(EncoderBlock, {"size": SIZE, "heads": 2}),
    "decoder block": Row(
        DecoderBlock, {"size": SIZE, "heads": 2}, 2, ("target_mask", "source_mask")
    ),
}


def build(name: str, **options: Any) -> torch.nn.Module:
    """The layer with the same double-precision parameters every time."""
    torch.manual_seed(20)
    row = LAYERS[name]
    return row.layer(**row.options, **options).double()


def inputs(name: str, batch: tuple[int, ...] = (2,)) -> list[torch.Tensor]:
    """The layer's sequences: one, or two of different length."""
    random = torch.Generator().manual_seed(21)
    row = LAYERS[name]
    pairs = list(zip((FIRST, SECOND), row.sizes, strict=True))[: row.sequences]
    return [
        torch.randn(*batch, length, size, generator=random, dtype=torch.float64)
        for length, size in pairs
    ]


def hiding(name: str, sequences: list[torch.Tensor], *positions: int) -> dict[str, torch.Tensor]:
    """Masks that hide these positions wherever they are keys."""
    row = LAYERS[name]
    masked = sequences if len(row.masks) == len(sequences) else sequences[-1:]
    masks = {}
    for mask, sequence in zip(row.masks, masked, strict=True):
        masks[mask] = torch.ones(sequence.shape[:-1], dtype=torch.bool)
        masks[mask][..., list(positions)] = False
    return masks


def flat(given: Any) -> list[torch.Tensor]:
    """A tensor, or a tuple of them, as a list."""
    return list(given) if isinstance(given, tuple) else [given]
