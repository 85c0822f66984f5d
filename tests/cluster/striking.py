"""An operator whose workers die in the middle of their work, once for each shard that is told to."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from operators.base import FEATURES, Apply, Context, Operator, OperatorParams


class StrikingParams(OperatorParams):
    """``marks``: folder in which a file tells that a row has been met; ``row_ids``: where to strike."""

    marks: str
    row_ids: tuple[int, ...]


class Striking(Operator[StrikingParams]):
    """Adds the length of each row's features; kills its own process when it first meets certain rows."""

    name = "striking"
    version = 1
    Params = StrikingParams

    @property
    def requires(self) -> tuple[str, ...]:
        return (FEATURES,)

    @property
    def adds(self) -> tuple[pa.Field, ...]:
        return (pa.field("length", pa.int64()),)

    def open(self, context: Context) -> Apply:
        def apply(table: pa.Table) -> pa.Table:
            for row_id in set(self.params.row_ids).intersection(table["row_id"].to_pylist()):
                mark = Path(self.params.marks) / str(row_id)
                if not mark.exists():
                    mark.touch()
                    os.kill(os.getpid(), signal.SIGKILL)
            return pa.table({"length": pa.compute.list_value_length(table[FEATURES]).cast(pa.int64())})

        return apply


class KeptOpen(Striking):
    """The same on actors."""

    keeps_open = True


class Greedy(Striking):
    """Takes three gigabytes for every shard."""

    def open(self, context: Context) -> Apply:
        def apply(table: pa.Table) -> pa.Table:
            take_gigabytes(3)
            return pa.table({"length": pa.array([1] * table.num_rows)})

        return apply


def take_gigabytes(count: int) -> int:
    """Take so much memory, use it, and give it back."""
    return int(np.ones(count * 2**30, np.uint8)[-1])


def workers_of(driver: int) -> list[int]:
    """Process ids of the Ray workers that work for a driver, by the system's process tree."""
    parents: dict[int, int] = {}
    names: dict[int, bytes] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                names[int(entry.name)] = (entry / "cmdline").read_bytes()[:60]
            except OSError:
                continue
    idle = (b"IDLE", b"Agent")  # the node itself dies with its agents
    busy = [
        pid
        for pid, name in names.items()
        if name.startswith(b"ray::") and not any(word in name for word in idle)
    ]
    return [pid for pid in busy if driver in _ancestors(pid, parents)]


def _ancestors(pid: int, parents: dict[int, int]) -> list[int]:
    found: list[Any] = []
    while pid in parents:
        pid = parents[pid]
        found.append(pid)
    return found
