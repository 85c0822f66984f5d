"""DBSCAN, exact in O(n) memory for one setting or a whole grid of them, or on a neighbour graph."""

from __future__ import annotations

from typing import TYPE_CHECKING

from operators.lazy import lazy

if TYPE_CHECKING:
    from operators.dbscan.estimator import DBSCAN
    from operators.dbscan.graph_dbscan import approximate_dbscan
    from operators.dbscan.kernel import dbscan_grid

__all__ = ["DBSCAN", "approximate_dbscan", "dbscan_grid"]
_DEFINED_IN = {"DBSCAN": "estimator", "approximate_dbscan": "graph_dbscan", "dbscan_grid": "kernel"}

__getattr__ = lazy(__name__, _DEFINED_IN)
