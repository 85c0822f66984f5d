"""Exact DBSCAN in O(n) memory, for one setting or a whole grid of them."""

from operators.dbscan.estimator import DBSCAN
from operators.dbscan.grid import dbscan_grid, neighbour_counts

__all__ = ["DBSCAN", "dbscan_grid", "neighbour_counts"]
