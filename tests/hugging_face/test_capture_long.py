"""Texts that are longer than a map: blocks, exact rows, windows, and what is said about them."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from transformers.modeling_utils import AttentionInterface

from attnviz.core.attention_map import Token
from attnviz.core.errors import InputError, ModelError, UsageError
from attnviz.core.notices import notices_to
from attnviz.models.hugging_face.capture import region as regions
from attnviz.models.hugging_face.capture.kernel import (
    layer_names,
    match_stream,
    stream_of,
    watch_kernels,
)
from attnviz.models.hugging_face.capture.region import (
    PooledGrid,
    Region,
    TokenBlocks,
    choose_grids,
    each_token,
    heads_of,
    region_note,
    split_blocks,
)
from attnviz.models.hugging_face.load.devices import memory_hint
from attnviz.storage.documents import from_document, to_document
from tests.hugging_face.ask import attend

TEXT = "The professor who supervised the student published the paper."


def read(model, text=TEXT, **wanted):
    return attend(replace(model, region=Region(**wanted)), text)


@pytest.mark.parametrize("kind", ["bert", "llama", "t5"])
def test_a_pooled_map_is_the_whole_one_in_blocks(kind, loaded):
    model = loaded(kind)
    whole, pooled = read(model), read(model, max_size=5)
    length = len(whole.tokens)
    axis = split_blocks(0, length, 5)
    starts = [first for first, _ in axis.spans]
    sums = np.add.reduceat(np.add.reduceat(whole.weights, starts, 3), starts, 2)
    expected = sums / np.diff([*starts, length])[:, None]
    np.testing.assert_allclose(pooled.weights, expected, atol=1e-5)
    assert pooled.main.blocks == (axis.length, axis.length)
    assert pooled.main.stream == whole.main.stream
    assert any("maps show 5 × 5 blocks" in note for note in pooled.provenance.notes)
    assert whole.main.links == ()
    assert not whole.provenance.notes


def test_rows_and_windows_are_those_of_the_whole(loaded):
    whole, rows = read(loaded("llama")), read(loaded("llama"), rows=(3, 5))
    np.testing.assert_allclose(rows.weights, whole.weights[:, :, 3:6], atol=1e-5)
    assert rows.tokens == whole.tokens[3:6]
    assert rows.main.stream == "causal"
    assert "only tokens 3 to 5" in rows.provenance.notes[0]
    whole, part = read(loaded("bert")), read(loaded("bert"), window=(2, 7))
    np.testing.assert_allclose(part.weights, whole.weights[:, :, 2:8, 2:8], atol=1e-5)
    assert part.main.key_tokens == whole.main.key_tokens[2:8]
    assert "rows sum to what stays among them" in part.provenance.notes[0]


def test_a_part_lies_in_its_text(loaded, monkeypatch):
    for option, part in (("rows", (0, 14)), ("rows", (5, 4)), ("window", (-1, 3))):
        named = f"--{option} {part[0]}-{part[1]}"
        said = f"^{named} does not lie in this text: it has 14 tokens, 0 to 13$"
        with pytest.raises(UsageError, match=said):
            read(loaded("bert"), **{option: part})
    whole = frame(9, 2**30, monkeypatch, window=(0, 8))
    assert whole == PooledGrid(each_token(9), each_token(9))
    first = frame(9, 2**30, monkeypatch, rows=(0, 0))
    assert first == PooledGrid(TokenBlocks(0, 1), each_token(9))
    assert frame(9, 2**30, monkeypatch, window=(2, 8), max_size=3).keys == TokenBlocks(2, 9, 3)
    monkeypatch.setattr(regions, "free_bytes", lambda device: 2**30)
    (cross,) = choose_grids(Shape, {"cross": (5, 9)}, Region(window=(1, 4))).values()
    assert cross == PooledGrid(TokenBlocks(1, 5), TokenBlocks(1, 5))
    with pytest.raises(UsageError, match="it has 5 tokens, 0 to 4"):
        choose_grids(Shape, {"cross": (5, 9)}, Region(window=(1, 5)))


def test_a_model_that_attends_by_hand_is_pooled_too(loaded, monkeypatch):
    model = loaded("bert")
    expected = read(model, max_size=5)
    monkeypatch.setattr(
        "attnviz.models.hugging_face.capture.passes.read_calls", lambda *_, **_more: []
    )
    by_hand = read(model, max_size=5)
    assert expected.provenance.settings["attention"] == "sdpa, probed"
    assert by_hand.provenance.settings["attention"] == "eager, output_attentions"
    np.testing.assert_allclose(by_hand.weights, expected.weights, atol=1e-5)
    weights = [[link.weight for link in item.main.links] for item in (by_hand, expected)]
    np.testing.assert_allclose(*weights, atol=1e-5)


def test_single_tokens_are_needed_and_links_may_be_left_out(loaded, monkeypatch):
    from attnviz.features.lenses.rollout import rollout

    with pytest.raises(InputError, match=r"needs single tokens, .* 3 and 3: --max-size 15 would"):
        rollout(read(loaded("bert"), max_size=5))
    assert not read(loaded("bert"), max_size=15).main.is_pooled
    monkeypatch.delattr("attnviz.models.hugging_face.capture.exact_links.find_strongest")
    said = []
    with notices_to(said.append):
        assert read(loaded("bert"), max_size=5, links=0).main.links == ()
    assert not any("strongest links" in note for note in said)


class Shape:
    """As much of a model as memory depends on."""

    device = torch.device("cpu")

    class config:  # noqa: N801
        num_hidden_layers, num_attention_heads = 32, 32

        @classmethod
        def get_text_config(cls):
            return cls


def frame(tokens, free, monkeypatch, **wanted):
    monkeypatch.setattr(regions, "free_bytes", lambda device: free)
    return choose_grids(Shape, {"causal": (tokens, tokens)}, Region(**wanted))["causal"]


def test_memory_chooses_the_size(monkeypatch):
    assert frame(1000, 2**34, monkeypatch).keys.blocks == 1000
    assert frame(1000, 2**32, monkeypatch).keys.blocks == 500
    with pytest.raises(ModelError, match=r"about 68\.7 GiB, .*: --max-size 512 would fit"):
        frame(9000, 2**32, monkeypatch, max_size=4096)
    for device, dtype, says in (
        ("cpu", torch.float32, "give a shorter text"),
        ("cuda", torch.float32, "give a shorter text or --dtype bfloat16"),
        ("cuda", torch.bfloat16, "give a shorter text or --device spread or --device cpu"),
    ):
        model = type("Model", (), {"device": torch.device(device), "dtype": dtype})
        assert memory_hint(model) == says
    for size, free, remedy in (
        # 1,024 heads of 64 × 64 blocks take 2^25 bytes, of 127 × 127 a little less than 2^27.
        (4096, 2**28, "--max-size 128 would fit"),
        (128, 2**25, "--max-size 64 would fit"),
        (64, 2**25 - 1, "free some, or give a shorter text"),
    ):
        with pytest.raises(
            ModelError, match=rf"9,000 tokens \(1,024 heads × .* is free: {remedy}$"
        ):
            frame(9000, free, monkeypatch, max_size=size)
    for free, blocks in ((2**30, 256), (2**29, 128), (2**25, 64)):
        assert frame(131_072, free, monkeypatch).keys.blocks == blocks


def test_transformers_is_left_as_it_was():
    before = AttentionInterface.get_interface

    def fail():
        with watch_kernels(lambda call: None):
            assert AttentionInterface.get_interface is not before
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert AttentionInterface.get_interface is before


def test_layers_and_streams_are_named_by_paths():
    assert match_stream("encoder", {"self": ()}) == match_stream("decoder", {"self": ()}) == "self"
    assert match_stream("cross", {"self": ()}) is None
    assert match_stream("vision", {"self": ()}) is None
    assert match_stream("self", {"encoder": (), "decoder": (), "cross": ()}) is None
    assert layer_names(["layers.1.attn", "layers.5.attn"]) == ["1", "5"]
    assert layer_names(["groups.0.inner.0.attn"] * 3) == ["0", "1", "2"]
    assert layer_names(["stages.0.blocks.0.a", "stages.0.blocks.1.a"]) == ["0", "1"]
    assert layer_names(["shared.attn"] * 2, attending=[3, 7]) == ["3", "7"]
    for path, stream in (
        ("encoder.layer.3.attention.self", "encoder"),
        ("transformer.decoder.block.0.layer.0.SelfAttention", "decoder"),
        ("model.decoder.layers.0.encoder_attn", "cross"),
        ("decoder.block.1.layer.1.EncDecAttention", "cross"),
        ("h.0.attn", "self"),
        ("vision_tower.encoder.layers.0.self_attn", "vision"),
        ("text_model.encoder.layers.0.self_attn", "text"),
    ):
        assert stream_of(path) == stream
    for numbers, stream, heads in (
        ({}, "self", 1),
        ({"num_hidden_layers": 3}, "self", 3),
        ({"num_attention_heads": 5}, "encoder", 5),
        ({"encoder_layers": 2, "decoder_layers": 3, "num_hidden_layers": 9}, "encoder", 2),
        ({"encoder_layers": 2, "decoder_layers": 3, "num_hidden_layers": 9}, "cross", 3),
        ({"num_decoder_layers": 4, "decoder_attention_heads": 6}, "decoder", 24),
    ):
        config = SimpleNamespace(**numbers)
        config.get_text_config = lambda config=config: config
        assert heads_of(config, stream) == heads


def lines(attention, format_name):
    from attnviz.analyses.view import views
    from attnviz.renderers import Display, Views
    from attnviz.renderers.reports import make_renderer

    return make_renderer(format_name, Display()).add(
        attention, Views(lambda: views(attention, top=3))
    )


def test_data_and_links_count_from_the_start_of_the_text(loaded):
    pooled = read(loaded("bert"), max_size=5)
    again = from_document(to_document(pooled)).main
    assert (again.blocks, again.links) == (pooled.main.blocks, pooled.main.links)
    part = read(loaded("bert"), window=(2, 7))
    first = lines(part, "tsv").splitlines()[1].split("\t")
    assert (first[4], first[6]) == ("2", "2")
    again = from_document(to_document(part))
    assert again.main.starts == (2, 2)
    assert read(loaded("bert"), rows=(3, 5)).main.starts == (3, 0)
    best = max(pooled.main.links, key=lambda link: link.weight)
    first = lines(pooled, "links").splitlines()[0]
    assert f"{best.query}[{best.query_position}] → {best.key}[{best.key_position}]" in first


def test_what_will_be_pooled_is_announced_first(loaded, monkeypatch):
    order = []
    model = loaded("bert")
    forward = model.model.forward
    monkeypatch.setattr(
        model.model, "forward", lambda *a, **k: (order.append("run"), forward(*a, **k))[1]
    )
    with notices_to(order.append):
        found = read(model, max_size=5)
    assert "maps show 5 × 5 blocks" in order[0]
    assert "--top 0 skips it" in order[1]
    assert order[2] == "run"
    assert set(order[:2]) <= set(found.provenance.notes)


def test_blocks_of_parts_and_their_tokens():
    assert split_blocks(4, 15, 3) == TokenBlocks(4, 15, 4)
    assert split_blocks(4, 15, 3).spans == [(4, 8), (8, 12), (12, 15)]
    assert split_blocks(4, 15, 3).blocks == 3
    assert split_blocks(4, 15, 11) == TokenBlocks(4, 15, 1)
    tokens = (
        Token("[CLS]", 0, 0, special=True),
        Token("the", 5, 8),
        Token("cat", 9, 12),
        Token("[SEP]", 0, 0, special=True),
        Token("[PAD]", 0, 0, special=True),
        Token("x", 13, 14),
    )
    assert TokenBlocks(0, 6, 2).tokens(tokens) == (
        Token("0–1 [CLS] … the", 5, 8),
        Token("2–3 cat … [SEP]", 9, 12),
        Token("4–5 [PAD] … x", 13, 14),
    )
    assert TokenBlocks(1, 6, 4).tokens(tokens) == (
        Token("1–4 the … [PAD]", 5, 12),
        Token("5 x", 13, 14),
    )
    assert TokenBlocks(3, 5, 2).tokens(tokens) == (Token("3–4 [SEP] … [PAD]", 0, 0, special=True),)
    assert TokenBlocks(1, 3).tokens(tokens) == tokens[1:3]
    whole, part = each_token(9), TokenBlocks(2, 5)
    assert region_note(PooledGrid(whole, whole), (9, 9)) == ""
    assert region_note(PooledGrid(part, whole), (9, 9)) == (
        "only tokens 2 to 4 of 9 tokens attend, to all of them"
    )
    assert region_note(PooledGrid(part, part), (9, 9)) == (
        "only tokens 2 to 4 of 9 tokens attend, and only to each other: "
        "rows sum to what stays among them"
    )
    blocks = PooledGrid(TokenBlocks(2, 8, 3), TokenBlocks(0, 9, 2))
    assert region_note(blocks, (9, 9)).startswith(
        "tokens 2 to 7 of 9 tokens: the maps show 2 × 5 blocks of 3 × 2 tokens"
    )
