"""Robust row weights without group labels: suspected shortcuts, the evidence for them, and what to do.

Map of the modules, from the bottom: ``draws`` (halves, flips and samples from row ids), ``linear`` (the
probe), ``environments`` (XRM twins), ``slices`` (cuts and balance weights), ``evidence`` (do independent
kinds of evidence agree), ``limits`` (cap and effective sample size), ``named`` (shortcuts that the user
names), ``robust_weights`` (fit and weights), ``suspects`` (the list for the report), ``serialise`` (the state
as files), ``references`` (names of source columns as feature positions), ``params``, ``gather`` (the sample
over shards), ``adaptor`` (the operator ``cues``) and ``listing`` (suspects in the words of the source).
Importing this package imports no method.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from operators.lazy import lazy

if TYPE_CHECKING:
    from operators.cues.named import Named
    from operators.cues.robust_weights import Settings, State, breaks, fit, summary, weights
    from operators.cues.serialise import load_state, save_state
    from operators.cues.suspects import Suspect, list_suspects

__all__ = [
    "Named",
    "Settings",
    "State",
    "Suspect",
    "breaks",
    "fit",
    "list_suspects",
    "load_state",
    "save_state",
    "summary",
    "weights",
]

_HOMES = {
    "Named": "named",
    "Settings": "robust_weights",
    "State": "robust_weights",
    "Suspect": "suspects",
    "breaks": "robust_weights",
    "fit": "robust_weights",
    "list_suspects": "suspects",
    "load_state": "serialise",
    "save_state": "serialise",
    "summary": "robust_weights",
    "weights": "robust_weights",
}

__getattr__ = lazy(__name__, _HOMES)
