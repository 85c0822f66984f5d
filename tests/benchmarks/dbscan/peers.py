"""DBSCAN by everyone: ours, the plain product, and the peers. Each imports its library when it is called.

All take (n, p) float32 rows and a :class:`Setting` and return (n,) labels, -1 for noise.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

NPROBE = 8
NEIGHBOURS = 32  # kept per row in the HNSW graph; more than min_samples, or clusters fall apart
AT_ONCE = 1 << 24  # pairs reported by FAISS at a time
MAX_COLUMNS = 20  # that the PyPI package dbscan takes


@dataclass(frozen=True)
class Setting:
    """Euclidean eps, min_samples, and whether rows have length 1, as cosine peers need."""

    eps: float
    min_samples: int = 10
    unit: bool = True


@dataclass(frozen=True)
class Peer:
    """A peer: how it is run, and what it is expected to cost.

    Attributes
    ----------
    run : rows and setting -> labels.
    module : what must be importable for it, None where it is ours.
    exact : its labels are DBSCAN's, up to rounding at eps.
    bytes_per_pair, bytes_per_neighbour : what it holds at its peak, for all n^2 pairs and for those within
        eps. Measured at 20,000 rows; they only decide whether it is tried at all.
    power : its seconds grow with n to this power.
    """

    run: Callable[[Any, Setting], Any]
    module: str | None
    exact: bool = True
    bytes_per_pair: float = 0.0
    bytes_per_neighbour: float = 0.0
    power: float = 2.0


def refusal(name: str, d: int, unit: bool) -> str:
    """Return the reason for which a peer cannot take such rows at all, "" if it can."""
    if name == "dbscan (PyPI)" and d >= MAX_COLUMNS:
        return f"d > {MAX_COLUMNS}"
    return "unit rows only" if name == "scikit-learn cosine" and not unit else ""


def ours(X: Any, setting: Setting) -> Any:
    import torch

    from operators.dbscan import DBSCAN

    torch.set_num_threads(_threads())
    return DBSCAN(setting.eps, setting.min_samples).fit_predict(X)


def product(X: Any, setting: Setting) -> Any:
    import torch

    from tests.benchmarks.dbscan.two_pass import two_pass

    torch.set_num_threads(_threads())
    return two_pass(X, setting.eps, setting.min_samples)


def sklearn_euclid(X: Any, setting: Setting) -> Any:
    from sklearn.cluster import DBSCAN

    return DBSCAN(eps=setting.eps, min_samples=setting.min_samples).fit_predict(X)


def sklearn_cosine(X: Any, setting: Setting) -> Any:
    from sklearn.cluster import DBSCAN

    eps = setting.eps**2 / 2
    return DBSCAN(eps=eps, min_samples=setting.min_samples, metric="cosine").fit_predict(X)


def sklearn_precomputed(X: Any, setting: Setting) -> Any:
    from sklearn.cluster import DBSCAN
    from sklearn.metrics import pairwise_distances

    peer = DBSCAN(eps=setting.eps, min_samples=setting.min_samples, metric="precomputed")
    return peer.fit_predict(pairwise_distances(X))


def intelex(X: Any, setting: Setting) -> Any:
    from sklearnex.cluster import DBSCAN

    return DBSCAN(eps=setting.eps, min_samples=setting.min_samples, n_jobs=_threads()).fit(X).labels_


def dbscan_pypi(X: Any, setting: Setting) -> Any:
    from dbscan import DBSCAN

    labels, _ = DBSCAN(X.astype(np.float64), eps=setting.eps, min_samples=setting.min_samples)
    return labels


def faiss_flat(X: Any, setting: Setting) -> Any:
    faiss = _faiss()
    index = faiss.IndexFlatL2(X.shape[1])
    index.add(X)
    return _streamed(index, X, setting)


def faiss_ivf(X: Any, setting: Setting) -> Any:
    faiss = _faiss()
    lists = max(1, int(len(X) ** 0.5))
    index = faiss.IndexIVFFlat(faiss.IndexFlatL2(X.shape[1]), X.shape[1], lists)
    index.train(X[: 64 * lists])
    index.add(X)
    index.nprobe = NPROBE
    return _streamed(index, X, setting)


def faiss_hnsw(X: Any, setting: Setting) -> Any:
    """A graph of nearest neighbours: exact densities if it is, but clusters joined by few edges."""
    faiss = _faiss()
    index = faiss.IndexHNSWFlat(X.shape[1], 16)
    index.add(X)
    index.hnsw.efSearch = 64
    gaps, cols = index.search(X, NEIGHBOURS)
    near = (gaps <= setting.eps**2) & (cols >= 0)
    cores = near.sum(axis=1) >= setting.min_samples
    rows = np.repeat(np.arange(len(X)), near.sum(axis=1))
    return _labels(cores, lambda: iter([(rows, cols[near])]))


def single_fit(X: Any, setting: Setting) -> Any:
    """One cell of the grid by ours."""
    import torch

    from operators.dbscan import DBSCAN

    torch.set_num_threads(_threads())
    return DBSCAN(setting.eps**2 / 2, setting.min_samples, "centered_cosine").fit_predict(X)


def fit_each_cell(X: Any, _: Setting) -> None:
    """Every cell of the grid by ours, each on its own."""
    from operators.grasp.selection import EPS_GRID, MIN_SAMPLES_GRID

    for eps, min_samples in itertools.product(EPS_GRID, MIN_SAMPLES_GRID):
        single_fit(X, Setting((2 * eps) ** 0.5, min_samples))


def grid(X: Any, setting: Setting) -> Any:
    """The paper's grid of 13 x 8 cells and the choice among them, by ours."""
    import torch

    from operators.grasp import GroupInference
    from operators.grasp.selection import MIN_SAMPLES_GRID

    torch.set_num_threads(_threads())
    inference = GroupInference(
        min_samples_grid=MIN_SAMPLES_GRID, fit_rows=None, min_rows=0, min_share=0.0, random_state=0
    )
    return inference.fit(X, np.zeros(len(X), np.intp)).labels_


