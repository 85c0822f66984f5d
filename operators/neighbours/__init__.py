"""Neighbour graphs by FAISS, exact or approximate, and what can be read from them."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from operators.neighbours.clusters import approximate_dbscan
    from operators.neighbours.estimator import NeighbourGraph
    from operators.neighbours.graph import Graph
    from operators.neighbours.uses import density, near_duplicate_counts

__all__ = ["Graph", "NeighbourGraph", "approximate_dbscan", "density", "near_duplicate_counts"]

_HOMES = {"NeighbourGraph": "estimator", "Graph": "graph", "approximate_dbscan": "clusters"}


def __getattr__(name: str) -> Any:
    """Import on first use: reading a recipe needs the parameters alone, not scikit-learn."""
    if name in __all__:
        return getattr(import_module(f"operators.neighbours.{_HOMES.get(name, 'uses')}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
