"""Options of the groups operator: approximate neighbours, and grids kept for the report."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from operators.dbscan import dbscan_grid
from operators.dbscan import graph_dbscan as approximate_module
from operators.grasp.state import AUTO_ROWS, keeps_grid, read_grid
from operators.groups.by_column import Oracle
from operators.groups.params import OracleParams
from operators.neighbours import faiss_index as index_module
from tests.unit.in_memory import run_operator
from tests.unit.operators.grasp.test_grasp_operator import cut, rows
from tests.unit.operators.grasp.test_sharded_groups import AXES, fitted


def class_rows(table: Any, value: int) -> tuple[Any, Any]:
    """Row ids and gradients of a class."""
    own = table.filter(table.column("y").to_numpy() == value)
    return own.column("row_id").to_numpy(), np.array(own.column("gradient").to_pylist(), np.float32)


@pytest.mark.parametrize("block_rows", [65_536, 64])
def test_the_kept_grid_is_dbscans_however_the_class_was_clustered(block_rows: int, tmp_path: Path) -> None:
    table = rows()
    _, _, state = fitted(cut(table, 3), tmp_path, block_rows=block_rows)
    for value in (0, 1):
        ids, X = class_rows(table, value)
        wanted = dbscan_grid(X, AXES["eps"], AXES["min_samples"], "centered_cosine")
        some = np.sort(np.random.default_rng(0).choice(len(ids), len(ids) // 3, replace=False))
        seen = dict(read_grid(state, value, ids[some]))
        assert len(seen) == wanted.shape[0] * wanted.shape[1]
        for cell, labels in seen.items():
            np.testing.assert_array_equal(labels, wanted[cell][some])
        elsewhere = np.arange(ids[-1] + 1, ids[-1] + 4)
        for _, labels in read_grid(state, value, np.append(ids[-2:], elsewhere)):
            assert labels.tolist()[2:] == [-2, -2, -2]
            assert min(labels.tolist()[:2]) >= -1


def test_a_grid_is_kept_when_asked_or_small(tmp_path: Path) -> None:
    assert (keeps_grid("auto", AUTO_ROWS), keeps_grid("auto", AUTO_ROWS + 1)) == (True, False)
    assert (keeps_grid(True, AUTO_ROWS + 1), keeps_grid(False, 1)) == (True, False)
    _, _, state = fitted([rows()], tmp_path, keep_grid=False)
    assert not list(state.glob("grid-*"))


@pytest.mark.parametrize("kind", ["ivf", "hnsw", "auto"])
def test_a_thorough_index_gives_the_exact_groups(kind: str, tmp_path: Path) -> None:
    table, knobs = rows(), {"nprobe": 10**6, "ef_search": 10**4}
    exact, metrics, _ = fitted([table], tmp_path / "exact")
    found, same, state = fitted(cut(table, 3), tmp_path / "found", neighbours=kind, **knobs, block_rows=64)
    assert found.equals(exact)
    assert same == metrics
    for record in json.loads((state / "selection.json").read_text())["classes"]:
        quality = record["approximation"]
        if kind == "auto" or record["name"] == "lone":
            assert quality is None
        else:
            figures = {"recall": 1, "wrong_cores": 0, "ari": 1, "ari_rows": record["n_rows"], "low": ""}
            assert quality == {"index": kind, **figures}


def test_a_poor_graph_is_logged_and_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(approximate_module, "JOINING_ROWS", 1)
    monkeypatch.setattr(index_module, "ROWS_PER_LIST", 5)
    _, _, state = fitted([rows()], tmp_path, neighbours="ivf", nprobe=1)
    records = json.loads((state / "selection.json").read_text())["classes"]
    low = [r["name"] for r in records if r["approximation"] and r["approximation"]["low"]]
    assert low
    assert all(f"class {name}: clusters found through the ivf graph differ" in caplog.text for name in low)
    assert "Raise nprobe" in caplog.text


@pytest.mark.parametrize("as_category", [False, True])
def test_the_oracle_takes_nan_as_no_value_and_both_zeros_as_one(tmp_path: Path, as_category: bool) -> None:
    values = pa.array([1.0, float("nan"), None, 2.0, -0.0, 0.0])
    table = pa.table({"t": values.dictionary_encode() if as_category else values, "y": np.zeros(6, np.int32)})
    found, metrics = run_operator(Oracle(OracleParams(column="t")), [table], tmp_path)
    assert found["group"].to_pylist() == [1, -1, -1, 2, 0, 0]
    assert metrics["groups"] == 3
