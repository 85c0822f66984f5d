"""Decides the strength of the published weights on rows that the models have not seen, against one baseline.

The baseline is the better of no weights and class balance (``curve_points.baseline``). Robust weights whose
evidence suffices are published only if the worst group is better under them than under both; with more than
two classes it is enough that the rows which break the shortcut are better in the mean of the classes, by more
than chance, and the worst group is hardly worse. Where evidence is halfway, a large rise on those rows, or
one of the worst group that full strength alone brings, raises the strength. Less than half of the factor of
twins and slices is not published, as evidence for so little is weak. Without robust weights the classes are
balanced, unless the worst class is better with less of it (``balance_of_classes``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from operators.arrays import Floats, Integers
from operators.cues.decision.balance_of_classes import LeaningSlices, choose_class_strength
from operators.cues.decision.groups import leaning_groups, shortcut_groups
from operators.cues.learnt_classes import learnt_classes
from operators.cues.models.curve_points import baseline, point_at
from operators.cues.models.trade_off import (
    STRENGTHS,
    Fits,
    TooFewRowsError,
    TradeOffPoint,
    Trials,
    try_strengths,
)
from operators.cues.models.weight_path import CLASS_BALANCE, FULL, UNWEIGHTED, WeightPath
from operators.cues.search.gain import exchanged
from operators.cues.search.ramps import LEAST_PART, SOME_EVIDENCE, ramp
from operators.cues.sides.sides import Sides

SURE_OF_RISE = 2.0
"""Standard errors by which a rise that raises the part is lowered."""
SURE_OF_MANY = 3.0
"""Standard errors by which the rows that break the shortcut have to gain where the worst group does not."""
MAX_WORST_LOSS = 0.02
"""Largest fall of the worst group's accuracy in that case: the least of many noisy figures."""
RAISED_RISE = (0.15, 0.25)
"""Lower limits of the rise at full strength between which the part is raised to 1."""
RAISED_EXCHANGE = (0.10, 0.18)
"""Rows put right for each row made wrong, between which the part is raised to 1: an honest feature that
decides nearly all rows has few mistakes to put right."""
TRUSTED_PART = (0.3, 0.4)
"""Part from which a rise of the worst group raises it, and from which it raises it in full."""
TRUSTED_RISE = (0.15, 0.25)
"""Rise of the worst group at full strength between which such a part is raised to 1."""
NAMED_RISE = 0.02
"""Rise of the worst group, from the named part to full strength, from which a named shortcut is balanced in
full."""
ENTITY_RISE = 0.15
"""Least rise of the worst group on held-out rows where the shortcut lies in a column of many values."""
MIN_CELL_ROWS = 20
"""Rows of a class that break the shortcut, below which the class is left out of their rise."""


@dataclass(frozen=True)
class DecisionSample:
    """Rows on which the decision is made.

    Attributes
    ----------
    Z, y, ids
        Standardised rows (n, d), labels (n,), row ids (n,).
    factor
        Robust factor in full, ahead of the limits, shape (n,).
    which
        0 for a row that follows the suspected or named shortcut, else the number of the way in which it
        breaks it, such as by column, from 1, shape (n,).
    parts
        Number of these ways.
    leaning
        Slices on which models clearly lean.
    right_label
        Probability that the label of each row is right, shape (n,); None where all are taken to be.

    """

    Z: Floats
    y: Integers
    ids: Integers
    factor: Floats
    which: Integers
    parts: int = 1
    leaning: LeaningSlices | None = None
    right_label: Floats | None = None

    @property
    def broken(self) -> npt.NDArray[np.bool_]:
        """Whether a row breaks the shortcut, shape (n,)."""
        return np.asarray(self.which > 0)


@dataclass(frozen=True)
class DecisionRules:
    """Rules by which the robust factor is followed.

    Attributes
    ----------
    named
        Whether the shortcut is named: the part is not raised by what the search needs then.
    whatever_it_costs
        Whether a named shortcut may be balanced in full where that is better for the worst group.
    only_if_better
        Whether the worst group has to be better. The part of what the user names is taken in any case.
    by_part
        Whether the robust factor makes the label independent of a column: of it the part is taken that is
        best for the worst group, as the whole of it leaves little of many classes.
    many_values
        Whether the shortcut lies in a column of many values, which may be an entity that decides the label:
        the worst group then has to rise by ``ENTITY_RISE``, and by more than all rows lose.
    max_cost
        Largest loss of all rows against the baseline at which the robust factor is followed.

    """

    named: bool = False
    whatever_it_costs: bool = False
    only_if_better: bool = True
    by_part: bool = False
    many_values: bool = False
    max_cost: float = np.inf


