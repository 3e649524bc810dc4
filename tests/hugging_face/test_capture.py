"""Weights against transformers' own, and what is refused as no weights."""

import copy
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from transformers import AutoModel, AutoModelForSeq2SeqLM, BertConfig

from attnviz.core.attention_map import Link, Token
from attnviz.core.errors import AttentionError, ModelError
from attnviz.models.hugging_face.capture import passes as readings
from attnviz.models.hugging_face.capture import region
from attnviz.models.hugging_face.capture.capture import (
    EAGER_ROUTE,
    SECOND_PASS,
    Captured,
    as_map,
    capture,
    capture_many,
    capture_notes,
    group_layers,
    ignored_positions,
)
from attnviz.models.hugging_face.capture.exact_links import Cell, IgnoredPositions, links_note
from attnviz.models.hugging_face.capture.passes import check_rows, layer_numbers, read_batch
from tests.hugging_face.ask import attend, cross
from tests.hugging_face.tiny_models import but_slow
from tests.precision import both, check_as_near

TEXT = "The professor who supervised the student published the paper."
FLOAT32 = SimpleNamespace(config=BertConfig(), dtype=torch.float32, device=torch.device("cpu"))
SELF = {
    "bert": "self",
    "roberta": "self",
    "gpt2": "causal",
    "llama": "causal",
    "gemma2": "causal",
    "t5": "encoder",
    "byt5": "encoder",
    "bart": "encoder",
    "marian": "encoder",
}
WRITERS = ["t5", "byt5", "bart", "marian", "m2m_100"]


def stacked(layers):
    return torch.cat([layer.detach() for layer in layers]).numpy()


@pytest.mark.slow
@pytest.mark.parametrize("kind", but_slow(SELF))
def test_self_attention_is_that_of_transformers(kind, folder_of, loaded):
    model = loaded(kind)
    own = AutoModel.from_pretrained(folder_of(kind), attn_implementation="eager").eval()
    own = own.get_encoder() if own.config.is_encoder_decoder else own
    ids = torch.tensor([model.tokenizer(TEXT)["input_ids"]])

    def read(own):
        return [stacked(own(input_ids=ids, output_attentions=True).attentions)]

    attention = attend(model, TEXT)
    assert [item.stream for item in attention.maps] == [SELF[kind]]
    assert len(attention.tokens) == ids.shape[1]
    check_as_near([attention.weights], *both(own, read))
    np.testing.assert_allclose(attention.weights.sum(-1), 1, atol=1e-5)


@pytest.mark.parametrize("kind", WRITERS)
@pytest.mark.core
def test_cross_attention_is_that_of_transformers(kind, folder_of, loaded):
    model = loaded(kind)
    attention = cross(model, "The red car is fast", "La voiture rouge est rapide")
    own = AutoModelForSeq2SeqLM.from_pretrained(folder_of(kind), attn_implementation="eager").eval()
    source = torch.tensor([model.tokenizer("The red car is fast")["input_ids"]])
    labels = model.tokenizer("La voiture rouge est rapide")["input_ids"]
    ends = labels[-1] == model.tokenizer.eos_token_id
    start = own.config.decoder_start_token_id
    target = torch.tensor([[start, *(labels[:-1] if ends else labels)]])
    streams = ("cross", "encoder", "decoder")

    def read(own):
        output = own(input_ids=source, decoder_input_ids=target, output_attentions=True)
        return [stacked(getattr(output, f"{stream}_attentions")) for stream in streams]

    check_as_near([attention.map_of(stream).weights for stream in streams], *both(own, read))
    assert attention.main.stream == "cross"
    assert attention.main.query_side == "target"
    assert attention.main.key_side == "source"


def test_one_token_is_causal_and_memory_is_heeded(loaded, monkeypatch):
    assert attend(loaded("gpt2"), "a").main.stream == "causal"
    model = loaded("bert")
    monkeypatch.setattr(region, "free_bytes", lambda device: 100)
    monkeypatch.setattr(readings, "read_calls", None)
    with pytest.raises(ModelError, match=r"12 heads × .*would take about .* is free: free some"):
        attend(model, TEXT)


