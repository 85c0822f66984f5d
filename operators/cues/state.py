"""The fitted state of the robust weights, and what the search for shortcuts finds, as plain data.

``robust_weights.fit`` makes a state, ``row_weights`` applies it to rows, ``serialise`` stores it, and
``summary`` gives what a report shows of it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from operators.arrays import Floats
from operators.cues.limits import Limits
from operators.cues.models.linear import Scaler
from operators.cues.models.trade_off import TradeOffPoint
from operators.cues.models.twins import Twins
from operators.cues.search.evidence import Evidence
from operators.cues.search.ramps import LEAST_PART
from operators.cues.search.slices import Slices
from operators.cues.settings import CueSettings
from operators.cues.sides.right_labels import RightLabels
from operators.cues.sides.sides import Sides

MOST_COMPARED = 4
"""Balanced columns beyond which the rows that break one of them are one group in each class."""


@dataclass(frozen=True)
class CueState:
    """Everything that ``weights`` needs, and what a report shows.

    Attributes
    ----------
    scaler
        Standardisation of the features.
    class_factor
        Class balance, shape (C,).
    twins, mean_error
        Models and class means of the environment factor; None where a shortcut is named and the search has no
        part in the weights.
    slices
        Slices with their scores.
    named
        Sides of the named shortcuts; None where shortcuts were searched for.
    blend
        Part of the robust factor (or of the named balance) against class balance, before ``limits``.
    slice_blend
        Further part of the slice factor alone: what ``bold`` adds.
    limits
        Cap and shrinkage per class (``row_weights.with_limits``); class balance until weights are decided.
    evidence
        Measurements; None where a shortcut is named.
    effective
        Effective sample share per class on the sample, shape (C,).
    least_share
        Least such share that the limits allow; None in a state of an earlier version.
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
    n_learnt
        Classes to which a shortcut may point: those with enough rows to be learnt from.
    named_cost
        Loss of held-out balanced accuracy by the balance of named shortcuts, or by the smallest part that was
        tried where ``blend`` is 0; 0 where none is named.
    points
        Trade-off over the strength of weighting on rows of the sample (``decision.decide``); empty where
        rows are too few.
    searched_part
        Part of the factor of the search in the robust factor where shortcuts are named; the names have the
        rest.
    class_column
        Column whose values stand for the classes, where the search balances that one; None where it follows
        twins and slices.
    further
        Columns that carry a shortcut beside it; all are balanced together.
    caps_several, caps_named
        Whether rows that break more than one of the columns that the search balances, or of the named ones,
        keep at most the weight of their class, as most of them have wrong labels.
    leaning_column
        Column on which models lean so much that it decided how far classes are balanced; the points compare
        the rows that break it. None where the classes decided, or a shortcut is followed.
    judged_labels
        For columns that may be balanced, where some of the rows that break them have wrong labels: how
        probable a right label is.
    expected_gain
        Expected rise of the worst group's accuracy for which the robust weights are followed; 0 where the
        gate says how far.

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
    n_learnt: int = 2
    named_cost: float = 0.0
    points: tuple[TradeOffPoint, ...] = ()
    searched_part: float = 0.0
    class_column: Sides | None = None
    expected_gain: float = 0.0
    further: tuple[Sides, ...] = ()
    caps_several: bool = False
    caps_named: bool = False
    leaning_column: Sides | None = None
    judged_labels: tuple[RightLabels, ...] = ()
    least_share: float | None = None

    @property
    def class_columns(self) -> tuple[Sides, ...]:
        """The columns whose values stand for the classes, where the search balances these."""
        return () if self.class_column is None else (self.class_column, *self.further)

    @property
    def balanced(self) -> tuple[Sides, ...]:
        """The columns that are balanced: the named ones, or those that the search has found."""
        return self.class_columns if self.named is None else self.named

    @property
    def right_labels(self) -> RightLabels | None:
        """How probable right labels are among the rows that break the balanced columns, by which these have
        weight; None where no label seems wrong, or nothing can be said."""
        return self.labels_of(self.balanced)

    def labels_of(self, columns: tuple[Sides, ...]) -> RightLabels | None:
        """Return what is known of the labels of the rows that break some columns, if anything is."""
        return next((one for one in self.judged_labels if columns and one.is_of(columns)), None)

    @property
    def compared(self) -> tuple[Sides, ...]:
        """The balanced columns, if the rows that break each are compared apart; none where there are many."""
        return self.balanced if len(self.balanced) <= MOST_COMPARED else ()

    @property
    def several_apart(self) -> bool:
        """Whether rows that break more than one column are compared apart: models that lean on three and more
        are right where one of these is broken. Not of named columns, of which one may repeat another."""
        several = self.named is None and self.blend > 0 and len(self.compared) > 2
        return several and not self.caps_several

    @property
    def broken_parts(self) -> int:
        """Kinds of rows that break the shortcut and are compared: one for each column, and for several."""
        return max(len(self.compared), 1) + self.several_apart

    @property
    def published_strength(self) -> float | None:
        """Strength of these weights on the curve; None where they do not lie on it."""
        if self.slice_blend > 0 or (self.blend > 0 and self.class_strength < 1):
            return None
        return self.class_strength + self.blend


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
        The state that balances several columns, each of which carries a shortcut; None where there are none.
    class_set
        The state that balances a column which carries a shortcut of some classes; None where there is none.

    """

    state: CueState
    column: Sides | None
    together: CueState | None = None
    class_set: CueState | None = None


def class_balance_only(scaler: Scaler, class_factor: Floats, s: CueSettings, reason: str) -> CueState:
    """Return the state under which every row has the weight of its class."""
    C = len(class_factor)
    none = np.empty(0)
    slices = Slices(
        np.empty(0, np.int64), none.astype(np.float32), np.empty((0, C)), none, none, np.empty(0, bool)
    )
    return CueState(
        scaler=scaler,
        class_factor=class_factor,
        twins=None,
        mean_error=none,
        slices=slices,
        named=None,
        blend=0.0,
        slice_blend=0.0,
        limits=Limits.of_class_balance(C, s.cap),
        evidence=None,
        effective=np.ones(C),
        legitimate=s.legitimate,
        seed=s.seed,
        reason=reason,
    )


def summary(state: CueState) -> dict[str, Any]:
    """Return what a report shows of the weights, as plain numbers and lists."""
    evidence = state.evidence
    return {
        "blend": state.blend,
        "class_strength": state.class_strength,
        "named_cost": state.named_cost,
        "searched_part": state.searched_part,
        "slice_blend": state.slice_blend,
        "expected_gain": state.expected_gain,
        "evidence": None if evidence is None else evidence.__dict__,
        "weakest": None if evidence is None else _weakest(state, evidence),
        "reason": state.reason,
        "effective_share": state.effective.tolist(),
        "trust": state.limits.trust.tolist(),
    }


def _weakest(state: CueState, evidence: Evidence) -> str:
    """Return what holds the robust weights back most."""
    if state.further and state.blend <= 0:
        return "several"
    held_back = evidence.gate() >= LEAST_PART and state.blend <= 0
    return "gain over the baseline" if held_back else evidence.weakest()