@dataclass(frozen=True)
class Decision:
    """Strength of the published weights, and the figures that led to it.

    Attributes
    ----------
    class_strength
        How far classes are balanced, from 0 to 1.
    blend
        Part of the robust factor, from 0 to 1.
    points
        Trade-off over the strength, with the published one; empty where rows are too few.
    trials
        Rows that are right at each strength that was tried; None where rows are too few.
    leaning_column
        Column on which models lean so much that it decided how far classes are balanced, and by whose sides
        the points compare the rows; None where the classes decided.

    """

    class_strength: float
    blend: float
    points: tuple[TradeOffPoint, ...]
    trials: Trials | None = None
    leaning_column: Sides | None = None


def decide(
    sample: DecisionSample,
    path: WeightPath,
    allowed: float,
    rules: DecisionRules,
    *,
    l2: float,
    seed: int,
    fits: Fits | None = None,
) -> Decision:
    """Return how far classes are balanced and the robust factor is followed.

    Parameters
    ----------
    sample, path
        Rows, and the weights of each strength.
    allowed
        Part of the robust factor that the evidence allows, from 0 to 1.
    rules
        What the part depends on.
    l2, seed, fits
        As for ``trade_off.try_strengths``.

    """
    tried = sorted({*STRENGTHS, CLASS_BALANCE + allowed})
    Z, y, ids = sample.Z, sample.y, sample.ids
    try:
        trials = try_strengths(
            Z,
            y,
            ids,
            path,
            sample.factor,
            strengths=tried,
            l2=l2,
            seed=seed,
            fits=fits,
            right_label=sample.right_label,
        )
    except TooFewRowsError:
        return Decision(CLASS_BALANCE, 0.0 if rules.only_if_better else allowed, ())
    if allowed > 0:
        points = trials.points(shortcut_groups(y, sample.which, len(path.counts), sample.parts))
        part = _part_to_follow(allowed, rules, trials, points, sample)
        if not rules.only_if_better:
            return Decision(choose_class_strength(trials, y).strength, part, points, trials)
        if _is_followed(part, rules, trials, points, sample, path.counts):
            return Decision(CLASS_BALANCE, part, points, trials)
    return _without_robust_part(trials, sample)


def _part_to_follow(
    allowed: float,
    rules: DecisionRules,
    trials: Trials,
    points: tuple[TradeOffPoint, ...],
    sample: DecisionSample,
) -> float:
    """Return the part of the robust factor that may be followed, from 0 to 1."""
    trusted = trusted_part(allowed, points)
    if rules.by_part:
        return best_part(points, trusted)
    if rules.named:
        return 1.0 if rules.whatever_it_costs and is_better_in_full(allowed, points) else allowed
    return max(raised_part(allowed, trials, sample.y, sample.broken), trusted)


def is_better_in_full(part: float, points: tuple[TradeOffPoint, ...]) -> bool:
    """Return whether full strength is clearly better for the worst group than a part of the robust factor."""
    reached, full = point_at(points, CLASS_BALANCE + part), point_at(points, FULL)
    return reached is not None and full is not None and full.worst >= reached.worst + NAMED_RISE


def _is_followed(
    part: float,
    rules: DecisionRules,
    trials: Trials,
    points: tuple[TradeOffPoint, ...],
    sample: DecisionSample,
    counts: Integers,
) -> bool:
    """Return whether held-out rows favour a part of the robust factor, and it is worth its cost."""
    strength = CLASS_BALANCE + part
    if part < LEAST_PART and not rules.named:
        return False
    if cost(points, strength) > rules.max_cost:
        return False
    if rules.many_values and not is_worth_its_cost(points, strength):
        return False
    n_learnt = int(learnt_classes(counts).sum())
    return beats_baseline(points, trials, strength, sample.y, sample.broken, n_learnt)


def is_worth_its_cost(points: tuple[TradeOffPoint, ...], strength: float) -> bool:
    """Return whether a strength raises the worst group by enough, and by more than it costs all rows."""
    return worst_rise(points, strength) >= max(ENTITY_RISE, cost(points, strength))


def cost(points: tuple[TradeOffPoint, ...], strength: float) -> float:
    """Return how much accuracy all rows lose at a strength against the baseline; 0 if not measured."""
    reached = point_at(points, strength)
    return 0.0 if reached is None else baseline(points).mean - reached.mean


def _without_robust_part(trials: Trials, sample: DecisionSample) -> Decision:
    """Return the decision where no robust factor is followed: the curve has none but the usual strengths."""
    kept = replace(
        trials.only(STRENGTHS), right_label=None
    )  # no shortcut is followed that labels could break
    strength, number = choose_class_strength(kept, sample.y, sample.leaning)
    if sample.leaning is None or number is None:
        return Decision(strength, 0.0, kept.points(sample.y), trials)
    column = sample.leaning.columns[number]
    groups = leaning_groups(column, sample.Z, sample.y)
    return Decision(strength, 0.0, kept.points(groups), trials, column)


