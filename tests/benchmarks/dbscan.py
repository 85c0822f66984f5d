"""DBSCAN against its peers, in CPU seconds of one thread.

``python -m tests.benchmarks`` runs the sizes that end in minutes; ``--large`` adds 100,000 and a
million rows, where scikit-learn has no chance and the plain product is estimated from its peak.
``--intelex PYTHON`` names the interpreter of an environment with scikit-learn-intelex: it patches
scikit-learn and is therefore kept apart.
"""

from __future__ import annotations

import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import sklearn.cluster
import torch

from operators.dbscan import DBSCAN, dbscan_grid
from tests.benchmarks.rows import gradient_rows, radius
from tests.benchmarks.two_pass import two_pass

MIN_SAMPLES = 10
# Rows, columns, spread within groups, and the share of all pairs that eps holds: about half for the
# paper's best cells; a tenth leaves many rows as noise; 0 is a sphere on which nothing is near.
CASES = [(5_000, 64, "tight", 0.5), (20_000, 16, "tight", 0.5), (20_000, 64, "tight", 0.5)]
CASES += [(20_000, 64, "mid", 0.5), (20_000, 64, "tight", 0.1), (20_000, 64, "noise", 0.0)]
CASES += [(20_000, 512, "tight", 0.5), (20_000, 512, "tight", 0.1)]
LARGE = [(100_000, 64, "tight", 0.5), (100_000, 64, "mid", 0.5), (100_000, 512, "tight", 0.5)]
HUGE = (1_000_000, 64, "tight", 0.5)
GRID_EPS = np.arange(0.1, 0.701, 0.05).tolist()
GRID_MIN_SAMPLES = [5, 10, 20, 30, 40, 50, 60, 100]
INTELEX = """
import sys, time, numpy as np
from sklearnex.cluster import DBSCAN
from threadpoolctl import threadpool_limits
X, eps, m, repeats = np.load(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
times = []
for _ in range(repeats):
    start = time.process_time()
    labels = DBSCAN(eps=eps, min_samples=m).fit(X).labels_
    times.append(time.process_time() - start)
print(sorted(times)[len(times) // 2], np.bincount(labels + 1, minlength=2)[0])
"""


def seconds(run: Callable[[], Any], repeats: int) -> tuple[float, Any]:
    """Median CPU seconds, and what the last run returned."""
    times, result = [], None
    for _ in range(repeats):
        start = time.process_time()
        result = run()
        times.append(time.process_time() - start)
    return median(times), result


def main(large: bool, intelex: str | None) -> None:
    """Print the tables."""
    torch.set_num_threads(1)
    print("| rows | d | regime | near | ours | two-pass product | scikit-learn | sklearn-intelex | noise |")
    print("|---|---|---|---|---|---|---|---|---|")
    for case in CASES + (LARGE if large else []):
        _row(*case, intelex)
    if large:
        _huge(*HUGE)
    for regime in ("tight", "mid"):
        _grid(regime)


def _row(n: int, d: int, regime: str, share: float, intelex: str | None) -> None:
    X = gradient_rows(n, d, regime)
    eps = (2 * radius(X, share)) ** 0.5
    small = n <= 20_000
    ours, found = seconds(lambda: DBSCAN(eps, MIN_SAMPLES).fit(X), 5)
    plain, (cores, _) = seconds(lambda: two_pass(X, eps, MIN_SAMPLES), 1)
    assert abs(int(cores.sum()) - len(found.core_sample_indices_)) <= n // 1000  # it rounds near eps
    cells = [f"{plain:.2f} ({plain / ours:.1f}x)", "-", "-"]
    if small:
        peer = sklearn.cluster.DBSCAN(eps=eps, min_samples=MIN_SAMPLES)
        theirs, labels = seconds(lambda: peer.fit_predict(X), 1)
        assert (labels == found.labels_).all()
        cells[1] = f"{theirs:.2f} ({theirs / ours:.1f}x)"
        if intelex:
            theirs = _intelex(intelex, X, eps)
            cells[2] = f"{theirs:.2f} ({theirs / ours:.1f}x)"
    noise = np.mean(found.labels_ < 0)
    print(
        f"| {n} | {d} | {regime} | {share:.0%} | {ours:.3f} | {' | '.join(cells)} | {noise:.1%} |", flush=True
    )


def _intelex(python: str, X: Any, eps: float) -> float:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.npy"
        np.save(path, X)
        command = [python, "-c", INTELEX, str(path), str(eps), str(MIN_SAMPLES), "1"]
        out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return float(out.split()[-2])


def _huge(n: int, d: int, regime: str, share: float) -> None:
    X = gradient_rows(n, d, regime)
    eps = (2 * radius(X, share)) ** 0.5
    ours, _ = seconds(lambda: DBSCAN(eps, MIN_SAMPLES).fit(X), 1)
    half_pairs = n * (n - 1) / 2 * 2 * X.shape[1] / _peak()
    print(
        f"| {n} | {d} | {regime} | {share:.0%} | {ours:.1f} | half the pairs at peak: {half_pairs:.0f} ",
        end="",
    )
    print(f"({half_pairs / ours:.0f}x) | - | - | - |", flush=True)


def _peak() -> float:
    """Float32 operations a second of a product in cache."""
    a, out = torch.randn(512, 512), torch.empty(512, 512)
    took, _ = seconds(lambda: [torch.mm(a, a, out=out) for _ in range(100)], 5)
    return 100 * 2 * 512**3 / took


def _grid(regime: str) -> None:
    X = gradient_rows(20_000, 64, regime)
    one, _ = seconds(lambda: DBSCAN(radius(X, 0.5), MIN_SAMPLES, "cosine").fit(X), 5)
    all_, _ = seconds(lambda: dbscan_grid(X, GRID_EPS, GRID_MIN_SAMPLES, "cosine"), 3)
    cells = len(GRID_EPS) * len(GRID_MIN_SAMPLES)
    ratio = f"{all_ / one:.1f} single fits of {one:.3f}"
    print(f"\nGrid of {cells} cells, 20000 x 64, {regime}: {all_:.2f}, that is {ratio}")
