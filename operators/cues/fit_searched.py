"""Fit where no shortcut is named: twins, slices, and the evidence that decides how far both are trusted."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from operators.arrays import Floats, Integers
from operators.cues.carrying_column import CarryingColumn, SearchedRows, candidates, judge
from operators.cues.cross_fitting import cross_fit, cross_fit_factor
from operators.cues.decision import LEAST_PART, RAISED_GATE
from operators.cues.environments import environment_factor, fit_twins, held_out, mean_errors
from operators.cues.evidence import EQUAL_RIVAL, Evidence, class_correlation, measure, slice_part
from operators.cues.followed_columns import follow_one_class, join_columns
from operators.cues.leading_column import leading_column
from operators.cues.limits import fit_limits
from operators.cues.linear import Scaler
from operators.cues.named import Sides
from operators.cues.row_weights import combine, mask_columns
from operators.cues.several_columns import SURE_RATIO
from operators.cues.share_columns import share_support
from operators.cues.slices import find_slices, slice_factor, strongest
from operators.cues.state import CueSettings, CueState

SURE_CARRIER = 0.5
"""Gate of a column of two classes from which it may be balanced although twins and slices find nothing."""


class Search(NamedTuple):
    """The findings of the search.

    Attributes
    ----------
    state
        Its ``blend`` is what the evidence allows.
    column
        Sides of the column that stands for the classes, whether or not the state balances it. None where no
        column is strong, or where it may not be balanced alone: of two classes beside another one that is
        about as strong, and where it holds shares of classes.
    together
        The state that balances several columns, each of which carries a shortcut, or one that carries a
        shortcut of one class where nothing else is found; None where there are none.
    rival
        The state that balances a column which carries a shortcut of one class, beside ``state``, whose gate
        is open; None where there is none.

    """

    state: CueState
    column: Sides | None
    together: CueState | None
    rival: CueState | None = None


def fit_searched(
    Z: Floats, y: Integers, ids: Integers, s: CueSettings, C: int, scaler: Scaler, class_factor: Floats
) -> Search:
    """Search for shortcuts: twins, slices and evidence.

    Legitimate columns have no part in twins and slices. The models that measure the evidence see them, as the
    models do that are trained with the weights.
    """
    shown = mask_columns(Z, s.legitimate)
    twins = fit_twins(shown, y, ids, C, s.seed, l2=s.l2)
    models = fit_twins(Z, y, ids, C, s.seed, l2=s.l2, rounds=0) if s.legitimate else twins
    before, after = held_out(models.before, Z, ids, s.seed), held_out(twins.after, shown, ids, s.seed)
    slices = find_slices(Z, y, before.mean(axis=0), s.legitimate)
    errors = mean_errors(after, y, C)
    pointed = len(np.unique(y))
    by_slices = slice_factor(slices, Z, y)
    by_halves = environment_factor(after, y, errors, 2)  # evidence must not depend on the number of classes
    agreement = class_correlation(np.log(by_slices), np.log(by_halves), y)
    halved = cross_fit_factor(Z, y, ids, models, combine(by_slices, by_halves, slice_part(agreement)), s)
    part = slice_part(agreement, pointed)
    robust = combine(by_slices, environment_factor(after, y, errors, pointed), part)
    tried = halved if pointed <= 2 else cross_fit_factor(Z, y, ids, models, robust, s)
    plain = [cross_fit(Z, y, ids, models, k, np.ones(len(y)), s.l2) for k in range(len(before))]
    sides = slices.sides(strongest(slices), Z)
    rows = SearchedRows(Z, y, ids, before.mean(axis=0))
    likely = candidates(slices, Z, y, rows.p, s)
    carrier = judge(likely[0], Z, y, ids, s) if likely else None
    evidence = replace(
        measure(y, agreement, before, plain, after, halved, tried, sides),
        share_support=share_support(slices, Z, y, ids, s),
        **{f"lead_{name}": value for name, value in vars(leading_column(slices, Z, y, ids, s)).items()},
        **(carrier.measurements() if carrier else {}),
    )
    gate, sided = gate_and_sides(evidence, carrier, pointed)
    robust = robust if sided is None else sided.apply(Z, y)
    state = CueState(
        scaler=scaler,
        class_factor=class_factor,
        twins=twins,
        mean_error=errors,
        slices=slices,
        named=None,
        blend=gate,
        slice_blend=0.0,
        slice_part=part,
        pointed=pointed,
        limits=fit_limits(robust, y, C, cap=s.cap, min_effective=s.min_effective),
        evidence=evidence,
        effective=np.ones(C),
        legitimate=s.legitimate,
        seed=s.seed,
        carrier=sided,
    )
    rivalled = pointed <= 2 and evidence.lead_rival >= EQUAL_RIVAL
    column = None if carrier is None or carrier.partial or rivalled else carrier.sides
    together = None if carrier is None else join_columns(state, carrier, likely, evidence, rows, s)
    if together is not None or pointed <= 2:
        return Search(state, column, together)
    one_class = follow_one_class(state, evidence, rows, s)
    if gate < LEAST_PART:
        return Search(state, column, one_class)
    return Search(state, column, None, one_class)


def gate_and_sides(
    evidence: Evidence, carrier: CarryingColumn | None, pointed: int
) -> tuple[float, Sides | None]:
    """Return the part of the robust factor that the evidence allows, and the sides of the column it balances.

    No sides are returned where twins and slices are followed, as they are of two classes (``pointed``) where
    two columns are about as strong. Of two classes a column is returned as well that they do not show;
    held-out rows then have to favour it clearly.
    """
    gate, found, own = evidence.searched_gate(), evidence.carrier_gate(), evidence.own_carrier_gate()
    opened = gate > RAISED_GATE[0]
    alone = (
        pointed <= 2
        and evidence.carrier_of_two_gate() >= SURE_CARRIER
        and evidence.carrier_ratio >= SURE_RATIO
    )
    if pointed <= 2 and evidence.lead_rival >= EQUAL_RIVAL:
        return gate, None
    if carrier is None or found < gate or not (own > 0 or (opened and found > 0) or alone):
        return gate, None
    part = carrier.part() if pointed > 2 else 1.0  # a class of few rows does not count
    return (found if opened or alone else own) * part, carrier.sides
