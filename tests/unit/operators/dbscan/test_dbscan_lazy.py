"""Every shortcut of the lazy DBSCAN against scikit-learn, on gradient-like rows and with tiny blocks.

Radii lie midway between two neighbouring distances, so that scikit-learn's own rounding decides nothing,
or on exact ties of whole numbers.
"""

from typing import Any

import numpy as np
import pytest
import scipy.sparse.csgraph
import sklearn.cluster
import torch

from operators import points
from operators.dbscan import (
    DBSCAN,
    bounding_boxes,
    components,
    dbscan_grid,
    density,
    kernel,
    tiles,
)
from operators.points import Points

# What is large in use is made small, so that a few hundred rows take every path.
TINY: list[dict[Any, dict[str, Any]]] = [
    {},
    {
        density: {"MAX_ROWS": 1024, "MAX_PAIRS": 1 << 20, "PROBE_ROWS": 100},
        tiles: {"TILE_ROWS": 8, "TILE_COLS": 64},
    },
    {tiles: {"TILE_ROWS": 32, "TILE_COLS": 64}, density: {"MIN_SAMPLE": 16, "SAMPLE_PER_GOAL": 2}},
    {
        tiles: {"TILE_ROWS": 7, "TILE_COLS": 64},
        density: {"MIN_SAMPLE": 8, "SAMPLE_PER_GOAL": 1, "STALLED": 0.0, "AT_ONCE": 1},
        bounding_boxes: {"SAMPLE": 40},
        points: {"DIRECTIONS": 2},
        components: {"OWN_BLOCKS": 3},
        kernel: {"APART": 10},
    },
    {
        tiles: {"TILE_ROWS": 50, "GPU_COLS": 64, "NUMPY_COMPARES": False},
        density: {"MAX_SAMPLE_SHARE": 0.0, "ENTRIES": 0, "ENTRIES_PER_ROW": 0},
        components: {"PROGRESS": 0.0},
    },
    {
        tiles: {"DOUBT": 0.0, "TILE_ROWS": 64, "TILE_COLS": 100},
        density: {"ENTRIES": 500, "ENTRIES_PER_ROW": 0},
    },
]


@pytest.fixture(autouse=True)
def searched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(density, "MAX_ROWS", 0)


