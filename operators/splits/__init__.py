"""Validation splits: at random, shifted as far as possible by constrained kernel k-means, or by domain.

Napoli and White, Clustering-Based Validation Splits for Domain Generalisation, 2024.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from operators.lazy import lazy

if TYPE_CHECKING:
    from operators.splits.estimator import ConstrainedKernelKMeans
    from operators.splits.folds import ConstrainedFolds

_DEFINED_IN = {"ConstrainedFolds": "folds", "ConstrainedKernelKMeans": "estimator"}

__all__ = ["ConstrainedFolds", "ConstrainedKernelKMeans"]

__getattr__ = lazy(__name__, _DEFINED_IN)
