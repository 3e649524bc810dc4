"""Keys of several kinds against what the families' own modules calculate, and what is refused."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from attnviz.analyses.view import orientation
from attnviz.core.attention_call import AttentionCall
from attnviz.core.attention_map import Token
from attnviz.core.errors import AttentionError
from attnviz.models.hugging_face.capture import kernel, key_kinds
from attnviz.models.hugging_face.capture.key_kinds import KeyLayout, KeyRun
from attnviz.renderers.figures.heatmap import axis_names
from tests.hugging_face.ask import attend, cross

TEXT = "The red car is fast, and the blue car is slow."


def ids_of(model, text):
    return torch.tensor([model.tokenizer(text)["input_ids"]])


def kinds(item):
    return [token.kind for token in item.key_tokens]


def test_compressed_keys_stand_behind_tokens_in_one_softmax_with_a_sink(kind_model):
    model = kind_model("deepseek_v4")
    attention = attend(model, TEXT)
    calls = {}

    def look(call):
        calls[call.module.layer_idx] = call

    with torch.no_grad(), kernel.watch_kernels(look):
        eager = model.model(ids_of(model, TEXT), output_attentions=True).attentions
    streams = {item.stream: item for item in attention.maps}
    assert {name: item.layers for name, item in streams.items()} == {
        "causal": ("0",),
        "compressed-4": ("1", "3"),
        "compressed-6": ("2",),
    }
    tokens = len(streams["causal"].key_tokens)
    for item in streams.values():
        for place, layer in enumerate(map(int, item.layers)):
            weights = item.weights[place]
            np.testing.assert_allclose(weights, eager[layer][0].numpy(), atol=1e-5)
            # The softmax by hand, in float64, with a column for the sink.
            call = calls[layer]
            query, key = call.query[0].double(), call.key[0, 0].double()
            scores = query @ key.T * call.options["scaling"] + call.mask[0].double()
            sinks = (
                call.module.sinks.detach().double()[:, None, None].expand(-1, scores.shape[1], 1)
            )
            shares = torch.cat([scores, sinks], -1).softmax(-1)
            np.testing.assert_allclose(weights, shares[..., :-1].numpy(), atol=1e-5)
            np.testing.assert_allclose(weights.sum(-1), 1 - shares[..., -1].numpy(), atol=1e-5)
    for rate, width in ((4, 2), (6, 1)):
        item = streams[f"compressed-{rate}"]
        entries = item.key_tokens[tokens:]
        assert kinds(item) == ["token"] * tokens + ["compressed"] * (tokens // rate)
        assert [one.span for one in entries] == [
            (max(entry - width + 1, 0) * rate, entry * rate + rate - 1)
            for entry in range(tokens // rate)
        ]
        # An entry exists for a closed window only.
        for entry in range(len(entries)):
            assert not item.weights[:, :, : (entry + 1) * rate - 1, tokens + entry].any()
    assert streams["compressed-4"].key_side == "text and compressed"
    assert streams["causal"].key_side == "text"
    assert attention.learned_sink
    # The indexer keeps two entries a query.
    chosen = (streams["compressed-4"].weights[..., tokens:] > 0).any(axis=1).sum(axis=-1)
    assert chosen.max() == 2


def test_an_entry_is_made_of_the_tokens_that_it_names(kind_model):
    model = kind_model("deepseek_v4")
    item = attend(model, TEXT).map_of("compressed-4")
    tokens = len(item.query_tokens)
    compressor = model.model.layers[1].self_attn.compressor
    states, entries = [], []
    hook = compressor.register_forward_pre_hook(
        lambda _, args, kwargs: states.append((args, kwargs)), with_kwargs=True
    )
    with hook, torch.no_grad():
        model.model(ids_of(model, TEXT))
    (hidden, residual, positions, _, layer), kwargs = states[0]
    rest = residual, positions, None, layer  # without the cache, which would go on
    for place in range(tokens):
        changed = hidden.clone()
        changed[:, place] += 1
        with torch.no_grad():
            entries.append(compressor(changed, *rest, **kwargs)[0][0, 0])
    with torch.no_grad():
        plain = compressor(hidden, *rest, **kwargs)[0][0, 0]
    assert len(plain) == len(item.key_tokens) - tokens
    for entry, token in enumerate(item.key_tokens[tokens:]):
        moved = [p for p in range(tokens) if not torch.equal(entries[p][entry], plain[entry])]
        assert (moved[0], moved[-1]) == token.span


def test_a_short_text_has_no_entries_and_keeps_the_names_of_streams(kind_model):
    attention = attend(kind_model("deepseek_v4"), "The red")
    assert [item.stream for item in attention.maps] == ["causal", "compressed-4", "compressed-6"]
    assert {item.key_side for item in attention.maps} == {"text"}


def test_a_decoder_looks_at_both_sides_in_one_softmax(kind_model):
    model = kind_model("t5gemma2")
    attention = cross(model, "The red car is fast.", "La voiture rouge")
    assert [item.stream for item in attention.maps] == ["merged", "encoder"]
    merged, encoder = attention.maps
    source = ids_of(model, "The red car is fast.")
    target = ids_of(model, "La voiture rouge")[:, :-1]
    start = torch.tensor([[model.model.config.decoder.bos_token_id]])
    ids = torch.cat([start, target], 1)
    with torch.no_grad():
        own = kernel.eager_copy(model.model)(
            input_ids=source, decoder_input_ids=ids, output_attentions=True, use_cache=False
        )
    assert len(merged.query_tokens) == ids.shape[1]
    for layer in range(2):
        parts = own.decoder_attentions[layer][0], own.cross_attentions[layer][0]
        both = torch.cat(parts, -1).numpy()
        np.testing.assert_allclose(merged.weights[layer], both, atol=1e-5)
        np.testing.assert_allclose(
            encoder.weights[layer], own.encoder_attentions[layer][0], atol=1e-5
        )
    np.testing.assert_allclose(merged.weights.sum(-1), 1, atol=1e-5)
    assert kinds(merged) == ["token"] * ids.shape[1] + ["source"] * source.shape[1]
    assert (merged.query_side, merged.key_side) == ("target", "target and source")
    text = attention.text_of(merged.key_side)
    assert text == "La voiture rouge\nThe red car is fast."
    words = [text[one.start : one.end] for one in merged.key_tokens if one.end > one.start]
    assert "".join(words).replace(" ", "") == "LavoiturerougeTheredcarisfast."


def test_attention_over_layers_is_a_map_of_its_own(kind_model):
    model = kind_model("inkling2_text")
    attention = attend(model, TEXT)
    states = {}

    def record(path):
        def hook(module, inputs, _output):
            states[path] = module, *inputs

        return hook

    sites = [
        (path, part)
        for path, part in model.model.named_modules()
        if type(part).__name__.endswith("BlockAttentionResidual")
    ]
    hooks = [part.register_forward_hook(record(path)) for path, part in sites]
    with torch.no_grad():
        eager = model.model(ids_of(model, TEXT), output_attentions=True).attentions
    for hook in hooks:
        hook.remove()
    causal, depth = attention.maps
    assert (causal.stream, depth.stream) == ("causal", "depth")
    np.testing.assert_allclose(causal.weights, torch.cat(eager).numpy(), atol=1e-5)
    assert [one.text for one in depth.key_tokens] == [
        "embeddings",
        "layers 0–1",
        "layers 2–3",
        "layer 4",
    ]
    assert set(kinds(depth)) == {"layer"}
    assert depth.key_side == "layers"
    expected = {}
    for path, (module, blocks, partial) in states.items():
        stacked = torch.cat([blocks, partial[:, :, None]], 2)[0].double()
        size = stacked.shape[-1]
        normed = stacked / (stacked.pow(2).mean(-1, keepdim=True) + module.norm.eps).sqrt()
        queries = module.query.double().view(-1, size)
        name = path.removeprefix("layers.").replace(".", " ")
        for number, query in enumerate(queries):
            rows = [torch.softmax(one @ query * size**-0.5, -1) for one in normed]
            label = ("query", "key", "value")[number] if len(queries) > 1 else ""
            expected[f"{name} {label}".strip()] = torch.stack(rows).detach().numpy()
    assert list(depth.layers) == list(expected)
    for place, rows in enumerate(expected.values()):
        seen = rows.shape[1]
        np.testing.assert_allclose(depth.weights[place, 0, :, :seen], rows, atol=1e-5)
        assert not depth.weights[place, 0, :, seen:].any()


def test_exact_rows_have_every_key_and_blocks_are_refused(kind_folder):
    import attnviz

    folder = str(kind_folder("deepseek_v4"))
    whole = attnviz.attend(TEXT, model=folder).map_of("compressed-4")
    part = attnviz.attend(TEXT, model=folder, rows="4-6").map_of("compressed-4")
    np.testing.assert_allclose(part.weights, whole.weights[:, :, 4:7], atol=1e-6)
    assert part.key_tokens == whole.key_tokens
    for options in ({"max_size": 8}, {"window": "2-9"}):
        with pytest.raises(AttentionError, match=r"16 tokens and 4 compressed tokens.*nor cut"):
            attnviz.attend(TEXT, model=folder, **options)


def test_keys_that_their_kinds_do_not_name_are_refused_with_both_numbers():
    call = AttentionCall(torch.zeros(1, 2, 5, 4), torch.zeros(1, 1, 9, 4), None)
    layout = KeyLayout("compressed-2", (KeyRun("token", 5), KeyRun("compressed", 2)))
    with pytest.raises(
        AttentionError,
        match=r"layer a.b of .* over 9 keys, .* over 7 keys \(5 tokens and 2 compressed tokens\)",
    ):
        key_kinds.check_layout("a.b", call, layout, "x", (1, 5))


def test_a_module_that_declares_nothing_has_tokens_alone():
    call = AttentionCall(torch.zeros(1, 2, 5, 4), torch.zeros(1, 1, 5, 4), None)
    call.module = SimpleNamespace(forward=lambda hidden_states: None)
    assert key_kinds.layout_of(call, "decoder", {"decoder": (5, 5), "cross": (5, 3)}) is None


def test_what_reads_tokens_only_says_so(kind_folder):
    import attnviz

    folder = str(kind_folder("deepseek_v4"))
    with pytest.raises(AttentionError, match=r"of its 20 keys 16 are tokens, and the other 4"):
        attnviz.ablate(TEXT, model=folder)


def test_tokens_of_kinds_are_named():
    own = tuple(Token(word) for word in ("a", "b", "c", "d"))
    layout = KeyLayout("x", (KeyRun("token", 4), KeyRun("compressed", 1, ((0, 3),))))
    assert layout.tokens(own, (), 0)[-1].text == "0–3 a … d"


def score_of_all_heads(indexer, query, keys, hidden):
    """The indexer's formula, head by head, in float64."""
    weigh = getattr(indexer, "scorer", indexer).weights_proj
    heads = query.shape[1]
    shares = weigh(hidden).double() * heads**-0.5
    products = torch.einsum("qhd,kd->qhk", query.double(), keys.double())
    return (products.relu() * query.shape[-1] ** -0.5 * shares[..., None]).sum(1)


