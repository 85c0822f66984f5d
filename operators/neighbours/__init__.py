"""Neighbour graphs by FAISS, exact or approximate, and what can be read from them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from operators.lazy import lazy

if TYPE_CHECKING:
    from operators.neighbours.clusters import approximate_dbscan
    from operators.neighbours.duplicates import DuplicateCounter
    from operators.neighbours.estimator import NeighbourGraph
    from operators.neighbours.graph import Graph
    from operators.neighbours.landmarks import choose_landmarks, row_density
    from operators.neighbours.uses import density, near_duplicate_counts

_HOMES = {
    "DuplicateCounter": "duplicates",
    "Graph": "graph",
    "NeighbourGraph": "estimator",
    "approximate_dbscan": "clusters",
    "choose_landmarks": "landmarks",
    "density": "uses",
    "near_duplicate_counts": "uses",
    "row_density": "landmarks",
}

__all__ = [
    "DuplicateCounter",
    "Graph",
    "NeighbourGraph",
    "approximate_dbscan",
    "choose_landmarks",
    "density",
    "near_duplicate_counts",
    "row_density",
]

__getattr__ = lazy(__name__, _HOMES)
