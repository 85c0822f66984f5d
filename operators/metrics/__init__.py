"""Figures that say how good groups, outliers, weights and predictions are.

Importing this package does not import scikit-learn: the first use of a name that needs it does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from operators.lazy import lazy
from operators.metrics.cvar import cvar
from operators.metrics.mmd import mmd
from operators.metrics.rows import effective_sample_size, worst_group_accuracy

if TYPE_CHECKING:
    from operators.metrics.recovery import (
        GroupRecovery,
        PrecisionRecall,
        adjusted_rand_index,
        group_recovery,
        outlier_precision_recall,
    )
    from operators.metrics.silhouettes import Silhouettes, mean_silhouettes, silhouette, silhouette_grid

__all__ = [
    "GroupRecovery",
    "PrecisionRecall",
    "Silhouettes",
    "adjusted_rand_index",
    "cvar",
    "effective_sample_size",
    "group_recovery",
    "mean_silhouettes",
    "mmd",
    "outlier_precision_recall",
    "silhouette",
    "silhouette_grid",
    "worst_group_accuracy",
]
_DEFINED_IN = {
    "GroupRecovery": "recovery",
    "PrecisionRecall": "recovery",
    "Silhouettes": "silhouettes",
    "adjusted_rand_index": "recovery",
    "group_recovery": "recovery",
    "mean_silhouettes": "silhouettes",
    "outlier_precision_recall": "recovery",
    "silhouette": "silhouettes",
    "silhouette_grid": "silhouettes",
}

__getattr__ = lazy(__name__, _DEFINED_IN)
