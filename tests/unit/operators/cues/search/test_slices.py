"""Slices of features against plain definitions."""

from __future__ import annotations

import numpy as np

from operators.cues.search import slices


def test_candidate_cuts():
    assert len(slices.candidate_cuts(np.full(9, 2.0))) == 0
    assert slices.candidate_cuts(np.array([0.0, 1, 1, 0])).tolist() == [0.5]
    x = np.random.default_rng(0).normal(size=1000).astype(np.float32)
    cuts = slices.candidate_cuts(x)
    assert len(cuts) == 10
    assert np.abs(cuts - np.median(x)).min() < 1e-6


def test_two_means_cut_lies_in_the_gap_and_minimises_the_variance():
    rng = np.random.default_rng(0)
    x = np.append(rng.normal(0, 0.1, 700), rng.normal(2, 0.1, 300))
    assert 0.4 < slices.two_means_cut(x) < 1.6
    x = rng.gamma(2.0, size=2000)
    low, high = np.quantile(x, [0.01, 0.99])
    x = np.clip(x, low, high)
    spread = [
        x[x <= t].var() * (x <= t).mean() + x[x > t].var() * (x > t).mean()
        for t in np.linspace(low, high, 400)[1:-1]
    ]
    assert abs(slices.two_means_cut(x) - np.linspace(low, high, 400)[1:-1][int(np.argmin(spread))]) < 0.1


def test_scores_of_cuts_equal_the_plain_definition():
    rng = np.random.default_rng(1)
    n, C = 400, 3
    Z, y = rng.normal(size=(n, 2)).astype(np.float32), rng.integers(0, C, n)
    p = rng.dirichlet(np.ones(C), n)
    found = slices.find_slices(Z, y, p)
    error = 1 - p[np.arange(n), y]
    for k in range(len(found.feature)):
        up = Z[:, found.feature[k]] > found.cut[k]
        fitted = np.where(up[:, None], p[up].mean(axis=0), p[~up].mean(axis=0))
        assert np.isclose(found.lean[k], fitted.var(axis=0).sum() / p.var(axis=0).sum())
        between = [
            np.where(up, error[up & (y == c)].mean(), error[~up & (y == c)].mean())[y == c].var()
            for c in range(C)
        ]
        within = [error[y == c].var() for c in range(C)]
        assert np.isclose(found.error[k], np.mean(between) / np.mean(within))
        assert np.allclose(found.above[k], [up[y == c].mean() for c in range(C)])


def one_slice(above):
    empty = np.zeros(1)
    return slices.Slices(np.array([0]), empty, np.array([above]), empty, empty, np.array([False]))


def test_the_factor_of_a_slice_makes_label_and_side_independent():
    rng = np.random.default_rng(2)
    y, side = rng.integers(0, 3, 900), rng.random(900) < 0.2
    w = one_slice([side[y == c].mean() for c in range(3)]).factor(0, side, y)
    cells = np.bincount(2 * y + side, w).reshape(3, 2)
    assert np.allclose(cells[:, 0], cells[:, 1])
    assert np.allclose(cells.sum(axis=1), np.bincount(y))


def test_the_factor_of_a_one_sided_class_is_one():
    w = one_slice([0.0, 0.5]).factor(0, np.array([False, True]), np.array([0, 1]))
    assert w.tolist() == [1.0, 1.0]


def test_scores_sum_to_one_and_skip_leaves_a_column_out():
    rng = np.random.default_rng(3)
    Z, y = rng.normal(size=(300, 4)).astype(np.float32), rng.integers(0, 2, 300)
    p = rng.dirichlet(np.ones(2), 300)
    assert np.isclose(slices.find_slices(Z, y, p).score().sum(), 1)
    assert 2 not in slices.find_slices(Z, y, p, frozenset({2})).feature


def test_without_usable_slices_the_factor_is_one():
    Z, y = np.zeros((50, 3), np.float32), np.arange(50) % 2
    found = slices.find_slices(Z, y, np.full((50, 2), 0.5))
    assert len(found.feature) == 0
    assert np.array_equal(slices.slice_factor(found, Z, y), np.ones(50))
