"""Shards held in memory, for tests of operators without files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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
