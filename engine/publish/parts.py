"""The parts of a version: a worker writes each, or reuses the base version's part if it is the same."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from connectors.storage import Place, read_columns
from engine.plan.chain import CONTRACT
from engine.storage.lease import Lease
from engine.storage.reader import StoreReader
from operators.base import GROUP, IS_OUTLIER, OUTLIER_SOURCE, ROW_ID, SPLIT, WEIGHT

DATA = "data"
"""Folder of the parts. pandas, polars and DuckDB read a folder only if all of its files are Parquet."""
TRAIN = "train"
"""Split of the rows that a model is trained on."""
QUARANTINE_SOURCE = "quarantine"
"""Value of ``outlier_source`` of quarantined rows."""
QUARANTINED = {GROUP: -1, IS_OUTLIER: True, OUTLIER_SOURCE: QUARANTINE_SOURCE, WEIGHT: 0.0, SPLIT: "dropped"}
"""Contract values of quarantined rows."""


@dataclass(frozen=True)
class ReusablePart:
    """A part of the base version that was made from the same bytes in the same way."""

    place: Place
    bytes: int
    sha256: str
    unread: tuple[str, ...]

    def is_intact(self) -> bool:
        """Return whether the file still exists with its recorded size."""
        try:
            return self.place.stat().st_size == self.bytes
        except FileNotFoundError:
            return False


@dataclass(frozen=True)
class Part:
    """One part to write. Picklable, and small: there is one for each shard."""

    shard: int
    made_from: str
    """Digest of everything that the bytes of the part depend on."""
    reusable: ReusablePart | None = None


@dataclass(frozen=True)
class PartJob:
    """Everything that the publication of every shard needs. Picklable; its size grows with the listing."""

    reader: StoreReader
    schema: pa.Schema
    prefix: str
    folder: Place
    lease: Lease
    all_columns: bool
    """Whether the recipe publishes every column of the source, so that missing ones have to be recorded."""
    extra: tuple[str, ...] = ()
    """Columns that operators publish in addition to the contract's."""


def write_part(job: PartJob, part: Part) -> dict[str, Any]:
    """Write the part of one shard and return its record. Runs on a worker.

    A part joins the columns of the source with those of the sidecars. A row that lacks a value in any of the
    published columns, because it was quarantined, gets the values of ``QUARANTINED`` in all of them.
    """
    place = job.folder / f"{DATA}/part-{part.shard:05d}.parquet"
    if part.reusable is not None and part.reusable.is_intact():
        return _reuse_part(job, part, part.reusable, place)
    names = [field.name for field in CONTRACT if field.name != ROW_ID]
    sidecars = job.reader.read_all(part.shard, [*names, *job.extra])
    complete = pc.invert(sidecars.column(names[0]).is_null())
    for name in names[1:]:
        complete = pc.and_(complete, pc.invert(sidecars.column(name).is_null()))
    columns = {ROW_ID: sidecars.column(ROW_ID)}
    columns |= {name: fill(sidecars.column(name), complete, QUARANTINED[name]) for name in names}
    ours = {job.prefix + name: column for name, column in columns.items()}
    ours |= {job.prefix + name: sidecars.column(name) for name in job.extra}
    table = job.reader.read_with_truth(part.shard, [name for name in job.schema.names if name not in ours])
    for name, column in ours.items():
        table = table.append_column(name, column.cast(job.schema.field(name).type))
    written = job.lease.put_part(place, table.select(job.schema.names).cast(job.schema))
    unread = job.reader.unread(part.shard) if job.all_columns else ()
    return _record(part, place, columns, written.n_bytes, written.sha256, unread)


def _reuse_part(job: PartJob, part: Part, reusable: ReusablePart, place: Place) -> dict[str, Any]:
    """Link or copy the base version's part, without reading the source or the sidecars."""
    job.lease.reuse_part(reusable.place, place)
    names = [field.name for field in CONTRACT]
    table = read_columns(place, [job.prefix + name for name in names])
    columns = {name: table.column(job.prefix + name) for name in names}
    record = _record(part, place, columns, reusable.bytes, reusable.sha256, reusable.unread)
    return record | {"taken_over": True}


def _record(
    part: Part,
    place: Place,
    columns: dict[str, pa.ChunkedArray],
    n_bytes: int,
    sha256: str,
    unread: tuple[str, ...],
) -> dict[str, Any]:
    return {
        "path": f"{DATA}/{place.name}",
        "rows": len(columns[ROW_ID]),
        "bytes": n_bytes,
        "sha256": sha256,
        "made_from": part.made_from,
        "summary": summarise(columns),
        "unread": list(unread),
        "taken_over": False,
    }


def fill(column: pa.ChunkedArray, complete: pa.ChunkedArray, value: Any) -> pa.ChunkedArray:
    """Replace the values of rows that are not ``complete`` by the contract's value for quarantined rows."""
    if pc.all(complete).as_py():
        return column
    if pa.types.is_dictionary(column.type):
        column = column.cast(pa.string())
    return pc.if_else(complete, column, pa.scalar(value, column.type))


def summarise(columns: dict[str, pa.ChunkedArray]) -> dict[str, Any]:
    """Count groups, splits and outliers of a part, and sum the weights of its train rows.

    The figures of parts add up.
    """
    train = pc.equal(columns[SPLIT].cast(pa.string()), TRAIN)
    weight = columns[WEIGHT].filter(train).to_numpy().astype(np.float64)
    quarantined = pc.equal(columns[OUTLIER_SOURCE].cast(pa.string()), QUARANTINE_SOURCE)
    outliers = pc.and_not(columns[IS_OUTLIER], quarantined)  # quarantined rows are counted separately
    return {
        "groups": _counts(columns[GROUP]),
        "splits": _counts(columns[SPLIT]),
        "outliers": int(pc.sum(outliers).as_py() or 0),
        "quarantined": int(pc.sum(quarantined).as_py() or 0),
        "weight_sum": float(weight.sum()),
        "weight_square_sum": float((weight**2).sum()),
    }


def _counts(column: pa.ChunkedArray) -> dict[str, int]:
    pairs = pc.value_counts(column.cast(pa.string())).to_pylist()
    return {pair["values"]: pair["counts"] for pair in pairs}
