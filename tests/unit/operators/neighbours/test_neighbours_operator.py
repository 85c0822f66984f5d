"""The neighbours operator: the kernel's edges whatever the shards, a small state, clear errors."""

import json
import pickle
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import pyarrow as pa
import pytest
from pydantic import ValidationError

from engine.execution.local_executor import LocalExecutor
from operators.base import VECTOR, Context, OperatorError, Resources
from operators.neighbours import NeighbourGraph
from operators.neighbours import adaptor as adaptor_module
from operators.neighbours.adaptor import Neighbours
from operators.neighbours.params import NeighboursParams
from tests.data import cut
from tests.unit.in_memory import PicklingExecutor, class_context

NAMES = ["cat", "dog", "empty", "lone"]


def rows(seed: int = 0) -> pa.Table:
    """300 rows of two classes with duplicates and zero rows, one of a class of its own; gaps in row ids."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, 301).astype(np.int32)
    y[77] = 3
    X = (3 * rng.normal(size=(6, 4)))[rng.integers(6, size=301)] + 0.5 * rng.normal(size=(301, 4))
    X[::20], X[5:9] = 0, X[4]
    ids = np.sort(rng.choice(1000, 301, replace=False)).astype(np.int64)
    vectors = pa.array(X.astype(np.float32).tolist(), VECTOR)
    return pa.table({"row_id": ids, "y": y, "gradient": vectors, "x": vectors})


def context_for(tables: Sequence[pa.Table], folder: Path) -> Context:
    return class_context(tables, folder, "neighbours", NAMES, seed=5)


def run(tables: Sequence[pa.Table], folder: Path, **params: Any) -> tuple[pa.Table, Any]:
    operator, context = Neighbours(NeighboursParams(**params)), context_for(tables, folder)
    executor = PicklingExecutor()
    metrics = operator.fit(context, executor)  # type: ignore[arg-type]
    assert all(len(pickle.dumps(result)) < 1000 for result in executor.returned)
    apply = operator.open(context)
    found = [apply(context.shards.read(s, operator.requires)) for s in range(len(tables))]
    table = pa.concat_tables(found)
    assert table.schema == pa.schema(list(operator.adds))
    return table, metrics


def expected(table: pa.Table, per_class: bool, **params: Any) -> list[dict[int, float]]:
    """Neighbours and distances of each row, by the kernel over all rows of a class."""
    y, ids = table.column("y").to_numpy(), table.column("row_id").to_numpy()
    X = np.array(table.column("x").to_pylist(), np.float32)
    found: list[dict[int, float]] = [{} for _ in y]
    for value in np.unique(y) if per_class else [None]:
        members = np.flatnonzero(y == value) if per_class else np.arange(len(y))
        graph = NeighbourGraph(**params).fit(X[members]).graph_
        edges = zip(members[graph.sources()], members[graph.indices], graph.distances, strict=True)
        for i, j, distance in edges:
            found[i][int(ids[j])] = float(distance)
    return found


def as_dicts(found: pa.Table) -> list[dict[int, float]]:
    ids, distances = (found.column(name).to_pylist() for name in found.column_names)
    assert all(row == sorted(row) for row in ids)
    return [dict(zip(*row, strict=True)) for row in zip(ids, distances, strict=True)]


@pytest.mark.parametrize("n_shards", [1, 3, 7])
@pytest.mark.parametrize(
    "params",
    [
        {"per_class": True, "eps": 0.1},
        {"per_class": True, "eps": 1.0, "metric": "cosine"},
        {"per_class": False, "eps": 1.5, "metric": "euclidean"},
        {"per_class": True, "n_neighbors": 6},
        {"per_class": True, "eps": 0.1, "n_neighbors": 6},
    ],
)
def test_same_edges_as_the_kernel_whatever_the_shards(
    n_shards: int, params: dict[str, Any], tmp_path: Path
) -> None:
    table = rows()
    found, metrics = run([*cut(table, n_shards), table.slice(0, 0)], tmp_path, **params)
    wanted = expected(table, **{"metric": "centered_cosine", **params})
    assert as_dicts(found) == wanted
    degrees = [len(row) for row in wanted]
    assert 0 in degrees or not params["per_class"]
    assert max(degrees) > 5
    assert (metrics["rows"], metrics["recall"]) == (301, 1)
    assert metrics["mean_neighbours"] == pytest.approx(np.mean(degrees), rel=0.2)


@pytest.mark.parametrize("index", ["ivf", "hnsw"])
def test_approximate_indexes_are_stored_and_found_again(index: Any, tmp_path: Path) -> None:
    table = rows()
    found, metrics = run(cut(table, 3), tmp_path, index=index, eps=0.1, nprobe=99)
    assert as_dicts(found) == expected(table, True, metric="centered_cosine", eps=0.1)
    assert metrics["recall"] == 1


def test_the_state_is_an_index_with_its_rows_for_each_class(tmp_path: Path) -> None:
    table = rows()
    run(cut(table, 3)[::-1], tmp_path, n_neighbors=2, metric="euclidean", index="hnsw")
    state = tmp_path / "neighbours"
    assert {p.name for p in state.iterdir()} == {"class-0", "class-1", "class-3", "graph.json"}
    y, X = table.column("y").to_numpy(), np.array(table.column("gradient").to_pylist(), np.float32)
    for value in (0, 1, 3):
        folder = state / f"class-{value}"
        index = faiss.read_index(str(folder / "index.faiss"))
        assert (type(index).__name__, index.ntotal) == ("IndexHNSWFlat", (y == value).sum())
        np.testing.assert_array_equal(np.load(folder / "rows.npy"), X[y == value])
        np.testing.assert_array_equal(
            np.load(folder / "row_ids.npy"), table.column("row_id").to_numpy()[y == value]
        )
    record = json.loads((state / "graph.json").read_text())["parts"]
    assert [(part["part"], part["name"], part["rows"]) for part in record] == [
        (value, NAMES[value], (y == value).sum()) for value in (0, 1, 3)
    ]


def test_a_low_recall_is_logged_and_recorded(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    table = rows()
    _, metrics = run([table], tmp_path, eps=6.0, metric="euclidean", index="ivf", nprobe=1)
    assert metrics["recall"] < 0.95
    assert "class cat: the ivf index finds only" in caplog.text
    assert "Raise nprobe" in caplog.text


def test_rows_that_fit_did_not_see_are_named(tmp_path: Path) -> None:
    table = rows()
    operator, context = Neighbours(NeighboursParams(eps=0.1)), context_for([table], tmp_path)
    operator.fit(context, PicklingExecutor())  # type: ignore[arg-type]
    moved = table.slice(0, 4).set_column(0, "row_id", pa.array([5000, 5001, 5002, 5003], pa.int64()))
    with pytest.raises(OperatorError, match=r"no row_id 500\d"):
        operator.open(context)(moved)


def test_vectors_of_two_lengths_are_an_error(tmp_path: Path) -> None:
    table = rows().select(["row_id", "y", "gradient"])
    short = pa.table(
        {"row_id": [2000], "y": pa.array([0], pa.int32()), "gradient": pa.array([[1.0]], VECTOR)}
    )
    with pytest.raises(OperatorError, match=r"s1: its column 'gradient' has vectors of 1 entries, .* 4"):
        run([table, short], tmp_path, eps=0.1)


def test_no_rows_at_all_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OperatorError, match="no class has a row"):
        run([rows().slice(0, 0)], tmp_path, eps=0.1)


def test_a_graph_of_too_many_edges_is_refused_before_it_is_built(tmp_path: Path) -> None:
    with pytest.raises(OperatorError, match=r"operators\.neighbours: class cat: .* within eps = 1\.9"):
        run([rows()], tmp_path, eps=1.9, max_edges=1000)
    assert not list(tmp_path.rglob("index.faiss"))


def test_too_many_edges_for_a_shard_are_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adaptor_module, "MAX_EDGES", 1000)
    with pytest.raises(OperatorError, match=r"more than one column holds \(1000\). Lower operators.neighb"):
        run([rows()], tmp_path, eps=2.0)


def test_without_faiss_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(OperatorError, match=r"rowsieve\[cpu\]"):
        run([rows()], tmp_path, eps=0.1)


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"eps": -1},
        {"n_neighbors": 0},
        {"eps": 1, "index": "lsh"},
        {"epss": 1},
    ],
)
def test_bad_parameters_are_refused(wrong: Any) -> None:
    with pytest.raises(ValidationError):
        NeighboursParams(**wrong)


def test_what_is_read_follows_from_the_parameters() -> None:
    assert Neighbours(NeighboursParams(eps=0.1)).requires == ("gradient", "y")
    everywhere = Neighbours(NeighboursParams(eps=0.1, space="x", per_class=False))
    assert (everywhere.requires, everywhere.resources) == (("x",), Resources())


def test_planning_imports_no_heavy_library() -> None:
    code = (
        "import sys, operators.neighbours.adaptor; "
        "print([m for m in ('torch', 'sklearn', 'scipy', 'faiss', 'ray') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_each_shard_is_read_once_for_all_classes(tmp_path: Path) -> None:
    context = context_for(cut(rows(), 5), tmp_path)
    Neighbours(NeighboursParams(n_neighbors=3, space="x")).fit(context, LocalExecutor())
    reads = context.shards.reads  # type: ignore[attr-defined]
    assert len(reads) == 2 * 5
    assert sum("x" in columns for _, columns in reads) == 5
