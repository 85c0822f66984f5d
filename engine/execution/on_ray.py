"""Work on a Ray cluster: tasks between shards, a Ray Data actor pool that streams over shards.

Only shard numbers and commit records travel through Ray; rows go from file to actor to file.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from itertools import islice
from typing import Any, Literal, TypeVar

import numpy as np
import ray
import ray.data

from connectors.base import ConnectorError
from engine.errors import InfeasibleError, InputError
from engine.execution.job import Failure, Job
from engine.execution.worker import ShardWorker
from engine.store import Commit
from operators.base import OperatorError, Resources

T = TypeVar("T")
R = TypeVar("R")
Batch = dict[str, np.ndarray[Any, Any]]


class RayExecutor:
    """See ``operators.base.Executor``."""

    kind: Literal["local", "ray"] = "ray"

    def __init__(self, limit: int | None = None) -> None:
        """``limit``: most shards in work at once; default as many as the cluster has room for."""
        self._limit = limit

    def map(
        self, fn: Callable[[T], R], items: Sequence[T], *, resources: Resources | None = None
    ) -> Iterator[R]:
        """One task for each item, a bounded number in flight; results in order."""
        wanted = resources or Resources()
        check_feasible("operators.NAME", wanted)
        task = ray.remote(num_cpus=wanted.cpus, num_gpus=wanted.gpus, max_retries=3)(_call)
        waiting = iter(items)
        window = [task.remote(fn, item) for item in islice(waiting, self._width(wanted, len(items)))]
        while window:
            yield _unwrap(ray.get(window.pop(0)))
            window += [task.remote(fn, item) for item in islice(waiting, 1)]

    def apply(self, job: Job, shards: Sequence[int]) -> Iterator[Commit | Failure]:
        """Stream shards through Ray Data; results as they come.

        Operators that keep something open get a pool of actors that starts full; the others run as
        tasks, which find warm processes.
        """
        there = float(ray.cluster_resources().get("GPU", 0))
        wanted = job.operator.resources.on(there, prefers_gpu=job.operator.prefers_gpu)
        check_feasible(f"operators.{job.operator.name}", wanted)
        size = self._width(wanted, len(shards))
        kept = job.operator.keeps_open
        source = ray.data.from_items([{"shard": shard} for shard in shards], override_num_blocks=len(shards))
        results = source.map_batches(
            _ShardActor if kept else _process,
            fn_constructor_kwargs={"job": job} if kept else None,
            fn_kwargs=None if kept else {"job": job},
            compute=ray.data.ActorPoolStrategy(size=size) if kept else ray.data.TaskPoolStrategy(size=size),
            batch_size=1,
            num_cpus=wanted.cpus,
            num_gpus=wanted.gpus or None,
        )
        for row in results.iter_rows():
            fields = json.loads(row["record"])
            yield Failure(**fields) if "message" in fields else Commit(**fields)

    def _width(self, wanted: Resources, n_items: int) -> int:
        fits = float(ray.cluster_resources().get("CPU", 1)) / max(wanted.cpus, 1e-3)
        if wanted.gpus:
            fits = min(fits, float(ray.cluster_resources().get("GPU", 0)) / wanted.gpus)
        limits = [n_items, int(fits), wanted.actors or n_items, self._limit or n_items]
        return max(1, min(limits))


def check_feasible(who: str, wanted: Resources) -> None:
    """Raises InfeasibleError when no single node has what one actor asks for."""
    for key, label, amount in (("CPU", "cpus", wanted.cpus), ("GPU", "gpus", wanted.gpus)):
        most = max(
            (float(node["Resources"].get(key, 0)) for node in ray.nodes() if node["Alive"]), default=0.0
        )
        if amount > most:
            raise InfeasibleError(
                f"{who} asks for {amount:g} {key} in one actor, and the largest node of the cluster has "
                f"{most:g}. Lower it (--set {who}.resources.{label}={most:g}), or add such a node."
            )


class _ShardActor:
    """Adapts ShardWorker to Ray Data: batches of one shard number in, one record out."""

    def __init__(self, job: Job) -> None:
        self._worker = ShardWorker(job)

    def __call__(self, batch: Batch) -> dict[str, list[str]]:
        return _record(self._worker, batch)


def _process(batch: Batch, job: Job) -> dict[str, list[str]]:
    """The same without an actor."""
    return _record(ShardWorker(job), batch)


def _record(worker: ShardWorker, batch: Batch) -> dict[str, list[str]]:
    """JSON, so that every block has one schema, whether it holds a commit or a failure."""
    return {"record": [json.dumps(asdict(worker(int(batch["shard"][0]))))]}


def _call(fn: Callable[[T], R], item: T) -> tuple[R | None, str | None]:
    """Expected faults come back as text: Ray wraps what is raised in a class of its own."""
    try:
        return fn(item), None
    except (OperatorError, ConnectorError, InputError) as error:
        return None, str(error)


def _unwrap(result: tuple[R | None, str | None]) -> R:
    value, fault = result
    if fault is not None:
        raise InputError(fault)
    return value  # type: ignore[return-value]
