"""The operator's section of the report: how many near duplicates there are, and which."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from operators.arrays import Ids
from operators.base import ROW_ID, SPLIT, ReportContext
from operators.counts import count
from operators.duplicates.params import DuplicatesParams, too_many
from operators.hashing import row_hashes
from operators.report import Cell, Content, ReportSection, ReportTable
from operators.report.text import percent

SAMPLE = 1000
"""Duplicates that are drawn to be shown, and looked up in their splits."""
SHOWN = 8
DROPPED = "dropped"


def duplicates_section(
    context: ReportContext, params: DuplicatesParams, of_column: str, similarity_column: str
) -> ReportSection:
    """Count duplicates, list some, and say how many lie in another split than the older row.

    Reads one shard at a time, and those that hold the older rows of a sample.
    """
    found = _drawn(context, of_column, similarity_column)
    n, compared = int(context.metrics["duplicates"]), int(context.metrics["compared"])
    what = "texts" if params.columns else "feature vectors"
    limit = (
        f"at least {params.threshold:g} of their shingles of {params.shingle} characters are the same"
        if params.columns
        else f"the cosine distance is at most {params.distance:g}"
    )
    content: list[Content] = [
        f"{count(n, 'row')} of {compared:,} ({percent(n / max(compared, 1))}) are near duplicates of an "
        f"older row, by their {what}: {limit}. " + _consequence(params.weight)
    ]
    if doubtful := too_many(params, n, compared):
        content.append(doubtful)
    if found.num_rows:
        content += _between_splits(context, found, of_column)
        content.append(_table(context, found.slice(0, SHOWN), of_column, similarity_column))
    return ReportSection("Near duplicates of older rows", content)


def _consequence(weight: float) -> str:
    if weight == 1:
        return "They are marked alone (duplicates.weight)."
    return f"Their weight is multiplied by {weight:g}, so that the oldest row of each counts."


def _drawn(context: ReportContext, of_column: str, similarity_column: str) -> pa.Table:
    """Return a bounded random sample of duplicates, the same for any shards."""
    drawn: pa.Table | None = None
    for info in context.shards.shards:
        table = context.shards.read(info.index, [of_column, similarity_column])
        table = table.filter(pc.is_valid(table.column(of_column)))
        drawn = table if drawn is None else pa.concat_tables([drawn, table])
        order = np.argsort(row_hashes(drawn.column(ROW_ID).to_numpy(), context.seed, "duplicates/report"))
        drawn = drawn.take(order[:SAMPLE])
    return drawn if drawn is not None else pa.table({ROW_ID: pa.array([], pa.int64())})


def _between_splits(context: ReportContext, found: pa.Table, of_column: str) -> list[Content]:
    if SPLIT not in context.columns:
        return []
    rows, others = found.column(ROW_ID).to_numpy(), found.column(of_column).to_numpy()
    own, theirs = _splits(context, rows), _splits(context, others)
    dropped = int(((own == DROPPED) & (theirs != DROPPED)).sum())
    crossing = int(((own != theirs) & (own != DROPPED) & (theirs != DROPPED)).sum())
    drawn = "" if len(rows) < SAMPLE else f" of {len(rows):,} drawn ones"
    said: list[Content] = []
    if dropped:
        said.append(
            f"{count(dropped, 'duplicate')}{drawn} ({percent(dropped / len(rows))}) are dropped, most "
            "of them because split puts the older row into another part."
        )
    if not crossing:
        return [*said, f"No duplicate{drawn} that is kept is in another split than the older row."]
    return [
        *said,
        f"{count(crossing, 'duplicate')}{drawn} ({percent(crossing / len(rows))}) are in another split than "
        "the older row, so that scores on validation and test rows are somewhat too good. Set "
        "duplicates.weight below 1, which drops them, give near duplicates a common key and name it as "
        "split.key, or remove them from the source.",
    ]


def _splits(context: ReportContext, row_ids: Ids) -> Any:
    """Return the split (n,) of rows; each shard that holds some is read once."""
    found = np.empty(len(row_ids), object)
    for info in context.shards.shards:
        mine = np.flatnonzero((row_ids >= info.first_row) & (row_ids < info.first_row + info.n_rows))
        if len(mine):
            table = context.shards.read(info.index, [SPLIT])
            place = np.searchsorted(table.column(ROW_ID).to_numpy(), row_ids[mine])
            found[mine] = np.array(table.column(SPLIT).to_pylist(), object)[place]
    return found


def _table(context: ReportContext, found: pa.Table, of_column: str, similarity_column: str) -> ReportTable:
    rows: list[tuple[Cell, ...]] = []
    for row, of, similarity in zip(
        *(found.column(name).to_pylist() for name in (ROW_ID, of_column, similarity_column)), strict=True
    ):
        older, newer = context.locate([of, row])
        rows.append(
            (row, f"{newer.path}, row {newer.row}", of, f"{older.path}, row {older.row}", f"{similarity:.2f}")
        )
    return ReportTable(
        ("row_id", "place", "older row", "its place", "similarity"), rows, "Some of them, drawn at random."
    )
