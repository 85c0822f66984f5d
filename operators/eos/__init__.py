"""Entropic outlier sparsification: a weight for every row, and outliers, learnt together with a model."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from operators.eos.alpha import validated_alpha
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
    "validated_alpha": "alpha",
}

__all__ = [
    "SPA",
    "EntropicOutlierSparsification",
    "Gaussian",
    "KMeans",
    "LeastSquares",
    "Logistic",
    "validated_alpha",
]


def __getattr__(name: str) -> Any:
    """Import on first use: reading a recipe needs the parameters alone, not scikit-learn."""
    if name in _HOMES:
        return getattr(import_module(f"operators.eos.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