@pytest.mark.parametrize("kind", ["deepseek_v4", "deepseek_v32", "glm_moe_dsa"])
def test_the_choice_of_an_indexer_is_the_best_of_its_scores(kind, kind_folder):
    import attnviz

    scores = attnviz.attend(TEXT, model=str(kind_folder(kind)), stream="indexer").main
    others = attnviz.attend(TEXT, model=str(kind_folder(kind))).maps
    assert (scores.stream, scores.values, scores.heads) == ("indexer", "signed", ("score",))
    assert orientation(scores).endswith("columns before the softmax, no attention")
    assert axis_names(scores) == ("query (scores)", "key (scored)")
    item = next(one for one in others if set(scores.layers) <= set(one.layers))
    own = item.weights[[item.layers.index(name) for name in scores.layers]]
    own = own[..., -len(scores.key_tokens) :]
    most = {"deepseek_v4": 2}.get(kind, 3)
    for layer, rows in enumerate(scores.weights[:, 0]):
        for query, row in enumerate(rows):
            seen = np.flatnonzero(~np.isnan(row))
            chosen = {*np.flatnonzero(own[layer, :, query].any(axis=0)).tolist()}
            assert len(chosen) == min(most, len(seen))
            left = [row[key] for key in seen if key not in chosen]
            assert not left or min(row[key] for key in chosen) >= max(left)


