"""Shards held in memory, for tests of operators without files."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from engine.execution.local_executor import LocalExecutor
from operators.base import ROW_ID, Context, Operator, ShardInfo


@dataclass(frozen=True)
class MemoryReader:
    """A ``ShardReader`` over tables, all of whose rows are valid."""

    tables: Sequence[pa.Table]

    @property
    def shards(self) -> list[ShardInfo]:
        """One shard a table."""
        firsts = [sum(t.num_rows for t in self.tables[:i]) for i in range(len(self.tables))]
        return [ShardInfo(i, f"{i}.csv", first, self.tables[i].num_rows, 0) for i, first in enumerate(firsts)]

    def read(self, shard: int, columns: Sequence[str]) -> pa.Table:
        """``row_id`` and the named columns."""
        return self.read_source(shard, [ROW_ID, *columns])

    def read_source(self, shard: int, columns: Sequence[str]) -> pa.Table:
        """The named columns."""
        first = self.shards[shard].first_row
        ids = pa.array(range(first, first + self.tables[shard].num_rows), pa.int64())
        return self.tables[shard].append_column(ROW_ID, ids).select([*columns])


@dataclass(frozen=True)
class SortedReader:
    """A ``ShardReader`` over tables with row ids of their own, which records what is read."""

    tables: Sequence[pa.Table]
    reads: list[tuple[int, tuple[str, ...]]] = field(default_factory=list)

    @property
    def shards(self) -> list[ShardInfo]:
        """One shard a table."""
        firsts = [t.column(ROW_ID)[0].as_py() if t.num_rows else 0 for t in self.tables]
        return [ShardInfo(i, f"s{i}", firsts[i], t.num_rows, 0) for i, t in enumerate(self.tables)]

    def read(self, shard: int, columns: Sequence[str]) -> pa.Table:
        """``row_id`` and the named columns."""
        self.reads.append((shard, tuple(columns)))
        return self.tables[shard].select([ROW_ID, *columns])

    def read_source(self, shard: int, columns: Sequence[str]) -> pa.Table:
        """No column of the source may be read."""
        raise AssertionError(f"{columns} of the source are read")


class PicklingExecutor:
    """Runs in this process what would have pickled, and keeps what the functions returned."""

    kind = "local"

    def __init__(self) -> None:
        self.returned: list[Any] = []

    def map(self, fn: Callable[[Any], Any], items: Sequence[Any], *, resources: Any = None) -> Iterator[Any]:
        """Yield the result of each call."""
        for item in items:
            function, sent = pickle.loads(pickle.dumps((fn, item)))
            self.returned.append(function(sent))
            yield self.returned[-1]


def class_context(
    tables: Sequence[pa.Table], folder: Path, operator: str, classes: Sequence[str], seed: int
) -> Context:
    """Return the context of an operator that reads the class names of ``ingest``."""
    state, ingest = folder / operator, folder / "ingest"
    state.mkdir(parents=True)
    ingest.mkdir()
    (ingest / "classes.json").write_text(json.dumps({"classes": classes, "counts": [1, 1, 0, 1]}))
    return Context(SortedReader(tables), state, {"ingest": ingest}, seed)


def run_operator(
    operator: Operator[Any],
    tables: Sequence[pa.Table],
    state: Path,
    seed: int = 0,
    states: Mapping[str, Path] | None = None,
) -> tuple[pa.Table, dict[str, float]]:
    """Fit, then apply shard by shard: all rows' new columns, and the metrics of the fit."""
    reader = MemoryReader(tables)
    context = Context(reader, state, states or {}, seed)
    metrics = operator.fit(context, LocalExecutor())
    apply = operator.open(context)
    found = [apply(reader.read(shard, operator.requires)) for shard in range(len(tables))]
    return pa.concat_tables(found), metrics


def split_table(table: pa.Table, cuts: Sequence[int]) -> list[pa.Table]:
    """The rows as consecutive tables, cut at the given places."""
    edges = [0, *sorted(min(cut, table.num_rows) for cut in cuts), table.num_rows]
    return [table.slice(edges[i], edges[i + 1] - edges[i]) for i in range(len(edges) - 1)]
