"""Sums over rows from which scores follow. They are small, and those of two shards can be added."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.training.fit.ensemble import Ensemble
from operators.arrays import Float64
from operators.metrics.calibration import Calibration, calibration

LOSS_STEPS = 10**6
"""Expected losses are counted in steps of 1 / LOSS_STEPS, so that those of a dataset need little memory."""
NAT_STEPS = 10**4
"""Log-losses are counted in steps of 1 / NAT_STEPS nats."""
CONFIDENCE_BINS = 15
"""Bins of the confidence, in which calibration is measured."""
PROBABILITY_BINS = 1000
"""Bins of a class's probability, in which rows are counted for the average precision."""
MAX_RANKED_CLASSES = 100
"""Maximum number of classes for which these bins are counted."""
MIN_PROBABILITY = 1e-15
"""Lower bound of a probability in the log-loss, so that one row does not make it infinite."""


@dataclass(frozen=True)
class TrueClasses:
    """True classes of rows that a model sees with other class indices, or cannot read."""

    y: npt.NDArray[np.int64]
    """(n,) indices of the true classes."""
    places: npt.NDArray[np.int64]
    """(C,) index that the model has for each true class; negative for a class that it does not know."""

    def columns(self, probabilities: Float64, seen: npt.NDArray[np.int64]) -> Float64:
        """Return the model's probabilities by true class (n, C).

        They are 0 for a class that the model does not know, and in rows that it cannot read: those whose
        class it knows, but whose index ``seen`` is negative.
        """
        known = self.places >= 0
        found = np.zeros((len(self.y), len(self.places)))
        found[:, known] = probabilities[:, self.places[known]]
        found[(seen < 0) & known[self.y]] = 0.0
        return found


@dataclass
class GroupSums:
    """Rows of each group of one grouping, and those that the served model classifies correctly."""

    rows: Counter[Any]
    right: Counter[Any]
    bins: dict[Any, Float64] = field(default_factory=dict)
    """Group -> (3, CONFIDENCE_BINS): rows, sum of confidences and correct rows by bins of the confidence."""

    def add(self, other: GroupSums) -> None:
        """Add the sums of other rows."""
        self.rows.update(other.rows)
        for group, sums in other.bins.items():
            self.bins[group] = self.bins[group] + sums if group in self.bins else sums
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
    """Rows of each true class, and those classified correctly."""
    log_loss: float
    """Sum of -log of the probability of the true class."""
    nats: Counter[int]
    """-log of the probability of the true class in steps of 1e-4 -> rows."""
    ranks: npt.NDArray[np.int64]
    """(2, C, PROBABILITY_BINS): rows, and rows of the class, by bins of the probability of a true class."""

    def add(self, other: MetricSums) -> None:
        """Add the sums of other rows."""
        self.n += other.n
        self.correct += other.correct
        self.labels.add(other.labels)
        self.log_loss += other.log_loss
        self.nats.update(other.nats)
        self.ranks = self.ranks + other.ranks
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
    mixtures: Sequence[Float64] = (),
    classes: TrueClasses | None = None,
) -> MetricSums:
    """Sum over the rows X (n, d) with labels y (n,).

    groupings : name -> (n,) group of each row: any values.
    mixtures : other model weights (T,) whose expected losses are counted too.
    classes : true classes of the rows; default: ``y``, which is negative for a row that the model cannot
        read or whose class it does not know.
    """
    y = np.asarray(y, np.int64)
    every = model.losses(X, y)
    expected = (every @ model.model_weights).clip(0, 1)
    columns = [expected, *((every @ mixture).clip(0, 1) for mixture in mixtures)]
    probabilities = model.predict_proba(X)
    correct = (probabilities.argmax(axis=1) == y).astype(np.float64)
    confidence = probabilities.max(axis=1, initial=0.0)
    found = {name: _by_group(np.asarray(groups), correct, confidence) for name, groups in groupings.items()}
    shape = calibration(probabilities, y, CONFIDENCE_BINS)
    known = y >= 0  # a class that the model does not know has probability 0
    p = np.zeros(len(y))
    p[known] = probabilities[known, y[known]]
    nats = -np.log(p.clip(MIN_PROBABILITY))
    return MetricSums(
        n=len(y),
        groupings=found,
        losses=[_steps(column) for column in columns],
        calibration=shape,
        correct=int(correct.sum()),
        labels=_by_group(y if classes is None else classes.y, correct),
        log_loss=float(nats.sum()),
        nats=_steps(nats, NAT_STEPS),
        ranks=_ranks(probabilities, y)
        if classes is None
        else _ranks(classes.columns(probabilities, y), classes.y),
    )