def read_layers(layers, model, side, stream):
    """Each layer's weights of one text by its number, checked."""
    arrays = {number: one[0] for number, one in read_batch(layers, model.config, side).items()}
    for number, array in arrays.items():
        check_rows(array, number, model, stream)
    return arrays


@pytest.mark.parametrize("nothing", [None, (), (None, None)])
def test_no_weights_are_refused(nothing):
    said = (
        r"^architecture 'bert' gives out no attention weights: it has no attention, or keeps it to "
        r"itself$"
    )
    with pytest.raises(AttentionError, match=said):
        read_layers(nothing, FLOAT32, (2, 2), "self")
    said = (
        r"^layer 0 of architecture 'bert' gives out attention of shape \(1, 2, 3, 5\), which is "
        r"not \(1, heads, 3 queries, 3 keys\): of its 5 keys 3 are tokens, and the other 2 are of "
        r"a kind that is not declared, or not read here$"
    )
    with pytest.raises(AttentionError, match=said):
        read_layers((torch.zeros(1, 2, 3, 5),), FLOAT32, (3, 3), "self")
    with pytest.raises(AttentionError, match=r"these are not attention weights"):
        read_layers((torch.full((1, 1, 2, 2), -0.5),), FLOAT32, (2, 2), "self")
    for layer, shape in (
        (torch.zeros(2, 2, 3, 3), r"\(2, 2, 3, 3\)"),
        (torch.zeros(2, 3, 3), r"\(2, 3, 3\)"),
        ("no tensor", r"\(\)"),
    ):
        with pytest.raises(AttentionError, match=rf"^layer 0 .* 'bert' .* shape {shape}, which"):
            read_layers((layer,), FLOAT32, (3, 3), "self")


def test_layers_are_grouped_and_numbered():
    arrays = {str(number): np.ones((heads, 2, 2)) for number, heads in enumerate([2, 2, 1, 2])}
    cells = {name: ((Cell(0, 0, float(name)),),) * len(array) for name, array in arrays.items()}
    found = group_layers("self", arrays, cells, route="sdpa, probed")
    runs = [(item.layers, item.weights.shape) for item in found]
    assert runs == [(("0", "1"), (2, 2, 2, 2)), (("2",), (1, 1, 2, 2)), (("3",), (1, 2, 2, 2))]
    assert found[0].links == (cells["0"], cells["1"])
    assert found[1].links == (cells["2"],)
    assert {item.route for item in found} == {"sdpa, probed"}
    assert group_layers("self", arrays)[0].links == ()
    config = BertConfig()
    config.layer_types = ["linear_attention", "full_attention", "mamba", "sliding_attention"]
    assert layer_numbers(config, ["a", "b"]) == ["1", "3"]
    assert layer_numbers(config, [None, "a", None, "b"]) == ["1", "3"]
    layers = (None, torch.full((1, 2, 1, 3), 0.25, dtype=torch.bfloat16), torch.zeros(1, 1, 1, 3))
    found = read_layers(layers, FLOAT32, (1, 3), "self")
    assert {name: (array.shape, array.dtype) for name, array in found.items()} == {
        "1": ((2, 1, 3), np.float32),
        "2": ((1, 1, 3), np.float32),
    }


