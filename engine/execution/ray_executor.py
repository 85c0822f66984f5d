"""The Ray executor: tasks for functions between shards, and Ray Data for streaming over shards.

Only shard numbers and commit records pass through Ray. Workers read rows from files and write them to files.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from typing import Literal, TypeVar
from uuid import uuid4

import ray
import ray.data

from connectors.base import ConnectorError
from engine.core.errors import InfeasibleError, InputError, RowsieveError, one_line, system_error
from engine.execution.job import Failure, Job
from engine.execution.memory_limit import limited_memory
from engine.execution.node_health import trouble_of_cluster
from engine.execution.shard_stages import Batch, KeptWorker, in_stages, record
from engine.execution.watchdog import StallGuard, stalled
from engine.storage.run_store import Commit
from operators.base import OperatorError, Resources

POLL_SECONDS = 1.0
T = TypeVar("T")
R = TypeVar("R")


class RayExecutor:
    """Implements :class:`engine.execution.job.ShardExecutor` on the cluster that this process has joined."""

    kind: Literal["local", "ray"] = "ray"

    operator: str = "NAME"

    def __init__(
        self, limit: int | None = None, no_progress_seconds: float = 1800.0, max_bytes: int | None = None
    ) -> None:
        """Set the limits of the executor.

        Parameters
        ----------
        limit
            Most shards at the same time; default: as many as the cluster has room for.
        no_progress_seconds
            A longer time without progress is an error; 0 for no limit.
        max_bytes
            Memory that a task of :meth:`map` may take; default: no limit.

        """
        self._limit, self._patience, self._max_bytes = limit, no_progress_seconds, max_bytes

    def map(
        self, fn: Callable[[T], R], items: Sequence[T], *, resources: Resources | None = None
    ) -> Iterator[R]:
        """Yield ``fn(item)`` in the order of the items: one task per item, a bounded number in flight.

        ``fn`` is pickled and stored once, since it may hold the listing of the source; an item goes with its
        task. Tasks in flight are cancelled when one fails or the caller takes no more results.
        """
        wanted = resources or Resources()
        check_feasible(f"operators.{self.operator}", wanted)
        task = ray.remote(num_cpus=wanted.cpus, num_gpus=wanted.gpus, max_retries=3)(_call)
        waiting, stored = iter(items), ray.put(fn)
        window = [
            task.remote(stored, item, self._max_bytes)
            for item in islice(waiting, self._width(wanted, len(items)))
        ]
        guard, n_done = StallGuard(self.operator, self._patience), 0
        try:
            while window:
                self._await_first(window, guard, n_done)
                with dying_workers(self.operator):
                    yield _unwrap(ray.get(window.pop(0)))
                n_done += 1
                window += [task.remote(stored, item, self._max_bytes) for item in islice(waiting, 1)]
        finally:
            _cancel(window)

    def apply(self, job: Job, shards: Sequence[int]) -> Iterator[Commit | Failure]:
        """Process shards with Ray Data and yield results in the order in which they finish.

        If a node is lost with the result of a shard, Ray gives the shard to another worker. That worker
        returns the commit record if the shard was committed before.

        Operators that hold a GPU or a large model get a pool of actors of fixed size, and tasks read the next
        shards while these compute. The others run as tasks. A task reuses an idle process, with the operator
        that the process has opened.
        """
        n_gpus = float(ray.cluster_resources().get("GPU", 0))
        wanted = job.operator.resources.on(n_gpus, prefers_gpu=job.operator.prefers_gpu)
        check_feasible(f"operators.{job.operator.name}", wanted)
        size = self._width(wanted, len(shards))
        kept = job.operator.keeps_open or wanted.gpus > 0
        # A dataset copies this setting when it is created.
        ray.data.DataContext.get_current().execution_no_progress_timeout_s = self._patience or -1
        source = ray.data.from_items([{"shard": shard} for shard in shards], override_num_blocks=len(shards))
        given = {"job": job, "token": uuid4().hex}
        if kept:
            results = in_stages(source, given, size, wanted)
        else:
            results = source.map_batches(
                _process,
                fn_kwargs=given,
                compute=ray.data.TaskPoolStrategy(size=size),
                batch_size=1,
                num_cpus=wanted.cpus,
            )
        n_done = 0
        with dying_workers(job.operator.name):
            try:
                for row in results.iter_rows():
                    fields = json.loads(row["record"])
                    yield Failure(**fields) if "message" in fields else Commit(**fields)
                    n_done += 1
            except ray.data.exceptions.ExecutionTimeoutError:
                raise stalled(job.operator.name, self._patience, n_done) from None

    @staticmethod
    def _await_first(window: Sequence[ray.ObjectRef], guard: StallGuard, n_done: int) -> None:
        """Wait for the first task. Raises an error where no task ends for too long."""
        while not ray.wait(window[:1], timeout=POLL_SECONDS)[0]:
            ready, _ = ray.wait(window, num_returns=len(window), timeout=0)
            guard.done(n_done + len(ready))
            guard.check()

    def _width(self, wanted: Resources, n_items: int) -> int:
        fits = float(ray.cluster_resources().get("CPU", 1)) / max(wanted.cpus, 1e-3)
        if wanted.gpus:
            fits = min(fits, float(ray.cluster_resources().get("GPU", 0)) / wanted.gpus)
        limits = [n_items, int(fits), wanted.actors or n_items, self._limit or n_items]
        return max(1, min(limits))


@contextmanager
def dying_workers(operator: str) -> Iterator[None]:
    """Turn Ray's error for a task whose workers died several times into one that names the place and remedy.

    That is a host whose disk is full, or that starts no worker, if there is one; else the usual reason.
    """
    try:
        yield
    except ray.exceptions.RayTaskError:
        raise
    except ray.exceptions.RayError as error:
        reason = f"{type(error).__name__}: {one_line(error)}"
        usual = "Usually memory ran out: lower source.shard_bytes or run.shards_in_flight."
        why = trouble_of_cluster() or usual
        raise InfeasibleError(
            f"operators.{operator}: its workers keep dying ({reason}). {why} Committed work is kept; the "
            "same command continues from there."
        ) from None


def check_feasible(who: str, wanted: Resources) -> None:
    """Raise InfeasibleError if no single node has the resources of one actor."""
    for key, label, amount in (("CPU", "cpus", wanted.cpus), ("GPU", "gpus", wanted.gpus)):
        most = max(
            (float(node["Resources"].get(key, 0)) for node in ray.nodes() if node["Alive"]), default=0.0
        )
        if amount > most:
            raise InfeasibleError(
                f"{who} asks for {amount:g} {key} in one actor, and the largest node of the cluster has "
                f"{most:g}. Lower it (--set {who}.resources.{label}={most:g}), or add such a node."
            )


def _process(batch: Batch, job: Job, token: str) -> dict[str, list[str]]:
    """Process one shard without an actor."""
    return record(KeptWorker.of(job, token)(int(batch["shard"][0])))


def _call(
    fn: Callable[[T], R], item: T, max_bytes: int | None = None
) -> tuple[R | None, RowsieveError | None]:
    """Call ``fn`` and return expected errors as values, since Ray wraps exceptions in a class of its own."""
    KeptWorker.worker = None  # frees its memory: this task is of another operator
    try:
        with limited_memory(max_bytes):
            return fn(item), None
    except (OperatorError, ConnectorError, InputError) as error:
        return None, InputError(str(error))
    except OSError as error:
        return None, system_error(error)


def _cancel(window: Sequence[ray.ObjectRef]) -> None:
    """Cancel tasks whose results nobody takes any more; a connection that is gone cancels nothing."""
    for task in window:
        with suppress(ray.exceptions.RayError, ConnectionError):
            ray.cancel(task)


def _unwrap(result: tuple[R | None, RowsieveError | None]) -> R:
    value, fault = result
    if fault is not None:
        raise fault
    return value  # type: ignore[return-value]