def test_scores_of_an_indexer_are_those_of_its_formula(kind_model):
    from attnviz.features.key_kinds.indexer import watch_indexers

    model = kind_model("deepseek_v4").model
    indexer = model.layers[1].self_attn.compressor.indexer
    calls = []
    hook = indexer.scorer.register_forward_hook(lambda _, inputs, __: calls.append(inputs))
    with hook, torch.no_grad(), watch_indexers(model) as scores:
        model(ids_of(kind_model("deepseek_v4"), TEXT))
    (query, keys, hidden), *_ = calls
    with torch.no_grad():
        slow = score_of_all_heads(indexer, query[0], keys[0], hidden[0]).numpy()
    rows, most = scores["layers.1.self_attn.compressor.indexer"]
    assert most == 2
    np.testing.assert_allclose(rows, np.where(np.isnan(rows), np.nan, slow), atol=1e-5)


def test_a_model_without_an_indexer_says_so(kind_folder):
    import attnviz
    from attnviz.core.errors import UsageError

    with pytest.raises(UsageError, match="no indexer chooses keys in architecture 'llama4_text'"):
        attnviz.attend(TEXT, model=str(kind_folder("llama4_text")), stream="indexer")


def test_no_link_crosses_the_border_of_a_chunk(kind_folder):
    import attnviz

    item = attnviz.attend(TEXT, model=str(kind_folder("llama4_text"))).main
    chunk = np.arange(len(item.key_tokens)) // 4
    across = np.tril(chunk[:, None] != chunk)
    assert across.sum() > 20
    there = item.weights[..., across].any(axis=(1, 2))
    assert there.tolist() == [False, False, False, True]  # every fourth layer sees the whole text
