"""The work on one shard, the same on every executor: read, apply the operator, check the result, commit.

:class:`ShardWorker` has the order of the steps.
"""

from __future__ import annotations

import time
import traceback
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from connectors.base import ConnectorError
from engine.core.errors import (
    InfeasibleError,
    InputError,
    LockedError,
    is_out_of_memory,
    out_of_memory,
    system_error,
)
from engine.execution.job import Failure, Job
from engine.execution.large_numbers import large_numbers
from engine.execution.memory_limit import limited_memory
from engine.execution.quarantine import write_faults, write_records
from engine.execution.row_faults import apply_without_faulty
from engine.storage.reader import StoreReader
from engine.storage.run_store import Commit
from operators.base import (
    FEATURE_FAULT,
    REASON,
    ROW_ID,
    VALID,
    Apply,
    Fault,
    Operator,
    OperatorError,
    RowError,
)
from operators.memory import release_memory
from operators.parts.held_out import FITTED, VALIDATION

T = TypeVar("T")


@dataclass(frozen=True)
class ShardInput:
    """Rows of one shard that an operator reads.

    Attributes
    ----------
    table
        The columns of its rows; None for a shard that cannot be read and is skipped.
    reason
        Why it cannot be read, else empty.
    seconds
        Time that reading took.

    """

    table: pa.Table | None
    reason: str = ""
    seconds: float = 0.0


@dataclass(frozen=True)
class ShardOutput:
    """Columns that an operator has made for one shard.

    Attributes
    ----------
    columns
        Its columns for all rows.
    seconds
        Time that reading and computing took.
    quarantined, skipped
        Rows that were set aside one by one, and rows of a shard that cannot be read.

    """

    columns: pa.Table
    seconds: float
    quarantined: int
    skipped: int


