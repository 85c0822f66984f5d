"""Weights that decorrelate features, alone or together with k-means (DCKM)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from operators.lazy import lazy

if TYPE_CHECKING:
    from operators.dckm.estimator import DecorrelatedKMeans, DecorrelationWeights
    from operators.dckm.selection import choose_lambdas

__all__ = ["DecorrelatedKMeans", "DecorrelationWeights", "choose_lambdas"]
_DEFINED_IN = {
    "DecorrelatedKMeans": "estimator",
    "DecorrelationWeights": "estimator",
    "choose_lambdas": "selection",
}

__getattr__ = lazy(__name__, _DEFINED_IN)
