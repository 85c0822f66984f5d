"""Settings of the robust weights and the fitted state, as plain data.

``robust_weights.fit`` makes a state, ``row_weights`` applies it to rows, ``serialise`` stores it, and
``summary`` gives what a report shows of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from operators.arrays import Floats
from operators.cues.decision import LEAST_PART
from operators.cues.environments import Twins
from operators.cues.evidence import Evidence
from operators.cues.limits import Limits
from operators.cues.linear import Scaler
from operators.cues.named import Named, Sides
from operators.cues.slices import Slices, SourceColumn
from operators.cues.strength import TradeOffPoint

Setting = Literal["safe", "bold"]
MOST_COMPARED = 4
"""Balanced columns beyond which the rows that break one of them are one group in each class."""


@dataclass(frozen=True)
class CueSettings:
    """Settings of the robust weights; the defaults are the safe ones.

    Attributes
    ----------
    setting
        "safe" or "bold".
    spurious
        Shortcuts that the user names.
    legitimate
        Columns that are honest signal.
    columns
        Source columns of the features, whose other columns have to support a shortcut in one of them; a
        feature of none is a column of its own.
    cap
        Largest weight relative to class balance.
    min_effective
        Least effective sample size of each class, as a share of its rows.
    named_share
        Part of the weight that balances a named shortcut, at most, unless the evidence of the search opens
        the gate further; the rest is class balance. All of it would give the wrong labels among the rows that
        break the shortcut as much weight as the others there.
    searched_share
        Part of the robust factor that the search has beside the names, where its evidence is full.
    max_named_cost
        Largest loss of held-out balanced accuracy, and C / 2 of it that of the worst of C
        classes; the part is two thirds, a third or a sixth of ``named_share``, or 0, where they are exceeded.
        At 1 nothing is too much.
    must_gain
        Whether names are followed only if the worst group is better for it on held-out rows: those that the
        user has not given.
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
    columns: Sequence[SourceColumn] = ()
    cap: float = 20.0
    min_effective: float = 0.2
    named_share: float = 0.85
    searched_share: float = 0.5
    max_named_cost: float = 1.0
    must_gain: bool = False
    l2: float = 1e-3
    max_rows: int = 50_000
    seed: int = 0


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
    searched_part
        Part of the factor of the search in the robust factor where shortcuts are named; the names have the
        rest.
    carrier
        Column whose values stand for the classes, where the search balances that one; None where it follows
        twins and slices.
    further
        Columns that carry a shortcut beside it; all are balanced together.
    spares_several, spares_named
        Whether rows that break more than one of the columns that the search balances, or of the named ones,
        keep at most the weight of their class, as most of them have wrong labels.
    leaning_column
        Column on which models lean so much that it decided how far classes are balanced; the points compare
        the rows that break it. None where the classes decided, or a shortcut is followed.
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
    pointed: int = 2
    named_cost: float = 0.0
    points: tuple[TradeOffPoint, ...] = ()
    searched_part: float = 0.0
    carrier: Sides | None = None
    expected_gain: float = 0.0
    further: tuple[Sides, ...] = ()
    spares_several: bool = False
    spares_named: bool = False
    leaning_column: Sides | None = None

    @property
    def carriers(self) -> tuple[Sides, ...]:
        """The columns whose values stand for the classes, where the search balances these."""
        return () if self.carrier is None else (self.carrier, *self.further)

    @property
    def balanced(self) -> tuple[Sides, ...]:
        """The columns that are balanced: the named ones, or those that the search has found."""
        return self.carriers if self.named is None else self.named

    @property
    def compared(self) -> tuple[Sides, ...]:
        """The balanced columns, if the rows that break each are compared apart; none where there are many."""
        return self.balanced if len(self.balanced) <= MOST_COMPARED else ()

    @property
    def several_apart(self) -> bool:
        """Whether rows that break more than one column are compared apart: models that lean on three and more
        are right where one of these is broken. Not of named columns, of which one may repeat another."""
        several = self.named is None and self.blend > 0 and len(self.compared) > 2
        return several and not self.spares_several

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


def class_balance_only(scaler: Scaler, class_factor: Floats, s: CueSettings, reason: str) -> CueState:
    """Return the state under which every row has the weight of its class."""
    C = len(class_factor)
    none = np.empty(0)
    slices = Slices(
        np.empty(0, np.int64), none.astype(np.float32), np.empty((0, C)), none, none, np.empty(0, bool)
    )
    limits = Limits(np.ones(C), np.zeros(C), s.cap)
    return CueState(
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
