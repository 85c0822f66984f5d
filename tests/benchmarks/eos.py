"""EOS with the Gaussian loss against robust estimators and outlier detectors, and its weight step alone.

OMP_NUM_THREADS=1 python -m tests.benchmarks.eos [--large] [--write-readme]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.special import softmax
from sklearn.covariance import MinCovDet
from sklearn.ensemble import IsolationForest
from sklearn.neighbors import LocalOutlierFactor

from operators.eos import EntropicOutlierSparsification
from tests.benchmarks.harness import Row, Timing, bar, figure, machine, measure, ratio, table, write_section
from tests.on_arrays import closed_form_weights
from tests.paper.eos.detection import contaminated

README = Path(__file__).with_name("README.md")
SIZES = ((5_000, 20), (20_000, 64))
LARGE = ((100_000, 64),)
SHARE, ALPHA = 0.05, 0.5
SLOW = ("MinCovDet", "LOF")
OURS = "EOS, alpha given"
WANTED = {"MinCovDet": 50.0, "IsolationForest": 1.0, "LOF": 1.0}
"""Times faster than each peer."""
LENGTHS = (10_000, 100_000, 1_000_000)


def detectors(n: int, d: int) -> tuple[list[Row], list[Row]]:
    """Rows of the table and of the bars, for n rows of d features, 5 % of them outliers."""
    X, is_outlier = contaminated(n, d, SHARE, seed=0)

    def flags(model: Any) -> Callable[[], Any]:
        return lambda: model.fit_predict(X) == -1

    def distances() -> Any:
        found = MinCovDet(random_state=0).fit(X)
        return found.dist_ > np.quantile(found.dist_, 1 - SHARE)

    def eos(alpha: Any) -> Callable[[], Any]:
        return flags(EntropicOutlierSparsification(alpha=alpha, random_state=0))

    runs: dict[str, Callable[[], Any]] = {
        OURS: eos(ALPHA),
        "EOS, alpha auto": eos("auto"),
        "IsolationForest": flags(IsolationForest(contamination=SHARE, random_state=0)),
        "LOF": flags(LocalOutlierFactor(contamination=SHARE)),
        "MinCovDet": distances,
    }
    found = measure(runs, dict.fromkeys(runs, 3) | dict.fromkeys(SLOW, 1), patience=20.0)
    ours = found[OURS].median
    rows: list[Row] = [
        {
            "rows": f"{n:,}",
            "features": d,
            "method": name,
            "CPU s": str(timing),
            "method / EOS": ratio(timing.median / ours),
            **quality(timing, is_outlier),
        }
        for name, timing in found.items()
    ]
    bars = [
        bar(f"{n:,} x {d}, {name}", f">= {wanted:.0f}x faster", ratio(gain), gain >= wanted)
        for name, wanted in WANTED.items()
        for gain in [found[name].median / ours]
    ]
    return rows, bars


def quality(timing: Timing, is_outlier: Any) -> dict[str, str]:
    """Precision and recall of what a method flags; all peers are told the share of outliers."""
    right = int((timing.result & is_outlier).sum())
    flagged = int(timing.result.sum())
    return {
        "precision": f"{right / flagged:.3f}" if flagged else "-",
        "recall": f"{right / is_outlier.sum():.3f}",
    }


def weight_step(n: int) -> list[Row]:
    """The closed form of n losses, nanoseconds a row."""
    losses = np.random.default_rng(0).exponential(size=n)
    tensor = torch.tensor(losses)
    runs: dict[str, Callable[[], Any]] = {
        "ours": lambda: closed_form_weights(losses, ALPHA),
        "torch.softmax": lambda: torch.softmax(-tensor / ALPHA, 0).numpy(),
        "scipy.special.softmax": lambda: softmax(-losses / ALPHA),
    }
    found = measure(runs, 7)
    apart = max(float(np.abs(timing.result - found["ours"].result).max()) for timing in found.values())
    if apart > 1e-12:
        raise ValueError(f"{n} rows: weights differ by {apart:.1e}")
    cells = {f"{name}, ns a row": figure(1e9 * timing.median / n) for name, timing in found.items()}
    return [{"rows": f"{n:,}", **cells}]


def main() -> None:
    """Run, print, and write the section if asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--large", action="store_true", help="100,000 rows too; minutes")
    parser.add_argument("--write-readme", action="store_true")
    chosen = parser.parse_args()
    rows: list[Row] = []
    bars: list[Row] = []
    for n, d in (*SIZES, *(LARGE if chosen.large else ())):
        measured, judged = detectors(n, d)
        rows += measured
        bars += judged
    steps = [row for n in LENGTHS for row in weight_step(n)]
    text = "\n\n".join([f"{machine()}.", table(bars), table(rows), table(steps)])
    print(text)
    if chosen.write_readme:
        write_section(README, "eos", text)


if __name__ == "__main__":
    main()
