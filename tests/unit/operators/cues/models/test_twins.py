"""Twins, their held-out errors and the environments made of them."""

from __future__ import annotations

import numpy as np

from operators.cues.models import draws, half_models
from operators.cues.models import twins as environments


def test_environment_factor_gives_both_environments_the_same_mass():
    rng = np.random.default_rng(4)
    y = rng.integers(0, 2, 1000)
    hard = rng.random(1000) < 0.1
    p_own = np.where(hard, 0.0, 1.0)
    p = np.where(np.arange(2) == y[:, None], p_own[:, None], 1 - p_own[:, None])[None]
    w = environments.environment_factor(p, y, environments.mean_errors(p, y, 2), 2)
    for c in (0, 1):
        assert np.isclose(w[hard & (y == c)].sum(), w[~hard & (y == c)].sum())
        assert np.isclose(w[y == c].mean(), 1)


def test_environments_make_a_shortcut_of_three_classes_independent_of_the_label():
    rng = np.random.default_rng(5)
    y = rng.integers(0, 3, 3000)
    points_to = np.where(rng.random(3000) < 0.9, y, (y + rng.integers(1, 3, 3000)) % 3)
    p = np.eye(3)[points_to][None]
    w = environments.environment_factor(p, y, environments.mean_errors(p, y, 3), 3)
    table = np.bincount(3 * y + points_to, w, minlength=9).reshape(3, 3)
    np.testing.assert_allclose(table / table.sum(axis=1, keepdims=True), 1 / 3, atol=0.04)


def test_held_out_rows_are_judged_by_the_model_of_the_other_half():
    ids = np.arange(40)
    models = np.zeros((1, 2, 2, 2))
    models[0, 0, 1] = [3.0, 0.0]  # The twin of half 0 always says class 0, that of half 1 class 1.
    models[0, 1, 1] = [0.0, 3.0]
    p = half_models.held_out(models, np.zeros((40, 1), np.float32), ids, seed=5)[0]
    assert np.array_equal(p.argmax(axis=1), 1 - draws.halves(ids, 5, 0))


def test_a_label_flips_with_the_chance_of_the_paper():
    n = 40_000
    ids = np.arange(n)
    p = np.array([0.7, 0.2, 0.1])
    model = np.vstack([np.zeros((1, 3)), np.log(p)])
    parts = [np.arange(n // 2), np.arange(n // 2, n)]
    labels = environments._imitate(
        np.zeros((n, 1), np.float32), np.full(n, 2), draws.flip_draws(ids, 0, 0, 0), parts, [model, model]
    )
    assert abs((labels == 0).mean() - (0.7 - 1 / 3) * 1.5) < 0.01
    assert not (labels == 1).any()
