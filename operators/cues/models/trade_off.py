"""The trade-off over the strength of weighting, measured on rows that the models have not seen.

``trade_off`` measures, for several strengths (``weight_path``), the accuracy of the worst group and the mean
accuracy of linear models. ``try_strengths`` keeps which rows are right, so that they can be compared in other
groups. None knows a true group.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from operators.arrays import Floats, Integers, Mask
from operators.cues.models.draws import Split, halves
from operators.cues.models.linear import fit_softmax, predict
from operators.cues.models.weight_path import CLASS_BALANCE, WeightPath, has_factor
from operators.metrics.group_scores import MIN_ROWS, compare_groups, worst_of
from operators.metrics.intervals import wilson_interval

STRENGTHS = (0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 1.75, 2.0)


TINY = 1e-300
"""Least divisor, against division by 0."""


class TooFewRowsError(ValueError):
    """A half of the rows has less than two classes."""


@dataclass(frozen=True)
class TradeOffPoint:
    """Accuracies at one strength, on rows that the models have not seen.

    Attributes
    ----------
    strength
        From 0 to 2.
    mean, mean_low, mean_high
        Mean accuracy over the table's rows, and its 95 % interval.
    worst
        Accuracy of the worst group among those with enough rows.
    worst_low, worst_high
        Interval that holds the lowest true accuracy of any compared group with probability 95 %.
    group
        The worst group: its number, or several that are pooled.
    rows
        Scored rows of the worst group.
    effective_share
        Effective sample size of the weights as a share of the rows.

    """

    strength: float
    mean: float
    mean_low: float
    mean_high: float
    worst: float
    worst_low: float
    worst_high: float
    group: tuple[int, ...]
    rows: int
    effective_share: float


@dataclass(frozen=True)
class Trials:
    """Rows that models which have not seen them get right, for several strengths.

    Attributes
    ----------
    strengths
        In rising order, length S.
    right
        Shape (S, n).
    mass
        Rows of the table that a row of the sample stands for, shape (n,).
    effective_share
        Effective sample size of the weights as a share of the rows, length S.
    right_label
        Probability that the label of a row is right, shape (n,); None where all are taken to be.

    """

    strengths: tuple[float, ...]
    right: npt.NDArray[np.bool_]
    mass: Floats
    effective_share: tuple[float, ...]
    right_label: Floats | None = None

    def at(self, strength: float) -> npt.NDArray[np.bool_]:
        """Return which rows are right at one of the strengths, shape (n,)."""
        return np.asarray(self.right[self.strengths.index(strength)])

    def only(self, strengths: Sequence[float]) -> Trials:
        """Return the trials of some of the strengths."""
        kept = [k for k, strength in enumerate(self.strengths) if strength in strengths]
        share = tuple(self.effective_share[k] for k in kept)
        strengths = tuple(self.strengths[k] for k in kept)
        return Trials(strengths, self.right[kept], self.mass, share, self.right_label)

    def only_rows(self, kept: Mask) -> Trials:
        """Return the trials of some of the rows, shape (n,)."""
        label = None if self.right_label is None else self.right_label[kept]
        return replace(self, right=self.right[:, kept], mass=self.mass[kept], right_label=label)

    def points(self, groups: Integers, *, min_rows: int = MIN_ROWS) -> tuple[TradeOffPoint, ...]:
        """Return one point for each strength; groups, shape (n,), with fewer than ``min_rows`` are pooled.

        A row counts by the probability that its label is right. A group has as many rows as, of one
        probability, would tell as much.
        """
        rows = zip(self.strengths, self.right, self.effective_share, strict=True)
        return tuple(
            _point(strength, right, self.mass, groups, share, self.right_label, min_rows)
            for strength, right, share in rows
        )


Fits = dict[tuple[float, ...], tuple[Floats, ...]]
"""Strengths up to 1 that were fitted one after the other -> model of each half after the last of them. Those
do not depend on the robust factor."""


def try_strengths(
    Z: Floats,
    y: Integers,
    ids: Integers,
    path: WeightPath,
    factor: Floats,
    *,
    strengths: Sequence[float] = STRENGTHS,
    l2: float = 1e-3,
    seed: int = 0,
    fits: Fits | None = None,
    right_label: Floats | None = None,
) -> Trials:
    """Train one softmax regression on each half of the rows for every strength, and score it on the other.

    Parameters
    ----------
    Z
        Standardised rows, float32, shape (n, d).
    y
        Labels 0 .. C - 1, shape (n,).
    ids
        Row ids, shape (n,); a hash of them decides the halves.
    path, factor
        Weights, and the robust factor of each row, shape (n,).
    strengths
        In rising order. Those above 1 are left out where the factor is the same for all rows of a class.
    l2
        Ridge penalty.
    seed
        Decides the halves.
    fits
        Models of the strengths up to 1 on these rows, which are taken from here and added.
    right_label
        Probability that the label of each row is right, shape (n,); it counts where rows are scored.

    Returns
    -------
    Trials. The cost is as many fits of the probe as there are strengths, most of them from a near start.

    Raises
    ------
    TooFewRowsError
        A half has rows of less than two classes.

    """
    C = len(path.counts)
    half = halves(ids, seed, Split.TRADE_OFF)
    if min(len(np.unique(y[half == h])) for h in (0, 1)) < 2:
        raise TooFewRowsError(f"{len(y)} rows are too few: a half of them has less than two classes")
    drawn = np.bincount(y, minlength=C)
    mass = (path.counts / np.maximum(drawn, 1))[y]
    usable = [s for s in strengths if s <= CLASS_BALANCE or has_factor(factor, y)]
    right = np.empty((len(usable), len(y)), np.bool_)
    fits = {} if fits is None else fits
    starts: tuple[Floats | None, ...] = (None, None)
    shares = []
    for k, strength in enumerate(usable):
        w, before = path.weights(strength, factor, y), tuple(usable[: k + 1])
        models = fits.get(before) or tuple(
            fit_softmax(Z[half == h], y[half == h], (w * mass)[half == h], C, l2=l2, start=starts[h])
            for h in (0, 1)
        )
        if strength <= CLASS_BALANCE:
            fits[before] = models
        starts = models
        for h, model in enumerate(models):
            right[k, half != h] = predict(model, Z[half != h]).argmax(axis=1) == y[half != h]
        shares.append(float((mass @ w) ** 2 / (mass.sum() * (mass @ (w * w)))))
    return Trials(tuple(float(s) for s in usable), right, mass, tuple(shares), right_label)


def trade_off(
    Z: Floats,
    y: Integers,
    ids: Integers,
    path: WeightPath,
    factor: Floats,
    groups: Integers | None = None,
    *,
    strengths: Sequence[float] = STRENGTHS,
    l2: float = 1e-3,
    seed: int = 0,
    right_label: Floats | None = None,
) -> tuple[TradeOffPoint, ...]:
    """Return worst-group and mean accuracy over the strength of weighting, one point for each strength.

    Parameters are those of ``try_strengths``, and ``groups``: the inferred group of each row, shape (n,), by
    default the class. It raises what that does.
    """
    trials = try_strengths(
        Z, y, ids, path, factor, strengths=strengths, l2=l2, seed=seed, right_label=right_label
    )
    return trials.points(y if groups is None else groups)


def rows_by_group(groups: Integers, right_label: Floats | None = None) -> Counter[int]:
    """Return the number of rows of each group, in rising order of the groups.

    Where rows count by the probability that their label is right, shape (n,), it is the number of rows of one
    probability that would tell as much.
    """
    names, which, rows = np.unique(groups, return_inverse=True, return_counts=True)
    if right_label is not None:
        total, squares = np.bincount(which, right_label), np.bincount(which, right_label**2)
        rows = np.rint(total**2 / np.maximum(squares, TINY)).astype(int)
    return Counter(dict(zip(names.tolist(), rows.tolist(), strict=True)))


def _right_by_group(
    rows: Mapping[int, int], groups: Integers, right: npt.NDArray[np.bool_], right_label: Floats
) -> dict[int, float]:
    """Return how many of the rows of each group are right, in the proportion of those that count."""
    names, which = np.unique(groups, return_inverse=True)
    total, hits = np.bincount(which, right_label), np.bincount(which, right_label * right)
    counted = zip(names.tolist(), hits.tolist(), total.tolist(), strict=True)
    return {name: hit * (rows[name] / max(n, TINY)) for name, hit, n in counted}


def _point(
    strength: float,
    right: npt.NDArray[np.bool_],
    mass: Floats,
    groups: Integers,
    effective_share: float,
    right_label: Floats | None,
    min_rows: int,
) -> TradeOffPoint:
    rows = rows_by_group(groups, right_label)
    counted = np.ones(len(groups)) if right_label is None else right_label
    compared = compare_groups(rows, _right_by_group(rows, groups, right, counted), min_rows=min_rows)
    worst = worst_of(compared)
    if worst is None:
        raise ValueError("there are no rows to compare groups on")
    mass = mass * counted
    n = float(mass.sum() ** 2 / (mass @ mass))  # rows of one mass that would tell as much
    mean = float(mass @ right / mass.sum())
    low, high = wilson_interval(min(mean * n, n), n)
    return TradeOffPoint(
        strength=float(strength),
        mean=mean,
        mean_low=float(low),
        mean_high=float(high),
        worst=worst.accuracy,
        worst_low=min(group.low for group in compared),
        worst_high=min(group.high for group in compared),
        group=tuple(int(member) for member in worst.members),
        rows=worst.rows,
        effective_share=effective_share,
    )
