"""GRASP: groups without group labels, by clustering per-sample gradients within each class.

Zeng et al., Outlier-Robust Group Inference via Gradient Space Clustering, 2022.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from operators.lazy import lazy

if TYPE_CHECKING:
    from operators.grasp.estimator import GroupInference

__all__ = ["GroupInference"]
_DEFINED_IN = {"GroupInference": "estimator"}

__getattr__ = lazy(__name__, _DEFINED_IN)
