"""Maximum mean discrepancy between two parts of a set of rows."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import numpy.typing as npt

BLOCK = 1024


def mmd(
    X: npt.ArrayLike,
    mask: npt.ArrayLike,
    kernel: Literal["linear", "rbf"] = "rbf",
    gamma: float | None = None,
) -> float:
    """Distance between the mean embeddings of the rows inside and outside a mask; 0 where they are alike.

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
    gamma = _median_gamma(rows) if gamma is None else gamma
    lengths = np.einsum("ij,ij->i", rows, rows)
    square = 0.0
    for start in range(0, len(rows), BLOCK):
        part = slice(start, start + BLOCK)
        distances = lengths[part, None] + lengths - 2 * (rows[part] @ rows.T)
        np.maximum(distances, 0, out=distances)
        np.exp(-gamma * distances, out=distances)
        square += float(signs[part] @ (distances @ signs))
    return float(np.sqrt(max(square, 0.0)))


def _median_gamma(rows: npt.NDArray[Any]) -> float:
    some = rows[np.linspace(0, len(rows) - 1, min(1000, len(rows))).astype(np.int64)]
    upper = np.triu_indices(len(some), 1)
    lengths = np.einsum("ij,ij->i", some, some)
    middle = float(np.median((lengths[:, None] + lengths - 2 * (some @ some.T))[upper]))
    return 1 / middle if middle > 0 else 1.0
