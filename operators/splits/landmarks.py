"""Landmarks of the Nystrom approximation, from a sample of the rows."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

Way: TypeAlias = Literal["uniform", "kmeans", "density"]
NEIGHBOURS = 10


def pick_landmarks(
    sample: npt.NDArray[Any], count: int, way: Way, seed: int, standardize: bool = True
) -> npt.NDArray[Any]:
    """Rows, or centres between rows, that span the approximation.

    Parameters
    ----------
    sample : (s, d) rows to choose from.
    count : how many; all rows where there are no more.
    way : "uniform"; "kmeans", centres of k-means by FAISS where it is installed, else by scikit-learn (Zhang,
        Tsang, Kwok 2008); "density", rows drawn by the inverse of the density among their 10 nearest
        neighbours (needs FAISS).
    seed : of the draws.
    standardize : distances are of standardised rows; the landmarks are in the sample's units.

    Returns
    -------
    (q, d), q <= count.
    """
    if count >= len(sample):
        return sample
    random = np.random.default_rng(seed)
    if way == "uniform":
        return sample[np.sort(random.choice(len(sample), count, replace=False))]
    scale = (
        np.where(sample.std(axis=0) > 0, sample.std(axis=0), 1.0) if standardize else np.ones(sample.shape[1])
    )
    z = np.ascontiguousarray(sample / scale, np.float32)
    if way == "kmeans":
        return np.asarray(np.unique(_centres(z, count, seed), axis=0) * scale)
    from operators.neighbours import NeighbourGraph, density

    graph = NeighbourGraph(n_neighbors=min(NEIGHBOURS, len(z) - 1), random_state=seed).fit(z).graph_
    sparse = 1 / density(graph)
    return sample[np.sort(random.choice(len(z), count, replace=False, p=sparse / sparse.sum()))]


def _centres(z: npt.NDArray[np.float32], count: int, seed: int) -> npt.NDArray[Any]:
    try:
        from operators.neighbours.faiss_index import load_faiss, threads

        faiss = load_faiss()
    except ImportError:
        from sklearn.cluster import KMeans

        found: npt.NDArray[Any] = KMeans(count, n_init=1, random_state=seed).fit(z).cluster_centers_
        return found
    with threads(1):
        clusters = faiss.Kmeans(z.shape[1], count, niter=20, seed=seed % 2**31, min_points_per_centroid=1)
        clusters.train(z)
    return np.asarray(clusters.centroids)
