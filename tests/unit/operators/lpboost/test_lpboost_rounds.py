import numpy as np
import pytest

from operators.lpboost import SampleWeightSolver, solve, solve_model_weights
from operators.lpboost.sifting import largest, warm_start
from operators.metrics import cvar


def sequence(n, t, seed=0, *, binary=True):
    """Losses of models that err together where rows are hard."""
    rng = np.random.default_rng(seed)
    logit = rng.normal(-2, 1.5, (n, 1)) + 0.6 * rng.normal(size=(n, 4)) @ rng.normal(size=(4, t))
    chance = 1 / (1 + np.exp(-logit))
    return (rng.random((n, t)) < chance).astype(float) if binary else chance


@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize("beta", [None, 60.0])
def test_every_round_is_certified(binary, beta):
    losses = sequence(1500, 12, binary=binary)
    solver = SampleWeightSolver(0.1, beta)
    for t in range(12):
        weights = solver.add(losses[:, t])
        cold = solve(losses[:, : t + 1], 0.1, beta)
        assert weights is solver.solution_.sample_weights
        assert solver.solution_.gap <= 1e-7
        assert solver.solution_.value == pytest.approx(cold.value, abs=2e-7)
    assert solver.fallbacks_ == 0
    np.testing.assert_array_equal(solver.losses_, losses)


@pytest.mark.parametrize("beta", [None, 60.0])
def test_restored_solver_goes_on_with_the_same_bytes(beta):
    losses = sequence(600, 20)
    whole, first, second = (SampleWeightSolver(0.1, beta) for _ in range(3))
    for t in range(9):
        whole.add(losses[:, t])
        first.add(losses[:, t])
    second.restore(first.losses_, first.solution_)
    for t in range(9, 20):
        assert whole.add(losses[:, t]).tobytes() == second.add(losses[:, t]).tobytes()


@pytest.mark.parametrize("count", [0, 1, 7, 1000, 2499, 2999, 3000])
@pytest.mark.parametrize("digits", [0, 2, 17])
def test_largest_breaks_ties_by_place(count, digits):
    values = np.round(np.random.default_rng(5).random(3000), digits)
    expected = np.zeros(3000, bool)
    expected[np.argsort(-values, kind="stable")[:count]] = True
    np.testing.assert_array_equal(largest(values, count), expected)


@pytest.mark.parametrize("beta", [None, 60.0], ids=["lp", "entropy"])
def test_ensemble_beats_its_first_model_and_its_average(beta):
    """Section 3.3: on the selection set no worse than ERM or the average of the models, for every alpha."""
    rng = np.random.default_rng(6)
    X = rng.normal(size=(600, 6))
    y = np.where(rng.random(600) < 0.15, X[:, 2], X[:, 0]) > 0
    solver, weights, columns = SampleWeightSolver(0.1, beta), np.full(400, 1 / 400), []
    for _ in range(12):
        drawn = rng.choice(400, 200, p=weights / weights.sum())
        slope = np.linalg.lstsq(X[drawn], y[drawn] - 0.5, rcond=None)[0]
        wrong = ((X @ slope > 0) != y).astype(float)
        weights = solver.add(wrong[:400])
        columns.append(wrong[400:])
    selection = np.column_stack(columns)
    for alpha in (0.01, 0.05, 0.1, 0.2, 0.3, 0.5, 0.8, 1.0):
        mixed = cvar(selection @ solve_model_weights(selection, alpha), alpha)
        assert mixed <= cvar(selection[:, 0], alpha) + 1e-7
        assert mixed <= cvar(selection.mean(axis=1), alpha) + 1e-7


def test_new_model_enters_with_the_share_of_least_cvar():
    losses = sequence(1000, 2, binary=False)
    shares = np.linspace(0, 1, 1001)
    best = min(cvar(losses @ [1 - share, share], 0.1) for share in shares)
    start = warm_start(losses, solve(losses[:, :1], 0.1), 100.0)
    assert start.model_weights.sum() == pytest.approx(1)
    assert cvar(losses @ start.model_weights, 0.1) == pytest.approx(best, abs=2e-3)
    np.testing.assert_allclose(start.risk, losses @ start.model_weights, atol=1e-12)


def test_models_left_out_of_the_lp_come_back_when_they_are_needed(monkeypatch):
    losses = sequence(2000, 40)
    monkeypatch.setattr("operators.lpboost.sifting.NEGLIGIBLE", 0.2)  # most models are left out at first
    solver, left_out = SampleWeightSolver(0.1), 0
    for t, column in enumerate(losses.T):
        last = solver.solution_
        left_out += last is not None and bool((last.model_weights < 0.2).sum() > t // 10 + 2)
        solver.add(column)
        assert solver.solution_.gap <= 1e-7
    assert left_out > 20
    assert not solver.fallbacks_
    assert solver.solution_.value == pytest.approx(solve(losses, 0.1, method="highs").value, abs=2e-7)


@pytest.mark.parametrize("beta", [None, 60.0])
def test_model_that_is_no_better_changes_nothing(beta):
    losses = sequence(500, 5, binary=False)
    solver = SampleWeightSolver(0.1, beta)
    for column in losses.T:
        before = solver.add(column)
    worse = np.minimum(losses.max(axis=1) + 0.01, 1)
    assert solver.add(worse) is before
    assert solver.solution_.model_weights[-1] == 0
    assert solver.solution_.gap <= 1e-7
    assert solver.solution_.value == pytest.approx(solve(solver.losses_, 0.1, beta).value, abs=2e-7)
    assert solver.add(worse * 0.1) is not before


def test_bad_rounds_are_named():
    solver = SampleWeightSolver(0.1)
    solver.add([0.0, 1.0])
    with pytest.raises(ValueError, match="each of the 2 rows"):
        solver.add([0.0, 1.0, 0.0])
    with pytest.raises(ValueError, match="finite and in"):
        solver.add([0.0, np.inf])
    with pytest.raises(ValueError, match="no rows"):
        SampleWeightSolver(0.1).add([])
