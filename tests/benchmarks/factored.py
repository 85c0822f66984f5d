"""Factored gradients of a head against flat ones: all distances, bytes, DBSCAN where flat does not fit.

OMP_NUM_THREADS=1 python -m tests.benchmarks.factored [--write-readme]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from operators.dbscan import DBSCAN, tiles
from operators.factored import FactoredGradients, Layer
from operators.factored.points import FactoredPoints
from operators.points import Operand, Points, PreparedRows, rounding_error
from tests.benchmarks.harness import Row, bar, cpu, figure, machine, measure, ratio, table, write_section

ROOT = Path(__file__).parents[2]
README = Path(__file__).with_name("README.md")
FEATURES, CLASSES = 512, 100
SIZES = {2_000: 5, 5_000: 1}  # rows -> how often the flat product is timed
WIDE_ROWS, WIDE_CLASSES, WIDE_LIMIT = 20_000, 1_000, 4.0  # GiB
WANTED = 50.0
SHARES = (0.7, 0.2, 0.07, 0.03)  # of the rows; the last are in no group
EPS, MIN_SAMPLES = 0.5, 20
METRIC: Any = "centered_cosine"


def head_gradients(n: int, n_classes: int, n_features: int = FEATURES, seed: int = 0) -> FactoredGradients:
    """Gradients of class 0 in a head: one dominant cluster, two small ones, and rows of their own."""
    random = np.random.default_rng(seed)
    which = random.choice(len(SHARES), n, p=SHARES)
    spread = np.where(which == len(SHARES) - 1, 3.0, 0.3)[:, None]
    factors = []
    for width in (n_features, n_classes):
        centres = random.normal(size=(len(SHARES), width))
        factors.append(centres[which] + spread * random.normal(size=(n, width)))
    activations, logits = factors
    errors = np.exp(3 * logits)
    errors /= errors.sum(axis=1, keepdims=True)
    errors[:, 0] -= 1
    return FactoredGradients([Layer(activations.astype(np.float32), errors.astype(np.float32))])


class AllPairs:
    """Gaps of all pairs of rows in float32, tile by tile, as the search computes them; nothing is kept."""

    def __init__(self, points: PreparedRows) -> None:
        rows, half = points.operand(np.float32)
        self._rows: Operand = rows
        self._half = torch.from_numpy(half)
        self._room = torch.empty(tiles.TILE_ROWS * tiles.TILE_COLS)

    def tile(self, rows: torch.Tensor, cols: torch.Tensor) -> torch.Tensor:
        """Products less half the squared norms of ``cols``."""
        out = self._room[: len(rows) * len(cols)].view(len(rows), len(cols))
        self._rows.take(rows).multiply(self._rows.take(cols), -self._half[cols], out)
        return out

    def __call__(self) -> None:
        n = len(self._rows)
        for first in range(0, n, tiles.TILE_COLS):
            cols = torch.arange(first, min(first + tiles.TILE_COLS, n))
            side, bias = self._rows.take(cols), -self._half[cols]
            for start in range(0, n, tiles.TILE_ROWS):
                rows = torch.arange(start, min(start + tiles.TILE_ROWS, n))
                out = self._room[: len(rows) * len(cols)].view(len(rows), len(cols))
                self._rows.take(rows).multiply(side, bias, out)


def distances(n: int, flat_repeats: int) -> tuple[list[Row], list[Row]]:
    """Rows of the table and of the bars, for n rows of a head of 100 classes."""
    gradients = head_gradients(n, CLASSES)
    flat = gradients.flat()
    points = FactoredPoints(gradients, METRIC), Points(flat, METRIC)
    factored, product = (AllPairs(prepared) for prepared in points)
    some = torch.arange(min(n, 500))
    apart = (factored.tile(some, some).clone() - product.tile(some, some)).abs().max().item()
    allowed = sum(2 * rounding_error(p.depth, np.float32) * float(np.max(p.size)) for p in points)
    if apart > allowed:
        raise ValueError(f"{n} rows: products differ by {apart:.1e}, more than rounding, {allowed:.1e}")
    vectors = torch.from_numpy(points[1].vectors)
    whole = torch.empty(n, n)
    runs: dict[str, Callable[[], Any]] = {
        "factored": factored,
        "flat": product,
        "flat, one product": lambda: _product(vectors, whole),
    }
    found = measure(runs, dict.fromkeys(runs, flat_repeats) | {"factored": 9})
    pairs = n * n
    sizes = dict.fromkeys(runs, flat.nbytes) | {"factored": gradients.nbytes}
    rows = [
        {
            "rows": f"{n:,}",
            "gradients": form,
            "numbers a row": f"{sizes[form] // (4 * n):,}",
            "MB": figure(sizes[form] / 1e6),
            "CPU s, all pairs": str(found[form]),
            "ns a pair": figure(1e9 * found[form].median / pairs),
        }
        for form in runs
    ]
    best = min(timing.median for form, timing in found.items() if form != "factored")
    faster, smaller = best / found["factored"].median, sizes["flat"] / sizes["factored"]
    return rows, [
        bar(
            f"{n:,} rows, all distances",
            f">= {WANTED:.0f}x faster than the best",
            ratio(faster),
            faster >= WANTED,
        ),
        bar(f"{n:,} rows, bytes", f">= {WANTED:.0f}x smaller", ratio(smaller), smaller >= WANTED),
    ]


def _product(vectors: torch.Tensor, out: torch.Tensor) -> None:
    torch.mm(vectors, vectors.T, out=out)


def clustered(n: int = 2_000) -> list[Row]:
    """DBSCAN of either form, from gradients to labels."""
    gradients = head_gradients(n, CLASSES)
    flat = gradients.flat()
    runs: dict[str, Callable[[], Any]] = {
        "factored": lambda: DBSCAN(EPS, MIN_SAMPLES, METRIC).fit(gradients).labels_,
        "flat": lambda: DBSCAN(EPS, MIN_SAMPLES, METRIC).fit(flat).labels_,
    }
    found = measure(runs, {"factored": 5, "flat": 3})
    if not np.array_equal(found["factored"].result, found["flat"].result):
        raise ValueError(f"{n} rows: labels of factored and flat gradients differ")
    gain = found["flat"].median / found["factored"].median
    return [
        {
            "rows": f"{n:,}",
            "gradients": form,
            "CPU s, DBSCAN": str(found[form]),
            "flat / factored": ratio(gain) if form == "factored" else "-",
            "groups": int(found[form].result.max()) + 1,
            "noise": f"{np.mean(found[form].result == -1):.1%}",
        }
        for form in runs
    ]


def peak_gib() -> float:
    """Peak of this program's memory. Not ``ru_maxrss``, which a child inherits from its parent."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 2**20


