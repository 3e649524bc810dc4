"""Small random models that attend in all the ways people write them, and their weights by hand.

Each class that attends has `weights(inputs)`: what it attends with, worked out from its parameters
in float64 and in a way of its own, shape (batch, heads, queries, keys).
"""

import math
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 - as everyone calls it

SIZE, HEADS = 16, 4


def softmax(scores: np.ndarray) -> np.ndarray:
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def double(tensor: Any) -> np.ndarray:
    return tensor.detach().double().numpy()


def projected(x: Any, layer: nn.Linear, heads: int) -> np.ndarray:
    """(batch, heads, tokens, head size)."""
    made = double(x) @ double(layer.weight).T
    if layer.bias is not None:
        made = made + double(layer.bias)
    return made.reshape(*made.shape[:-1], heads, -1).swapaxes(-2, -3)


def by_hand(
    query: np.ndarray, key: np.ndarray, mask: Any = None, scale: float | None = None
) -> np.ndarray:
    """Row by row, key by key; the mask is added, or True where a query may look."""
    batch, heads, length, size = query.shape
    scores = np.zeros((batch, heads, length, key.shape[2]))
    group = heads // key.shape[1]
    for row in range(length):
        for column in range(key.shape[2]):
            other = np.repeat(key[:, :, column], group, axis=1)
            scores[:, :, row, column] = (query[:, :, row] * other).sum(-1)
    scores *= scale or size**-0.5
    if mask is not None:
        mask = np.asarray(mask)
        scores = np.where(mask, scores, -np.inf) if mask.dtype == bool else scores + mask
    return softmax(scores)


def lower(length: int) -> np.ndarray:
    return np.tril(np.ones((length, length), dtype=bool))


