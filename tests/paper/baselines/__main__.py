"""Writes ``BASELINES.md``: the worst true group and the mean accuracy of every method on every problem.

    python -m tests.paper.baselines

Figures computed before are kept under ``build/paper`` until code they depend on changes.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from engine.core.json_files import write_text
from tests.paper.baselines.methods import CB, ERM, NETWORK, ORACLE, Method, has_lightgbm, methods
from tests.paper.baselines.problems import PROBLEMS, Problem, load
from tests.paper.cells import METHODS, TRAINING, kept
from tests.paper.data_sets import SkippedError
from tests.paper.tables import head, line, mean_sd, short

RESULTS = Path(__file__).parents[1] / "BASELINES.md"
SEEDS = tuple(range(int(os.environ.get("ROWSIEVE_BASELINE_SEEDS", "3"))))
"""The environment variable bounds the time."""
CODE = (*METHODS, *TRAINING, "operators/cues", "operators/class_shares.py", "tests/paper/baselines")
MIN_HEADROOM = 0.03
Score = dict[str, float]
Runs = Sequence[Mapping[str, Score]]
"""One mapping a seed: method -> worst, mean, seconds."""
TOP = """\
# Our weights beside the usual baselines

Written by `python -m tests.paper.baselines` on {date}; do not edit. {seeds} seeds draw the 70 % of the rows
that are trained on; the other rows are scored. A cell is the accuracy of the worst true group (label x hidden
attribute) / the mean accuracy, over the seeds, with the worst group's standard deviation in parentheses. All
six problems were in view while the weights were designed, so this page compares on known ground; the fresh
problems are in [REAL.md](REAL.md). Nothing is tuned: settings are the papers' or this project's defaults
(`baselines/methods.py`), and networks are logistic: {network}. Only the oracle sees true groups.

The floor is the better of ERM and class-balanced ERM (CB), the ceiling group DRO on the true groups. The
share is the way from floor to ceiling that a method of training goes, capped at 1, by means over the seeds.
"""


def main() -> None:
    """Compute what is missing, then write the page."""
    found: dict[str, Runs] = {}
    skipped: dict[str, str] = {}
    for name in PROBLEMS:
        try:
            found[name] = [run(name, seed) for seed in SEEDS]
        except SkippedError as reason:
            skipped[name] = str(reason)
    write_text(RESULTS, page(found, skipped))


def run(name: str, seed: int) -> Mapping[str, Score]:
    """Return the scores of every method on one problem, kept or computed."""
    scores = {}
    for method, train in methods().items():
        key = f"baselines-{name}-{seed}-{method}"
        scores[method] = kept(key, lambda t=train: score_of(load(name, seed), t, seed), CODE)
    shown = ", ".join(f"{method} {score['worst']:.3f}" for method, score in scores.items())
    print(f"{name}, seed {seed}: {shown}", file=sys.stderr, flush=True)
    return scores


def score_of(problem: Problem, train: Method, seed: int) -> Score:
    """Train by one method; return worst true group, mean accuracy and CPU seconds."""
    started = time.process_time()
    right = train(problem, seed) == problem.yt
    seconds = time.process_time() - started
    worst = min(right[problem.group_t == g].mean() for g in np.unique(problem.group_t))
    return {"worst": float(worst), "mean": float(right.mean()), "seconds": seconds}


def page(found: Mapping[str, Runs], skipped: Mapping[str, str]) -> str:
    """Return the page from the scores of every problem and seed."""
    top = TOP.format(date=datetime.now(UTC).date(), seeds=len(SEEDS), network=network_settings())
    notes = [f"Not here: {name}; {why}.\n" for name, why in skipped.items()]
    if not has_lightgbm():
        notes.append("LightGBM is not installed (`pip install '.[paper]'`), so that its rows are missing.\n")
    with_headroom = {name: runs for name, runs in found.items() if headroom(runs) >= MIN_HEADROOM}
    without = {name: runs for name, runs in found.items() if name not in with_headroom}
    parts = [top, *notes]
    if with_headroom:
        parts += ["## Problems with a way to go\n", table(with_headroom), shares(with_headroom)]
    if without:
        text = (
            f"Floor and ceiling are less than {short(MIN_HEADROOM, 2)} apart, so that a share would be noise."
        )
        title = "## Problems on which the floor is about as good as the oracle\n"
        parts += [title, text + "\n", table(without)]
    parts += ["## What it costs\n", costs(found)]
    return "\n".join(parts)


def network_settings() -> str:
    """Return the settings that the networks share, in words."""
    n = NETWORK
    return f"{n['epochs']} epochs, batches of {n['batch_size']} rows, step size {n['lr']}"


def mean_of(runs: Runs, method: str, part: str = "worst") -> float:
    """Return the mean over the seeds."""
    return float(np.mean([run[method][part] for run in runs]))


def floor_of(runs: Runs) -> float:
    """Return the better of ERM and CB, by means over the seeds."""
    return max(mean_of(runs, ERM), mean_of(runs, CB))


def headroom(runs: Runs) -> float:
    """Return how far the oracle is above the floor."""
    return mean_of(runs, ORACLE) - floor_of(runs)


def share(runs: Runs, method: str) -> float:
    """Return the part of the way from floor to oracle, at most 1."""
    return min((mean_of(runs, method) - floor_of(runs)) / headroom(runs), 1.0)


def table(found: Mapping[str, Runs]) -> str:
    """Return worst group and mean of every method; the best worst group that no oracle has is bold."""
    names = [method for method in methods() if all(method in run for runs in found.values() for run in runs)]
    best = {n: max((w for w in names if w != ORACLE), key=lambda w: mean_of(r, w)) for n, r in found.items()}
    lines = head("method", *found)
    for method in names:
        cells = []
        for name, runs in found.items():
            text = (
                mean_sd([run[method]["worst"] for run in runs])
                + f" / {short(mean_of(runs, method, 'mean'), 3)}"
            )
            cells.append(f"**{text}**" if method == best[name] else text)
        lines.append(line(method, *cells))
    return "\n".join(lines) + "\n"


def shares(found: Mapping[str, Runs]) -> str:
    """Return the share of every method on every problem, its mean, and the furthest below the floor."""
    lines = head("share of the way", *found, "mean", "furthest from the floor")
    for method in methods():
        if method in (ERM, CB, ORACLE):
            continue
        values = [share(runs, method) for runs in found.values()]
        lowest = min(mean_of(runs, method) - floor_of(runs) for runs in found.values())
        lines.append(
            line(method, *(short(v, 2) for v in values), short(float(np.mean(values)), 2), f"{lowest:+.3f}")
        )
    return "\n".join(lines) + "\n"


def costs(found: Mapping[str, Runs]) -> str:
    """Return CPU seconds of every method, mean over the seeds; those of the weights are part of them."""
    lines = head("CPU seconds", *found)
    for method in methods():
        lines.append(line(method, *(f"{mean_of(runs, method, 'seconds'):.1f}" for runs in found.values())))
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
