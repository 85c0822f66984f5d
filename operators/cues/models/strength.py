"""Weights as a path from no weighting to full robustness, and the trade-off along it.

The strength of weighting is one number: 0 gives every row the same weight (ERM), 1 gives every class the
same total (class balance), values between are powers of the class sizes, and 2 is class balance times the
full robust factor within the limits of ``limits``. Between 1 and 2 the factor is mixed in.

``trade_off`` measures, for several strengths, the accuracy of the worst group and the mean accuracy of
linear models on rows that they have not seen. ``baseline`` is the one that all weights are compared with.
``choose`` picks a strength by the mean accuracy that the user is willing to lose. None knows a true group.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from operators.arrays import Float64, Floats, Integers
from operators.class_shares import class_factors
from operators.cues.limits import Limits, fit_limits
from operators.cues.models.draws import Split, halves
from operators.cues.models.linear import fit_softmax, predict
from operators.metrics.group_scores import ComparedGroup, compare_groups, worst_of
from operators.metrics.intervals import wilson_interval

STRENGTHS = (0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 1.75, 2.0)
UNWEIGHTED, CLASS_BALANCE, FULL = 0.0, 1.0, 2.0
SAME = 1e-9
"""A rise of the factor's spread above which it is not constant, and slack of the comparison of accuracies."""


class TooFewRowsError(ValueError):
    """A half of the rows has less than two classes."""


@dataclass(frozen=True)
class WeightPath:
    """Weights of any row at any strength.

    Attributes
    ----------
    counts
        Rows of each class, shape (C,).
    limits
        Limits of the robust factor.

    """

    counts: Integers
    limits: Limits

    @classmethod
    def fit(
        cls, factor: Floats, y: Integers, counts: Integers, *, cap: float, min_effective: float
    ) -> WeightPath:
        """Measure the limits on a sample.

        Parameters
        ----------
        factor
            Robust factor relative to class balance ahead of the limits, shape (n,).
        y
            Labels 0 .. C - 1, shape (n,).
        counts
            Rows of each class in the whole table, shape (C,).
        cap, min_effective
            As in ``limits.fit_limits``.

        """
        return cls(counts, fit_limits(factor, y, len(counts), cap=cap, min_effective=min_effective))

    def weights(self, strength: float, factor: Floats, y: Integers) -> Float64:
        """Return the weights, shape (n,): finite, not negative, mean near 1 over the rows of the table.

        Parameters
        ----------
        strength
            From 0 to 2.
        factor, y
            Robust factor ahead of the limits and label of any rows, shape (n,).

        Raises
        ------
        ValueError
            The strength is out of range.

        """
        if not 0.0 <= strength <= FULL:
            raise ValueError(f"the strength of weighting is {strength}: give a number from 0 to {FULL:g}")
        by_class = class_factors(self.counts, strength=min(strength, CLASS_BALANCE))[y]
        part = max(strength - CLASS_BALANCE, 0.0)
        if part == 0.0:
            return np.asarray(by_class, np.float64)
        return np.asarray(by_class * (1.0 + part * (self.limits.apply(factor, y) - 1.0)))


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


def has_factor(factor: Floats, y: Integers) -> bool:
    """Return whether the robust factor differs within any class, so that the path goes beyond 1."""
    return any(float(np.ptp(factor[y == c])) > SAME for c in np.unique(y))


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

    """

    strengths: tuple[float, ...]
    right: npt.NDArray[np.bool_]
    mass: Floats
    effective_share: tuple[float, ...]

    def at(self, strength: float) -> npt.NDArray[np.bool_]:
        """Return which rows are right at one of the strengths, shape (n,)."""
        return np.asarray(self.right[self.strengths.index(strength)])

    def only(self, strengths: Sequence[float]) -> Trials:
        """Return the trials of some of the strengths."""
        kept = [k for k, strength in enumerate(self.strengths) if strength in strengths]
        share = tuple(self.effective_share[k] for k in kept)
        return Trials(tuple(self.strengths[k] for k in kept), self.right[kept], self.mass, share)

    def points(self, groups: Integers) -> tuple[TradeOffPoint, ...]:
        """Return one point for each strength; groups, shape (n,), with fewer than 50 rows are pooled."""
        rows = zip(self.strengths, self.right, self.effective_share, strict=True)
        return tuple(_point(strength, right, self.mass, groups, share) for strength, right, share in rows)


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
    return Trials(tuple(float(s) for s in usable), right, mass, tuple(shares))


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
) -> tuple[TradeOffPoint, ...]:
    """Return worst-group and mean accuracy over the strength of weighting, one point for each strength.

    Parameters are those of ``try_strengths``, and ``groups``: the inferred group of each row, shape (n,), by
    default the class. It raises what that does.
    """
    trials = try_strengths(Z, y, ids, path, factor, strengths=strengths, l2=l2, seed=seed)
    return trials.points(y if groups is None else groups)


def baseline(points: Sequence[TradeOffPoint]) -> TradeOffPoint:
    """Return the point that weights have to beat: the better of no weights and class balance.

    Better is the higher accuracy of the worst group; of equals the higher mean accuracy. This is the only
    baseline of the package: the gate, the curve, the list of suspects and all figures refer to it.

    Parameters
    ----------
    points
        From ``trade_off`` or ``Trials.points``, with the strengths 0 and 1.

    """
    ends = [point for point in points if point.strength in (UNWEIGHTED, CLASS_BALANCE)]
    return max(ends, key=lambda point: (point.worst, point.mean, point.strength))


def point_at(points: Sequence[TradeOffPoint], strength: float) -> TradeOffPoint | None:
    """Return the point of a strength; None where it was not measured."""
    return next((point for point in points if abs(point.strength - strength) < SAME), None)


def compared_groups(groups: Integers) -> tuple[ComparedGroup, ...]:
    """Return the groups among which the worst is looked for, with the small ones pooled."""
    rows = _count(groups)
    return compare_groups(rows, rows)


def choose(points: Sequence[TradeOffPoint], max_mean_loss: float) -> int:
    """Return the position of the largest strength that costs little mean accuracy.

    Parameters
    ----------
    points
        From ``trade_off``, in rising order of the strength; at least one.
    max_mean_loss
        Largest loss of mean accuracy against the best strength, from 0 to 1.

    Raises
    ------
    ValueError
        ``max_mean_loss`` is out of range.

    """
    if not 0.0 <= max_mean_loss <= 1.0:
        raise ValueError(f"max_mean_loss is {max_mean_loss}: give a number from 0 to 1, such as 0.02")
    return last_within([point.mean for point in points], max_mean_loss)


def last_within(means: Sequence[float], loss: float) -> int:
    """Return the last position whose mean accuracy is at most ``loss`` below the largest."""
    least = max(means) - loss - SAME
    return max(k for k, mean in enumerate(means) if mean >= least)


def _point(
    strength: float, right: npt.NDArray[np.bool_], mass: Floats, groups: Integers, effective_share: float
) -> TradeOffPoint:
    compared = compare_groups(_count(groups), _count(groups[right]))
    worst = worst_of(compared)
    if worst is None:
        raise ValueError("there are no rows to compare groups on")
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


def _count(groups: Integers) -> Counter[int]:
    names, counts = np.unique(groups, return_counts=True)
    return Counter(dict(zip(names.tolist(), counts.tolist(), strict=True)))
