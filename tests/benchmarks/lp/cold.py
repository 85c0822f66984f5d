"""One solve from no start of 0/1 losses of models that know nothing of each other, beside CVXPY with HiGHS.

The share of errors decides how many rows are equal, and with it what each side has to do: it is varied.
"""

from __future__ import annotations

import time

import cvxpy as cp  # type: ignore[import-untyped]
import numpy as np

from operators.lpboost import duality_gap, solve
from tests.benchmarks.harness import Row, Spent, bar, figure, measure, ratio, table
from tests.benchmarks.lp.games import ALPHA, Array, Game
from tests.benchmarks.lp.peers import cvxpy_problem, feasible_gap

ROWS, MODELS, REPEATS = 50_000, 30, 5
ERRORS = (0.02, 0.05, 0.1, 0.3, 0.5)
WANTED = 10.0


def measure_cold() -> str:
    """Return the table of bars and the table of solves."""
    rng = np.random.default_rng(1)
    games = {f"errors {share:.0%}": (rng.random((ROWS, MODELS)) < share).astype(float) for share in ERRORS}
    games["errors where rows are hard"] = Game(ROWS, "independent", True).losses(MODELS)
    rows: list[Row] = []
    ratios: list[float] = []
    for name, losses in games.items():
        found = measure(
            {"ours": lambda losses=losses: _ours(losses), "cvxpy": lambda losses=losses: _cvxpy(losses)},
            REPEATS,
        )
        ours, peer = found["ours"], found["cvxpy"]
        alone, gap = peer.result
        ratios.append(peer.median / ours.median)
        rows.append(
            {
                "losses": name,
                "different rows": f"{len(np.unique(losses, axis=0)):,}",
                "ours, CPU ms": f"{figure(1000 * ours.median)}, gap {ours.result:.0e}",
                "CVXPY, HiGHS, CPU ms": f"{figure(1000 * peer.median)}, gap {gap:.0e}",
                "ratio": ratio(ratios[-1]),
                "HiGHS alone, CPU ms": figure(1000 * alone),
                "ratio to it": ratio(alone / ours.median),
            }
        )
    worst = min(ratios)
    name = f"{ROWS:,} x {MODELS} independent 0/1 losses, one cold solve"
    return "\n\n".join(
        [table([bar(name, f">= {WANTED:.0f}x CVXPY", ratio(worst), worst >= WANTED)]), table(rows)]
    )


def _ours(losses: Array) -> Spent:
    start = time.process_time()
    found = solve(losses, ALPHA)
    spent = time.process_time() - start
    return Spent(spent, duality_gap(losses, found.sample_weights, found.model_weights, ALPHA))


def _cvxpy(losses: Array) -> Spent:
    """Seconds with CVXPY's compilation; the result is HiGHS's seconds alone and the gap."""
    start = time.process_time()
    x, beats, problem = cvxpy_problem(losses, None)
    data, chain, inverse = problem.get_problem_data(cp.HIGHS)
    compiled = time.process_time()
    raw = chain.solve_via_data(problem, data)
    solved = time.process_time()
    problem.unpack_results(raw, chain, inverse)
    spent = time.process_time() - start
    return Spent(spent, (solved - compiled, feasible_gap(losses, x.value, beats.dual_value, None)))
