"""Start of a fit from a sample of the rows: landmarks, the feature map, and the first centroids.

The same code serves rows in memory and rows in shards.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from operators.arrays import Float32, Int64
from operators.hashing import draw_rows
from operators.splits.features import FeatureMap, Kernel, make_map
from operators.splits.in_memory import FeatureRows, best_start
from operators.splits.kernel import Centroids
from operators.splits.selection import Tolerance, make_selector
from operators.spread import mean_and_scale
from operators.threads import limit_threads

LandmarkMethod: TypeAlias = Literal["uniform", "kmeans", "density"]
NEIGHBOURS = 10


def pick_landmarks(
    sample: npt.NDArray[Any], count: int, method: LandmarkMethod, seed: int, standardize: bool = True
) -> npt.NDArray[Any]:
    """Pick the rows, or centres between rows, that span the Nystrom approximation.

    Parameters
    ----------
    sample : (s, d) rows to choose from.
    count : how many; all rows where there are no more.
    method : "uniform"; "kmeans", centres of k-means (Zhang, Tsang, Kwok 2008); "density", rows drawn by the
        inverse of the density among their 10 nearest neighbours (needs FAISS).
    seed : of the draws.
    standardize : distances are of standardised rows; the landmarks are in the sample's units.

    Returns
    -------
    (q, d) landmarks in the units of the sample, q <= count.
    """
    if count >= len(sample):
        return sample
    random = np.random.default_rng(seed)
    if method == "uniform":
        return sample[np.sort(random.choice(len(sample), count, replace=False))]
    scale = mean_and_scale(sample)[1] if standardize else np.ones(sample.shape[1])
    z = np.ascontiguousarray(sample / scale, np.float32)
    if method == "kmeans":
        return np.asarray(np.unique(_centres(z, count, seed), axis=0) * scale)
    from operators.neighbours import NeighbourGraph, density

    graph = NeighbourGraph(n_neighbors=min(NEIGHBOURS, len(z) - 1), random_state=seed).fit(z).graph_
    sparse = 1 / density(graph)
    return sample[np.sort(random.choice(len(z), count, replace=False, p=sparse / sparse.sum()))]


def _centres(z: npt.NDArray[np.float32], count: int, seed: int) -> npt.NDArray[Any]:
    """Return the centres of k-means by scikit-learn, which every installation has: the same on all."""
    from sklearn.cluster import KMeans

    with limit_threads(1):
        found: npt.NDArray[Any] = KMeans(count, n_init=1, random_state=seed % 2**32).fit(z).cluster_centers_
    return found


SAMPLE = 5_000
"""Size of the sample on which starts are tried and from which scale, gamma and landmarks are computed."""


@dataclass(frozen=True, eq=False, kw_only=True)
class SplitSettings:
    """Parameters of a fit; see :class:`operators.splits.ConstrainedKernelKMeans`."""

    holdout: float
    kernel: Kernel
    gamma: float | None
    landmarks: int | npt.NDArray[Any] | None
    landmarks_by: LandmarkMethod
    standardize: bool
    tolerance: Tolerance
    n_init: int
    max_iter: int

    def make_feature_map(self, sample: npt.NDArray[Any], seed: int) -> FeatureMap:
        """Make the feature map of a sample (s, d). Raises ValueError for a degenerate kernel."""
        landmarks = self.landmarks
        if self.kernel == "rbf" and isinstance(landmarks, int):
            landmarks = pick_landmarks(sample, landmarks, self.landmarks_by, seed, self.standardize)
        return make_map(sample, self.kernel, self.gamma, landmarks, self.standardize)


class Start(NamedTuple):
    """Feature map, first centroids, and the MMD (n_init,) that each start ended with on the sample."""

    feature_map: FeatureMap
    centroids: Centroids
    mmds: list[float]


def make_start(
    sample: Callable[[int], tuple[npt.NDArray[Any], Int64]],
    n: int,
    settings: SplitSettings,
    random: np.random.Generator,
) -> Start:
    """Make the feature map and the first centroids for n rows.

    ``sample`` returns, for a seed, the features (s, d) and groups (s, k) of the rows that
    :func:`sample_rows` picks.
    """
    X, codes = sample(int(random.integers(2**63)))
    feature_map = settings.make_feature_map(X, int(random.integers(2**31)))
    centroids, start_mmds = _try_starts(feature_map.features(X), codes, settings, random, whole=len(X) == n)
    return Start(feature_map, centroids, start_mmds)


def generator(random_state: Any) -> np.random.Generator:
    """Return a NumPy generator seeded by ``random_state``: an int, a RandomState or None."""
    from sklearn.utils import check_random_state

    return np.random.default_rng(check_random_state(random_state).randint(2**31))


def sample_rows(row_ids: Int64, seed: int) -> Int64:
    """Return the ascending positions of the 5,000 rows with the smallest hashes, or of all if there are
    fewer.
    """
    return draw_rows(row_ids, SAMPLE, seed)


def _try_starts(
    phi: Float32, codes: Int64, settings: SplitSettings, random: np.random.Generator, *, whole: bool
) -> tuple[Centroids, list[float]]:
    """Return centroids to continue with, and the MMD of each start.

    They are the last centroids of the best start on a sample, and its first centroids if the sample is all of
    the rows (``whole``), so that the fit that follows records every step.
    """
    names, first = np.unique(codes[:, 0], return_inverse=True)
    tolerance = settings.tolerance
    if isinstance(tolerance, Mapping):
        tolerance = {place: tolerance.get(int(name), 0.0) for place, name in enumerate(names.tolist())}
    try:
        selector = make_selector(np.column_stack([first, codes[:, 1:]]), settings.holdout, tolerance)
    except ValueError:
        if whole:
            raise
        # The groups are so small that the sample holds no whole row of their shares. The start ignores them;
        # the fit on all rows keeps their shares.
        selector = make_selector(np.zeros((len(phi), 1), np.int64), settings.holdout, 0.0)
    start, fit, start_mmds = best_start(
        FeatureRows(phi, selector), settings.n_init, settings.max_iter, random
    )
    return (start if whole else fit.centroids), start_mmds
