"""Cost of EOS against the number of rows, and of its weights alone against the number of features."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from operators.eos import Gaussian
from operators.eos.kernel import collect_statistics
from tests.on_arrays import closed_form_weights

ROWS = (1_000, 3_000, 10_000, 30_000, 100_000)
FEATURES = (4, 16, 64, 256)
WIDTH = 16
"""Features while rows vary."""
LENGTH = 20_000
"""Rows while features vary."""
REPEATS = 5
WEIGHTS, ITERATION = "weights (eq. 3)", "whole iteration, Gaussian"


def seconds(work: Callable[[], Any]) -> float:
    """Median CPU seconds."""
    found = []
    for _ in range(REPEATS):
        started = time.process_time()
        work()
        found.append(time.process_time() - started)
    return median(found)


def one(n: int, d: int) -> dict[str, float]:
    """CPU seconds of the weight step and of a whole iteration on n rows of d features."""
    X = np.random.default_rng(0).normal(size=(n, d))
    model = Gaussian().start(X[:4096], None, np.ones(min(n, 4096)), 0)
    losses = model.view(X, None).losses
    prior = np.ones(n)

    def iteration() -> Any:
        found = collect_statistics(model, X, None, prior, 0.5)
        return model.updated(found.sums, found.mass)

    return {WEIGHTS: seconds(lambda: closed_form_weights(losses, 0.5)), ITERATION: seconds(iteration)}


def measured() -> dict[str, list[list[Any]]]:
    """Against rows and against features: [number, {what: CPU seconds}] each."""
    return {
        "rows": [[n, one(n, WIDTH)] for n in ROWS],
        "features": [[d, one(LENGTH, d)] for d in FEATURES],
    }


def slopes(points: list[list[Any]], what: str) -> float:
    """Exponent of a power law through the points beyond 10,000: 1 is linear."""
    kept = [(x, found[what]) for x, found in points if x >= 10_000]
    logs = np.log([[x, y] for x, y in kept])
    return float(np.polyfit(logs[:, 0], logs[:, 1], 1)[0])


def draw(found: dict[str, list[list[Any]]], path: Path) -> None:
    """Both as curves in one picture."""
    from matplotlib.figure import Figure

    picture = Figure(figsize=(9, 3.6), layout="constrained")
    axes = picture.subplots(1, 2)
    for axis, name in zip(axes, ("rows", "features"), strict=True):
        points = found[name]
        for what in (WEIGHTS, ITERATION):
            axis.loglog([x for x, _ in points], [1e3 * y[what] for _, y in points], marker="o", label=what)
        axis.set_xlabel(name)
        axis.set_ylabel("CPU milliseconds")
        axis.grid(alpha=0.3)
    axes[0].set_title(f"{WIDTH} features")
    axes[1].set_title(f"{LENGTH:,} rows")
    axes[0].legend(frameon=False)
    path.parent.mkdir(exist_ok=True)
    picture.savefig(path, dpi=110, metadata={"Software": None})
