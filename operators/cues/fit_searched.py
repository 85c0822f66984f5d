"""The search for shortcuts: twins, slices and columns, and the evidence for each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from operators.arrays import Floats, Integers
from operators.cues.limits import Limits
from operators.cues.models.cross_fitting import cross_fit, cross_fit_factor
from operators.cues.models.half_models import HalfModels, fit_halves, held_out
from operators.cues.models.linear import Scaler
from operators.cues.models.twins import environment_factor, fit_twins, mean_errors
from operators.cues.row_weights import combine, mask_columns
from operators.cues.search.class_column import Candidate, ClassColumn, candidates, judge
from operators.cues.search.class_set import class_set_column
from operators.cues.search.evidence import EQUAL_RIVAL, Evidence, class_correlation, measure, slice_part
from operators.cues.search.ramps import SOME_EVIDENCE, SURE_COLUMN, ramp
from operators.cues.search.searched_rows import SearchedRows
from operators.cues.search.several_columns import LEAST_TOGETHER, balanced, columns_together, joint_part
from operators.cues.search.share_columns import share_support
from operators.cues.search.slices import Slices, find_slices, slice_factor, strongest
from operators.cues.search.strongest_slice import judge_strongest_slice
from operators.cues.search.wrong_labels import SURE_RATIO, are_wrong_labels, judge_several
from operators.cues.settings import CueSettings
from operators.cues.sides.sides import Sides
from operators.cues.state import CueState, Search

LABEL_ACCURACY = (0.15, 0.2)
"""Limits between which three and more columns come to be balanced, of the accuracy above chance of models
that see none of them. Each is judged by models that see the others, whatever the rest tells."""


def fit_searched(
    Z: Floats, y: Integers, ids: Integers, s: CueSettings, C: int, scaler: Scaler, class_factor: Floats
) -> Search:
    """Search for shortcuts: twins, slices, columns, and the evidence for each.

    Legitimate columns have no part in twins and slices. The models that measure the evidence see them, as the
    models do that are trained with the weights.

    Parameters
    ----------
    Z, y, ids
        Standardised rows (n, d), labels 0 .. C - 1 (n,) and row ids (n,) of the sample.
    s
        Settings.
    C
        Number of classes, all of which have rows.
    scaler, class_factor
        Standardisation of the rows, and class balance, shape (C,): parts of the state.

    """
    shown = mask_columns(Z, s.legitimate)
    twins = fit_twins(shown, y, ids, C, s.seed, l2=s.l2)
    models = fit_halves(Z, y, ids, C, s.seed, l2=s.l2) if s.legitimate else twins.plain
    before, after = models.held_out(Z, ids), held_out(twins.after, shown, ids, s.seed)
    slices = find_slices(Z, y, before.mean(axis=0), s.legitimate)
    errors = mean_errors(after, y, C)
    rows = SearchedRows(Z, y, ids, before.mean(axis=0))
    part, evidence = _measure_weights(rows, models, before, after, slices, errors, s)
    likely = candidates(slices, rows, s)
    judged = judge(likely[0], rows, s) if likely else None
    evidence = replace(
        evidence,
        share_support=share_support(slices, rows, s),
        **judge_strongest_slice(slices, rows, s).measurements(),
        **(judged.measurements() if judged else {}),
    )
    allowed, sides = allowed_part(evidence, judged)
    state = CueState(
        scaler=scaler,
        class_factor=class_factor,
        twins=twins,
        mean_error=errors,
        slices=slices,
        named=None,
        blend=allowed,
        slice_blend=0.0,
        slice_part=part,
        n_learnt=C,
        limits=Limits.of_class_balance(C, s.cap),
        evidence=evidence,
        effective=np.ones(C),
        legitimate=s.legitimate,
        seed=s.seed,
        class_column=sides,
    )
    equal = C <= 2 and evidence.slice_rival >= EQUAL_RIVAL
    column = None if judged is None or judged.partial or equal else judged.sides
    together = None if judged is None else join_columns(state, judged, likely, evidence, rows, s)
    alone = None if together or C <= 2 else follow_class_set(state, evidence, rows, s)
    return Search(state, column, together, alone)


def _measure_weights(
    rows: SearchedRows,
    models: HalfModels,
    before: Floats,
    after: Floats,
    slices: Slices,
    errors: Floats,
    s: CueSettings,
) -> tuple[float, Evidence]:
    """Measure models that are trained with the weights of twins and slices on rows that they have not seen.

    Parameters
    ----------
    rows, slices, s
        Rows of the sample, their slices, and settings.
    models
        Class-balanced models that see all columns.
    before, after
        Held-out probabilities of these and of the twins, shape (splits, n, C).
    errors
        Mean errors of the twins, shape (splits, C).

    Returns
    -------
    The part that slices have in the robust factor, and the evidence but for what the columns say of each
    other.

    """
    Z, y, ids, _ = rows
    C = rows.n_classes
    by_slices = slice_factor(slices, Z, y)
    by_halves = environment_factor(after, y, errors, 2)  # evidence must not depend on the number of classes
    agreement = class_correlation(np.log(by_slices), np.log(by_halves), y)
    halved = cross_fit_factor(Z, y, ids, models, combine(by_slices, by_halves, slice_part(agreement)), s)
    part = slice_part(agreement, C)
    robust = combine(by_slices, environment_factor(after, y, errors, C), part)
    tried = halved if C <= 2 else cross_fit_factor(Z, y, ids, models, robust, s)
    plain = [cross_fit(Z, y, ids, models, k, np.ones(len(y)), s.l2) for k in range(len(before))]
    sides = slices.sides(strongest(slices), Z)
    return part, measure(y, agreement, before, plain, after, halved, tried, sides)


def allowed_part(evidence: Evidence, column: ClassColumn | None) -> tuple[float, Sides | None]:
    """Return the part of the robust factor that the evidence allows, and the sides of the column it balances.

    No sides are returned where twins and slices are followed, as they are of two classes where two columns
    are about as strong. Of two classes a column is returned as well that they do not show; held-out rows then
    have to favour it clearly.
    """
    gate, found, own = evidence.searched_gate(), evidence.column_gate(), evidence.own_column_gate()
    of_two, opened = evidence.classes <= 2, gate > SOME_EVIDENCE[0]
    if of_two and evidence.slice_rival >= EQUAL_RIVAL:
        return gate, None
    alone = of_two and evidence.column_of_two_gate() >= SURE_COLUMN and evidence.column_ratio >= SURE_RATIO
    if column is None or found < gate or not (own > 0 or (opened and found > 0) or alone):
        return gate, None
    return (found if opened or alone else own) * column.part(), column.sides


def join_columns(
    state: CueState,
    first: ClassColumn,
    likely: Sequence[Candidate],
    evidence: Evidence,
    rows: SearchedRows,
    s: CueSettings,
) -> CueState | None:
    """Return the state that balances several columns together; None where there are none to balance.

    Three and more are balanced only if models that see none of them tell the label. Where they are not, the
    state's ``blend`` is 0 and nothing is followed: one or two of them alone would leave the others.

    Parameters
    ----------
    state
        State of the search; its ``blend`` is what the evidence allows without them.
    first, likely, evidence, rows, s
        As for ``columns_together``.

    """
    columns = columns_together(first, likely, evidence, rows, s)
    if len(columns) < 2:
        return None
    part = joint_part(columns, evidence, state.blend > SOME_EVIDENCE[0])
    sides = balanced(columns, rows.Z, rows.y, rows.n_classes)
    judged = judge_several(sides, rows.Z, rows.y, rows.ids, s)
    if len(columns) >= LEAST_TOGETHER:
        part *= ramp(judged.label_accuracy, *LABEL_ACCURACY)
    elif part <= 0:
        return None
    return replace(
        state, blend=part, class_column=sides[0], further=sides[1:], caps_several=are_wrong_labels(judged)
    )


def follow_class_set(
    state: CueState, evidence: Evidence, rows: SearchedRows, s: CueSettings
) -> CueState | None:
    """Return the state that balances a column which tells some classes; None where none is a shortcut."""
    found = class_set_column(state.slices, evidence, rows, s)
    if found is None:
        return None
    return replace(state, blend=found.gate * found.column.part(), class_column=found.column.sides)
