"""Blocks between the stages in which Ray Data processes shards."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from engine.execution.job import Failure, Job
from engine.execution.shard_stages import BLOCK, ComputingActor, commit_shard, of_block, read_shard, to_block
from engine.execution.worker import ShardInput, ShardOutput, ShardWorker
from engine.storage.run_store import Commit
from operators.base import OperatorParams
from operators.ingest.adaptor import Ingest
from tests.unit.engine.execution.test_executor_behaviour import Counting, job_of

ROWS = pa.table(
    {
        "n": pa.chunked_array([[1, 2], [3]]),
        "word": pa.array(["a", None, "b"]).dictionary_encode(),
        "vector": pa.array([[0.5], [], None], pa.list_(pa.float32())),
    }
).replace_schema_metadata({"made by": "a test"})


def counting_job(folder: Path) -> Job:
    """Return the job of an operator that reads a source column and needs no state."""
    return replace(job_of(folder, Ingest), operator=Counting(OperatorParams()))


@pytest.mark.parametrize("table", [ROWS, ROWS.slice(0, 0), None])
def test_what_was_read_survives_the_block(table: pa.Table | None) -> None:
    block = to_block(7, ShardInput(table, "" if table is not None else "the file ends early", 0.25))
    assert block.schema == BLOCK
    shard, values, rows = of_block(block)
    assert (shard, values["record"], values["seconds"]) == (7, "", 0.25)
    assert values["reason"] == ("" if table is not None else "the file ends early")
    assert (rows is None) == (table is None)
    if rows is not None and table is not None:
        assert rows.equals(table, check_metadata=True)


def test_what_was_computed_survives_the_block() -> None:
    shard, values, rows = of_block(to_block(3, ShardOutput(ROWS, 1.5, 2, 1)))
    assert (shard, values["seconds"], values["quarantined"], values["skipped"]) == (3, 1.5, 2, 1)
    assert rows is not None
    assert rows.equals(ROWS)


def test_a_failure_passes_through_all_stages(tmp_path: Path) -> None:
    failure = Failure("ingest", 0, "the file is gone", "input")
    block = to_block(0, failure)
    job = job_of(tmp_path, Ingest)
    handed_on = ComputingActor(job)(block)
    (record,) = commit_shard(handed_on, job, "a")["record"]
    assert json.loads(record) == asdict(failure)


def test_the_stages_give_what_one_worker_does(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "stages").mkdir()
    alone, job = counting_job(tmp_path / "one"), counting_job(tmp_path / "stages")
    expected = ShardWorker(alone)(1)
    block = ComputingActor(job)(read_shard({"shard": np.array([1])}, job, "b"))
    (record,) = commit_shard(block, job, "b")["record"]
    found = Commit(**json.loads(record))
    assert isinstance(expected, Commit)
    assert replace(found, seconds=0.0) == replace(expected, seconds=0.0)
    parts = [one.reader.store.part(one.fingerprint, 1).read_bytes() for one in (alone, job)]
    assert parts[0] == parts[1]


def test_a_committed_shard_is_computed_at_no_stage_again(tmp_path: Path) -> None:
    job = counting_job(tmp_path)
    given = ShardWorker(job).read(0)
    assert isinstance(given, ShardInput)
    commit = ShardWorker(job)(0)
    for found in (
        ShardWorker(job, repeats=True).read(0),
        ShardWorker(job, repeats=True).compute(0, given),
        ShardWorker(job, repeats=True).commit(0, ShardOutput(ROWS, 0.0, 0, 0)),
    ):
        assert found == commit
