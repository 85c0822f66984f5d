"""Trees of boxes over vectors: the rows of all pairs with any trees, few comparisons, few new files."""

from __future__ import annotations

import os
import resource
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.execution.local_executor import LocalExecutor
from operators.base import Context, DatasetDelta, ShardInfo
from operators.duplicates import box_tree, vectors
from operators.duplicates.adaptor import DuplicatesOperator
from operators.duplicates.pairs import StoredPairs
from operators.duplicates.params import DuplicatesParams
from operators.duplicates.runs import Run, choose_runs
from tests.benchmarks.duplicates import VectorShards
from tests.unit.operators.duplicates.hard_rows import VECTORS, nearest_older


def shards_of(folder: Path, X: Any, sizes: list[int]) -> VectorShards:
    """Write rows in shards of some sizes; those that are left are the last shard."""
    folder.mkdir(exist_ok=True)
    cuts = np.cumsum(sizes)
    infos = []
    for index, (start, rows) in enumerate(zip([0, *cuts], np.split(X, cuts), strict=True)):
        np.save(folder / f"{index}.npy", rows)
        infos.append(ShardInfo(index, f"{index}.npy", int(start), len(rows), 0))
    return VectorShards(folder, tuple(infos))


def grow(folder: Path, reader: VectorShards, first: int, distance: float) -> Path:
    """Fit on some shards, add the others one by one, and return the last state."""
    operator = DuplicatesOperator(DuplicatesParams(distance=distance))
    state, executor = folder / "state-0", LocalExecutor()
    state.mkdir()
    known = VectorShards(reader.folder, reader.shards[:first])
    metrics = operator.fit(Context(known, state), executor)
    for count in range(first + 1, len(reader.shards) + 1):
        known = VectorShards(reader.folder, reader.shards[:count])
        delta = DatasetDelta(state, metrics, (count - 1,), rows_removed=False)
        state = folder / f"state-{count}"
        state.mkdir()
        metrics = operator.partial_fit(Context(known, state), delta, executor)
    return state


