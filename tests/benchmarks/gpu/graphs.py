"""Exact graphs of neighbours by FAISS: on the CPU's threads, and on the GPU."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from operators.neighbours import NeighbourGraph, faiss_index
from tests.benchmarks.dbscan.rows import gradient_rows, radius
from tests.benchmarks.harness import measure

CASES = ((20_000, 64), (50_000, 64), (5_000, 512))
REACHES = ("10 nearest", "within a radius")
SHARE = 0.001
"""Part of all pairs within the radius."""


def check(device: str, rows: int | None) -> bool:
    """Print a line for each case; return whether the graphs are the same."""
    faiss = faiss_index.load_faiss()
    if device.startswith("cuda") and not (hasattr(faiss, "StandardGpuResources") and faiss.get_num_gpus()):
        print("\nFAISS graphs: not checked, as FAISS sees no GPU")
        return True
    print(
        f"\n{'FAISS graph, 64 or 512 columns':<34} {'CPU, s':>12} {'GPU, s':>12} {'ratio':>8} {'edges':>10}"
    )
    agree = [_line(min(n, rows or n), d, reach) for n, d in CASES for reach in REACHES]
    return all(agree)


def _line(n: int, d: int, reach: str) -> bool:
    X = gradient_rows(n, d, "mid")

    wanted: dict[str, Any] = {"n_neighbors": 10} if reach == "10 nearest" else {"eps": radius(X, SHARE)}

    def graph() -> Any:
        return NeighbourGraph(n_jobs=os.cpu_count(), **wanted).fit(X).graph_

    def on_cpu() -> Any:
        with _without_gpu():
            return graph()

    found = measure({"cpu": on_cpu, "there": graph}, {"cpu": 1, "there": 2}, clock=time.perf_counter)
    cpu, other = found["cpu"], found["there"]
    same = all(
        np.array_equal(getattr(cpu.result, name), getattr(other.result, name))
        for name in ("indptr", "indices", "distances")
    )
    times = f"{cpu.median:>12.3f} {other.low:>12.3f} {cpu.median / other.low:>7.1f}x"
    print(f"{f'{n:,} x {d}, {reach}':<34} {times} {'equal' if same else 'DIFFER':>10}")
    return same


@contextmanager
def _without_gpu() -> Iterator[None]:
    kept = faiss_index._on_gpu
    faiss_index._on_gpu = lambda built: None
    try:
        yield
    finally:
        faiss_index._on_gpu = kept
