"""Behaviour that every table which is written to shows, whatever its format: one suite, run on each."""

from __future__ import annotations

import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest

from connectors import ConnectorError, open_source
from connectors.tables.export import KINDS, Export, Mode, PendingExport, VersionTag, fitted, open_export
from tests import tables

PARTS = (pa.table({"row_id": [0, 1, 2], "y": ["a", "b", "a"]}), pa.table({"row_id": [3, 4], "y": ["b", "b"]}))
OLD, NEW = VersionTag("v1", "c0ffee01"), VersionTag("v2", "c0ffee02")


class Target:
    """A place to export to, and the rows that a reader finds there."""

    def __init__(self, format: str, folder: Path) -> None:
        pytest.importorskip(KINDS[format][0])
        self.format: Any = format
        made = tables.new(format, folder) if format == "iceberg" else None
        self.path = made.path if made else str(folder / "table")
        self.options = made.options if made else {}

    def open(self, mode: Mode) -> Export:
        return open_export(self.format, self.path, mode, self.options.get("catalog"))

    def ids(self) -> list[int]:
        folder, kind = (f"{self.path}/data", "parquet") if self.format == "hf" else (self.path, self.format)
        source = open_source(folder, kind, options=self.options)
        listing = source.list()
        found = [source.read(shard, ["row_id"], listing.schema) for shard in listing.shards]
        return sorted(pa.concat_tables(found)["row_id"].to_pylist())

    def is_empty(self) -> bool:
        try:
            return not self.ids()
        except ConnectorError:
            return True


@pytest.fixture(params=list(KINDS))
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Target:
    return Target(request.param, tmp_path)


def start_export(target: Target, mode: Mode, tag: VersionTag) -> PendingExport:
    if target.format == "hf" and mode == "append":
        pytest.skip("a dataset folder holds one version: mode append is refused")
    return target.open(mode).start_export(PARTS[0].schema, tag)


def write(pending: PendingExport) -> list[Any]:
    return [pending.write(part, number) for number, part in enumerate(PARTS)]


def test_rows_become_visible_together_at_the_commit_and_once(target: Target) -> None:
    assert target.open("create").committed_state(OLD) == ""
    pending = start_export(target, "create", OLD)
    records = write(pending)
    assert target.is_empty()
    assert pending.commit(records).written
    assert target.ids() == [0, 1, 2, 3, 4]
    assert target.open("create").committed_state(OLD)
    assert target.open("create").committed_state(NEW) == ""


def test_the_same_version_again_writes_nothing(target: Target) -> None:
    first = start_export(target, "append", OLD)
    done = first.commit(write(first))
    again = start_export(target, "append", OLD)
    repeated = again.commit(write(again))
    assert (done.written, repeated.written) == (True, False)
    assert done.state == repeated.state == target.open("append").committed_state(OLD)
    assert target.ids() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("mode", ["create", "append"])
def test_two_rivals_with_one_version_are_one_commit(target: Target, mode: Mode) -> None:
    one, other = start_export(target, mode, OLD), start_export(target, mode, OLD)
    found = [write(one), write(other)]
    results = [one.commit(found[0]), other.commit(found[1])]
    assert [result.written for result in results] == [True, False]
    assert target.ids() == [0, 1, 2, 3, 4]


def test_two_rivals_with_two_versions_both_count(target: Target) -> None:
    base = start_export(target, "append", VersionTag("v0", "c0ffee00"))
    base.commit(write(base))
    one, other = start_export(target, "append", OLD), start_export(target, "append", NEW)
    found = [write(one), write(other)]
    assert other.commit(found[1]).written
    assert one.commit(found[0]).written
    assert target.ids() == sorted([0, 1, 2, 3, 4] * 3)


def test_an_export_that_died_is_done_again(target: Target) -> None:
    start_export(target, "create", OLD).write(PARTS[0], 0)  # and no commit
    assert target.is_empty()
    pending = start_export(target, "create", OLD)
    assert pending.commit(write(pending)).written
    assert target.ids() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("ending", [".csv", ".JSONL"])
def test_a_name_of_another_format_is_refused(target: Target, ending: str) -> None:
    if target.format == "iceberg":
        pytest.skip("the path is a name in a catalog")
    with pytest.raises(ConnectorError, match=rf"{target.format} makes a folder, not a file {ending.lower()}"):
        open_export(target.format, target.path + ending, "create")


