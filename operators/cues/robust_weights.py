"""Row weights that make a model robust against shortcuts, without group labels: ``fit`` and ``weights``.

``fit`` reads a bounded sample and returns a small state. ``weights`` then gives a weight to any row, one
batch at a time: rows of the sample are judged by models that were not trained on them, because halves
follow from a hash of the row id. Settings:

safe
    Robust weights as far as independent kinds of evidence agree (``evidence.gate``), else class balance.
bold
    Robust weights unless the evidence speaks against them. Gains on some real tables and loses on others.
spurious, legitimate
    What the user knows. A named shortcut is balanced against the label, mixed with class balance as far as it
    costs little balanced accuracy on held-out rows, and replaces the search. A legitimate feature is left out
    of slices and twins.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from operators.arrays import Floats, Integers
from operators.class_shares import class_factors, counted_classes
from operators.cues.decision import Decision, Sample, decide
from operators.cues.draws import draw_sample
from operators.cues.environments import Twins, environment_factor, fit_twins, held_out, mean_errors
from operators.cues.evidence import (
    Evidence,
    balanced_loss,
    class_correlation,
    cross_fit,
    measure,
    slice_part,
    worst_recall,
)
from operators.cues.limits import Limits, effective_share, fit_limits
from operators.cues.linear import Scaler, class_balance
from operators.cues.named import Named, Sides, best_cut, fit_sides
from operators.cues.slices import Slices, find_slices, slice_factor, strongest
from operators.cues.strength import Point, WeightPath

Setting = Literal["safe", "bold"]

MIN_ROWS = 100
"""Smaller tables get class balance: measurements on held-out rows would be noise."""
NAMED_PARTS = (1.0, 2 / 3, 1 / 3, 1 / 6)
"""Parts of ``Settings.named_share`` that are tried for named shortcuts, the largest first."""
CLASS_COST_PART = 0.5
"""Loss of the worst class's accuracy that a named shortcut may cost, per class, as a part of
``max_named_cost``: the least of many figures moves more."""
MAX_CLASSES = 100
"""Tables with more classes get class balance: no measurement has been tried there."""


@dataclass(frozen=True)
class Settings:
    """Settings of the robust weights; the defaults are the safe ones.

    Attributes
    ----------
    setting
        "safe" or "bold".
    spurious
        Shortcuts that the user names.
    legitimate
        Columns that are honest signal.
    cap
        Largest weight relative to class balance.
    min_effective
        Least effective sample size of each class, as a share of its rows.
    named_share
        Part of the weight that balances a named shortcut, at most; the rest is class balance.
    max_named_cost
        Largest loss of held-out balanced accuracy, and C / 2 of it that of the worst of C
        classes; the part is two thirds, a third or a sixth of ``named_share``, or 0, where they are exceeded.
        From 1 on nothing is too much.
    l2
        Ridge penalty of the probe.
    max_rows
        Rows of the sample; more are drawn down by a hash of their ids.
    seed
        Decides sample, halves and flips.

    """

    setting: Setting = "safe"
    spurious: Sequence[Named] = ()
    legitimate: frozenset[int] = frozenset()
    cap: float = 20.0
    min_effective: float = 0.2
    named_share: float = 0.75
    max_named_cost: float = 0.025
    l2: float = 1e-3
    max_rows: int = 50_000
    seed: int = 0


@dataclass(frozen=True)
class State:
    """Everything that ``weights`` needs, and what a report shows.

    Attributes
    ----------
    scaler
        Standardisation of the features.
    class_factor
        Class balance, shape (C,).
    twins, mean_error
        Models and class means of the environment factor; None where a shortcut is named.
    slices
        Slices with their scores.
    named
        Sides of the named shortcuts; None where shortcuts were searched for.
    blend
        Part of the robust factor (or of the named balance) against class balance, before ``limits``.
    slice_blend
        Further part of the slice factor alone: what ``bold`` adds.
    limits
        Cap and shrinkage per class.
    evidence
        Measurements; None where a shortcut is named.
    effective
        Effective sample share per class on the sample, shape (C,).
    legitimate
        Columns left out.
    seed
        Decides the halves.
    reason
        Why nothing was searched for and every row has class balance; empty where it was.
    class_strength
        How far classes are balanced, from 0 to 1 (``operators.class_shares``).
    slice_part
        Part of the slice factor in the robust factor; the environment factor has the rest.
    pointed
        Classes to which a shortcut may point: those with enough rows to be learnt from.
    named_cost
        Loss of held-out balanced accuracy by the balance of named shortcuts, or by the smallest part that was
        tried where ``blend`` is 0; 0 where none is named.
    points
        Trade-off over the strength of weighting on rows of the sample (``decision.decide``); empty where
        rows are too few.

    """

    scaler: Scaler
    class_factor: Floats
    twins: Twins | None
    mean_error: Floats
    slices: Slices
    named: tuple[Sides, ...] | None
    blend: float
    slice_blend: float
    limits: Limits
    evidence: Evidence | None
    effective: Floats
    legitimate: frozenset[int] = field(default_factory=frozenset)
    seed: int = 0
    reason: str = ""
    class_strength: float = 1.0
    slice_part: float = 0.0
    pointed: int = 2
    named_cost: float = 0.0
    points: tuple[Point, ...] = ()

    @property
    def published_strength(self) -> float | None:
        """Strength of these weights on the curve; None where they do not lie on it."""
        if self.slice_blend > 0 or (self.blend > 0 and self.class_strength < 1):
            return None
        return self.class_strength + self.blend


def fit(
    X: Floats,
    y: Integers,
    ids: Integers,
    settings: Settings | None = None,
    *,
    class_counts: Integers | None = None,
    n_classes: int | None = None,
) -> State:
    """Fit the weights on a sample.

    Parameters
    ----------
    X
        Features, float32, shape (n, d), finite.
    y
        Labels 0 .. C - 1, shape (n,).
    ids
        Unsigned 64-bit row ids, shape (n,); they decide halves and flips.
    settings
        Default ``Settings()``.
    class_counts
        Rows of each class in the whole table, shape (C,); default those of ``y``.
    n_classes
        C; default the largest label + 1.

    Returns
    -------
    State. The cost is 36 fits of the probe on the sample at most, and one pass per feature. Where nothing
    can be learnt (``State.reason``) it has class balance.

    Raises
    ------
    ValueError
        A feature is not finite.

    """
    s = settings or Settings()
    C = n_classes or int(y.max()) + 1
    counts = np.bincount(y, minlength=C) if class_counts is None else np.asarray(class_counts)
    drawn = draw_sample(y, ids, s.max_rows, s.seed)
    _check(X[drawn])
    whole = X[drawn], y[drawn], ids[drawn]
    rows = drawn[counted_classes(counts)[y[drawn]]]
    X, y, ids = X[rows], y[rows], ids[rows]
    scaler = (
        Scaler.from_rows(X)
        if X.size
        else Scaler(np.zeros(X.shape[1], np.float32), np.ones(X.shape[1], np.float32))
    )
    class_factor = class_factors(counts)
    if reason := _nothing_to_learn(X, y):
        return _class_balance_only(scaler, class_factor, s, reason)
    Z = scaler.apply(X)
    if s.spurious:
        found = _fit_named(Z, y, ids, s, C, scaler, class_factor)
        decision = _decide(found, *whole, s, counts)
        strength = decision.class_strength
        by_class = class_factors(counts, strength=strength)
        return replace(found, class_strength=strength, class_factor=by_class, points=decision.points)
    found = _fit_searched(Z, y, ids, s, C, scaler, class_factor)
    return _finished(found, _decide(found, *whole, s, counts), Z, y, ids, s, counts)


def weights(state: State, X: Floats, y: Integers, ids: Integers) -> npt.NDArray[np.float64]:
    """Return the weight of each row, shape (n,): finite, not negative, at most ``cap`` times class balance.

    Parameters
    ----------
    state
        From ``fit``.
    X, y, ids
        Any rows: features (n, d), labels (n,), row ids (n,). The result for a row does not depend on the
        others.

    """
    Z = state.scaler.apply(X)
    factor = state.limits.apply(_raw_factor(state, Z, y, ids), y)
    return np.asarray(state.class_factor[y] * factor, np.float64)


def full_factor(state: State, X: Floats, y: Integers, ids: Integers) -> npt.NDArray[np.float64]:
    """Return the robust factor of each row in full, whatever the evidence, ahead of the limits, shape (n,).

    It is relative to class balance; 1 where nothing was searched for. Parameters are those of ``weights``.
    """
    if state.named == () or (state.named is None and state.twins is None):
        return np.ones(len(y))
    return _raw_factor(replace(state, blend=1.0, slice_blend=0.0), state.scaler.apply(X), y, ids)


def breaks(state: State, X: Floats, y: Integers, ids: Integers) -> npt.NDArray[np.bool_]:
    """Return whether each row breaks the suspected or named shortcut, shape (n,); never if there is none.

    A row breaks a named shortcut if its sides are rarer in its class than others, and a suspected one if the
    error on it of the twins that have learnt the shortcut, and not this row, exceeds the geometric mean of 1
    and the mean error of its class. Parameters are those of ``weights``.
    """
    if state.blend <= 0:
        return np.zeros(len(y), np.bool_)
    Z = state.scaler.apply(X)
    if state.named is not None:
        return np.asarray(np.mean([sides.apply(Z, y) for sides in state.named], axis=0) > 1.0)
    if state.twins is None:
        raise ValueError("the state holds neither twins nor named shortcuts: fit it again")
    p = held_out(state.twins.after, _mask(Z, state.legitimate), ids, state.seed)
    error = 1.0 - p[:, np.arange(len(y)), y].mean(axis=0)
    return np.asarray(error > np.sqrt(state.mean_error.mean(axis=0))[y])


def _raw_factor(state: State, Z: Floats, y: Integers, ids: Integers) -> npt.NDArray[np.float64]:
    """Return the factor relative to class balance ahead of the limits, shape (n,)."""
    if state.blend <= 0 and state.slice_blend <= 0:
        return np.ones(len(y))
    if state.named is not None:
        robust = np.mean([sides.apply(Z, y) for sides in state.named], axis=0)
        return np.asarray(1.0 - state.blend + state.blend * robust)
    if state.twins is None:
        raise ValueError("the state holds neither twins nor named shortcuts: fit it again")
    Z = _mask(Z, state.legitimate)
    by_twins = environment_factor(
        held_out(state.twins.after, Z, ids, state.seed), y, state.mean_error, state.pointed
    )
    by_slices = slice_factor(state.slices, Z, y)
    robust = _combine(by_slices, by_twins, state.slice_part)
    return _mix(robust, by_slices, state.blend, state.slice_blend)


def _combine(by_slices: Floats, by_twins: Floats, slice_part: float) -> npt.NDArray[np.float64]:
    """Return the robust factor, shape (n,), of which ``slice_part`` comes from the slices."""
    return np.asarray(slice_part * by_slices + (1.0 - slice_part) * by_twins)


def _mix(robust: Floats, by_slices: Floats, blend: float, slice_blend: float) -> npt.NDArray[np.float64]:
    """Return 1 + blend * (robust - 1) + slice_blend * (slices - 1), shape (n,)."""
    return np.asarray(1.0 + blend * (robust - 1.0) + slice_blend * (by_slices - 1.0))


def _fit_searched(
    Z: Floats, y: Integers, ids: Integers, s: Settings, C: int, scaler: Scaler, class_factor: Floats
) -> State:
    """Search for shortcuts: twins, slices and evidence. ``blend`` is what the evidence allows."""
    Z = _mask(Z, s.legitimate)
    twins = fit_twins(Z, y, ids, C, s.seed, l2=s.l2)
    before, after = held_out(twins.before, Z, ids, s.seed), held_out(twins.after, Z, ids, s.seed)
    slices = find_slices(Z, y, before.mean(axis=0), s.legitimate)
    errors = mean_errors(after, y, C)
    pointed = len(np.unique(y))
    by_slices = slice_factor(slices, Z, y)
    by_halves = environment_factor(after, y, errors, 2)  # evidence must not depend on the number of classes
    agreement = class_correlation(np.log(by_slices), np.log(by_halves), y)
    halved = _trial(_combine(by_slices, by_halves, slice_part(agreement)), Z, y, ids, twins, s)
    part = slice_part(agreement, pointed)
    robust = _combine(by_slices, environment_factor(after, y, errors, pointed), part)
    tried = halved if pointed <= 2 else _trial(robust, Z, y, ids, twins, s)
    plain = [cross_fit(Z, y, ids, twins, k, np.ones(len(y)), s.l2) for k in range(len(before))]
    sides = slices.sides(strongest(slices), Z)
    evidence = measure(y, agreement, before, plain, after, halved, tried, sides)
    return State(
        scaler=scaler,
        class_factor=class_factor,
        twins=twins,
        mean_error=errors,
        slices=slices,
        named=None,
        blend=evidence.gate(),
        slice_blend=0.0,
        slice_part=part,
        pointed=pointed,
        limits=fit_limits(robust, y, C, cap=s.cap, min_effective=s.min_effective),
        evidence=evidence,
        effective=np.ones(C),
        legitimate=s.legitimate,
        seed=s.seed,
    )


def _decide(found: State, X: Floats, y: Integers, ids: Integers, s: Settings, counts: Integers) -> Decision:
    """Compare the weights of several strengths on all rows of the sample, those of rare classes included."""
    factor = full_factor(found, X, y, ids)
    path = WeightPath.fit(factor, y, counts, cap=s.cap, min_effective=s.min_effective)
    sample = Sample(found.scaler.apply(X), y, ids, factor, breaks(found, X, y, ids))
    return decide(sample, path, found.blend, named=found.named is not None, l2=s.l2, seed=s.seed)


def _finished(
    found: State, decision: Decision, Z: Floats, y: Integers, ids: Integers, s: Settings, counts: Integers
) -> State:
    """Return the state whose weights go as far as decided, with the limits that belong to them."""
    C, slice_blend = len(counts), 0.0
    if s.setting == "bold" and found.evidence is not None:
        slice_blend = (1.0 - decision.blend) * 0.5 * found.evidence.bold_gate()
    state = replace(
        found,
        blend=decision.blend,
        slice_blend=slice_blend,
        class_strength=decision.class_strength,
        class_factor=class_factors(counts, strength=decision.class_strength),
        points=decision.points,
    )
    factor = _raw_factor(state, Z, y, ids)
    limits = fit_limits(factor, y, C, cap=s.cap, min_effective=s.min_effective)
    return replace(state, limits=limits, effective=effective_share(limits.apply(factor, y), y, C))


def _trial(factor: Floats, Z: Floats, y: Integers, ids: Integers, twins: Twins, s: Settings) -> list[Floats]:
    """Return per split the held-out probabilities, shape (n, C), of models trained with a robust factor."""
    C = twins.before.shape[-1]
    limits = fit_limits(factor, y, C, cap=s.cap, min_effective=s.min_effective)
    w = class_balance(y, C) * limits.apply(factor, y)
    return [cross_fit(Z, y, ids, twins, split, w, s.l2) for split in range(len(twins.before))]


def _fit_named(
    Z: Floats, y: Integers, ids: Integers, s: Settings, C: int, scaler: Scaler, class_factor: Floats
) -> State:
    """Balance the named shortcuts; the cut is the one on which held-out class-balanced models lean most."""
    twins = fit_twins(Z, y, ids, C, s.seed, l2=s.l2, rounds=0)
    before = held_out(twins.before, Z, ids, s.seed)
    slices = find_slices(Z, y, before.mean(axis=0), s.legitimate)
    named = _named_sides(slices, Z, y, s, C, scaler)
    robust = np.mean([sides.apply(Z, y) for sides in named], axis=0) if named else np.ones(len(y))
    blend, cost = _affordable(robust, Z, y, ids, twins, before, s) if named else (0.0, 0.0)
    factor = 1.0 - blend + blend * robust
    limits = fit_limits(factor, y, C, cap=s.cap, min_effective=s.min_effective)
    share = effective_share(limits.apply(factor, y), y, C)
    return State(
        scaler,
        class_factor,
        None,
        np.empty(0),
        slices,
        named,
        blend,
        0.0,
        limits,
        None,
        share,
        s.legitimate,
        s.seed,
        named_cost=cost,
    )


def _affordable(
    robust: Floats, Z: Floats, y: Integers, ids: Integers, twins: Twins, before: Floats, s: Settings
) -> tuple[float, float]:
    """Return the part of the balance of named shortcuts, and the balanced accuracy that it costs.

    The largest part whose cost on held-out rows is bearable, over all classes and in the worst one, else 0:
    to balance a feature that decides the label takes away what is right in it.
    """
    n_classes = len(np.unique(y))
    limit = CLASS_COST_PART * n_classes * s.max_named_cost if s.max_named_cost < 1 else np.inf
    plain = [cross_fit(Z, y, ids, twins, k, np.ones(len(y)), s.l2) for k in range(len(before))]
    floor = [max(worst_recall(p, y), worst_recall(q, y)) for p, q in zip(before, plain, strict=True)]
    for part in NAMED_PARTS:
        blend = part * s.named_share
        tried = _trial(1.0 - blend + blend * robust, Z, y, ids, twins, s)
        cost = float(np.mean([balanced_loss(p, q, y) for p, q in zip(before, tried, strict=True)]))
        lost = float(np.mean([worst - worst_recall(q, y) for worst, q in zip(floor, tried, strict=True)]))
        if cost <= s.max_named_cost and lost <= limit:
            return blend, cost
    return 0.0, cost


def _named_sides(
    slices: Slices, Z: Floats, y: Integers, s: Settings, C: int, scaler: Scaler
) -> tuple[Sides, ...]:
    """Return the sides of every named shortcut that has a usable cut."""
    found = []
    for name in s.spurious:
        cut = best_cut(slices, name.columns[0]) if len(name.columns) == 1 else 0.0
        if name.cut is not None:
            cut = float((name.cut - scaler.mean[name.columns[0]]) / scaler.scale[name.columns[0]])
        if cut is not None:
            found.append(fit_sides(name, Z, y, C, cut))
    return tuple(found)


def _mask(Z: Floats, legitimate: frozenset[int]) -> Floats:
    """Return ``Z`` with the legitimate columns at 0, their mean."""
    if not legitimate:
        return Z
    Z = Z.copy()
    Z[:, sorted(legitimate)] = 0.0
    return Z


def _check(X: Floats) -> None:
    bad = np.argwhere(~np.isfinite(X))
    if len(bad):
        row, column = bad[0]
        raise ValueError(
            f"feature {column} of sample row {row} is {X[row, column]}: fill missing values first"
        )


def _nothing_to_learn(X: Floats, y: Integers) -> str:
    """Return why models cannot be compared on these rows; empty if they can."""
    n_classes = len(np.unique(y))
    if n_classes < 2:
        return "only one class has rows"
    if n_classes > MAX_CLASSES:
        return f"{n_classes} classes are more than {MAX_CLASSES}"
    if len(y) < MIN_ROWS:
        return f"{len(y)} rows are fewer than {MIN_ROWS}"
    return "" if X.shape[1] and np.ptp(X, axis=0).any() else "every feature is constant"


def _class_balance_only(scaler: Scaler, class_factor: Floats, s: Settings, reason: str) -> State:
    """Return the state under which every row has the weight of its class."""
    C = len(class_factor)
    none = np.empty(0)
    slices = Slices(
        np.empty(0, np.int64), none.astype(np.float32), np.empty((0, C)), none, none, np.empty(0, bool)
    )
    limits = Limits(np.ones(C), np.zeros(C), s.cap)
    return State(
        scaler,
        class_factor,
        None,
        none,
        slices,
        None,
        0.0,
        0.0,
        limits,
        None,
        np.ones(C),
        s.legitimate,
        s.seed,
        reason,
    )


def summary(state: State) -> dict[str, Any]:
    """Return what a report shows of the weights, as plain numbers and lists."""
    evidence = state.evidence
    return {
        "blend": state.blend,
        "class_strength": state.class_strength,
        "named_cost": state.named_cost,
        "slice_blend": state.slice_blend,
        "evidence": None if evidence is None else evidence.__dict__,
        "weakest": None if evidence is None else _weakest(state, evidence),
        "reason": state.reason,
        "effective_share": state.effective.tolist(),
        "trust": state.limits.trust.tolist(),
    }


def _weakest(state: State, evidence: Evidence) -> str:
    """Return what holds the robust weights back most."""
    held_back = evidence.gate() > 0 and state.blend <= 0
    return "gain over the baseline" if held_back else evidence.weakest()
