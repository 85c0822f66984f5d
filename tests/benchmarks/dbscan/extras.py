"""Further measurements: the grid with its choice, two threads, and the machine's peak performance."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from statistics import mean
from typing import Any, TypeAlias

import numpy as np
import torch

from operators.grasp.selection import EPS_GRID, MIN_SAMPLES_GRID
from tests.benchmarks.dbscan import rows
from tests.benchmarks.dbscan.bench import Bench, Found
from tests.benchmarks.dbscan.cases import MIN_SAMPLES, Case, Regime
from tests.benchmarks.dbscan.peers import Setting
from tests.benchmarks.harness import Timing, measure

Extra: TypeAlias = tuple[str, str, Callable[[Bench], Found]]

GRID_REGIMES: tuple[Regime, ...] = ("tight", "mid")
GRID_ROWS, GRID_COLUMNS = 20_000, 64
SAMPLED_EPS = (EPS_GRID[0], EPS_GRID[len(EPS_GRID) // 2], EPS_GRID[-1])
MAX_THREADS = 2
SIDE, PRODUCTS = 512, 100  # of the product that shows the peak: it stays in cache


def extras(large: bool) -> Iterator[Extra]:
    """Kind, key and measurement of each."""
    yield "peak", "peak", lambda _: {"flops": peak()}
    for regime in GRID_REGIMES:
        yield "grid", f"grid-{regime}", partial(grid, regime=regime)
    sizes = [(20_000, 64), (20_000, 512)] + [(100_000, 64), (100_000, 512)] * large
    for case in (Case(n, d, "mid") for n, d in sizes):
        yield "threads", f"threads-{case.key}", partial(threads, case=case)


def peak() -> float:
    """Float32 operations a second of a product in cache, on one thread."""
    torch.set_num_threads(1)
    a, out = torch.randn(SIDE, SIDE), torch.empty(SIDE, SIDE)
    timing = measure({"product": lambda: [torch.mm(a, a, out=out) for _ in range(PRODUCTS)]}, 5)["product"]
    return PRODUCTS * 2 * SIDE**3 / timing.median


def grid(bench: Bench, regime: Regime) -> Found:
    """The whole grid by ours; single fits by ours, of two kinds; and a few cells by scikit-learn.

    All get raw gradients, as group inference does, and compare directions from their mean. ``mean fit`` is
    the mean over the grid's cells, each fitted on its own; ``half`` is a fit with half of all pairs within
    eps, the cheapest kind.
    """
    half = Case(GRID_ROWS, GRID_COLUMNS, regime).build()[1]  # the same rows, centred and of length 1
    X = rows.gradient_rows(GRID_ROWS, GRID_COLUMNS, regime, raw=True)
    runs = {"grid": ("grid", half), "fits": ("fit_each_cell", half), "half": ("single_fit", half)}
    runs |= {f"cell {eps}": ("sklearn_cell", Setting((2 * eps) ** 0.5, MIN_SAMPLES)) for eps in SAMPLED_EPS}
    with bench.workers(X, runs) as workers:
        repeats = dict.fromkeys(runs, 1) | {"grid": 3, "fits": 3, "half": 5}
        timings = measure({name: worker.run for name, worker in workers.items()}, repeats)
    cells = [timing for name, timing in timings.items() if name.startswith("cell")]
    n_cells = len(EPS_GRID) * len(MIN_SAMPLES_GRID)
    fits = timings["fits"]
    return {
        "regime": regime,
        "grid": _seconds(timings["grid"]),
        "mean fit": {name: s / n_cells for name, s in _seconds(fits).items()},
        "half": _seconds(timings["half"]),
        "cells": [cell.median for cell in cells],
        "scikit-learn": n_cells * mean(cell.median for cell in cells),
    }


def threads(bench: Bench, case: Case) -> Found:
    """Wall seconds on one thread and on two, in turns, and whether the labels are equal."""
    X, setting = case.build()
    one = bench.workers(X, {"1": ("ours", setting)})
    two = bench.workers(X, {"2": ("ours", setting)}, threads=MAX_THREADS)
    with one as first, two as second:
        both = {**first, **second}
        walls: dict[str, list[float]] = {name: [] for name in both}
        timings = measure({name: _kept(worker.run, walls[name]) for name, worker in both.items()}, 5)
    labels = [timing.result.labels for timing in timings.values()]
    found: Found = {
        name: {"median": float(np.median(w)), "low": min(w), "high": max(w)} for name, w in walls.items()
    }
    return {
        "n": case.n,
        "d": case.d,
        "regime": case.regime,
        "equal": bool((labels[0] == labels[1]).all()),
        **found,
    }


def _kept(run: Callable[[], Any], walls: list[float]) -> Callable[[], Any]:
    """``run`` that also notes the wall seconds."""

    def noted() -> Any:
        spent = run()
        walls.append(spent.result.wall)
        return spent

    return noted


def _seconds(timing: Timing) -> Found:
    return {"median": timing.median, "low": timing.low, "high": timing.high}
