"""Scores before the softmax against what transformers' eager attention gives its softmax."""

import warnings
from contextlib import contextmanager
from functools import partial

import numpy as np
import pytest
import torch
import transformers as hf
from torch.nn import functional
from torch.nn.attention import flex_attention as flex

from attnviz.core.attention_call import AttentionCall
from attnviz.models.hugging_face.capture.passes import CaptureSpec, probe_layers, read_call
from attnviz.models.hugging_face.capture.region import PooledGrid, each_token, split_blocks

SIZES = {"hidden_size": 32, "num_attention_heads": 4, "vocab_size": 50, "num_hidden_layers": 2}
GROUPED = {**SIZES, "num_key_value_heads": 2, "intermediate_size": 48, "head_dim": 8}
MODELS = {
    "bert": lambda: hf.BertModel(hf.BertConfig(**SIZES, intermediate_size=48)),
    "llama": lambda: hf.LlamaModel(hf.LlamaConfig(**GROUPED)),
    "gemma2": lambda: hf.Gemma2Model(hf.Gemma2Config(**GROUPED, attn_logit_softcapping=2.0)),
    "t5": lambda: hf.T5EncoderModel(
        hf.T5Config(d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4, vocab_size=50)
    ),
}
STREAMS = {"bert": "self", "llama": "causal", "gemma2": "causal", "t5": "self"}


