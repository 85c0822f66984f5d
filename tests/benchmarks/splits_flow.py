"""The assignment by OR-tools' min-cost flow, in a process of its own: it cannot share one with highspy.

python splits_flow.py PROBLEM.npz REPEATS

prints JSON, the seconds of each repeat; masks go to PROBLEM.npz.masks.npy.
"""

from __future__ import annotations

import json
import sys
import time

import numpy as np
from ortools.graph.python import min_cost_flow

SCALE = 2**40
"""Costs are integers; of gains around 1 so many steps tell all apart."""


def flow(gain: np.ndarray, wanted: int) -> np.ndarray:
    """The ``wanted`` rows with the smallest sum of gains: each row sends one unit to one of two sinks."""
    n = len(gain)
    rows = np.arange(n)
    solver = min_cost_flow.SimpleMinCostFlow()
    arcs = solver.add_arcs_with_capacity_and_unit_cost(
        np.concatenate([rows, rows]),
        np.concatenate([np.full(n, n), np.full(n, n + 1)]),
        np.ones(2 * n, np.int64),
        np.concatenate([np.rint(gain * SCALE).astype(np.int64), np.zeros(n, np.int64)]),
    )
    solver.set_nodes_supplies(np.arange(n + 2), np.concatenate([np.ones(n, np.int64), [-wanted, wanted - n]]))
    if solver.solve() != solver.OPTIMAL:
        raise SystemExit("OR-tools found no optimum")
    return solver.flows(arcs)[:n] > 0


def main(path: str, repeats: int) -> None:
    """Both labelings, group by group."""
    problem = np.load(path)
    gain, groups, quotas = problem["gain"], problem["groups"], problem["quotas"]
    members = [np.flatnonzero(groups == name) for name in range(len(quotas))]
    masks, seconds = np.zeros((2, len(gain)), bool), []
    for _ in range(repeats):
        started = time.process_time()
        for mask, values in zip(masks, (gain, -gain), strict=True):
            for rows, wanted in zip(members, quotas.tolist(), strict=True):
                mask[rows] = flow(values[rows], wanted)
        seconds.append(time.process_time() - started)
    np.save(f"{path}.masks.npy", masks)
    print(json.dumps(seconds))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