def test_a_column_with_a_dot_is_written_or_refused_with_a_remedy(target: Target) -> None:
    schema = pa.schema([("row_id", pa.int64()), ("a.b", pa.string())])
    if target.format != "lance":
        assert target.open("create").start_export(schema, OLD)
        return
    with pytest.raises(
        ConnectorError, match=r"such as 'a\.b'\. Name it 'a_b' with source\.rename and run again"
    ):
        target.open("create").start_export(schema, OLD)


def test_create_keeps_what_is_there(target: Target) -> None:
    first = start_export(target, "create", OLD)
    first.commit(write(first))
    with pytest.raises(ConnectorError, match="is there already"):
        start_export(target, "create", NEW)
    assert target.ids() == [0, 1, 2, 3, 4]


def test_a_percent_sign_in_the_path_is_written_or_refused_with_a_remedy(
    target: Target, tmp_path: Path
) -> None:
    if target.format == "iceberg":
        pytest.skip("the path is a name in a catalog")
    for name in ("ex 100% ü", "ex %20u"):
        (tmp_path / name).mkdir()
        target.path = str(tmp_path / name / "table")
        if target.format == "delta" and name == "ex %20u":
            with pytest.raises(
                ConnectorError, match="reads %20 in the name of a folder as the character ' '"
            ):
                target.open("create")
            continue
        pending = start_export(target, "create", OLD)
        assert pending.commit(write(pending)).written
        assert target.ids() == [0, 1, 2, 3, 4]


INSTANT = datetime.datetime(2024, 5, 1, 12, 30, 15, tzinfo=ZoneInfo("Europe/Berlin"))
AT = pa.array([INSTANT], pa.timestamp("ms", "Europe/Berlin"))
NOON = pa.array([datetime.time(12, 30)], pa.time32("s"))
PRICE = pa.array([Decimal("1.50")], pa.decimal256(30, 2))


def export(target: Target, table: pa.Table) -> list[dict[str, Any]]:
    """Export a table and return the rows that a reader finds."""
    pending = target.open("create").start_export(table.schema, OLD)
    assert pending.commit([pending.write(table, 0)]).written
    folder, kind = (
        (f"{target.path}/data", "parquet") if target.format == "hf" else (target.path, target.format)
    )
    source = open_source(folder, kind, options=target.options)
    listing = source.list()
    (shard,) = listing.shards
    return source.read(shard, table.schema.names, listing.schema).to_pylist()  # type: ignore[no-any-return]


def test_times_and_decimals_keep_their_values(target: Target) -> None:
    """Of a column of times in a zone, the commit failed with a backtrace after all files were written."""
    days = pa.array([datetime.date(2024, 5, 1)], pa.date64())
    times = pa.table(
        {"at": AT, "nested": pa.array([[INSTANT]], pa.list_(AT.type)), "day": days, "price": PRICE}
    )
    (row,) = export(target, times)
    assert row == {
        "at": INSTANT,
        "nested": [INSTANT],
        "day": datetime.date(2024, 5, 1),
        "price": Decimal("1.50"),
    }


def test_a_time_of_day_is_text_where_the_table_has_no_such_type(target: Target) -> None:
    (row,) = export(target, pa.table({"t": NOON}))
    assert row == {"t": "12:30:00" if target.format == "delta" else datetime.time(12, 30)}


@pytest.mark.parametrize("kind", [pa.duration("s"), pa.decimal256(50, 2)], ids=str)
def test_a_type_that_the_table_lacks_is_named_before_anything_is_written(
    target: Target, kind: pa.DataType, tmp_path: Path
) -> None:
    if target.format not in ("delta", "iceberg"):
        pytest.skip("it holds every type")
    schema = pa.schema([("row_id", pa.int64()), ("x", kind)])
    with pytest.raises(
        ConnectorError, match=r"the column 'x' has type .* tables cannot hold.*source\.columns"
    ):
        target.open("create").start_export(schema, OLD)
    assert not [*tmp_path.rglob("*.parquet")]


def test_values_that_the_table_cannot_hold_are_named_with_a_remedy(target: Target) -> None:
    if target.format not in ("delta", "iceberg"):
        pytest.skip("it holds nanoseconds")
    table = pa.table({"at": pa.array([1], pa.timestamp("ns"))})
    pending = target.open("create").start_export(table.schema, OLD)
    with pytest.raises(
        ConnectorError, match=r"'at' cannot be exported.*lose data.*source\.columns, or export"
    ):
        pending.write(table, 0)


def test_missing_values_are_not_written_to_a_column_that_takes_none() -> None:
    with pytest.raises(ConnectorError, match=r"'n' cannot be exported.*a value is missing"):
        fitted(pa.table({"n": [1, None]}), pa.schema([pa.field("n", pa.int64(), nullable=False)]))
