"""Robust row weights without group labels: suspected shortcuts, the evidence for them, and what to do.

Map of the modules, from the bottom. The kernel: ``draws`` (halves, flips and samples from row ids),
``linear`` (the probe), ``environments`` (XRM twins), ``slices`` (cuts and balance weights), ``limits`` (cap
and effective sample size), ``cross_fitting`` (models judged on rows that they have not seen), ``gain`` and
``independence``, ``share_columns`` and ``leading_column`` (what the other columns say of one), ``evidence``
(whether independent kinds of evidence agree), ``named`` (sides of shortcuts that the user
names), ``strength`` (weights of any strength, the trade-off over it and the baseline), ``decision`` (how far
the weights go), ``expected_gain`` (what full weights gained on tables with like measurements), ``state``
(settings and the fitted state), ``row_weights`` (the weight of each row), ``sample_decision`` (the decision
on a state's weights), ``full_weights`` (whether they are followed where the gate is shut), ``fit_searched``
and ``fit_named`` (the two fits), ``robust_weights`` (``fit``, which chooses between them), ``suspects``
(suspected shortcuts with their measurements). Around it: ``params``, ``references`` (names of source columns
as feature positions), ``gather`` (the sample over shards), ``serialise`` (the state as files),
``adaptor`` (the operator ``cues``), ``curve`` (the trade-off on the sample), ``listing`` (suspects in the
words of the source), ``explanation`` (facts about one row), ``report`` and ``curve_report`` (sections of the
report). Importing this package imports no method.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from operators.lazy import lazy

if TYPE_CHECKING:
    from operators.cues.named import Named
    from operators.cues.robust_weights import fit
    from operators.cues.row_weights import breaks, full_factor, weights
    from operators.cues.serialise import load_state, save_state
    from operators.cues.state import CueSettings, CueState, summary
    from operators.cues.strength import TradeOffPoint, WeightPath, choose, trade_off
    from operators.cues.suspects import Suspect

__all__ = [
    "CueSettings",
    "CueState",
    "Named",
    "Suspect",
    "TradeOffPoint",
    "WeightPath",
    "breaks",
    "choose",
    "fit",
    "full_factor",
    "load_state",
    "save_state",
    "summary",
    "trade_off",
    "weights",
]

_DEFINED_IN = {
    "CueSettings": "state",
    "CueState": "state",
    "Named": "named",
    "Suspect": "suspects",
    "TradeOffPoint": "strength",
    "WeightPath": "strength",
    "breaks": "row_weights",
    "choose": "strength",
    "fit": "robust_weights",
    "full_factor": "row_weights",
    "load_state": "serialise",
    "save_state": "serialise",
    "summary": "state",
    "trade_off": "strength",
    "weights": "row_weights",
}

__getattr__ = lazy(__name__, _DEFINED_IN)
