"""Softmaxes that are no attention give no map, and a line says why."""

import pytest
import torch
from torch import nn

from attnviz import watch
from attnviz.core.errors import AttentionError, UsageError
from tests.features.watch.models import HEADS, SIZE, AllHeads, FusedCross


class Classifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.out = nn.Linear(SIZE, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(x).softmax(-1)


class Experts(nn.Module):
    """A gate chooses two of four experts and adds them up."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(SIZE, 4)
        self.experts = nn.ModuleList(nn.Linear(SIZE, SIZE) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        shares, chosen = self.gate(x).softmax(-1).topk(2)
        made = torch.stack([expert(x) for expert in self.experts], -2)
        picked = made.gather(-2, chosen[..., None].expand(*chosen.shape, SIZE))
        return (shares[..., None] * picked).sum(-2)


class Linear(nn.Module):
    """Linear attention: a softmax over features of the queries, over positions of the keys."""

    def __init__(self, channels_first: bool) -> None:
        super().__init__()
        self.qkv, self.channels_first = nn.Linear(SIZE, 3 * SIZE), channels_first

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        query, key, value = self.qkv(x).chunk(3, -1)
        if self.channels_first:
            query, key, value = query.mT, key.mT, value.mT
            context = torch.einsum("bdn,ben->bde", key.softmax(-1), value)
            return torch.einsum("bde,bdn->ben", context, query.softmax(-2) * 0.5).mT
        context = key.softmax(dim=-2).transpose(-2, -1) @ value
        return query.softmax(dim=-1) @ context


class Summary(Linear):
    """Linear attention whose keys alone have a softmax."""

    def __init__(self) -> None:
        super().__init__(channels_first=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        query, key, value = self.qkv(x).chunk(3, -1)
        return (query.relu() / 4) @ (key.softmax(dim=-2).mT @ value)


class Slots(Linear):
    """A softmax over two queries, which compete for the values."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        query, key, value = self.qkv(x).chunk(3, -1)
        return (query[:, :2] @ key.mT).softmax(dim=1) @ value


class Kernels(Linear):
    """Linear attention without a softmax."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        query, key, value = self.qkv(x).chunk(3, -1)
        query, key = nn.functional.elu(query) + 1, nn.functional.elu(key) + 1
        return query @ (key.mT @ value) / (query @ key.sum(1)[..., None])


class TalkingHeads(AllHeads):
    """A projection mixes the weights of the heads."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how, self.mix = how, nn.Linear(HEADS, HEADS, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        query, key, value = (
            side.unflatten(-1, (HEADS, -1)).transpose(1, 2) for side in self.qkv(x).chunk(3, -1)
        )
        weights = (query @ key.mT).softmax(-1)
        if self.how == "linear":
            weights = self.mix(weights.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        elif self.how == "shares":
            weights = torch.einsum("gh,bhqk->bgqk", self.mix.weight.softmax(-1), weights)
        elif self.how == "einsum":
            weights = torch.einsum("bhqk,gh->bgqk", weights, self.mix.weight)
        else:
            weights = weights - 0.3 * (key @ query.mT).softmax(-1)
        return (weights @ value).transpose(1, 2).flatten(2)


class Chosen(AllHeads):
    """Each query attends to three keys: the best by score, by weight, or the nearest."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how = how

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        query, key, value = self.qkv(x).chunk(3, -1)
        if self.how == "one query":
            scores, best = torch.einsum("bd,bkd->bk", query[:, 0], key).topk(3)
            chosen = value.gather(1, best[..., None].expand(-1, -1, SIZE))
            return torch.einsum("bk,bkd->bd", scores.softmax(-1), chosen)
        item = torch.arange(len(x))[:, None, None]
        if self.how == "nearest":
            near = torch.cdist(x, x).topk(3, largest=False).indices
            scores = torch.einsum("bqd,bqkd->bqk", query, key[item, near])
            return torch.einsum("bqk,bqkd->bqd", scores.softmax(-1), value[item, near])
        scores = query @ key.mT
        shares, best = (scores if self.how == "scores" else scores.softmax(-1)).topk(3)
        if self.how == "scores":
            shares = shares.softmax(-1)
        return (shares[:, :, None] @ value[item, best]).squeeze(2)


class ConstantMixture(nn.Module):
    """Layers are mixed by shares that are parameters, as ELMo does it."""

    def __init__(self) -> None:
        super().__init__()
        self.shares = nn.Parameter(torch.randn(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.einsum("l,lbtd->btd", self.shares.softmax(0), torch.stack([x, x + 1, x + 2]))


@pytest.mark.parametrize(
    ("model", "why"),
    [
        *(
            (Chosen(how), "1 softmaxes met values that each query has for itself .a top-k choice")
            for how in ("scores", "weights", "nearest", "one query")
        ),
        (TalkingHeads("shares"), "^1 softmaxes over keys were mixed with others"),
        (ConstantMixture(), "1 softmaxes ran, but the program multiplied none of them"),
        (Slots(channels_first=False), "1 softmaxes met values along their queries instead of"),
        (Summary(), "1 products of linear attention: it has no softmax over keys"),
        (Classifier(), "1 softmaxes ran, but the program multiplied none of them"),
        (Experts(), "1 softmaxes ran, but the program multiplied none of them"),
        (Linear(channels_first=False), "linear attention: it has no softmax over keys"),
        (Linear(channels_first=True), "linear attention: it has no softmax over keys"),
        (TalkingHeads("linear"), "1 softmaxes over keys were mixed with others"),
        (TalkingHeads("einsum"), "1 softmaxes over keys were mixed with others"),
        (TalkingHeads("differential"), "1 softmaxes over keys were mixed with others"),
        (Kernels(channels_first=False), "nothing ran in the block, or nothing that has a softmax"),
        (nn.GRU(SIZE, SIZE), "nothing ran in the block, or nothing that has a softmax"),
    ],
)
def test_what_is_no_attention_gives_no_map(model, why):
    with watch(model) as seen:
        model(torch.randn(2, 6, SIZE))
    with pytest.raises(AttentionError, match=why):
        seen.attention()


def test_blocks_in_which_nothing_is_wanted_say_so():
    with watch() as seen:
        pass
    with pytest.raises(AttentionError, match="nothing ran in the block"):
        seen.heatmap()
    model = FusedCross()
    with watch(model, only="decoder.*") as seen:
        model(torch.randn(2, 6, SIZE))
    with pytest.raises(AttentionError, match=r"\(only=decoder.\*\); they were made by FusedCross"):
        seen.attention()
    with watch(nn.Linear(2, 2)) as seen:
        FusedCross()(torch.randn(2, 6, SIZE))
    with pytest.raises(AttentionError, match="nothing ran in the block"):
        seen.attention()
    with pytest.raises(UsageError, match=r"watch needs a torch\.nn\.Module, not str"), watch("a"):
        pass


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"every": 0}, "every=0 is too small: 1 or more"),
        ({"first": 0}, "first=0 is too small: 1 or more"),
        ({"max_size": 0}, "max_size=0 is too small: 1 or more"),
        ({"batch": -1}, "batch=-1 is too small: 0 or more"),
    ],
)
def test_options_out_of_their_range_are_refused(options, why):
    with pytest.raises(UsageError, match=why), watch(**options):  # type: ignore[arg-type]
        pass
