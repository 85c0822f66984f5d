"""A tree of boxes over vectors: the oldest row near a query, found without comparing it with all rows.

Along orthonormal directions two rows lie no further apart than they do altogether (Cauchy interlacing of
projections: |V(x - y)| <= |x - y|). So rows are described by few coordinates along the principal directions
of a sample, and cut at medians into boxes (Bentley 1975, k-d trees). A box that is further from a query than
the radius holds no near row, and neither does one whose rows are all younger than a near row that is known.
The other rows are compared: by coordinates, then by float32 products with a bound on their rounding, and the
decision is that of float64. The result is that of comparing all pairs, whatever the directions and boxes are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from operators.arrays import Float32, Float64, Ids, Mask, Matrix
from operators.neighbours.geometry import Geometry

DIRECTIONS = 32
"""Coordinates of a row."""
BOXED = 16
"""The coordinates of a row, of those along which rows differ most, by which boxes are cut and bounded."""
SAMPLE = 1024
"""Rows from which the directions are computed."""
LEAF = 256
"""Most rows of a box that is not cut."""
AT_ONCE = 1024
"""Queries that are compared with the rows of a box at once."""
VALUES = 1 << 22
"""float64 entries of pairs that are decided at once: 32 MiB."""
BLOCK = 8192
"""Rows that are projected at once."""
EPS = float(np.finfo(np.float32).eps)

Take = Callable[[Ids], Matrix]
"""Returns the rows (m, p) with some row ids (m,)."""
Admits = Callable[[Ids, Ids], Mask]
"""Returns (m, n) whether a row of some row ids (n,) may be named for the queries at positions (m,)."""


@dataclass(frozen=True, eq=False)
class BoxTree:
    """Rows by their coordinates, in the order of the boxes that hold them.

    Attributes
    ----------
    axes : (1 + k, p) float64: the mean of a sample, and k orthonormal directions.
    at : (n, k) float32 coordinates about the mean.
    ids : (n,) row ids; within a box that is not cut they ascend.
    boxes : (nodes, 2, k) least and greatest coordinates; the parts of the node i are 2 i + 1 and 2 i + 2.
    oldest : (nodes,) smallest row id of each node.
    """

    axes: Float64
    at: Float32
    ids: Ids
    boxes: Float32
    oldest: Ids

    @classmethod
    def load(cls, folder: Path) -> BoxTree:
        """Map what :func:`build_tree` wrote into memory."""
        paths = (folder / f"{name}.npy" for name in cls.__annotations__)
        # A view of a mapped array is slower to cut than a plain one.
        return cls(*(np.asarray(np.load(path, mmap_mode="r")) for path in paths))

    def coordinates(self, X: Matrix) -> Float32:
        """Return the coordinates (m, k) of rows (m, p)."""
        return project(X, self.axes)


def choose_axes(X: Matrix) -> Float64:
    """Return the mean of unit rows (m, p) and their k principal directions, as ``axes`` (1 + k, p)."""
    centre = X.mean(axis=0)
    directions = np.linalg.svd(X - centre, full_matrices=False)[2][:DIRECTIONS]
    return np.concatenate([centre[None], directions])


def project(X: Matrix, axes: Float64) -> Float32:
    """Return the coordinates (m, k), float32, of the directions of rows (m, p); zero rows have none."""
    geometry = Geometry.of(axes, "cosine")
    found = np.empty((len(X), len(axes) - 1), np.float32)
    for start in range(0, len(X), BLOCK):
        some = slice(start, start + BLOCK)
        found[some] = (geometry.exact(X[some]) - axes[0]) @ axes[1:].T
    return found


def n_levels(n: int) -> int:
    """Return how often n rows are cut into halves."""
    return max(0, int(np.ceil(np.log2(max(1, n) / LEAF))))


def build_tree(folder: Path, axes: Float64, at: Float32, ids: Ids) -> None:
    """Write the tree of rows with coordinates (n, k) and ascending row ids (n,), n >= 1, into a folder.

    Memory: 100 bytes for each row, beside what is given.
    """
    levels = n_levels(len(ids))
    order = np.arange(len(ids))
    boxes = np.empty((2 ** (levels + 1) - 1, 2, min(BOXED, at.shape[1])), np.float32)
    oldest = np.empty(len(boxes), np.int64)
    waiting = [(0, 0, len(ids), levels)]
    while waiting:
        node, start, end, left = waiting.pop()
        some = order[start:end]
        rows = at[some, : boxes.shape[2]]
        boxes[node] = rows.min(axis=0), rows.max(axis=0)
        oldest[node] = ids[some.min()]
        if not left:
            order[start:end] = np.sort(some)
            continue
        middle = (start + end) // 2
        widest = int(np.argmax(boxes[node, 1] - boxes[node, 0]))
        order[start:end] = some[np.argpartition(rows[:, widest], middle - start)]
        waiting += [(2 * node + 1, start, middle, left - 1), (2 * node + 2, middle, end, left - 1)]
    folder.mkdir(exist_ok=True)
    for name, values in (("axes", axes), ("ids", ids[order]), ("boxes", boxes), ("oldest", oldest)):
        np.save(folder / f"{name}.npy", values)
    ordered = np.lib.format.open_memmap(folder / "at.npy", "w+", np.float32, at.shape)
    for start in range(0, len(ids), BLOCK):
        ordered[start : start + BLOCK] = at[order[start : start + BLOCK]]
    ordered.flush()


class OldestNear:
    """The oldest near row of each of some queries, among older rows, over one tree after another.

    Attributes
    ----------
    of : (m,) row id of the oldest near row that is known; the query's own where none is.
    distances : (m,) float64 distance to that row.
    """

    def __init__(
        self, X: Matrix, ids: Ids, distance: float, take: Take, admits: Admits | None = None
    ) -> None:
        """Take queries (m, p) with their row ids, the largest distance (1 - cos), and a reader of rows.

        ``admits`` says which rows are looked for, by default all that are older.
        """
        self._X, self._take, self._limit, self._admits = X, take, distance, admits
        self._geometry = Geometry.of(X, "cosine")
        self._prepared = np.empty(X.shape, np.float32)
        for start in range(0, len(X), BLOCK):
            self._prepared[start : start + BLOCK] = self._geometry.prepared(X[start : start + BLOCK])
        # A zero row has no direction, and the distance 1 to every other one.
        has_any = self._prepared.any(axis=1) if distance < 1 else np.ones(len(X), np.bool_)
        self._asked = np.flatnonzero(has_any)
        # |u - v|^2 <= 2 (1 - u v) for rows of length 1 or 0; the rest covers the rounding of coordinates.
        self._radius = float(np.sqrt(2 * (distance + 1e-12)) + 1e-6)
        self.of, self.distances = ids.copy(), np.zeros(len(ids))

    def search(self, tree: BoxTree) -> None:
        """Look for older near rows in a tree; the half with the older rows is looked at first."""
        at = tree.coordinates(self._X)
        boxed = np.ascontiguousarray(at[:, : tree.boxes.shape[2]])
        reach = self._radius**2 * (1 + 1e-5)
        waiting = [(0, 0, len(tree.ids), n_levels(len(tree.ids)), self._asked)]
        while waiting:
            node, start, end, left, some = waiting.pop()
            some = some[self.of[some] > tree.oldest[node]]
            if not len(some):
                continue
            low, high = tree.boxes[node]
            here = boxed[some]
            apart = np.maximum(np.maximum(low - here, here - high), 0)
            some = some[np.einsum("ij,ij->i", apart, apart) <= reach]
            if not len(some):
                continue
            if not left:
                self._compare(tree, slice(start, end), at, some)
                continue
            middle, first = (start + end) // 2, 2 * node + 1
            halves = [(first, start, middle, left - 1, some), (first + 1, middle, end, left - 1, some)]
            halves.sort(key=lambda half: -int(tree.oldest[half[0]]))
            waiting += halves

    def _compare(self, tree: BoxTree, box: slice, at: Float32, some: Ids) -> None:
        """Compare queries, at positions ``some``, with the rows of a box."""
        ids = np.array(tree.ids[box])
        theirs = _with_norms(tree.at[box], right=True)
        for start in range(0, len(some), AT_ONCE):
            part = some[start : start + AT_ONCE]
            own = _with_norms(at[part], right=False)
            error = -(own.shape[1] + 16) * EPS * (own[:, -1].min() + theirs[:, -2].min())
            near = own @ theirs.T >= -(self._radius**2) / 2 - error
            near &= ids < self.of[part][:, None]
            if self._admits and near.any():
                near &= self._admits(part, ids)
            rows, cols = near.any(axis=1), near.any(axis=0)
            if rows.any():
                self._decide(part[rows], ids[cols], near[rows][:, cols])

    def _decide(self, some: Ids, ids: Ids, near: Mask) -> None:
        """Compare queries with rows of ascending ids where ``near``: in float32, the first in float64."""
        rows = self._take(ids)
        exact, prepared = self._geometry.exact(rows), self._geometry.prepared(rows)
        own = self._prepared[some]
        near &= 1.0 - own @ prepared.T <= self._limit + self._geometry.error(own)
        step = max(1, VALUES // rows.shape[1])
        open_ = np.flatnonzero(near.any(axis=1))
        while len(open_):
            kept = []
            for start in range(0, len(open_), step):
                part = open_[start : start + step]
                first = near[part].argmax(axis=1)
                measures = self._geometry.measures(self._geometry.exact(self._X[some[part]]), exact[first])
                hit = measures <= self._limit
                found = some[part[hit]]
                self.of[found], self.distances[found] = ids[first[hit]], measures[hit]
                near[part[~hit], first[~hit]] = False
                kept.append(part[~hit])
            open_ = np.concatenate(kept)
            open_ = open_[near[open_].any(axis=1)]


def _with_norms(at: Float32, *, right: bool) -> Float32:
    """Return coordinates with two more columns: the product of a left and a right row is -|x - y|^2 / 2."""
    half = np.einsum("ij,ij->i", at, at)[:, None] / -2
    one = np.ones_like(half)
    return np.concatenate([at, half, one] if right else [at, one, half], axis=1)
