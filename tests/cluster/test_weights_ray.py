"""Training without each fold: one task a fold, or two of Ray Train's workers a fold, leave the same bytes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from engine.execution.ray_executor import RayExecutor
from operators.base import ROW_ID, Context, Resources, ShardInfo
from operators.weights.adaptor import Weights
from operators.weights.cross_fit import FoldJob
from operators.weights.folds_ray import train_folds
from operators.weights.params import CrossFit, WeightsParams
from tests.unit.operators.weights.test_weights import doubtful_problem

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.usefixtures("ray_cluster")]
ROWS, SHARDS = 60, 5


class MemoryReader:
    """Five shards that every worker can make for itself."""

    @property
    def shards(self) -> list[ShardInfo]:
        return [ShardInfo(i, f"memory-{i}", ROWS * i, ROWS, 0) for i in range(SHARDS)]

    def read(self, shard: int, columns: Sequence[str]) -> pa.Table:
        table = doubtful_problem()
        table = table.append_column(ROW_ID, pa.array(range(table.num_rows), pa.int64()))
        return table.slice(ROWS * shard, ROWS).select([ROW_ID, *columns])

    def read_source(self, shard: int, columns: Sequence[str]) -> pa.Table:
        raise AssertionError


def test_folds_are_the_same_to_the_byte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    workers = []

    def seen(job: FoldJob, resources: Resources, n_workers: int) -> None:
        workers.append(n_workers)
        train_folds(job, resources, n_workers)

    monkeypatch.setattr("operators.weights.folds_ray.train_folds", seen)
    (tmp_path / "classes.json").write_text('{"classes": ["a", "b", "c"], "counts": [100, 100, 100]}')
    found = []
    for small_rows in (ROWS * SHARDS, 0):
        state = tmp_path / f"up-to-{small_rows}"
        state.mkdir()
        params = WeightsParams(trust="self_confidence", cross_fit=CrossFit(folds=2), small_rows=small_rows)
        context = Context(MemoryReader(), state, {"ingest": tmp_path}, seed=1)
        metrics = Weights(params).fit(context, RayExecutor())
        files = {str(path.relative_to(state)): path.read_bytes() for path in state.rglob("*.*")}
        found.append((metrics, files))
    assert workers == [2]  # of the four CPUs there are, for each fold
    assert found[0] == found[1]
    assert {"weights.json", "without-0/model.safetensors", "without-1/model.safetensors"} <= {*found[1][1]}
