"""DBSCAN through approximate graphs: the whole grid from one graph, and a true account of what was lost."""

import re
import warnings
from typing import Any

import numpy as np
import pytest
import sklearn.cluster
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import adjusted_rand_score, pairwise_distances

from operators.dbscan import DBSCAN, approximate_dbscan, dbscan_grid
from operators.dbscan import graph_dbscan as approximate_module
from operators.dbscan.graph_dbscan import SearchSettings, approximate_grid, clusters_within
from operators.neighbours import NeighbourGraph
from tests.benchmarks.dbscan.rows import gradient_rows

GRID = [0.1, 0.25, 0.4], [3, 8, 20, 60]
THOROUGH = {"nprobe": 10**6, "ef_search": 1000}


def dense(n: int = 900, p: int = 8, seed: int = 0) -> Any:
    """A large group, a small one, and scatter."""
    rng = np.random.default_rng(seed)
    centres = np.vstack([np.eye(p)[0], np.eye(p)[1], np.zeros(p)])
    which = rng.choice(3, n, p=[0.9, 0.06, 0.04])
    return centres[which] + np.where(which == 2, 1.0, 0.12)[:, None] * rng.normal(size=(n, p))


def neighbour_counts(X: Any, eps: float, metric: str) -> Any:
    """Rows within eps of each row, itself included, by scikit-learn's distances."""
    rows = X - X.mean(axis=0) if metric == "centered_cosine" else X
    distances = pairwise_distances(rows, metric="euclidean" if metric == "euclidean" else "cosine")
    np.fill_diagonal(distances, 0)
    return (distances <= eps).sum(axis=1)


@given(st.integers(0, 10**6), st.sampled_from(["euclidean", "cosine", "centered_cosine"]))
def test_a_complete_graph_gives_every_cell(seed: int, metric: Any) -> None:
    X = dense(60, 3, seed)
    graph = NeighbourGraph(metric=metric, eps=GRID[0][-1]).fit(X).graph_
    wanted = dbscan_grid(X, *GRID, metric)
    for eps, exact in zip(GRID[0], wanted, strict=True):
        labels, cores = clusters_within(graph, eps, GRID[1])
        np.testing.assert_array_equal(labels, exact)
        counts = neighbour_counts(X, eps, metric)
        np.testing.assert_array_equal(cores, counts >= np.array(GRID[1])[:, None])


@pytest.mark.parametrize("kind", ["ivf", "hnsw"])
@pytest.mark.parametrize("metric", ["euclidean", "cosine", "centered_cosine"])
def test_a_thorough_index_gives_the_exact_grid(kind: Any, metric: Any) -> None:
    """The graph holds 64 neighbours per row, where rows have hundreds within the radius."""
    X = dense()
    radii = 2 * np.array(GRID[0]) if metric == "euclidean" else GRID[0]
    assert neighbour_counts(X, radii[-1], metric).max() > 100
    found = approximate_grid(X, radii, GRID[1], SearchSettings(kind, metric, **THOROUGH))
    np.testing.assert_array_equal(found.labels, dbscan_grid(X, radii, GRID[1], metric))
    assert (found.recall, found.wrong_cores) == (1, 0)
    quality = found.quality(X, 1, 2)
    assert (quality.ari, quality.ari_rows, quality.low) == (1, len(X), "")


def test_clusters_that_touch_by_long_edges_only_are_joined() -> None:
    """Two piles of 200 equal rows within eps of each other: the nearest 64 of each are in its own."""
    X = np.repeat([[0.0, 0.0], [1.0, 0.0]], 200, axis=0)
    graph = NeighbourGraph(eps=1.5, n_neighbors=64).fit(X).graph_
    assert len(set(approximate_dbscan(graph, 5))) == 2
    found = approximate_grid(X, [0.5, 1.5], [5], SearchSettings("hnsw", "euclidean"))
    assert [len(set(labels)) for labels in found.labels[:, 0].tolist()] == [2, 1]


def poor(kind: str) -> tuple[Any, dict[str, Any]]:
    """Many small clusters beside a large one, and an index told to look nearly nowhere."""
    rng = np.random.default_rng(3)
    centres = rng.normal(size=(40, 16))
    which = np.where(rng.random(3000) < 0.6, 0, rng.integers(40, size=3000))
    X = (centres[which] + 0.35 * rng.normal(size=(3000, 16))).astype(np.float32)
    return X, {"eps": 1.75, "min_samples": 25, "neighbours": kind, "nprobe": 1, "ef_search": 1}


