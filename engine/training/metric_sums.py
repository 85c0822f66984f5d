"""Sums over rows from which scores follow. They are small, and those of two shards can be added."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.training.ensemble import Ensemble, Floats
from operators.metrics.calibration import Calibration, calibration

STEPS = 10**6
"""Expected losses are counted to this part of one, so that a dataset's are never held one by one."""
BINS = 15
LEAST_PROBABILITY = 1e-15
"""Probability that an impossible class counts with, so that one row does not make the log-loss infinite."""


@dataclass
class GroupSums:
    """Rows of each group of one grouping, and those that the served model classifies correctly."""

    rows: Counter[Any]
    right: Counter[Any]

    def add(self, other: GroupSums) -> None:
        """Add the sums of other rows."""
        self.rows.update(other.rows)
        for group, value in other.right.items():
            self.right[group] = self.right.get(group, 0.0) + value  # type: ignore[assignment]


@dataclass
class MetricSums:
    """Sums over rows that all scores are computed from."""

    n: int
    groupings: dict[str, GroupSums]
    losses: list[Counter[int]]
    """Expected 0/1 loss in steps of 1e-6 -> rows; of the mixture as it is, then for each alpha reweighted.
    This is the loss of the randomised classifier, which answers each request by one drawn base model."""
    calibration: Calibration
    correct: int
    """Rows that the served model, the mean of the base models' probabilities, classifies correctly."""
    labels: GroupSums
    """Rows of each class, and those classified correctly."""
    log_loss: float
    """Sum of -log of the probability of the true class."""

    def add(self, other: MetricSums) -> None:
        """Add the sums of other rows."""
        self.n += other.n
        self.correct += other.correct
        self.labels.add(other.labels)
        self.log_loss += other.log_loss
        for name, found in other.groupings.items():
            self.groupings.setdefault(name, GroupSums(Counter(), Counter())).add(found)
        for mine, theirs in zip(self.losses, other.losses, strict=True):
            mine.update(theirs)
        self.calibration = _merged(self.calibration, other.calibration)


def sum_over_rows(
    model: Ensemble,
    X: npt.ArrayLike,
    y: npt.ArrayLike,
    groupings: Mapping[str, npt.ArrayLike],
    mixtures: Sequence[Floats] = (),
) -> MetricSums:
    """Sum over the rows X (n, d) with labels y (n,).

    groupings : name -> (n,) group of each row: any values.
    mixtures : other model weights (T,) whose expected losses are counted too.
    """
    y = np.asarray(y, np.int64)
    every = model.losses(X, y)
    expected = (every @ model.model_weights).clip(0, 1)
    columns = [expected, *((every @ mixture).clip(0, 1) for mixture in mixtures)]
    probabilities = model.predict_proba(X)
    correct = (probabilities.argmax(axis=1) == y).astype(np.float64)
    found = {name: _by_group(np.asarray(groups), correct) for name, groups in groupings.items()}
    shape = calibration(probabilities, y, BINS)
    known = y >= 0  # a class that the model does not know has probability 0
    p = np.zeros(len(y))
    p[known] = probabilities[known, y[known]]
    return MetricSums(
        len(y),
        found,
        [_steps(column) for column in columns],
        shape,
        int(correct.sum()),
        _by_group(y, correct),
        float(-np.log(p.clip(LEAST_PROBABILITY)).sum()),
    )


def cvar_of_steps(losses: Counter[int], alpha: float) -> float:
    """Return the mean loss of the worst alpha of the counted rows; see ``operators.metrics.cvar``."""
    values = np.array(sorted(losses, reverse=True), np.float64) / STEPS
    rows = np.array([losses[step] for step in sorted(losses, reverse=True)], np.float64)
    tail = min(rows.sum(), max(1.0, alpha * rows.sum()))
    before = np.cumsum(rows) - rows
    return float(values @ (tail - before).clip(0, rows) / tail)


def _steps(losses: Floats) -> Counter[int]:
    values, counts = np.unique(np.rint(losses * STEPS).astype(np.int64), return_counts=True)
    return Counter(dict(zip(values.tolist(), counts.tolist(), strict=True)))


def _by_group(groups: npt.NDArray[Any], right: Floats) -> GroupSums:
    names, place = np.unique(groups, return_inverse=True)
    keys = names.tolist()
    rows = np.bincount(place, minlength=len(keys)).tolist()
    sums = np.bincount(place, right, minlength=len(keys)).tolist()
    return GroupSums(Counter(dict(zip(keys, rows, strict=True))), Counter(dict(zip(keys, sums, strict=True))))


def _merged(one: Calibration, other: Calibration) -> Calibration:
    rows = one.rows + other.rows
    with np.errstate(invalid="ignore"):
        confidence, accuracy = (
            (np.nan_to_num(a) * one.rows + np.nan_to_num(b) * other.rows) / rows
            for a, b in ((one.confidence, other.confidence), (one.accuracy, other.accuracy))
        )
    return Calibration(one.edges, rows, confidence, accuracy)
