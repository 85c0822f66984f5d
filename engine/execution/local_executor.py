"""The local executor: runs everything in this process, for tests, notebooks and small data."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Literal, TypeVar

from engine.execution.job import Failure, Job
from engine.execution.worker import ShardWorker
from engine.storage.run_store import Commit
from operators.base import Resources

T = TypeVar("T")
R = TypeVar("R")


class LocalExecutor:
    """Implements :class:`engine.execution.job.ShardExecutor` in this process, one item after the other."""

    kind: Literal["local", "ray"] = "local"
    operator: str = ""

    def map(
        self, fn: Callable[[T], R], items: Sequence[T], *, resources: Resources | None = None
    ) -> Iterator[R]:
        """Yield ``fn(item)`` for every item, in order."""
        return (fn(item) for item in items)

    def apply(self, job: Job, shards: Sequence[int]) -> Iterator[Commit | Failure]:
        """Process shards in order. Errors are yielded as values."""
        worker = ShardWorker(job)
        return (worker(shard) for shard in shards)
