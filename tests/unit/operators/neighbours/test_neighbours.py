"""Neighbour graphs against scikit-learn and against every pair compared one by one."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import sklearn.cluster
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.spatial.distance import cdist
from sklearn.neighbors import radius_neighbors_graph

from operators.dbscan import DBSCAN, approximate_dbscan
from operators.neighbours import NeighbourGraph
from operators.neighbours import faiss_index as index_module
from operators.neighbours import kernel as kernel_module
from tests.unit.operators.dbscan.test_dbscan import exact_directions, integer_rows

DTYPES = st.sampled_from([np.float32, np.float64])
BLOCKS = st.integers(1, 9)

# Squared distances of a small grid are whole numbers, so these radii meet many of them exactly.
GRID_EPS = st.sampled_from([0.0, 0.5, 1.0, math.sqrt(2), 2.0, 2.5, 3.0, 100.0])
# Unit rows with entries 0, 1/2, 1: every cosine is a multiple of 1/4 and these radii are ties.
COSINE_EPS = st.sampled_from([0.0, 0.125, 0.25, 0.5, 0.75, 1.0, 1.25, 2.0, 3.0])


@pytest.fixture(autouse=True)
def sizes(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """Small blocks, so that small data have several."""
    monkeypatch.setattr(kernel_module, "QUERIES", 8)
    monkeypatch.setattr(kernel_module, "FEWEST", 1)
    monkeypatch.setattr(kernel_module, "SPARE", 1)
    return monkeypatch


@contextmanager
def blocks_of(size: int) -> Iterator[None]:
    """Pieces of this many queries, and of few pairs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernel_module, "QUERIES", size)
        patch.setattr(kernel_module, "VALUES", 2 * size)
        yield


def exact_distances(X: Any, metric: str) -> Any:
    """Every pair in float64, directly."""
    X = X.astype(np.float64)
    if metric == "euclidean":
        return cdist(X, X)
    if metric == "centered_cosine":
        X = X - X.mean(0)
    norm = np.linalg.norm(X, axis=1, keepdims=True)
    unit = np.divide(X, norm, out=np.zeros_like(X), where=norm > 0)
    return np.clip(1 - unit @ unit.T, 0, 2)


def assert_edges(graph: Any, wanted: Any, distances: Any) -> None:
    """``wanted`` (n, m) bool: the edges there should be, in CSR order."""
    rows, cols = np.nonzero(wanted)
    np.testing.assert_array_equal(graph.indptr, np.concatenate([[0], np.cumsum(wanted.sum(1))]))
    np.testing.assert_array_equal(graph.indices, cols)
    np.testing.assert_allclose(graph.distances, distances[rows, cols], rtol=1e-6, atol=1e-7)
    assert (graph.indptr.dtype, graph.indices.dtype, graph.distances.dtype) == (
        np.int64,
        np.int64,
        np.float32,
    )


def assert_scikit_learns(graph: Any, theirs: Any) -> None:
    theirs.sort_indices()
    np.testing.assert_array_equal(graph.indptr, theirs.indptr)
    np.testing.assert_array_equal(graph.indices, theirs.indices)
    np.testing.assert_allclose(graph.distances, theirs.data, rtol=1e-6, atol=1e-7)


@given(integer_rows(), GRID_EPS, DTYPES, BLOCKS)
def test_euclidean_radius_with_ties(X: Any, eps: float, dtype: Any, size: int) -> None:
    with blocks_of(size):
        ours = NeighbourGraph(eps=eps).fit(X.astype(dtype)).graph_
    # Not metric's default tree search: it decides by squares as we do.
    theirs = radius_neighbors_graph(X.astype(np.float64), eps, mode="distance", include_self=False)
    assert_scikit_learns(ours, theirs)


@given(exact_directions(), COSINE_EPS, DTYPES)
def test_cosine_radius_with_ties_and_zero_rows(X: Any, eps: float, dtype: Any) -> None:
    ours = NeighbourGraph(metric="cosine", eps=eps).fit(X.astype(dtype)).graph_
    theirs = radius_neighbors_graph(X, eps, mode="distance", metric="cosine", include_self=False)
    assert_scikit_learns(ours, theirs)


@given(exact_directions(), arrays(np.int64, 4, elements=st.integers(-9, 9)), COSINE_EPS)
def test_centred_cosine_subtracts_the_mean(X: Any, mean: Any, eps: float) -> None:
    X = np.vstack([X, -X])
    ours = NeighbourGraph(metric="centered_cosine", eps=eps).fit(X + mean).graph_
    theirs = radius_neighbors_graph(X, eps, mode="distance", metric="cosine", include_self=False)
    assert_scikit_learns(ours, theirs)


def test_zero_rows_are_nobodys_neighbours_below_one() -> None:
    X = np.array([[0.0, 0], [0, 0], [1, 0], [2, 0]])
    below = NeighbourGraph(metric="cosine", eps=0.99).fit(X)
    np.testing.assert_array_equal(below.indptr_, [0, 0, 0, 1, 2])
    at = NeighbourGraph(metric="cosine", eps=1).fit(X)
    np.testing.assert_array_equal(np.diff(at.indptr_), [3, 3, 3, 3])


@given(integer_rows(), st.integers(1, 12), DTYPES, BLOCKS)
def test_nearest_takes_the_first_of_equals(X: Any, k: int, dtype: Any, size: int) -> None:
    with blocks_of(size):
        ours = NeighbourGraph(n_neighbors=k).fit(X.astype(dtype)).graph_
    distances = exact_distances(X, "euclidean")
    assert_edges(ours, nearest(distances, k), distances)