class CausalHeads(nn.Module):
    """One projection for queries, keys and values, and a mask in a buffer."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(SIZE, 3 * SIZE), nn.Linear(SIZE, SIZE)
        self.dropout = nn.Dropout(dropout)
        self.register_buffer("mask", torch.tril(torch.ones(16, 16)).view(1, 1, 16, 16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, size = x.shape
        query, key, value = self.qkv(x).split(size, dim=2)
        query, key, value = (
            side.view(batch, length, HEADS, size // HEADS).transpose(1, 2)
            for side in (query, key, value)
        )
        scores = (query @ key.transpose(-2, -1)) * (1.0 / math.sqrt(key.size(-1)))
        scores = scores.masked_fill(self.mask[:, :, :length, :length] == 0, float("-inf"))
        mixed = self.dropout(F.softmax(scores, dim=-1)) @ value
        return self.out(mixed.transpose(1, 2).contiguous().view(batch, length, size))

    def weights(self, x: torch.Tensor) -> np.ndarray:
        made = projected(x, self.qkv, 3 * HEADS)
        return by_hand(made[:, :HEADS], made[:, HEADS : 2 * HEADS], lower(x.shape[1]))


class Residual(nn.Module):
    """Blocks of attention and a feed-forward network, with norms before."""

    def __init__(self, *attend: nn.Module) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(attend)
        self.norms = nn.ModuleList(nn.LayerNorm(SIZE) for _ in attend)
        self.forth = nn.ModuleList(nn.Linear(SIZE, SIZE) for _ in attend)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block, norm, forth in zip(self.blocks, self.norms, self.forth, strict=True):
            x = x + block(norm(x))
            x = x + F.gelu(forth(x))
        return x


class OneHead(nn.Module):
    """A head by itself, as beginners write it; several stand in a list."""

    def __init__(self) -> None:
        super().__init__()
        self.key, self.query, self.value = (nn.Linear(SIZE, 4, bias=False) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores = self.query(x) @ self.key(x).transpose(-2, -1) * 4**-0.5
        hidden = torch.triu(torch.ones(x.shape[1], x.shape[1], dtype=torch.bool), diagonal=1)
        return torch.softmax(scores.masked_fill(hidden, -1e9), -1) @ self.value(x)

    def weights(self, x: torch.Tensor) -> np.ndarray:
        sides = (projected(x, side, 1) for side in (self.query, self.key))
        return by_hand(*sides, lower(x.shape[1]))


class ListOfHeads(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.heads = nn.ModuleList(OneHead() for _ in range(HEADS))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([head(x) for head in self.heads], dim=-1)


class ThreeInputs(nn.Module):
    """Queries, keys and values from three inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(SIZE, SIZE) for _ in range(4))

    def forward(self, query: Any, key: Any, value: Any, mask: Any = None) -> Any:
        query, key, value = (
            layer(x).view(x.size(0), -1, HEADS, SIZE // HEADS).transpose(1, 2)
            for layer, x in ((self.q, query), (self.k, key), (self.v, value))
        )
        scores = torch.matmul(query, key.transpose(-2, -1)) / query.size(-1) ** 0.5
        if mask is not None:
            scores = scores.masked_fill(mask == 0, -1e9)
        mixed = torch.matmul(nn.Softmax(dim=-1)(scores), value)
        return self.o(mixed.transpose(1, 2).reshape(query.size(0), -1, SIZE))

    def weights(self, query: Any, key: Any, _value: Any, mask: Any = None) -> np.ndarray:
        sides = projected(query, self.q, HEADS), projected(key, self.k, HEADS)
        return by_hand(*sides, None if mask is None else mask.numpy() != 0)


class EncoderDecoder(nn.Module):
    """From scratch: an encoder layer and a decoder layer over two texts."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(20, SIZE)
        self.encode, self.decode, self.cross = ThreeInputs(), ThreeInputs(), ThreeInputs()
        self.norm = nn.LayerNorm(SIZE)

    def forward(self, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        memory, given = self.words(source), self.words(target)
        memory = memory + self.encode(self.norm(memory), self.norm(memory), self.norm(memory))
        length = target.shape[1]
        mask = torch.tril(torch.ones(length, length))
        given = given + self.decode(given, given, given, mask)
        return given + self.cross(self.norm(given), memory, memory)


class Additive(nn.Module):
    """Additive attention of a decoder's state over a recurrent encoder."""

    def __init__(self) -> None:
        super().__init__()
        self.state, self.memory = nn.Linear(SIZE, 8), nn.Linear(SIZE, 8)
        self.score = nn.Linear(8, 1)

    def forward(self, state: torch.Tensor, memory: torch.Tensor) -> torch.Tensor:
        scores = self.score(torch.tanh(self.state(state).unsqueeze(1) + self.memory(memory)))
        weights = F.softmax(scores.squeeze(2), dim=1)
        return torch.bmm(weights.unsqueeze(1), memory).squeeze(1)

    def weights(self, state: torch.Tensor, memory: torch.Tensor) -> np.ndarray:
        one, many = projected(state[:, None], self.state, 1), projected(memory, self.memory, 1)
        scores = np.tanh(one + many) @ double(self.score.weight).T + double(self.score.bias)
        return softmax(scores.swapaxes(-1, -2))


class AdditiveColumn(Additive):
    """The same, with a softmax over the keys while a last axis of one is still there."""

    def forward(self, state: torch.Tensor, memory: torch.Tensor) -> torch.Tensor:
        scores = self.score(torch.tanh(self.state(state)[:, None] + self.memory(memory)))
        return torch.bmm(scores.softmax(dim=1).transpose(1, 2), memory)[:, 0]


class Recurrent(nn.Module):
    def __init__(self, attend: nn.Module) -> None:
        super().__init__()
        self.encoder, self.step = nn.GRU(SIZE, SIZE, batch_first=True), nn.GRUCell(SIZE, SIZE)
        self.attend = attend

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        memory, state = self.encoder(x)
        state, outputs = state[0], []
        for _ in range(3):
            state = self.step(self.attend(state, memory), state)
            outputs.append(state)
        return torch.stack(outputs, 1)


class EinsumHeads(nn.Module):
    """Every product an einsum, tokens before heads."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.o = (
            nn.Parameter(torch.randn(SIZE, HEADS, SIZE // HEADS) / 3) for _ in range(4)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        query, key, value = (
            torch.einsum("b t c, c h d -> b t h d", x, side) for side in (self.q, self.k, self.v)
        )
        scores = torch.einsum("bqhd,bkhd->bhqk", query, key) / 2
        mixed = torch.einsum("bhqk,bkhd->bqhd", scores.softmax(dim=-1), value)
        return torch.einsum("bqhd,chd->bqc", mixed, self.o)

    def weights(self, x: torch.Tensor) -> np.ndarray:
        sides = (np.tensordot(double(x), double(side), 1) for side in (self.q, self.k))
        return by_hand(*(side.swapaxes(1, 2) for side in sides), scale=0.5)


class EinsumShared(EinsumHeads):
    """Heads share keys and values; ellipses, and no arrow in the equation of the scores."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        query = torch.einsum("btc,chd->bhtd", x, self.q)
        key, value = x @ self.k[:, 0], x @ self.v[:, 0]
        scores = torch.einsum("...htd,...sd->...hts", query, key)
        mixed = torch.einsum("...hts,...sd->...htd", F.softmax(scores, -1), value)
        return torch.einsum("bhqd,chd->bqc", mixed, self.o)

    def weights(self, x: torch.Tensor) -> np.ndarray:
        query = np.tensordot(double(x), double(self.q), 1).swapaxes(1, 2)
        key = double(x) @ double(self.k[:, 0])
        return by_hand(query, key[:, None], scale=1.0)


class KeysBefore(nn.Module):
    """As diffusion autoencoders write it: the weights are turned, and the second factor."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v = (nn.Conv2d(SIZE, SIZE, 1) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, size, height, width = x.shape
        query = self.q(x).reshape(batch, size, height * width).permute(0, 2, 1)
        key, value = (side(x).reshape(batch, size, height * width) for side in (self.k, self.v))
        weights = F.softmax(torch.bmm(query, key) * size**-0.5, dim=2).permute(0, 2, 1)
        return x + torch.bmm(value, weights).reshape(batch, size, height, width)

    def weights(self, x: torch.Tensor) -> np.ndarray:
        pixels = double(x).reshape(*x.shape[:2], -1).swapaxes(1, 2)
        query, key = (
            pixels @ double(side.weight)[:, :, 0, 0].T + double(side.bias)
            for side in (self.q, self.k)
        )
        return by_hand(query[:, None], key[:, None])


class Patches(nn.Module):
    """A vision transformer from scratch."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, SIZE, 4, 4)
        self.first = nn.Parameter(torch.randn(1, 1, SIZE))
        self.places = nn.Parameter(torch.randn(1, 5, SIZE))
        self.blocks = nn.Sequential(AllHeads(), AllHeads())
        self.head = nn.Linear(SIZE, 7)

    def forward(self, picture: torch.Tensor) -> torch.Tensor:
        x = self.patch(picture).flatten(2).transpose(1, 2)
        x = torch.cat([self.first.expand(len(x), -1, -1), x], 1) + self.places
        return self.head(self.blocks(x)[:, 0]).softmax(-1)


class AllHeads(nn.Module):
    """Queries, keys and values stacked and taken apart, and dropout between."""

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.num_heads = HEADS
        self.qkv, self.proj = nn.Linear(SIZE, 3 * SIZE, bias=False), nn.Linear(SIZE, SIZE)
        self.drop = nn.Dropout(0.3, inplace=inplace)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, size = x.shape
        qkv = self.qkv(x).reshape(batch, length, 3, HEADS, size // HEADS).permute(2, 0, 3, 1, 4)
        query, key, value = qkv.unbind(0)
        weights = (query * (size // HEADS) ** -0.5) @ key.transpose(-2, -1)
        weights = self.drop(weights.softmax(dim=-1))
        return self.proj((weights @ value).transpose(1, 2).reshape(batch, length, size))

    def weights(self, x: torch.Tensor) -> np.ndarray:
        made = projected(x, self.qkv, 3 * HEADS)
        return by_hand(made[:, :HEADS], made[:, HEADS : 2 * HEADS])


class MergedHeads(AllHeads):
    """Batch and heads as one axis, scores by baddbmm."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, _ = x.shape
        query, key, value = (
            side.reshape(batch, length, HEADS, -1).transpose(1, 2).flatten(0, 1)
            for side in self.qkv(x).chunk(3, -1)
        )
        nothing = query.new_empty(batch * HEADS, length, length)
        scores = torch.baddbmm(nothing, query, key.transpose(1, 2), beta=0, alpha=0.5)
        mixed = torch.bmm(scores.softmax(-1).to(x.dtype), value)
        return self.proj(mixed.unflatten(0, (batch, HEADS)).transpose(1, 2).flatten(2))


class Sinks(AllHeads):
    """A score for nobody at all, cut off behind the softmax; then a mask, and NaN to 0."""

    def __init__(self) -> None:
        super().__init__()
        self.sink = nn.Parameter(torch.randn(HEADS))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, _ = x.shape
        query, key, value = (
            side.reshape(batch, length, HEADS, -1).transpose(1, 2)
            for side in self.qkv(x).chunk(3, -1)
        )
        scores = query @ key.mT / 2
        sink = self.sink[None, :, None, None].expand(batch, -1, length, 1)
        weights = torch.cat([scores, sink], -1).softmax(-1, dtype=torch.float32)[..., :-1]
        weights = weights.masked_fill(~torch.ones(length, length).tril().bool(), 0.0)
        weights = torch.where(weights > -1, weights, 0.0).nan_to_num()
        return self.proj(torch.matmul(weights, value).transpose(1, 2).flatten(2))

    def weights(self, x: torch.Tensor) -> np.ndarray:
        made = projected(x, self.qkv, 3 * HEADS)
        scores = made[:, :HEADS] @ made[:, HEADS : 2 * HEADS].swapaxes(-1, -2) / 2
        sink = np.broadcast_to(double(self.sink)[None, :, None, None], (*scores.shape[:-1], 1))
        return softmax(np.concatenate([scores, sink], -1))[..., :-1] * lower(x.shape[1])


class Written(AllHeads):
    """Attention of four heads of size 4 written in one of many ways; no module says how many."""

    def __init__(self, way: str) -> None:
        super().__init__()
        del self.num_heads
        self.way = way
        self.mix = nn.Parameter(torch.randn(HEADS, HEADS))
        self.table = nn.Parameter(torch.randn(40, SIZE // HEADS))

    def forward(self, x: torch.Tensor) -> Any:
        return WAYS[self.way](self, x, *self.qkv(x).chunk(3, -1))

    def by_distance(self, length: int) -> torch.Tensor:
        """A vector for each query and key, of their distance."""
        places = torch.arange(length)
        return self.table[places[None] - places[:, None] + 20]

    def weights(self, x: torch.Tensor) -> np.ndarray:
        made = projected(x, self.qkv, 3 * HEADS)
        query, key = made[:, :HEADS], made[:, HEADS : 2 * HEADS]
        scores = np.zeros((*query.shape[:3], key.shape[2]))
        table, mix = double(self.table), double(self.mix)
        if self.way.startswith("heads of scores mixed by shares"):
            mix = softmax(mix)
        for row in range(query.shape[2]):
            for column in range(key.shape[2]):
                found = (query[:, :, row] * key[:, :, column]).sum(-1)
                if self.way.startswith("distances"):
                    found = found + query[:, :, row] @ table[column - row + 20]
                if self.way.startswith("places"):
                    found = found + query[:, :, row] @ table[column]
                if self.way.startswith("heads of scores mixed"):
                    found = found @ mix.T
                scores[:, :, row, column] = found
        return softmax(scores)


def split(*sides: torch.Tensor) -> list[torch.Tensor]:
    """(batch, heads, tokens, size)."""
    return [side.unflatten(-1, (HEADS, -1)).transpose(1, 2) for side in sides]


def shares(query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
    return (query @ key.mT).softmax(-1)


def mixed_scores(module: Written, mix: torch.Tensor, *sides: torch.Tensor) -> torch.Tensor:
    query, key, value = split(*sides)
    return torch.einsum("gh,bhqk->bgqk", mix, query @ key.mT).softmax(-1) @ value


def mixed_scores_by_a_layer(module: Written, _: Any, *sides: torch.Tensor) -> torch.Tensor:
    query, key, value = split(*sides)
    scores = F.linear((query @ key.mT).permute(0, 2, 3, 1), module.mix)
    return scores.permute(0, 3, 1, 2).softmax(-1) @ value


def mixed_outputs(module: Written, _: Any, *sides: torch.Tensor) -> torch.Tensor:
    query, key, value = split(*sides)
    mixed = shares(query, key) @ value
    return torch.einsum("gh,bhqd->bgqd", module.mix.softmax(-1), mixed)


def distances(module: Written, x: torch.Tensor, *sides: torch.Tensor, way: str = "after") -> Any:
    """Relative keys and values, as Shaw, Uszkoreit and Vaswani (2018) define them."""
    (query, key, value), table = split(*sides), module.by_distance(x.shape[1])
    scores = query @ key.mT + torch.einsum("bhqd,qkd->bhqk", query, table)
    weights = scores.softmax(-1)
    if way == "after":
        return weights @ value + torch.einsum("bhqk,qkd->bhqd", weights, table)
    if way == "before":
        return torch.einsum("bhqk,qkd->bhqd", weights, table) + weights @ value
    batch, heads, length, _ = scores.shape
    rows = weights.permute(2, 0, 1, 3).reshape(length, batch * heads, length) @ table
    return weights @ value + rows.view(length, batch, heads, -1).permute(1, 2, 0, 3)


def places(module: Written, x: torch.Tensor, *sides: torch.Tensor) -> torch.Tensor:
    """Axes as in Transformer-XL: queries, keys, batch, heads, and a softmax over the second."""
    query, key, value = (side.unflatten(-1, (HEADS, -1)).transpose(0, 1) for side in sides)
    content = torch.einsum("ibnd,jbnd->ijbn", query, key)
    place = torch.einsum("ibnd,jd->ijbn", query, module.table[: x.shape[1]])
    return torch.einsum("ijbn,jbnd->ibnd", F.softmax(place + content, dim=1), value)


def keys_first(_: Any, __: Any, *sides: torch.Tensor, product: bool = False) -> torch.Tensor:
    query, key, value = split(*sides)
    weights = (key @ query.mT).softmax(dim=-2)
    return weights.mT @ value if product else torch.einsum("bhkq,bhkd->bhqd", weights, value)


def one_axis(_: Any, __: Any, *sides: torch.Tensor, heads_first: bool = False) -> torch.Tensor:
    parts = (side.transpose(0, 1) if heads_first else side for side in split(*sides))
    query, key, value = (side.reshape(-1, *side.shape[2:]) for side in parts)
    return torch.bmm(torch.bmm(query, key.mT).softmax(-1), value)


def tokens_before(_: Any, __: Any, *sides: torch.Tensor) -> torch.Tensor:
    query, key, value = (
        side.transpose(0, 1).reshape(side.shape[1], -1, SIZE // HEADS).transpose(0, 1)
        for side in sides
    )
    return torch.bmm(torch.bmm(query, key.mT).softmax(-1), value)


def parts_as_batch(_: Any, __: Any, *sides: torch.Tensor) -> torch.Tensor:
    query, key, value = (torch.cat(side.split(SIZE // HEADS, dim=2), dim=0) for side in sides)
    return torch.bmm(torch.bmm(query, key.mT).softmax(-1), value)


def heads_before(_: Any, __: Any, *sides: torch.Tensor) -> torch.Tensor:
    query, key, value = (side.transpose(0, 1) for side in split(*sides))
    return shares(query, key) @ value


def in_parts(_: Any, __: Any, *sides: torch.Tensor, by: str) -> Any:
    """One softmax that meets values more than once."""
    query, key, value = split(*sides)
    weights = shares(query, key)
    if by == "features":
        return [weights @ part for part in value.chunk(2, -1)]
    if by == "keys":
        return weights[..., :2] @ value[..., :2, :] + weights[..., 2:] @ value[..., 2:, :]
    if by == "queries":
        return [part @ value for part in weights.split(2, dim=2)]
    if by == "heads":
        return [weights[:, head] @ value[:, head] for head in range(HEADS)]
    if by == "items":
        return [one @ other for one, other in zip(weights, value, strict=True)]
    return weights @ weights.mT, weights @ value  # a penalty, as Lin et al. (2017) have it


WAYS: dict[str, Any] = {
    "heads of scores mixed": lambda it, x, *sides: mixed_scores(it, it.mix, *sides),
    "heads of scores mixed by shares": lambda it, x, *sides: mixed_scores(
        it, it.mix.softmax(-1), *sides
    ),
    "heads of scores mixed by a layer": mixed_scores_by_a_layer,
    "heads of the output mixed by shares": mixed_outputs,
    "distances, their values last": distances,
    "distances, their values first": partial(distances, way="before"),
    "distances, their values by a product": partial(distances, way="product"),
    "places, softmax over the second axis": places,
    "keys before queries": keys_first,
    "keys before queries, turned": partial(keys_first, product=True),
    "an axis by another name": lambda it, x, *sides: (
        torch.softmax(split(*sides)[0] @ split(*sides)[1].mT, axis=-1) @ split(*sides)[2]
    ),
    "batch and heads": one_axis,
    "heads and batch": partial(one_axis, heads_first=True),
    "tokens, batch and heads": tokens_before,
    "heads as parts of the batch": parts_as_batch,
    "heads before the batch": heads_before,
    **{f"values by {by}": partial(in_parts, by=by) for by in ("features", "keys", "queries")},
    **{f"values by {by}": partial(in_parts, by=by) for by in ("heads", "items")},
    "a penalty on the weights": partial(in_parts, by="penalty"),
}
"""How attention can be written."""


class Latents(nn.Module):
    """A perceiver: learned latents read a long input, then each other."""

    def __init__(self) -> None:
        super().__init__()
        self.latents = nn.Parameter(torch.randn(4, SIZE))
        self.read, self.mix = FusedCross(), FusedCross()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        latents = self.latents.expand(len(x), -1, -1)
        latents = latents + self.read(latents, x)
        return latents + self.mix(latents, latents)


class FusedCross(nn.Module):
    """Torch's fused function; heads may share keys and values."""

    def __init__(self, groups: int = HEADS) -> None:
        super().__init__()
        self.groups, size = groups, SIZE // HEADS * groups
        self.q, self.o = nn.Linear(SIZE, SIZE), nn.Linear(SIZE, SIZE)
        self.kv = nn.Linear(SIZE, 2 * size)

    def forward(self, x: torch.Tensor, other: torch.Tensor | None = None) -> torch.Tensor:
        other = x if other is None else other
        query = self.q(x).unflatten(-1, (HEADS, -1)).transpose(1, 2)
        key, value = (
            side.unflatten(-1, (self.groups, -1)).transpose(1, 2)
            for side in self.kv(other).chunk(2, -1)
        )
        mixed = F.scaled_dot_product_attention(
            query=query, key=key, value=value, enable_gqa=self.groups < HEADS, scale=0.7
        )
        return self.o(mixed.transpose(1, 2).flatten(2))

    def weights(self, x: torch.Tensor, other: torch.Tensor | None = None) -> np.ndarray:
        keys = projected(x if other is None else other, self.kv, 2 * self.groups)
        return by_hand(projected(x, self.q, HEADS), keys[:, : self.groups], scale=0.7)


class Cached(nn.Module):
    """One token after the other, over the keys and values of all before."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(SIZE, SIZE) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        outputs, keys, values = [], [], []
        for place in range(x.shape[1]):
            token = x[:, place : place + 1]
            keys.append(self.k(token))
            values.append(self.v(token))
            scores = torch.bmm(self.q(token), torch.cat(keys, 1).transpose(1, 2))
            outputs.append(torch.bmm((scores / SIZE**0.5).softmax(-1), torch.cat(values, 1)))
        return torch.cat(outputs, 1)

    def weights(self, x: torch.Tensor) -> np.ndarray:
        return by_hand(projected(x, self.q, 1), projected(x, self.k, 1), lower(x.shape[1]))


class NoProjections(nn.Module):
    """Attention in three lines, of one sequence without a batch."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.softmax(x @ x.T, dim=1) @ x

    def weights(self, x: torch.Tensor) -> np.ndarray:
        return by_hand(double(x)[None, None], double(x)[None, None], scale=1.0)


class Flexible(nn.Module):
    """flex_attention with a bias by distance and a causal mask."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(SIZE, 3 * SIZE)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        from torch.nn.attention.flex_attention import create_block_mask, flex_attention

        query, key, value = (
            side.unflatten(-1, (HEADS, -1)).transpose(1, 2) for side in self.qkv(x).chunk(3, -1)
        )
        mask = create_block_mask(lambda b, h, q, k: q >= k, None, None, *[x.shape[1]] * 2, "cpu")

        def nearer(score: Any, _b: Any, _h: Any, row: Any, column: Any) -> Any:
            return score - 0.3 * (row - column)

        return flex_attention(query, key, value, score_mod=nearer, block_mask=mask)

    def weights(self, x: torch.Tensor) -> np.ndarray:
        made, places = projected(x, self.qkv, 3 * HEADS), np.arange(x.shape[1])
        bias = np.where(lower(x.shape[1]), -0.3 * (places[:, None] - places), -np.inf)
        return by_hand(made[:, :HEADS], made[:, HEADS : 2 * HEADS], bias)
