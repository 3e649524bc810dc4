"""What a smaller cache costs: each rule against a model whose cache is shortened after each token.

The slow loop knows nothing of masks: transformers' own cache loses its keys, per head, after each
step, and the rules are written out over what is left in it.
"""

import sys
from inspect import signature
from pathlib import Path
from unittest.mock import MagicMock

import numpy as np
import pytest
import torch
import transformers
from transformers import DynamicCache

import attnviz
from attnviz.core.effects import Intervention, LayerWeights, LinkAt, log_probabilities
from attnviz.core.errors import UsageError
from attnviz.core.options import Origin
from attnviz.core.query import Picture, Query
from attnviz.features.cache.cost import measure_rules
from attnviz.features.cache.eviction import CacheRun, parse_rules
from attnviz.features.experiments.texts import open_experiment
from attnviz.features.picture_text.source import load_picture_text_model
from attnviz.features.pocket_lm.language_model import FOLDER
from attnviz.features.vision.picture_files import read_picture
from attnviz.models.open import open_source
from tests.features.picture_text import tiny_pictures
from tests.hugging_face import tiny_models
from tests.hugging_face.tiny_families import EVERY
from tests.hugging_face.tiny_models import byte_pieces
from tests.invoke import attnviz as run

ROOT = Path(__file__).parents[3]
TEXT = "Tom likes dogs. Mary likes cats. Tom likes dogs. Mary likes cats."
RULES = ("sinks:1+recent:3", "window:5", "h2o:6", "heavy:5", "tova:5", "snapkv:4", "h2o:0.3")