@pytest.mark.parametrize(("dtype", "size"), [(torch.float16, 2), (torch.float8_e5m2, 4)])
def test_a_second_pass_needs_each_matrix_twice(dtype, size, monkeypatch):
    asked = []
    monkeypatch.setattr(readings, "check_fit", lambda *given: asked.append(given))
    heads = {"encoder_attention_heads": 4, "decoder_attention_heads": 5}
    config = SimpleNamespace(model_type="t5", encoder_layers=2, decoder_layers=3, **heads)
    config.get_text_config = lambda: config
    model = SimpleNamespace(config=config, dtype=dtype, device=torch.device("cpu"))
    readings._check_memory(
        model, {"encoder": (1000, 1000), "decoder": (7, 7), "cross": (7, 1000)}, 2
    )
    (needed, _, said, remedy) = asked[0]
    assert needed == 2 * (8 * 1000 * 1000 + 15 * 7 * 7 + 15 * 7 * 1000) * (size + 4)
    assert said.endswith("gives out all its matrices at once: 38 heads × 1,000 tokens²")
    assert remedy == "give a shorter text"


@pytest.mark.parametrize(
    ("dtype", "most"), [(torch.float32, 1e-3), (torch.float16, 1e-2), (torch.bfloat16, 2e-2)]
)
def test_rows_may_sum_to_a_little_more_than_one(dtype, most):
    model = SimpleNamespace(config=BertConfig(), dtype=dtype, device=torch.device("cpu"))
    readings.check_rows(np.array([[[1 + 0.9 * most, 0.0]]]), "7", model, "self")
    with pytest.raises(AttentionError) as caught:
        readings.check_rows(np.array([[[0.5 + 1.1 * most, 0.5]]]), "7", model, "self")
    assert str(caught.value) == (
        "layer 7 of architecture 'bert' gives out values down to 0.5 in rows that sum to as much "
        f"as {1 + 1.1 * most:.4g}: these are not attention weights"
    )


def captured(weights, stream="self", grid=None, links=(), route=""):
    layers = tuple(map(str, range(len(weights))))
    return Captured(stream, layers, np.asarray(weights, np.float32), grid, links, route)


WORDS = {"text": tuple(map(Token, "abcd")), "other": tuple(map(Token, "xyz"))}


def test_parts_of_causal_maps_and_exact_links():
    for stream, ahead, called in (
        ("self", 0, "causal"),
        ("causal", 1, "self"),
        ("decoder", 0, "decoder"),
    ):
        weights = np.tril(np.ones((2, 1, 4, 4)))
        weights[1, 0, 1, 2] = ahead
        assert as_map(captured(weights, stream), WORDS, "text", "text").stream == called
    rows = region.PooledGrid(region.TokenBlocks(2, 4), region.each_token(4))
    weights = np.array([[[[1, 1, 1, 0], [1, 1, 1, 1]]]])
    made = as_map(captured(weights, grid=rows), WORDS, "text", "text")
    assert (made.stream, made.starts, made.blocks) == ("causal", (2, 0), (1, 1))
    assert made.query_tokens == WORDS["text"][2:]
    assert as_map(captured(weights[..., ::-1], grid=rows), WORDS, "text", "text").stream == "self"
    links = (((Cell(3, 1, 0.75), Cell(2, 0, 0.5)), (Cell(0, 2, 0.25),)),)
    item = captured(np.ones((1, 2, 4, 3)), "cross", links=links)
    made = as_map(item, WORDS, "text", "other")
    assert made.links == (
        Link("d", "y", 0.75, "0", "0", 3, 1),
        Link("c", "x", 0.5, "0", "0", 2, 0),
        Link("a", "z", 0.25, "0", "1", 0, 2),
    )
    assert (made.query_side, made.key_side) == ("text", "other")
    later = replace(item, layers=("7",))
    assert as_map(later, WORDS, "text", "other").layers == ("7",)
    assert [link.layer for link in as_map(later, WORDS, "text", "other").links] == ["7"] * 3


