"""Rows that repeat: which of them an exact search for the nearest rows can leave out.

Of rows that are equal, the k nearest of any row hold the k with the lowest positions only, besides the row
itself. The others would all lie equally far from every query, and a search could not end before it had
compared them all.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from operators.arrays import Ids, Mask, Matrix
from operators.neighbours.geometry import Geometry

VALUES = 1 << 17
"""float64 entries at once: they stay in the cache of a core."""
MIXER = np.uint64(0x9E3779B97F4A7C15)


def first_copies(X: Matrix, geometry: Geometry, most: int) -> Ids | None:
    """Return the positions, ascending, of rows with fewer than ``most`` equal rows before them.

    None if those are all rows. Rows are equal if they compare alike with every other by ``geometry``. Two
    passes over the rows at most; memory: some 32 bytes a row.
    """
    if most >= len(X):
        return None
    digests = _digests(X, geometry)
    order = np.argsort(digests, kind="stable")
    starts = np.flatnonzero(np.diff(digests[order], prepend=~digests[order[:1]]))
    sizes = np.diff(np.append(starts, len(order)))
    large = sizes > most
    if not large.any():
        return None
    starts, sizes = starts[large], sizes[large]
    place = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    members = order[np.repeat(starts, sizes) + place]
    equal = _are_equal(X, geometry, members, np.repeat(order[starts], sizes))
    # Rows that differ may have the same digest by chance; such a set keeps all of its rows.
    whole = np.logical_and.reduceat(equal, np.cumsum(sizes) - sizes)
    kept = np.ones(len(X), bool)
    kept[members[np.repeat(whole, sizes) & (place >= most)]] = False
    return None if kept.all() else np.flatnonzero(kept)


def _digests(X: Matrix, geometry: Geometry) -> npt.NDArray[np.uint64]:
    """Return a digest of each row, which rows that are equal share."""
    factors = np.random.default_rng(0).integers(0, 2**63, X.shape[1], np.uint64) * np.uint64(2) + np.uint64(1)
    found = np.empty(len(X), np.uint64)
    step = max(1, VALUES // X.shape[1])
    for start in range(0, len(X), step):
        exact = geometry.exact(X[start : start + step]) + 0.0  # -0.0 is equal to 0.0
        bits = np.ascontiguousarray(exact).view(np.uint64)
        bits = (bits ^ (bits >> np.uint64(32))) * MIXER
        bits ^= bits >> np.uint64(29)
        found[start : start + step] = (bits * factors).sum(axis=1, dtype=np.uint64)
    return found


def _are_equal(X: Matrix, geometry: Geometry, rows: Ids, others: Ids) -> Mask:
    """Return whether the row at each of some positions equals that at another position."""
    found = np.empty(len(rows), bool)
    step = max(1, VALUES // X.shape[1])
    for start in range(0, len(rows), step):
        some = slice(start, start + step)
        found[some] = (geometry.exact(X[rows[some]]) == geometry.exact(X[others[some]])).all(axis=1)
    return found
