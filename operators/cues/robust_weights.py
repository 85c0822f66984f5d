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
from typing import NamedTuple

import numpy as np

from operators.arrays import Floats, Integers
from operators.class_shares import class_factors
from operators.cues.decision.balance_of_classes import choose_class_strength
from operators.cues.decision.choice import choose_state, worst_of_decision
from operators.cues.decision.decision import Decision
from operators.cues.decision.full_weights import follow_in_full
from operators.cues.decision.rare_class import follow_rare_class
from operators.cues.decision.right_label_gain import follow_right_labels
from operators.cues.decision.sample_decision import (
    Sample,
    decide_on,
    with_least_share,
    with_limits_of_classes,
)
from operators.cues.fit_searched import fit_searched
from operators.cues.learnt_classes import MAX_CLASSES, LearntClasses, learnt_classes
from operators.cues.models.draws import draw_sample
from operators.cues.models.linear import Scaler
from operators.cues.named.fit_named import fit_named
from operators.cues.other_classes import (
    balance_in_other_classes,
    name_in_other_classes,
    right_labels_of,
)
from operators.cues.row_weights import breaks, broken_column
from operators.cues.settings import CueSettings
from operators.cues.sides.sides import Sides
from operators.cues.state import CueState, Search, class_balance_only

MIN_ROWS = 100
"""Smaller tables get class balance: measurements on held-out rows would be noise."""
MEASURED_SHARE = 0.2
"""Least effective share of a class (``CueSettings.min_effective``) at which the search measures and decides:
its rules were made at that."""
SAME_SHORTCUT = 0.5
"""Share of the rows that break the named shortcuts, of which twins and slices say so too, from which both
show one shortcut: .6 and more where they do, .15 and less where the names are honest columns."""


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
        C; default the largest label + 1, or the classes in ``class_counts`` if these are more.

    Returns
    -------
    CueState. The cost is 60 fits of the probe on the sample at most, four more for each column that is judged
    by the others, 14 more for each further one that is looked for and two more where three and more are,
    ten more where two ways are compared, ten where wrong labels may hide a gain, 18 more for more than two
    classes where sets of them are looked at, 16 where full weights are tried, four (and two for each class)
    for each set of columns that may be balanced where labels are wrong, and one pass per feature. Where
    nothing can be learnt (``CueState.reason``) it has class balance.

    Raises
    ------
    ValueError
        A feature is not finite.

    """
    s = settings or CueSettings()
    C = n_classes or max(int(y.max(initial=-1)) + 1, 0 if class_counts is None else len(class_counts))
    counts = np.bincount(y, minlength=C) if class_counts is None else np.asarray(class_counts)
    drawn = draw_sample(y, ids, s.max_rows, s.seed)
    _check_finite(X[drawn], ids[drawn])
    sample = Sample(X[drawn], y[drawn], ids[drawn], counts)
    rows = drawn[learnt_classes(counts)[y[drawn]]]
    X, y, ids = X[rows], y[rows], ids[rows]
    scaler = _scaler_of(X)
    class_factor = class_factors(counts)
    if reason := _nothing_to_learn(X, y):
        return class_balance_only(scaler, class_factor, s, reason)
    learnt = _LearntRows(scaler.apply(X), y, ids, LearntClasses(np.unique(y), C))
    strict = replace(s, min_effective=max(s.min_effective, MEASURED_SHARE))
    found = _search(learnt, strict, scaler, class_factor, sample)
    search, decision = _follow(found, sample, strict)
    if s.spurious:
        searched = found._replace(state=search)
        return _with_names(searched, decision, learnt, sample, s, strict)
    milder = with_least_share(search, decision, sample, s) if s != strict else None
    if milder is not None:
        return _apply_decision(search, milder, sample, s)
    return _apply_decision(search, decision, sample, strict)


class _LearntRows(NamedTuple):
    """Rows of the classes that are learnt: standardised (n, d), labels (n,), row ids (n,); the classes."""

    Z: Floats
    y: Integers
    ids: Integers
    classes: LearntClasses


def _search(
    rows: _LearntRows, strict: CueSettings, scaler: Scaler, class_factor: Floats, sample: Sample
) -> Search:
    """Return the findings among the classes that are learnt, as those of all classes."""
    learnt, labels = rows.classes, rows.classes.labels
    y = learnt.number(rows.y)
    found = fit_searched(rows.Z, y, rows.ids, strict, len(labels), scaler, class_factor[labels])
    found = balance_in_other_classes(learnt.as_all_classes(found, class_factor), sample)
    others = [one for one in (found.together, found.class_set) if one]
    balanced = [one.class_columns for one in (found.state, *others)]
    balanced += [(found.column,)] if found.column else []
    distinct = {tuple(side.columns for side in columns): columns for columns in balanced}.values()
    judged = [right_labels_of(columns, scaler, sample, strict) for columns in distinct]
    known = tuple(one for one in judged if one is not None)
    return Search(
        replace(found.state, judged_labels=known),
        found.column,
        found.together and replace(found.together, judged_labels=known),
        found.class_set and replace(found.class_set, judged_labels=known),
    )


def _follow(found: Search, sample: Sample, strict: CueSettings) -> tuple[CueState, Decision]:
    """Return which of the findings is followed without a name, and how far.

    That is the first of these: what opens the gate; a way of which trees over all measurements expect a gain;
    a column whose gain wrong labels may hide; a column that few rows of a rare class break.
    """
    search, decision = choose_state(found, sample, strict)
    for follow in (follow_in_full, follow_right_labels, follow_rare_class):
        search, decision = follow(search, found.column, decision, sample, strict)
    return search, decision


def _with_names(
    found: Search,
    without: Decision,
    rows: _LearntRows,
    sample: Sample,
    s: CueSettings,
    strict: CueSettings,
) -> CueState:
    """Return the state that balances the names of the settings, beside what is followed without them.

    That is the state without them where no name divides the rows, or where names that the user has not given
    are not better for the worst group. What twins and slices find has no part beside the names where it is
    the named shortcut, and the worst group is no worse without it.

    Parameters
    ----------
    found, without
        The findings, of which ``state`` is the one that is followed, and the decision on it.
    rows, sample
        Rows of the learnt classes, and of all.
    s
        Settings of the user.
    strict
        Those of the search, which hold for names that the user has not given as well.

    """
    search = replace(found.state, blend=without.blend)
    # A given name is followed at least as far as the evidence allows without it.
    own = strict if s.only_if_better else replace(s, named_share=max(s.named_share, without.blend))
    named = _fit_names(rows, sample, own, search, found.column)
    if not named.named:
        return _apply_decision(search, without, sample, strict)
    decision = decide_on(named, sample, own)
    if named.searched_part > 0 and _shows_the_named(search, named, sample):
        alone = _fit_names(rows, sample, replace(own, searched_share=0.0), search, found.column)
        of_alone = decide_on(alone, sample, own)
        if _worst(of_alone, alone, sample) >= _worst(decision, alone, sample):
            named, decision = alone, of_alone
    if s.only_if_better and not decision.blend:
        return _apply_decision(search, without, sample, strict)
    return _with_class_strength(named, decision, without, sample)


def _fit_names(
    rows: _LearntRows, sample: Sample, s: CueSettings, search: CueState, column: Sides | None
) -> CueState:
    """Return the state that balances the names of the settings, in the other classes as well."""
    Z, y, ids, learnt = rows
    return name_in_other_classes(fit_named(Z, y, ids, s, learnt.n_classes, search, column), sample, s)


def _shows_the_named(search: CueState, named: CueState, sample: Sample) -> bool:
    """Return whether rows that break the named shortcuts break what twins and slices show, too."""
    X, y, ids = sample.X, sample.y, sample.ids
    if search.class_columns:
        return False
    broken = broken_column(named, X, y, ids) > 0
    return bool(broken.any()) and float(breaks(search, X, y, ids)[broken].mean()) >= SAME_SHORTCUT


def _worst(decision: Decision, named: CueState, sample: Sample) -> float:
    """Return the accuracy of the worst group on held-out rows, by which rows break the named shortcuts."""
    X, y, ids = sample.X, sample.y, sample.ids
    return worst_of_decision(decision, broken_column(named, X, y, ids), sample)


def _with_class_strength(found: CueState, decision: Decision, without: Decision, sample: Sample) -> CueState:
    """Return the state of named shortcuts, by the part that is decided, with the class balance of no name.

    Where the column that decided this is balanced itself, models lean on it no more, and only the worst class
    counts.
    """
    strength, column = without.class_strength, without.leaning_column
    balanced = {feature for one in found.named or () for feature in one.columns}
    if column is not None and without.trials is not None and balanced.intersection(column.columns):
        strength = choose_class_strength(without.trials, sample.y).strength
    by_class = class_factors(sample.counts, strength=strength)
    return replace(
        found,
        blend=decision.blend,
        class_strength=strength,
        class_factor=by_class,
        points=decision.points,
    )


def _scaler_of(X: Floats) -> Scaler:
    """Return the standardisation of the rows; it changes nothing where there are no rows or no features."""
    if X.size:
        return Scaler.from_rows(X)
    return Scaler(np.zeros(X.shape[1], np.float32), np.ones(X.shape[1], np.float32))


def _apply_decision(found: CueState, decision: Decision, sample: Sample, s: CueSettings) -> CueState:
    """Return the state whose weights go as far as decided, with the limits that belong to them."""
    slice_blend = 0.0
    if s.setting == "bold" and found.evidence is not None:
        slice_blend = (1.0 - decision.blend) * 0.5 * found.evidence.bold_gate()
    state = replace(
        found,
        blend=decision.blend,
        slice_blend=slice_blend,
        class_strength=decision.class_strength,
        class_factor=class_factors(sample.counts, strength=decision.class_strength),
        points=decision.points,
        leaning_column=decision.leaning_column,
        judged_labels=(found.right_labels,) if found.right_labels and decision.blend > 0 else (),
    )
    return with_limits_of_classes(state, sample, s)


def _check_finite(X: Floats, ids: Integers) -> None:
    """Raise ValueError for the first value that is not finite, with its row id and column."""
    bad = np.argwhere(~np.isfinite(X))
    if len(bad):
        row, column = bad[0]
        raise ValueError(
            f"feature {column} of the row with id {ids[row]} is {X[row, column]}: fill missing values first"
        )


def _nothing_to_learn(X: Floats, y: Integers) -> str:
    """Return why models cannot be compared on these rows; empty if they can."""
    n_classes = len(np.unique(y))
    if not n_classes:
        return "there are no rows"
    if n_classes < 2:
        return "only one class has rows"
    if n_classes > MAX_CLASSES:
        return f"{n_classes} classes are more than {MAX_CLASSES}"
    if len(y) < MIN_ROWS:
        return f"{len(y)} rows are fewer than {MIN_ROWS}"
    return "" if X.shape[1] and np.ptp(X, axis=0).any() else "every feature is constant"
