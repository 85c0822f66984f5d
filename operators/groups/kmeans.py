"""k-means within each class, in gradient or feature space.

Minimises the sum over rows of ||v - c(v)||^2, c(v) being the nearest of k centres (Lloyd 1957; starts by
k-means++, Arthur and Vassilvitskii 2007). The clustering baseline of GRASP's table 5 (Zeng et al. 2022),
with k = 2 there. The vectors are neither centred nor scaled.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from operators.arrays import Labels
from operators.base import FEATURES, GRADIENT, OperatorParams
from operators.distances import nearest_centres
from operators.groups.kernel import Array, Columns, GroupMethod, GroupResult, State
from operators.groups.params import KMeansParams
from operators.groups.silhouette_choice import ScoredRows, keep_below_distinct, sort_unique
from operators.threads import limit_threads

BLOCK = 4096  # rows converted to float64 at a time
SPACES = {"gradients": GRADIENT, "features": FEATURES}


class KMeans(GroupMethod[KMeansParams]):
    """Splits a class by k-means; a new row goes to the nearest centre."""

    version = 2
    Params: ClassVar[type[OperatorParams]] = KMeansParams

    @property
    def columns(self) -> tuple[str, ...]:
        """Return the column of the vectors that are clustered."""
        return (SPACES[self.params.space],)

    def fit(self, columns: Columns, seed: int) -> GroupResult:
        """Cluster the rows of a class by :func:`fit_kmeans`."""
        params = self.params
        return fit_kmeans(
            columns[self.columns[0]],
            params.k,
            n_init=params.n_init,
            silhouette_rows=params.silhouette_rows,
            random_state=seed,
        )

    def predict(self, state: State, columns: Columns) -> Labels:
        """Return the nearest centre of each row; the first of equals."""
        return nearest_centre(columns[self.columns[0]], state["centres"])


def fit_kmeans(
    X: Array,
    k: int | list[int],
    *,
    n_init: int = 10,
    silhouette_rows: int = 10_000,
    random_state: int = 0,
) -> GroupResult:
    """Find the groups of one class by k-means.

    Of several k the one with the largest mean silhouette is taken, the first of equals. A k as large as
    the number of distinct rows or larger is left out; where none is left, the class is one group.

    Parameters
    ----------
    X : (n, d) float, finite.
    k : number of groups, or several to choose from.
    n_init : starts of each k.
    silhouette_rows : largest number of rows drawn for the silhouette.
    random_state : seed of the starts and the draw.

    Returns
    -------
    labels (n,) int32, state ``centres`` (k, d), scores ``k`` and ``silhouette`` (of several k alone).
    """
    from sklearn.cluster import KMeans as Lloyd

    tried = keep_below_distinct(X, sort_unique(k))
    # One thread, because scikit-learn's threads add up centres in any order; and float64, rounded below,
    # because float32 sums depend on the alignment of the memory.
    wide = X.astype(np.float64)
    with limit_threads(1):
        models = [Lloyd(value, n_init=n_init, random_state=random_state).fit(wide) for value in tried]
    best, scores = 0, dict[str, float]()
    if len(models) > 1:
        silhouettes = ScoredRows(X, silhouette_rows, random_state).silhouettes([m.labels_ for m in models])
        best = int(np.argmax(silhouettes))
        scores["silhouette"] = float(silhouettes[best])
    model: Any = models[best]
    centres: npt.NDArray[Any] = model.cluster_centers_.astype(np.float32)
    state: Mapping[str, Array] = {"centres": centres}
    scores["k"] = float(len(centres))
    return GroupResult(nearest_centre(X, centres), len(centres), state, scores, centres)


def nearest_centre(X: Array, centres: Array) -> Labels:
    """Return the number (n,), int32, of the nearest centre (Euclidean), the first of equals."""
    wide = centres.astype(np.float64)
    labels = np.empty(len(X), np.int32)
    with limit_threads(1):
        for start in range(0, len(X), BLOCK):
            rows = slice(start, start + BLOCK)
            labels[rows] = nearest_centres(X[rows].astype(np.float64), wide)[0]
    return labels
