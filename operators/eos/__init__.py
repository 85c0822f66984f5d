"""Entropic outlier sparsification: a weight for every row, and outliers, learnt together with a model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from operators.lazy import lazy

if TYPE_CHECKING:
    from operators.eos.centroids import SPA, KMeans
    from operators.eos.estimator import EntropicOutlierSparsification
    from operators.eos.losses import Gaussian, LeastSquares, Logistic

_DEFINED_IN = {
    "EntropicOutlierSparsification": "estimator",
    "Gaussian": "losses",
    "KMeans": "centroids",
    "LeastSquares": "losses",
    "Logistic": "losses",
    "SPA": "centroids",
}

__all__ = [
    "SPA",
    "EntropicOutlierSparsification",
    "Gaussian",
    "KMeans",
    "LeastSquares",
    "Logistic",
]

__getattr__ = lazy(__name__, _DEFINED_IN)
