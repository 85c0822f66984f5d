"""Exact DBSCAN in O(n) memory, for one setting or a whole grid of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from operators.lazy import lazy

if TYPE_CHECKING:
    from operators.dbscan.estimator import DBSCAN
    from operators.dbscan.kernel import dbscan_grid

__all__ = ["DBSCAN", "dbscan_grid"]
_DEFINED_IN = {"DBSCAN": "estimator", "dbscan_grid": "kernel"}

__getattr__ = lazy(__name__, _DEFINED_IN)