@given(exact_directions(), st.integers(1, 12))
def test_nearest_by_cosine(X: Any, k: int) -> None:
    distances = exact_distances(X, "cosine")
    ours = NeighbourGraph(metric="cosine", n_neighbors=k).fit(X).graph_
    assert_edges(ours, nearest(distances, k), distances)


def nearest(distances: Any, k: int) -> Any:
    n = len(distances)
    wanted = np.zeros((n, n), bool)
    for i in range(n):
        others = [j for j in np.lexsort((np.arange(n), distances[i])) if j != i]
        wanted[i, others[:k]] = True
    return wanted


@given(integer_rows(), GRID_EPS, st.integers(1, 6))
def test_dbscan_on_an_exact_graph_is_dbscan(X: Any, eps: float, min_samples: int) -> None:
    graph = NeighbourGraph(eps=eps).fit(X).graph_
    theirs = sklearn.cluster.DBSCAN(eps=max(eps, 1e-9), min_samples=min_samples).fit(X.astype(np.float64))
    np.testing.assert_array_equal(approximate_dbscan(graph, min_samples), theirs.labels_)


@given(
    exact_directions(),
    COSINE_EPS.filter(bool),
    st.integers(1, 6),
    st.sampled_from(["cosine", "centered_cosine"]),
)
def test_dbscan_on_an_exact_graph_is_ours(X: Any, eps: float, min_samples: int, metric: Any) -> None:
    graph = NeighbourGraph(metric=metric, eps=eps).fit(X).graph_
    ours = DBSCAN(eps, min_samples, metric).fit(X)
    np.testing.assert_array_equal(approximate_dbscan(graph, min_samples), ours.labels_)


@pytest.mark.parametrize("metric", ["euclidean", "cosine", "centered_cosine"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n_features", [2, 30, 1500])
def test_random_clusters(metric: Any, dtype: Any, n_features: int, sizes: pytest.MonkeyPatch) -> None:
    sizes.setattr(kernel_module, "QUERIES", 100)
    rng = np.random.default_rng(n_features)
    X = rng.normal(size=(5, n_features))[rng.integers(5, size=200)] + 0.6 * rng.normal(size=(200, n_features))
    X[:20], X[40:45], X[45] = X[100], 0, 1e4
    X = X.astype(dtype)
    distances = exact_distances(X, metric)
    apart = distances[~np.eye(200, dtype=bool)]
    # Well off the distance that a quantile hits.
    for eps in np.quantile(apart[apart > 1e-6], [0.01, 0.1, 0.5]) * (1 + 1e-9):
        graph = NeighbourGraph(metric=metric, eps=eps).fit(X).graph_
        assert_edges(graph, (distances <= eps) & ~np.eye(200, dtype=bool), distances)
    graph = NeighbourGraph(metric=metric, n_neighbors=7).fit(X).graph_
    assert set(graph.degrees) == {7}
    furthest = np.sort(distances + 9e9 * np.eye(200), axis=1)[:, 6]
    found = np.maximum.reduceat(graph.distances, graph.indptr[:-1])
    np.testing.assert_allclose(found, furthest, rtol=1e-6, atol=1e-6)


def test_a_call_asks_for_no_more_than_a_block(sizes: pytest.MonkeyPatch) -> None:
    requested: list[int] = []
    within = index_module.Index.within

    def counted(self: Any, queries: Any, gap: float) -> Any:
        requested.append(len(queries))
        return within(self, queries, gap)

    sizes.setattr(index_module.Index, "within", counted)
    sizes.setattr(kernel_module, "QUERIES", 50)
    X = np.random.default_rng(0).normal(size=(200, 2))
    whole = NeighbourGraph(eps=9).fit(X).graph_
    assert max(requested) == 50
    requested.clear()
    sizes.setattr(kernel_module, "PAIRS", 1000)
    np.testing.assert_array_equal(NeighbourGraph(eps=9).fit(X).graph_.indices, whole.indices)
    assert max(requested) == 1000 // 200


def test_near_ties_are_decided_in_float64() -> None:
    """Distances that differ from eps by less than float32 products resolve."""
    X = np.column_stack([np.cumsum([0, 1, 1, 1.0000002, 1, 1.0000002, 1]), np.full(7, 1000.0)])
    graph = NeighbourGraph(eps=1.0).fit(X).graph_
    np.testing.assert_array_equal(graph.degrees, [1, 2, 1, 1, 1, 1, 1])


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("scale", [1e-30, 1e-12, 1e12, 1e30])
def test_extreme_scales_do_not_over_or_underflow(scale: float) -> None:
    X = (np.array([[0.0], [1], [2], [10], [11], [12], [99]]) * scale).astype(np.float32)
    graph = NeighbourGraph(eps=1.5 * scale).fit(X)
    np.testing.assert_array_equal(graph.indices_, [1, 0, 2, 1, 4, 3, 5, 4])
    far = graph.query(np.array([[3e38]], np.float32))
    assert far.degrees.tolist() == [0]
    assert NeighbourGraph(eps=1e300).fit(X).graph_.degrees.tolist() == [6] * 7


def test_query_looks_among_the_fitted_rows() -> None:
    rng = np.random.default_rng(0)
    X, other = rng.normal(size=(60, 3)), rng.normal(size=(20, 3))
    estimator = NeighbourGraph(eps=0.8).fit(X)
    distances = cdist(other, X)
    assert_edges(estimator.query(other), distances <= 0.8, distances)
    own = estimator.query(X[5:9], own=np.arange(5, 9))
    start, stop = estimator.indptr_[[5, 9]]
    np.testing.assert_array_equal(own.indices, estimator.indices_[start:stop])
    assert (own.n_rows, own.n_columns) == (4, 60)
    assert estimator.query(X[:1]).indices[0] == 0  # a row not said to be fitted finds its twin
