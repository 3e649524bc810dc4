"""The guide of the head for repeated words: its value by hand, and that learning follows it."""

import math

import pytest
import torch

from attnviz.models.pocket.model import TranslatorSizes, embed_pieces, run_encoder
from tests.pocket.small import small_examples
from training.batches import IGNORED, Recipe, batches
from training.loop import Run, Settings, first_weights
from training.objective import REPEATS_HEAD, REPEATS_LAYER, repeats_loss, waves
from training.stages import translation


def test_losses_ask_for_repeats_alone():
    shares = torch.tensor([[[0.5, 0.1, 0.4], [0.2, 0.7, 0.1], [0.25, 0.5, 0.25]]])
    spelling = torch.tensor([[8, 9, 8]])
    expected = -(math.log(0.4) + math.log(0.25)) / 2
    assert repeats_loss(shares, spelling).item() == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("spelling", [[8, 9, 7], [IGNORED, IGNORED, IGNORED]])
def test_a_text_that_repeats_nothing_costs_nothing(spelling):
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
