"""Limits of the weights."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from operators.cues import limits


@pytest.mark.parametrize("cap", [2.0, 20.0])
def test_limits_hold(cap):
    rng = np.random.default_rng(8)
    y = rng.integers(0, 3, 3000)
    factor = np.exp(3 * rng.normal(size=3000))
    factor[:3] = [np.nan, np.inf, 0.0]
    found = limits.fit_limits(factor, y, 3, cap=cap, min_effective=0.4).apply(factor, y)
    assert np.isfinite(found).all()
    assert found.min() >= 0
    assert found.max() <= cap
    assert (limits.effective_share(found, y, 3) >= 0.4 - 1e-9).all()


def test_a_larger_cap_never_lowers_the_largest_weight():
    rng = np.random.default_rng(9)
    y, factor = np.zeros(2000, int), np.exp(2 * rng.normal(size=2000))
    largest = [
        limits.fit_limits(factor, y, 1, cap=c, min_effective=0.01).apply(factor, y).max()
        for c in (1, 2, 5, 10, 20, 40)
    ]
    assert all(a <= b + 1e-12 for a, b in itertools.pairwise(largest))


def test_effective_share_is_kishs():
    w, y = np.array([1.0, 1, 2, 5]), np.array([0, 0, 0, 1])
    assert np.allclose(limits.effective_share(w, y, 2), [16 / 18, 1])


def test_a_class_that_the_limits_have_not_seen_has_the_weight_of_its_class():
    factor, y = np.array([3.0, 1.0, 1.0, 1.0]), np.array([0, 0, 2, 2])
    found = limits.fit_limits(factor, y, 4, cap=20.0, min_effective=0.2)
    assert found.trust.tolist() == [1.0, 0.0, 1.0, 0.0]
    assert found.apply(np.full(4, 5.0), np.arange(4))[[1, 3]].tolist() == [1.0, 1.0]


def test_a_class_without_trust_is_not_said_to_be_shrunk():
    assert limits.Limits(np.ones(3), np.array([0.7, 1.0, 0.0]), 20.0).shrinkage() == pytest.approx(0.3)
    assert limits.Limits.of_class_balance(2, 20.0).shrinkage() == 0
