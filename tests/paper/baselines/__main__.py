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
from tests.paper.baselines.methods import CB, ERM, NETWORK, ORACLE, TREES, Method, has_lightgbm, methods
from tests.paper.baselines.problems import CUES, PROBLEMS, REAL, Problem, load
from tests.paper.cells import METHODS, TRAINING, kept
from tests.paper.data_sets import SkippedError
from tests.paper.tables import head, line, mean_sd, short

RESULTS = Path(__file__).parents[1] / "BASELINES.md"
SEEDS = tuple(range(int(os.environ.get("ROWSIEVE_BASELINE_SEEDS", "5"))))
"""The environment variable bounds the time."""
STUDY = tuple(f"tests/paper/real/{name}.py" for name in ("design", "fresh", "generated", "tables"))
CODE = (*METHODS, *TRAINING, "operators/cues", "operators/class_shares.py", "tests/paper/baselines", *STUDY)
MIN_HEADROOM = 0.03
Score = dict[str, float]
Runs = Sequence[Mapping[str, Score]]
"""One mapping a seed: method -> worst, mean, seconds."""
TOP = """\
# Our weights beside the usual baselines

Written by `python -m tests.paper.baselines` on {date}; do not edit. {seeds} seeds draw the rows that are
trained on; the other rows are scored. A cell is the accuracy of the worst true group (label x hidden
attribute), with its standard deviation over the seeds, / the mean accuracy. Nothing is tuned: settings are
the papers' or this project's defaults (`baselines/methods.py`), and networks are logistic: {network}. Only
the oracle sees true groups. Most problems were in view while the weights were designed; those with a star
were not run with any method before this page, but their tables were.

The floor is the better of ERM and class-balanced ERM (CB), the ceiling group DRO on the true groups. The
share is the way from floor to ceiling that a method of training goes, capped at 1, by means over the seeds.
Problems with a way under {least} have no share and stand in a table of their own.
"""
TREE_METHODS = tuple(TREES)
STARS = (
    *("adult, income x white", "credit, default x university", "german, bad x status"),
    *("compas, again x black", "compas, again x sex", *(name for name in CUES if "wrong" in name)),
)
"""Problems that no method was run on before."""
TABLES = {"Real tables": REAL, "Tables with a cue": CUES}


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
    settings = network_settings()
    top = TOP.format(
        date=datetime.now(UTC).date(), seeds=len(SEEDS), network=settings, least=short(MIN_HEADROOM, 2)
    )
    parts = [top, *(f"Not here: {name}; {why}.\n" for name, why in skipped.items())]
    if not has_lightgbm():
        parts.append(
            "LightGBM is not installed (`pip install '.[paper]'`), so that its columns are missing.\n"
        )
    for title, names in TABLES.items():
        here = {name: runs for name, runs in found.items() if name in names}
        way = {name: runs for name, runs in here.items() if headroom(runs) >= MIN_HEADROOM}
        without = {name: runs for name, runs in here.items() if name not in way}
        if way:
            parts += [f"## {title}: problems with a way to go\n", tables(way), shares(way)]
        if without:
            parts += [f"## {title}: the floor is about as good as the oracle\n", tables(without)]
        if here:
            parts += [f"## {title}: furthest from the floor\n", changes(here)]
    return "\n".join([*parts, "## What it costs\n", costs(found)])


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


def tables(found: Mapping[str, Runs]) -> str:
    """Return the tables of linear models and of trees."""
    linear = [name for name in methods() if name not in TREE_METHODS]
    trees = [name for name in methods() if name in TREE_METHODS]
    return "\n".join(table(found, names) for names in (linear, trees) if names)


def table(found: Mapping[str, Runs], names: Sequence[str]) -> str:
    """Return worst group and mean of every method; the best worst group that no oracle has is bold."""
    lines = head("problem", *names)
    for problem, runs in found.items():
        best = max(set(names) - {ORACLE}, key=lambda name: (mean_of(runs, name), name))
        cells = []
        for name in names:
            worst = mean_sd([run[name]["worst"] for run in runs])
            text = f"{worst} / {short(mean_of(runs, name, 'mean'), 3)}"
            cells.append(f"**{text}**" if name == best else text)
        lines.append(line(marked(problem), *cells))
    return "\n".join(lines) + "\n"


def marked(problem: str) -> str:
    """Return the name of a problem, with a star if it was not run before."""
    return f"{problem} *" if problem in STARS else problem


def compared() -> list[str]:
    """Return the methods that have a share."""
    return [name for name in methods() if name not in (ERM, CB, ORACLE)]


def shares(found: Mapping[str, Runs]) -> str:
    """Return the share of every method on every problem, and its mean."""
    lines = head("share of the way", *compared())
    values = {name: [share(runs, method) for method in compared()] for name, runs in found.items()}
    lines += [line(marked(name), *(short(v, 2) for v in row)) for name, row in values.items()]
    means = np.mean(list(values.values()), axis=0)
    return "\n".join([*lines, line("mean", *(short(float(v), 2) for v in means))]) + "\n"


def changes(found: Mapping[str, Runs]) -> str:
    """Return every method's mean and least change of the worst group against the floor, over all problems."""
    lines = head("worst group against the floor", *compared())
    rows = [[mean_of(runs, m) - floor_of(runs) for m in compared()] for runs in found.values()]
    for name, of in (("mean", np.mean), ("least", np.min)):
        lines.append(line(name, *(f"{float(v):+.3f}" for v in of(rows, axis=0))))
    return "\n".join(lines) + "\n"


def costs(found: Mapping[str, Runs]) -> str:
    """Return CPU seconds of every method, mean over the seeds; those of the weights are part of them."""
    lines = head("CPU seconds", *methods())
    for problem, runs in found.items():
        lines.append(line(problem, *(f"{mean_of(runs, m, 'seconds'):.1f}" for m in methods())))
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
