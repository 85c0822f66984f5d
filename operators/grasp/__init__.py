"""GRASP: groups without group labels, by clustering per-sample gradients within each class.

Zeng et al., Outlier-Robust Group Inference via Gradient Space Clustering, 2022.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from operators.grasp.kernel import GroupInference

__all__ = ["GroupInference"]


def __getattr__(name: str) -> Any:
    """Import the kernel on first use: reading a recipe needs the parameters alone, not scikit-learn."""
    if name == "GroupInference":
        from operators.grasp.kernel import GroupInference

        return GroupInference
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
