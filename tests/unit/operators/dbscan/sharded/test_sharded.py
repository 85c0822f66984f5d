"""DBSCAN in blocks: the labels and cores of the one-process kernel, in every cell, however it is cut."""

import pickle
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from operators.dbscan import tiles
from operators.dbscan.kernel import cluster
from operators.dbscan.sharded import BlockLabels, lay_out, solve
from operators.dbscan.sharded.blocks import mean_of, query_groups, spans, sum_span
from operators.dbscan.sharded.level_forest import Edges, level_parents, lightest
from operators.points import Metric, Points, mean_row

solve_module = import_module("operators.dbscan.sharded.solve")


class Held:
    """Rows in memory, as a source that pickles."""

    def __init__(self, X: Any) -> None:
        self.X = X

    def __call__(self, start: int, stop: int) -> Any:
        return self.X[start:stop]


def here(fn: Callable[[Any], Any], items: Sequence[Any]) -> Iterator[Any]:
    """Runs in this process what would have pickled."""
    for item in items:
        function, sent = pickle.loads(pickle.dumps((fn, item)))
        yield function(sent)


def in_blocks(
    X: Any, metric: Metric, eps: Sequence[float], least: Sequence[int], block_rows: int, map_: Any = here
) -> tuple[Any, Any]:
    """Labels and cores, (n_eps, n_min_samples, n)."""
    axes = {"metric": metric, "eps": eps, "least": least}
    labels = np.full((len(eps), len(least), len(X)), -7, np.int32)
    cores = np.zeros(labels.shape, bool)
    with TemporaryDirectory() as folder:
        layout, _ = lay_out(map_, Held(X), Path(folder), shape=X.shape, block_rows=block_rows, **axes)
        solved = solve(map_, layout)
        found = [BlockLabels(solved, block) for block in layout.blocks]
        for e, m, block in np.ndindex(len(eps), len(least), len(found)):
            rows = layout.rows(block)
            labels[e, m, rows], cores[e, m, rows] = found[block].of_threshold(m).at(e)
    return labels, cores


def check(X: Any, metric: Metric, eps: Sequence[float], least: Sequence[int], block_rows: int) -> Any:
    expected = cluster(Points(X, metric), eps, least)
    found = in_blocks(X, metric, eps, least, block_rows)
    np.testing.assert_array_equal(found[0], expected[0])
    np.testing.assert_array_equal(found[1], expected[1])
    return expected[0]


def blobs(n: int, n_blobs: int, spread: float, seed: int = 0) -> Any:
    random = np.random.default_rng(seed)
    centres = 4 * random.normal(size=(n_blobs, 3))
    X = centres[random.integers(0, n_blobs, n)] + spread * random.normal(size=(n, 3))
    return X.astype(np.float32)


