"""What happens to one shard: read, apply, keep row count, commit. The same code on every executor."""

from __future__ import annotations

import time
import traceback
from typing import Any

import pyarrow as pa

from connectors.base import ConnectorError
from engine.errors import InputError, LockedError
from engine.execution.job import Failure, Job
from engine.quarantine import write_faults
from engine.store import Commit
from operators.base import ROW_ID, VALID, Operator, OperatorError, RowError


class ShardWorker:
    """Opens an operator once, then turns shards into committed parts."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self._apply = job.operator.open(job.context)

    def __call__(self, shard: int) -> Commit | Failure:
        """Process one shard; faults come back as values."""
        name = self.job.operator.name
        try:
            return self._process(shard)
        except RowError as error:
            return Failure(name, shard, self._locate(error), "input")
        except (OperatorError, ConnectorError, InputError) as error:
            return Failure(name, shard, str(error), "input")
        except LockedError as error:
            return Failure(name, shard, str(error), "locked")
        except Exception as error:
            text = f"{type(error).__name__}: {error}"
            return Failure(name, shard, text, "crash", trace=traceback.format_exc())

    def _process(self, shard: int) -> Commit:
        started = time.perf_counter()
        job, operator = self.job, self.job.operator
        if operator.source_columns:
            table = job.reader.read_source(shard, operator.source_columns)
            table = table.add_column(0, ROW_ID, job.reader.row_ids(shard))
            for column in operator.requires:
                table = table.append_column(column, job.reader.read_all(shard, [column]).column(column))
        else:
            table = job.reader.read(shard, operator.requires)
        columns = check_output(operator, self._apply(table), table.num_rows)
        n_faults = 0
        if VALID in columns.column_names:
            n_faults = write_faults(job, shard, table, columns)
        else:
            columns = self._scatter(shard, table.column(ROW_ID), columns)
        seconds = time.perf_counter() - started
        job.lease.check()
        store = job.reader.store
        return store.commit(job.fingerprint, shard, columns, seconds=seconds, quarantined=n_faults)

    def _scatter(self, shard: int, row_ids: pa.ChunkedArray, columns: pa.Table) -> pa.Table:
        """Put results of valid rows back at their places; other rows get nulls."""
        info = self.job.reader.shards[shard]
        if columns.num_rows == info.n_rows:
            return columns
        places = pa.nulls(info.n_rows, pa.int64()).to_numpy(zero_copy_only=False)
        positions = row_ids.to_numpy() - info.first_row
        places[positions] = range(len(positions))
        return columns.take(pa.array(places, from_pandas=True).cast(pa.int64()))

    def _locate(self, error: RowError) -> str:
        reader = self.job.reader
        place = reader.source.locate(reader.source_shards[error.shard], error.row)
        return f"{reader.shards[error.shard].path}: {place}: {error}"


def check_output(operator: Operator[Any], columns: pa.Table, n_rows: int) -> pa.Table:
    """Cast an operator's result to the columns it declares. Raises OperatorError."""
    declared = pa.schema(list(operator.adds))
    if columns.num_rows != n_rows:
        raise OperatorError(
            f"operators.{operator.name}: returned {columns.num_rows} rows for a shard of {n_rows}; "
            f"an operator returns one row for each it gets."
        )
    if set(columns.column_names) != set(declared.names):
        raise OperatorError(
            f"operators.{operator.name}: returned the columns {columns.column_names}, "
            f"declared {declared.names}."
        )
    return columns.select(declared.names).cast(declared)