def best_part(points: tuple[TradeOffPoint, ...], allowed: float) -> float:
    """Return the part with the best worst group, from ``LEAST_PART`` to the allowed one.

    Of equal ones it is the least, and 0 where there is none, as where the factor is the same for all rows of
    a class.
    """
    least, most = CLASS_BALANCE + LEAST_PART, CLASS_BALANCE + allowed
    within = [point for point in points if least <= point.strength <= most]
    if not within:
        return 0.0
    return max(within, key=lambda point: (point.worst, -point.strength)).strength - CLASS_BALANCE


def raised_part(allowed: float, trials: Trials, y: Integers, broken: npt.NDArray[np.bool_]) -> float:
    """Return the part of the robust factor that is taken where evidence of that part is halfway.

    The gate is a product of ramps, so that some doubt about several measurements leaves little of it. In all
    design problems that had some evidence, the doubt was unfounded where the rows that break the shortcut
    gained much at full strength and the others did not pay for it with many more.

    Parameters
    ----------
    allowed
        Part that the evidence allows, from 0 to 1.
    trials, y, broken
        Trials with the strengths 0, 1 and 2, labels and whether a row breaks the shortcut, shape (n,).

    Returns
    -------
    That part, or a larger multiple of a quarter: one of the measured strengths.

    """
    if FULL not in trials.strengths:
        return allowed
    gained = ramp(broken_rise(trials, FULL, y, broken, SURE_OF_RISE), *RAISED_RISE)
    bought = ramp(exchanged(trials.at(CLASS_BALANCE), trials.at(FULL)), *RAISED_EXCHANGE)
    return _towards_one(allowed, ramp(allowed, *SOME_EVIDENCE) * gained * bought)


def trusted_part(allowed: float, points: tuple[TradeOffPoint, ...]) -> float:
    """Return the allowed part; a larger multiple of a quarter where only full strength helps the worst group.

    Part of the robust factor hardly moves a model where few rows break a strong shortcut. If the evidence is
    halfway, and held-out rows show a large rise of the worst group at full strength, of which that part
    reaches less than half, the rest of the way is taken.
    """
    full = worst_rise(points, FULL)
    reached = [point.strength for point in points if point.strength <= CLASS_BALANCE + allowed]
    within = max((worst_rise(points, strength) for strength in reached), default=0.0)
    if within >= 0.5 * full:
        return allowed
    return _towards_one(allowed, ramp(allowed, *TRUSTED_PART) * ramp(full, *TRUSTED_RISE))


def _towards_one(part: float, way: float) -> float:
    """Return a part raised by a share of its way to 1, as a multiple of a quarter, but never lower."""
    return max(part, round(4.0 * (part + (1.0 - part) * way)) / 4.0) if way > 0 else part


def worst_rise(points: Sequence[TradeOffPoint], strength: float) -> float:
    """Return how much better the worst group is at a strength than at the baseline; 0 if not measured."""
    reached = point_at(points, strength)
    return 0.0 if reached is None else reached.worst - baseline(points).worst


def broken_rise(
    trials: Trials, strength: float, y: Integers, broken: npt.NDArray[np.bool_], errors: float
) -> float:
    """Return how much accuracy the rows that break the shortcut gain, mean over the classes, less so many
    standard errors.

    The rise is that over no weights or class balance, the smaller one. Classes with fewer than 20 such rows
    are left out; 0 where that leaves none.
    """
    classes = [c for c in np.unique(y) if np.count_nonzero(broken & (y == c)) >= MIN_CELL_ROWS]
    if not classes:
        return 0.0
    found = []
    for start in (UNWEIGHTED, CLASS_BALANCE):
        change = trials.at(strength).astype(float) - trials.at(start)
        parts = [change[broken & (y == c)] for c in classes]
        variance = sum(part.var() / len(part) for part in parts) / len(parts) ** 2
        found.append(np.mean([part.mean() for part in parts]) - errors * np.sqrt(variance))
    return float(min(found))


def beats_baseline(
    points: tuple[TradeOffPoint, ...],
    trials: Trials,
    strength: float,
    y: Integers,
    broken: npt.NDArray[np.bool_],
    n_learnt: int,
) -> bool:
    """Return whether robust weights of a measured strength are better than the baseline on held-out rows.

    Better is a higher accuracy of the worst group. With more than two classes the worst group is the least of
    many noisy figures: there it may fall by .02 if the rows that break the shortcut gain by more than chance.
    """
    reached, base = point_at(points, strength), baseline(points)
    if reached is None:
        return False
    if reached.worst > base.worst:
        return True
    if n_learnt <= 2 or reached.worst < base.worst - MAX_WORST_LOSS:
        return False
    return broken_rise(trials, reached.strength, y, broken, SURE_OF_MANY) > 0
