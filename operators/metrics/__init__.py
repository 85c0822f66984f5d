"""Figures that say how good groups, outliers, weights and predictions are."""

from sklearn.metrics import adjusted_rand_score as adjusted_rand_index

from operators.metrics.cvar import cvar
from operators.metrics.mmd import mmd
from operators.metrics.recovery import (
    GroupRecovery,
    PrecisionRecall,
    group_recovery,
    outlier_precision_recall,
)
from operators.metrics.rows import effective_sample_size, worst_group_accuracy
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
