"""What a smaller cache costs: each rule against a model whose cache is shortened after each token.

The slow loop knows nothing of masks: transformers' own cache loses its keys, per head, after each
step, and the rules are written out over what is left in it.
"""

import numpy as np
import pytest
import torch
import transformers
from transformers import DynamicCache

import attnviz
from attnviz.core.options import Origin
from attnviz.core.query import Query
from attnviz.models.lens import open_experiment
from attnviz.models.open import open_source
from attnviz.models.pocket_lm.language_model import FOLDER
from tests.hugging_face import tiny_models

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
    for step in range(ids.shape[1]):
        with torch.no_grad():
            made = model(
                input_ids=ids[:, step : step + 1],
                position_ids=torch.tensor([[step]]),
                attention_mask=torch.ones(1, memory.get_seq_length() + 1, dtype=torch.long),
                past_key_values=memory,
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


@pytest.mark.parametrize("prompt", [0, 7])
def test_every_rule_costs_what_a_model_with_a_shorter_cache_loses(llama_lm, prompt):
    experiment = open_source(Origin(model="pocket-lm"), "self", with_head="exact").experiment(
        Query(TEXT), "all"
    )
    ids = torch.tensor([experiment.given])
    rules = [rule for rule in RULES if prompt or "snapkv" not in rule]
    found = attnviz.cache(TEXT, model="pocket-lm", keep=rules, prompt=prompt).value
    assert [one.rule for one in found.rules] == rules
    for one in found.rules:
        cost, changed = costs_of(llama_lm, ids, one.rule, prompt)
        assert one.cost == pytest.approx(cost, abs=2e-4), one.rule
        assert one.changed == pytest.approx(changed, abs=1e-6)
        assert abs(cost) > 0.01, "a rule that costs nothing here tests nothing"


@pytest.mark.parametrize("kind", ["llama", "gpt2"])
@pytest.mark.parametrize("arithmetic", ["light", "torch"])
def test_rules_decide_for_heads_that_share_keys_together(tmp_path, kind, arithmetic):
    folder = getattr(tiny_models, kind)(tmp_path)
    source = open_source(
        Origin(model=str(folder), arithmetic=arithmetic), "self", with_head="exact"
    )
    experiment = open_experiment(source, Query(TEXT[:31]))
    names = [one.number for one in experiment.outputs]
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager")
    reader = transformers.AutoTokenizer.from_pretrained(folder)
    ids = reader(TEXT[:31], return_tensors="pt").input_ids
    assert ids[0, 1:].tolist() == names
    found = attnviz.cache(
        TEXT[:31], model=str(folder), arithmetic=arithmetic, keep=RULES, prompt=9
    ).value
    for one in found.rules:
        cost, _ = costs_of(model.eval(), ids, one.rule, 9)
        assert one.cost == pytest.approx(cost, abs=2e-5), one.rule
        assert abs(cost) > 1e-4, "a rule that costs nothing here tests nothing"
