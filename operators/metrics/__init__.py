"""Figures that say how good groups, weights and predictions are.

Importing this package does not import scikit-learn: the first use of a name that needs it does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from operators.lazy import lazy
from operators.metrics.cvar import cvar

if TYPE_CHECKING:
    from operators.metrics.silhouettes import Silhouettes, mean_silhouettes, silhouette_grid

__all__ = ["Silhouettes", "cvar", "mean_silhouettes", "silhouette_grid"]
_DEFINED_IN = dict.fromkeys(("Silhouettes", "mean_silhouettes", "silhouette_grid"), "silhouettes")

__getattr__ = lazy(__name__, _DEFINED_IN)
