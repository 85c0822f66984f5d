"""Fit where the user names shortcuts: each is balanced against the label.

``named_sides`` counts the sides of a shortcut. This module chooses the cut, measures what the balance costs
on held-out rows, and takes less of it where the user has set a limit to that. Columns that the search
balances stay in full. Twins and slices that it follows count as one more name, as far as their evidence goes:
other columns than the named one may carry a shortcut as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from operators.arrays import Float64, Floats, Integers
from operators.cues.models.class_accuracy import balanced_loss, worst_recall
from operators.cues.models.cross_fitting import cross_fit, cross_fit_factor
from operators.cues.models.half_models import HalfModels, fit_halves
from operators.cues.models.linear import Scaler
from operators.cues.named.named_sides import best_cut, fit_sides, resolve_one_of
from operators.cues.row_weights import searched_factors, with_limits
from operators.cues.search.fit_right_labels import fit_right_labels
from operators.cues.search.slices import Slices, find_slices
from operators.cues.search.wrong_labels import have_wrong_labels
from operators.cues.settings import CueSettings, Named
from operators.cues.sides.joint_balance import balance_jointly, several_factor
from operators.cues.sides.sides import Sides
from operators.cues.state import CueState

NAMED_PARTS = (1.0, 2 / 3, 1 / 3, 1 / 6)
"""Parts of ``CueSettings.named_share`` that are tried for named shortcuts, the largest first."""
CLASS_COST_PART = 0.5
"""Part of ``max_named_cost`` that the worst class's accuracy may lose, per class. It is looser than the limit
on the mean, because the least of many figures moves more."""


def fit_named(
    Z: Floats,
    y: Integers,
    ids: Integers,
    s: CueSettings,
    C: int,
    search: CueState,
    column: Sides | None = None,
) -> CueState:
    """Return the state that balances the named shortcuts against the label.

    Where the user gives no cut, it is the one on which held-out class-balanced models lean most.

    Parameters
    ----------
    Z, y, ids
        Standardised rows (n, d), labels (n,), row ids (n,).
    s
        Settings, with the names.
    C
        Number of classes.
    search
        State of ``fit_searched`` on the same rows. Its ``blend`` is the part of the robust factor that would
        be published without a name.
    column
        Sides of the column that the search found to stand for the classes. With more than two classes a name
        of the column takes these, as one cut of a number would balance two sides alone.

    """
    models, before, slices = _models_and_slices(Z, y, ids, s, C, search)
    followed = search.class_columns if search.blend > 0 and not s.only_if_better else ()
    cut = [any(_cuts(one, sides, Z, search.scaler) for one in s.spurious) for sides in followed]
    followed = tuple(sides for sides, is_cut in zip(followed, cut, strict=True) if not is_cut)
    known = () if followed or column is None or search.n_learnt <= 2 else (column,)
    named = _named_sides(slices, Z, y, s, C, search.scaler, followed, known)
    capped = have_wrong_labels(named, Z, y, ids, s)
    robust = several_factor(named, capped, Z, y)
    right = fit_right_labels(named, Z, y, ids, s, C)
    if right is not None:
        robust = robust * right.factor(named, Z, y)
    # A slice is balanced as it is given, and leaves the rest of its column to the search.
    searched = s.searched_share * search.blend if named and (any(cut) or not followed) else 0.0
    beside = search if searched > 0 else _nothing_beside(search, slices)
    if searched > 0:
        robust = (1.0 - searched) * robust + searched * searched_factors(search, Z, y, ids)[0]
    blend, cost = _affordable(robust, Z, y, ids, models, before, s) if named else (0.0, 0.0)
    state = replace(
        beside,
        evidence=None,
        named=named,
        blend=blend,
        named_cost=cost,
        searched_part=searched,
        caps_named=capped,
        judged_labels=(*(() if right is None else (right,)), *beside.judged_labels),
    )
    return with_limits(state, Z, y, ids, s)


def _nothing_beside(search: CueState, slices: Slices) -> CueState:
    """Return the state of the search without what it found, where that has no part beside the names."""
    return replace(
        search,
        twins=None,
        mean_error=np.empty(0),
        slices=slices,
        class_column=None,
        further=(),
        judged_labels=(),
    )


def _models_and_slices(
    Z: Floats, y: Integers, ids: Integers, s: CueSettings, C: int, search: CueState
) -> tuple[HalfModels, Float64, Slices]:
    """Return class-balanced models, their held-out probabilities (splits, n, C), and the slices of the rows.

    The search has them already, unless legitimate columns were left out of it: they stay in models that
    measure the cost of a named shortcut.
    """
    if search.twins is not None and not s.legitimate:
        return search.twins.plain, search.twins.plain.held_out(Z, ids), search.slices
    models = fit_halves(Z, y, ids, C, s.seed, l2=s.l2)
    before = models.held_out(Z, ids)
    return models, before, find_slices(Z, y, before.mean(axis=0), s.legitimate)


def _affordable(
    robust: Floats, Z: Floats, y: Integers, ids: Integers, models: HalfModels, before: Floats, s: CueSettings
) -> tuple[float, float]:
    """Return the part of the balance of named shortcuts, and the balanced accuracy that it costs.

    It is the largest part whose cost on held-out rows is within the user's limit, over all classes and in the
    worst one, or 0 where none is. To balance a feature that decides the label takes away what is right in
    it, and no measurement distinguishes such a feature from a shortcut: the user does.
    """
    n_classes = len(np.unique(y))
    limit = CLASS_COST_PART * n_classes * s.max_named_cost if s.max_named_cost < 1 else np.inf
    plain = [cross_fit(Z, y, ids, models, k, np.ones(len(y)), s.l2) for k in range(len(before))]
    floor = [max(worst_recall(p, y), worst_recall(q, y)) for p, q in zip(before, plain, strict=True)]
    for part in NAMED_PARTS:
        blend = part * s.named_share
        tried = cross_fit_factor(Z, y, ids, models, 1.0 - blend + blend * robust, s)
        cost = float(np.mean([balanced_loss(p, q, y) for p, q in zip(before, tried, strict=True)]))
        lost = float(np.mean([worst - worst_recall(q, y) for worst, q in zip(floor, tried, strict=True)]))
        if cost <= s.max_named_cost and lost <= limit:
            return blend, cost
    return 0.0, cost


def _named_sides(
    slices: Slices,
    Z: Floats,
    y: Integers,
    s: CueSettings,
    C: int,
    scaler: Scaler,
    followed: Sequence[Sides],
    known: Sequence[Sides],
) -> tuple[Sides, ...]:
    """Return the sides of every named shortcut that has a usable cut, balanced together.

    A name of a column whose sides the search knows takes these. The columns that it follows stay, whether or
    not they are named.
    """
    found = [*followed, *(one for one in known if any(_names(given, one) for given in s.spurious))]
    for given in s.spurious:
        if any(_names(given, sides) for sides in (*followed, *known)):
            continue
        name = resolve_one_of(given, slices)
        cut = best_cut(slices, name.columns[0]) if len(name.columns) == 1 else 0.0
        if name.cut is not None:
            cut = _given_cut(name, Z, scaler)
        if cut is not None:
            found.append(fit_sides(name, Z, y, C, cut))
    return balance_jointly(found, Z, y, C)


def _names(name: Named, sides: Sides) -> bool:
    """Return whether a name is that of the column of some sides; a cut of the user's counts as given."""
    return name.cut is None and set(sides.columns) <= set(name.columns)


def _cuts(name: Named, sides: Sides, Z: Floats, scaler: Scaler) -> bool:
    """Return whether a name is a slice of the column of some sides that divides the rows."""
    return set(sides.columns) <= set(name.columns) and _given_cut(name, Z, scaler) is not None


def _given_cut(name: Named, Z: Floats, scaler: Scaler) -> float | None:
    """Return the user's cut on the standardised value; None without one, or where it divides no rows."""
    if name.cut is None:
        return None
    column = name.columns[0]
    cut = float((name.cut - scaler.mean[column]) / scaler.scale[column])
    return cut if Z[:, column].min() <= cut < Z[:, column].max() else None