class ShorterCache:
    """One layer's keys: positions that are left in each head, with the attention they received."""

    def __init__(self, heads):
        self.places = [[] for _ in range(heads)]
        self.received = [{} for _ in range(heads)]
        self.rows = [[] for _ in range(heads)]

    def see(self, position, weights):
        """A step: each head's weights over what is left and the query's own key."""
        for head, row in enumerate(weights):
            self.places[head].append(position)
            seen = dict(zip(self.places[head], row.tolist(), strict=True))
            self.rows[head].append(seen)
            for place, weight in seen.items():
                self.received[head][place] = self.received[head].get(place, 0.0) + weight

    def keep(self, rule, prompt, step, count):
        """The positions that a rule leaves in each head."""
        kept = [set() for _ in self.places]
        for term in rule.split("+"):
            name, size = term.split(":")
            budget = max(1, round(float(size) * count)) if "." in size else int(size)
            for head, places in enumerate(self.places):
                kept[head] |= set(self.chosen(name, budget, head, places, prompt, step))
        return kept

    def chosen(self, name, budget, head, places, prompt, step):  # noqa: PLR0911 - a rule each
        room = budget if name in ("sinks", "snapkv") else budget - 1
        got = self.received[head]
        if name == "sinks":
            return [place for place in places if place < room]
        if name == "window":
            name = "recent"
        if name == "recent":
            return places[len(places) - min(room, len(places)) :]
        if len(places) <= room:
            return places
        if name in ("h2o", "heavy"):
            last = room // 2 if name == "h2o" else 1
            late = sorted(places)[len(places) - last :] if last else []
            rest = sorted((p for p in places if p not in late), key=lambda p: (got[p], p))
            return [*rest[::-1][: max(room - len(late), 0)], *late][-room:] if room else []
        if name == "tova":
            rows = [own[-1] for own in self.rows]
            mean = {p: np.mean([row.get(p, 0.0) for row in rows]) for p in places}
            return sorted(places, key=lambda p: (mean[p], p))[::-1][:room]
        if name == "snapkv":
            if step > prompt - 1:
                return places
            window = min(32, max(room // 2, 1))
            late = places[-window:]
            early = places[:-window]
            mean = [np.mean([row.get(p, 0.0) for row in self.rows[head][-window:]]) for p in early]
            pooled = [sum(mean[max(0, n - 2) : n + 3]) / 5 for n in range(len(mean))]
            best = sorted(range(len(early)), key=lambda n: pooled[n])[::-1][: room - window]
            return [*(early[n] for n in best), *late]
        raise AssertionError(name)


def slow_loop(model, ids, rule, prompt):
    """Log p of each next token, by a model whose cache is shortened after each step."""
    layers = model.config.num_hidden_layers
    groups = getattr(model.config, "num_key_value_heads", model.config.num_attention_heads)
    caches = [ShorterCache(groups) for _ in range(layers)]
    memory, found = DynamicCache(), []
    past = "cache" if "cache" in signature(model.forward).parameters else "past_key_values"
    for step in range(ids.shape[1]):
        with torch.no_grad():
            made = model(
                input_ids=ids[:, step : step + 1],
                position_ids=torch.tensor([[step]]),
                attention_mask=torch.ones(1, memory.get_seq_length() + 1, dtype=torch.long),
                **{past: memory},
                use_cache=True,
                output_attentions=True,
            )
        found.append(made.logits[0, -1].log_softmax(-1))
        for layer, weights in enumerate(made.attentions):
            own = weights[0, :, 0]
            grouped = own.reshape(groups, -1, own.shape[-1]).mean(1)
            caches[layer].see(step, grouped)
            if step < prompt - 1:
                continue
            kept = caches[layer].keep(rule, prompt, step, ids.shape[1])
            for name in ("keys", "values"):
                old = getattr(memory.layers[layer], name)
                new = [
                    old[:, head, [place in kept[head] for place in caches[layer].places[head]]]
                    for head in range(groups)
                ]
                setattr(memory.layers[layer], name, torch.stack(new, 1))
            for head in range(groups):
                own = caches[layer].places[head]
                caches[layer].places[head] = [place for place in own if place in kept[head]]
    return torch.stack(found)


def costs_of(model, ids, rule, prompt):
    """Nats a token by the slow loop, and the share of tokens whose likeliest choice is another."""
    slow = slow_loop(model, ids, rule, prompt)
    with torch.no_grad():
        plain = model(input_ids=ids).logits[0].log_softmax(-1)
    rows = torch.arange(prompt, ids.shape[1] - 1)
    numbers = ids[0, rows + 1]
    cost = (plain[rows, numbers] - slow[rows, numbers]).mean().item()
    return cost, (plain[rows].argmax(-1) != slow[rows].argmax(-1)).float().mean().item()


@pytest.fixture(scope="module")
def llama_lm():
    model = transformers.LlamaForCausalLM.from_pretrained(
        FOLDER, attn_implementation="eager", dtype=torch.float32
    )
    return model.eval()


@pytest.mark.core
@pytest.mark.parametrize("prompt", [pytest.param(0, marks=pytest.mark.slow), 7])
def test_every_rule_costs_what_a_shorter_cache_loses(llama_lm, prompt):
    experiment = open_source(Origin(model="pocket-lm"), "self", with_head="exact").experiment(
        Query(TEXT), "all"
    )
    ids = torch.tensor([experiment.feed])
    rules = [rule for rule in RULES if prompt or "snapkv" not in rule]
    found = attnviz.cache(TEXT, model="pocket-lm", keep=rules, prompt=prompt).value
    assert [one.rule for one in found.rules] == rules
    for one in found.rules:
        cost, changed = costs_of(llama_lm, ids, one.rule, prompt)
        assert one.cost == pytest.approx(cost, abs=2e-4), one.rule
        assert one.changed == pytest.approx(changed, abs=1e-6)
        assert abs(cost) > 0.01, "a rule that costs nothing here tests nothing"


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["llama", pytest.param("gpt2", marks=pytest.mark.slow)])
@pytest.mark.parametrize("arithmetic", ["torch", pytest.param("light", marks=pytest.mark.slow)])
def test_rules_decide_for_heads_that_share_keys_together(tmp_path, kind, arithmetic):
    folder = getattr(tiny_models, kind)(tmp_path)
    source = open_source(Origin(model=str(folder), device=arithmetic), "self", with_head="exact")
    experiment = open_experiment(source, Query(TEXT[:31]))
    names = [one.number for one in experiment.outputs]
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager")
    reader = transformers.AutoTokenizer.from_pretrained(folder)
    ids = reader(TEXT[:31], return_tensors="pt").input_ids
    assert ids[0, 1:].tolist() == names
    found = attnviz.cache(
        TEXT[:31], model=str(folder), device=arithmetic, keep=RULES, prompt=9
    ).value
    for one in found.rules:
        cost, _ = costs_of(model.eval(), ids, one.rule, 9)
        assert one.cost == pytest.approx(cost, abs=2e-5), one.rule
        assert abs(cost) > 1e-4, "a rule that costs nothing here tests nothing"


@pytest.mark.parametrize("arithmetic", ["torch", "light"])
def test_a_rule_that_keeps_every_key_costs_nothing(tmp_path, arithmetic):
    folder = tiny_models.llama(tmp_path)
    found = attnviz.cache(
        "the cat sat", model=str(folder), device=arithmetic, keep=("h2o:99", "recent:2"), prompt=0
    ).value
    assert [(one.rule, one.cost == 0) for one in found.rules] == [
        ("h2o:99", True),
        ("recent:2", False),
    ]


def cut_by_links(experiment, run, counted):
    """Nats a token where each key that is gone is cut as a link, head by head."""
    links = tuple(
        LinkAt(run.stream, int(query), int(key), layer, int(head))
        for layer, gone in run.hidden_cells.items()
        for head, query, key in np.argwhere(gone)
    )
    assert links
    plain, cut = log_probabilities(experiment, [Intervention(), Intervention(links=links)])
    return (plain - cut)[counted].mean()


def measured(experiment, rules, **more):
    found = measure_rules(experiment, parse_rules(rules), **more)
    rows = np.array([output.row for output in experiment.outputs])
    for one in found.costs:
        counted = rows >= found.prompt
        assert one.cost == pytest.approx(cut_by_links(experiment, one.run, counted), abs=1e-5)
    return found


def test_a_cross_cache_loses_keys_as_by_cut_links(tmp_path):
    for model in (None, str(tiny_models.bart(tmp_path))):
        source = open_source(Origin(model=model), "cross", with_head="exact")
        query = Query("The red car is fast.", "La voiture rouge est rapide.", "cross")
        experiment = open_experiment(source, query)
        found = measured(experiment, ["h2o:3", "tova:2", "random:4", "snapkv:3"])
        assert (found.item.stream, found.prompt) == ("cross", 1)
        gone = found.costs[0].run.hidden_cells["0"]
        assert not gone[:, 0].any()
        assert (gone[:, 1:].sum(-1) == gone.shape[2] - 3).all()
        own = measured(experiment, ["h2o:3"], stream="decoder")
        assert own.item.stream == "decoder"
    with pytest.raises(UsageError, match="stream 'encoder' has no cache: there is"):
        measured(experiment, ["h2o:3"], stream="encoder")


def test_the_best_rule_each_head_and_a_short_text():
    found = attnviz.cache("a b", model="pocket-lm", keep=["recent:1"]).value
    assert found.prompt.startswith("the first 1 token")
    assert sum(found.counted.values()) == 1
    rules = ["best:4", "h2o:4", "tova:4", "random:4", "recent:4"]
    best, *others = attnviz.cache(TEXT, model="pocket-lm", keep=rules, prompt=0).value.rules
    assert best.rule == "best:4"
    assert all(best.cost <= one.cost + 1e-9 for one in others)
    found = attnviz.cache(TEXT, model="pocket-lm", keep="sinks:1+recent:3", per_head=True).value
    heads = found.rules[0].heads
    assert len(heads) == 15
    assert (heads[0].layer, heads[0].head) == ("2", 3)  # the induction head
    assert heads[0].cost > 1 > abs(heads[1].cost)
    lines = run("cache", TEXT, "--keep", "sinks:1+recent:3", "--per-head", "-f", "tsv").lines
    assert len(lines) == 1 + 1 + 15
    found = attnviz.cache(TEXT, model="pocket-lm", keep="recent:2", prompt=4)
    strokes = [
        one for one in found.picture("heatmap").axes[0].collections if one.get_label() == "gone"
    ]
    tokens = 17
    assert len(strokes[0].get_segments()) == sum(row - 1 for row in range(4, tokens))


def test_by_hand_what_a_cache_keeps():
    weights = np.array([[[0.5, 0.3, 0.2, 0.0], [0.1, 0.2, 0.3, 0.4], [0.25] * 4]])
    run = CacheRun(parse_rules(["tova:2"])[0], "cross", 4, 1, grows=False)
    gone = run.hide("0", LayerWeights(weights, np.zeros((1, 3)), 1))
    # After the first query 0 and 1 stay for good: what is gone never comes back.
    assert gone[0].tolist() == [[False] * 4, *[[False, False, True, True]] * 2]
    weights = np.array([[[0.5, 0.0], [0.5, 0.1]], [[0.5, 0.0], [0.2, 0.2]]])
    seen = LayerWeights(weights, np.array([[0.5, 0.4], [0.5, 0.6]]), 1)
    states = []

    class Watched(CacheRun):
        def _choose(self, rule, state):
            states.append(state)
            return super()._choose(rule, state)

    Watched(parse_rules(["heavy:2"])[0], "causal", 2, 0).hide("0", seen)
    np.testing.assert_allclose(states[1].received, [[0.85, 0.15]])


def test_pictures_lose_their_own_tokens_alone(tmp_path):
    folder = tiny_pictures.llava(tmp_path)
    model = load_picture_text_model(str(folder), generate=None)
    picture = Picture(read_picture(ROOT / "sample_inputs" / "shapes.png"))
    experiment = model.experiment(Query("the cat sat on the mat", kind="picture", picture=picture))
    tokens = experiment.attention.main.key_tokens
    optional = np.array([token.label == "picture" for token in tokens])
    assert optional.sum() == 16
    found = measured(experiment, ["snapkv:4", "random:0.25"], prompt="16", optional=optional)
    for one in found.costs:
        for gone in one.run.hidden_cells.values():
            assert not gone[..., ~optional].any()
            assert (gone[:, 16:].sum(-1) == 12).all()
    done = attnviz.cache(
        str(ROOT / "sample_inputs" / "shapes.png"),
        "the cat sat on the mat",
        model=str(folder),
        keep="random:0.25",
    ).value
    assert done.rules[0].cost == pytest.approx(found.costs[1].cost, abs=1e-5)
    assert "on the picture's tokens" in done.prompt


def test_selected_keys_say_what_of_dense_attention_they_hold(tmp_path):
    config = transformers.DeepseekV32Config(
        **{**EVERY["deepseek_v32"].sizes, "index_topk": 4, "vocab_size": 340}
    )
    folder = tiny_models.save(tmp_path, "DeepseekV32ForCausalLM", byte_pieces(), config)
    found = attnviz.cache(TEXT[:31], model=str(folder), keep="window:3", prompt=0).value
    own, window = found.rules
    assert (own.rule, window.rule) == ("own selection", "window:3")
    assert np.isnan(own.cost)
    assert np.isnan(window.cost)  # a query has none of the keys that it selected left
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager")
    reader = transformers.AutoTokenizer.from_pretrained(folder)
    ids = reader(TEXT[:31], return_tensors="pt").input_ids
    shares = []
    for layer, block in enumerate(model.model.layers):
        seen, indexer = {}, block.self_attn.indexer
        hook = indexer.register_forward_hook(lambda *given, seen=seen: seen.update(key=given[-1]))
        with torch.no_grad():
            model(ids)
            chosen = seen["key"][0].long()
            indexer.index_topk = ids.shape[1]  # the same input, this layer with all keys
            dense = model(ids, output_attentions=True).attentions[layer][0]
            indexer.index_topk = 4
        hook.remove()
        mask = torch.zeros(dense.shape[1:], dtype=torch.bool).scatter(-1, chosen, value=True)
        shares.append((dense * mask.tril()).sum(-1)[:, :-1].mean(-1))
    masses = {(one.layer, one.head): one.mass for one in own.heads}
    for (layer, head), mass in masses.items():
        assert mass == pytest.approx(float(shares[int(layer)][head]), abs=1e-5)
    assert min(masses.values()) < 0.9


@pytest.mark.slow
def test_kinds_of_text_stand_apart_in_every_form(tmp_path):
    files = [tmp_path / "said-twice.txt", tmp_path / "plain.txt"]
    files[0].write_text("red cat old sun red cat old sun\ntree bird old sun tree bird old sun\n")
    files[1].write_text("The cat sat on the mat.\nI like the old house.\n")
    given = [part for file in files for part in ("--input", file)]
    rules = ("--keep", "h2o:0.3,0.6", "--prompt", "0")
    plot, page = tmp_path / "a.svg", tmp_path / "a.html"
    done = run("cache", *given, *rules, "--picture", plot, "--html", page, "-f", "json")
    found = done.json()
    assert [(one["kind"], one["rule"], one["texts"]) for one in found["rules"]] == [
        (kind, rule, 2) for kind in ("said-twice", "plain") for rule in ("h2o:0.3", "h2o:0.6")
    ]
    assert found["rules"][0]["interval"]
    assert all(kind in plot.read_text() for kind in ("said-twice", "plain"))
    assert "said-twice h2o:0.3" in page.read_text()
    lists = {"said-twice": files[0].read_text().splitlines(), "plain": ["The cat sat on the mat."]}
    same = attnviz.cache(lists, keep="h2o:0.3", prompt=0).value
    assert same.rules[0].cost == pytest.approx(found["rules"][0]["cost"], abs=1e-6)
    twice = run("cache", "--input", files[0], "--input", files[0], *rules)
    assert (twice.status, "twice" in twice.mistake) == (2, True)


@pytest.mark.parametrize(
    ("rules", "says"),
    [
        (["h3o:2"], "unknown rule 'h3o': choose from sinks, recent,"),
        (["h2o"], "'' is no budget: write h2o:64 for 64 keys, or h2o:0.2 for 20 %"),
        (["h2o:0"], "'0' is no budget"),
        (["sinks:2+"], "unknown rule ''"),
        ([], 'cache needs a rule: --keep "sinks:4+recent:64"'),
        (["snapkv:2", "--prompt", "0"], "snapkv decides after a prompt"),
        (["h2o:2", "--prompt", "x"], "--prompt x is neither a number of tokens"),
        (["h2o:2", "--picture", "heatmap:a.png", "--input", "a.txt"], "shows one text"),
        (["h2o:2", "--prompt", "99"], "no token is predicted after the prompt"),
        (["h2o:2", "--stream", "cross"], "stream 'cross' has no cache: there is causal"),
    ],
)
def test_mistakes_are_one_line(rules, says):
    more = ["--keep", *rules] if rules else []
    done = run("cache", "the cat sat", *more)
    assert done.status in (1, 2)
    assert says in done.err.splitlines()[-1]


def test_a_prompt_leaves_what_kvpress_leaves(monkeypatch):
    for name in ("cachetools", "datasets", "fire"):  # its presses do not need these
        monkeypatch.setitem(sys.modules, name, MagicMock())
    presses = pytest.importorskip("kvpress", reason="kvpress is not installed")
    tokens, heads, groups, budget = 24, 4, 2, 8
    generator = np.random.default_rng(0)
    scores = generator.normal(size=(heads, tokens, tokens)) + 4 * np.eye(tokens)
    weights = np.exp(scores) * np.tri(tokens)
    weights /= weights.sum(-1, keepdims=True)
    module = MagicMock()
    module.config.num_attention_heads = heads
    keys, hidden = torch.zeros(1, groups, tokens, 8), torch.zeros(1, tokens, 32)
    whole = torch.as_tensor(weights)[None]
    for rule, press in (
        ("snapkv:8", presses.SnapKVPress(window_size=4, kernel_size=5)),
        ("tova:9", presses.TOVAPress()),  # whose budget does not count the next query's own key
        ("sinks:2+recent:7", presses.StreamingLLMPress(compression_ratio=16 / 24, n_sink=2)),
    ):
        found = press.score(module, hidden, keys, keys, whole, {})
        kept = torch.zeros(groups, tokens, dtype=torch.bool)
        kept.scatter_(-1, found[0].topk(budget, dim=-1).indices, value=True)
        run = CacheRun(parse_rules([rule])[0], "causal", tokens + 1, tokens)
        more = np.zeros((heads, tokens + 1, tokens + 1))
        more[:, :tokens, :tokens] = weights
        more[:, tokens] = 1 / (tokens + 1)
        gone = run.hide("0", LayerWeights(more, np.zeros((heads, tokens + 1)), groups))
        own = ~gone[:: heads // groups, tokens, :tokens]
        assert own.tolist() == kept.tolist(), rule