def sklearn_cell(X: Any, setting: Setting) -> Any:
    """One cell and its silhouette by scikit-learn, of rows less their mean."""
    from sklearn.metrics import silhouette_score

    X = X - X.mean(axis=0)
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    labels = sklearn_cosine(X, setting)
    if len(np.unique(labels)) > 1:
        silhouette_score(X, labels)
    return labels


def _streamed(index: Any, X: Any, setting: Setting) -> Any:
    """Ranges of some rows at a time, once to count and once to join: the lists are never all held."""
    size = max(1, AT_ONCE // len(X))

    def ranges() -> Iterator[tuple[int, Any, Any]]:
        for start in range(0, len(X), size):
            limits, _, cols = index.range_search(X[start : start + size], setting.eps**2)
            yield start, np.diff(limits.astype(np.int64)), cols

    degrees = np.concatenate([counts for _, counts, _ in ranges()])

    def edges() -> Iterator[tuple[Any, Any]]:
        for start, counts, cols in ranges():
            yield np.repeat(np.arange(start, start + len(counts)), counts), cols

    return _labels(degrees >= setting.min_samples, edges)


def _labels(cores: Any, edges: Callable[[], Iterator[tuple[Any, Any]]]) -> Any:
    """Clusters in the order of their lowest core sample; a border row joins the lowest it touches."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    n, roots, kept = len(cores), np.arange(len(cores)), []
    for rows, cols in edges():
        apart = roots[rows] != roots[cols]  # few, once the large cluster hangs together
        rows, cols = rows[apart], cols[apart]
        reached = cores[cols]
        border, joins = ~cores[rows] & reached, cores[rows] & reached
        kept.append((rows[border], cols[border]))
        if joins.any():
            graph = coo_array((np.ones(joins.sum(), bool), (roots[rows[joins]], roots[cols[joins]])), (n, n))
            roots = _named(connected_components(graph, directed=False)[1])[roots]
    found, first, members = np.unique(roots[cores], return_index=True, return_inverse=True)
    number = np.empty(len(found), np.intp)
    number[np.argsort(first)] = np.arange(len(found))
    labels = np.full(n, n)
    labels[cores] = number[members]
    for rows, cols in kept:
        np.minimum.at(labels, rows, labels[cols])
    return np.where(labels == n, -1, labels)


def _named(components: Any) -> Any:
    """Components named by their lowest member: a row that stands alone keeps its own name."""
    return np.unique(components, return_index=True)[1][components]


def _faiss() -> Any:
    import faiss

    faiss.omp_set_num_threads(_threads())
    return faiss


def _threads() -> int:
    import os

    return int(os.environ.get("OMP_NUM_THREADS", "1"))


PEERS = {
    "ours": Peer(ours, None),
    "two-pass product": Peer(product, None),
    "scikit-learn": Peer(sklearn_euclid, "sklearn", bytes_per_neighbour=18),
    "scikit-learn cosine": Peer(sklearn_cosine, "sklearn", bytes_per_neighbour=18),
    "scikit-learn precomputed": Peer(
        sklearn_precomputed, "sklearn", bytes_per_pair=8, bytes_per_neighbour=18
    ),
    "scikit-learn-intelex": Peer(intelex, "sklearnex", bytes_per_neighbour=7),
    "FAISS flat": Peer(faiss_flat, "faiss"),
    "FAISS IVF": Peer(faiss_ivf, "faiss", exact=False, power=1.5),
    "FAISS HNSW": Peer(faiss_hnsw, "faiss", exact=False, power=1.1),
    "dbscan (PyPI)": Peer(dbscan_pypi, "dbscan", exact=False),
}
