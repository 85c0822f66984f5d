"""Exact DBSCAN in O(n) memory, for one setting or a whole grid of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from operators.lazy import lazy

if TYPE_CHECKING:
    from operators.dbscan.estimator import DBSCAN
    from operators.dbscan.grid import dbscan_grid, neighbour_counts

__all__ = ["DBSCAN", "dbscan_grid", "neighbour_counts"]
_HOMES = {"DBSCAN": "estimator", "dbscan_grid": "grid", "neighbour_counts": "grid"}

__getattr__ = lazy(__name__, _HOMES)
