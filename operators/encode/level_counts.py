"""Counts of missing values and categories by which later rows are compared with those of the fit."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from operators.base import CannotPredictError, Executor, ShardReader
from operators.bounded_json import read_json
from operators.encode.categories import CategoryEncoding
from operators.encode.datetimes import DatetimeEncoding, read_dates
from operators.encode.encoding import TableEncoding
from operators.encode.numeric import NumberEncoding

COUNTS = "tally.json"
NEW = "a new category"
INFREQUENT = "infrequent"
NORMAL_95 = 1.645
"""0.95 quantile of the normal distribution: shares are compared beyond what chance explains."""


@dataclass(frozen=True)
class ColumnCounts:
    """Counts of one column.

    Attributes
    ----------
    rows, missing : rows, and those without a value.
    levels : rows of each frequent category, of all infrequent ones, and of categories that no row had in
        ``fit``; empty for other kinds.
    """

    rows: int = 0
    missing: int = 0
    levels: Mapping[str, int] = field(default_factory=dict)

    def __add__(self, other: ColumnCounts) -> ColumnCounts:
        keys = dict.fromkeys([*self.levels, *other.levels])
        levels = {key: self.levels.get(key, 0) + other.levels.get(key, 0) for key in keys}
        return ColumnCounts(self.rows + other.rows, self.missing + other.missing, levels)

    def rows_by_level(self) -> dict[str, int]:
        """Return the rows of every level, missing values included."""
        levels = dict(self.levels) or {"a value": self.rows - self.missing}
        return levels | {"missing": self.missing}

    @property
    def new(self) -> int:
        """Rows with a category that no row had in ``fit``."""
        return self.levels.get(NEW, 0)

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Self:
        """Read the counts of one column from ``tally.json``."""
        return cls(found["rows"], found["missing"], found["levels"])


TableCounts = dict[str, ColumnCounts]


def read_counts(folder: Path, key: str) -> TableCounts:
    """Return the counts of the rows of the fit (``seen``), or of the last run's new rows (``new``)."""
    stored = read_json(folder / COUNTS)
    return {name: ColumnCounts.from_json(counts) for name, counts in stored.get(key, {}).items()}


def write_counts(folder: Path, seen: TableCounts, new: TableCounts) -> None:
    """Write the counts into a state folder."""
    found = {"seen": _plain(seen), "new": _plain(new)}
    (folder / COUNTS).write_text(json.dumps(found, indent=1, ensure_ascii=False), "utf-8")


def vocabulary_file(folder: Path, index: int) -> Path:
    """Return the file with all categories of the column at this place of the encoding."""
    return folder / f"categories-{index}.parquet"


def write_vocabulary(folder: Path, index: int, values: pa.Array) -> None:
    """Write the categories of a column."""
    pq.write_table(pa.table({"value": values}), vocabulary_file(folder, index))


def count_shards(
    reader: ShardReader, encoding: TableEncoding, folder: Path, shards: Sequence[int], executor: Executor
) -> TableCounts:
    """Count the columns of some shards on workers, which return only sums."""
    found: TableCounts = {}
    for counts in executor.map(partial(_count, reader, encoding, folder), shards):
        for name, column in counts.items():
            found[name] = found.get(name, ColumnCounts()) + column
    return found


def _count(reader: ShardReader, encoding: TableEncoding, folder: Path, shard: int) -> TableCounts:
    """Count the columns of one shard. Runs on a worker."""
    table = reader.read_source(shard, encoding.sources)
    found: TableCounts = {}
    for index, column in enumerate(encoding.columns):
        values = table[column.source]
        if isinstance(column, CategoryEncoding):
            file = vocabulary_file(folder, index)
            known = pq.read_table(file)["value"].combine_chunks() if file.exists() else None
            found[column.source] = count_category(column, values, known)
            continue
        missing = int(values.null_count)
        if isinstance(column, NumberEncoding):
            numbers, wrong = column.read(values)
            missing = int((np.isnan(numbers) & ~wrong).sum())
        elif isinstance(column, DatetimeEncoding):
            seconds, _, wrong = read_dates(values, column.format, column.zone, column.missing)
            missing = int((np.isnan(seconds) & ~wrong).sum())
        found[column.source] = ColumnCounts(table.num_rows, missing)
    return found


def count_category(
    encoding: CategoryEncoding, column: pa.ChunkedArray, known: pa.Array | None
) -> ColumnCounts:
    """Count a categorical column; ``known`` None: no category counts as new."""
    levels, new, missing = encoding.counts(column, known)
    found = {
        f"= {name}": rows
        for name, rows in zip(encoding.frequent, levels.tolist(), strict=False)
        if name is not None
    }
    found |= {INFREQUENT: int(levels[-1]) - new, NEW: new}
    return ColumnCounts(len(column), missing, found)


def check_new_rows(seen: TableCounts, new: TableCounts, limit: float) -> None:
    """Check that the encoding still describes the new rows.

    Parameters
    ----------
    seen, new : counts of the rows that ``fit`` has seen, and of the new ones.
    limit : largest share of new categories, and largest change of the share of missing values.

    Raises
    ------
    CannotPredictError
        A column exceeds the limit by more than chance explains.
    """
    for name, now in new.items():
        before = seen.get(name, ColumnCounts())
        if not now.rows:
            continue
        slack = NORMAL_95 * float(np.sqrt(limit * (1 - limit) / now.rows))
        if now.new > (limit + slack) * now.rows:
            raise CannotPredictError(
                f"{now.new / now.rows:.0%} of the new rows have a category of {name!r} that no row had "
                f"before: it has to be encoded anew"
            )
        then = before.missing / max(before.rows, 1)
        if abs(now.missing / now.rows - then) > limit + slack:
            raise CannotPredictError(
                f"{now.missing / now.rows:.0%} of the new rows lack a value of {name!r}, of the earlier ones "
                f"{then:.0%}: it has to be encoded anew"
            )


def _plain(counts: TableCounts) -> dict[str, Any]:
    return {name: {**vars(column), "levels": dict(column.levels)} for name, column in counts.items()}
