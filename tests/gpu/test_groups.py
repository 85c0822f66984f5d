"""Clusters and neighbours: the labels and edges of the CPU, as doubtful pairs are decided in float64."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

from operators.dbscan.kernel import cluster
from operators.dbscan.sharded import BlockLabels, lay_out, solve
from operators.factored import FactoredGradients, Layer
from operators.grasp import GroupInference
from operators.neighbours import NeighbourGraph
from operators.neighbours import faiss_index as index_module
from operators.points import Points
from tests.benchmarks.dbscan.rows import gradient_rows
from tests.unit.operators.dbscan.sharded.test_sharded import Held, here

pytestmark = pytest.mark.gpu
EPS, LEAST = [0.2, 0.5, 0.8], [5, 40]


def directions(n: int, seed: int = 0) -> Any:
    """(n, 20) float32 rows with duplicates, in four directions and noise."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(4, 20))[rng.integers(4, size=n)] + 0.5 * rng.normal(size=(n, 20))
    X[: n // 10] = X[n // 10 : 2 * (n // 10)]
    return X.astype(np.float32)


def lattice(n: int, seed: int = 0) -> Any:
    """(n, 5) whole numbers: many pairs lie on a radius exactly."""
    return np.random.default_rng(seed).integers(0, 4, size=(n, 5)).astype(np.float32)


MADE: dict[str, Callable[[int], Any]] = {"directions": directions, "lattice": lattice}


@pytest.mark.parametrize("metric", ["euclidean", "cosine", "centered_cosine"])
@pytest.mark.parametrize("made", sorted(MADE))
def test_a_grid_has_the_labels_of_the_cpu(made: str, metric: Any, device: str) -> None:
    X = MADE[made](6000)
    eps = [1.0, 2.0, 3.0] if metric == "euclidean" else EPS
    expected, found = (cluster(Points(X, metric), eps, LEAST, device=place) for place in ("cpu", device))
    for mine, theirs in zip(found, expected, strict=True):
        np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize("gpus", [0.0, 1.0])
def test_blocks_have_the_labels_of_the_cpu(gpus: float, device: str, tmp_path: Path) -> None:
    X = directions(3000)
    axes: dict[str, Any] = {"metric": "centered_cosine", "eps": EPS, "least": LEAST}
    layout, _ = lay_out(here, Held(X), tmp_path, shape=X.shape, block_rows=700, gpus=gpus, **axes)
    solved = solve(here, layout)
    expected = cluster(Points(X, "centered_cosine"), EPS, LEAST)[0]
    for block in layout.blocks:
        rows = layout.rows(block)
        for e, m in np.ndindex(len(EPS), len(LEAST)):
            labels = BlockLabels(solved, block).of_threshold(m).at(e)[0]
            np.testing.assert_array_equal(labels, expected[e, m, rows])


@pytest.mark.parametrize("fit_rows", [None, 1500])
def test_groups_are_those_of_the_cpu(fit_rows: int | None, device: str) -> None:
    X = gradient_rows(5000, 30, "mid", raw=True)
    y = np.repeat([0, 1], [3000, 2000])
    cpu, gpu = (
        GroupInference(fit_rows=fit_rows, random_state=0, stability=1, device=place).fit(X, y)
        for place in ("cpu", device)
    )
    np.testing.assert_array_equal(gpu.labels_, cpu.labels_)
    for name in ("eps", "min_samples", "silhouette", "sizes", "stability"):
        assert getattr(gpu.selection_[0], name) == getattr(cpu.selection_[0], name)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_factored_gradients_have_the_groups_of_the_cpu(dtype: Any, device: str) -> None:
    rng = np.random.default_rng(0)
    layers = [
        Layer(directions(4000, seed).astype(dtype), rng.normal(size=(4000, 3)).astype(dtype))
        for seed in (1, 2)
    ]
    y = np.repeat([0, 1], 2000)
    cpu, gpu = (
        GroupInference(fit_rows=None, random_state=0, device=place).fit(FactoredGradients(layers), y)
        for place in ("cpu", device)
    )
    np.testing.assert_array_equal(gpu.labels_, cpu.labels_)


@pytest.fixture
def faiss_gpu(device: str) -> None:
    faiss = pytest.importorskip("faiss", reason="FAISS is not installed")
    if device.startswith("cuda") and not (hasattr(faiss, "StandardGpuResources") and faiss.get_num_gpus()):
        pytest.skip("FAISS sees no GPU: install the extra `gpu` in place of `cpu`")


def on_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_module, "_on_gpu", lambda built: None)


@pytest.mark.usefixtures("faiss_gpu")
def test_more_neighbours_than_a_gpu_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    X = directions(index_module.MAX_GPU_NEIGHBOURS + 200)
    many = {"metric": "cosine", "n_neighbors": index_module.MAX_GPU_NEIGHBOURS + 1}
    found = NeighbourGraph(**many).fit(X[:, :3])
    on_cpu(monkeypatch)
    np.testing.assert_array_equal(found.indices_, NeighbourGraph(**many).fit(X[:, :3]).indices_)


@pytest.mark.usefixtures("faiss_gpu")
@pytest.mark.parametrize("reach", [{"eps": 0.3}, {"n_neighbors": 10}, {"eps": 0.5, "n_neighbors": 1200}])
@pytest.mark.parametrize("metric", ["euclidean", "cosine", "centered_cosine"])
@pytest.mark.parametrize("made", sorted(MADE))
def test_a_graph_has_the_edges_of_the_cpu(
    made: str, metric: Literal["euclidean", "cosine"], reach: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    X = MADE[made](1500)
    if metric == "euclidean" and "eps" in reach:
        reach = {**reach, "eps": 10 * reach["eps"]}
    found = NeighbourGraph(metric=metric, **reach).fit(X)
    on_cpu(monkeypatch)
    expected = NeighbourGraph(metric=metric, **reach).fit(X)
    for name in ("indptr_", "indices_", "distances_"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))


@pytest.mark.usefixtures("faiss_gpu")
def test_queries_of_a_graph_are_those_of_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    X, queries = directions(4000), directions(500, seed=1)
    found = NeighbourGraph(metric="cosine", n_neighbors=7).fit(X).query(queries)
    on_cpu(monkeypatch)
    expected = NeighbourGraph(metric="cosine", n_neighbors=7).fit(X).query(queries)
    np.testing.assert_array_equal(found.indices, expected.indices)
    np.testing.assert_array_equal(found.distances, expected.distances)
