"""Rows that cannot be used: written beside the sidecar with the reason, counted against a budget."""

from __future__ import annotations

import json
from collections.abc import Iterable

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from connectors.sink import write_parquet
from engine.errors import BudgetError
from engine.execution.job import Job
from engine.plan import Plan
from engine.store import Commit
from operators.base import ROW_ID, VALID

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
    """Write the rejected rows of a shard with their reasons; return how many there are."""
    rejected = pc.invert(columns.column(VALID)).combine_chunks()
    n_rejected = int(pc.sum(rejected).as_py() or 0)
    if n_rejected == 0:
        return 0
    info = job.reader.shards[shard]
    faults = {fault.row: fault for fault in job.operator.faults(job.context, table)}
    raw = table.filter(rejected).drop_columns([ROW_ID]).to_pylist()
    rows = pc.indices_nonzero(rejected).to_pylist()
    records = [
        {
            ROW_ID: info.first_row + row,
            "file": info.path,
            "row": info.file_row + row,
            "operator": job.operator.name,
            "column": faults[row].column,
            "value": faults[row].value,
            "error": faults[row].error,
            "raw": json.dumps(values, default=str, ensure_ascii=False),
        }
        for row, values in zip(rows, raw, strict=True)
    ]
    path = job.reader.store.quarantine(job.fingerprint, shard)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_parquet(pa.Table.from_pylist(records, schema=SCHEMA), str(path))
    return n_rejected


def check_budget(plan: Plan, commits: Iterable[Commit]) -> int:
    """Number of quarantined rows. Raises BudgetError when they are too many."""
    n_faulty = sum(commit.quarantined for commit in commits)
    allowed = plan.recipe.source.max_error_rate
    if n_faulty > allowed * plan.n_rows:
        folder = plan.store.folder(plan.fingerprint_of("ingest"))
        raise BudgetError(
            f"{n_faulty} of {plan.n_rows} rows are faulty ({n_faulty / plan.n_rows:.2%}), and "
            f"source.max_error_rate allows {allowed:.2%}. The rows and the reasons are in "
            f"{folder}/quarantine-*.parquet (`winnow quarantine RECIPE` shows them). Mend the rows, or raise "
            f"the rate."
        )
    return n_faulty


def read_quarantine(plan: Plan, limit: int) -> pa.Table:
    """The first rejected rows, in row order."""
    folder = plan.store.folder(plan.fingerprint_of("ingest"))
    tables = [SCHEMA.empty_table()]
    for path in sorted(folder.glob("quarantine-*.parquet")):
        tables.append(pq.read_table(path, partitioning=None))
        if sum(table.num_rows for table in tables) >= limit:
            break
    return pa.concat_tables(tables).slice(0, limit)
