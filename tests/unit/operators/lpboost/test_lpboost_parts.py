"""Parts of the LPBoost solver against their closed forms, duality and replicated rows."""

from __future__ import annotations

import numpy as np
import pytest

from operators.lpboost import duality_gap, sifting, solve
from operators.lpboost.interior import CappedMinimaxProblem, solve_interior_point
from operators.lpboost.sifting import in_tail
from operators.lpboost.softmax import capped_softmax


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize(("distance", "tolerance"), [(1e6, 1e-6), (1e16, 1.0)])
def test_capped_softmax_of_scores_far_apart_fills_the_largest_up_to_the_cap(
    seed: int, distance: float, tolerance: float
) -> None:
    """The largest scores weigh 1/tail each, and the next one has the rest; the entropy has no say.

    Near 1e16 the shift itself has steps of several units, so that no shift gives a sum of 1: the weights are
    feasible there, and only the row at the threshold may weigh more than it should.
    """
    rng = np.random.default_rng(seed)
    n = int(rng.integers(3, 30))
    tail, scores = float(rng.uniform(1, 0.9 * n)), (rng.permutation(n) + 0.1 * rng.random(n)) * distance
    weights, _ = capped_softmax(scores, tail)
    expected = np.zeros(n)
    expected[np.argsort(-scores)] = np.clip(tail - np.arange(n), 0, 1) / tail
    assert weights.sum() == pytest.approx(1, abs=1e-12)
    assert weights.max() <= 1 / tail
    assert (weights[expected == 0] == 0).all()
    np.testing.assert_allclose(weights, expected, atol=tolerance)


@pytest.mark.parametrize("seed", range(10))
def test_the_tail_of_whole_sample_weights_is_that_of_replicated_rows(seed: int) -> None:
    """A row is in the tail if all of its copies are among the ``tail`` replicated rows of largest risk."""
    rng = np.random.default_rng(seed)
    risk, copies = rng.random(40), rng.integers(0, 4, 40)
    tail = int(rng.integers(1, copies.sum()))
    replicated = np.repeat(np.arange(40), copies)
    worst = replicated[np.argsort(-risk[replicated], kind="stable")[:tail]]
    whole = (np.bincount(worst, minlength=40) == copies) & (copies > 0)
    found = in_tail(risk, float(tail), copies.astype(float))
    np.testing.assert_array_equal(found & (copies > 0), whole)


@pytest.mark.parametrize("budget", [8.0, 4000.0])
def test_the_interior_point_closes_the_gap_of_small_and_large_budgets(budget: float) -> None:
    """The gap is computed from the two players' definitions, which bound the optimum from both sides."""
    t, n = 4, int(2.25 * budget)
    A = np.random.default_rng(0).random((t, n))
    problem = CappedMinimaxProblem(A, np.zeros(t), np.ones(n), budget)
    x, lam, rho = solve_interior_point(problem, 1e-9 * budget, np.full(t, 1 / t))
    assert x.sum() == pytest.approx(budget)
    assert x.min() >= 0
    assert x.max() <= 1
    assert lam.sum() == pytest.approx(1)
    upper = rho * budget + np.maximum(lam @ A - rho, 0).sum()
    assert 0 <= upper - (A @ x).min() + 1e-9 * budget <= 3e-9 * budget


@pytest.mark.parametrize("alpha", [0.02, 0.1, 0.6])
@pytest.mark.parametrize("weighted", [False, True])
def test_equal_rows_are_priced_once_at_the_gap_of_all_rows(
    weighted: bool, alpha: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(0)
    losses = (rng.random((3000, 12)) < 0.06).astype(float)
    copies = rng.integers(0, 4, 3000).astype(float) if weighted else None
    sizes, plain = [], sifting.sift
    monkeypatch.setattr(sifting, "sift", lambda rows, *rest: (sizes.append(len(rows)), plain(rows, *rest))[1])
    found = solve(losses, alpha, sample_weight=copies)
    assert sizes == [len(np.unique(losses, axis=0))]
    gap = duality_gap(losses, found.sample_weights, found.model_weights, alpha, sample_weight=copies)
    assert -1e-12 < gap <= 1e-7
    assert gap <= found.gap + 1e-12
    library = solve(losses, alpha, method="highs", sample_weight=copies)  # CVXPY's program over every row
    assert found.value == pytest.approx(library.value, abs=2e-7)


def test_rows_are_collapsed_where_many_are_equal_and_never_by_their_keys_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rng = np.random.default_rng(0)
    assert sifting.equal_rows(rng.random((2000, 3))) is None
    losses = np.repeat(rng.random((50, 3)), 40, axis=0)
    first, kind = sifting.equal_rows(losses) or pytest.fail("2,000 rows of 50 kinds are not collapsed")
    assert len(first) == 50
    np.testing.assert_array_equal(losses[first[kind]], losses)
    monkeypatch.setattr(sifting, "row_keys", lambda rows: np.zeros(len(rows)))
    assert sifting.equal_rows(losses) is None
