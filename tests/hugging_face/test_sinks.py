"""What goes to sinks, against slow loops over plain transformers' eager weights."""

import json

import numpy as np
import pytest
import torch
import transformers

from tests.hugging_face.tiny_models import gpt2, small_gpt_oss
from tests.invoke import attnviz

TEXT = "The cat sat on the mat because it was tired"
pytestmark = pytest.mark.usefixtures("silence")


@pytest.fixture(scope="module")
def rested(tmp_path_factory):
    """A GPT-2 without a special token at the start, whose heads rest on the first position."""
    folder = tmp_path_factory.mktemp("rested")
    gpt2(folder)
    model = transformers.GPT2LMHeadModel.from_pretrained(folder)
    with torch.no_grad():
        first = torch.randn(32, generator=torch.Generator().manual_seed(1))
        model.transformer.wpe.weight[0] = 40 * first
        for layer in model.transformer.h:  # all queries look for what the first position is
            stream = layer.ln_1(first)
            key = stream @ layer.attn.c_attn.weight[:, 32:64]
            layer.attn.c_attn.bias[:32] += 30 * key / key.norm()
    model.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def learned(tmp_path_factory):
    """A tiny gpt-oss: its softmax has a column more, which is no token."""
    folder = tmp_path_factory.mktemp("learned")
    small_gpt_oss(folder, num_hidden_layers=2, intermediate_size=16, sliding_window=64)
    model = transformers.GptOssForCausalLM.from_pretrained(folder)
    with torch.no_grad():
        for number, layer in enumerate(model.model.layers):
            layer.self_attn.sinks += 1 + number
    model.save_pretrained(folder)
    return folder


def eager(folder):
    """Each layer's weights (heads, queries, keys) of plain transformers."""
    model = transformers.AutoModelForCausalLM.from_pretrained(
        folder, attn_implementation="eager", dtype=torch.float32
    )
    ids = transformers.AutoTokenizer.from_pretrained(folder)(TEXT, return_tensors="pt")
    with torch.no_grad():
        output = model(**ids, output_attentions=True, use_cache=False)
    return np.stack([layer[0].double().numpy() for layer in output.attentions])


def without_sinks(weights, *, first):
    """The slow loop: no attention on the first token, and every row scaled to sum to 1."""
    found = np.zeros_like(weights)
    for layer, head, query, key in np.ndindex(weights.shape):
        if first and 0 in (query, key):
            continue
        row = weights[layer, head, query, int(first) :]
        found[layer, head, query, key] = weights[layer, head, query, key] / row.sum()
    return found


def test_a_first_token_that_is_a_sink_is_left_out(rested):
    weights = eager(rested)
    share = weights[:, :, 1:, 0].mean()  # of the rows that see more than it
    assert share > 0.5
    done = attnviz("self", TEXT, "-m", rested, "--special", "renormalise", "-f", "json")
    document = done.json()
    (item,) = document["maps"]
    found = np.array(item["weights"])
    np.testing.assert_allclose(found, without_sinks(weights, first=True), atol=2e-4)
    assert not found[:, :, 0].any()
    np.testing.assert_allclose(found[:, :, 1:].sum(-1), 1, atol=1e-5)
    assert len(item["query_tokens"]) == len(item["key_tokens"]) == weights.shape[-1]
    said = f"it held {share:.0%} of causal; rows were made to sum to 1 again, and its own row is"
    assert said in done.err
    assert document["provenance"]["steps"] == [
        f"special first token 'The' dropped, rows to 1 ({share:.0%} of causal)"
    ]


def test_its_share_is_said_everywhere(rested, tmp_path):
    """The first screen lists links of rows without the sink."""
    weights = eager(rested)
    share = weights[:, :, 1:, 0].mean()
    rest = weights[:, :, 1:, 1:]
    before, itself = (np.diagonal(rest, n, -2, -1).sum() / rest.sum() for n in (-1, 0))
    page, picture = tmp_path / "a.html", tmp_path / "a.svg"
    first = attnviz("self", TEXT, "-m", rested, "--html", page, "--heatmap", picture)
    assert f"the first token ('The', {share:.0%}, a sink) left out, rows sum to 1" in " ".join(
        first.text.split()
    )
    sinks = attnviz("self", TEXT, "-m", rested, "-f", "json").json()["sinks"]
    assert sinks["first_is_sink"] is True
    assert sinks["special"] is None
    for name, value in (("first", share), ("before", before), ("itself", itself)):
        assert sinks[name] == pytest.approx(value, abs=1e-4)
    line = (
        f"attention on the first token ('The', a sink) {share:.0%}; of the rest {before:.0%} goes "
        f"to the token before and {itself:.0%} to the token itself"
    )
    table = attnviz("heads", TEXT, "-m", rested, "--no-repeat").text
    assert line in " ".join(table.split())
    assert (
        attnviz("heads", TEXT, "-m", rested, "--no-repeat", "-f", "json")
        .json()["sinks"]
        .endswith(line)
    )
    assert json.dumps(line)[1:-1] in page.read_text("utf-8")
    lines = attnviz("self", TEXT, "-m", rested).text.splitlines()
    assert not [line for line in lines if "→ The" in line and line.startswith("  ")]
    row = next(line for line in lines if line.startswith("The "))
    assert row.split() == ["The", "–"]  # nothing is left of it


def test_a_learned_sink_is_scaled_away_and_said(learned):
    weights = eager(learned)
    share = 1 - weights.sum(-1).mean()
    assert 0.05 < share < 0.95
    done = attnviz("self", TEXT, "-m", learned, "--special", "renormalise", "-f", "json")
    found = np.array(done.json()["maps"][0]["weights"])
    np.testing.assert_allclose(found, without_sinks(weights, first=False), atol=2e-4)
    assert f"a learned sink held {share:.0%}; rows were made to sum to 1" in done.err
    kept = attnviz("self", TEXT, "-m", learned, "-f", "json").json()
    assert kept["sinks"]["learned"] == pytest.approx(share, abs=1e-4)
    assert kept["provenance"]["settings"]["learned sink"] is True
    screen = " ".join(attnviz("self", TEXT, "-m", learned).text.split())
    assert f"a learned sink ({share:.0%}) left out, rows sum to 1" in screen
