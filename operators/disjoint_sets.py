"""Union-find on whole arrays: connected components that grow as edges are found."""

from __future__ import annotations

import numpy as np

from operators.arrays import Index


class DisjointSets:
    """Union-find over ``0 .. n - 1`` on whole arrays; the root of a component is its lowest member.

    roots : (n,) root of each member to begin with; default: all are apart.
    """

    def __init__(self, n: int, roots: Index | None = None) -> None:
        self._parent: Index = np.arange(n, dtype=np.intp) if roots is None else roots.copy()

    def find(self, members: Index) -> Index:
        """Return the root of each member, in the same shape."""
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
        while len(a):
            a, b = self.find(a), self.find(b)
            apart = a != b
            a, b = a[apart], b[apart]
            # The higher root gets the lowest root that it meets as parent. Edges that this drops are still
            # found apart in the next round.
            np.minimum.at(self._parent, np.maximum(a, b), np.minimum(a, b))
