import numpy as np
import pytest
import torch

from attnviz.mechanisms.linear import causal_linear, feature_map, linear


def slowly(query, key, value, seen):
    """The definition, a number at a time."""

    def raised(vector):
        return np.array([x + 1 if x > 0 else np.exp(x) for x in vector])

    weights = np.zeros((len(query), len(key)))
    for i, asking in enumerate(query):
        for j, asked in enumerate(key):
            weights[i, j] = seen[i, j] * sum(raised(asking) * raised(asked))
        total = weights[i].sum()
        weights[i] /= total if total > 0 else 1
    output = np.zeros((len(query), value.shape[1]))
    for i in range(len(query)):
        for j in range(len(key)):
            output[i] += weights[i, j] * value[j]
    return output, weights


def arrays():
    random = np.random.default_rng(9)
    return random.normal(size=(4, 3)), random.normal(size=(5, 3)), random.normal(size=(5, 2))


def alike():
    random = np.random.default_rng(10)
    return [random.normal(size=(5, size)) for size in (3, 3, 2)]


both = pytest.mark.parametrize(
    ("formula", "given", "shown"),
    [(linear, arrays, np.ones((4, 5))), (causal_linear, alike, np.tril(np.ones((5, 5))))],
    ids=["linear", "causal"],
)


@both
@pytest.mark.parametrize("hidden", [(), (0,), (1, 3), (0, 4)], ids=str)
def test_it_is_the_definition_summed_one_by_one(formula, given, shown, hidden):
    seen = np.ones((1, 5), dtype=bool)
    seen[:, list(hidden)] = False
    found = formula(*given(), seen)
    for one, expected, flat in zip(
        found, slowly(*given(), shown * seen), formula(*given(), seen[0]), strict=True
    ):
        np.testing.assert_allclose(one, expected, rtol=0, atol=1e-13)
        np.testing.assert_array_equal(one, flat)


@both
def test_weights_and_masks_of_queries(formula, given, shown):
    output, weights = formula(*given(), need_weights=False)
    assert weights is None
    np.testing.assert_array_equal(output, formula(*given())[0])
    with pytest.raises(ValueError, match="one mask row"):
        formula(*given(), np.ones(shown.shape, dtype=bool))


def test_lengths_differ_and_features_have_slopes():
    query, key, value = alike()
    with pytest.raises(ValueError, match="as many queries as keys"):
        causal_linear(query[:3], key, value)

    inputs = torch.tensor([-800.0, -1.0, 0.0, 0.5, 800.0], dtype=torch.float64)
    ours, theirs = (inputs.clone().requires_grad_() for _ in range(2))
    mapped, expected = feature_map(ours), torch.nn.functional.elu(theirs) + 1
    torch.testing.assert_close(mapped, expected, rtol=0, atol=1e-15)
    mapped.sum().backward()
    expected.sum().backward()
    torch.testing.assert_close(ours.grad, theirs.grad, rtol=0, atol=1e-15)
