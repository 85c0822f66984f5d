"""Trainings with steps: rows a second on the CPU and on the GPU."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from engine.recipe.trainers import parse_params
from engine.training.data.rows import dataset_of_arrays
from engine.training.fit import device_rows
from engine.training.fit.kernel import fit
from tests.benchmarks.harness import measure

ROWS, FEATURES, EPOCHS = 65_536, 64, 2
TRAININGS: dict[str, dict[str, Any]] = {
    "logistic, group DRO": {},
    "MLP 512-512, group DRO": {"model": "mlp", "hidden": [512, 512]},
    "MLP 512-512, one share a step": {
        "model": "mlp",
        "hidden": [512, 512],
        "reproducible": "statistical",
    },
    "the same, 8,192 rows a step": {
        "model": "mlp",
        "hidden": [512, 512],
        "reproducible": "statistical",
        "batch_size": 8192,
    },
}
MOST_LOSS = 1e-3


def check(device: str, rows: int | None) -> bool:
    """Print a line for each training; return whether the last losses agree."""
    print(
        f"\n{f'training, {FEATURES} features':<34} {'CPU rows/s':>12} {'GPU rows/s':>12} {'sent by step':>13}"
    )
    agree = [_training(name, device, min(rows or ROWS, ROWS)) for name in TRAININGS]
    return all(agree)


def _training(name: str, device: str, n: int) -> bool:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, FEATURES), np.float32)
    y = (X[:, 0] + X[:, 1] * X[:, 2] > 0).astype(int)
    data = dataset_of_arrays(X, y, groups=rng.integers(0, 6, n), n_shards=8)
    values = {"trainer": "gdro", "optimizer": "sgd", "epochs": EPOCHS, **TRAININGS[name]}
    params = parse_params(values)

    def sent_by_steps() -> Any:
        kept = device_rows.has_room
        device_rows.has_room = lambda *of: False
        try:
            return fit(data, params, device=device)
        finally:
            device_rows.has_room = kept

    fit(data, params, device=device)
    runs = {
        "cpu": lambda: fit(data, params),
        "held": lambda: fit(data, params, device=device),
        "sent": sent_by_steps,
    }
    found = measure(runs, {"cpu": 1, "held": 2, "sent": 1}, clock=time.perf_counter)
    losses = [found[each].result.curve[-1]["loss"] for each in ("cpu", "held", "sent")]
    rates = [EPOCHS * n / found[each].low for each in ("cpu", "held", "sent")]
    close = max(losses) - min(losses) <= MOST_LOSS * abs(losses[0])
    print(
        f"{name:<34} {rates[0]:>12,.0f} {rates[1]:>12,.0f} {rates[2]:>13,.0f} {losses[0]:.5f} {losses[1]:.5f}"
        f"{'' if close else ' DIFFER'}"
    )
    return close
