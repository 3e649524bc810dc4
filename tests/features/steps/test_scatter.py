from dataclasses import replace

import numpy as np
import pytest

from attnviz.features.steps.arithmetic import arithmetic
from attnviz.features.steps.given import CalculationInputs, worked_example
from attnviz.features.steps.scatter import _freest_box, project_to_3d, scatter


def test_points_and_lines_are_drawn_where_they_are():
    assert len(scatter(arithmetic(worked_example())).axes) == 2
    assert len(scatter(arithmetic(CalculationInputs("naive", np.eye(3)))).axes) == 1
    inputs = np.array([[1.0, 2.0, 3.0], [0.0, 1.0, 0.0]])
    axes = scatter(arithmetic(CalculationInputs("naive", inputs))).axes[0]
    points = next(part for part in axes.collections if part.get_label() == "inputs")
    drawn = np.stack(points._offsets3d, axis=-1)
    np.testing.assert_allclose(drawn, inputs)
    axes = scatter(arithmetic(worked_example())).axes[1]
    assert sorted(text.get_text() for text in axes.texts) == ["k0", "k1", "k2", "q0", "q1", "q2"]
    steps = arithmetic(worked_example())
    lines = scatter(steps).axes[1].collections[0]
    assert sorted(lines.get_colors()[:, 3]) == pytest.approx(sorted(steps["weights"].flat))


def test_given_queries_and_keys_stand_for_the_inputs():
    query, key, value = np.eye(3)[:2], np.eye(3), np.ones((3, 2))
    clouds = scatter(arithmetic(CalculationInputs("given", query, key, value=value))).axes
    names = [[part.get_label() for part in axes.collections][-2:] for axes in clouds]
    assert names == [["query", "key"], ["value", "output"]]
    drawn = np.stack(clouds[0].collections[0]._offsets3d, axis=-1)
    np.testing.assert_allclose(drawn, query)


def test_other_numbers_of_features_are_placed_and_said():
    placed, words = project_to_3d(np.array([[1.0, 2.0]]))
    assert placed.tolist() == [[1.0, 2.0, 0.0]]
    assert words == "2 features, padded with 0"
    flat = np.random.default_rng(0).standard_normal((6, 3))
    turned = flat @ np.linalg.qr(np.random.default_rng(1).standard_normal((7, 7)))[0][:3]
    placed, words = project_to_3d(turned)
    apart = np.linalg.norm(placed[:, None] - placed[None], axis=-1)
    np.testing.assert_allclose(apart, np.linalg.norm(flat[:, None] - flat[None], axis=-1))
    assert words == "principal components 1–3 of 7 features, 100% of the variance"


@pytest.mark.parametrize("count", [1, 2])
def test_few_points_of_many_features_are_placed_too(count):
    placed, _ = project_to_3d(np.arange(5.0 * count).reshape(count, 5))
    assert placed.shape == (count, 3)
    assert np.isfinite(placed).all()


def test_a_name_stands_where_no_other_does():
    first = _freest_box(100, 100, 40, [])
    assert first[0] > 100
    second = _freest_box(100, 100, 40, [first])
    assert second[2] < 100
    assert all(bottom < 100 < top for _, bottom, _, top in (first, second))


def test_a_mask_that_hides_all_leaves_points_without_lines():
    hidden = replace(worked_example(), mask=np.zeros((3, 3), bool))
    axes = scatter(arithmetic(hidden)).axes[1]
    assert [part.get_label() for part in axes.collections] == ["value", "output"]
    assert "as dark as its weight" not in axes.get_title()
