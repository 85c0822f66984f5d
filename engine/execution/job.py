"""The job of one operator over some shards, its failures, and the interface of executors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from engine.core.errors import InfeasibleError, InputError, LockedError, RowsieveError
from engine.storage.lease import Lease
from engine.storage.reader import StoreReader
from engine.storage.run_store import Commit
from operators.base import Context, Executor, Operator

RAISED = {"input": InputError, "locked": LockedError, "resources": InfeasibleError}
"""Kind of a failure -> the error that the driver raises."""


@dataclass(frozen=True)
class Failure:
    """An error as plain values, since exceptions of user code may not pickle."""

    operator: str
    shard: int
    message: str
    kind: Literal["input", "locked", "resources", "crash"]
    trace: str = ""

    def raised(self) -> RowsieveError:
        """Return the error to raise in the driver."""
        if self.kind != "crash":
            return RAISED[self.kind](self.message)
        error = RowsieveError(f"operators.{self.operator} failed on shard {self.shard}: {self.message}")
        error.add_note(self.trace)
        return error


@dataclass(frozen=True)
class Job:
    """One operator over some shards of one plan. Picklable."""

    operator: Operator[Any]
    context: Context
    reader: StoreReader
    fingerprint: str
    lease: Lease
    """Checked before every commit."""
    allowed: int = 0
    """Maximum number of rows that may be quarantined because the operator raises on them."""
    new_rows: bool = False
    """Whether the operator's state has not seen these rows."""
    max_bytes: int | None = None
    """Memory that the operator may take in one process; None: no limit."""


class ShardExecutor(Executor, Protocol):
    """An executor of the engine. It also applies operators, which operators themselves cannot ask for."""

    operator: str
    """Name of the operator that runs now; errors name it."""

    def apply(self, job: Job, shards: Sequence[int]) -> Iterator[Commit | Failure]:
        """Process shards and yield results as they finish. Errors are yielded as values."""
        ...
