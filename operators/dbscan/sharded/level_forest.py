"""Connected components at every radius at once.

An edge of level l connects its ends at every level from l on. A minimum spanning forest with levels as
weights has the same components at every level as all edges, so only its edges are kept.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.sparse import coo_array
from scipy.sparse.csgraph import minimum_spanning_tree

from operators.arrays import Index, Mask
from operators.dbscan.tiles import Level
from operators.disjoint_sets import DisjointSets


class Edges(NamedTuple):
    """Edges between nodes: hub h is node -1 - h, and a row is the node of its own number."""

    a: Index
    b: Index
    level: Level

    @classmethod
    def joined(cls, parts: list[Edges]) -> Edges:
        """Return all edges of several lists."""
        none = np.empty(0, np.intp)
        several = [cls(none, none, np.empty(0, np.int16)), *parts]
        return cls(*(np.concatenate(column) for column in zip(*several, strict=True)))


def lightest(edges: Edges) -> Edges:
    """Return a minimum spanning forest of the edges, which has the same components at every level."""
    if not len(edges.a):
        return edges
    nodes, ends = np.unique(np.concatenate([edges.a, edges.b]), return_inverse=True)
    low, high = np.sort(ends.reshape(2, -1), axis=0)
    order = np.lexsort((edges.level, high, low))
    low, high, level = low[order], high[order], edges.level[order]
    first = (low != high) & np.append(True, (low[1:] != low[:-1]) | (high[1:] != high[:-1]))
    # Of equal pairs the one of the lowest level comes first. Weights start at 1, since 0 is no edge for
    # SciPy.
    weights = coo_array((level[first] + 1.0, (low[first], high[first])), shape=(len(nodes), len(nodes)))
    kept = minimum_spanning_tree(weights.tocsr()).tocoo()
    return Edges(nodes[kept.row], nodes[kept.col], (kept.data - 1).astype(np.int16))


class LevelForest:
    """Union-find over n nodes at each of several levels; the root of a component is its lowest node.

    Parameters
    ----------
    parent : (n_levels, n) lowest known member of each node's component, a root itself.
    """

    def __init__(self, parent: npt.NDArray[np.intp]) -> None:
        self.n_levels, self.n = parent.shape
        self._forest = DisjointSets(0)
        self._forest._parent = (parent + self.n * np.arange(self.n_levels)[:, None]).reshape(-1)

    def reset(self, nodes: slice, parent: npt.NDArray[np.intp]) -> None:
        """Replace the parents of ``nodes``, none of which may be the root of another node."""
        base = self.n * np.arange(self.n_levels)[:, None]
        self._forest._parent.reshape(self.n_levels, self.n)[:, nodes] = parent + base

    def find(self, level: npt.NDArray[np.integer], nodes: Index) -> Index:
        """Return the root of each node at each of the levels (arrays that broadcast)."""
        return self._forest.find(level.astype(np.intp) * self.n + nodes)

    def together(self, a: Index, b: Index, level: Level) -> Mask:
        """Return whether ``a[k]`` and ``b[k]`` are joined at ``level[k]``, (k,)."""
        return np.asarray(self.find(level, a) == self.find(level, b))

    def union(self, a: Index, b: Index, level: Level) -> None:
        """Join ``a[k]`` with ``b[k]`` from ``level[k]`` on."""
        for at in range(self.n_levels):
            here = level <= at
            self._forest.union(a[here] + at * self.n, b[here] + at * self.n)

    def parents(self) -> npt.NDArray[np.intp]:
        """Return the root (n_levels, n) of every node."""
        levels = np.arange(self.n_levels)[:, None]
        return np.asarray(self.find(levels, np.arange(self.n)) - levels * self.n)


def level_parents(n_levels: int, n: int, edges: Edges) -> npt.NDArray[np.intp]:
    """Return the roots (n_levels, n) of nodes 0 .. n - 1 joined by ``edges`` between them."""
    forest = LevelForest(np.tile(np.arange(n), (n_levels, 1)))
    forest.union(*edges)
    return forest.parents()