@contextmanager
def softmaxes(monkeypatch):
    """What each softmax of an eager pass is taken of, (heads, queries, keys)."""
    found, plain = [], torch.nn.functional.softmax

    def softmax(scores, *args, **kwargs):
        if scores.ndim == 4:
            found.append(scores[0].detach().double().numpy())
        return plain(scores, *args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(torch.nn.functional, "softmax", softmax)
        yield found


def called(query, key, value, kernel=functional.scaled_dot_product_attention):
    """A call whose kernel mixes as this function does."""

    def asked(_module, query, key, value, _mask, **_options):
        return (kernel(query, key, value).transpose(1, 2).contiguous(),)

    output, options = asked(None, query, key, value, None)[0], {"is_causal": False}
    return AttentionCall(query, key, value, None, output, kernel=asked, options=options)


def by_loop(scores: np.ndarray) -> dict[str, float]:
    """One head's measures, row by row."""
    rows = [row[row > -1e4] for row in scores]
    shares = [np.exp(row) / np.exp(row).sum() for row in rows if len(row) > 1]
    every = np.concatenate(rows)
    return {
        "score-max": every.max(),
        "score-mean": every.mean(),
        "score-std": every.std(),
        "log-sum-exp": np.mean([np.log(np.exp(row).sum()) for row in rows]),
        "saturated": np.mean([row.max() > 0.999 for row in shares]),
        "row-entropy": np.median(
            [-(p * np.log(np.maximum(p, 1e-300))).sum() / np.log(len(p)) for p in shares]
        ),
    }


@pytest.mark.parametrize("size", [23, 5], ids=["tokens", "blocks"])
@pytest.mark.parametrize("kind", MODELS)
def test_scores_are_those_of_the_eager_softmax(kind, size, monkeypatch):
    torch.manual_seed(0)
    model = MODELS[kind]().eval()
    for part in model.modules():  # so that scores differ and some rows are sharp
        if isinstance(part, torch.nn.Linear):
            part.weight.data *= 12
    inputs, stream = {"input_ids": torch.arange(23)[None]}, STREAMS[kind]
    blocks = split_blocks(0, 23, size)
    spec = CaptureSpec(PooledGrid(blocks, blocks), keep_scores=True)
    model.set_attn_implementation("sdpa" if kind in ("bert", "llama") else "eager")
    found = probe_layers(model, inputs, {stream: (23, 23)}, {stream: spec})[stream]
    model.set_attn_implementation("eager")
    with softmaxes(monkeypatch) as scores, torch.no_grad():
        model(**inputs)
    assert len(found) == len(scores) == 2
    for own, eager in zip(found.values(), scores, strict=True):
        for head, of_head in enumerate(eager):
            for name, wanted in by_loop(of_head).items():
                assert own.scores[name][head] == pytest.approx(wanted, rel=2e-4, abs=2e-5), name
        assert (own.scores["massive"] > 1).all()


def test_norms_and_the_sink_are_of_the_vectors():
    generator = torch.Generator().manual_seed(3)
    query, key, value = (torch.randn(1, n, 9, 4, generator=generator) for n in (4, 2, 2))
    key[0, 0, 5] = 4 * query[0, 0].mean(0)
    value[0, 0, 5] *= 0.01
    spelled = partial(functional.scaled_dot_product_attention, enable_gqa=True)
    whole = PooledGrid(each_token(9), each_token(9))
    found = read_call("a", called(query, key, value, spelled), CaptureSpec(whole, keep_scores=True))
    weights = found.weights[0]
    for head in range(4):
        own = value[0, head // 2].norm(dim=-1)
        sink = weights[head].sum(0).argmax()
        scores = found.scores
        assert scores["query-norm"][head] == pytest.approx(float(query[0, head].norm(dim=-1).max()))
        wanted = float(key[0, head // 2].norm(dim=-1).max())
        assert scores["key-norm"][head] == pytest.approx(wanted)
        assert scores["value-norm"][head] == pytest.approx(np.median(own), rel=1e-6)
        assert scores["sink-value"][head] == pytest.approx(
            float(own[sink] / np.median(own)), rel=1e-5
        )


def test_a_kernel_that_does_more_has_no_scores():
    generator = torch.Generator().manual_seed(3)
    query, key, value = (torch.randn(1, 2, 9, 4, generator=generator) for _ in range(3))

    def sharper(query, key, value):
        return functional.scaled_dot_product_attention(2 * query, key, value)

    call = called(query, key, value, sharper)
    whole = PooledGrid(each_token(9), each_token(9))
    found = read_call("a", call, CaptureSpec(whole, keep_scores=True))
    assert found.weights.shape == (1, 2, 9, 9)
    assert found.scores == {}


@pytest.mark.parametrize("size", [40, 7], ids=["tokens", "blocks"])
@pytest.mark.parametrize("times", [1e2, 1e4])
def test_very_large_scores_are_known(times, size):
    generator = torch.Generator().manual_seed(3)
    query, key, value = (torch.randn(1, 2, 40, 16, generator=generator) for _ in range(3))
    query, key = query * times, key.roll(1, 2) * 0.001 + key[:, :, :1]  # with ties
    blocks = split_blocks(0, 40, size)
    spec = CaptureSpec(PooledGrid(blocks, blocks), keep_scores=True)
    found = read_call("a", called(query, key, value), spec).scores
    wanted = (query.double() @ key.double().mT / 4)[0].flatten(1)
    np.testing.assert_allclose(found["score-max"], wanted.amax(-1), rtol=1e-5)
    np.testing.assert_allclose(found["score-std"], wanted.std(-1, correction=0), rtol=1e-4)


@pytest.mark.skipif(not hasattr(flex, "AuxRequest"), reason="this torch tells no largest scores")
def test_scores_are_those_of_flex_attention():
    device = "cuda" if torch.cuda.is_available() else "cpu"
    query, key, value = (torch.randn(1, 2, 16, 8, device=device) * 3 for _ in range(3))
    with warnings.catch_warnings(action="ignore"):
        _, about = flex.flex_attention(
            query, key, value, return_aux=flex.AuxRequest(lse=True, max_scores=device != "cpu")
        )
    whole = PooledGrid(each_token(16), each_token(16))
    scores = read_call("a", called(query, key, value), CaptureSpec(whole, keep_scores=True)).scores
    if device != "cpu":  # where flex_attention does not tell it
        np.testing.assert_allclose(scores["score-max"], about.max_scores[0].amax(-1).cpu(), 1e-5)
    np.testing.assert_allclose(scores["log-sum-exp"], about.lse[0].mean(-1).cpu(), rtol=1e-5)
