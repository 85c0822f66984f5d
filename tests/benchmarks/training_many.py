"""Group DRO with its defaults on 10,000,000 x 32 rows in memory, by one thread: CPU and wall seconds.

``python -m tests.benchmarks.training --many`` runs it.
"""

from __future__ import annotations

import os
import time

import numpy as np

from engine.recipe.trainers import parse_params
from engine.training.data.rows import Dataset, GroupedRows
from engine.training.fit.job import mix
from engine.training.fit.kernel import fit
from operators.arrays import Int64
from tests.benchmarks.harness import Row, figure

N_ROWS, N_FEATURES, N_SHARDS = 10_000_000, 32, 8
MINORITY = 0.02
"""Share of the rows in which the spurious feature points to the other class."""


def rows_of(n: int, seed: int, minority: float = MINORITY) -> GroupedRows:
    """Rows of two classes; feature 0 is spurious, the others are of some use."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, n)
    breaks = rng.random(n) < minority
    X = rng.normal(size=(n, N_FEATURES)).astype(np.float32)
    X += (y[:, None] - 0.5).astype(np.float32) * np.float32(0.25)
    X[:, 0] += 3 * (np.where(breaks, 1 - y, y) - 0.5)
    group: Int64 = 2 * y + breaks
    return GroupedRows(X, y, np.ones(n), group, np.arange(n))


def many(n_rows: int = N_ROWS) -> list[Row]:
    """Return the line of a training with every key at its default."""
    train = [rows_of(n_rows // N_SHARDS, seed) for seed in range(N_SHARDS)]
    nothing = [rows.take(slice(0, 0)) for rows in train]
    splits = {"train": train, "validation": nothing, "test": nothing}
    data, fresh = Dataset(splits, (0, 1, 2, 3), N_FEATURES, 2), rows_of(40_000, 99, 0.5)
    params = parse_params({"trainer": "gdro"}).for_rows(n_rows)
    wall, cpu, load = time.perf_counter(), time.process_time(), os.getloadavg()[0]
    model = mix(fit(data, params), params, {})
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    right = model.predict(fresh.X) == fresh.y
    worst = min(right[fresh.group == g].mean() for g in range(4))
    return [
        {
            "rows": f"{n_rows:,} x {N_FEATURES}",
            "batch": str(params.step_rows),
            "epochs": str(params.n_epochs),
            "CPU s": figure(cpu),
            "an epoch, s": figure(cpu / params.n_epochs),
            "wall s": figure(wall),
            "load at its start": f"{load:.1f}",
            "worst group": f"{worst:.3f}",
        }
    ]
