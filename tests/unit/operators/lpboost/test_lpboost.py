import subprocess
import sys
import warnings

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from operators import lpboost
from operators.lpboost import duality_gap, regularised, solve, solve_model_weights
from operators.metrics import cvar

ALPHAS = [1e-6, 0.1, 1 / 3, 0.5, 1.0]
rng = np.random.default_rng(0)
HARD = {
    "one row": rng.random((1, 3)),
    "one model": rng.random((20, 1)),
    "one 0/1 model": np.round(rng.random((20, 1))),
    "all equal": np.full((30, 4), 0.4),
    "all right": np.zeros((30, 4)),
    "all wrong": np.ones((30, 4)),
    "a perfect model": np.column_stack([rng.random((50, 3)), np.zeros(50)]),
    "equal rows": np.repeat(rng.random((5, 4)), 10, axis=0),
    "equal models": np.repeat(rng.random((50, 2)), 3, axis=1),
    "one wrong row": np.vstack([np.zeros((99, 3)), np.ones((1, 3))]),
    "each wrong once": np.eye(40),
    "more models than rows": rng.random((5, 30)),
    "nearly nothing": rng.random((300, 10)) * 1e-9,
}

shapes = st.tuples(st.integers(1, 30), st.integers(1, 6))
real = shapes.flatmap(lambda shape: arrays(np.float64, shape, elements=st.floats(0, 1)))
games = real | real.map(np.round)


def feasible(solution, n, alpha):
    for weights, cap in ((solution.sample_weights, max(1 / n, 1 / (alpha * n))), (solution.model_weights, 1)):
        assert weights.min() >= 0
        assert weights.max() <= cap + 1e-12
        assert weights.sum() == pytest.approx(1, abs=1e-12)


