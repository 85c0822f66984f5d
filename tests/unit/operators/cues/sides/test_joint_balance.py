"""Several named shortcuts balanced at once: raking against an optimiser and by hand."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize

from operators.cues.named.named_sides import fit_sides
from operators.cues.settings import Named
from operators.cues.sides.joint_balance import balance_jointly, joint_factor
from operators.cues.sides.sides import Sides

Table = tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]


def _alone(Z: npt.NDArray[np.float32], y: npt.NDArray[np.int64], C: int) -> list[Sides]:
    return [fit_sides(Named((k,)), Z, y, C, 0.5) for k in range(Z.shape[1])]


def _two_cues(n: int = 4000, C: int = 2, seed: int = 0) -> Table:
    rng = np.random.default_rng(seed)
    y = rng.integers(0, C, n)
    columns = [np.where(rng.random(n) < share, y == 0, y != 0) for share in (0.8, 0.7)]
    return np.column_stack(columns).astype(np.float32), y


def _three_words(n: int = 3000) -> Table:
    """Rows of which 93 % of class 1 and 7 % of class 0 contain one of three words."""
    rng = np.random.default_rng(1)
    y = rng.integers(0, 2, n)
    word = np.where(rng.random(n) < np.where(y == 1, 0.93, 0.07), rng.integers(0, 3, n), 3)
    return (word[:, None] == np.arange(3)).astype(np.float32), y


def _shares(Z: npt.NDArray[np.float32], y: npt.NDArray[np.int64], w: npt.NDArray[np.float64]) -> object:
    """Return the weighted share of each column's upper side in each class, shape (C, d)."""
    return np.array([w[y == c] @ Z[y == c] / w[y == c].sum() for c in np.unique(y)])


@pytest.mark.parametrize("C", [2, 3])
def test_all_shortcuts_are_independent_of_the_label(C: int):
    Z, y = _two_cues(C=C)
    before = np.array(_shares(Z, y, np.ones(len(y))))
    w = joint_factor(balance_jointly(_alone(Z, y, C), Z, y, C), Z, y)
    assert np.allclose(_shares(Z, y, w), np.tile(before.mean(axis=0), (C, 1)), atol=2e-3)
    assert np.ptp(before, axis=0).min() > 0.15  # what the weights have evened out
    assert np.allclose(np.bincount(y, w) / np.bincount(y), 1, atol=2e-3)  # class balance stays


def test_the_factors_are_the_nearest_to_one_in_relative_entropy():
    """Raking gives the weights of least relative entropy to 1 among those with the wanted shares."""
    Z, y = _two_cues(400)
    w = joint_factor(balance_jointly(_alone(Z, y, 2), Z, y, 2), Z, y)
    target = np.array(_shares(Z, y, np.ones(len(y)))).mean(axis=0)
    for c in (0, 1):
        inside, n = Z[y == c].astype(float), int((y == c).sum())
        M = np.column_stack([np.ones(n), inside]).T

        def dual(a: npt.NDArray[np.float64], M: npt.NDArray[np.float64] = M, n: int = n) -> float:
            return float(np.exp(a @ M).sum() - n * (a @ np.array([1, *target])))

        found = minimize(dual, np.zeros(3), method="BFGS", options={"gtol": 1e-8})
        assert np.allclose(w[y == c], np.exp(found.x @ M), rtol=0.01)


def test_words_that_exclude_each_other_are_as_good_as_one_entry():
    Z, y = _three_words()
    w = joint_factor(balance_jointly(_alone(Z, y, 2), Z, y, 2), Z, y)
    any_word = Z.max(axis=1, keepdims=True)
    shares = np.array(_shares(any_word, y, w)).ravel()
    assert abs(shares[0] - shares[1]) < 0.01
    alone = np.mean([one.apply(Z, y) for one in _alone(Z, y, 2)], axis=0)  # each word for itself
    apart = np.array(_shares(any_word, y, alone)).ravel()
    assert abs(apart[0] - apart[1]) > 0.3


def test_a_single_shortcut_stays_as_it_is():
    Z, y = _two_cues()
    only = _alone(Z[:, :1], y, 2)
    assert balance_jointly(only, Z, y, 2) == tuple(only)
    assert np.array_equal(joint_factor(only, Z, y), only[0].apply(Z, y))
    assert balance_jointly([], Z, y, 2) == ()
    assert np.array_equal(joint_factor([], Z, y), np.ones(len(y)))


def test_naming_a_shortcut_twice_changes_nothing():
    Z, y = _two_cues()
    once = joint_factor(balance_jointly(_alone(Z, y, 2), Z, y, 2), Z, y)
    twice = [*_alone(Z, y, 2), _alone(Z, y, 2)[0]]
    assert np.allclose(joint_factor(balance_jointly(twice, Z, y, 2), Z, y), once, rtol=5e-3)


def test_the_order_of_names_makes_no_difference():
    Z, y = _three_words()
    sides = _alone(Z, y, 2)
    found = [joint_factor(balance_jointly(order, Z, y, 2), Z, y) for order in permutations(sides)]
    assert np.allclose(found, found[0], rtol=5e-3)


def test_numbers_and_categories_together():
    Z, y = _two_cues(C=3)
    rng = np.random.default_rng(3)
    level = np.where(rng.random(len(y)) < 0.5, y, rng.integers(0, 3, len(y)))
    Z = np.column_stack([Z, level[:, None] == np.arange(3)]).astype(np.float32)
    names = [(Named((0,)), 0.5), (Named((2, 3, 4)), 0.0)]
    sides = balance_jointly([fit_sides(name, Z, y, 3, cut) for name, cut in names], Z, y, 3)
    w = joint_factor(sides, Z, y)
    shares = np.array(_shares(Z[:, [0, 2, 3, 4]], y, w))
    assert np.ptp(shares, axis=0).max() < 0.01


@given(
    data=st.lists(
        st.tuples(st.integers(0, 2), st.booleans(), st.booleans(), st.booleans()), min_size=1, max_size=40
    )
)
def test_any_table_gets_finite_factors(data: list[tuple[int, bool, bool, bool]]):
    """Classes without rows, classes that show one side alone, columns that are the label."""
    y = np.array([row[0] for row in data])
    Z = np.array([row[1:] for row in data], np.float32)
    sides = balance_jointly(_alone(Z, y, 3), Z, y, 3)
    w = joint_factor(sides, Z, y)
    assert np.isfinite(w).all()
    assert ((w > 0) & (w <= 20)).all()
