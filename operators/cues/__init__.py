"""Robust row weights without group labels: suspected shortcuts, the evidence for them, and what to do.

``README.md`` shows how a run passes through the modules. Importing this package imports no method.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from operators.lazy import lazy

if TYPE_CHECKING:
    from operators.cues.models.curve_points import choose
    from operators.cues.models.trade_off import TradeOffPoint, trade_off
    from operators.cues.models.weight_path import WeightPath
    from operators.cues.robust_weights import fit
    from operators.cues.row_weights import breaks, full_factor, weights
    from operators.cues.search.suspects import Suspect
    from operators.cues.serialise import load_state, save_state
    from operators.cues.settings import CueSettings, Named
    from operators.cues.state import CueState, summary

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
    "CueSettings": "settings",
    "CueState": "state",
    "Named": "settings",
    "Suspect": "search.suspects",
    "TradeOffPoint": "models.trade_off",
    "WeightPath": "models.weight_path",
    "breaks": "row_weights",
    "choose": "models.curve_points",
    "fit": "robust_weights",
    "full_factor": "row_weights",
    "load_state": "serialise",
    "save_state": "serialise",
    "summary": "state",
    "trade_off": "models.trade_off",
    "weights": "row_weights",
}

__getattr__ = lazy(__name__, _DEFINED_IN)