@given(games, st.floats(0.01, 1))
def test_strong_duality(losses, alpha):
    """Proposition 3: 1 - gamma* = 1 - rho* = least CVaR, and HiGHS agrees."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # no fallback
        found = solve(losses, alpha)
    feasible(found, len(losses), alpha)
    primal = cvar(losses @ found.model_weights, min(1, max(alpha, 1 / len(losses))))
    dual = (found.sample_weights @ losses).min()
    assert primal == pytest.approx(dual, abs=1e-7)
    assert solve(losses, alpha, method="highs").value == pytest.approx(found.value, abs=2e-7)


@settings(max_examples=10)
@given(games, st.floats(0.05, 1), st.floats(1, 100))
@example(np.array([[0.0, 1, 1], [1, 0, 1]]), 0.5, 1.0)  # CLARABEL's lambda is off by 3e-7
def test_regularised_optimum_is_clarabels(losses, alpha, beta):
    """Equation 8 with its sign put right, <w, l> >= 1 - gamma: CVXPY is given it that way round."""
    found = solve(losses, alpha, beta)
    feasible(found, len(losses), alpha)
    gap = duality_gap(losses, found.sample_weights, found.model_weights, alpha, beta)
    assert -1e-12 < gap <= 1e-7
    assert solve(losses, alpha, beta, method="clarabel").value == pytest.approx(found.value, abs=2e-7)


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("name", HARD)
def test_degenerate_games(name, alpha):
    losses = HARD[name]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = solve(losses, alpha)
    feasible(found, len(losses), alpha)
    assert duality_gap(losses, found.sample_weights, found.model_weights, alpha) <= 1e-7
    assert found.value == pytest.approx(solve(losses, alpha, method="highs").value, abs=1e-7)


@pytest.mark.parametrize("beta", [1e-3, 1.0, 50.0, 2e3, 1e5, 1e12, 1e300])
@pytest.mark.parametrize("name", HARD)
def test_degenerate_regularised_games(name, beta):
    losses = HARD[name]
    for alpha in ALPHAS:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            found = solve(losses, alpha, beta)
        feasible(found, len(losses), alpha)
        assert duality_gap(losses, found.sample_weights, found.model_weights, alpha, beta) <= 1e-7


@given(games, st.floats(0.01, 1), st.floats(-3, 12))
def test_strong_duality_with_entropy(losses, alpha, magnitude):
    beta = 10**magnitude
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = solve(losses, alpha, beta)
    feasible(found, len(losses), alpha)
    gap = duality_gap(losses, found.sample_weights, found.model_weights, alpha, beta)
    assert -1e-12 * max(1, 1 / beta) <= gap <= 1e-7


def test_tiny_beta_leaves_the_rows_alike():
    losses = rng.random((40, 3))
    found = solve(losses, 0.1, 1e-12)
    assert found.gap <= 1e-7
    np.testing.assert_allclose(found.sample_weights, 1 / 40, rtol=1e-10)
    assert found.model_weights.argmax() == losses.mean(axis=0).argmin()


def test_game_that_newton_leaves_open_goes_to_the_interior_point(monkeypatch):
    losses = np.random.default_rng(8).random((200, 5))
    whole = solve(losses, 0.1, 60.0)
    monkeypatch.setattr("operators.lpboost.regularised.MAX_STEPS", 1)
    found = solve(losses, 0.1, 60.0)
    assert (whole.method, found.method) == ("newton", "interior")
    assert found.value == pytest.approx(whole.value, abs=1e-7)
    np.testing.assert_allclose(found.sample_weights, whole.sample_weights, atol=1e-5)


def test_passes_of_newton_count_its_directions(monkeypatch):
    directions, original = [], regularised._direction
    monkeypatch.setattr(regularised, "_direction", lambda *given: directions.append(1) or original(*given))
    found = solve(np.random.default_rng(8).random((200, 5)), 0.1, 60.0)
    assert (found.method, found.passes) == ("newton", len(directions))


def test_clarabel_can_be_forced_on_the_linear_program():
    losses = np.round(np.random.default_rng(1).random((200, 5)))
    found = solve(losses, 0.2, method="clarabel")
    assert found.method == "clarabel"
    assert found.value == pytest.approx(solve(losses, 0.2).value, abs=1e-7)


def test_equal_rows_get_equal_weights():
    losses = np.repeat(np.round(np.random.default_rng(2).random((6, 4))), 7, axis=0)
    weights = solve(losses, 0.3).sample_weights.reshape(6, 7)
    np.testing.assert_allclose(weights, weights[:, :1].repeat(7, axis=1), atol=1e-12)


def test_large_beta_approaches_the_linear_program():
    losses = np.random.default_rng(3).random((400, 8))
    plain = solve(losses, 0.1).value
    for beta in (30.0, 300.0):
        entropy_bound = np.log(400) / beta
        assert 0 <= solve(losses, 0.1, beta).value - plain <= entropy_bound


def test_five_models_that_share_their_errors():
    losses = np.kron(np.eye(5), np.ones((10, 1)))
    np.testing.assert_allclose(solve_model_weights(losses, 0.1), 0.2, atol=1e-6)
    assert solve(losses, 0.1).value == pytest.approx(0.2, abs=1e-7)


def test_gap_of_weights_that_are_not_optimal():
    losses = np.array([[0.0, 1.0], [1.0, 0.0]])
    assert duality_gap(losses, [0.5, 0.5], [1, 0], 0.5) == pytest.approx(0.5)
    assert duality_gap(losses, [0.5, 0.5], [0.5, 0.5], 0.5) == pytest.approx(0)


def test_fallback_is_announced(monkeypatch):
    solver = lpboost.SampleWeightSolver(0.2)
    losses = np.random.default_rng(4).random((300, 2))
    solver.add(losses[:, 0])
    monkeypatch.setattr("operators.lpboost.sifting.MAX_PASSES", 1)
    monkeypatch.setattr("operators.lpboost.interior.MAX_STEPS", 2)
    with pytest.warns(RuntimeWarning, match="a library solves the problem again"):
        solver.add(losses[:, 1])
    assert (solver.fallbacks_, solver.solution_.method) == (1, "highs")
    assert solver.solution_.gap <= 1e-7


def test_library_that_does_not_certify_is_an_error(monkeypatch):
    monkeypatch.setattr("operators.lpboost.solver.MAX_GAP", -1.0)
    with pytest.raises(lpboost.UncertifiedError, match="highs left a duality gap"):
        solve(np.eye(3), 0.5, method="highs")


@pytest.mark.parametrize(
    ("losses", "options", "message"),
    [
        (np.zeros(3), {"alpha": 0.1}, "losses has shape"),
        (np.zeros((0, 2)), {"alpha": 0.1}, "at least one of each"),
        (np.full((3, 2), 2.0), {"alpha": 0.1}, r"lie in \[2, 2\]"),
        (np.full((3, 2), np.nan), {"alpha": 0.1}, "finite and in"),
        (np.zeros((3, 2)), {"alpha": 0.0}, "alpha is 0.0"),
        (np.zeros((3, 2)), {"alpha": 0.1, "beta": -1.0}, "beta is -1.0"),
        (np.zeros((3, 2)), {"alpha": 0.1, "method": "mosek"}, "method is 'mosek'"),
        (np.zeros((3, 2)), {"alpha": 0.1, "beta": 9.0, "method": "highs"}, "no entropy term"),
    ],
)
def test_bad_input_is_named(losses, options, message):
    with pytest.raises(ValueError, match=message):
        solve(losses, **options)


def test_infeasible_weights_prove_nothing():
    with pytest.raises(ValueError, match="sample_weights lie in"):
        duality_gap(np.eye(4), [1, 0, 0, 0], [0.25] * 4, 0.5)


def test_cvxpy_is_imported_only_where_it_is_asked_for():
    """A planner imports this; cvxpy alone takes seconds."""
    code = "import sys, operators.lpboost; print('cvxpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "False"
