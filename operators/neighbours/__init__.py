"""Neighbour graphs by FAISS, exact or approximate, and what can be read from them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from operators.lazy import lazy

if TYPE_CHECKING:
    from operators.neighbours.estimator import NeighbourGraph
    from operators.neighbours.graph import Graph
    from operators.neighbours.graph_dbscan import approximate_dbscan
    from operators.neighbours.graph_statistics import DuplicateCounter, density
    from operators.neighbours.landmarks import choose_landmarks

_HOMES = {
    "DuplicateCounter": "graph_statistics",
    "Graph": "graph",
    "NeighbourGraph": "estimator",
    "approximate_dbscan": "graph_dbscan",
    "choose_landmarks": "landmarks",
    "density": "graph_statistics",
}

__all__ = [
    "DuplicateCounter",
    "Graph",
    "NeighbourGraph",
    "approximate_dbscan",
    "choose_landmarks",
    "density",
]

__getattr__ = lazy(__name__, _HOMES)
