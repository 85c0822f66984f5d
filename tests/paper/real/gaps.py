"""Planted categories with missing values, in the tables of ``many``, through the kernel (fourteenth study).

``python -m tests.paper.real.gaps {design|held-back} {two|more} {found|named}`` prints a line for each table
and part of missing values: way from the better of ERM and CB to the oracle, what the weights gain of it, the
change of mean accuracy, and the gate; behind them the mean for each part. ``two`` takes labels of two classes
and every fourth table, ``more`` labels of three to ten classes and every second table. With ``named`` the
planted column is named as spurious.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pandas as pd

from operators.class_shares import class_factors
from operators.cues import CueSettings, fit, weights
from operators.cues.settings import Named
from tests.paper.real import many, many_classes
from tests.paper.real.entities import from_frame
from tests.paper.real.generated import Problem
from tests.paper.real.kernel import MIN_GROUP_ROWS, score

PARTS = (0.0, 0.1, 0.25)
"""Parts of the rows whose planted value is missing."""
MIN_ROWS = 1500
LEAST_WAY = 0.03


class Line(NamedTuple):
    """What the weights gain on one problem."""

    way: float
    gain: float
    mean: float
    gate: float


def problems(*, design: bool, more: bool) -> Iterator[tuple[str, float, Problem]]:
    """Yield name, part of missing values, and the problem, whose last source column is the planted one."""
    labels = many_classes.picked if more else many.picked
    for name in many.TABLES:
        if (many.hashed(name) % 10 < many.BOUND) != design or many.hashed(name, "miss") % (2 if more else 4):
            continue
        try:
            first = next(labels(name), None)
        except ValueError as error:
            print(f"{name} is left out: {error}", flush=True)
            continue
        if first is None or len(first[2]) < MIN_ROWS:
            continue
        for part in PARTS:
            yield name, part, planted(name, *first[:3], part)


def planted(name: str, label: str, frame: pd.DataFrame, y: many.Array, part: float) -> Problem:
    """Return a label of a table with a category that tells 90 to 96 labels of 100, where it has a value.

    None or 5 % of the labels are wrong.
    """
    rng, C = many.random_of(name, label, "missing"), int(y.max()) + 1
    told, flips = (0.9, 0.93, 0.96)[rng.integers(3)], (0.0, 0.05)[rng.integers(2)]
    cue = np.where(rng.random(len(y)) < told, y, (y + rng.integers(1, C, len(y))) % C)
    seen = np.where(rng.random(len(y)) < flips, (y + rng.integers(1, C, len(y))) % C, y)
    values = np.array([f"v{k:02}" for k in range(C)])[cue].astype(object)
    values[rng.random(len(y)) < part] = None
    hidden = cue if C == 2 else (cue != y).astype(int)
    return from_frame(frame.assign(planted=pd.Series(values)), seen, hidden, "gaps", 0, true=y)


def outcome(problem: Problem, *, named: bool) -> Line:
    """Return what the weights gain, with the planted column named or not."""
    n, C, y = len(problem.y), problem.classes, problem.y
    spurious = (Named(tuple(problem.columns[-1].features)),) if named else ()
    ids, settings = np.arange(n), CueSettings(columns=problem.columns, spurious=spurious)
    state = fit(problem.X, y, ids, settings, n_classes=C)
    group = 2 * y + problem.hidden
    oracle = 1.0 / np.maximum(np.bincount(group), MIN_GROUP_ROWS)[group]
    balanced = class_factors(np.bincount(y, minlength=C))[y]
    floor = max(score(problem, np.ones(n)), score(problem, balanced))
    worst, mean = score(problem, weights(state, problem.X, y, ids))
    way = score(problem, oracle / oracle.mean())[0] - floor[0]
    return Line(way, worst - floor[0], mean - floor[1], state.blend)


def main(which: str, classes: str, how: str) -> None:
    """Print a line for each problem, and the mean share of the way for each part of missing values."""
    found = defaultdict[float, list[Line]](list)
    for name, part, problem in problems(design=which == "design", more=classes == "more"):
        line = outcome(problem, named=how == "named")
        found[part].append(line)
        print(f"{name} | {part:.0%} | " + " | ".join(f"{value:.3f}" for value in line), flush=True)
    for part, lines in found.items():
        far = [line for line in lines if line.way >= LEAST_WAY]
        share = np.mean([np.clip(line.gain / line.way, -1, 1) for line in far])
        gain, worst = np.mean([line.gain for line in far]), min(line.gain for line in lines)
        print(f"{part:.0%} missing: {len(far)} of {len(lines)} have a way; share {share:.2f}, ", end="")
        print(f"gain {gain:.3f}, worst {worst:.3f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
