"""Maximum mean discrepancy (MMD) between two parts of a set of rows; the median heuristic of its kernel."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from operators.arrays import Float64
from operators.distances import square_distances

BLOCK = 1024
PAIRED = 1000
"""Rows whose pairwise distances set gamma."""


def mmd(
    X: npt.ArrayLike,
    mask: npt.ArrayLike,
    kernel: Literal["linear", "rbf"] = "rbf",
    gamma: float | None = None,
) -> float:
    """Return the distance between the mean embeddings of the rows inside and outside a mask.

    The biased estimate |mean phi(X[mask]) - mean phi(X[~mask])|, not its square, of Gretton et al., A Kernel
    Two-Sample Test, JMLR 2012, eq. 5. Two parts drawn at random from the same rows do not have 0 but about
    sqrt(scatter / n (1 / a + 1 / b)) for parts of a and b rows.

    Parameters
    ----------
    X : (n, d) finite numbers, used as they are: scale features first.
    mask : (n,) bool, neither all False nor all True.
    kernel : "linear", <x, x'>, in O(n d); or "rbf" (default), exp(-gamma |x - x'|^2), in O(n^2 d) time
        and O(n) memory.
    gamma : of "rbf"; default 1 / median |x - x'|^2 of up to 1,000 evenly spaced rows.

    Raises
    ------
    ValueError
        One part is empty, or X and mask differ in length.
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


def evenly_spaced(rows: npt.NDArray[Any], most: int = PAIRED) -> npt.NDArray[Any]:
    """Return at most ``most`` evenly spaced rows of rows (n, d)."""
    return rows[np.linspace(0, len(rows) - 1, min(most, len(rows))).astype(np.int64)]


def median_gamma(squares: Float64) -> float:
    """Return the RBF kernel's gamma by the median heuristic, 1 / median of squared distances (n, n) of pairs.

    Where half of all pairs are equal, the mean sets the scale instead; where all are equal, gamma is 1.
    """
    pairs = squares[np.triu_indices(len(squares), 1)]
    middle = float(np.median(pairs)) if len(pairs) else 0.0
    if middle == 0:
        middle = float(pairs.mean()) if len(pairs) else 0.0
    return 1 / middle if middle else 1.0
