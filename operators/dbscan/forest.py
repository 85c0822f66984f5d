"""Connected components that grow as neighbours are found."""

from __future__ import annotations

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from operators.dbscan.distances import Index, Mask


class Forest:
    """Union-find over ``0 .. n - 1`` on whole arrays; the root of a component is its lowest member."""

    def __init__(self, n: int) -> None:
        self._parent: Index = np.arange(n, dtype=np.intp)

    def find(self, members: Index) -> Index:
        """Root of each member, same shape."""
        roots = self._parent[members]
        while True:
            above = self._parent[roots]
            if np.array_equal(above, roots):
                break
            roots = above
        self._parent[members] = roots
        return roots

    def union(self, a: Index, b: Index) -> None:
        """Join ``a[k]`` with ``b[k]`` for every k."""
        if not len(a):
            return
        roots, ends = np.unique(np.concatenate([self.find(a), self.find(b)]), return_inverse=True)
        edges = coo_array((np.ones(len(a), np.int8), (ends[: len(a)], ends[len(a) :])), (len(roots),) * 2)
        n_components, component = connected_components(edges, directed=False)
        lowest = np.full(n_components, self._parent.size, dtype=np.intp)
        np.minimum.at(lowest, component, roots)
        self._parent[roots] = lowest[component]

    def union_tile(self, inside: Mask, rows: Index, cols: Index) -> None:
        """Join ``rows[i]`` with ``cols[j]`` wherever ``inside[i, j]``."""
        # Most rows of a tile already share a component: joining one row of each keeps the edges few.
        row_roots, by_row = _reduce(inside, self.find(rows))
        col_roots, by_both = _reduce(by_row.T, self.find(cols))
        col, row = np.nonzero(by_both)
        self.union(row_roots[row], col_roots[col])


def _reduce(inside: Mask, roots: Index) -> tuple[Index, Mask]:
    """Distinct roots, and for each whether any of its rows is True, column by column."""
    distinct, position = np.unique(roots, return_inverse=True)
    order = np.argsort(position, kind="stable")
    starts = np.searchsorted(position[order], np.arange(len(distinct)))
    return distinct, np.logical_or.reduceat(inside[order], starts, axis=0)
