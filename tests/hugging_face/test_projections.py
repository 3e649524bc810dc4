"""Queries and keys as the kernels took them, their weights, and the heads that share them."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from transformers import AutoConfig, AutoModel, LlamaConfig, LlamaModel

from attnviz import attend as attend_text
from attnviz.core.errors import AttentionError, UsageError
from attnviz.models.hugging_face.capture.capture import capture
from attnviz.models.hugging_face.capture.region import Region
from tests.hugging_face.ask import attend, cross
from tests.hugging_face.test_families import inputs_of, make
from tests.hugging_face.tiny_heads import widened
from tests.invoke import attnviz

TEXT = "The professor who supervised the student published the paper."
PAIR = "The red car is fast", "La voiture rouge est rapide"
KEEP = Region(keep_qk=True)


def scores_of(kept):
    return np.einsum("lhqd,lhkd->lhqk", kept.query, kept.key) * kept.scale


def softmax(scores, stream):
    if stream in {"causal", "decoder"}:
        scores = np.where(np.tri(scores.shape[-1], dtype=bool), scores, -np.inf)
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


@pytest.mark.parametrize("kind", ["bert", "roberta", "gpt2", "llama", "bart"])
def test_scaled_products_give_the_weights(kind, loaded):
    attention = attend(replace(loaded(kind), region=KEEP), TEXT)
    kept = attention.projections[attention.main.stream].of(attention.main)
    assert not kept.besides
    expected = softmax(scores_of(kept), attention.main.stream)
    np.testing.assert_allclose(attention.weights, expected, atol=1e-5)


@pytest.mark.parametrize(("kind", "stream"), [("gpt2", "causal"), ("llama", "causal")])
def test_what_follows_the_weights_is_kept_for_the_page(kind, stream, folder_of):
    asked = {"model": str(folder_of(kind)), "stream": stream}
    kept = attend_text(TEXT, **asked, keep_qk=True).projections[stream]
    for name, lens in (("writes", "logits"), ("effects", "effect")):
        found = attend_text(TEXT, **asked, lens=lens).weights
        np.testing.assert_allclose(getattr(kept, name), found, atol=1e-5)
    assert kept.value.shape[:3] == kept.key.shape[:3]
    assert len(kept.predicted) == kept.query.shape[2]


def test_keys_of_groups_and_rows_are_kept(loaded):
    model = loaded("llama")
    groups = model.model.config.num_key_value_heads
    attention = attend(replace(model, region=KEEP), TEXT)
    key = attention.projections["causal"].key
    shared = key.shape[1] // groups
    assert shared > 1
    np.testing.assert_array_equal(key, key[:, ::shared].repeat(shared, axis=1))
    whole = attend(replace(loaded("bert"), region=KEEP), TEXT)
    rows = attend(replace(loaded("bert"), region=Region(rows=(2, 4), keep_qk=True)), TEXT)
    kept = rows.projections["self"].of(rows.main)
    np.testing.assert_allclose(kept.query, whole.projections["self"].query[:, :, 2:5], atol=1e-6)
    np.testing.assert_allclose(rows.weights, softmax(scores_of(kept), "self"), atol=1e-5)
    assert not attend(loaded("bert"), TEXT).projections


@pytest.mark.parametrize("kind", ["bart", "marian"])
def test_a_pair_has_them_for_all_three_streams(kind, loaded):
    attention = cross(replace(loaded(kind), region=KEEP), *PAIR)
    for item in attention.maps:
        kept = attention.projections[item.stream].of(item)
        np.testing.assert_allclose(item.weights, softmax(scores_of(kept), item.stream), atol=1e-5)


def test_caps_and_biases_come_after_the_product(loaded):
    model = loaded("gemma2")
    attention = attend(replace(model, region=KEEP), TEXT)
    scores = scores_of(attention.projections["causal"])
    cap = model.model.config.attn_logit_softcapping
    assert attention.projections["causal"].besides == f"a soft cap of {cap:g}"
    capped = np.tanh(scores / cap) * cap
    # Layers with a sliding window hide earlier keys too.
    expected = softmax(np.where(attention.weights > 0, capped, -np.inf), "causal")
    np.testing.assert_allclose(attention.weights, expected, atol=1e-5)
    model = loaded("t5")
    attention = attend(replace(model, region=KEEP), TEXT)
    kept = attention.projections["encoder"]
    first = model.model.encoder.block[0].layer[0].SelfAttention
    tokens = len(attention.tokens)
    bias = first.compute_bias(tokens, tokens).detach().numpy()
    assert kept.scale == 1
    assert kept.besides == "a position bias"
    expected = softmax(scores_of(kept) + bias, "encoder")
    np.testing.assert_allclose(attention.weights, expected, atol=1e-5)


@pytest.mark.parametrize("part", [{"window": (1, 4)}, {"max_size": 4}])
def test_parts_without_every_key_are_refused(part, loaded):
    said = (
        r"^--keep-qk needs every key by itself, and a part of a text or blocks of its tokens were "
        r"to be shown: leave --window out, or give a larger --max-size or fewer tokens$"
    )
    with pytest.raises(UsageError, match=said):
        attend(replace(loaded("bert"), region=Region(**part, keep_qk=True)), TEXT)


def test_odd_families_are_refused_or_named(folder_of):
    config = AutoConfig.from_pretrained(folder_of("gpt2"), scale_attn_by_inverse_layer_idx=True)
    torch.manual_seed(0)
    model = AutoModel.from_config(config).eval()
    ids = torch.arange(5)[None]
    said = (
        r"^the layers of architecture 'gpt2' differ in heads, head size or scale, and --keep-qk "
        r"shows one of each: leave it out$"
    )
    with pytest.raises(AttentionError, match=said):
        capture(model, {"input_ids": ids}, {"causal": (5, 5)}, region=KEEP)
    model, _ = make("deberta-v2")
    said = (
        r"^architecture 'deberta-v2' calls no attention kernel and keeps its queries and keys to "
        r"itself: leave --keep-qk out$"
    )
    with pytest.raises(AttentionError, match=said):
        capture(model, inputs_of("deberta-v2"), {"self": (13, 13)}, region=KEEP)
    model, _ = make("gpt_oss")
    (found, *_) = capture(model, inputs_of("gpt_oss"), {"self": (13, 13)}, region=KEEP)
    assert found.projections.besides == "a sink"


SIDES = {"self": (13, 13)}
CAT = "The cat sat on the mat"

pytestmark = pytest.mark.usefixtures("silence")


def sizes_in(model, inputs):
    return [size for item in capture(model, inputs, SIDES) for size in item.group_sizes]


def test_sizes_are_those_of_families_and_layers():
    for name, sizes in (
        ("llama", [2, 2]),
        ("gpt2", [1, 1]),
        ("gpt_bigcode", [4, 4]),  # one head of keys for all
        ("falcon", [4, 4]),  # calls no kernel
        ("gemma3n_text", [2, 2, 2, 2]),  # its last layers take the keys of earlier ones
    ):
        model, _ = make(name)
        assert sizes_in(model, inputs_of(name)) == sizes
    inputs = {"input_ids": torch.arange(3, 16)[None]}
    model = uneven("sdpa")
    assert sizes_in(model, inputs) == [2, 4, 2]


def uneven(attention):
    """A Llama whose second layer has fewer heads of keys than the first (DeciLM, Nemotron)."""
    config = LlamaConfig(
        vocab_size=50,
        hidden_size=32,
        intermediate_size=24,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        attn_implementation=attention,
    )
    torch.manual_seed(0)
    model = LlamaModel(config)
    middle = model.layers[1].self_attn
    middle.k_proj, middle.v_proj = (torch.nn.Linear(32, 8, bias=False) for _ in range(2))
    middle.num_key_value_groups = 4
    return widened(model).eval()


def means_by_hand(layers, sizes):
    """The oracle: a loop over heads, layer by layer."""
    return [
        [
            sum(heads[group * size + n] for n in range(size)) / size
            for group in range(len(heads) // size)
        ]
        for heads, size in zip(layers, sizes, strict=True)
    ]


@pytest.mark.parametrize("route", [(), ("--device", "torch")], ids=["light", "torch"])
def test_a_map_is_the_mean_of_transformers_heads(folder_of, route):
    from transformers import AutoModel, AutoTokenizer

    folder = folder_of("llama")
    model = AutoModel.from_pretrained(folder, attn_implementation="eager")
    ids = AutoTokenizer.from_pretrained(folder)(CAT, return_tensors="pt")
    with torch.no_grad():
        layers = [one[0].numpy() for one in model(**ids, output_attentions=True).attentions]
    done = attnviz("self", CAT, "-m", folder, "--kv", "-f", "json", *route)
    (document,) = done.json() if isinstance(done.json(), list) else [done.json()]
    (item,) = document["maps"]
    oracle = np.array(means_by_hand(layers, [2] * len(layers)))
    np.testing.assert_allclose(item["weights"], oracle, atol=1e-5)
    assert item["heads"] == [0, 1]
    assert "heads are counted as key–value heads" in done.err
    assert document["provenance"]["steps"] == ["key–value heads (each the mean of 2 query heads)"]
    assert "group_sizes" not in document["provenance"]


def test_a_file_keeps_which_heads_share(folder_of, tmp_path):
    folder = folder_of("llama")
    for name in ("a.json", "a.npz", "a.parquet"):
        path = tmp_path / name
        assert attnviz("self", CAT, "-m", folder, "-o", path, "-f", "none").status == 0
        found = attnviz("render", path, "--kv", "--head", "1.1", "-f", "tsv")
        direct = attnviz("self", CAT, "-m", folder, "--kv", "--head", "1.1", "-f", "tsv")
        assert found.text == direct.text
        assert len(found.text.splitlines()) > 10
    own = tmp_path / "kv.json"
    attnviz("self", CAT, "-m", folder, "--kv", "-o", own, "-f", "none")
    assert "has been applied to these maps" in attnviz("render", own, "--kv").mistake
    one = tmp_path / "one.json"
    attnviz("self", CAT, "-m", folder, "--head", "1.3", "-o", one, "-f", "none")
    assert "--kv joins all query heads of a layer" in attnviz("render", one, "--kv").mistake


def test_effects_are_joined_and_single_heads_refused(folder_of):
    done = attnviz("self", CAT, "-m", folder_of("llama"), "--kv", "--lens", "effect", "-f", "json")
    assert done.json()["maps"][0]["heads"] == [0, 1]
    assert "measured" not in done.json()
    said = attnviz("self", CAT, "-m", folder_of("gpt2"), "--kv").mistake
    assert "--kv has nothing to join: each head of 'gpt2" in said
    assert said.endswith("has keys and values of its own")
    assert said.count("\n") == 0


def test_groups_are_marked(folder_of, tmp_path):
    from attnviz import attend

    result = attend(CAT, model=str(folder_of("llama")))
    (axes, *_) = result.grid().axes
    lines = [one for one in axes.collections if one.get_gid() == "group"]
    layers, heads = result.weights.shape[:2]
    assert len(lines) == layers * heads // 2
    page = result.page()
    assert '"groups":[' + ",".join(["2"] * layers) + "]" in page.replace(" ", "")
    for text in (page, result.table(width=200)):
        assert "every 2 query heads share keys and values, and look" in text
    document = attnviz("heads", CAT, "-m", folder_of("llama"), "--no-repeat", "-f", "json").json()
    assert {(row["head"], row["kv"]) for row in document["heads"]} == {
        (head, head // 2) for head in range(heads)
    }
    assert document["groups"].startswith("every 2 query heads share keys and values")