@pytest.fixture(params=[4, 64], ids=["few hubs", "many hubs"])
def _hubs(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """With few hubs most joins are found by comparing blocks."""
    monkeypatch.setattr(solve_module, "HUBS", request.param)
    monkeypatch.setattr(solve_module, "ROWS_PER_HUB", 40)


REGIMES = {
    "giant cluster": (blobs(420, 1, 1.0), [0.2, 0.4, 0.8, 1.6]),
    "many clusters": (blobs(420, 40, 0.15), [0.1, 0.2, 0.4, 1.0]),
    "all noise": (blobs(300, 300, 1.0), [0.01, 0.02]),
    "duplicates": (np.round(blobs(420, 6, 0.5)), [0.5, 1.0, 1.5]),
    "one row often": (np.repeat(blobs(3, 3, 1.0), 100, axis=0), [0.1, 20.0]),
}


@pytest.mark.usefixtures("_hubs")
@pytest.mark.parametrize("regime", REGIMES)
def test_labels_of_the_kernel_in_every_cell(regime: str) -> None:
    X, eps = REGIMES[regime]
    check(X, "euclidean", eps, [1, 4, 12], 64)


@pytest.mark.usefixtures("_hubs")
@pytest.mark.parametrize("metric", ["cosine", "centered_cosine"])
def test_cosine(metric: Metric) -> None:
    X = blobs(400, 5, 0.7)
    X[::50] = 0
    labels = check(X, metric, [0.005, 0.02, 0.1, 1.0], [3, 10], 90)
    assert len(np.unique(labels)) > 4


@pytest.mark.usefixtures("_hubs")
def test_chain_through_every_block() -> None:
    """One cluster that hangs together by single links, each between two blocks."""
    n, block_rows = 320, 40
    X = np.zeros((n, 2), np.float32)
    # Neighbours in the chain lie in different blocks.
    X[:, 0] = np.arange(n).reshape(block_rows, n // block_rows).T.reshape(-1)
    labels = check(X, "euclidean", [0.5, 1.0, 2.0], [2, 3], block_rows)
    assert labels[1, 0].max() == 0


@pytest.mark.usefixtures("_hubs")
def test_border_row_between_clusters_of_different_blocks() -> None:
    """It joins the lowest-numbered cluster that reaches it; both lie in blocks of their own."""
    # Rows at 0 reach one row of either cluster and one another: too few to be core.
    side = np.concatenate([[1.0], np.full(29, 1.5)])
    X = np.concatenate([[0.0], side, -side, [0.0]])[:, None].repeat(2, axis=1).astype(np.float32)
    labels = check(X, "euclidean", [1.5], [20, 40], 31)
    assert labels[0, 0].max() == 1
    assert labels[0, 0, 0] == labels[0, 0, -1] == 0


@settings(max_examples=10)
@given(st.data())
def test_any_rows_any_blocks(data: st.DataObject) -> None:
    seed = data.draw(st.integers(0, 10**6))
    random = np.random.default_rng(seed)
    n = data.draw(st.integers(2, 150))
    X = blobs(n, data.draw(st.integers(1, 12)), data.draw(st.sampled_from([0.1, 0.5, 2.0])), seed)
    if data.draw(st.booleans()):
        X = np.round(X)
    eps = np.unique(random.choice([0.1, 0.3, 1.0, 1.5, 3.0, 9.0], 3)).tolist()
    least = np.unique(random.integers(1, 20, 3)).tolist()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(solve_module, "HUBS", data.draw(st.sampled_from([2, 8])))
        check(X, "euclidean", eps, least, data.draw(st.integers(max(1, n // 4), n + 1)))


def test_float64_where_float32_resolves_nothing() -> None:
    X = (blobs(200, 3, 0.3) * 1e-4 + 100).astype(np.float32)
    check(X, "euclidean", [1e-5, 5e-5], [4], 64)


def test_mean_of_spans_is_the_mean_of_the_kernel_to_the_bit() -> None:
    X = np.random.default_rng(0).normal(5, 1, (150_000, 2)).astype(np.float32)
    sums = [sum_span(Held(X), len(X), span)[0] for span in spans(len(X))]
    assert len(sums) == 3
    np.testing.assert_array_equal(mean_of(Held(X), len(X), sums), mean_row(X))


def test_fewer_edges_have_the_components_of_all() -> None:
    random = np.random.default_rng(0)
    edges = Edges(*random.integers(0, 60, (2, 500)), random.integers(0, 6, 500).astype(np.int16))
    fewer = lightest(edges)
    assert len(fewer.a) < 60
    np.testing.assert_array_equal(level_parents(6, 60, fewer), level_parents(6, 60, edges))


def test_query_groups_hold_every_selected_row_once() -> None:
    counts = [3, 0, 5, 1, 0]
    groups = query_groups(counts, 4)
    found = [(b, k) for group in groups for b, start, stop in group for k in range(start, stop)]
    assert found == [(b, k) for b, n in enumerate(counts) for k in range(n)]
    assert [sum(stop - start for _, start, stop in group) for group in groups] == [4, 4, 1]
    assert query_groups([0, 0], 4) == []


def test_labels_do_not_depend_on_who_compares(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiles, "NUMPY_COMPARES", False)  # what a GPU does, on whatever device this is
    monkeypatch.setattr(tiles, "GPU_COLS", 50)
    X, eps = REGIMES["many clusters"]
    check(X, "euclidean", eps, [1, 4, 12], 64)
