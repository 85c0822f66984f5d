"""Fit row weights that make a model robust against shortcuts, without group labels.

``fit`` reads a bounded sample and returns a small state. ``row_weights.weights`` then gives a weight to any
row, one batch at a time. Rows of the sample are judged by models that were not trained on them, because
halves follow from a hash of the row id. Settings:

safe
    Robust weights as far as independent kinds of evidence agree (``evidence.gate``), or where all
    measurements together let a gain of the worst group be expected (``full_weights``), else class balance.
bold
    Robust weights unless the evidence speaks against them, and where a smaller gain is to be expected. Gains
    on some real tables and loses on others.
spurious, legitimate
    Answers of the user. A named shortcut is balanced against the label, whatever the evidence, beside what
    the search finds, and mixed with some class balance; the cost of that on held-out rows is measured and
    reported. A legitimate feature is left out of slices and twins.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from operators.arrays import Floats, Integers
from operators.class_shares import class_factors
from operators.cues.all_classes import LearntClasses
from operators.cues.balance_of_classes import choose_class_strength
from operators.cues.decision import RAISED_GATE, Decision, shortcut_groups, worst_rise
from operators.cues.draws import draw_sample, learnt_classes
from operators.cues.fit_named import fit_named
from operators.cues.fit_searched import SURE_CARRIER, Search, fit_searched
from operators.cues.full_weights import follow_in_full
from operators.cues.limits import effective_share, fit_limits
from operators.cues.linear import Scaler
from operators.cues.row_weights import breaks, broken_column, raw_factor
from operators.cues.sample_decision import Sample, decide_on
from operators.cues.state import CueSettings, CueState, class_balance_only
from operators.cues.strength import CLASS_BALANCE, Fits, point_at
from operators.metrics.group_scores import MIN_ROWS as MIN_GROUP_ROWS

MIN_ROWS = 100
"""Smaller tables get class balance: measurements on held-out rows would be noise."""
SURE_RISE = 0.15
"""Least rise of the worst group by a column of two classes where twins and slices gain nothing."""
CLEAR_RISE = 0.05
"""Least rise of the worst group by which a column that tells one class is balanced in place of what opens the
gate."""
MAX_CLASSES = 100
"""Tables with more classes get class balance: no measurement has been tried there."""


def fit(
    X: Floats,
    y: Integers,
    ids: Integers,
    settings: CueSettings | None = None,
    *,
    class_counts: Integers | None = None,
    n_classes: int | None = None,
) -> CueState:
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
        Default ``CueSettings()``.
    class_counts
        Rows of each class in the whole table, shape (C,); default those of ``y``.
    n_classes
        C; default the largest label + 1.

    Returns
    -------
    CueState. The cost is 60 fits of the probe on the sample at most, four more for each column that is judged
    by the others, 14 more for each further one that is looked for and two more where three and more are,
    ten more where two ways are compared, 18 more for more than two classes where one class is looked at, 16
    where full weights are tried, and one pass per feature. Where
    nothing can be learnt (``CueState.reason``) it has class balance.

    Raises
    ------
    ValueError
        A feature is not finite.

    """
    s = settings or CueSettings()
    C = n_classes or int(y.max()) + 1
    counts = np.bincount(y, minlength=C) if class_counts is None else np.asarray(class_counts)
    drawn = draw_sample(y, ids, s.max_rows, s.seed)
    _check_finite(X[drawn])
    sample = Sample(X[drawn], y[drawn], ids[drawn], counts)
    rows = drawn[learnt_classes(counts)[y[drawn]]]
    X, y, ids = X[rows], y[rows], ids[rows]
    scaler = _scaler_of(X)
    class_factor = class_factors(counts)
    if reason := _nothing_to_learn(X, y):
        return class_balance_only(scaler, class_factor, s, reason)
    Z = scaler.apply(X)
    learnt, fits = LearntClasses(np.unique(y), C), Fits()
    found = _search(learnt, Z, y, ids, s, scaler, class_factor)
    search, without = _choose_state(found, sample, s, fits)
    search, without = follow_in_full(search, found.column, without, sample, s, fits)
    if not s.spurious:
        return _apply_decision(search, without, Z, y, ids, s, counts)
    search = replace(search, blend=without.blend)
    if not s.must_gain:  # as far as the evidence allows without the name
        s = replace(s, named_share=max(s.named_share, search.blend))
    named = fit_named(Z, y, ids, s, C, search, found.column)
    if not named.named:  # no name divides the rows
        return _apply_decision(search, without, Z, y, ids, s, counts)
    decision = decide_on(named, sample, s, fits=fits)
    if s.must_gain and not decision.blend:
        return _apply_decision(search, without, Z, y, ids, s, counts)
    return _with_class_strength(named, decision, without, sample)


def _search(
    learnt: LearntClasses,
    Z: Floats,
    y: Integers,
    ids: Integers,
    s: CueSettings,
    scaler: Scaler,
    class_factor: Floats,
) -> Search:
    """Return the findings among the classes that are learnt, as those of all classes."""
    labels = learnt.labels
    found = fit_searched(Z, learnt.number(y), ids, s, len(labels), scaler, class_factor[labels])
    return learnt.as_all_classes(found, class_factor)


def _choose_state(found: Search, sample: Sample, s: CueSettings, fits: Fits) -> tuple[CueState, Decision]:
    """Return the state that is followed, and the decision on it.

    Several columns are balanced together or not at all: one of them alone leaves the others, of which models
    then make more. A column that tells one of several classes takes the place of what opens the gate where
    held-out rows favour it, unless the same column stands for every class there.
    """
    if found.together:
        return found.together, decide_on(found.together, sample, s, fits=fits)
    search, decision = _choose_factor(found.state, sample, s, fits)
    if found.rival is None or _balances_all_classes(search, found.rival):
        return search, decision
    other = decide_on(found.rival, sample, s, fits=fits)
    if other.blend > 0 and _is_better(other, decision, found.rival, search, sample):
        return found.rival, other
    return search, decision


