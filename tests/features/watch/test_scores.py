"""Scores before the softmax of watched code, by whatever function it attends."""

import math
import warnings

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.nn.attention.flex_attention import flex_attention

from attnviz import watch

HEADS, TOKENS, SIZE = 2, 7, 8


class Block(nn.Module):
    """Causal attention in one of several ways, under a list as models have it."""

    def __init__(self, way: str) -> None:
        super().__init__()
        torch.manual_seed(2)
        self.way, self.qkv = way, nn.Linear(SIZE, 3 * SIZE)
        self.qkv.weight.data *= 6

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The heads' outputs side by side."""
        query, key, value = self.sides(x)
        hidden = torch.ones(TOKENS, TOKENS, dtype=torch.bool).triu(1)
        if self.way == "fused":
            mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        elif self.way == "flex, with more":
            with warnings.catch_warnings(action="ignore"):
                mixed = flex_attention(query, key, value, score_mod=lambda s, *_: s * 2)
        else:
            scores = query @ key.mT / math.sqrt(SIZE // HEADS)
            most = -torch.inf if self.way == "by hand" else -1e9
            scores = scores.masked_fill(hidden, most)
            if self.way == "einsum":
                weights = functional.softmax(scores.transpose(0, 1), -1)
                mixed = torch.einsum("hbqk,bhkd->bhqd", weights, value)
            else:
                mixed = scores.softmax(-1) @ value
                if self.way == "changed after":
                    scores += 1
        return mixed.transpose(1, 2).flatten(2)

    def sides(self, x: torch.Tensor) -> list[torch.Tensor]:
        """Queries, keys and values, shape (batch, heads, tokens, size)."""
        parts = self.qkv(x).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        return list(parts)


@pytest.mark.parametrize("size", [TOKENS, 3], ids=["tokens", "blocks"])
@pytest.mark.parametrize("way", ["fused", "by hand", "by −1e9", "einsum"])
def test_scores_are_those_of_the_formula(way, size):
    model, x = nn.ModuleList([Block(way)]), torch.randn(3, TOKENS, SIZE)
    x[:, :, 5] *= 40
    with torch.no_grad(), watch(model, scores=True, batch=1, max_size=size) as seen:
        model[0](x)
    result = seen.attention()
    query, key, value = (side[1].detach().double().numpy() for side in model[0].sides(x))
    scores = query @ key.swapaxes(-1, -2) / 2
    rows, columns = np.tril_indices(TOKENS)
    for head in range(HEADS):
        own = result.scores[result.main.stream, "0", str(head)]
        visible = scores[head, rows, columns]
        assert own["score-max"] == pytest.approx(visible.max(), rel=1e-4)
        assert own["score-mean"] == pytest.approx(visible.mean(), rel=1e-4)
        assert own["score-std"] == pytest.approx(visible.std(), rel=1e-4)
        norms = np.linalg.norm(value[head], axis=-1)
        assert own["value-norm"] == pytest.approx(np.median(norms), rel=1e-4)
        if way == "fused":
            wanted = np.linalg.norm(query[head], axis=-1).max()
            assert own["query-norm"] == pytest.approx(wanted, rel=1e-4)
        else:  # of a product only the scores are known
            assert "query-norm" not in own
        sizes = np.abs(x.numpy())
        assert own["massive"] == pytest.approx(sizes.max() / np.median(sizes), rel=1e-4)
    assert not any("not known" in note for note in result.provenance.notes)


@pytest.mark.slow
@pytest.mark.parametrize("way", ["flex, with more", "changed after"])
def test_where_scores_are_hidden_one_line_says_so(way):
    model, x = nn.ModuleList([Block(way)]), torch.randn(1, TOKENS, SIZE)
    with torch.no_grad(), watch(model, scores=True) as seen:
        model[0](x)
    result = seen.attention()
    hidden = [note for note in result.provenance.notes if "not known of 0:" in note]
    assert (len(hidden), len(result.scores)) == ((1, 0) if way.startswith("flex") else (0, HEADS))


@pytest.mark.parametrize(("ahead", "stream"), [(0, "causal"), (1, "self")])
def test_who_sees_one_key_ahead_is_not_causal(ahead, stream):
    module = nn.MultiheadAttention(4, 2, batch_first=True).eval()
    x, hidden = torch.randn(1, 4, 4), torch.ones(4, 4, dtype=torch.bool).triu(ahead + 1)
    with torch.no_grad(), watch(module) as seen:
        module(x, x, x, attn_mask=hidden)
    assert [item.stream for item in seen.attention().maps] == [stream]
