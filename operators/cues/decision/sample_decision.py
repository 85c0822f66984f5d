"""The decision on the weights of a state, on all rows of the sample, and the limits that belong to it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from operators.arrays import Float64, Floats, Integers, Mask
from operators.cues.decision.balance_of_classes import leaning_slices
from operators.cues.decision.decision import Decision, DecisionRules, DecisionSample, decide
from operators.cues.decision.groups import shortcut_groups
from operators.cues.learnt_classes import learnt_classes, weighed_classes
from operators.cues.models.curve_points import point_at
from operators.cues.models.trade_off import Fits, try_strengths
from operators.cues.models.weight_path import CLASS_BALANCE, WeightPath
from operators.cues.row_weights import broken_column, full_factor, right_label, with_limits
from operators.cues.search.share_columns import class_shares_lead
from operators.cues.settings import CueSettings
from operators.cues.state import CueState

MAX_COST_OF_MANY = 0.1
"""Largest loss of all rows at which three and more columns are balanced: honest columns that are independent
of each other and tell most of the label together cost more."""


@dataclass(frozen=True)
class Sample:
    """Rows on which weights are compared, those of rare classes included.

    Attributes
    ----------
    X, y, ids
        Features (n, d), labels (n,) and row ids (n,).
    counts
        Rows of each class in the whole table, shape (C,).
    fits
        Models without a robust factor, which are fitted to these rows once for all states that are tried.

    """

    X: Floats
    y: Integers
    ids: Integers
    counts: Integers
    fits: Fits = field(default_factory=dict, compare=False, repr=False)

    def rows_of(self, classes: Mask) -> tuple[Floats, Integers, Integers]:
        """Return the features, labels and ids of the rows of some classes, shape (C,)."""
        kept = classes[self.y]
        return self.X[kept], self.y[kept], self.ids[kept]


def decide_on(state: CueState, sample: Sample, s: CueSettings) -> Decision:
    """Compare the weights of several strengths and return which is published.

    Parameters
    ----------
    state
        Its ``blend`` is the part of the robust factor that the evidence allows.
    sample, s
        Rows and settings.

    """
    X, y, ids = sample.X, sample.y, sample.ids
    factor, path = _path(state, sample, s)
    which, Z = broken_column(state, X, y, ids), state.scaler.apply(X)
    slices = leaning_slices(state.slices, state.evidence, Z, y, len(sample.counts))
    rows = DecisionSample(
        Z=Z,
        y=y,
        ids=ids,
        factor=factor,
        which=which,
        parts=state.broken_parts,
        leaning=slices,
        right_label=right_label(state, X, y),
    )
    named = state.named is not None
    rules = DecisionRules(
        named=named,
        whatever_it_costs=named and not s.only_if_better and s.max_named_cost >= 1.0,
        only_if_better=s.only_if_better or not named,
        by_part=state.class_column is not None and state.n_learnt > 2 and not named,
        many_values=not named and class_shares_lead(state.slices, s),
        max_cost=MAX_COST_OF_MANY if not named and len(state.class_columns) > 2 else np.inf,
    )
    return decide(rows, path, state.blend, rules, l2=s.l2, seed=s.seed, fits=sample.fits)


def with_least_share(state: CueState, decision: Decision, sample: Sample, s: CueSettings) -> Decision | None:
    """Return a decision with its points under the settings' limits; None if its worst group is worse there.

    Parameters
    ----------
    state, decision
        Searched columns, and the decision on them under stricter limits; its part is kept.
    sample, s
        As for ``decide_on``.

    """
    if decision.trials is None or decision.blend <= 0:
        return None
    X, y, ids = sample.X, sample.y, sample.ids
    factor, path = _path(state, sample, s)
    trials = try_strengths(
        state.scaler.apply(X),
        y,
        ids,
        path,
        factor,
        strengths=decision.trials.strengths,
        l2=s.l2,
        seed=s.seed,
        fits=sample.fits,
        right_label=decision.trials.right_label,
    )
    which = broken_column(state, X, y, ids)
    points = trials.points(shortcut_groups(y, which, len(sample.counts), state.broken_parts))
    before, after = (point_at(found, CLASS_BALANCE + decision.blend) for found in (decision.points, points))
    if before is None or after is None or after.worst < before.worst:
        return None
    return replace(decision, points=points, trials=trials)


def with_limits_of_classes(state: CueState, sample: Sample, s: CueSettings) -> CueState:
    """Return the state with limits that are measured on all classes in which its rows are told apart."""
    X, y, ids = sample.rows_of(weighed_classes(state.balanced, learnt_classes(sample.counts)))
    return with_limits(state, state.scaler.apply(X), y, ids, s)


def _path(state: CueState, sample: Sample, s: CueSettings) -> tuple[Float64, WeightPath]:
    """Return the robust factor of each row in full, shape (n,), and the weights of each strength."""
    X, y, ids, counts = sample.X, sample.y, sample.ids, sample.counts
    weighed = weighed_classes(state.balanced, learnt_classes(counts))
    factor = np.where(weighed[y], full_factor(state, X, y, ids), 1.0)
    return factor, WeightPath.fit(factor, y, counts, cap=s.cap, min_effective=s.min_effective)