def gradient_like(rng: np.random.Generator, n: int, d: int, spread: float) -> Any:
    """A dominant direction, two minorities, a thin bridge, duplicates, wild rows: one class's gradients."""
    centres = rng.normal(size=(4, d))
    share = rng.dirichlet([12, 1, 1, 0.3])
    X = centres[rng.choice(4, n, p=share)] + spread * rng.normal(size=(n, d))
    wild = rng.random(n) < rng.choice([0.02, 0.3])
    X[wild] = rng.normal(size=(int(wild.sum()), d)) * rng.choice([1, 3])
    bridge = rng.choice(n, n // 50, replace=False)
    at = rng.random((len(bridge), 1))
    X[bridge] = at * centres[0] + (1 - at) * centres[1] + 0.3 * spread * rng.normal(size=(len(bridge), d))
    X[rng.choice(n, n // 20)] = X[0]
    return X


def gaps_between(distances: Any, shares: list[float]) -> list[float]:
    """Radii midway between distances, away from any, near the given quantiles."""
    ordered = np.unique(distances[distances > 1e-6])
    radii = []
    for share in shares:
        at = min(int(share * len(ordered)), len(ordered) - 41)
        widest = at + int(np.argmax(np.diff(ordered[at : at + 40])))
        radii.append(float(ordered[widest : widest + 2].mean()))
    return radii


@pytest.mark.parametrize(
    "seed", [*range(14), *(pytest.param(k, marks=pytest.mark.slow) for k in range(14, 42))]
)
def test_labels_equal_scikit_learn(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(seed)
    for module, values in TINY[seed % len(TINY)].items():
        for name, value in values.items():
            monkeypatch.setattr(module, name, value)
    n, d = int(rng.integers(300, 900)), int(rng.choice([2, 5, 16, 64]))
    X = gradient_like(rng, n, d, float(rng.choice([0.1, 0.3, 0.8])))
    X = X.astype(rng.choice([np.float32, np.float64]))
    metric = str(rng.choice(["euclidean", "cosine", "centered_cosine"]))
    prepared = Points(X, metric)  # type: ignore[arg-type]
    exact = prepared.in_float64()[0]
    if metric == "euclidean":
        distances = sklearn.metrics.pairwise_distances(exact) * prepared.unit
    else:
        distances = sklearn.metrics.pairwise_distances(exact, metric="cosine")
    np.fill_diagonal(distances, 0)
    radii = gaps_between(distances, [0.002, 0.03, 0.2, 0.5])
    least = [int(m) for m in rng.choice([1, 2, 3, 5, 10, 40], 3, replace=False)]
    grid = dbscan_grid(X, radii, least, metric)  # type: ignore[arg-type]
    for e, eps in enumerate(radii):
        for m, min_samples in enumerate(least):
            theirs = sklearn.cluster.DBSCAN(eps=eps, min_samples=min_samples, metric="precomputed").fit(
                distances
            )
            np.testing.assert_array_equal(grid[e, m], theirs.labels_)
            if (e + m) % 3:
                continue
            ours = DBSCAN(eps, min_samples, metric).fit(X)  # type: ignore[arg-type]
            np.testing.assert_array_equal(ours.labels_, theirs.labels_)
            np.testing.assert_array_equal(ours.core_sample_indices_, theirs.core_sample_indices_)


@pytest.mark.parametrize(
    "seed", [*range(4), *(pytest.param(k, marks=pytest.mark.slow) for k in range(4, 12))]
)
def test_ties_and_weights_of_whole_numbers(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(seed)
    for module, values in TINY[seed % len(TINY)].items():
        for name, value in values.items():
            monkeypatch.setattr(module, name, value)
    X = rng.integers(-5, 6, (400, 3)).astype(rng.choice([np.float32, np.float64]))
    weight = rng.integers(0, rng.choice([2, 4, 9]), 400)
    for eps in (1.0, np.sqrt(2), 3.0):
        for min_samples in (3, 20):
            theirs = sklearn.cluster.DBSCAN(eps=eps, min_samples=min_samples).fit(X.astype(float))
            np.testing.assert_array_equal(DBSCAN(eps, min_samples).fit(X).labels_, theirs.labels_)
            theirs.fit(X.astype(float), sample_weight=weight)
            ours = DBSCAN(eps, min_samples).fit(X, sample_weight=weight)
            np.testing.assert_array_equal(ours.labels_, theirs.labels_)


def test_labels_do_not_depend_on_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    X = gradient_like(np.random.default_rng(5), 3000, 16, 0.3)
    monkeypatch.setattr(tiles, "TILE_ROWS", 32)
    before = torch.get_num_threads()
    try:
        found = []
        for threads in (1, 4):
            torch.set_num_threads(threads)
            found.append(dbscan_grid(X, [0.8, 1.2, 2.0], [3, 20]))
            assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
    np.testing.assert_array_equal(found[0], found[1])
    assert {-1, 0, 1} <= set(found[0].ravel().tolist())


@pytest.mark.parametrize(
    "device",
    [
        "cpu",
        torch.device("cpu"),
        pytest.param(
            "cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU")
        ),
    ],
)
def test_labels_do_not_depend_on_the_device(device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    X = gradient_like(np.random.default_rng(5), 3000, 16, 0.3)
    expected = dbscan_grid(X, [0.8, 1.2, 2.0], [3, 20])
    monkeypatch.setattr(tiles, "NUMPY_COMPARES", False)  # what a GPU does, on whatever device this is
    monkeypatch.setattr(tiles, "GPU_COLS", 512)
    np.testing.assert_array_equal(dbscan_grid(X, [0.8, 1.2, 2.0], [3, 20], device=device), expected)
    np.testing.assert_array_equal(DBSCAN(1.2, 3, device=device).fit(X).labels_, expected[1, 0])


@pytest.mark.parametrize("device", ["graphics", "cuda:99"])
def test_a_device_that_is_not_there_is_named(device: str) -> None:
    with pytest.raises(ValueError, match=f"device is '{device}'.*Use 'cpu'"):
        DBSCAN(device=device).fit(np.eye(20))


def test_many_radii() -> None:
    X = np.arange(60.0)[:, None] ** 1.5
    radii = np.linspace(0.5, 12, 200).tolist()
    grid = dbscan_grid(X, radii, [3])
    for eps, labels in zip(radii[::9], grid[::9, 0], strict=True):
        np.testing.assert_array_equal(labels, sklearn.cluster.DBSCAN(eps=eps, min_samples=3).fit(X).labels_)


@pytest.mark.parametrize("seed", range(5))
def test_linked_bits_are_the_components_of_a_graph(seed: int) -> None:
    """Words connect the bits that they have; a bit that no word connects is in no group."""
    rng = np.random.default_rng(seed)
    bits = rng.choice(64, size=(rng.integers(1, 30), 3))
    words = np.bitwise_or.reduce(np.left_shift(np.uint64(1), bits.astype(np.uint64)), axis=1)
    edges = np.concatenate([bits[:, [0, 1]], bits[:, [1, 2]]])
    graph = scipy.sparse.coo_array((np.ones(len(edges)), edges.T), shape=(64, 64))
    count, member = scipy.sparse.csgraph.connected_components(graph, directed=False)
    found = sorted(group.tolist() for group in components._linked(words))
    groups = [np.flatnonzero(member == k).tolist() for k in range(count)]
    assert found == sorted(group for group in groups if len(group) > 1)
