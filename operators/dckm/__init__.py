"""Weights that decorrelate features, alone or together with k-means (DCKM)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from operators.lazy import lazy

if TYPE_CHECKING:
    from operators.dckm.estimator import DecorrelatedKMeans, DecorrelationWeights

__all__ = ["DecorrelatedKMeans", "DecorrelationWeights"]
_DEFINED_IN = {
    "DecorrelatedKMeans": "estimator",
    "DecorrelationWeights": "estimator",
}

__getattr__ = lazy(__name__, _DEFINED_IN)
