"""Contacts from attention, checked on planted ones: heads that see them, and heads that do not."""

import json
import random

import numpy as np
import pytest

import attnviz
from attnviz.core.attention_map import Attention, AttentionMap, Provenance, Token
from attnviz.core.errors import InputError
from attnviz.features.contacts.fit import APART, ContactModel, fit_contacts, pair_features
from attnviz.features.heads.probes import WORDS
from tests.invoke import attnviz as run

RESIDUES = 24


def planted(seed, heads=6, seeing=4):
    """Attention of a protein: one head sees the contacts, under columns that all heads look at."""
    generator = np.random.default_rng(seed)
    wide = [(i, j) for i in range(RESIDUES) for j in range(i + APART, RESIDUES)]
    contacts = [wide[n] for n in generator.choice(len(wide), 14, replace=False)]
    scores = generator.normal(0, 0.3, (1, heads, RESIDUES + 2, RESIDUES + 2))
    scores += generator.normal(0, 1.5, RESIDUES + 2)  # what APC takes away
    for i, j in contacts:
        scores[0, seeing, i + 1, j + 1] += 4  # in one direction alone
    weights = np.exp(scores)
    weights /= weights.sum(-1, keepdims=True)
    names = (Token("<cls>", special=True), *(Token("A") for _ in range(RESIDUES)))
    tokens = (*names, Token("<eos>", special=True))
    item = AttentionMap("self", tokens, tokens, weights.astype(np.float32))
    return Attention((item,), Provenance("made", "protein"), id=str(seed)), contacts


@pytest.fixture
def structures(tmp_path):
    path = tmp_path / "structures.jsonl"
    lines = [json.dumps({"sequence": str(seed), "contacts": planted(seed)[1]}) for seed in range(6)]
    path.write_text("\n".join(lines))
    return path


@pytest.mark.slow
def test_planted_contacts_are_found_by_their_head(structures):
    model = fit_contacts(structures, lambda name: planted(int(name))[0])
    assert model.precision > 0.8
    assert int(np.argmax(abs(model.weights))) == 4
    attention, contacts = planted(99)
    found = model.predict(attention)
    chances = found.weights[0, 0]
    np.testing.assert_allclose(chances, chances.T)
    inside = chances[1:-1, 1:-1]
    pairs = [(i, j) for i in range(RESIDUES) for j in range(i + APART, RESIDUES)]
    likeliest = sorted(pairs, key=lambda pair: -inside[pair])[: len(contacts)]
    assert len({*likeliest} & {*contacts}) >= 11
    near = [(i, j) for i in range(RESIDUES) for j in range(RESIDUES) if abs(i - j) < APART]
    assert not any(inside[pair] for pair in near)
    assert "fitted on 6 structures; heads that weigh most: 0.4 +" in found.provenance.notes[0]


def test_the_average_product_is_that_of_a_slow_loop():
    attention, _ = planted(0)
    features, places = pair_features(attention)
    assert places == [*range(1, RESIDUES + 1)]
    pairs = [(i, j) for i in range(RESIDUES) for j in range(i + 1, RESIDUES)]
    for head in range(6):
        own = attention.weights[0, head, 1:-1, 1:-1].astype(float)
        both = own + own.T
        for n, (i, j) in enumerate(pairs):
            expected = both[i, j] - both[i].sum() * both[:, j].sum() / both.sum()
            assert features[n, head] == pytest.approx(expected, abs=1e-9)


def test_a_chance_is_the_logistic_of_the_weighted_heads():
    attention, _ = planted(0)
    features, _ = pair_features(attention)
    weights, bias = np.array([5.0, -1.0, 0.0, 2.0, 1.0, 3.0]), -0.5
    found = ContactModel(weights, bias, tuple("abcdef"), 2, 0.5).predict(attention).weights[0, 0]
    pairs = [(i, j) for i in range(RESIDUES) for j in range(i + 1, RESIDUES)]
    for (i, j), own in zip(pairs, features, strict=True):
        score = sum(one * weight for one, weight in zip(own, weights, strict=True)) + bias
        expected = 1 / (1 + np.exp(-score)) if j - i >= APART else 0
        assert found[i + 1, j + 1] == pytest.approx(expected, abs=1e-6)


def test_words_said_twice_are_found_by_their_head(tmp_path):
    words = random.Random(0).sample(WORDS, 14)
    path, lines = tmp_path / "twice.jsonl", []
    for seed in range(5):
        drawn = [*np.random.default_rng(seed).permutation(words)]
        sequence = drawn[:12] + drawn[:5]
        contacts = [[n, n + 12] for n in range(5)]
        lines.append(json.dumps({"sequence": " ".join(sequence), "contacts": contacts}))
    path.write_text("\n".join(lines[1:]))
    first = json.loads(lines[0])
    found = attnviz.attend(first["sequence"], contacts=path)
    assert "heads that weigh most: 0.3 +" in found.provenance.notes[-1]  # duplicate tokens
    top = found.weights[0, 0][:12, 12:17].argmax(axis=0)
    assert [*top] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("", "holds no structure"),
        ('{"sequence": "a b"}', "line 1 of 'c.jsonl' is no structure such as"),
        ('{"sequence": "a b", "contacts": [[0, -1]]}', "is no structure such as"),
        ('{"sequence": "a b", "contacts": [[0, 1]]}', "one sequence of more than 6 residues"),
        ('{"sequence": "a b c d e f g h", "contacts": [[0, 2]]}', "without a contact 6 or more"),
        ('{"sequence": "a b c d e f g h", "contacts": [[0, 90]]}', "or with one beyond its end"),
    ],
)
def test_files_that_hold_no_structures_are_said(tmp_path, monkeypatch, line, says):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "c.jsonl").write_text(line)
    assert says in run("self", "a b c d e f g h", "--contacts", "c.jsonl").mistake


def test_a_lens_and_contacts_exclude_each_other(structures):
    done = run("self", "a b c", "--contacts", structures, "--lens", "rollout")
    assert "--contacts reads raw weights" in done.mistake
    with pytest.raises(InputError, match="more than 6 residues"):
        pair_features(attnviz.attend("a b"))
