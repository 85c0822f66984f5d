"""Filters of Iceberg tables take the rows that they take from Parquet, whatever pyiceberg can compare."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from connectors import ConnectorError, open_source
from connectors.filters import parse
from tests import tables

pytest.importorskip("pyiceberg")
TIMES = [datetime(2024, 1, 1), datetime(2024, 1, 2, 12), datetime(2024, 1, 3), None]
ROWS = pa.table(
    {
        "i": pa.array([1, 2, 3, None], pa.int64()),
        "t": pa.array(TIMES, pa.timestamp("us")),
        "m": pa.array([Decimal("1.50"), Decimal("2.00"), Decimal("3.25"), None], pa.decimal128(10, 2)),
        "b": pa.array([b"a", b"b", b"c", None], pa.binary()),
        "x": pa.array([float("-inf"), 0.5, float("inf"), None], pa.float32()),
    }
)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, tables.MadeTable]:
    folder = tmp_path_factory.mktemp("filters")
    table = tables.new("iceberg", folder)
    for start in (0, 2):
        tables.append(table, ROWS.slice(start, 2))
    pq.write_table(ROWS, folder / "rows.parquet")
    return folder / "rows.parquet", table


def numbers(path: str, format: str, options: dict[str, Any], clause: list[Any]) -> list[int]:
    source = open_source(path, format, options=options, filter=parse(clause))
    listing = source.list()
    found = [source.read(shard, ["i"], listing.schema)["i"].to_pylist() for shard in listing.shards]
    return sorted(number for part in found for number in part)


@pytest.mark.parametrize(
    "clause",
    [
        ["i", ">", 1.5],
        ["i", "in", [2.0]],
        ["i", ">=", 2],
        ["t", ">=", date(2024, 1, 2)],
        ["t", "<", "2024-01-02"],
        ["t", "=", "2024-01-02T12:00:00"],
        ["m", "<=", 2],
        ["b", ">", "a"],
        ["x", "=", float("inf")],
        ["x", "in", [float("-inf")]],
        ["x", ">", 1e300],
    ],
    ids=str,
)
def test_a_filter_takes_the_rows_that_it_takes_from_parquet(
    made: tuple[Path, tables.MadeTable], clause: list[Any]
) -> None:
    """A whole number beside a fraction, or a time beside a date, ended the command with a bare TypeError.

    Rows with infinity were left out without a word.
    """
    path, table = made
    expected = numbers(str(path), "parquet", {}, clause)
    assert 0 < len(expected) < 3
    assert numbers(table.path, table.format, table.options, clause) == expected


@pytest.mark.parametrize("clause", [["i", "=", True], ["t", "=", "noon"], ["none", "=", 1]], ids=str)
def test_a_filter_that_has_no_meaning_is_named(
    made: tuple[Path, tables.MadeTable], clause: list[Any]
) -> None:
    _, table = made
    with pytest.raises(ConnectorError, match=r"source\.filter: .*'(i' is int64|t' is timestamp|none')"):
        numbers(table.path, table.format, table.options, clause)
