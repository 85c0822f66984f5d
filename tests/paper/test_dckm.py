"""Figure 2 of DCKM on its own data, and the study's baselines on made-up rows."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

from operators.dckm.balance import Moments, balance_cost
from operators.dckm.features import Coder
from tests.paper.data_sets import SkippedError
from tests.paper.dckm.runs import (
    DROPPED_ABOVE,
    SCALE,
    SETS,
    K,
    dckm,
    lloyd_from_partition,
    load,
    without_twins,
)


@pytest.mark.parametrize("name", SETS)
def test_weights_halve_the_correlation(name: str) -> None:
    try:
        data = load(name)
    except SkippedError as reason:
        pytest.skip(str(reason))
    found = dckm(data, 0)
    assert found["after"] < found["before"] / 2
    assert found["share"] > 0.2


def test_costs_of_signs_are_four_times_those_of_zero_and_one() -> None:
    """So that lambda2 and lambda3 of the paper, whose features are 0 or 1, are multiplied by 4."""
    rng = np.random.default_rng(0)
    T, w, centre = rng.integers(0, 2, (30, 4)).astype(float), rng.random(30), rng.random(4)
    treated = (T.T @ (w[:, None] * T)) / (w @ T)
    others = (T.T @ (w[:, None] * (1 - T))) / (w @ (1 - T))
    D = treated - others
    np.fill_diagonal(D, 0)  # equation 5
    Z = Coder.of(T, "binarize")(T).Z.astype(float)
    assert set(np.unique(Z)) == {-1.0, 1.0}
    sums = Moments(Z.T @ (w[:, None] * T), Z.T @ w, T.T @ w, np.asarray(w.sum()))
    assert balance_cost(sums) == pytest.approx(SCALE * (D**2).sum())
    error = np.square(T - centre).sum(axis=1) @ w
    assert np.square(Z - (2 * centre - 1)).sum(axis=1) @ w == pytest.approx(SCALE * error)


def test_twins_are_dropped_and_nothing_else() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 6))
    twins = np.column_stack([X[:, 0], X[:, 1], -X[:, 0] + 0.1 * X[:, 2], X[:, 3], X[:, 1]])
    np.testing.assert_array_equal(without_twins(twins), twins[:, [0, 1, 3]])
    assert np.abs(np.corrcoef(X.T) - np.eye(6)).max() < DROPPED_ABOVE
    np.testing.assert_array_equal(without_twins(X), X)


def test_lloyd_from_a_partition_finds_what_is_far_apart() -> None:
    y = np.repeat(np.arange(K), 20)
    X = np.eye(K)[y] * 50 + np.random.default_rng(0).normal(size=(200, K))
    best = max(adjusted_rand_score(y, lloyd_from_partition(X, seed)) for seed in range(5))
    assert best > 0.7
    light = np.where(y < 5, 1.0, 1e-9)
    labels = lloyd_from_partition(X, 0, light)
    assert len(np.unique(labels[y < 5])) >= len(np.unique(lloyd_from_partition(X, 0)[y < 5]))
