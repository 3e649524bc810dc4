"""A training run in small: the loss falls, a stopped run goes on, and what it writes is loaded."""

import json
import math
import re
from pathlib import Path

import pytest
import torch

from attnviz.core.errors import InputError
from attnviz.models.pocket.model import TranslatorSizes, embed_pieces, run_encoder
from attnviz.models.pocket.translator import load_pocket
from tests.asked import over_source
from tests.pocket.small import SENTENCES, SIZES, small_examples
from training.batches import IGNORED, Recipe, batches
from training.loop import Run, Settings, first_weights, learning_rate, shapes
from training.objective import REPEATS_HEAD, REPEATS_LAYER, repeats_loss, waves
from training.stages import train, translation
from training.train import arguments, main

SMALL = TranslatorSizes(size=24, heads=4, feed_forward=32, encoder_layers=1, decoder_layers=3)


@pytest.fixture
def given(tmp_path: Path) -> list[str]:
    (tmp_path / "pairs.txt").write_text(SENTENCES, encoding="utf-8")
    (tmp_path / "unseen.txt").write_text("The cat sleeps.\n", encoding="utf-8")
    options = {
        "--data": tmp_path / "pairs.txt",
        "--unseen": tmp_path / "unseen.txt",
        "--output": tmp_path / "run",
        "--pieces": 40,
        "--warm-up": 2,
        "--rate": 1e-2,
    }
    return [str(part) for option in options.items() for part in option]


@pytest.mark.slow
def test_the_loss_falls_and_the_files_load(given, tmp_path, capsys):
    train(arguments([*given, "--steps", "40"]), SMALL)
    losses = [
        float(found) for found in re.findall(r"translation ([\d.]+)", capsys.readouterr().err)
    ]
    assert len(losses) == 2
    assert losses[1] < losses[0]
    folder = tmp_path / "run" / "model"
    pocket = load_pocket(folder=folder, to="fr")
    assert over_source(pocket, "The cat sleeps.", "Le chat dort.").weights.shape[:2] == (3, 4)
    origin = json.loads((folder / "origin.json").read_text(encoding="utf-8"))
    assert origin["data"]["pairs"] == len(SENTENCES.splitlines()) - 1
    assert origin["figures"]["unseen"]["unseen_pairs"] == 1
    assert origin["settings"]["steps"] == 40


@pytest.mark.slow
def test_a_stopped_run_ends_where_one_without_a_stop_ends(given, tmp_path):
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    train(arguments([*given, "--output", str(whole), "--steps", "4"]), SMALL)
    train(arguments([*given, "--output", str(parts), "--steps", "4", "--stop-after", "2"]), SMALL)
    assert json.loads((parts / "checkpoint.json").read_text(encoding="utf-8"))["step"] == 2
    train(arguments([*given, "--output", str(parts), "--steps", "4", "--resume"]), SMALL)
    states = [torch.load(folder / "checkpoint.pt", weights_only=True) for folder in (whole, parts)]
    assert states[0]["step"] == states[1]["step"] == 4
    for name, array in states[0]["weights"].items():
        torch.testing.assert_close(array, states[1]["weights"][name], atol=2e-4, rtol=1e-2)


def test_what_is_missing_is_said(given, capsys, tmp_path):
    assert main([*given, "--steps", "2", "--resume"]) == 1
    assert "nothing to resume" in capsys.readouterr().err
    with pytest.raises(InputError, match="cannot read"):
        train(arguments([*given, "--data", str(tmp_path / "nowhere.txt")]))


def test_rates_and_first_weights():
    settings = Settings(steps=100, rate=1.0, warm_up=10)
    assert learning_rate(settings, 4) == pytest.approx(0.5)
    assert learning_rate(settings, 10) == pytest.approx(1.0)
    assert learning_rate(settings, 55) == pytest.approx(0.5)
    assert learning_rate(settings, 100) == pytest.approx(0.0)
    one, again, other = (first_weights(SIZES, seed) for seed in (1, 1, 2))
    assert {name: tuple(array.shape) for name, array in one.items()} == shapes(SIZES)
    assert torch.equal(one["embedding.weight"], again["embedding.weight"])
    assert not torch.equal(one["embedding.weight"], other["embedding.weight"])


def test_losses_ask_for_repeats_alone():
    shares = torch.tensor([[[0.5, 0.1, 0.4], [0.2, 0.7, 0.1], [0.25, 0.5, 0.25]]])
    spelling = torch.tensor([[8, 9, 8]])
    expected = -(math.log(0.4) + math.log(0.25)) / 2
    assert repeats_loss(shares, spelling).item() == pytest.approx(expected, abs=1e-5)
    for spelling in ([8, 9, 7], [IGNORED, IGNORED, IGNORED]):
        assert repeats_loss(torch.full((1, 3, 3), 1 / 3), torch.tensor([spelling])).item() == 0


@pytest.mark.core
def test_a_few_steps_lead_the_head(tmp_path):
    examples, tokenizer = small_examples(tmp_path, Recipe(chain=1, longest=40))
    sizes = TranslatorSizes(
        tokenizer.get_vocab_size(), 32, 4, 32, encoder_layers=1, decoder_layers=3
    )
    settings = Settings(steps=40, rate=1e-2, warm_up=4)
    run = Run(settings, first_weights(sizes, 0), translation(sizes, settings, 41))
    source = batches(examples, 0, 0, 100)
    read = torch.tensor([tokenizer.encode("The cat sleeps . The cat sleeps .").ids])

    @torch.no_grad()
    def share() -> float:
        embedded = embed_pieces(
            run.weights["embedding.weight"][read], waves(read.shape[1], sizes.size, "cpu")
        )
        weights = run_encoder(run.weights, sizes, embedded)[1][REPEATS_LAYER][0, REPEATS_HEAD]
        same = (read[0][:, None] == read[0]) & ~torch.eye(read.shape[1], dtype=torch.bool)
        return float((weights * same).sum(-1)[same.any(-1)].mean())

    before = share()
    for _ in range(40):
        run.learn(next(source))
    assert share() > 1.5 * before
