"""Repeated rows: the same neighbours, found without comparing all copies with each other."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from operators.neighbours import Graph, NeighbourGraph, repeats
from operators.neighbours.geometry import Geometry
from operators.neighbours.kernel import Reach, RowIndex

RANDOM = np.random.default_rng(0).normal(size=(400, 3))


def half_equal() -> Any:
    X = RANDOM.copy()
    X[::2] = X[0]
    return X


def of_all_rows(X: Any, metric: Any, k: int) -> Graph:
    """Search in an index that leaves no row out."""
    return RowIndex.build(X, "flat", Geometry.of(X, metric)).search(
        X, Reach(n_neighbors=k), np.arange(len(X))
    )


def same(a: Graph, b: Graph) -> None:
    for name in ("indptr", "indices", "distances"):
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name))


def test_copies_are_not_compared_with_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    measures = Geometry.measures

    def counted(self: Geometry, A: Any, B: Any) -> Any:
        sizes.append(len(A))
        return measures(self, A, B)

    monkeypatch.setattr(Geometry, "measures", counted)
    NeighbourGraph(n_neighbors=5).fit(half_equal())
    repeated = sum(sizes)
    sizes.clear()
    NeighbourGraph(n_neighbors=5).fit(RANDOM)
    assert repeated < 1.5 * sum(sizes)


@pytest.mark.parametrize("metric", ["euclidean", "cosine", "centered_cosine"])
@pytest.mark.parametrize("k", [1, 5, 150, 500])
def test_neighbours_among_repeats_are_those_of_an_index_of_all_rows(k: int, metric: Any) -> None:
    X = half_equal()
    X[1::4] = 0.0
    X[5::8] = -0.0
    X[3::16] = 2 * X[0]
    graph = NeighbourGraph(metric=metric, n_neighbors=k).fit(X)
    same(graph.graph_, of_all_rows(X, metric, k))
    assert isinstance(graph._rows, RowIndex)
    assert graph._rows.index.size < 400 or k > 150


def test_a_query_for_more_neighbours_than_the_fit_had_finds_them_all() -> None:
    X = half_equal()
    graph = NeighbourGraph(n_neighbors=2).fit(X)
    graph.set_params(n_neighbors=300)
    same(graph.query(X, np.arange(400)), of_all_rows(X, "euclidean", 300))
    graph.set_params(n_neighbors=None, eps=0.5)
    same(graph.query(X, np.arange(400)), NeighbourGraph(eps=0.5).fit(X).graph_)


def test_an_index_without_later_copies_is_read_again(tmp_path: Path) -> None:
    X = half_equal().astype(np.float32)
    geometry = Geometry.of(X, "euclidean")
    rows = RowIndex.build(X, "flat", geometry, n_neighbors=5)
    rows.save(tmp_path)
    read = RowIndex.load(tmp_path, X, "flat", nprobe=1, ef_search=1)
    assert read.index.size == rows.index.size == 200 + 6
    for k in (5, 50):
        found = read.search(X, Reach(n_neighbors=k), np.arange(400))
        same(found, of_all_rows(X, "euclidean", k))


def test_rows_that_differ_but_share_a_digest_all_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    X = half_equal()
    geometry = Geometry.of(X, "euclidean")
    kept = repeats.first_copies(X, geometry, 3)
    assert kept is not None
    np.testing.assert_array_equal(kept, np.sort([0, 2, 4, *range(1, 400, 2)]))
    monkeypatch.setattr(repeats, "_digests", lambda X, _: np.zeros(len(X), np.uint64))
    assert repeats.first_copies(X, geometry, 3) is None
    assert repeats.first_copies(RANDOM, geometry, 3) is None


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rows_of_small_whole_numbers_have_distinct_digests(dtype: Any) -> None:
    """Their mantissas end in zeros, which a plain product would turn into few digests."""
    X = np.stack(np.meshgrid(*[np.arange(10)] * 4), -1).reshape(-1, 4).astype(dtype)
    found = repeats._digests(X, Geometry.of(X, "euclidean"))
    assert len(np.unique(found)) == 10_000
