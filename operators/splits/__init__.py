"""Validation splits: at random, shifted as far as possible by constrained kernel k-means, or by domain.

Napoli and White, Clustering-Based Validation Splits for Domain Generalisation, 2024.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from operators.splits.estimator import ConstrainedKernelKMeans
    from operators.splits.folds import ConstrainedFolds

_HOMES = {"ConstrainedFolds": "folds", "ConstrainedKernelKMeans": "estimator"}

__all__ = ["ConstrainedFolds", "ConstrainedKernelKMeans"]


def __getattr__(name: str) -> Any:
    """Import on first use: reading a recipe needs the parameters alone, not scikit-learn."""
    if name in _HOMES:
        return getattr(import_module(f"operators.splits.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
