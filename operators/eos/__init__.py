"""Entropic outlier sparsification: a weight for every row, and outliers, learnt together with a model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from operators.lazy import lazy

if TYPE_CHECKING:
    from operators.eos.centroids import SPA, KMeans
    from operators.eos.estimator import EntropicOutlierSparsification
    from operators.eos.gaussian import Gaussian
    from operators.eos.least_squares import LeastSquares
    from operators.eos.logistic import Logistic

_HOMES = {
    "EntropicOutlierSparsification": "estimator",
    "Gaussian": "gaussian",
    "KMeans": "centroids",
    "LeastSquares": "least_squares",
    "Logistic": "logistic",
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

__getattr__ = lazy(__name__, _HOMES)
