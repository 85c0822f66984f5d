"""Robust row weights without group labels: suspected shortcuts, the evidence for them, and what to do.

Map of the modules, from the bottom: ``draws`` (halves, flips and samples from row ids), ``linear`` (the
probe), ``environments`` (XRM twins), ``slices`` (cuts and balance weights), ``evidence`` (do independent
kinds of evidence agree), ``limits`` (cap and effective sample size), ``named`` (shortcuts that the user
names), ``strength`` (weights of any strength, the trade-off over it and the baseline), ``decision`` (how
far the weights go), ``robust_weights`` (fit and weights), ``suspects`` (the list for the report),
``serialise`` (the state as files), ``references`` (names of source columns as feature positions),
``params``, ``gather`` (the sample over shards), ``curve`` (the trade-off on the sample), ``adaptor`` (the
operator ``cues``), ``listing`` (suspects in the words of the source), ``report`` and ``curve_report``.
Importing this package imports no method.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from operators.lazy import lazy

if TYPE_CHECKING:
    from operators.cues.named import Named
    from operators.cues.robust_weights import Settings, State, breaks, fit, full_factor, summary, weights
    from operators.cues.serialise import load_state, save_state
    from operators.cues.strength import Point, WeightPath, choose, trade_off
    from operators.cues.suspects import Suspect, list_suspects

__all__ = [
    "Named",
    "Point",
    "Settings",
    "State",
    "Suspect",
    "WeightPath",
    "breaks",
    "choose",
    "fit",
    "full_factor",
    "list_suspects",
    "load_state",
    "save_state",
    "summary",
    "trade_off",
    "weights",
]

_HOMES = {
    "Named": "named",
    "Point": "strength",
    "Settings": "robust_weights",
    "State": "robust_weights",
    "Suspect": "suspects",
    "WeightPath": "strength",
    "breaks": "robust_weights",
    "choose": "strength",
    "fit": "robust_weights",
    "full_factor": "robust_weights",
    "list_suspects": "suspects",
    "load_state": "serialise",
    "save_state": "serialise",
    "summary": "robust_weights",
    "trade_off": "strength",
    "weights": "robust_weights",
}

__getattr__ = lazy(__name__, _HOMES)
