"""What layers without attention amount to, against slow loops written from the papers."""

import functools
import inspect
import sys
from copy import deepcopy

import numpy as np
import pytest
import torch
from transformers import CONFIG_MAPPING, AutoModel

from attnviz.core.errors import AttentionError, UsageError
from attnviz.models.hugging_face.capture import implied
from attnviz.models.hugging_face.capture.capture import capture
from attnviz.models.hugging_face.capture.implied import mixers_of
from attnviz.models.hugging_face.capture.region import Region
from attnviz.models.hugging_face.load.imports import quiet
from tests.hugging_face.tiny_families import EVERY, FAMILIES, GROUPED
from tests.hugging_face.tiny_models import byte_pieces
from tests.invoke import attnviz

pytestmark = pytest.mark.usefixtures("silence")

LENGTH = 21
LAYERS = {
    "bailing_hybrid": "01",
    "bamba": "0",
    "falcon_h1": "01",
    "falcon_mamba": "01",
    "granitemoehybrid": "0",
    "jamba": "02",
    "kimi_linear": "0",
    "lfm2": "0",
    "lfm2_moe": "0",
    "mamba": "01",
    "mamba2": "01",
    "minimax": "1",
    "nemotron_h": "0",
    "nystromformer": "01",
    "olmo_hybrid": "0",
    "qwen3_5_text": "0",
    "qwen3_next": "02",
    "recurrent_gemma": "01",
    "rwkv": "01",
    "xlstm": "01",
    "zamba2": "012",
}
"""The numbers of the layers without attention."""


def make(name, **more):
    sizes = {**EVERY[name].sizes, **more}
    torch.manual_seed(0)
    model = AutoModel.from_config(CONFIG_MAPPING[name](**deepcopy(sizes))).eval()
    with torch.no_grad():
        for weights in model.parameters():
            weights.normal_(std=0.3) if weights.ndim > 1 else weights.add_(
                0.1 * torch.randn_like(weights)
            )
    return model


def read(model, length=LENGTH, **asked):
    inputs = {"input_ids": torch.arange(5, 5 + length)[None]}
    sides, region = {"self": (length, length)}, Region(**asked)
    return capture(model, inputs, sides, region=region, with_mixers=True)


def implied_of(found):
    return [item for item in found if item.stream == "implied"]


# Slow loops, from what the function that a layer calls was given. Each is a recurrence, run once
# for each key with a one at that key.


def numbers(given):
    return {
        name: one.detach().double().numpy() if isinstance(one, torch.Tensor) else one
        for name, one in given.items()
    }


def softplus(x):
    return np.logaddexp(0, x)


def normed(x):
    return x / np.sqrt((x**2).sum(-1, keepdims=True) + 1e-6)


def by_steps(shape, length, step):
    """M of shape (…, time, time): `step(state, t, on)` gives the next state and what is read."""
    made = np.zeros((*shape, length, length))
    for key in range(length):
        state = 0.0
        for t in range(length):
            state, made[..., t, key] = step(state, t, float(t == key))
    return made


def loop_mamba_selective_scan(a, part):
    steps = softplus(a["dt"][0] + a["delta_bias"][:, None])

    def step(state, t, on):
        state = np.exp(a["A"] * steps[:, t, None]) * state
        state = state + steps[:, t, None] * a["B"][0, :, t] * on
        return state, state @ a["C"][0, :, t]

    found = by_steps((len(steps),), steps.shape[1], step)
    z = a["z"][0]
    gate = z / (1 + np.exp(-z))
    return found, lambda mixed, u: (mixed + a["D"][:, None, None] * u) * gate[..., None]


