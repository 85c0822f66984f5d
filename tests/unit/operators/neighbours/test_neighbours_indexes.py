"""Approximate indexes, the graph's users, and what goes wrong."""

import sys
import tracemalloc
from collections.abc import Callable
from typing import Any

import faiss
import numpy as np
import pytest
import sklearn.cluster

from operators.dbscan import DBSCAN, approximate_dbscan
from operators.neighbours import Graph, NeighbourGraph, density
from operators.neighbours import faiss_index as index_module
from operators.neighbours import recall as recall_module


def clusters(n: int = 900, p: int = 8, seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(12, p))[rng.integers(12, size=n)] + 0.3 * rng.normal(size=(n, p))


def edges(graph: Graph) -> dict[tuple[int, int], float]:
    pairs = zip(graph.sources().tolist(), graph.indices.tolist(), strict=True)
    return dict(zip(pairs, graph.distances.tolist(), strict=True))


def same(a: Graph, b: Graph) -> None:
    for name in ("indptr", "indices", "distances"):
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name))


REACHES = [{"eps": 0.5}, {"n_neighbors": 10}]


@pytest.mark.parametrize("reach", REACHES)
@pytest.mark.parametrize("metric", ["euclidean", "cosine", "centered_cosine"])
@pytest.mark.parametrize("thorough", [{"index": "ivf", "nprobe": 10**6}, {"index": "hnsw", "ef_search": 900}])
def test_a_thorough_search_finds_what_flat_finds(
    reach: Any, metric: Any, thorough: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_module, "PER_CANDIDATE", 1)
    X = clusters()
    flat = NeighbourGraph(metric=metric, **reach).fit(X)
    other = NeighbourGraph(metric=metric, random_state=0, **thorough, **reach).fit(X)
    same(other.graph_, flat.graph_)
    assert flat.recall_ == other.recall_ == 1


@pytest.mark.filterwarnings("ignore:NeighbourGraph")
@pytest.mark.parametrize("reach", [{"eps": 6.0}, {"n_neighbors": 10}])
@pytest.mark.parametrize("hasty", [{"index": "ivf", "nprobe": 1}, {"index": "hnsw", "ef_search": 1}])
def test_an_approximate_graph_misses_edges_and_says_how_many(
    reach: Any, hasty: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recall_module, "SAMPLE", 10**6)
    monkeypatch.setattr(recall_module, "BLOCK", 100)
    monkeypatch.setattr(index_module, "FIRST_REACH", 2)
    monkeypatch.setattr(index_module, "PER_CANDIDATE", 1)
    X = np.random.default_rng(0).normal(size=(900, 30))
    true = edges(NeighbourGraph(**reach).fit(X).graph_)
    approximate = NeighbourGraph(random_state=1, **hasty, **reach).fit(X)
    found = edges(approximate.graph_)
    shared = found.keys() & true.keys()
    assert approximate.recall_ == len(shared) / len(true) < 1
    assert all(found[pair] == true[pair] for pair in shared)
    if "eps" in reach:
        assert 0 < len(found) == len(shared)


def test_a_low_recall_warns_and_names_the_knob() -> None:
    with pytest.warns(UserWarning, match=r"ivf index finds only .*Raise nprobe"):
        NeighbourGraph("ivf", eps=1.5, nprobe=1, random_state=0).fit(clusters(p=2))


def test_recall_of_nearest_counts_any_of_equals() -> None:
    """Whichever of equally far rows an index returns is right; the first of them is what flat returns."""
    X = np.repeat(np.arange(6.0)[:, None], 20, axis=0)
    hnsw = NeighbourGraph("hnsw", n_neighbors=5, random_state=0).fit(X)
    assert (hnsw.recall_, hnsw.distances_.max()) == (1, 0)


def test_no_edge_to_find_is_no_loss() -> None:
    graph = NeighbourGraph("ivf", eps=0.1, random_state=0).fit(np.arange(50.0)[:, None])
    assert (graph.recall_, len(graph.indices_)) == (1, 0)
    assert NeighbourGraph("hnsw", n_neighbors=3).fit(np.zeros((1, 4))).indptr_.tolist() == [0, 0]


