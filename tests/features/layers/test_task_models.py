"""The three small models learn, and neither padding nor the future reaches them."""

import pytest
import torch
from torch.nn.functional import cross_entropy, pad

from attnviz.features.layers.task_models import mean_of_real
from attnviz.layers import SequenceClassifier, Summarizer, TokenClassifier

VOCABULARY = 20
TEXTS = torch.tensor([[3, 4, 5, 6, 7], [8, 9, 10, 0, 0], [11, 5, 3, 12, 0]])
TAGS = torch.tensor([[0, 1, 2, 0, 1], [2, 2, 0, -100, -100], [1, 0, 0, 2, -100]])
SUMMARIES = torch.tensor([[1, 3, 7, 2], [1, 9, 2, 0], [1, 12, 11, 2]])


def small(model, *arguments, **options):
    torch.manual_seed(38)
    return model(VOCABULARY, *arguments, size=16, heads=2, layers=2, **options)


def losses(model, loss, steps=60):
    """The loss before and after a few steps on a handful of examples."""
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    seen = []
    for _ in range(steps):
        optimizer.zero_grad()
        value = loss(model)
        value.backward()
        optimizer.step()
        seen.append(value.item())
    return seen[0], seen[-1]


@pytest.mark.slow
def test_each_small_model_learns_a_handful_by_heart():
    model = small(TokenClassifier, 3, dropout=0.0)
    first, last = losses(model, lambda m: cross_entropy(m(TEXTS)[0].mT, TAGS))
    assert last < 0.05 < 0.5 < first
    found = model.eval()(TEXTS)[0].argmax(dim=-1)
    assert (found == TAGS)[TAGS >= 0].all()
    model, labels = small(SequenceClassifier, 2, dropout=0.0), torch.tensor([0, 1, 1])
    first, last = losses(model, lambda m: cross_entropy(m(TEXTS)[0], labels))
    assert last < 0.05 < 0.3 < first
    assert (model.eval()(TEXTS)[0].argmax(dim=-1) == labels).all()
    model = small(Summarizer, dropout=0.0)

    def loss(model):
        logits, _ = model(TEXTS, SUMMARIES[:, :-1])
        return cross_entropy(logits.mT, SUMMARIES[:, 1:], ignore_index=0)

    first, last = losses(model, loss)
    assert last < 0.05 < 1 < first


@pytest.mark.parametrize("longer", [1, 3, 30])
def test_padding_changes_nothing_real(longer):
    text, summary = TEXTS[:1], SUMMARIES[:1]
    more, written = pad(text, (0, longer)), pad(summary, (0, longer + 1))
    for model, alone, padded in (
        (small(TokenClassifier, 3), (text,), (more,)),
        (small(SequenceClassifier), (text,), (more,)),
        (small(Summarizer), (text, summary), (more, written)),
    ):
        expected, _ = model.eval()(*alone)
        found, _ = model(*padded)
        real = found[:, : expected.shape[1]] if found.ndim == 3 else found
        torch.testing.assert_close(real, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("position", [1, 2, 3])
def test_a_later_token_changes_no_earlier_position(position):
    model = small(Summarizer).eval()
    before, _ = model(TEXTS, SUMMARIES)
    changed = SUMMARIES.clone()
    changed[:, position] = 13
    after, _ = model(TEXTS, changed)
    torch.testing.assert_close(after[:, :position], before[:, :position], rtol=0, atol=0)
    assert (after[:, position] - before[:, position]).abs().max() > 1e-3


def test_words_reach_positions_and_places_tell_them_apart():
    model = small(Summarizer).eval()
    before, _ = model(TEXTS[:1], SUMMARIES[:1])
    after, _ = model(TEXTS[:1].flip(-1), SUMMARIES[:1])
    assert ((after - before).abs().amax(dim=-1) > 1e-4).all()
    thrice = torch.full((1, 3), 5)
    for logits in (
        small(TokenClassifier, 3).eval()(thrice)[0],
        small(Summarizer).eval()(TEXTS[:1], thrice)[0],
    ):
        assert (logits[0, 0] - logits[0, 1]).abs().max() > 1e-3
        assert (logits[0, 1] - logits[0, 2]).abs().max() > 1e-3


@pytest.mark.parametrize("model", [TokenClassifier, SequenceClassifier])
def test_weights_come_for_each_layer_on_request(model):
    model = small(model, 3).eval()
    logits, nothing = model(TEXTS)
    same, weights = model(TEXTS, need_weights=True)
    assert nothing is None
    assert [tuple(layer.shape) for layer in weights] == [(3, 2, 5, 5)] * 2
    torch.testing.assert_close(logits, same, rtol=0, atol=0)
    for layer in weights:
        assert (layer.movedim(-1, 1)[TEXTS == 0] == 0).all()


def test_the_summarizer_gives_its_three_weights():
    model = small(Summarizer).eval()
    assert model(TEXTS, SUMMARIES)[1] is None
    _, weights = model(TEXTS, SUMMARIES, need_weights=True)
    shapes = [[tuple(layer.shape) for layer in stream] for stream in weights]
    assert shapes == [[(3, 2, 5, 5)] * 2, [(3, 2, 4, 4)] * 2, [(3, 2, 4, 5)] * 2]
    for layer in weights.cross:
        torch.testing.assert_close(layer.sum(dim=-1), torch.ones(3, 2, 4))


@pytest.mark.parametrize("batch", [(), (1,), (1, 1)], ids=str)
def test_any_leading_axes_are_a_batch(batch):
    model = small(Summarizer).eval()
    logits, _ = model(TEXTS[0].expand(*batch, 5), SUMMARIES[0].expand(*batch, 4))
    assert logits.shape == (*batch, 4, VOCABULARY)


def test_padding_in_numbers_and_in_means():
    empty = torch.zeros(2, 4, dtype=torch.int64)
    for output in (
        small(TokenClassifier, 3)(empty),
        small(SequenceClassifier)(empty),
        small(Summarizer)(empty, empty),
    ):
        assert torch.isfinite(output[0]).all()
    hidden = torch.tensor([[[1.0, 2.0], [3.0, 6.0], [99.0, float("nan")]], [[5.0, 5.0]] * 3])
    real = torch.tensor([[True, True, False], [False, False, False]])
    assert mean_of_real(hidden, real).tolist() == [[2, 4], [0, 0]]
    model = small(TokenClassifier, 3, padding=19).eval()
    alone, _ = model(torch.tensor([[0, 3, 4]]))
    padded, _ = model(torch.tensor([[0, 3, 4, 19]]))
    torch.testing.assert_close(padded[:, :3], alone, rtol=0, atol=1e-5)


@pytest.mark.parametrize("model", [TokenClassifier, SequenceClassifier, Summarizer])
def test_parameters_saved_and_loaded_give_the_same_logits(model):
    labels = () if model is Summarizer else (3,)
    one = small(model, *labels).eval()
    torch.manual_seed(39)
    other = model(VOCABULARY, *labels, size=16, heads=2, layers=2).eval()
    other.load_state_dict(one.state_dict())
    given = (TEXTS, SUMMARIES) if model is Summarizer else (TEXTS,)
    torch.testing.assert_close(one(*given)[0], other(*given)[0], rtol=0, atol=0)
