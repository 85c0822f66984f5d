"""The quarantine: rows that cannot be used, with the reason, and the budget that limits them."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from connectors.base import ConnectorError
from connectors.sink import write_parquet
from connectors.storage import Place, make_folder, read_columns
from engine.core.errors import BudgetError, InputError, one_line
from engine.core.redaction import redact
from engine.core.terminal import finite
from engine.execution.job import Job
from engine.plan.model import Plan
from operators.base import ROW_ID, VALID, Fault
from operators.values import python_rows

SCHEMA = pa.schema(
    [
        (ROW_ID, pa.int64()),
        ("file", pa.string()),
        ("row", pa.int64()),
        ("operator", pa.string()),
        ("column", pa.string()),
        ("value", pa.string()),
        ("error", pa.string()),
        ("raw", pa.string()),
    ]
)


def write_faults(job: Job, shard: int, table: pa.Table, columns: pa.Table) -> int:
    """Write the rows that `ingest` rejected, with its reasons; return their number."""
    if pc.all(columns.column(VALID)).as_py():
        return 0
    faults = {fault.row: fault for fault in job.operator.faults(job.context, table)}
    write_records(job, shard, faults, job.reader.read_with_truth)
    return len(faults)


def write_records(
    job: Job, shard: int, faults: Mapping[int, Fault], read: Callable[[int, list[str]], pa.Table] | None
) -> None:
    """Write the quarantined rows of a shard.

    Truth columns are left out, since they are not needed to repair a row.

    Parameters
    ----------
    faults
        The reasons, by the position of the row in the shard (0-based).
    read
        Reads columns of the raw rows; None if they cannot be read.

    """
    info, rows = job.reader.shards[shard], sorted(faults)
    raw = [""] * len(rows)
    if read is not None:
        names = [name for name in job.reader.schema.names if name not in job.reader.hidden]
        raw = [_as_json(values) for values in python_rows(read(shard, names).take(rows))]
    places = job.reader.file_rows(shard, rows)
    records = [
        {
            ROW_ID: info.first_row + row,
            "file": redact(info.path),
            "row": place,
            "operator": job.operator.name,
            "column": faults[row].column,
            "value": faults[row].value,
            "error": redact(faults[row].error),
            "raw": text,
        }
        for row, place, text in zip(rows, places, raw, strict=True)
    ]
    path = job.reader.store.quarantine(job.fingerprint, shard)
    make_folder(path.parent)
    write_parquet(pa.Table.from_pylist(records, schema=SCHEMA), path)


def _as_json(values: dict[str, Any]) -> str:
    """Format a row as JSON, with bytes as base64, NaN as null and infinities as texts."""

    def plain(value: Any) -> str:
        return base64.b64encode(value).decode("ascii") if isinstance(value, bytes) else str(value)

    return json.dumps(finite(values), default=plain, ensure_ascii=False, allow_nan=False)


def allowed_rows(plan: Plan) -> int:
    """Return the most rows of a plan that may be quarantined."""
    return _share_of(plan) if plan.recipe.source.on_error == "quarantine" else 0


def _share_of(plan: Plan) -> int:
    """Return ``max_error_rate`` of the rows, rounded down; .29 of 100 rows are 29, not 28.999..."""
    return math.floor(plan.recipe.source.max_error_rate * plan.n_rows * (1 + 1e-12))


def check_budget(plan: Plan, n_faulty: int, operator: str) -> None:
    """Raise BudgetError if ``n_faulty`` rows exceed the budget; ``operator`` quarantined the last of them."""
    allowed = plan.recipe.source.max_error_rate
    if n_faulty > _share_of(plan):
        folder = plan.store.folder(plan.fingerprint_of(operator))
        raise BudgetError(
            f"{n_faulty} of {plan.n_rows} rows are faulty ({n_faulty / plan.n_rows:.2%}), and "
            f"source.max_error_rate allows {allowed:.2%}. The rows and the reasons are in "
            f"{folder}/quarantine-*.parquet (`rowsieve quarantine RECIPE` shows them). "
            "Repair the rows, or raise the rate."
        )


def quarantine_files(plan: Plan) -> list[tuple[int, Place]]:
    """Return the shards of a plan with quarantined rows and their files, by operator, then by shard."""
    found: list[tuple[int, Place]] = []
    for planned in plan.operators:
        commits = plan.store.committed(planned.fingerprint).values()
        shards = sorted(commit.shard for commit in commits if commit.quarantined or commit.skipped)
        found += [(shard, plan.store.quarantine(planned.fingerprint, shard)) for shard in shards]
    return found


def with_file(records: pa.Table, path: str) -> pa.Table:
    """Return quarantined rows of a shard with the path of the file that holds them now: it may be renamed."""
    files = pa.array([redact(path)] * records.num_rows, pa.string())
    return records.set_column(records.column_names.index("file"), SCHEMA.field("file"), files)


def read_records(place: Place) -> pa.Table:
    """Read one file with quarantined rows.

    Others may write to the output: raises InputError, which names the file, for one of another form.
    """
    try:
        found = read_columns(place)
        if not found.schema.equals(SCHEMA):
            raise ConnectorError("its columns are others")
    except (ConnectorError, pa.ArrowException, OSError) as error:
        reason = one_line(error)
        raise InputError(
            f"{place} holds no quarantined rows of a run: {reason}. It is damaged or forged: remove "
            f"the folder {place.parent}, and run the recipe again."
        ) from None
    return found


def read_quarantine(plan: Plan, limit: int | None = None) -> pa.Table:
    """Read the first ``limit`` quarantined rows, by operator, then in row order; None reads all."""
    tables = [SCHEMA.empty_table()]
    for shard, path in quarantine_files(plan):
        tables.append(with_file(read_records(path), plan.shards[shard].path))
        if limit is not None and sum(table.num_rows for table in tables) >= limit:
            break
    return pa.concat_tables(tables).slice(0, limit)
