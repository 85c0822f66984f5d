"""Reading beside a model of equal cost, on Ray: our executor, one actor that does both in turn, and Ray Data.

python -m tests.benchmarks.streaming [--shards 30] [--seconds 1] [--megabytes 27] [--write-readme]

A pause stands in for the storage and another for the GPU, so that the figures show what overlaps and not what
a core computes. Rates are between the first and the last shard: starting the actor is not counted. Then our
executor reads shards without a pause that are together ten times the object store, for a slow model, and the
memory of the object store is watched.
"""

from __future__ import annotations

import argparse
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import ray.data

from engine.execution.cluster import executor as open_executor
from engine.execution.job import Job
from engine.execution.worker import ShardWorker
from engine.plan.planner import make_plan
from engine.recipe.recipe import RunSection
from engine.storage.lease import Lease
from engine.storage.reader import StoreReader
from operators.base import Apply, Context, Operator, OperatorParams
from tests.benchmarks.harness import Row, figure, machine, ratio, table, write_section
from tests.data import small_recipe

README = Path(__file__).with_name("README.md")
OURS, IN_TURN, PLAIN = "ours", "one actor, in turn", "Ray Data alone, nothing committed"
STORE_MB = 80
"""Object store of the second part, the least that Ray takes."""


@dataclass(frozen=True)
class SlowReader(StoreReader):
    """A reader of a slow storage, whose first row has as many random megabytes as it is told."""

    pause: float = 0.0
    megabytes: int = 0

    def read_source(self, shard: int, columns: Sequence[str]) -> pa.Table:
        """Read after a pause."""
        time.sleep(self.pause)
        table = super().read_source(shard, columns)
        if not self.megabytes:
            return table
        data = np.random.default_rng(shard).bytes(self.megabytes * 2**20)
        values = [data, *[None] * (table.num_rows - 1)]
        return table.append_column("data", pa.array(values, pa.large_binary()))


class SlowModel(Operator[OperatorParams]):
    """An operator on an actor, whose model computes elsewhere for a while."""

    name, version, Params = "slow_model", 1, OperatorParams
    requires = ()
    source_columns = ("a",)
    adds = (pa.field("one", pa.int64()),)
    keeps_open = True
    pause = 0.0

    def open(self, context: Context) -> Apply:
        """Return the function that pauses."""

        def apply(rows: pa.Table) -> pa.Table:
            time.sleep(self.pause)
            return pa.table({"one": pa.repeat(pa.scalar(1), rows.num_rows)})

        return apply


@dataclass(frozen=True)
class OwnLease(Lease):
    """A lease that nobody takes over."""

    def check(self) -> None:
        """Accept the writer."""


class InTurn:
    """An actor that reads, computes and commits one shard after the other."""

    def __init__(self, job: Job) -> None:
        """Open the operator."""
        self._worker = ShardWorker(job)

    def __call__(self, batch: dict[str, np.ndarray[Any, Any]]) -> dict[str, list[int]]:
        """Process one shard."""
        self._worker(int(batch["shard"][0]))
        return {"shard": batch["shard"].tolist()}


class Model:
    """An actor that pauses for every batch."""

    def __init__(self, pause: float) -> None:
        """Take the pause."""
        self._pause = pause

    def __call__(self, batch: pa.Table) -> dict[str, list[int]]:
        """Compute one shard."""
        time.sleep(self._pause)
        return {"shard": [batch.num_rows]}


def read(batch: dict[str, np.ndarray[Any, Any]], job: Job) -> pa.Table:
    """Read one shard."""
    return job.reader.read_source(int(batch["shard"][0]), ["a"])


def job_of(folder: Path, shards: int, seconds: float, *, reading: float, megabytes: int = 0) -> Job:
    """Return the job of the slow model over a small table whose shards are made larger."""
    plan = make_plan(small_recipe(folder, shards=shards))
    planned = plan.operators[0]
    first = plan.reader(planned)
    reader = SlowReader(
        **{one.name: getattr(first, one.name) for one in fields(first)}, pause=reading, megabytes=megabytes
    )
    operator = SlowModel(OperatorParams())
    SlowModel.pause = operator.pause = seconds  # type: ignore[misc]
    context = Context(reader, folder / "state")
    return Job(operator, context, reader, planned.fingerprint, OwnLease(folder, 1))