def loop_mamba2_chunk_scan(a, part):
    steps = np.clip(softplus(a["dt"][0] + a["dt_bias"]), *a["dt_limit"])
    enters, leaves = (
        np.repeat(a[name][0], steps.shape[1] // a[name].shape[2], axis=1) for name in "BC"
    )

    def step(state, t, on):
        state = np.exp(steps[t] * a["A"])[:, None] * state + steps[t][:, None] * enters[t] * on
        return state, (state * leaves[t]).sum(-1)

    found = by_steps((steps.shape[1],), len(steps), step)
    return found, lambda mixed, u: mixed + a["D"][:, None, None] * u


def loop_torch_chunk_gated_delta_rule(a, part):
    query, key = normed(a["query"][0]), normed(a["key"][0])
    heads = a["value"].shape[2]
    query, key = (np.repeat(one, heads // one.shape[1], axis=1) for one in (query, key))
    decay = np.exp(a["g"][0])
    decay = decay if decay.ndim == 3 else decay[..., None]  # of a head, or of each place

    def step(state, t, on):
        state = decay[t] * state
        told = (state * key[t]).sum(-1) if np.ndim(state) == 2 else 0.0
        state = state + key[t] * ((on - told) * a["beta"][0, t])[:, None]
        return state, (state * query[t]).sum(-1) / query.shape[-1] ** 0.5

    return by_steps((heads,), len(query), step), lambda mixed, u: mixed


loop_chunk_kimi_delta_attention = loop_torch_chunk_gated_delta_rule


def loop_rwkv_linear_attention(a, part):
    key, first, decay = a["key"][0], a["time_first"], np.exp(a["time_decay"])
    found = np.zeros((key.shape[1], len(key), len(key)))
    for t in range(len(key)):
        for s in range(t + 1):
            found[:, t, s] = np.exp(key[s] + (first if s == t else -(t - 1 - s) * decay))
    return found / found.sum(-1, keepdims=True), lambda mixed, u: mixed


def loop__rnn_scan(a, part):
    keep = a["recurrent_gate"][0] * ~a["reset"][0].astype(bool)

    def step(state, t, on):
        state = keep[t] * state + on
        return state, state

    return by_steps((keep.shape[1],), len(keep), step), lambda mixed, u: mixed


def loop_causal_conv1d_fn(a, part):
    weight, length = a["weight"], a["hidden_states"].shape[-1]
    found = np.zeros((len(weight), length, length))
    for t in range(length):
        for back in range(min(t + 1, weight.shape[1])):
            found[:, t, t - back] = weight[:, -1 - back]
    bias = 0 if a["bias"] is None else a["bias"][:, None, None]
    return found, lambda mixed, u: mixed + bias


def loop_mlstm_backend(a, part):
    query, key = a["query"][0], a["key"][0]
    heads, length, size = query.shape
    left = np.zeros((heads, length, length)) - np.inf
    for t in range(length):
        for s in range(t + 1):
            forgets = -softplus(-a["fgate"][0, :, s + 1 : t + 1]).sum(-1)
            left[:, t, s] = forgets + a["igate"][0, :, s]
    top = left.max(-1, keepdims=True)
    found = query @ key.transpose(0, 2, 1) / size**0.5 * np.exp(left - top)
    total = np.maximum(np.abs(found.sum(-1, keepdims=True)), np.exp(-top))
    return found / (total + part.config.eps), lambda mixed, u: mixed


def loop_decay_factors(a, part):
    length, heads = len(a["query"]), part.num_attention_heads
    found = np.zeros((heads, length, length))
    for head in range(heads):
        for t in range(length):
            for s in range(t + 1):
                fades = np.exp(-part.slope_rate[head].item() * (t - s))
                found[head, t, s] = a["query"][t, head] @ a["key"][s, head] * fades
    return found, lambda mixed, u: mixed


def loop_iterative_inv(a, part):
    def softmax(scores):
        return np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)

    query, key = (a[name] / part.attention_head_size**0.25 for name in ("query", "key"))
    heads, length, size = query.shape
    found = softmax(query @ key.transpose(0, 2, 1))
    if part.num_landmarks != part.seq_len:
        few, some = (
            one.reshape(heads, part.num_landmarks, -1, size).mean(2) for one in (query, key)
        )
        middle = softmax(few @ some.transpose(0, 2, 1))
        inverse = part.iterative_inv(torch.tensor(middle)[None].float())[0].double().numpy()
        found = softmax(query @ some.transpose(0, 2, 1)) @ inverse
        found = found @ softmax(few @ key.transpose(0, 2, 1))
    kernel = a["kernel"]
    for t in range(length):
        for s in range(length):
            near = s - t + kernel.shape[1] // 2
            if 0 <= near < kernel.shape[1]:
                found[:, t, s] += kernel[:, near]
    return found, lambda mixed, u: mixed


def recorder(function, seen):
    @functools.wraps(function)
    def record(*given, **named):
        bound = inspect.signature(function).bind(*given, **named)
        bound.apply_defaults()
        output = function(*given, **named)
        seen.append((dict(bound.arguments), output))
        return output

    return record


def record_lightning(part, seen):
    heads, size = part.num_attention_heads, part.head_dim

    def project(module, given, output):
        split = output[0].unflatten(-1, (heads, 3 * size)).split(size, dim=-1)
        seen.append([dict(zip(("query", "key", ""), split, strict=True))])

    def norm(module, given):
        seen[-1] = (*seen[-1], given[0].unflatten(-1, (heads, size)))

    part.act_fn.register_forward_hook(project)
    part.norm.register_forward_pre_hook(norm)


def record_landmarks(part, seen):
    def split(one):
        return one[0].detach().unflatten(-1, (part.num_attention_heads, -1))

    def record(module, given, output):
        hidden = given[0]
        query, key = (getattr(part, name)(hidden) for name in ("query", "key"))
        arrays = {"query": split(query).transpose(0, 1), "key": split(key).transpose(0, 1)}
        arrays |= {"": split(part.value(hidden)), "kernel": part.conv.weight[:, 0, :, 0]}
        seen.append((arrays, split(output[0])))

    part.register_forward_hook(record)


def recorded(model, monkeypatch):
    """What each layer will hand to its scan and get back, seen from below what watches it."""
    seen, done = [], set()
    for part, mixer in mixers_of(model).values():
        if not mixer.values:
            record = record_lightning if "Lightning" in type(part).__name__ else record_landmarks
            record(part, seen)
            continue
        owner, name = sys.modules[type(part).__module__], mixer.function
        if name in vars(type(part)):
            owner = type(part)
        elif hasattr(part, name):
            owner, name = type(getattr(part, name)), "forward"
        if owner not in done:
            monkeypatch.setattr(owner, name, recorder(getattr(owner, name), seen))
            done.add(owner)
    return seen


def in_order(array, axes):
    """Shape (heads or channels, time, places)."""
    return np.einsum(f"{axes}->{'bhtp' if 'h' in axes else 'cbt'}", array)


@pytest.mark.core
@pytest.mark.parametrize("name", LAYERS)
def test_matrices_are_loops_and_make_the_output(name, monkeypatch):
    model = make(name)
    part, mixer = next(iter(mixers_of(model).values()))
    cache = {"use_cache": False} if hasattr(model.config, "use_cache") else {}
    with torch.no_grad():
        before = model(input_ids=torch.arange(5, 5 + LENGTH)[None], **cache)[0]
    outputs = []
    model.register_forward_hook(lambda module, given, output: outputs.append(output[0]))
    seen = recorded(model, monkeypatch)
    channels = "mean" if mixer.by_head else "all"
    found = implied_of(read(model, channels=channels))
    assert torch.equal(before, outputs[0]), "reading changed the model's output"
    assert "".join(layer for item in found for layer in item.layers) == LAYERS[name]
    layers = [layer for item in found for layer in item.weights]
    assert len(seen) == len(layers)
    for (given, output), weights in zip(seen, layers, strict=True):
        arrays = numbers(given)
        expected, finish = globals()[f"loop_{mixer.function}"](arrays, part)
        assert np.abs(weights - expected).max() <= 1e-5 * max(1, np.abs(expected).max())
        axes = mixer.axes if mixer.values else "bthp"
        values = arrays[mixer.values] if mixer.values else arrays[""][None]
        output = output[0] if isinstance(output, tuple) else output
        output = output[None] if output.ndim < len(axes) else output
        values, output = (np.asarray(one, dtype=float) for one in (values, output.detach()))
        if mixer.by_head:
            values, output = (in_order(one, axes)[0] for one in (values, output))
        else:
            values, output = (in_order(one, axes).swapaxes(1, 2) for one in (values, output))
        made = finish(weights.astype(float) @ values, values)
        assert np.abs(made - output).max() <= 1e-5 * max(1, np.abs(output).max())


@pytest.mark.parametrize("name", ["mamba", "rwkv"])
def test_a_mean_over_channels(name):
    model = make(name)
    (mean,), (single,) = implied_of(read(model)), implied_of(read(model, channels="all"))
    assert mean.heads == ("mean over channels",)
    assert np.abs(mean.weights[:, 0] - single.weights.mean(axis=1)).max() <= 1e-6
    (some,) = implied_of(read(model, channels="5,2-3"))
    assert some.heads == ("2", "3", "5")
    assert np.array_equal(some.weights, single.weights[:, [2, 3, 5]])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mamba", "mamba2", "rwkv"])
def test_parts_are_parts_of_the_whole(name, monkeypatch):
    model = make(name)
    (whole,) = implied_of(read(model))
    monkeypatch.setattr(implied, "BLOCK", 2000)  # few columns at a time
    (window,) = implied_of(read(model, window=(5, 16)))
    assert np.abs(window.weights - whole.weights[..., 5:17, 5:17]).max() <= 1e-6
    (rows,) = implied_of(read(model, rows=(3, 4)))
    assert np.abs(rows.weights - whole.weights[..., 3:5, :]).max() <= 1e-6
    (pooled,) = implied_of(read(model, max_size=7, links=0))
    blocks = whole.weights.reshape(*whole.weights.shape[:2], 7, 3, 7, 3)
    assert np.abs(pooled.weights - blocks.sum(-1).mean(3)).max() <= 1e-6


def test_fewer_landmarks_are_read_too():
    """The published configuration has as many, which is attention and a convolution."""
    model = make("nystromformer", num_landmarks=7, segment_means_seq_len=LENGTH)
    seen, parts = [], [part for part, _ in mixers_of(model).values()]
    for part in parts:
        record_landmarks(part, seen)
    (found,) = implied_of(read(model))
    for part, weights, (given, _) in zip(parts, found.weights, seen, strict=True):
        expected, _ = loop_iterative_inv(numbers(given), part)
        assert np.abs(weights - expected).max() <= 1e-5 * max(1, np.abs(expected).max())
    assert (found.weights < 0).any()


def test_reading_leaves_all_as_it_was_and_refuses(monkeypatch):
    from transformers.models.mamba import modeling_mamba

    before = modeling_mamba.mamba_selective_scan
    model = make("mamba")
    read(model)
    with pytest.raises(UsageError):
        read(model, channels="40")
    assert modeling_mamba.mamba_selective_scan is before
    assert not any(part._forward_pre_hooks for part in model.modules())
    with pytest.raises(UsageError, match="channel 64 does not exist: there are 64, from 0"):
        read(make("jamba"), channels="64")
    with pytest.raises(UsageError, match=r"channel by channel: 'layers.0.linear_attn' mixes by"):
        read(make("qwen3_next"), channels="0")
    llama = AutoModel.from_config(CONFIG_MAPPING["llama"](**GROUPED)).eval()
    with pytest.raises(UsageError, match="'llama' has none"):
        read(llama, channels="0")
    from transformers.models.rwkv import modeling_rwkv

    scan = modeling_rwkv.rwkv_linear_attention

    def squared(time_decay, time_first, key, value, state=None, return_state=False):
        return scan(time_decay, time_first, key, value**2, state, return_state)

    monkeypatch.setattr(modeling_rwkv, "rwkv_linear_attention", squared)
    with pytest.raises(AttentionError, match=r"'blocks.0.attention' cannot be read: its scan does"):
        read(make("rwkv"), channels="all")
    assert len(LAYERS) >= 20
    assert len({mixer.function for mixer in implied.MIXERS}) >= 10
    assert all(f"loop_{mixer.function}" in globals() for mixer in implied.MIXERS)


def test_other_precisions_are_read_too():
    for name, dtype, off in (
        ("mamba", torch.bfloat16, 0.1),
        ("minimax", torch.bfloat16, 0.1),
        ("mamba2", torch.float64, 1e-5),
    ):
        model = make(name)
        exact = implied_of(read(model))[0].weights
        rough = implied_of(read(model.to(dtype)))[0].weights
        assert np.abs(rough - exact).max() <= off * np.abs(exact).max()


# What a user sees.


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A hybrid as a folder: Jamba, with Mamba layers around its attention."""
    from transformers import AutoConfig, AutoModelForCausalLM

    made = tmp_path_factory.mktemp("jamba")
    sizes = {**FAMILIES["jamba"].sizes, "vocab_size": 340, "max_position_embeddings": 400}
    config = CONFIG_MAPPING["jamba"](**deepcopy(sizes))
    with quiet():
        torch.manual_seed(0)
        AutoModelForCausalLM.from_config(config).save_pretrained(made)
    byte_pieces().save_pretrained(made)
    assert AutoConfig.from_pretrained(made).model_type == "jamba"
    return made


def test_a_hybrid_shows_attention_and_what_is_implied(folder, tmp_path):
    saved, page = tmp_path / "map.npz", tmp_path / "page.html"
    done = attnviz("self", "The red car", "-m", folder, "-o", saved, "--html", page, "-f", "json")
    first, second = done.json()["maps"]
    assert (first["stream"], first["layers"]) == ("causal", [1, 3])
    assert (second["stream"], second["layers"], second["values"]) == ("implied", [0, 2], "signed")
    assert second["heads"] == ["mean over channels"]
    assert (
        "'implied' is no attention: it shows how much of each token a layer's scan puts" in done.err
    )
    assert "the mean over 64 channels: --channels shows single ones" in done.err
    again = attnviz("render", saved, "-f", "json")
    assert again.json()["maps"] == [first, second]
    table = attnviz("self", "The red car", "-m", folder, "--stream", "implied")
    assert "layer 2 mean over channels" in table.text
    assert "rows are mixed from columns: implied, no attention" in table.text
    assert '"implied"' in page.read_text(encoding="utf-8")


def test_single_channels_are_rows_of_tsv(folder):
    done = attnviz(
        "self", "The red car", "-m", folder, "--stream", "implied", "--channels", "3,7", "-f", "tsv"
    )
    rows = done.rows[1:]
    assert {(row[1], row[2], row[3]) for row in rows} == {
        ("implied", layer, head) for layer in "02" for head in "37"
    }
    assert all(float(row[8]) == 0 for row in rows if int(row[6]) > int(row[4]))


@pytest.mark.slow
def test_what_needs_shares_leaves_it_out(folder, folder_of):
    heads = attnviz("heads", "The red car", "-m", folder, "-f", "tsv", "--no-repeat")
    assert heads.status == 0
    assert "implied" not in heads.text
    assert "stream 'implied' is left out: the measures need shares" in heads.err
    corpus = attnviz(
        "heads", "--input", "-", "-m", folder, "-f", "json", stdin=b"The red car\nThe student\n"
    )
    assert corpus.status == 0, corpus.err
    assert "stream 'implied' is left out: the measures need shares" in corpus.err
    mamba = folder_of("mamba")
    for arguments in (
        ("heads", "The red car"),
        ("self", "The red car", "--lens", "rollout"),
        ("self", "The red car", "--lens", "flow"),
        ("self", "The red car", "--lens", "norm"),
        ("self", "The red car", "--lens", "gradient"),
        ("self", "The red car", "--lens", "all"),
        ("compare", "The red car", "The blue car"),
    ):
        done = attnviz(*arguments, "-m", mamba)
        assert done.status in {1, 2}, arguments
        assert "shares" in done.mistake or "no gradients, effects or norms" in done.mistake