@pytest.mark.parametrize("data", ["gradients", "many"])
def test_the_warning_fires_where_a_poor_graph_loses_clusters(data: str) -> None:
    X, parameters = poor("ivf")
    if data == "gradients":
        X, parameters = gradient_rows(3000, 16, "tight"), parameters | {"eps": 0.3, "min_samples": 50}
        parameters["metric"] = "cosine"
    with pytest.warns(
        UserWarning, match=r"DBSCAN: clusters .*Raise nprobe, or set neighbours to 'exact'"
    ) as w:
        model = DBSCAN(**parameters, random_state=0).fit(X)
    exact = DBSCAN(model.eps, model.min_samples, model.metric).fit(X)
    quality = model.quality_
    assert quality is not None
    assert quality.ari == adjusted_rand_score(exact.labels_, model.labels_)
    # Of many small clusters the ARI hardly sees that some are gone; the core samples tell.
    assert (quality.ari < 0.98) == (data == "gradients")
    assert quality.wrong_cores > 0.05
    sizes = np.bincount(exact.labels_[exact.labels_ >= 0])
    lost = [k for k in range(len(sizes)) if (model.labels_[exact.labels_ == k] == -1).mean() > 0.5]
    assert lost or data == "gradients"
    assert f"ARI against exact DBSCAN {quality.ari:.3f} (on 3,000 rows)" in str(w[0].message)


@pytest.mark.filterwarnings("ignore:DBSCAN")
@pytest.mark.parametrize("kind", ["ivf", "hnsw"])
def test_the_figures_are_those_of_all_rows(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With every row in the sample, recall and wrong core samples can be counted otherwise."""
    monkeypatch.setattr(approximate_module, "CHECKED_ROWS", 10**6)
    monkeypatch.setattr(approximate_module, "FEWEST_NEIGHBOURS", 30)
    X, parameters = poor(kind)
    model = DBSCAN(**parameters, random_state=0).fit(X)
    exact = sklearn.cluster.DBSCAN(eps=1.75, min_samples=25).fit(X)
    wrong = np.setxor1d(model.core_sample_indices_, exact.core_sample_indices_)
    assert model.quality_ is not None
    assert model.quality_.wrong_cores == len(wrong) / len(X) > 0
    true = NeighbourGraph(eps=1.75, n_neighbors=30).fit(X).graph_
    assert 0 < model.quality_.recall < 1
    hits = round(model.quality_.recall * len(true.indices))
    assert model.quality_.recall == hits / len(true.indices)


@pytest.mark.filterwarnings("ignore:DBSCAN")
def test_many_rows_are_compared_on_a_thinned_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    X, parameters = poor("ivf")
    whole = DBSCAN(**parameters, random_state=0).fit(X).quality_
    monkeypatch.setattr(approximate_module, "EXACT_ROWS", 2000)
    requested: list[Any] = []
    cluster = approximate_module.cluster
    monkeypatch.setattr(approximate_module, "cluster", lambda *a: requested.append(a) or cluster(*a))
    thinned = DBSCAN(**parameters, random_state=0).fit(X).quality_
    assert whole is not None
    assert thinned is not None
    assert (whole.ari_rows, thinned.ari_rows) == (3000, 2000)
    assert [(a[0].n, *a[1:]) for a in requested] == [(2000, [1.75], [17])]
    assert (thinned.recall, thinned.wrong_cores) == (whole.recall, whole.wrong_cores)
    assert thinned.ari < 1


@pytest.mark.parametrize("kind", ["exact", "auto"])
def test_auto_is_exact_and_needs_no_faiss(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "faiss", None)
    X = dense()
    model = DBSCAN(0.4, 8, "cosine", kind).fit(X)
    np.testing.assert_array_equal(model.labels_, dbscan_grid(X, [0.4], [8], "cosine")[0, 0])
    assert model.quality_ is None


def test_repeats_with_a_seed() -> None:
    X, parameters = poor("hnsw")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        first, second = (DBSCAN(**parameters, random_state=7).fit(X) for _ in range(2))
    np.testing.assert_array_equal(first.labels_, second.labels_)
    assert first.quality_ == second.quality_


@pytest.mark.parametrize(
    ("parameters", "weight", "says"),
    [
        ({"neighbours": "flat"}, None, "neighbours is 'flat'; use one of exact, ivf, hnsw, auto"),
        ({"neighbours": "ivf"}, np.ones(3), "Use neighbours='exact'"),
    ],
)
def test_bad_parameters_are_named(parameters: Any, weight: Any, says: str) -> None:
    with pytest.raises(ValueError, match=re.escape(says)):
        DBSCAN(**parameters).fit(np.eye(3), sample_weight=weight)
