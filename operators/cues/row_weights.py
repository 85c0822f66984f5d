"""Weights of rows under a fitted state, their factors before the limits, and which rows break the shortcut.

Every function takes one batch of rows at a time, and the result for a row does not depend on the others.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from operators.arrays import Float64, Floats, Integers
from operators.cues.limits import effective_share, fit_limits
from operators.cues.models.half_models import held_out
from operators.cues.models.twins import environment_factor
from operators.cues.search.slices import slice_factor
from operators.cues.settings import CueSettings
from operators.cues.sides.joint_balance import breaks_several, first_broken, several_factor
from operators.cues.sides.sides import Sides
from operators.cues.state import CueState


def weights(state: CueState, X: Floats, y: Integers, ids: Integers) -> Float64:
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
    factor = state.limits.apply(raw_factor(state, Z, y, ids), y)
    return np.asarray(state.class_factor[y] * factor, np.float64)


def full_factor(state: CueState, X: Floats, y: Integers, ids: Integers) -> Float64:
    """Return the robust factor of each row in full, whatever the evidence, ahead of the limits, shape (n,).

    It is relative to class balance; 1 where nothing was searched for. Parameters are those of ``weights``.
    """
    if state.named == () or (state.named is None and state.twins is None):
        return np.ones(len(y))
    return raw_factor(replace(state, blend=1.0, slice_blend=0.0), state.scaler.apply(X), y, ids)


def breaks(state: CueState, X: Floats, y: Integers, ids: Integers) -> npt.NDArray[np.bool_]:
    """Return whether each row breaks the suspected or named shortcut, shape (n,); never if there is none.

    A row breaks a named shortcut, or a column whose values stand for the classes, if its side is rarer in its
    class than others; of several, if it breaks one. It breaks another suspected one if the error on it of
    the twins that have learnt the shortcut, and not this row, exceeds the geometric mean of 1 and the mean
    error of its class. Parameters are those of ``weights``.
    """
    if state.blend <= 0:
        return np.zeros(len(y), np.bool_)
    Z = state.scaler.apply(X)
    if state.named is not None or state.class_columns:
        return np.asarray(first_broken(state.balanced, Z, y) > 0)
    if state.twins is None:
        raise ValueError("the state holds neither twins nor named shortcuts: fit it again")
    p = held_out(state.twins.after, mask_columns(Z, state.legitimate), ids, state.seed)
    error = 1.0 - p[:, np.arange(len(y)), y].mean(axis=0)
    return np.asarray(error > np.sqrt(state.mean_error.mean(axis=0))[y])


def broken_column(state: CueState, X: Floats, y: Integers, ids: Integers) -> Integers:
    """Return the number of the first of ``state.compared`` that each row breaks, from 1, else 0, shape (n,).

    Rows that break several have the number ``state.broken_parts`` if they are compared apart. Where no column
    is told apart, 1 says that the row breaks the shortcut. Parameters are those of ``weights``.
    """
    if not state.compared or state.blend <= 0:
        return np.asarray(breaks(state, X, y, ids), np.intp)
    Z = state.scaler.apply(X)
    which = first_broken(state.compared, Z, y)
    if state.several_apart:
        which[breaks_several(state.compared, Z, y)] = state.broken_parts
    return which


def raw_factor(state: CueState, Z: Floats, y: Integers, ids: Integers) -> Float64:
    """Return the factor relative to class balance ahead of the limits, shape (n,)."""
    if state.blend <= 0 and state.slice_blend <= 0:
        return np.ones(len(y))
    if state.named is not None:
        robust = _columns_factor(state, state.named, state.caps_named, Z, y)
        if state.searched_part > 0:
            found, _ = searched_factors(state, Z, y, ids)
            robust = (1.0 - state.searched_part) * robust + state.searched_part * found
        return np.asarray(1.0 + state.blend * (robust - 1.0))
    robust, by_slices = searched_factors(state, Z, y, ids)
    return _mix(robust, by_slices, state.blend, state.slice_blend)


def _columns_factor(
    state: CueState, columns: tuple[Sides, ...], capped: bool, Z: Floats, y: Integers
) -> Float64:
    """Return the factor of columns, in which rows have parts by whether their label is right, shape (n,)."""
    factor, labels = several_factor(columns, capped, Z, y), state.labels_of(columns)
    return factor if labels is None else factor * labels.factor(columns, Z, y)


def right_label(state: CueState, X: Floats, y: Integers) -> Float64 | None:
    """Return the probability that the label of each row is right, shape (n,); None where nothing is known.

    It is 1 for all rows but those that break the balanced columns. Parameters are those of ``weights``.
    """
    if state.right_labels is None or state.blend <= 0:
        return None
    return state.right_labels.probability(state.balanced, state.scaler.apply(X), y)


def with_limits(state: CueState, Z: Floats, y: Integers, ids: Integers, s: CueSettings) -> CueState:
    """Return the state with the limits and effective shares of its weights on the rows of the sample.

    Parameters
    ----------
    state
        State whose factors are decided.
    Z, y, ids
        Standardised rows (n, d), labels (n,), row ids (n,).
    s
        Cap and least effective share.

    """
    C = len(state.class_factor)
    factor = raw_factor(state, Z, y, ids)
    limits = fit_limits(factor, y, C, cap=s.cap, min_effective=s.min_effective)
    effective = effective_share(limits.apply(factor, y), y, C)
    return replace(state, limits=limits, effective=effective, least_share=s.min_effective)


def searched_factors(state: CueState, Z: Floats, y: Integers, ids: Integers) -> tuple[Float64, Float64]:
    """Return the robust factor of the shortcuts that were found, and that of the slices, shape (n,)."""
    if state.twins is None:
        raise ValueError("the state holds neither twins nor named shortcuts: fit it again")
    masked = mask_columns(Z, state.legitimate)
    by_slices = slice_factor(state.slices, masked, y)
    if state.class_columns:
        return _columns_factor(state, state.class_columns, state.caps_several, Z, y), by_slices
    p = held_out(state.twins.after, masked, ids, state.seed)
    by_twins = environment_factor(p, y, state.mean_error, state.n_learnt)
    return combine(by_slices, by_twins, state.slice_part), by_slices


def combine(by_slices: Floats, by_twins: Floats, slice_part: float) -> Float64:
    """Return the robust factor, shape (n,), of which ``slice_part`` comes from the slices."""
    return np.asarray(slice_part * by_slices + (1.0 - slice_part) * by_twins)


def _mix(robust: Floats, by_slices: Floats, blend: float, slice_blend: float) -> Float64:
    """Return 1 + blend * (robust - 1) + slice_blend * (slices - 1), shape (n,)."""
    return np.asarray(1.0 + blend * (robust - 1.0) + slice_blend * (by_slices - 1.0))


def mask_columns(Z: Floats, legitimate: frozenset[int]) -> Floats:
    """Return ``Z`` with the legitimate columns at 0, their mean."""
    if not legitimate:
        return Z
    Z = Z.copy()
    Z[:, sorted(legitimate)] = 0.0
    return Z