@pytest.mark.parametrize("per_candidate", [1, 64])
def test_hnsw_reaches_neighbourhoods_larger_than_its_candidates(
    per_candidate: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All pairs are near: FAISS's own range search would stop at ef_search, or abort."""
    monkeypatch.setattr(index_module, "PER_CANDIDATE", per_candidate)
    X = np.random.default_rng(0).normal(size=(1500, 16))
    graph = NeighbourGraph("hnsw", eps=100.0, ef_search=4, random_state=0).fit(X).graph_
    assert graph.degrees.tolist() == [1499] * 1500


@pytest.mark.parametrize("index", ["flat", "ivf", "hnsw"])
def test_repeats_whatever_the_threads(index: Any) -> None:
    X = clusters(600)
    first = NeighbourGraph(index, eps=0.8, random_state=3).fit(X)
    threads = faiss.omp_get_max_threads()
    second = NeighbourGraph(index, eps=0.8, random_state=3, n_jobs=2).fit(X)
    same(first.graph_, second.graph_)
    assert faiss.omp_get_max_threads() == threads


@pytest.mark.parametrize("reach", [*REACHES, {"n_neighbors": 300}])
@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_the_gpu_is_asked_where_there_is_one(
    reach: Any, metric: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No GPU here: a CPU copy in its place takes the same calls, FAISS's range_search_gpu included."""
    X = clusters(400)
    expected = NeighbourGraph(metric=metric, **reach).fit(X).graph_
    requested: list[int] = []

    class Copy:
        def __init__(self, index: Any) -> None:
            self._index = index
            self.ntotal, self.metric_type = index.ntotal, index.metric_type

        def search(self, queries: Any, k: int) -> Any:
            requested.append(k)
            return self._index.search(queries, k)

    monkeypatch.setattr(faiss, "get_num_gpus", lambda: 1)
    monkeypatch.setattr(faiss, "StandardGpuResources", object, raising=False)
    monkeypatch.setattr(faiss, "index_cpu_to_gpu", lambda _, device, index: Copy(index), raising=False)
    monkeypatch.setattr(index_module, "MAX_GPU_NEIGHBOURS", 200)
    same(NeighbourGraph(metric=metric, **reach).fit(X).graph_, expected)
    assert bool(requested) == (reach.get("n_neighbors", 0) < 200)


def test_dbscan_loses_clusters_with_the_edges() -> None:
    X = clusters(p=2)
    graph = NeighbourGraph(eps=0.1).fit(X).graph_
    labels = sklearn.cluster.DBSCAN(eps=0.1, min_samples=5).fit(X).labels_
    np.testing.assert_array_equal(approximate_dbscan(graph, 5), labels)
    rng = np.random.default_rng(0)
    kept = rng.random(len(graph.indices)) < 0.3
    counts = np.add.reduceat(np.append(kept, False), graph.indptr[:-1]) * (graph.degrees > 0)
    poor = Graph(
        np.concatenate([[0], np.cumsum(counts)]),
        graph.indices[kept],
        graph.distances[kept],
        graph.n_columns,
        graph.eps,
    )
    assert (approximate_dbscan(poor, 5) == -1).sum() > (labels == -1).sum()


def test_an_edge_from_one_side_joins_both() -> None:
    graph = Graph(np.array([0, 1, 1, 1]), np.array([1]), np.ones(1, np.float32), 3, eps=1.0)
    assert approximate_dbscan(graph, 1).tolist() == [0, 0, 1]
    assert approximate_dbscan(graph, 2).tolist() == [0, 0, -1]
    back = Graph(np.array([0, 0, 0, 1]), np.array([1]), np.ones(1, np.float32), 3, eps=1.0)
    assert approximate_dbscan(back, 2).tolist() == [-1, 0, 0]


def test_density_by_counts_and_by_distance() -> None:
    X = np.array([[0.0], [0], [1], [3]])
    counted = density(NeighbourGraph(eps=1).fit(X).graph_)
    np.testing.assert_allclose(counted, np.array([3, 3, 3, 1]) / 2.5)
    reach = np.array([1, 1, 1, 3.0])  # to the second nearest
    by_distance = density(NeighbourGraph(n_neighbors=2).fit(X).graph_)
    np.testing.assert_allclose(by_distance, 1 / reach / np.mean(1 / reach))
    both = density(NeighbourGraph(eps=1, n_neighbors=2).fit(X).graph_)
    np.testing.assert_allclose(both, np.array([3, 3, 3, 1]) / 2.5)
    closer = density(NeighbourGraph(eps=2, n_neighbors=1).fit(np.array([[0.0], [0.5], [2.5]])).graph_)
    np.testing.assert_allclose(closer, np.array([4, 4, 1]) / 3)
    zero = density(NeighbourGraph(n_neighbors=1).fit(X).graph_)
    np.testing.assert_allclose(zero, np.array([1, 1, 1, 0.5]) / 0.875)
    assert density(NeighbourGraph(n_neighbors=1).fit(X[:1]).graph_).tolist() == [1]
    assert density(NeighbourGraph(n_neighbors=1).fit(X[:2]).graph_).tolist() == [1, 1]


def bad(**parameters: Any) -> Callable[[], object]:
    return lambda: NeighbourGraph(**parameters).fit(np.eye(3))


FITTED = NeighbourGraph(eps=1).fit(np.eye(3))
NEAREST = NeighbourGraph(n_neighbors=1).fit(np.eye(3))
CAPPED = NeighbourGraph(eps=2, n_neighbors=1).fit(np.eye(3))


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (bad(eps=-1), "eps is -1"),
        (bad(eps=float("nan")), "eps is nan"),
        (bad(n_neighbors=0), "n_neighbors is 0"),
        (bad(eps=1, index="lsh"), "index is 'lsh'; use one of flat, ivf, hnsw"),
        (bad(eps=1, metric="l1"), "metric is 'l1'"),
        (
            bad(eps=2, max_edges=5),
            r"about 6\.0e\+00 edges.*max_edges = 5.*2 of the other 2 rows within eps = 2",
        ),
        (
            bad(eps=2, max_edges=5),
            "Give n_neighbors, to keep only the nearest of them, lower eps, or raise max_",
        ),
        (bad(n_neighbors=2, max_edges=5), "on average. Give a smaller n_neighbors, or raise max_edges"),
        (lambda: approximate_dbscan(CAPPED.graph_, 3), "n_neighbors = 2 or more"),
        (lambda: approximate_dbscan(NEAREST.graph_, 2), "Build it with eps"),
        (lambda: approximate_dbscan(FITTED.query(np.eye(3)[:2]), 2), "2 rows among 3"),
    ],
)
def test_bad_parameters_are_named(call: Callable[[], object], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        call()


def test_without_faiss_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(ImportError, match=r"pip install 'rowsieve\[cpu\]'.*rowsieve\[gpu\]"):
        NeighbourGraph(eps=1).fit(np.eye(3))
    with pytest.raises(ImportError, match="pip install"):
        DBSCAN(neighbours="hnsw").fit(np.eye(3))


def test_more_neighbours_than_rows_take_no_memory() -> None:
    X = np.random.default_rng(0).normal(size=(40, 3))
    tracemalloc.start()
    many = NeighbourGraph(n_neighbors=1_000_000).fit(X)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    np.testing.assert_array_equal(many.indices_, NeighbourGraph(n_neighbors=39).fit(X).indices_)
    assert peak < 10 * 2**20


def test_without_a_reach_the_nearest_five_are_neighbours() -> None:
    X = np.random.default_rng(0).normal(size=(40, 3))
    ours, five = NeighbourGraph().fit(X), NeighbourGraph(n_neighbors=5).fit(X)
    np.testing.assert_array_equal(ours.indices_, five.indices_)