def test_links_and_notes_are_told():
    tokens = (Token("a"), Token("[SEP]", special=True), Token("b"), Token("[PAD]", special=True))
    assert ignored_positions(tokens, causal=False) == IgnoredPositions((1, 3), (1, 3), itself=True)
    assert ignored_positions(tokens, causal=True) == IgnoredPositions(
        (1, 3), (1, 3, 0), itself=True
    )
    first = (Token("[BOS]", special=True), Token("a"))
    assert ignored_positions(first, causal=True).keys == (0,)
    for ignored, told in (
        (IgnoredPositions(), ""),
        (IgnoredPositions(itself=True), "links of a token to itself"),
        (
            IgnoredPositions((1,), (1,), itself=True),
            "links from and to special tokens and links of a token to itself",
        ),
        (
            IgnoredPositions((1,), (1, 0)),
            "links from and to special tokens and links to the first token, on which heads of "
            "causal models rest",
        ),
    ):
        assert links_note(3, ignored).partition("; not counted among them: ")[2] == told
    whole = region.PooledGrid(region.each_token(4), region.each_token(4))
    blocks = region.PooledGrid(region.TokenBlocks(0, 4, 2), region.TokenBlocks(0, 4, 2))
    ones = np.ones((1, 1, 4, 4))
    cells = tuple(Cell(0, key, 0.5) for key in range(3))
    items = [
        captured(ones, grid=whole),
        captured(ones, "causal", blocks, ((cells[:1], cells),), EAGER_ROUTE),
        captured(ones, "causal", blocks),
    ]
    sides = {"self": (4, 4), "causal": (4, 4)}
    note = links_note(3, IgnoredPositions())
    assert capture_notes(items, sides) == (SECOND_PASS, region.region_note(blocks, (4, 4)), note)
    assert capture_notes(items[:1], sides) == ()


@pytest.mark.parametrize("kernel", ["sdpa", "eager"])
def test_of_a_batch_the_first_text_is_checked(kernel, loaded, monkeypatch):
    model = copy.deepcopy(loaded("bert").model)
    model.set_attn_implementation(kernel)
    checked = []
    check = readings.check_mixture
    monkeypatch.setattr(
        readings, "check_mixture", lambda *given: (checked.append(given[3]), check(*given))[1]
    )
    ids = torch.tensor([[2, 5, 3, 0, 0], [2, 6, 7, 8, 3]])
    sides = [{"self": (3, 3)}, {"self": (5, 5)}]
    found = capture_many(model, {"input_ids": ids, "attention_mask": ids != 0}, sides)
    assert set(checked) == {3}
    how = "probed" if kernel == "sdpa" else "given by its kernel"
    for number, (item,) in enumerate(found):
        (alone,) = capture(
            model, {"input_ids": ids[number : number + 1, : 3 + 2 * number]}, sides[number]
        )
        np.testing.assert_allclose(item.weights, alone.weights, atol=1e-5)
        assert item.route == f"{kernel}, {how}"
        assert item.layers == alone.layers
        assert item.grid == alone.grid


@pytest.mark.parametrize(("calls", "ended"), [(3, True), (None, False)])
def test_a_pass_ends_when_all_its_layers_are_read(calls, ended, loaded):
    model, ran = copy.deepcopy(loaded("bert").model), []
    model.register_forward_hook(lambda *_: ran.append(1))
    ids = torch.tensor([[2, 5, 6, 7, 3]])
    ((found,),) = capture_many(model, {"input_ids": ids}, [{"self": (5, 5)}], calls)
    assert found.layers == ("0", "1", "2")
    assert ran == [1] * (not ended)


@pytest.mark.parametrize("by_hand", [True, False])
def test_every_layer_is_checked_by_its_name_and_stream(by_hand, loaded, monkeypatch):
    if by_hand:
        monkeypatch.setattr(readings, "read_calls", lambda *_, **_more: [])
    checked = []
    monkeypatch.setattr(
        "attnviz.models.hugging_face.capture.capture.check_rows",
        lambda array, *named: checked.append((array.shape, named[0], named[2])),
    )
    ids = torch.tensor([[2, 5, 6, 7, 3]])
    capture(loaded("bert").model, {"input_ids": ids}, {"self": (5, 5)})
    assert checked == [((4, 5, 5), str(layer), "self") for layer in range(3)]
