"""Parameters of the ``neighbours`` operator."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from operators.base import OperatorParams, Resources

GRAPH = "graph.json"
"""File of the state with the parameters and a record of each index."""
EVERY_CLASS = -1
"""Class index that stands for all classes together."""


class NeighboursParams(OperatorParams):
    """Parameters of ``neighbours``: the definition of a neighbour, and the index that searches them."""

    space: Literal["gradient", "x"] = "gradient"
    """Column whose vectors are compared: gradients, or the features themselves."""
    per_class: bool = True
    """Neighbours only within a row's own class, one index per class; otherwise among all rows."""
    metric: Literal["centered_cosine", "cosine", "euclidean"] = "centered_cosine"
    """``centered_cosine`` compares directions after the mean (of the class) is subtracted, ``cosine``
    directions as they are, ``euclidean`` the vectors themselves."""
    eps: Annotated[float, Field(ge=0)] | None = None
    """All rows within this distance are neighbours; in units of 1 - cos (0 to 2), with ``euclidean`` in the
    unit of the vectors. Give this, ``n_neighbors`` or both."""
    n_neighbors: Annotated[int, Field(ge=1)] | None = None
    """Number of nearest rows that are neighbours; with ``eps``, only those of them within it. In gradients a
    radius that holds a whole group holds about half of all pairs: limit the neighbours by this number."""
    index: Literal["flat", "ivf", "hnsw"] = "flat"
    """``flat`` compares all pairs and misses none; ``ivf`` and ``hnsw`` compare few and miss some."""
    nprobe: Annotated[int, Field(ge=1)] = 16
    """Number of IVF lists that are searched per row. More lists find more neighbours and take longer."""
    ef_search: Annotated[int, Field(ge=1)] = 128
    """Number of HNSW candidates that are kept per row. More of them find more neighbours and take longer."""
    max_edges: Annotated[int, Field(ge=1)] = 2**28
    """Largest graph of a class. A larger one is refused before it is built, by the true neighbours of a
    sample of rows; an edge takes 12 bytes."""
    near_duplicate: Annotated[float, Field(ge=0)] | None = None
    """Distance up to which the report calls two rows near duplicates; default 0.001 (an angle of 2.6
    degrees), with ``euclidean`` 0: equal vectors alone."""
    resources: Resources = Resources()
    """Resources of the worker that holds one index; with ``gpus`` a flat index is searched on a GPU."""

    @property
    def duplicate_distance(self) -> float:
        """``near_duplicate`` or its default, but no more than ``eps``: the graph knows no pairs beyond."""
        default = 0.0 if self.metric == "euclidean" else 0.001
        wanted = default if self.near_duplicate is None else self.near_duplicate
        return wanted if self.eps is None else min(wanted, self.eps)

    @model_validator(mode="after")
    def _some_reach(self) -> NeighboursParams:
        if self.eps is None and self.n_neighbors is None:
            raise ValueError("give eps (all rows within it), n_neighbors (the nearest rows), or both")
        return self
