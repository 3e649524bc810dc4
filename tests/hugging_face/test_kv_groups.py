"""Heads that share keys and values: how many do is what the kernels were called with."""

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaModel

from attnviz.models.hugging_face.capture.capture import capture
from tests.hugging_face.test_families import inputs_of, make
from tests.hugging_face.tiny_heads import widened
from tests.invoke import attnviz

SIDES = {"self": (13, 13)}
TEXT = "The cat sat on the mat"

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
    ids = AutoTokenizer.from_pretrained(folder)(TEXT, return_tensors="pt")
    with torch.no_grad():
        layers = [one[0].numpy() for one in model(**ids, output_attentions=True).attentions]
    done = attnviz("self", TEXT, "-m", folder, "--kv", "-f", "json", *route)
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
        assert attnviz("self", TEXT, "-m", folder, "-o", path, "-f", "none").status == 0
        found = attnviz("render", path, "--kv", "--head", "1.1", "-f", "tsv")
        direct = attnviz("self", TEXT, "-m", folder, "--kv", "--head", "1.1", "-f", "tsv")
        assert found.text == direct.text
        assert len(found.text.splitlines()) > 10
    own = tmp_path / "kv.json"
    attnviz("self", TEXT, "-m", folder, "--kv", "-o", own, "-f", "none")
    assert "has been applied to these maps" in attnviz("render", own, "--kv").mistake
    one = tmp_path / "one.json"
    attnviz("self", TEXT, "-m", folder, "--head", "1.3", "-o", one, "-f", "none")
    assert "--kv joins all query heads of a layer" in attnviz("render", one, "--kv").mistake


def test_effects_are_joined_and_single_heads_refused(folder_of):
    done = attnviz("self", TEXT, "-m", folder_of("llama"), "--kv", "--lens", "effect", "-f", "json")
    assert done.json()["maps"][0]["heads"] == [0, 1]
    assert "measured" not in done.json()
    said = attnviz("self", TEXT, "-m", folder_of("gpt2"), "--kv").mistake
    assert "--kv has nothing to join: each head of 'gpt2" in said
    assert said.endswith("has keys and values of its own")
    assert said.count("\n") == 0


def test_groups_are_marked(folder_of, tmp_path):
    from attnviz import attend

    result = attend(TEXT, model=str(folder_of("llama")))
    (axes, *_) = result.grid().axes
    lines = [one for one in axes.collections if one.get_gid() == "group"]
    layers, heads = result.weights.shape[:2]
    assert len(lines) == layers * heads // 2
    page = result.page()
    assert '"groups":[' + ",".join(["2"] * layers) + "]" in page.replace(" ", "")
    for text in (page, result.table(width=200)):
        assert "every 2 query heads share keys and values, and look" in text
    document = attnviz("heads", TEXT, "-m", folder_of("llama"), "--no-repeat", "-f", "json").json()
    assert {(row["head"], row["kv"]) for row in document["heads"]} == {
        (head, head // 2) for head in range(heads)
    }
    assert document["groups"].startswith("every 2 query heads share keys and values")
