"""Boosting on weighted rows: caps of w_i / (alpha sum w), exact against replicated rows and CVXPY."""

import warnings
from importlib import import_module

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from operators.lpboost import (
    SampleWeightSolver,
    duality_gap,
    solve,
    solve_model_weights,
)
from operators.metrics import cvar


def game(seed, n=40, t=5):
    rng = np.random.default_rng(seed)
    losses = rng.random((n, t)) if seed % 2 else np.round(rng.random((n, t)))
    return losses, rng.integers(0, 5, n)


def by_cvxpy(losses, alpha, weights, beta=None):
    """The dual LP written down directly: maximise min_s <p, l_s> with p_i <= w_i / (alpha sum w)."""
    cp = import_module("cvxpy")
    p, theta = cp.Variable(len(losses)), cp.Variable()
    cap = weights / (alpha * weights.sum())
    problem = cp.Problem(cp.Maximize(theta), [losses.T @ p >= theta, cp.sum(p) == 1, p >= 0, p <= cap])
    return problem.solve(solver="HIGHS")


@given(st.integers(0, 10**6), st.floats(0.02, 1))
def test_whole_numbers_count_as_replicated_rows(seed, alpha):
    losses, times = game(seed)
    times[0] += 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # no fallback
        found = solve(losses, alpha, sample_weight=times)
        copies = solve(np.repeat(losses, times, axis=0), alpha)
    assert found.value == pytest.approx(copies.value, abs=2e-7)
    risk = losses @ found.model_weights
    assert cvar(risk, alpha, times) == pytest.approx(cvar(np.repeat(risk, times), alpha), abs=1e-12)
    assert cvar(risk, alpha, times) == pytest.approx(found.value, abs=1e-7)


@given(st.integers(0, 10**6), st.floats(0.05, 1), st.floats(1, 100))
def test_regularised_whole_numbers_count_as_replicated_rows(seed, alpha, beta):
    losses, times = game(seed)
    times[0] += 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = solve(losses, alpha, beta, sample_weight=times)
        copies = solve(np.repeat(losses, times, axis=0), alpha, beta)
    place = np.repeat(np.arange(len(times)), times)
    merged = np.bincount(place, copies.sample_weights, minlength=len(times))
    np.testing.assert_allclose(found.sample_weights, merged, atol=1e-4)
    gap = duality_gap(losses, found.sample_weights, found.model_weights, alpha, beta, sample_weight=times)
    assert -1e-12 < gap <= 1e-7


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("alpha", [0.03, 0.2, 0.7])
def test_published_weights_equal_cvxpy(seed, alpha):
    losses, _ = game(seed, n=300)
    weights = np.random.default_rng(seed).lognormal(0, 1.5, 300)
    weights[:20] = 0
    found = solve(losses, alpha, sample_weight=weights)
    assert found.method in ("sifting", "mean")
    assert found.value == pytest.approx(by_cvxpy(losses, alpha, weights), abs=1e-6)
    assert (found.sample_weights <= weights / (alpha * weights.sum()) + 1e-12).all()
    assert found.sample_weights.sum() == pytest.approx(1, abs=1e-12)
    assert cvar(losses @ found.model_weights, alpha, weights) - found.value <= 1e-7
    for method in ("highs", "clarabel"):
        other = solve(losses, alpha, method=method, sample_weight=weights)
        assert other.value == pytest.approx(found.value, abs=2e-7)


@pytest.mark.parametrize("beta", [5.0, 5e3])
def test_regularised_published_weights_equal_clarabel(beta):
    losses, _ = game(3, n=200)
    weights = np.random.default_rng(0).lognormal(0, 1, 200)
    weights[:7] = 0
    found = solve(losses, 0.2, beta, sample_weight=weights)
    assert found.method in ("newton", "interior")
    other = solve(losses, 0.2, beta, method="clarabel", sample_weight=weights)
    assert other.value == pytest.approx(found.value, abs=2e-7)
    assert not found.sample_weights[:7].any()


@pytest.mark.parametrize("beta", [None, 20.0])
def test_equal_weights_change_no_byte(beta):
    losses, _ = game(5, n=500)
    plain, equal = solve(losses, 0.1, beta), solve(losses, 0.1, beta, sample_weight=np.full(500, 0.37))
    np.testing.assert_array_equal(plain.sample_weights, equal.sample_weights)
    np.testing.assert_array_equal(plain.model_weights, equal.model_weights)


def test_a_tail_below_the_least_weight_is_the_worst_row():
    losses = np.array([[0.3, 0.4], [0.9, 0.1], [0.0, 1.0]])
    found = solve(losses, 1e-9, sample_weight=[5, 1, 1e-3])
    assert found.value == pytest.approx(solve(losses, 1e-9).value, abs=1e-7)


def test_rows_that_are_not_trusted_do_not_choose_the_mixture():
    """Model 0 fails on ten distrusted rows only, model 1 on twenty trusted ones."""
    losses = np.zeros((100, 2))
    losses[:10, 0] = losses[10:30, 1] = 1
    weights = np.where(np.arange(100) < 10, 0.02, 1.0)
    assert solve_model_weights(losses, 0.1, sample_weight=weights)[0] > 0.95
    assert solve_model_weights(losses, 0.1)[0] == pytest.approx(0.5, abs=1e-6)
    assert solve(losses, 0.1, sample_weight=weights).sample_weights[:10].max() <= 0.02 / (0.1 * 90.2) + 1e-12


@pytest.mark.parametrize("beta", [None, 20.0])
def test_rounds_equal_one_solution_of_all_losses(beta):
    rng = np.random.default_rng(1)
    losses, weights = np.round(rng.random((1500, 6))), rng.lognormal(0, 1, 1500)
    solver = SampleWeightSolver(0.1, beta, sample_weight=weights)
    for column in losses.T:
        solver.add(column)
    whole = solve(losses, 0.1, beta, sample_weight=weights)
    assert solver.solution_.value == pytest.approx(whole.value, abs=2e-7)
    assert solver.fallbacks_ == 0


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([1.0, 2.0], "one value for each of the 3 rows"),
        ([1.0, -1.0, 1.0], "row 1 has -1"),
        ([1.0, np.nan, 1.0], "row 1 has nan"),
        ([0.0, 0.0, 0.0], "are all 0"),
    ],
)
def test_faulty_weights(weights, message):
    with pytest.raises(ValueError, match=message):
        solve_model_weights(np.zeros((3, 2)), 0.5, sample_weight=weights)
    with pytest.raises(ValueError, match=message):
        cvar(np.zeros(3), 0.5, weights)