def pipelines(job: Job, seconds: float) -> dict[str, Any]:
    """Return a function for each pipeline that yields something for every shard as it is done."""
    numbers = range(len(job.reader.shards))
    items = [{"shard": shard} for shard in numbers]
    one = {"batch_size": 1, "compute": ray.data.ActorPoolStrategy(size=1)}

    def source() -> ray.data.Dataset:
        return ray.data.from_items(items, override_num_blocks=len(items))

    def ours() -> Iterable[Any]:
        with open_executor(RunSection(executor="ray", shards_in_flight=1)) as executor:
            yield from executor.apply(job, numbers)

    def in_turn() -> Iterable[Any]:
        return source().map_batches(InTurn, fn_constructor_kwargs={"job": job}, **one).iter_rows()

    def plain() -> Iterable[Any]:
        tasks = ray.data.TaskPoolStrategy(size=1)
        rows = source().map_batches(read, fn_kwargs={"job": job}, batch_size=1, compute=tasks, num_cpus=0)
        whole = {**one, "batch_size": None, "batch_format": "pyarrow"}
        return rows.map_batches(Model, fn_constructor_kwargs={"pause": seconds}, **whole).iter_rows()

    return {IN_TURN: in_turn, PLAIN: plain, OURS: ours}


@contextmanager
def watched_store() -> Iterator[dict[str, int]]:
    """Sample the object store of the running Ray: its peak, and what it spilled to disk, in bytes."""
    from ray._private.internal_api import get_memory_info_reply, get_state_from_address

    found, ended = {"peak": 0, "spilled": 0}, threading.Event()

    def sample() -> None:
        state = get_state_from_address(ray.get_runtime_context().gcs_address)
        while not ended.wait(0.1):
            stats = get_memory_info_reply(state).store_stats
            found["peak"] = max(found["peak"], stats.object_store_bytes_used)
            found["spilled"] = stats.spilled_bytes_total

    thread = threading.Thread(target=sample)
    thread.start()
    try:
        yield found
    finally:
        ended.set()
        thread.join()


def beyond_the_store(shards: int, seconds: float, megabytes: int) -> list[Row]:
    """Return what the object store holds while shards that do not fit into it pass through."""
    spec = RunSection(executor="ray", object_store_mb=STORE_MB, shards_in_flight=1)
    with TemporaryDirectory() as folder, open_executor(spec) as executor, watched_store() as store:
        job = job_of(Path(folder), shards, seconds, reading=0.0, megabytes=megabytes)
        ends = [time.perf_counter() for _ in executor.apply(job, range(shards))]
    return [
        {
            "shards": figure(len(ends)),
            "read, MiB": figure(shards * megabytes),
            "object store, MiB": figure(STORE_MB),
            "peak in the store, MiB": figure(store["peak"] / 2**20),
            "spilled to disk, MiB": figure(store["spilled"] / 2**20),
            "shards a second": figure((len(ends) - 1) / (ends[-1] - ends[0])),
        }
    ]


def main() -> None:
    """Run the pipelines one after the other and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shards", type=int, default=30)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--megabytes", type=int, default=27, help="of a shard in the second part")
    parser.add_argument("--write-readme", action="store_true")
    options = parser.parse_args()
    rates: dict[str, float] = {}
    for name in (IN_TURN, PLAIN, OURS):
        with TemporaryDirectory() as folder, open_executor(RunSection(executor="ray")):
            job = job_of(Path(folder), options.shards, options.seconds, reading=options.seconds)
            ends = [time.perf_counter() for _ in pipelines(job, options.seconds)[name]()]
        rates[name] = (len(ends) - 1) / (ends[-1] - ends[0])
    rows: list[Row] = [
        {"pipeline": name, "shards a second": figure(rate), "against in turn": ratio(rate / rates[IN_TURN])}
        for name, rate in rates.items()
    ]
    what = f"{options.shards} shards, {options.seconds:g} s to read and {options.seconds:g} s in the model."
    stored = beyond_the_store(options.shards, options.seconds, options.megabytes)
    larger = f"The same shards, {options.megabytes} MiB each, read without a pause:"
    text = "\n\n".join([machine(["ray", "pyarrow"]), what, table(rows), larger, table(stored)])
    print(text)
    if options.write_readme:
        write_section(README, "streaming", text)


if __name__ == "__main__":
    main()
