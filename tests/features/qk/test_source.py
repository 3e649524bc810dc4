"""Queries and keys that another program dumped: the weights are those that it had."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
import transformers

import attnviz
from attnviz.core.errors import InputError, UsageError
from attnviz.features.qk.engine_dump import LayeredArray
from attnviz.models.hugging_face.capture.kernel import watch_kernels
from attnviz.storage.matrices import LONGEST_HEADER
from tests.invoke import attnviz as shell

BASE: dict[str, Any] = {
    "vocab_size": 50, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8,
    "max_position_embeddings": 64, "attn_implementation": "eager",
}  # fmt: skip
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("Llama", {}),
    "gemma2": (
        "Gemma2",
        {"sliding_window": 5, "attn_logit_softcapping": 2.0, "query_pre_attn_scalar": 3,
         "layer_types": ["sliding_attention"] * 2},
    ),
    "gpt-oss": (
        "GptOss",
        {"sliding_window": 4, "layer_types": ["sliding_attention"] * 2,
         "num_local_experts": 2, "num_experts_per_tok": 1},
    ),
}  # fmt: skip


def dumped(family: str) -> tuple[dict[str, Any], Any]:
    """What a hook of a causal model sees, and the weights that transformers gives out."""
    name, more = FAMILIES[family]
    torch.manual_seed(0)
    config = getattr(transformers, f"{name}Config")(**BASE, **more)
    model = getattr(transformers, f"{name}Model")(config).eval()
    with torch.no_grad():
        for one in model.parameters():
            one.normal_(std=0.4)
        calls = []
        with watch_kernels(calls.append):
            found = model(torch.arange(12)[None], output_attentions=True).attentions
    kept: dict[str, Any] = {
        "query": torch.stack([call.query[0] for call in calls]),
        "key": torch.stack([call.key[0] for call in calls]),
        "scale": torch.tensor(calls[0].options["scaling"]),
        "causal": torch.tensor(1),
    }
    if "sliding_window" in more:
        kept["window"] = torch.tensor(more["sliding_window"])
    if family == "gemma2":
        kept["soft_cap"] = torch.tensor(config.attn_logit_softcapping)
    if family == "gpt-oss":
        kept["sinks"] = torch.stack([layer.self_attn.sinks for layer in model.layers]).detach()
    return kept, torch.cat(found).numpy()


@pytest.mark.models
@pytest.mark.parametrize("family", FAMILIES)
def test_weights_are_those_of_the_program_that_dumped(tmp_path, family):
    kept, weights = dumped(family)
    path = tmp_path / "dump.safetensors"
    safetensors.torch.save_file({name: one.contiguous() for name, one in kept.items()}, path)
    found = attnviz.attend("", qk=path)
    assert (found.main.stream, found.learned_sink) == ("causal", family == "gpt-oss")
    np.testing.assert_allclose(found.weights, weights, atol=2e-6)


def test_heads_side_by_side_and_bfloat16_are_read(tmp_path):
    torch.manual_seed(0)
    query, key = torch.randn(5, 4 * 8).bfloat16(), torch.randn(5, 2 * 8).bfloat16()
    path = tmp_path / "dump.safetensors"
    numbers = {"heads": torch.tensor(4), "groups": torch.tensor(2)}
    safetensors.torch.save_file({"query": query, "key": key, **numbers}, path)
    found = attnviz.attend("a b c d e", qk=path)
    query = query.double().view(5, 4, 8).transpose(0, 1)
    key = key.double().view(5, 2, 8).transpose(0, 1).repeat_interleave(2, 0)
    wanted = (query @ key.mT / 8**0.5).softmax(-1)
    np.testing.assert_allclose(found.weights[0], wanted.numpy(), atol=1e-6)
    assert found.tokens == ("a", "b", "c", "d", "e")


def arrays(folder: Path, name: str = "dump.npz", **more: Any) -> Path:
    rng = np.random.default_rng(0)
    made = {"query": rng.normal(size=(3, 40, 4)), "key": rng.normal(size=(3, 40, 4))}
    np.savez(folder / name, **{**made, **more})
    return folder / name


@pytest.mark.parametrize("causal", [False, True])
def test_long_dumps_are_pooled_with_exact_links(tmp_path, causal, monkeypatch):
    bias = np.random.default_rng(1).normal(size=(3, 40, 40))
    bias[:, 0, 0] = 9  # a link of the first token to itself would be the strongest
    path = arrays(tmp_path, bias=bias)
    whole = attnviz.attend("", qk=path, causal=causal).weights
    monkeypatch.setattr("attnviz.features.qk.source.TILE", 280)  # seven rows at a time
    pooled = attnviz.attend("", qk=path, causal=causal, max_size=6, top=5)
    (note,) = (note for note in pooled.provenance.notes if "exact weights of single tokens" in note)
    assert "not counted among them: links of a token to itself" in note
    assert ("links to the first token" in note) is causal
    wanted = np.zeros((1, 3, 6, 6))
    for row in range(40):
        for column in range(40):
            size = min(7, 40 - row // 7 * 7)
            wanted[:, :, row // 7, column // 7] += whole[:, :, row, column] / size
    np.testing.assert_allclose(pooled.weights, wanted, atol=1e-6)
    for head in range(3):
        there = whole[0, head] * (1 - np.eye(40))
        there[:, 0] *= not causal
        best = np.sort(there.ravel())[::-1][:5]
        links = [link for link in pooled.main.links if link.head == str(head)]
        np.testing.assert_allclose([link.weight for link in links], best, rtol=1e-6)
        assert all(
            link.weight == pytest.approx(whole[0, head, link.query_position, link.key_position])
            for link in links
        )
    between = attnviz.attend("", "", qk=path, causal=causal, max_size=6, top=1).main
    assert between.stream == "cross"  # where no place is a token's own
    assert [link.weight for link in between.links] == pytest.approx(whole.max((2, 3)).ravel())
    part = attnviz.attend("", qk=path, causal=causal, rows="10-12").weights
    np.testing.assert_array_equal(part, whole[:, :, 10:13])


def test_queries_that_follow_a_cache_are_the_last_positions(tmp_path):
    rng = np.random.default_rng(0)
    key = rng.normal(size=(2, 6, 4))
    query = rng.normal(size=(2, 6, 4))
    np.savez(tmp_path / "whole.npz", query=query, key=key, causal=1)
    np.savez(tmp_path / "last.npz", query=query[:, 4:], key=key, causal=1, tokens=[*"abcdef"])
    whole, last = (attnviz.attend("", qk=tmp_path / f"{n}.npz") for n in ("whole", "last"))
    np.testing.assert_array_equal(last.weights, whole.weights[:, :, 4:])
    assert [token.text for token in last.main.query_tokens] == ["e", "f"]
    done = shell("cross", "--qk", tmp_path / "last.npz", "-f", "json")
    assert done.json()["maps"][0]["stream"] == "cross"


def test_the_shell_reads_them_and_refuses_other_origins(tmp_path):
    path = arrays(tmp_path, causal=1)
    done = shell("self", "--qk", path, "--head", "0", "-f", "json")
    assert done.json()["provenance"]["settings"]["weights"] == "computed from queries and keys"
    assert len(shell("heads", "--qk", path, "-f", "tsv").rows) == 4
    path = arrays(tmp_path)
    with pytest.raises(UsageError, match="--model and --qk name two origins"):
        attnviz.attend("", qk=path, model="pocket")
    np.savez(tmp_path / "other.npz", query=np.ones((1, 2, 2)))
    with pytest.raises(InputError, match="holds no 'key'; it holds query"):
        attnviz.attend("", qk=tmp_path / "other.npz")


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"key": np.ones((2, 40, 4))}, "do not meet queries"),
        ({"key": np.ones((3, 39, 4))}, "do not meet queries"),
        ({"query": np.ones(4)}, "has the shape .4,., not"),
        ({"heads": 3}, "cannot be split into 3 heads"),
        ({"window": 0}, "'window' in .* must be one number above 0"),
        ({"sinks": np.ones(2)}, "'sinks' .* does not spread to .1, 3."),
        ({"query": np.full((3, 40, 4), 1e200), "key": np.full((3, 40, 4), 1e200)}, "finite"),
        ({"tokens": ["a", "b"]}, "has 40 key tokens, and 2 are named: a b"),
    ],
)
def test_what_does_not_fit_is_one_line(tmp_path, more, why):
    with pytest.raises(InputError, match=why):
        attnviz.attend("", qk=arrays(tmp_path, **more))


def hook_dump(folder: Path, kept: dict[str, Any], *, ranks: int = 1, form: str = "padded") -> Path:
    """What vLLM-Hook writes of a request: a prompt of 9 tokens, then 3 tokens one by one."""
    query, key = (kept[name].transpose(1, 2) for name in ("query", "key"))
    layers, tokens, heads, size = query.shape
    ends = [9, 10, 11, 12] if form != "one" else [tokens]
    starts = [0, *ends[:-1]]
    for rank in range(ranks):
        place, arrays, order = folder / f"tp_rank_{rank}", {}, []
        place.mkdir(parents=True)
        for layer in range(layers):
            name = f"model__layers__{layer}__self_attn__attn"
            q, k = (
                one[layer].chunk(ranks, dim=1)[rank].reshape(tokens, -1) for one in (query, key)
            )
            passes = [q[a:b] for a, b in zip(starts, ends, strict=True)]
            if form == "compact":
                arrays |= {f"{name}__q": q.contiguous(), f"{name}__k": k.contiguous()}
            else:
                padded = torch.nn.utils.rnn.pad_sequence(passes, batch_first=True)
                keys = [k[:end] for end in ends]
                arrays[f"{name}__q"] = padded
                arrays[f"{name}__k"] = torch.nn.utils.rnn.pad_sequence(keys, batch_first=True)
            order.append(
                {"key_q": f"{name}__q", "key_k": f"{name}__k", "layer_num": layer + 3}
                | {"module_name": name, "hookq_mode": "all_tokens"}
            )
        about: dict[str, Any] = {
            "config": {
                "num_attention_heads": heads, "num_key_value_heads": key.shape[2],
                "head_dim": size, "attention_multiplier": float(kept["scale"]),
            },
            "layer_order": order, "batch_size": len(ends), "tp_rank": rank,
            "q_seq_lens": [b - a for a, b in zip(starts, ends, strict=True)],
        }  # fmt: skip
        if form == "compact":
            about |= {"compact_all_tokens": True, "k_full_lens": [tokens], "k_prefix_ends": [ends]}
        else:
            about["k_seq_lens"] = ends
        safetensors.torch.save_file(arrays, place / "qk.safetensors")
        (place / "qk.json").write_text(json.dumps(about))
    return folder


@pytest.mark.parametrize(
    ("form", "ranks"), [("one", 1), ("padded", 1), ("compact", 1), ("padded", 2)]
)
def test_a_folder_of_vllm_hook_gives_its_weights(tmp_path, form, ranks):
    kept, weights = dumped("llama")
    kept = {name: one.bfloat16() if name in ("query", "key") else one for name, one in kept.items()}
    folder = hook_dump(tmp_path / "run", kept, ranks=ranks, form=form)
    found = attnviz.attend("", qk=folder)
    assert found.main.layers == ("3", "4")
    np.testing.assert_allclose(found.weights, weights, atol=0.02)  # bfloat16
    plain = tmp_path / "plain.safetensors"
    safetensors.torch.save_file({name: one.contiguous() for name, one in kept.items()}, plain)
    np.testing.assert_allclose(found.weights, attnviz.attend("", qk=plain).weights, atol=1e-6)
    assert found.provenance.settings["rotary"] == "applied before the dump"


def test_positions_are_turned_where_the_dump_is_of_before(tmp_path):
    torch.manual_seed(0)
    query, key = torch.randn(1, 4, 12, 8), torch.randn(1, 2, 12, 8)
    config = transformers.LlamaConfig(**BASE, rope_theta=500.0)
    emb = transformers.models.llama.modeling_llama.LlamaRotaryEmbedding(config)
    waves = emb(query, torch.arange(12)[None])
    turned = transformers.models.llama.modeling_llama.apply_rotary_pos_emb(query, key, *waves)
    kept = {"query": query, "key": key, "scale": torch.tensor(0.3), "causal": torch.tensor(1)}
    folder = hook_dump(tmp_path / "before", kept)
    after = hook_dump(tmp_path / "after", kept | dict(zip(("query", "key"), turned, strict=True)))
    about = folder / "tp_rank_0" / "qk.json"
    whole = json.loads(about.read_text())
    about.write_text(json.dumps(whole | {"rotated": False}))
    said = attnviz.attend("", qk=folder).provenance.settings["rotary"]
    assert said == "not applied: give rope_theta"
    about.write_text(json.dumps(whole | {"rotated": False, "rope_theta": 500.0}))
    found = attnviz.attend("", qk=folder)
    assert found.provenance.settings["rotary"] == "applied here, base 500"
    np.testing.assert_allclose(found.weights, attnviz.attend("", qk=after).weights, atol=1e-6)


def test_a_dump_that_cannot_be_used_is_one_line(tmp_path):
    kept, _ = dumped("llama")
    folder = hook_dump(tmp_path / "run", kept)
    about, data = (folder / "tp_rank_0" / name for name in ("qk.json", "qk.safetensors"))
    whole = about.read_text()
    changes = {
        "more than one request": json.dumps(json.loads(whole) | {"k_seq_lens": [9, 9, 11, 12]}),
        "it lacks 'config'": "{}",
        "is no dump of queries and keys: it is damaged": whole.replace(
            '"head_dim": 8', '"head_dim": 0'
        ),
        "it lacks 'nothing'": whole.replace('"model__layers__1__self_attn__attn__q"', '"nothing"'),
        "holds 2 heads of keys, and its config says 4": whole.replace(
            '"num_key_value_heads": 2', '"num_key_value_heads": 4'
        ),
    }
    for says, text in changes.items():
        about.write_text(text)
        assert says in shell("self", "--qk", folder).mistake
    about.write_text(whole)
    data.write_bytes(data.read_bytes()[:-400])
    assert "is no dump of queries and keys" in shell("self", "--qk", folder).mistake
    data.write_bytes((LONGEST_HEADER + 1).to_bytes(8, "little") + b"{")
    assert "would have 100,000,001 bytes" in shell("self", "--qk", folder).mistake
    data.unlink()
    assert "holds no qk.safetensors" in shell("self", "--qk", folder).mistake


def test_the_working_folder_may_be_the_dump(tmp_path, monkeypatch):
    kept, weights = dumped("llama")
    monkeypatch.chdir(hook_dump(tmp_path / "run", kept))
    for folder in (".", "./"):
        np.testing.assert_allclose(attnviz.attend("", qk=folder).weights, weights, atol=0.02)


def test_one_layer_of_a_dump_is_in_memory_at_a_time(tmp_path, monkeypatch):
    torch.manual_seed(0)
    kept = {"query": torch.randn(6, 4, 12, 8), "key": torch.randn(6, 2, 12, 8), "scale": 0.3}
    folder = hook_dump(tmp_path / "run", kept, form="one")
    read = []
    whole = LayeredArray.__getitem__
    monkeypatch.setattr(
        LayeredArray, "__getitem__", lambda self, n: read.append((self.side, n)) or whole(self, n)
    )
    attnviz.attend("", qk=folder)
    assert read == [(side, layer) for layer in range(6) for side in "qk"]