class ShardWorker:
    """Turns shards into committed parts of one operator.

    A call takes one shard through these steps, in this order:

    1. With ``repeats``: look for an earlier commit of the shard. If there is one, its record is the result.
    2. :meth:`open` the operator, if this is the worker's first shard. No file of the shard has been read by
       then, and the time that opening takes counts for no shard.
    3. :meth:`read` the columns that the operator reads.
    4. :meth:`compute` the operator's columns; rows that it cannot process go to the quarantine.
    5. :meth:`commit` the part, if the run still holds its lease.

    Where each step runs in a process of its own, each begins with step 1, and the one that computes opens the
    operator.

    Errors are returned as values, those of opening too: an exception in the constructor of a Ray actor would
    only tell that the actor has died.
    """

    def __init__(self, job: Job, *, repeats: bool = False) -> None:
        """``repeats``: whether a shard may come again after it was committed; it is not computed again."""
        self.job, self._repeats = job, repeats
        self._declared = [field.name for field in job.operator.adds]
        self._apply: Apply | None = None

    def open(self) -> Apply:
        """Open the operator unless it is open; return its function for all rows."""
        if self._apply is None:
            self._apply = self._open_for_all_rows()
        return self._apply

    def _open_for_all_rows(self) -> Apply:
        """Open the operator, for rows that were held out as well where there are some."""
        opened = self._open_for(new_rows=self.job.new_rows)
        operator = self.job.operator
        if not self.job.reader.parts or not operator.learns_from_rows:
            return opened
        held_out = opened if self.job.new_rows else self._open_for(new_rows=True)
        return HoldoutApply(operator, self.job.reader, opened, held_out)

    def _open_for(self, *, new_rows: bool) -> Apply:
        """Open the operator for the rows that it was fitted on, or for others."""
        job = self.job
        job.reader.store.ensure_local([job.context.state, *job.context.states.values()])
        return (job.operator.open_for_new_rows if new_rows else job.operator.open)(job.context)

    def __call__(self, shard: int) -> Commit | Failure:
        """Take one shard through all steps; return its record, or the error."""
        return self._guarded(shard, lambda: self._earlier_commit(shard) or self._take_all_steps(shard))

    def read(self, shard: int) -> ShardInput | Commit | Failure:
        """Return what the operator reads of one shard, or its record if it was committed before."""
        return self._guarded(shard, lambda: self._earlier_commit(shard) or self._read_input(shard))

    def compute(self, shard: int, given: ShardInput) -> ShardOutput | Commit | Failure:
        """Return the operator's columns of a shard that was read, or its record if it was committed since."""
        return self._guarded(shard, lambda: self._earlier_commit(shard) or self._make_output(shard, given))

    def commit(self, shard: int, found: ShardOutput) -> Commit | Failure:
        """Commit the columns of a shard, unless it was committed before."""
        return self._guarded(shard, lambda: self._earlier_commit(shard) or self._write_part(shard, found))

    def _guarded(self, shard: int, work: Callable[[], T]) -> T | Failure:
        """Return what ``work`` does, or its error as a value."""
        name = self.job.operator.name
        try:
            with limited_memory(self.job.max_bytes):
                return work()
        except RowError as error:
            return Failure(name, shard, self._locate(error), "input")
        except (OperatorError, ConnectorError, InputError) as error:
            if is_out_of_memory(error):
                return Failure(name, shard, self._without_memory(shard, error), "resources")
            return Failure(name, shard, str(error), "input")
        except OSError as error:
            known = system_error(error, str(self.job.reader.store.output))
            few_files = isinstance(known, InfeasibleError)
            return Failure(name, shard, str(known), "resources" if few_files else "input")
        except LockedError as error:
            return Failure(name, shard, str(error), "locked")
        except Exception as error:
            if is_out_of_memory(error):
                return Failure(name, shard, self._without_memory(shard, error), "resources")
            text = f"{type(error).__name__}: {error}"
            return Failure(name, shard, text, "crash", trace=traceback.format_exc())

    def _earlier_commit(self, shard: int) -> Commit | None:
        """Return the record of a shard that may come again and was committed before."""
        return self.job.reader.store.find_commit(self.job.fingerprint, shard) if self._repeats else None

    def _take_all_steps(self, shard: int) -> Commit:
        self.open()
        return self._write_part(shard, self._make_output(shard, self._read_input(shard)))

    def _read_input(self, shard: int) -> ShardInput:
        """Step 3: read what the operator reads of a shard."""
        started = time.perf_counter()
        reason = self.job.reader.corruption(shard) if VALID in self._declared else ""
        table = None if reason else self._read_columns(shard)
        return ShardInput(table, reason, time.perf_counter() - started)

    def _make_output(self, shard: int, given: ShardInput) -> ShardOutput:
        """Step 4: compute the operator's columns, which are null for a shard that cannot be read."""
        apply = self.open()
        started = time.perf_counter()
        quarantined = skipped = 0
        if given.table is None:
            columns, skipped = self._null_columns(shard, given.reason)
        else:
            columns, quarantined = self._apply_to_rows(apply, shard, given.table)
        return ShardOutput(columns, given.seconds + time.perf_counter() - started, quarantined, skipped)

    def _write_part(self, shard: int, found: ShardOutput) -> Commit:
        """Step 5: commit the part of a shard. Raises LockedError if the run has lost its lease."""
        job = self.job
        job.lease.check()
        try:
            return job.reader.store.commit(
                job.fingerprint,
                shard,
                found.columns,
                seconds=found.seconds,
                quarantined=found.quarantined,
                skipped=found.skipped,
            )
        finally:
            release_memory()

    def _null_columns(self, shard: int, reason: str) -> tuple[pa.Table, int]:
        """Return null columns for a shard that cannot be read, and its number of rows."""
        n_rows = self.job.reader.shards[shard].n_rows
        columns = {field.name: pa.nulls(n_rows, field.type) for field in self.job.operator.adds}
        columns[VALID] = pa.repeat(pa.scalar(False), n_rows)
        write_records(self.job, shard, {row: Fault(row, "", "", reason) for row in range(n_rows)}, None)
        return pa.table(columns), n_rows

    def _apply_to_rows(self, apply: Apply, shard: int, table: pa.Table) -> tuple[pa.Table, int]:
        """Return the operator's columns for all rows of a shard, and the number of quarantined rows."""
        job, operator = self.job, self.job.operator
        found, raised = apply_without_faulty(apply, table, job.allowed)
        columns = check_output(operator, found, table.num_rows - len(raised))
        if VALID in columns.column_names and not raised:
            return columns, write_faults(job, shard, table, columns)
        good = np.delete(np.arange(table.num_rows), list(raised))
        first = job.reader.shards[shard].first_row
        places = table.column(ROW_ID).to_numpy() - first
        faults = {int(places[row]): Fault(int(places[row]), "", "", text) for row, text in raised.items()}
        if VALID in columns.column_names:
            rejected = operator.faults(job.context, table.take(good))
            faults |= {int(places[good[fault.row]]): fault for fault in rejected}
        if raised and FEATURE_FAULT in self._declared:  # `ingest` will quarantine these rows
            return self._with_reasons(shard, places[good], columns, faults), 0
        if faults:
            write_records(job, shard, faults, job.reader.read_with_truth)
        return self._scatter(shard, places[good], columns), len(faults)

    def _with_reasons(
        self, shard: int, places: npt.NDArray[np.int64], columns: pa.Table, faults: dict[int, Fault]
    ) -> pa.Table:
        """Return the columns of an operator that makes features, with reasons in rows where it raised."""
        taken = np.full(self.job.reader.shards[shard].n_rows, -1)
        taken[places] = np.arange(len(places))
        scattered = columns.take(pa.array(taken, mask=taken < 0))
        reasons = scattered.column(FEATURE_FAULT).to_pylist()
        for row, fault in faults.items():
            error = f"operators.{self.job.operator.name} raised {fault.error}"
            reasons[row] = {"column": self.job.operator.source_columns[0], "value": "", "error": error}
        index = scattered.column_names.index(FEATURE_FAULT)
        return scattered.set_column(index, FEATURE_FAULT, pa.array(reasons, REASON))

    def _read_columns(self, shard: int) -> pa.Table:
        """Return the columns that the operator reads, those of the source among them."""
        job, operator = self.job, self.job.operator
        if not operator.source_columns:
            return job.reader.read(shard, operator.requires)
        table = job.reader.read_source(shard, operator.source_columns)
        release_memory()  # reading has taken several times as much
        table = table.add_column(0, ROW_ID, job.reader.row_ids(shard))
        for column in operator.requires:
            table = table.append_column(column, job.reader.read_all(shard, [column]).column(column))
        return table

    def _scatter(self, shard: int, places: npt.NDArray[np.int64], columns: pa.Table) -> pa.Table:
        """Return columns for all rows: the results in their places and nulls in the other rows.

        If more rows lack a result than `ingest` has rejected, a column `valid` marks them for later readers.
        """
        n_rows = self.job.reader.shards[shard].n_rows
        if columns.num_rows == n_rows:
            return columns
        taken = np.full(n_rows, -1)
        taken[places] = np.arange(len(places))
        present = pa.array(taken >= 0)
        scattered = columns.take(pa.array(taken, mask=taken < 0))
        if VALID in self._declared:
            index = scattered.column_names.index(VALID)
            return scattered.set_column(index, VALID, pc.fill_null(scattered.column(VALID), False))
        known = pa.chunked_array([present]).equals(self.job.reader.ingested(shard))
        return scattered if known else scattered.append_column(VALID, present)

    def _without_memory(self, shard: int, error: Exception) -> str:
        operator = self.job.operator
        place = f"operators.{operator.name}: shard {shard}: "
        return str(out_of_memory(error, place, large_numbers(operator), self.job.max_bytes))

    def _locate(self, error: RowError) -> str:
        reader = self.job.reader
        place = reader.source.locate(reader.source_shards[error.shard], error.row)
        return f"{reader.shards[error.shard].path}: {place}: {error}"


