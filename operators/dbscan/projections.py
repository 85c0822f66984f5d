"""Low-dimensional coordinates of rows, whose distances never exceed the rows' own.

With orthonormal directions V and the norm r of what V leaves of a row,
|V'(x - y)|^2 + (r_x - r_y)^2 <= |x - y|^2.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Float64 = npt.NDArray[np.float64]

DIRECTIONS = 8
SWEEPS = 2


def coordinates(vectors: npt.NDArray[Any], directions: Float64) -> Float64:
    """(n, k + 1): each row along k orthonormal directions, and the norm of what they leave of it."""
    at = np.empty((len(vectors), directions.shape[1] + 1))
    for start in range(0, len(vectors), 8192):
        some = slice(start, start + 8192)
        rows = vectors[some].astype(np.float64)
        along = rows @ directions
        left = np.einsum("ij,ij->i", rows, rows) - np.einsum("ij,ij->i", along, along)
        at[some, :-1] = along
        at[some, -1] = np.sqrt(np.maximum(left, 0.0))
    return at


def principal(sample: Float64, random: np.random.Generator) -> Float64:
    """(p, k) orthonormal directions of largest second moment, by subspace iteration."""
    k = min(DIRECTIONS, sample.shape[1])
    guess = random.normal(size=(sample.shape[1], k))
    for _ in range(SWEEPS):
        guess = np.linalg.qr(sample.T @ (sample @ guess))[0]
    # Any orthonormal directions give a true bound; a rank-deficient sample needs no special case.
    return np.asarray(guess)
