"""Neighbour graphs by FAISS, exact or approximate, and what can be read from them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from operators.lazy import lazy

if TYPE_CHECKING:
    from operators.neighbours.class_index import choose_landmarks
    from operators.neighbours.estimator import NeighbourGraph
    from operators.neighbours.graph import DuplicateCounter, Graph, density

_DEFINED_IN = {
    "DuplicateCounter": "graph",
    "Graph": "graph",
    "NeighbourGraph": "estimator",
    "choose_landmarks": "class_index",
    "density": "graph",
}

__all__ = [
    "DuplicateCounter",
    "Graph",
    "NeighbourGraph",
    "choose_landmarks",
    "density",
]

__getattr__ = lazy(__name__, _DEFINED_IN)
