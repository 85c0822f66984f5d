"""How operators read: source columns through the connector, earlier sidecars from the run store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from connectors.base import Source, SourceShard
from engine.errors import InputError
from engine.store import RunStore
from operators.base import ROW_ID, VALID, OperatorError, ShardInfo


@dataclass(frozen=True)
class StoreReader:
    """Implements ``operators.base.ShardReader`` over a connector and a run store. Picklable."""

    source: Source
    source_shards: tuple[SourceShard, ...]
    schema: pa.Schema
    shards: tuple[ShardInfo, ...]
    store: RunStore
    columns: Mapping[str, str]
    """Sidecar column -> fingerprint of the operator that adds it."""
    hidden: frozenset[str] = frozenset()
    """Truth columns: kept for scoring, refused to operators."""

    def read(self, shard: int, columns: Sequence[str]) -> pa.Table:
        """Sidecar columns and ``row_id`` of the shard's valid rows."""
        table = self.read_all(shard, [*columns, VALID])
        valid = table.column(VALID)
        if not pc.all(valid).as_py():
            table = table.filter(valid)
        return table.select([ROW_ID, *columns])

    def read_all(self, shard: int, columns: Sequence[str]) -> pa.Table:
        """Sidecar columns and ``row_id`` of all rows; nulls where a row is not valid."""
        by_part: dict[Path, list[str]] = {}
        for name in dict.fromkeys(columns):
            by_part.setdefault(self._part(shard, name), []).append(name)
        found = {ROW_ID: self.row_ids(shard)}
        for path, names in by_part.items():
            table = pq.read_table(path, columns=names, partitioning=None, memory_map=True)
            found.update((name, table.column(name)) for name in names)
        return pa.table({name: found[name] for name in dict.fromkeys([ROW_ID, *columns])})

    def row_ids(self, shard: int) -> pa.Array:
        """The shard's dense row ids."""
        info = self.shards[shard]
        return pa.array(np.arange(info.first_row, info.first_row + info.n_rows, dtype=np.int64))

    def read_source(self, shard: int, columns: Sequence[str]) -> pa.Table:
        """Raw source columns of all rows; a truth column is an error."""
        refused = sorted(self.hidden.intersection(columns))
        if refused:
            raise OperatorError(
                f"The column {refused[0]!r} is named under `truth` and kept for scoring only; no operator "
                f"may read it. Remove it from `source.features`, or from `truth`."
            )
        return self.read_unhidden(shard, columns)

    def read_unhidden(self, shard: int, columns: Sequence[str]) -> pa.Table:
        """Source columns, truth among them: for the report and the publisher only."""
        table = self.source.read(self.source_shards[shard], columns, self.schema)
        expected = self.shards[shard].n_rows
        if table.num_rows != expected:
            path = self.shards[shard].path
            raise InputError(
                f"{path} changed while it was being read: the plan froze {expected} rows for shard {shard}, "
                f"now there are {table.num_rows}. Run again to plan the new content."
            )
        return table

    def _part(self, shard: int, column: str) -> Path:
        if column not in self.columns:
            known = ", ".join(sorted(self.columns))
            raise OperatorError(f"No operator adds the column {column!r}; there are: {known}.")
        return self.store.part(self.columns[column], shard)
