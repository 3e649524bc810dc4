"""Heads measured in blocks of rows: as of whole maps, and as transformers' eager weights say."""

from dataclasses import fields, replace
from functools import partial

import numpy as np
import pytest
import torch

from attnviz import heads
from attnviz.analyses.sinks import sink_shares
from attnviz.core import tokens
from attnviz.core.errors import AttentionError, InputError
from attnviz.core.query import Query
from attnviz.features.measures.study import measures_of
from attnviz.models import attend_query
from attnviz.models.hugging_face import batching
from attnviz.models.hugging_face.capture import blocks
from tests.analyses.heads import fill_buffers
from tests.hugging_face.tiny_models import but_slow
from tests.invoke import attnviz

TEXT = "The student. A paper. The old. Us. It. The student. We. The paper."


def named(attention):
    return attention


def nothing(empty, *size, **how):
    """A tensor whose numbers mean nothing, as `torch.empty` may give them."""
    made = empty(*size, **how)
    return made.fill_(torch.nan) if made.is_floating_point() else made


def in_blocks(source, query, monkeypatch, rows=5):
    """The attention of a query read in blocks, whatever its length; buffers hold NaN at first."""
    with monkeypatch.context() as patch:
        patch.setattr(batching, "fits_whole", lambda *_: False)
        patch.setattr(blocks, "ROWS", rows)
        patch.setattr(torch, "empty", partial(nothing, torch.empty))
        fill_buffers(patch)
        return attend_query(source, query)


@pytest.mark.parametrize(
    ("kind", "target"),
    but_slow(
        [
            *((kind, None) for kind in ("bert", "gpt2", "llama", "gemma2", "gpt_oss")),
            ("t5", "The cat."),
        ]
    ),
)
def test_heads_in_blocks_have_the_measures_of_whole_maps(kind, target, loaded, monkeypatch):
    source = loaded(kind)
    query = Query(TEXT, target, "cross" if target else "self", in_blocks=named)
    whole, parts = attend_query(source, query), in_blocks(source, query, monkeypatch)
    assert not whole.in_blocks
    assert [one.stream for one in parts.in_blocks] == [item.stream for item in whole.maps]
    for item, small in zip(whole.maps, parts.maps, strict=True):
        expected, found = measures_of(whole, item), measures_of(parts, small)
        assert [*found.measures] == [*expected.measures]
        assert (found.sinks == expected.sinks).all()
        assert found.shares is not None
        for name, one in expected.measures.items():
            if (own := found.measures.get(name)) is None:
                continue
            for side in ("values", "uniform"):
                pair = getattr(own, side), getattr(one, side)
                np.testing.assert_allclose(*pair, rtol=1e-5, atol=1e-5, err_msg=f"{name} {side}")
            assert own.top == pytest.approx(one.top, rel=1e-5)


@pytest.mark.parametrize("kind", ["bert", "gpt2", "gpt_oss"])
def test_what_sinks_hold_is_that_of_whole_maps(kind, loaded, monkeypatch):
    source, query = loaded(kind), Query(TEXT, in_blocks=named)
    shares = [
        sink_shares(replace(one, provenance=replace(one.provenance, trained=True)))
        for one in (attend_query(source, query), in_blocks(source, query, monkeypatch))
    ]
    for name, value in vars_of(shares[0]).items():
        assert vars_of(shares[1])[name] == pytest.approx(value, abs=1e-6), name


def vars_of(shares):
    return {one.name: getattr(shares, one.name) for one in fields(shares)}


