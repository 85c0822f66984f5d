"""Squared Euclidean distances by inner products, in float64, the nearest of some centres, and the median
heuristic for the width of an RBF kernel.

Searches that need only some distances have their own forms: ``dbscan`` and ``neighbours`` skip most of them,
``grasp`` decides in float64 what float32 cannot, and ``splits`` works with a kernel.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from operators.arrays import Float64, Index

MEDIAN_ROWS = 1000
"""Rows of whose pairwise distances gamma is computed."""


def square_distances(rows: npt.NDArray[Any], others: npt.NDArray[Any] | None = None) -> Float64:
    """Return the squared Euclidean distances (n, m), float64, >= 0, of rows (n, d) from others (m, d).

    Without ``others`` they are those between the rows, with exact zeros on the diagonal.

    Examples
    --------
    >>> square_distances(np.array([[0.0, 0.0], [3.0, 4.0]])).tolist()
    [[0.0, 25.0], [25.0, 0.0]]
    """
    left = np.asarray(rows, np.float64)
    right = left if others is None else np.asarray(others, np.float64)
    found = _squares(left)[:, None] + _squares(right) - 2 * (left @ right.T)
    if others is None:
        np.fill_diagonal(found, 0)
    return np.asarray(np.maximum(found, 0, out=found))


def nearest_centres(rows: Float64, centres: Float64) -> tuple[Index, Float64]:
    """Find the nearest centre of each row.

    Parameters
    ----------
    rows : (n, d).
    centres : (k, d), k >= 1.

    Returns
    -------
    labels (n,), the first of equally near centres; and (n,) the squared distance less the row's own squared
    norm, which rounding may make a little too small.
    """
    gaps = _squares(centres) - 2 * (rows @ centres.T)
    return gaps.argmin(axis=1), gaps.min(axis=1)


def evenly_spaced(rows: npt.NDArray[Any], count: int = MEDIAN_ROWS) -> npt.NDArray[Any]:
    """Return ``count`` evenly spaced rows of rows (n, d), or all if there are no more."""
    return rows[np.linspace(0, len(rows) - 1, min(count, len(rows))).astype(np.int64)]


def median_gamma(squares: Float64) -> float:
    """Return gamma of the RBF kernel by the median heuristic: 1 / median of the squared distances (n, n).

    If at least half of all pairs have the distance 0, the mean replaces the median; if all have, gamma is 1.
    """
    pairs = squares[np.triu_indices(len(squares), 1)]
    middle = float(np.median(pairs)) if len(pairs) else 0.0
    if middle == 0:
        middle = float(pairs.mean()) if len(pairs) else 0.0
    return 1 / middle if middle else 1.0


def _squares(rows: Float64) -> Float64:
    return np.asarray(np.einsum("ij,ij->i", rows, rows))
