"""The groups operator on classes in blocks: all that the one-worker path leaves, to the last digit."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from operators.base import VECTOR, OperatorError
from operators.grasp import blocks as blocks_module
from operators.grasp.adaptor import Groups
from operators.grasp.class_model import ClassModel
from operators.grasp.kernel import infer_class
from operators.grasp.params import GroupsParams
from operators.metrics import silhouettes as silhouettes_module
from tests.data import cut
from tests.unit.in_memory import PicklingExecutor
from tests.unit.operators.grasp.test_grasp_operator import context_for, rows

AXES: dict[str, Any] = {"min_samples": [5, 10], "eps": [0.02, 0.05, 0.08], "min_rows": 0}


def fitted(tables: Any, folder: Path, **params: Any) -> tuple[Any, Any, Path]:
    """New columns, metrics, and the state folder."""
    operator, context = Groups(GroupsParams(**AXES | params)), context_for(tables, folder)
    metrics = operator.fit(context, PicklingExecutor())  # type: ignore[arg-type]
    apply = operator.open(context)
    found = [apply(context.shards.read(s, operator.requires)) for s in range(len(tables))]
    return pa.concat_tables(found), metrics, context.state


@pytest.mark.parametrize(
    "params", [{}, {"metric": "euclidean", "eps": [0.3, 0.6, 1.2]}], ids=["cosine", "euclid"]
)
@pytest.mark.parametrize(("n_shards", "block_rows"), [(1, 64), (5, 100)])
def test_same_columns_record_and_model_as_one_worker(
    params: Any, n_shards: int, block_rows: int, tmp_path: Path
) -> None:
    table = rows()
    alone, metrics, one = fitted([table], tmp_path / "one", **params)
    shards = [*cut(table, n_shards), table.slice(0, 0)]
    found, their_metrics, blocks = fitted(shards[::-1], tmp_path / "blocks", block_rows=block_rows, **params)
    order = np.argsort(np.concatenate([t.column("row_id").to_numpy() for t in shards[::-1]]))
    assert found.take(order).equals(alone)
    assert their_metrics == metrics
    for name in ("selection.json", "groups.json"):
        assert json.loads((blocks / name).read_text()) == json.loads((one / name).read_text())
    assert (blocks / "labels-0").is_dir()
    assert not list(blocks.glob("blocks-*"))
    for index in (0, 1, 3):
        ours, theirs = (vars(ClassModel.load(s / f"model-{index}.npz")) for s in (one, blocks))
        for name in ours:
            np.testing.assert_array_equal(ours[name], theirs[name])


def test_a_class_of_noise_is_one_group_as_for_one_worker(tmp_path: Path) -> None:
    """Narrow radii leave no cluster in any class, so that each is one group."""
    table, params = rows(), {"eps": [1e-9, 2e-9], "min_samples": [5, 10]}
    alone, metrics, one = fitted([table], tmp_path / "one", **params)
    found, their_metrics, blocks = fitted(cut(table, 2), tmp_path / "blocks", block_rows=64, **params)
    assert found.equals(alone)
    assert their_metrics == metrics
    records = json.loads((one / "selection.json").read_text())
    assert {r["n_noise"] for r in records["classes"]} == {0}
    assert records == json.loads((blocks / "selection.json").read_text())


def test_sampled_silhouettes_and_drawn_cores_are_the_kernels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a large class: a sample is scored, sums run over several spans, not all cores are kept."""
    for module in (silhouettes_module, blocks_module):
        monkeypatch.setattr(module, "EXACT_ROWS", 50)
    for module in (silhouettes_module, blocks_module):
        monkeypatch.setattr(module, "BLOCK", 48)
        monkeypatch.setattr(module, "SUMS", 600)
    monkeypatch.setattr(silhouettes_module, "SAMPLE_ROWS", 90)
    monkeypatch.setattr(blocks_module, "MAX_CORES", 40)
    table = rows(3)
    _, _, state = fitted(cut(table, 3), tmp_path, block_rows=70)
    y = table.column("y").to_numpy()
    X = np.array(table.column("gradient").to_pylist(), np.float32)
    for record in json.loads((state / "selection.json").read_text())["classes"][:2]:
        mine = X[y == record["class"]]
        labels, expected, model = infer_class(
            mine, eps_grid=AXES["eps"], min_samples_grid=AXES["min_samples"], random_state=0, max_cores=40
        )
        assert record["silhouette_se"] == expected.silhouette_se > 0
        np.testing.assert_array_equal(record["scores"], expected.scores)
        np.testing.assert_array_equal(record["noise_grid"], expected.noise_grid)
        stored = ClassModel.load(state / f"model-{record['class']}.npz")
        np.testing.assert_array_equal(stored.cores, model.cores)
        np.testing.assert_array_equal(stored.labels, model.labels)
        assert len(stored.cores) == 40 < np.count_nonzero(labels >= 0)


def test_equal_rows_are_one_group(tmp_path: Path) -> None:
    n = 90
    columns = {"row_id": np.arange(n), "y": np.zeros(n, np.int32)}
    table = pa.table({**columns, "gradient": pa.array([[1.0, 2.0]] * n, VECTOR)})
    found, _, blocks = fitted(cut(table, 2), tmp_path / "blocks", block_rows=40)
    alone, _, one = fitted([table], tmp_path / "one")
    assert found.equals(alone)
    assert set(found.column("group").to_pylist()) == {0}
    assert (one / "selection.json").read_text() == (blocks / "selection.json").read_text()


def test_gradients_of_two_lengths_are_refused(tmp_path: Path) -> None:
    table = rows()
    other = table.set_column(2, "gradient", pa.array([[1.0]] * table.num_rows, VECTOR)).slice(200)
    with pytest.raises(OperatorError, match=r"entries.*run the operator that adds this column again"):
        fitted([table.slice(0, 200), other], tmp_path, block_rows=64)


def test_block_size_is_no_part_of_the_fingerprint() -> None:
    assert "block_rows" in GroupsParams.execution_only