def wide_in_this_process() -> dict[str, float]:
    """DBSCAN of a head of 1,000 classes, whose flat gradients do not fit."""
    gradients = head_gradients(WIDE_ROWS, WIDE_CLASSES)
    before = peak_gib()
    start = cpu()
    labels = DBSCAN(EPS, MIN_SAMPLES, METRIC).fit(gradients).labels_
    return {
        "seconds": cpu() - start,
        "before": before,
        "peak": peak_gib(),
        "nbytes": gradients.nbytes,
        "flat_nbytes": 4.0 * gradients.shape[0] * gradients.shape[1],
        "groups": int(labels.max()) + 1,
        "noise": float(np.mean(labels == -1)),
    }


def wide() -> tuple[list[Row], list[Row]]:
    """The same in a process of its own, whose peak of memory is then that of this alone."""
    command = [sys.executable, "-m", "tests.benchmarks.factored", "--wide-here"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout.splitlines()[-1])
    row: Row = {
        "rows": f"{WIDE_ROWS:,}",
        "classes": f"{WIDE_CLASSES:,}",
        "flat, GB": figure(found["flat_nbytes"] / 1e9),
        "factored, GB": figure(found["nbytes"] / 1e9),
        "CPU s, DBSCAN": figure(found["seconds"]),
        "peak of the process, GiB": figure(found["peak"]),
        "of which before, GiB": figure(found["before"]),
        "groups": found["groups"],
        "noise": f"{found['noise']:.1%}",
    }
    name = f"C = {WIDE_CLASSES:,}, {WIDE_ROWS:,} rows, peak of the process"
    return [row], [
        bar(name, f"<= {WIDE_LIMIT:.0f} GiB", f"{found['peak']:.2f} GiB", found["peak"] <= WIDE_LIMIT)
    ]


def main() -> None:
    """Run, print, and write the section if asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--write-readme", action="store_true")
    parser.add_argument("--wide-here", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.wide_here:
        print(json.dumps(wide_in_this_process()))
        return
    started = machine(("numpy", "torch"))
    rows, bars = [], []
    for n, repeats in SIZES.items():
        some, marks = distances(n, repeats)
        rows += some
        bars += marks
    large, marks = wide()
    tables = [bars + marks, rows, clustered(), large]
    text = "\n\n".join([f"- {started}", *(table(part) for part in tables)])
    print(text)
    if arguments.write_readme:
        write_section(README, "factored", text)


if __name__ == "__main__":
    main()
