"""Choosing a number of clusters by silhouette, without group labels. Used by k-means and GEORGE."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from operators.arrays import Float64
from operators.groups.kernel import Array


def sort_unique(values: int | list[int]) -> list[int]:
    """Return one value or several, without repeats, in ascending order."""
    return sorted(set(values)) if isinstance(values, list) else [values]


def keep_below_distinct(X: Array, values: list[int]) -> list[int]:
    """Keep those of ascending ``values`` that are smaller than the number of distinct rows of X; else [1]."""
    left, n_distinct = X, 0
    while len(left) and n_distinct <= values[-1]:
        left = left[(left != left[0]).any(axis=1)]
        n_distinct += 1
    return [value for value in values if value < n_distinct] or [1]


class ScoredRows:
    """Rows on which labelings are scored: all, or ``limit`` drawn at random.

    A silhouette takes the square of the number of rows, so large classes are scored on a part.

    Parameters
    ----------
    X : (n, d) vectors.
    limit : largest number of rows to keep.
    random_state : seed of the draw.
    """

    def __init__(self, X: Array, limit: int, random_state: int) -> None:
        self.rows: npt.NDArray[np.intp] = np.arange(len(X))
        if len(X) > limit:
            drawn = np.random.default_rng(random_state).choice(len(X), limit, replace=False)
            self.rows = np.sort(drawn)
        self.X = X[self.rows]

    def silhouettes(self, labelings: Sequence[Array]) -> Float64:
        """Return the mean Euclidean silhouette (m,) of each labeling of all n rows; -1 if it is undefined."""
        from operators.metrics import silhouette_grid

        return silhouette_grid(self.X, np.stack([labels[self.rows] for labels in labelings]))

    def coefficients(self, labels: Array) -> Float64:
        """Return the silhouette coefficient of each kept row; zeros if it is undefined."""
        from sklearn.metrics import silhouette_samples

        kept = labels[self.rows]
        if not 2 <= len(np.unique(kept)) < len(kept):
            return np.zeros(len(kept))
        return np.asarray(silhouette_samples(self.X, kept), np.float64)