def _balances_all_classes(search: CueState, rival: CueState) -> bool:
    """Return whether the search balances the rival's column by values that stand for every class."""
    column, own = search.carrier, rival.carrier
    if column is None or own is None or not set(column.columns) & set(own.columns):
        return False
    C = len(column.factor)
    return len(set(column.level_side.tolist()) - {C}) == search.pointed


def _is_better(
    other: Decision, decision: Decision, rival: CueState, search: CueState, sample: Sample
) -> bool:
    """Return whether the rival's decision is better on its own shortcut, and not worse on the other one.

    Where the other one lies in a column too, rows are compared by which of both they break: the classes that
    the rival does not tell apart have rows of their own that break that column.
    """
    X, y, ids, _ = sample
    own, others = broken_column(rival, X, y, ids), broken_column(search, X, y, ids)
    if search.carriers:
        others = own + 2 * others
    changes = [
        worst_of_decision(other, broken, sample) - worst_of_decision(decision, broken, sample)
        for broken in (own, others)
    ]
    return changes[0] >= CLEAR_RISE and changes[1] >= 0.0


def worst_of_decision(decision: Decision, broken: Integers, sample: Sample) -> float:
    """Return the accuracy of the worst group under a decision, on held-out rows.

    It is 0 where rows are too few to measure. ``broken`` is 0 for a row that follows the shortcuts and else
    the number of a kind, shape (n,).
    """
    strength = CLASS_BALANCE + decision.blend if decision.blend > 0 else decision.class_strength
    if decision.trials is None:
        return 0.0
    groups = shortcut_groups(sample.y, broken, len(sample.counts), max(int(broken.max()), 1))
    reached = point_at(decision.trials.points(groups), strength)
    return 0.0 if reached is None else reached.worst


def _choose_factor(search: CueState, sample: Sample, s: CueSettings, fits: Fits) -> tuple[CueState, Decision]:
    """Return the state whose robust factor is followed, and the decision on it.

    Of two classes a column that carries a shortcut is balanced only where the weights of twins and slices are
    better than the baseline as well, or held-out rows clearly favour it (``_clearly_better``): an honest
    column can look so. One that opens a gate by itself comes first, and twins and slices are tried if it is
    no better than the baseline.
    """
    if search.carrier is None or search.evidence is None or search.pointed > 2:
        return search, decide_on(search, sample, s, fits=fits)
    without = replace(search, carrier=None, blend=search.evidence.searched_gate())
    if search.evidence.own_carrier_gate() > 0:
        balanced = decide_on(search, sample, s, fits=fits)
        if balanced.blend > 0 or without.blend <= 0:
            return search, balanced
        return without, decide_on(without, sample, s, fits=fits)
    plain, balanced = (decide_on(state, sample, s, fits=fits) for state in (without, search))
    gained = plain.blend > 0 and without.blend > RAISED_GATE[0]
    if balanced.blend > 0 and (gained or _clearly_better(balanced, search, sample)):
        return search, balanced
    return without, plain


def _clearly_better(balanced: Decision, search: CueState, sample: Sample) -> bool:
    """Return whether a column of two classes is balanced although twins and slices gain nothing by it.

    Held-out rows have to show a large rise of the worst group, and both classes enough rows that
    contradict the column: with few, rows of both classes are one group, which an honest column can raise.
    """
    if balanced.blend <= 0 or search.evidence is None or search.evidence.carrier_of_two_gate() < SURE_CARRIER:
        return False
    X, y, ids, counts = sample
    contradicting = np.bincount(y[breaks(search, X, y, ids)], minlength=len(counts))
    return bool(contradicting[learnt_classes(counts)].min() >= MIN_GROUP_ROWS) and (
        worst_rise(balanced.points, CLASS_BALANCE + balanced.blend) >= SURE_RISE
    )


def _with_class_strength(found: CueState, decision: Decision, without: Decision, sample: Sample) -> CueState:
    """Return the state of named shortcuts whose classes are balanced as far as without a name.

    Where the column that decided this is balanced itself, models lean on it no more, and only the worst class
    counts.
    """
    strength, column = without.class_strength, without.leaning_column
    balanced = {feature for one in found.named or () for feature in one.columns}
    if column is not None and without.trials is not None and balanced.intersection(column.columns):
        strength = choose_class_strength(without.trials, sample.y).strength
    by_class = class_factors(sample.counts, strength=strength)
    return replace(found, class_strength=strength, class_factor=by_class, points=decision.points)


def _scaler_of(X: Floats) -> Scaler:
    """Return the standardisation of the rows; it changes nothing where there are no rows or no features."""
    if X.size:
        return Scaler.from_rows(X)
    return Scaler(np.zeros(X.shape[1], np.float32), np.ones(X.shape[1], np.float32))


def _apply_decision(
    found: CueState,
    decision: Decision,
    Z: Floats,
    y: Integers,
    ids: Integers,
    s: CueSettings,
    counts: Integers,
) -> CueState:
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
        leaning_column=decision.leaning_column,
    )
    factor = raw_factor(state, Z, y, ids)
    limits = fit_limits(factor, y, C, cap=s.cap, min_effective=s.min_effective)
    return replace(state, limits=limits, effective=effective_share(limits.apply(factor, y), y, C))


def _check_finite(X: Floats) -> None:
    """Raise ValueError for the first value that is not finite, with its row and column."""
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