def average_precision(ranks: npt.NDArray[np.int64]) -> float | None:
    """Return the mean over classes of the area under precision by recall (average precision).

    It equals scikit-learn's ``average_precision_score`` of probabilities that are rounded down to one part in
    ``PROBABILITY_BINS``. None if no class has rows, or where there are more classes than are counted.
    """
    every, own = ranks[0, :, ::-1].astype(np.float64), ranks[1, :, ::-1].astype(np.float64)
    present = own.sum(axis=1) > 0
    if not present.any():
        return None
    taken, found = np.cumsum(every[present], axis=1), np.cumsum(own[present], axis=1)
    precision = np.divide(found, taken, out=np.zeros_like(found), where=taken > 0)
    areas = (precision * own[present]).sum(axis=1) / own[present].sum(axis=1)
    return float(areas.mean())


def group_calibration(bins: Float64) -> tuple[float, float]:
    """Return the expected calibration error of a group, and its mean confidence less its accuracy."""
    rows, confidence, right = bins
    return float(np.abs(confidence - right).sum() / rows.sum()), float(
        (confidence - right).sum() / rows.sum()
    )


def _ranks(probabilities: Float64, y: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    n_classes = probabilities.shape[1]
    if n_classes > MAX_RANKED_CLASSES:
        return np.zeros((2, 0, PROBABILITY_BINS), np.int64)
    found = np.zeros((2, n_classes, PROBABILITY_BINS), np.int64)
    places = (probabilities * PROBABILITY_BINS).astype(np.int64).clip(0, PROBABILITY_BINS - 1)
    for label in range(n_classes):
        found[0, label] = np.bincount(places[:, label], minlength=PROBABILITY_BINS)
        found[1, label] = np.bincount(places[y == label, label], minlength=PROBABILITY_BINS)
    return found


def cvar_of_steps(losses: Counter[int], alpha: float, steps: int = LOSS_STEPS) -> float:
    """Return the mean loss of the worst alpha of the counted rows; see ``operators.metrics.cvar``.

    ``losses`` counts rows by their loss in steps of 1 / ``steps``.
    """
    values = np.array(sorted(losses, reverse=True), np.float64) / steps
    rows = np.array([losses[step] for step in sorted(losses, reverse=True)], np.float64)
    tail = min(rows.sum(), max(1.0, alpha * rows.sum()))
    before = np.cumsum(rows) - rows
    return float(values @ (tail - before).clip(0, rows) / tail)


def _steps(losses: Float64, steps: int = LOSS_STEPS) -> Counter[int]:
    values, counts = np.unique(np.rint(losses * steps).astype(np.int64), return_counts=True)
    return Counter(dict(zip(values.tolist(), counts.tolist(), strict=True)))


def _by_group(groups: npt.NDArray[Any], right: Float64, confidence: Float64 | None = None) -> GroupSums:
    names, place = np.unique(groups, return_inverse=True)
    keys = names.tolist()
    rows = np.bincount(place, minlength=len(keys)).tolist()
    sums = np.bincount(place, right, minlength=len(keys)).tolist()
    bins: dict[Any, Float64] = {}
    if confidence is not None and len(keys):
        cell = place * CONFIDENCE_BINS + (confidence * CONFIDENCE_BINS).astype(np.int64).clip(
            0, CONFIDENCE_BINS - 1
        )
        counted = [
            np.bincount(cell, w, len(keys) * CONFIDENCE_BINS) for w in (np.ones(len(cell)), confidence, right)
        ]
        bins = dict(
            zip(keys, np.stack(counted).reshape(3, len(keys), CONFIDENCE_BINS).swapaxes(0, 1), strict=True)
        )
    by_rows, by_right = dict(zip(keys, rows, strict=True)), dict(zip(keys, sums, strict=True))
    return GroupSums(Counter(by_rows), Counter(by_right), bins)


def _merged(one: Calibration, other: Calibration) -> Calibration:
    rows = one.rows + other.rows
    with np.errstate(invalid="ignore"):
        confidence, accuracy = (
            (np.nan_to_num(a) * one.rows + np.nan_to_num(b) * other.rows) / rows
            for a, b in ((one.confidence, other.confidence), (one.accuracy, other.accuracy))
        )
    return Calibration(one.edges, rows, confidence, accuracy)