@pytest.mark.parametrize(
    ("kind", "text", "name"),
    [
        ("gpt2", "The student. A paper. The old. Us.", "informative"),
        ("gpt2", "Us. A paper. The old.", "informative"),
        ("llama", "The student. A paper. The old. Us.", "kv-likeness"),
    ],
)
def test_a_first_token_that_is_a_sink_is_left_out(kind, text, name, loaded, monkeypatch):
    monkeypatch.setattr(tokens, "SINK_SHARE", 0.05)
    monkeypatch.setattr(tokens, "BEYOND_UNIFORM", 0)
    source = loaded(kind)
    query = Query(text, in_blocks=named)
    whole, parts = attend_query(source, query), in_blocks(source, query, monkeypatch)
    assert tokens.first_is_sink(whole.main)
    assert sink_shares(parts).first_is_sink
    sides = [measures_of(one, one.main).measures[name] for one in (whole, parts)]
    assert sides[0].values.any()
    np.testing.assert_allclose(sides[1].values, sides[0].values, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(sides[1].uniform, sides[0].uniform, rtol=1e-5, atol=1e-6)
    assert sides[1].top == pytest.approx(sides[0].top)


def test_the_size_of_a_block_changes_nothing(loaded, monkeypatch):
    source, query = loaded("gpt2"), Query(TEXT, in_blocks=named)
    few, many = (in_blocks(source, query, monkeypatch, rows) for rows in (3, 32))
    for name, one in few.in_blocks[0].measures.items():
        other = many.in_blocks[0].measures[name]
        np.testing.assert_allclose(one.values, other.values, rtol=1e-6, atol=1e-7, err_msg=name)
    source = loaded("gpt2")
    attention = in_blocks(source, Query(TEXT, in_blocks=named), monkeypatch)
    ids = source.tokenizer(TEXT, return_tensors="pt").input_ids
    source.model.set_attn_implementation("eager")
    try:
        with torch.no_grad():
            layers = torch.stack(source.model(ids, output_attentions=True).attentions)[:, 0]
    finally:
        source.model.set_attn_implementation("sdpa")
    sums = {"entropy": 0.0, "distance": 0.0, "previous-token": 0.0}
    for row in range(ids.shape[1]):
        weights = layers[:, :, row].double().numpy()
        sums["entropy"] -= (weights * np.log(np.maximum(weights, 1e-300))).sum(-1)
        sums["distance"] += (weights * np.abs(row - np.arange(ids.shape[1]))).sum(-1)
        sums["previous-token"] += weights[..., row - 1] if row else 0.0
    rows = {"previous-token": ids.shape[1] - 1}
    for name, total in sums.items():
        found = attention.in_blocks[0].measures[name].values
        np.testing.assert_allclose(
            found, total / rows.get(name, ids.shape[1]), atol=1e-5, err_msg=name
        )
    monkeypatch.setattr(blocks.probe, "score_rows", lambda call, heads, rows, space=None: None)
    with pytest.raises(AttentionError, match="cannot be read in blocks of rows"):
        in_blocks(loaded("gpt2"), Query(TEXT, in_blocks=named), monkeypatch)


def test_the_size_of_pictures_is_no_limit_to_measures(folder_of):
    model = ("--model", folder_of("llama"), "--device", "torch", "--no-repeat", "-f", "tsv")
    assert attnviz("heads", TEXT, *model, "--max-size", 4).out == attnviz("heads", TEXT, *model).out


def test_what_compares_whole_maps_says_so(folder_of, monkeypatch, tmp_path):
    monkeypatch.setattr(batching, "fits_whole", lambda *_: False)
    model = ("--model", folder_of("llama"), "--device", "torch", "--no-repeat")
    refused = {
        ("--similar",): "whole maps",
        ("--special", "drop"): "whole maps",
        ("--effect",): "needs a pass for each head",
    }
    for options, reason in refused.items():
        done = attnviz("heads", TEXT, *model, *options)
        assert done.status
        assert reason in done.err
    monkeypatch.setattr(batching, "fits_whole", lambda *_: False)
    found = heads(TEXT, model=str(folder_of("llama")), device="torch", no_repeat=True)
    assert found.to_rows()
    with pytest.raises(InputError, match="compare whole maps"):
        found.picture("scatter")
    monkeypatch.setattr(batching, "fits_whole", lambda *_: False)
    (tmp_path / "texts.txt").write_text(f"{TEXT}\n{TEXT}\n")
    model = ("--model", folder_of("llama"), "--device", "torch", "--workers", "1")
    done = attnviz("heads", "--input", tmp_path / "texts.txt", *model)
    assert not done.status
    assert "counts in the measures, and not in positions" in done.err