@pytest.mark.parametrize("distance", [0.0, 0.001, 0.2, 1.0, 1.7])
@pytest.mark.parametrize("kind", VECTORS, ids=lambda kind: kind.__name__)
def test_increments_find_what_all_pairs_find(
    kind: Any, distance: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(box_tree, "LEAF", 8)
    monkeypatch.setattr(box_tree, "AT_ONCE", 5)
    monkeypatch.setattr(box_tree, "VALUES", 64)
    monkeypatch.setattr(vectors, "LARGEST", 300)
    X = kind(np.random.default_rng(3)).astype(np.float32)
    state = grow(tmp_path, shards_of(tmp_path / "rows", X, [50, 1, 60, 20, 30]), 2, distance)
    found = StoredPairs(state).of_rows(np.arange(len(X)))
    assert found.of.tolist() == nearest_older(X, max(distance, vectors.ROUNDING))
    wide = X.astype(np.float64)
    length = np.linalg.norm(wide, axis=1, keepdims=True)
    unit = np.divide(wide, length, out=np.zeros_like(wide), where=length > 0)
    has = np.flatnonzero(found.of >= 0)
    cosines = np.einsum("ij,ij->i", unit[has], unit[found.of[has]])
    np.testing.assert_allclose(found.similarity[has], cosines, atol=1e-6)


def rows_compared(folder: Path, n: int, width: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """Return how many pairs of a new and an old row are compared, for 200 new rows."""
    rng, seen = np.random.default_rng(0), []
    X = rng.normal(size=(n + 200, width)).astype(np.float32)
    compare = box_tree.OldestNear._compare

    def counted(self: Any, tree: Any, box: slice, at: Any, some: Any) -> None:
        seen.append(len(some) * (box.stop - box.start))
        compare(self, tree, box, at, some)

    folder.mkdir()
    reader = shards_of(folder / "rows", X, [n])
    for shard in reader.shards:
        vectors.store_vectors(reader, folder, shard.index)
    for run in vectors.trees_to_build(folder):
        vectors.build_run(folder, run)
    with monkeypatch.context() as patch:
        patch.setattr(box_tree.OldestNear, "_compare", counted)
        vectors.search_vectors(reader, folder, 0.001, 1)
    return sum(seen)


@pytest.mark.parametrize("width", [32, 384])
def test_rows_compared_grow_less_than_the_old_rows_without_any_clusters(
    width: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = rows_compared(tmp_path / "few", 4_000, width, monkeypatch)
    many = rows_compared(tmp_path / "many", 32_000, width, monkeypatch)
    assert many < 3 * few
    assert many < 200 * 32_000 / (3 if width == 384 else 20)


def test_many_equal_rows_are_compared_with_the_oldest_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    X = np.random.default_rng(0).normal(size=(20_000, 8)).astype(np.float32)
    X[3_000:] = X[2_999]
    reader = shards_of(tmp_path / "rows", X, [10_000])
    decide, seen = box_tree.OldestNear._decide, []

    def counted(self: Any, some: Any, ids: Any, near: Any) -> None:
        seen.append(int(near.sum()))
        decide(self, some, ids, near)

    monkeypatch.setattr(box_tree.OldestNear, "_decide", counted)
    state = grow(tmp_path, reader, 2, 0.001)
    assert StoredPairs(state).of_rows(np.arange(3_000, 20_000)).of.tolist() == [2_999] * 17_000
    assert sum(seen) < 300 * len(X)  # of 2e8 pairs


def test_an_increment_writes_few_files_and_leaves_the_state_before(tmp_path: Path) -> None:
    X = np.random.default_rng(0).normal(size=(4_000, 8)).astype(np.float32)
    reader = shards_of(tmp_path / "rows", X, [3_000, *[100] * 9])
    grow(tmp_path, reader, 1, 0.001)
    before, after = (tmp_path / f"state-{count}" for count in (10, 11))
    old = {path.stat().st_ino for path in before.rglob("*.npy")}
    new = [path for path in after.rglob("*.npy") if path.stat().st_ino not in old]
    assert sum(path.stat().st_size for path in new) < 0.2 * sum(
        p.stat().st_size for p in after.rglob("*.npy")
    )
    assert [Run.of(path).rows for path in sorted(after.glob("tree-*"))] == [3_000, 800, 200]
    assert [Run.of(path).rows for path in sorted(before.glob("tree-*"))] == [3_000, 800, 100]


def test_trees_are_few_and_a_row_is_in_few_new_ones() -> None:
    runs: list[Run] = []
    built = 0
    for night in range(1_000):
        chosen = choose_runs(runs, [Run(10 * night, 10 * night, 10)], vectors.LARGEST)
        built += sum(run.rows for run in set(chosen) - set(runs))
        runs = chosen
        assert sum(run.rows for run in runs) == 10 * (night + 1)
        assert len(runs) <= 10
    assert built < 11 * 10_000
    assert [run.rows for run in choose_runs([], [Run(k, k, 30) for k in range(7)], 100)] == [60, 60, 60, 30]


def test_rows_that_are_not_finite_hide_no_others(tmp_path: Path) -> None:
    X = np.random.default_rng(4).normal(size=(300, 4)).astype(np.float32)
    X[200:] = X[:100]
    X[0, 1], X[250, 2], X[260] = np.inf, -np.inf, np.nan
    state = grow(tmp_path, shards_of(tmp_path / "rows", X, [150, 60]), 2, 0.001)
    found = StoredPairs(state).of_rows(np.arange(300))
    assert np.flatnonzero(found.of >= 0).tolist() == [row for row in range(201, 300) if row not in (250, 260)]


def test_many_shards_need_few_open_files(tmp_path: Path) -> None:
    X = np.random.default_rng(5).normal(size=(160, 12)).astype(np.float32)
    X[80:] = X[:80]
    reader = shards_of(tmp_path / "rows", X, [1] * 159)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 40, limits[1]))
    try:
        state = grow(tmp_path, reader, 140, 0.001)
        found = StoredPairs(state).of_rows(np.arange(160))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert found.of[80:].tolist() == list(range(80))
