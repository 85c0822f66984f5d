"""The same games by HiGHS called directly, and by CVXPY; each peer in the forms that suit it best."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import clarabel  # type: ignore[import-untyped]  # noqa: F401  # loaded before anything is timed
import cvxpy as cp  # type: ignore[import-untyped]
import highspy
import numpy as np
import numpy.typing as npt

from operators.lpboost import SampleWeightSolver, duality_gap, solve
from operators.lpboost.interior import rescale_to_budget
from tests.benchmarks.lp.games import ALPHA

Array = npt.NDArray[np.float64]

SAMPLED = (10, 40, 70, 100)
"""Rounds at which a peer that starts afresh is measured; between them its seconds are interpolated."""


@dataclass(frozen=True)
class Path:
    """CPU seconds up to and with each round, as far as measured, and the largest duality gap seen."""

    seconds: list[float]
    gap: float
    sampled: bool = False


def ours(losses: Array) -> Path:
    """Solve all rounds by our solver, each from the solution of the one before."""
    solver, clock, gap = SampleWeightSolver(ALPHA), _Clock(), 0.0
    for loss in losses.T:
        solver.add(loss)
        clock.note()
        gap = max(gap, solver.solution_.gap)  # type: ignore[union-attr]
    if solver.fallbacks_:
        raise ValueError(f"{solver.fallbacks_} rounds were solved by a library")
    return Path(clock.seconds, gap)


def highs_warm(losses: Array, budget: float) -> Path:
    """The dual LP by the dual simplex method: a round adds a row to the optimal basis of the last."""
    h, clock = _highs(len(losses), "simplex"), _Clock()
    for loss in losses.T:
        _add_row(h, loss)
        h.run()
        if clock.note() > budget:
            break
    t = len(clock.seconds)
    return Path(clock.seconds, _highs_gap(h, losses[:, :t]))


def highs_cold(losses: Array, budget: float, solver: str) -> Path:
    """The dual LP afresh every round, by "simplex" or "ipm" (without crossover)."""

    def run(part: Array) -> float:
        h = _highs(len(part), solver)
        for loss in part.T:
            _add_row(h, loss)
        h.run()
        return _highs_gap(h, part)

    return _sample(run, losses, budget)


def cvxpy_dual(losses: Array, budget: float, solver: str) -> Path:
    """The dual LP through CVXPY, by "HIGHS" or "CLARABEL"."""

    def run(part: Array) -> float:
        x, beats, problem = cvxpy_problem(part, None)
        problem.solve(solver=solver)
        return feasible_gap(part, x.value, beats.dual_value, None)

    return _sample(run, losses, budget)


def newton(losses: Array, beta: float) -> tuple[float, float]:
    """CPU seconds and gap of the regularised game."""
    clock = _Clock()
    found = solve(losses, ALPHA, beta)
    return clock.note(), found.gap


def clarabel_alone(losses: Array, beta: float) -> tuple[float, float]:
    """CPU seconds of CLARABEL itself, CVXPY's compilation left out, and the gap it leaves."""
    x, beats, problem = cvxpy_problem(losses, beta)
    data, chain, inverse = problem.get_problem_data(cp.CLARABEL, solver_opts={})
    clock = _Clock()
    raw = chain.solve_via_data(problem, data, warm_start=False, verbose=False, solver_opts={})
    spent = clock.note()
    problem.unpack_results(raw, chain, inverse)
    return spent, feasible_gap(losses, x.value, beats.dual_value, beta)


class _Clock:
    def __init__(self) -> None:
        self.seconds: list[float] = []
        self._start = time.process_time()

    def note(self) -> float:
        self.seconds.append(time.process_time() - self._start)
        return self.seconds[-1]


def _sample(run: Callable[[Array], float], losses: Array, budget: float) -> Path:
    """Seconds at some rounds; beyond the budget a round is taken to cost no more than the last measured."""
    total = losses.shape[1]
    rounds, costs, gap = [1], [0.0], 0.0
    for t in (t for t in SAMPLED if t <= total):
        started = time.process_time()
        found = run(losses[:, :t])
        costs.append(time.process_time() - started)
        rounds.append(t)
        gap = max(gap, found)
        if sum(costs) > budget:
            break
    each = np.interp(np.arange(1, total + 1), rounds, costs)
    return Path(np.cumsum(each).tolist(), gap, sampled=True)


def _highs(n: int, solver: str) -> Any:
    """max theta with sum x = tail, 0 <= x <= 1; rows theta <= <x, l_s> follow."""
    h = highspy.Highs()
    h.silent()
    for name, value in {"threads": 1, "solver": solver, "run_crossover": "off"}.items():
        h.setOptionValue(name, value)
    h.addVars(n + 1, np.append(np.zeros(n), -n), np.append(np.ones(n), n))
    h.changeColCost(n, -1.0)
    h.addRow(ALPHA * n, ALPHA * n, n, np.arange(n), np.ones(n))
    return h


def _add_row(h: Any, loss: Array) -> None:
    rows = np.flatnonzero(loss)
    columns = np.append(rows, len(loss))
    h.addRow(0.0, highspy.kHighsInf, len(columns), columns, np.append(loss[rows], -1.0))


def _highs_gap(h: Any, losses: Array) -> float:
    found = h.getSolution()
    return feasible_gap(losses, np.array(found.col_value[:-1]), np.array(found.row_dual[1:]), None)


def cvxpy_problem(losses: Array, beta: float | None) -> tuple[Any, Any, Any]:
    """Return x = tail times w, the constraints of the models, and the dual LP."""
    n = len(losses)
    x, theta = cp.Variable(n), cp.Variable()
    beats = losses.T @ x >= theta
    aim = theta if beta is None else theta + cp.sum(cp.entr(x)) / beta
    return x, beats, cp.Problem(cp.Maximize(aim), [beats, cp.sum(x) == ALPHA * n, x >= 0, x <= 1])


def feasible_gap(losses: Array, x: Array, model_weights: Array, beta: float | None) -> float:
    """Return the gap of a peer's answer, brought within the constraints."""
    tail = ALPHA * len(losses)
    lam = np.maximum(model_weights, 0)
    w = rescale_to_budget(x, np.ones(len(x)), tail) / tail
    return duality_gap(losses, w, lam / lam.sum(), ALPHA, beta)
