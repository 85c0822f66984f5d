"""The balance cost of DCKM and its gradient against a loop over features, and against the product's limit.

OMP_NUM_THREADS=1 python -m tests.benchmarks.dckm [--large] [--write-readme]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from operators.dckm.balance import Coded, balance_derivative, moments, row_gradient
from operators.dckm.features import Coder
from tests.benchmarks.harness import Row, bar, figure, machine, measure, ratio, table, write_section

README = Path(__file__).with_name("README.md")
SIZES = ((10_000, 64), (10_000, 500))
LARGE = ((100_000, 64), (100_000, 500))
JUDGED = (10_000, 500)
MIN_RATIO, MIN_SHARE = 7.0, 0.7
PRODUCTS = (512, 1024, 2048)


def problem(n: int, d: int, coding: Any) -> tuple[Coded, Any]:
    """Rows of correlated features, and weights."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, d)) + rng.normal(size=(n, 1)) * rng.random(d)
    return Coder.of(X, coding)(X.astype(np.float32)), rng.random(n)


def ours(coded: Coded, w: Any) -> tuple[float, Any]:
    """Cost and gradient by weight."""
    cost, derivative = balance_derivative(moments(coded, w))
    return cost, row_gradient(coded, derivative)


def by_feature(coded: Coded, w: Any) -> tuple[float, Any]:
    """The same, one feature after another: a product with Z for the means, one for the gradient.

    Lean: what all features share (Z'w, sum w) is formed once, and the control group's mean comes by
    subtraction. float32 products, as ours.
    """
    Z, w = coded.Z, w.astype(np.float32)
    columns = np.ascontiguousarray(Z.T)
    total, weight = w @ Z, w.sum()
    cost, gradient = 0.0, np.zeros(len(Z), np.float32)
    for j, column in enumerate(columns):
        treated = column > 0
        wt = w * treated
        s = wt.sum()
        t = weight - s
        treated_mean = (wt @ Z) / s
        control_mean = (total - s * treated_mean) / t
        gap = treated_mean - control_mean
        gap[j] = 0
        cost += float(gap @ gap)
        along = Z @ gap
        gradient += np.where(treated, (along - gap @ treated_mean) / s, (gap @ control_mean - along) / t)
    return cost, 2 * gradient


def product_rate() -> float:
    """Floating-point operations a second of float32 products, the best of two libraries and three sizes."""
    best = 0.0
    for size in PRODUCTS:
        a, out = np.ones((size, size), np.float32), np.empty((size, size), np.float32)
        shared = torch.from_numpy(a), torch.from_numpy(out)
        runs: dict[str, Callable[[], Any]] = {
            "numpy": lambda a=a, out=out: np.matmul(a, a, out=out),
            "torch": lambda a=shared[0], out=shared[1]: torch.mm(a, a, out=out),
        }
        found = measure(runs, 9)
        best = max(best, *(2 * size**3 / timing.low for timing in found.values()))
    return best


def rows_of(n: int, d: int, rate: float) -> tuple[list[Row], list[Row]]:
    """Rows of the table and of the bars."""
    rows: list[Row] = []
    bars: list[Row] = []
    limit = 4 * n * d**2 / rate
    for coding in ("binarize", "standardize"):
        coded, w = problem(n, d, coding)
        runs: dict[str, Callable[[], Any]] = {
            "ours": lambda coded=coded, w=w: ours(coded, w),
            "loop": lambda coded=coded, w=w: by_feature(coded, w),
        }
        found = measure(runs, {"ours": 9, "loop": 3} if n <= JUDGED[0] else {"ours": 3, "loop": 1})
        check(found["ours"].result, found["loop"].result)
        gain, share = found["loop"].median / found["ours"].median, limit / found["ours"].median
        rows.append(
            {
                "rows x features": f"{n:,} x {d}",
                "coding": coding,
                "ours, CPU s": str(found["ours"]),
                "loop over features, CPU s": str(found["loop"]),
                "loop / ours": ratio(gain),
                "4 n d^2 at the product's rate, s": figure(limit),
                "limit / ours": f"{share:.0%}",
            }
        )
        if (n, d) == JUDGED:
            name = f"{n:,} x {d}, {coding}"
            bars += [
                bar(f"{name}, against the loop", f">= {MIN_RATIO:.0f}x", ratio(gain), gain >= MIN_RATIO),
                bar(
                    f"{name}, share of the limit of 4 n d^2",
                    f">= {MIN_SHARE:.0%}",
                    f"{share:.0%}",
                    share >= MIN_SHARE,
                ),
            ]
    return rows, bars


def check(found: tuple[float, Any], expected: tuple[float, Any]) -> None:
    """Raises ValueError where the two disagree by more than float32 rounds."""
    scale = np.abs(expected[1]).max()
    apart = np.abs(found[1] - expected[1]).max() / scale
    if abs(found[0] / expected[0] - 1) > 1e-3 or apart > 1e-3:
        raise ValueError(f"cost {found[0]} and {expected[0]}, gradients apart by {apart:.1e} of the largest")


def main() -> None:
    """Run, print, and write the section if asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--large", action="store_true", help="100,000 rows as well")
    parser.add_argument("--write-readme", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    started = machine(("numpy", "torch"))
    rate = product_rate()
    rows, bars = [], []
    for n, d in SIZES + (LARGE if arguments.large else ()):
        some, marks = rows_of(n, d, rate)
        rows += some
        bars += marks
    head = f"- {started}\n- float32 products: {rate / 1e9:.0f} GFLOP/s on one thread"
    text = "\n\n".join([head, table(bars), table(rows)])
    print(text)
    if arguments.write_readme:
        write_section(README, "dckm", text)


if __name__ == "__main__":
    main()
