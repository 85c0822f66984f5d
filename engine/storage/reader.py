"""The reader of operators: source columns through the connector, earlier sidecars from the run store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from connectors.base import CorruptError, LateColumns, Source, SourceShard
from connectors.storage import Place, find_column, read_columns, read_part_schema
from engine.core.errors import InputError
from engine.storage.run_store import RunStore
from operators.base import PART, ROW_ID, VALID, OperatorError, ShardInfo
from operators.parts.held_out import FITTED, Parts

MAX_REMEMBERED = 2**14
"""Sidecars of which a process remembers whether they have a mask."""


@dataclass(frozen=True, kw_only=True)
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
    """Truth columns. They are kept for scoring, and operators may not read them."""
    validity_sources: tuple[str, ...] = ()
    """Fingerprints of the operators that may have quarantined rows. Quarantined rows are not read."""
    parts: str = ""
    """Fingerprint of the operator that says which rows are held out from every fit; empty: no row is."""
    fitting: bool = False
    """Whether an operator learns from this reader: held-out rows are then not read."""

    def held_out(self, shard: int) -> Parts | None:
        """Return the part of each row of a shard; None if the recipe holds no rows out."""
        if not self.parts:
            return None
        column = read_columns(self.store.part(self.parts, shard), [PART]).column(PART)
        found: Parts = column.to_numpy().astype(np.int8)
        return found

    def read(self, shard: int, columns: Sequence[str]) -> pa.Table:
        """Return sidecar columns and ``row_id`` of the shard's valid rows."""
        table = self.read_all(shard, [*columns, VALID])
        valid = table.column(VALID)
        if not pc.all(valid).as_py():
            table = table.filter(valid)
        return table.select([ROW_ID, *columns])

    def read_all(self, shard: int, columns: Sequence[str]) -> pa.Table:
        """Return sidecar columns and ``row_id`` of all rows, with nulls where a row is not valid."""
        by_part: dict[Place, list[str]] = {}
        for name in dict.fromkeys(columns):
            by_part.setdefault(self._part(shard, name), []).append(name)
        found = {ROW_ID: self.row_ids(shard)}
        for path, names in by_part.items():
            table = read_columns(path, names)
            found.update((name, table.column(name)) for name in names)
        kept = self._readable(shard)
        if kept is not None:
            places = pa.array(np.arange(len(kept)), mask=~kept)
            found = {
                name: column if name == ROW_ID else column.take(places) for name, column in found.items()
            }
            if VALID in found:
                found[VALID] = pc.fill_null(found[VALID], False)
        return pa.table({name: found[name] for name in dict.fromkeys([ROW_ID, *columns])})

    def _readable(self, shard: int) -> NDArray[np.bool_] | None:
        """Return the mask of rows that are neither quarantined nor held out from a fit; None for all rows."""
        kept = self._kept(shard)
        parts = self.held_out(shard) if self.fitting else None
        if parts is None:
            return kept
        fitted: NDArray[np.bool_] = parts == FITTED
        return fitted if kept is None else kept & fitted

    def _kept(self, shard: int) -> NDArray[np.bool_] | None:
        """Return the mask of rows that no validity source has quarantined; None if all rows are kept.

        The mask does not depend on the requested columns, so that a caller who reads one column first and
        another one later gets the same rows.
        """
        kept: NDArray[np.bool_] | None = None
        for fingerprint in self.validity_sources:
            found = _mask_of(self.store.part(fingerprint, shard))
            if found is not None:
                valid = found.to_numpy()
                kept = valid if kept is None else kept & valid
        return kept

    def ingested(self, shard: int) -> pa.ChunkedArray:
        """Return the mask of rows that `ingest` accepted; later operators may have quarantined some."""
        return read_columns(self._part(shard, VALID), [VALID]).column(VALID)

    def row_ids(self, shard: int) -> pa.Array:
        """Return the shard's dense row ids."""
        info = self.shards[shard]
        return pa.array(np.arange(info.first_row, info.first_row + info.n_rows, dtype=np.int64))

    def read_source(self, shard: int, columns: Sequence[str]) -> pa.Table:
        """Return raw source columns of all rows; in a fit, of the rows to learn from and with ``row_id``.

        Raises OperatorError for a truth column.
        """
        refused = sorted(self.hidden.intersection(columns))
        if refused:
            raise OperatorError(
                f"The column {refused[0]!r} is named under `truth` and kept for scoring only; no operator "
                f"may read it. Remove it from `source.features`, or from `truth`."
            )
        table = self.read_with_truth(shard, columns)
        parts = self.held_out(shard) if self.fitting else None
        if parts is None or not parts.any():
            return table
        table = table.append_column(ROW_ID, self.row_ids(shard))
        return table.filter(pa.array(parts == FITTED))

    def read_with_truth(self, shard: int, columns: Sequence[str]) -> pa.Table:
        """Return source columns, truth columns included. Only the engine may call this, never an operator.

        All values are null for a shard that cannot be read, if the recipe lets such shards be skipped.
        """
        try:
            table = self.source.read(self.source_shards[shard], columns, self.schema)
        except CorruptError:
            if not self.source.skip_corrupt:
                raise
            n_rows = self.shards[shard].n_rows
            return pa.table({name: _nulls(self.schema.field(name).type, n_rows) for name in columns})
        expected = self.shards[shard].n_rows
        if table.num_rows != expected:
            path = self.shards[shard].path
            raise InputError(
                f"{path} changed while it was being read: the plan has {expected} rows for shard {shard}, "
                f"the file now has {table.num_rows}. Run again to plan the new content."
            )
        return table

    def file_rows(self, shard: int, rows: Sequence[int]) -> Sequence[int]:
        """Return the 0-based positions in their file of rows of a shard (0-based)."""
        try:
            return self.source.file_rows(self.source_shards[shard], rows)
        except CorruptError:  # a filter cannot map its rows to a file that cannot be read
            return [self.shards[shard].file_row + row for row in rows]

    def unread(self, shard: int) -> tuple[str, ...]:
        """Return the columns of a shard that are lost because the planned schema lacks them."""
        if not isinstance(self.source, LateColumns):
            return ()
        try:
            return self.source.unread(self.source_shards[shard], self.schema)
        except CorruptError:
            return ()

    def corruption(self, shard: int) -> str:
        """Return why a shard cannot be read; empty if it can, or if the recipe treats that as an error."""
        if not self.source.skip_corrupt:
            return ""
        try:
            self.source.read(self.source_shards[shard], self.schema.names, self.schema)
        except CorruptError as error:
            return str(error)
        return ""

    def _part(self, shard: int, column: str) -> Place:
        if column not in self.columns:
            known = ", ".join(sorted(self.columns))
            raise OperatorError(f"No operator adds the column {column!r}; there are: {known}.")
        return self.store.part(self.columns[column], shard)


def _mask_of(part: Place) -> pa.ChunkedArray | None:
    """Return the mask of the rows that an operator accepted; None where its sidecar has none."""
    try:
        stat = part.stat()
        return None if _has_no_mask(part, stat.st_size, stat.st_mtime) else find_column(part, VALID)
    except FileNotFoundError:
        return None


@lru_cache(MAX_REMEMBERED)
def _has_no_mask(part: Place, size: int, mtime: float) -> bool:
    """Return whether a sidecar has no mask: every pass over the rows of a shard would open all of them again.

    ``size`` and ``mtime`` tell the file from a later one of the same name.
    """
    return VALID not in read_part_schema(part).names


def _nulls(kind: pa.DataType, n_rows: int) -> pa.Array:
    """Return nulls; for lists of fixed length, lists of nulls, since null lists do not survive Parquet."""
    if not pa.types.is_fixed_size_list(kind):
        return pa.nulls(n_rows, kind)
    values = _nulls(kind.value_type, n_rows * kind.list_size)
    return pa.FixedSizeListArray.from_arrays(values, type=kind)
