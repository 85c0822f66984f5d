"""Maximum mean discrepancy (MMD) between two parts of a set of rows, and the median heuristic for its
kernel.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from operators.arrays import Float64
from operators.distances import square_distances

BLOCK = 1024
MEDIAN_ROWS = 1000
"""Rows of whose pairwise distances gamma is computed."""


def mmd(
    X: npt.ArrayLike,
    mask: npt.ArrayLike,
    kernel: Literal["linear", "rbf"] = "rbf",
    gamma: float | None = None,
) -> float:
    """Return the MMD between the rows inside and outside a mask.

    Parameters
    ----------
    X : (n, d) array
        Finite numbers, used as they are: scale features first.
    mask : (n,) array of bool
        Neither all False nor all True.
    kernel : {"rbf", "linear"}, default "rbf"
        "linear", <x, x'>, takes O(n d) time; "rbf", exp(-gamma |x - x'|^2), O(n^2 d) time and O(n) memory.
    gamma : float, optional
        Parameter of "rbf". By default 1 / median |x - x'|^2 of up to 1,000 evenly spaced rows.

    Returns
    -------
    float
        |mean phi(X[mask]) - mean phi(X[~mask])|, not its square.

    Raises
    ------
    ValueError
        One part is empty, or X and mask differ in length.

    Notes
    -----
    The biased estimate of Gretton et al., A Kernel Two-Sample Test, JMLR 2012, equation 5. For two parts of a
    and b rows drawn at random from the same rows it is not 0 but about sqrt(scatter / n (1 / a + 1 / b)),
    where scatter is the sum of |phi - mean|^2.

    Examples
    --------
    >>> from operators.metrics import mmd
    >>> mmd([[0.0], [2.0], [5.0], [7.0]], [True, True, False, False], kernel="linear")
    5.0
    """
    rows, inside = np.asarray(X, np.float64), np.asarray(mask, bool)
    if len(rows) != len(inside) or inside.all() or not inside.any():
        raise ValueError(
            f"mmd: the mask has {len(inside)} entries, {int(inside.sum())} of them True, for "
            f"{len(rows)} rows; it must have one entry per row and leave rows on both sides."
        )
    # The coefficients of mean phi(inside) - mean phi(outside).
    signs = np.where(inside, 1 / inside.sum(), -1 / (~inside).sum())
    if kernel == "linear":
        return float(np.linalg.norm(signs @ rows))
    gamma = median_gamma(square_distances(evenly_spaced(rows))) if gamma is None else gamma
    square = 0.0
    for start in range(0, len(rows), BLOCK):
        part = slice(start, start + BLOCK)
        distances = square_distances(rows[part], rows)
        np.exp(-gamma * distances, out=distances)
        square += float(signs[part] @ (distances @ signs))
    return float(np.sqrt(max(square, 0.0)))


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