class HoldoutApply:
    """Applies an operator to rows that it has learnt from and, as to new rows, to rows that were held out."""

    def __init__(self, operator: Operator[Any], reader: StoreReader, fitted: Apply, held_out: Apply) -> None:
        self._operator, self._reader = operator, reader
        self._functions = (fitted, held_out)

    def __call__(self, table: pa.Table) -> pa.Table:
        """Return the operator's columns for rows of one shard, in their order."""
        parts = self._parts(table)
        if not parts.any():
            return self._functions[0](table)
        found, places = [], []
        for held_out, apply in enumerate(self._functions):
            rows = np.flatnonzero((parts != FITTED) == bool(held_out))
            if not len(rows):
                continue
            columns = check_output(self._operator, apply(table.take(rows)), len(rows))
            if held_out:
                columns = self._operator.mark_held_out(columns, parts[rows] == VALIDATION)
            found.append(columns)
            places.append(rows)
        order = np.argsort(np.concatenate(places))
        joined = pa.concat_tables(found).unify_dictionaries().combine_chunks()
        return joined.take(pa.array(order))

    def _parts(self, table: pa.Table) -> npt.NDArray[np.int8]:
        """Return the part of each row of the table."""
        ids = table.column(ROW_ID).to_numpy()
        if not len(ids):
            return np.empty(0, np.int8)
        firsts = [info.first_row for info in self._reader.shards]
        shard = bisect_right(firsts, int(ids[0])) - 1
        parts = self._reader.held_out(shard)
        return np.zeros(len(ids), np.int8) if parts is None else parts[ids - firsts[shard]]


def check_output(operator: Operator[Any], columns: pa.Table, n_rows: int) -> pa.Table:
    """Cast an operator's result to the declared columns. Raises OperatorError if rows or columns differ."""
    declared = pa.schema(list(operator.adds))
    if columns.num_rows != n_rows:
        raise OperatorError(
            f"operators.{operator.name}: returned {columns.num_rows} rows for a shard of {n_rows}; "
            f"an operator returns one row for each it gets."
        )
    if set(columns.column_names) != set(declared.names):
        raise OperatorError(
            f"operators.{operator.name}: returned the columns {columns.column_names}, declared "
            f"{declared.names}. This is an error of the operator: correct its `adds`, or what `open` returns."
        )
    return columns.select(declared.names).cast(declared)
