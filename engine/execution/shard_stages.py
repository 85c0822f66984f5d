"""The stages in which Ray Data processes shards where actors hold a GPU or a large model.

Tasks read the next shards while the actors compute, and others commit what the actors have made, so that a
GPU does not wait for files. A block between two stages is one row: a shard's table as an Arrow stream, or the
record of a shard that was committed before or has failed, which the later stages hand on.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np
import pyarrow as pa
import ray.data

from engine.execution.job import Failure, Job
from engine.execution.worker import ShardInput, ShardOutput, ShardWorker
from engine.storage.run_store import Commit
from operators.base import Resources

Batch = dict[str, np.ndarray[Any, Any]]
BLOCK = pa.schema(
    [
        ("shard", pa.int64()),
        ("record", pa.string()),
        ("reason", pa.string()),
        ("seconds", pa.float64()),
        ("quarantined", pa.int64()),
        ("skipped", pa.int64()),
        ("rows", pa.large_binary()),
    ]
)
"""Fields of ``ShardInput`` and ``ShardOutput`` beside ``record``, which is empty where there are rows."""


def in_stages(
    source: ray.data.Dataset, given: Mapping[str, Any], size: int, wanted: Resources
) -> ray.data.Dataset:
    """Return the records of all shards, one row each.

    Parameters
    ----------
    source
        Shard numbers, one in each block.
    given
        ``job``, and ``token``, which is another one for each call of ``apply``.
    size
        Number of actors, and most tasks of a stage at the same time. These ask for no CPU: they wait for
        storage more than they compute, and the actors may hold all CPUs.
    wanted
        Resources of one actor.

    """
    tasks = {"compute": ray.data.TaskPoolStrategy(size=size), "batch_size": 1, "num_cpus": 0}
    read = source.map_batches(read_shard, fn_kwargs=dict(given), **tasks)
    computed = read.map_batches(
        ComputingActor,
        fn_constructor_kwargs={"job": given["job"]},
        compute=ray.data.ActorPoolStrategy(size=size),
        batch_size=1,
        batch_format="pyarrow",
        num_cpus=wanted.cpus,
        num_gpus=wanted.gpus or None,
    )
    return computed.map_batches(commit_shard, fn_kwargs=dict(given), batch_format="pyarrow", **tasks)


class KeptWorker:
    """The worker that this process used last. Tasks of one call of ``apply`` share it."""

    token = ""
    worker: ShardWorker | None = None

    @classmethod
    def of(cls, job: Job, token: str) -> ShardWorker:
        """Return the worker of a job, which may have opened its operator for an earlier shard."""
        if cls.worker is None or cls.token != token:
            cls.worker = None  # frees the memory of the former worker first
            cls.token, cls.worker = token, ShardWorker(job, repeats=True)
        return cls.worker


def record(found: Commit | Failure) -> dict[str, list[str]]:
    """Return the result as JSON, so that blocks of commits and of failures have the same schema."""
    return {"record": [json.dumps(asdict(found))]}


def read_shard(batch: Batch, job: Job, token: str) -> pa.Table:
    """Read the shard of a batch."""
    shard = int(batch["shard"][0])
    return to_block(shard, KeptWorker.of(job, token).read(shard))


class ComputingActor:
    """Holds the operator that it has opened, and computes a shard that was read."""

    def __init__(self, job: Job) -> None:
        self._worker = ShardWorker(job, repeats=True)

    def __call__(self, block: pa.Table) -> pa.Table:
        """Return the block of what the operator makes of the shard."""
        shard, values, rows = of_block(block)
        if values["record"]:
            return block
        given = ShardInput(rows, values["reason"], values["seconds"])
        return to_block(shard, self._worker.compute(shard, given))


def commit_shard(block: pa.Table, job: Job, token: str) -> dict[str, list[str]]:
    """Commit a shard that was computed, and return its record."""
    shard, values, rows = of_block(block)
    if values["record"]:
        return {"record": [values["record"]]}
    found = ShardOutput(rows, values["seconds"], values["quarantined"], values["skipped"])
    return record(KeptWorker.of(job, token).commit(shard, found))


def to_block(shard: int, found: ShardInput | ShardOutput | Commit | Failure) -> pa.Table:
    """Return the block of a shard."""
    values: dict[str, Any] = {"shard": shard, "record": "", "reason": "", "seconds": 0.0}
    table = None
    if isinstance(found, ShardInput):
        table = found.table
        values |= {"reason": found.reason, "seconds": found.seconds}
    elif isinstance(found, ShardOutput):
        table = found.columns
        counts = {"quarantined": found.quarantined, "skipped": found.skipped}
        values |= {"seconds": found.seconds, **counts}
    else:
        (values["record"],) = record(found)["record"]
    rows = pa.nulls(1, pa.large_binary()) if table is None else _stream(table)
    columns = [pa.array([values.get(name)], BLOCK.field(name).type) for name in BLOCK.names[:-1]]
    return pa.table([*columns, rows], schema=BLOCK)


def of_block(block: pa.Table) -> tuple[int, dict[str, Any], pa.Table | None]:
    """Return the shard of a block, its values, and its table; None where it has none."""
    (values,) = block.drop_columns("rows").to_pylist()
    (data,) = block.column("rows")
    table = pa.ipc.open_stream(data.as_buffer()).read_all() if data.is_valid else None
    return values["shard"], values, table


def _stream(table: pa.Table) -> pa.Array:
    """Return a table as an array of one value: the bytes of an Arrow stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as out:
        out.write_table(table)
    data = sink.getvalue()
    ends = pa.py_buffer(np.array([0, data.size], np.int64))
    return pa.Array.from_buffers(pa.large_binary(), 1, [None, ends, data])
