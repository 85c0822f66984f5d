"""The operator's section of the report: near duplicates."""

from __future__ import annotations

import numpy as np

from operators.base import ROW_ID, ReportContext
from operators.counts import count
from operators.neighbours.graph import MAX_PAIRS, DuplicateCounter, DuplicateSets
from operators.neighbours.params import NeighboursParams
from operators.report import Cell, Content, ReportSection, ReportTable
from operators.report.text import percent

LARGEST = 5
"""Number of duplicate sets that are listed."""
SHOWN = 3
"""Rows that are listed of each set."""


def duplicate_section(
    context: ReportContext, params: NeighboursParams, ids_column: str, distances_column: str
) -> ReportSection:
    """Count near duplicates and list the largest sets. Reads one shard at a time."""
    reader, counter = context.shards, DuplicateCounter(params.duplicate_distance)
    for info in reader.shards:
        table = reader.read(info.index, [ids_column, distances_column]).combine_chunks()
        if not table.num_rows:
            continue
        ids, distances = (table.column(name).chunk(0) for name in (ids_column, distances_column))
        counter.add(
            table.column(ROW_ID).to_numpy(),
            np.asarray(ids.value_lengths().to_numpy(), np.int64),
            ids.flatten().to_numpy(),
            distances.flatten().to_numpy(),
        )
    found = counter.result(LARGEST)
    rows = sum(info.n_rows for info in reader.shards)
    content: list[Content] = [duplicate_sentence(params, found, rows)]
    if found.sets:
        content.append(_table(context, found))
    return ReportSection("Near duplicates", content)


def duplicate_sentence(params: NeighboursParams, found: DuplicateSets, rows: int) -> str:
    """Say how many rows, pairs and sets there are, and which rows count as near duplicates."""
    what = {"gradient": "gradients", "x": "features"}[params.space]
    distance = "Euclidean distance" if params.metric == "euclidean" else "cosine distance (1 - cos)"
    among = "of the same class" if params.per_class else "of any class"
    criterion = f"their {what} differ by at most {params.duplicate_distance:g} in {distance}"
    if not found.rows:
        return f"No two rows {among} are near duplicates. Two rows would be if {criterion}."
    least = "" if params.n_neighbors is None and params.index == "flat" else "at least "
    sets, more = f" in {count(found.n_sets, 'set')}", ""
    if not found.complete:
        sets, more = f"; the first {MAX_PAIRS:,} edges form {count(found.n_sets, 'set')}", " or more"
    return (
        f"{count(found.rows, 'row')} ({percent(found.rows / max(rows, 1))}) have a near duplicate {among}: "
        f"{criterion}. There are {least}{count(found.pairs, 'pair')}{sets}; the "
        f"largest set has {len(found.sets[0]):,}{more} rows. If two duplicates are in different splits, the "
        "scores on the second split are too good."
    )


def _table(context: ReportContext, found: DuplicateSets) -> ReportTable:
    """List the first rows of the largest sets with their places in the source."""
    rows: list[tuple[Cell, ...]] = []
    for ids in found.sets:
        for place, location in enumerate(context.locate(ids[:SHOWN].tolist())):
            size = len(ids) if place == 0 else ""
            rows.append((size, location.row_id, location.path, location.row))
    return ReportTable(
        ("rows in set", "row_id", "source file", "row in file"),
        rows,
        f"The first {SHOWN} rows of each of the largest sets.",
    )
