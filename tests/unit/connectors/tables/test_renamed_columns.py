"""Columns of tables that were renamed, dropped or exchanged, which changes no data file and no snapshot."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from connectors import ConnectorError, open_source
from connectors.filters import parse
from tests import tables

for package in ("lance", "pyiceberg"):
    pytest.importorskip(package)
ROWS = pa.table({"a": [1.0, 2.0], "b": [10.0, 20.0], "y": ["u", "v"]})
LATER = pa.table({"b": [3.0], "a": [30.0], "y": ["w"]})


def written(name: str, folder: Path) -> tables.MadeTable:
    made = tables.new(name, folder)
    tables.append(made, ROWS)
    return made


def read(made: tables.MadeTable, **options: Any) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Return the rows and identities; every shard can be read without columns, too."""
    source = open_source(made.path, made.format, options=made.options | options)
    listing = source.list()
    found = [source.read(shard, listing.schema.names, listing.schema) for shard in listing.shards]
    for shard in listing.shards:
        assert source.read(shard, [], listing.schema).num_rows == shard.n_rows
    return [row for table in found for row in table.to_pylist()], listing.identities


def rename(made: tables.MadeTable, *pairs: tuple[str, str]) -> None:
    if made.format == "lance":
        import lance

        for name, new in pairs:
            lance.dataset(made.path).alter_columns({"path": name, "name": new})
        return
    for name, new in pairs:
        with tables.catalog_of(made).load_table(made.path).update_schema() as update:
            update.rename_column(name, new)


EXCHANGE = (("a", "other"), ("b", "a"), ("other", "b"))


@pytest.mark.parametrize("name", ["iceberg", "lance"])
def test_columns_that_exchange_their_names_are_other_columns(name: str, tmp_path: Path) -> None:
    """Iceberg's kept their old names until rows were added; and results of the old columns were reused."""
    made = written(name, tmp_path)
    rows, before = read(made)
    assert rows == ROWS.to_pylist()
    assert read(made)[1] == before
    rename(made, *EXCHANGE)
    exchanged, after = read(made)
    assert exchanged == ROWS.rename_columns(["b", "a", "y"]).to_pylist()
    (file,) = (key for key in before if "@" not in key)
    assert after[file] != before[file]
    tables.append(made, LATER)
    rows, later = read(made)
    assert later[file] == after[file]
    assert sorted(row["a"] for row in rows) == [10.0, 20.0, 30.0]


def test_icebergs_columns_are_dropped_and_added_without_a_snapshot(tmp_path: Path) -> None:
    """The table could not be read until rows were added."""
    from pyiceberg.types import LongType

    made = written("iceberg", tmp_path)
    _, before = read(made)
    with tables.catalog_of(made).load_table(made.path).update_schema() as update:
        update.add_column("n", LongType())
    rows, after = read(made)
    assert rows == [row | {"n": None} for row in ROWS.to_pylist()]
    assert after == before
    with tables.catalog_of(made).load_table(made.path).update_schema() as update:
        update.delete_column("b")
        update.delete_column("n")
    assert read(made) == (ROWS.select(["a", "y"]).to_pylist(), before)


def test_an_older_snapshot_of_iceberg_has_its_own_columns(tmp_path: Path) -> None:
    """Columns that the table has no more could not be read."""
    made = written("iceberg", tmp_path)
    first = tables.catalog_of(made).load_table(made.path).current_snapshot().snapshot_id
    rename(made, *EXCHANGE)
    tables.append(made, LATER)
    with tables.catalog_of(made).load_table(made.path).update_schema() as update:
        update.delete_column("b")
    assert read(made, snapshot=first)[0] == ROWS.to_pylist()
    assert sorted(row["a"] for row in read(made)[0]) == [10.0, 20.0, 30.0]


@pytest.mark.parametrize(("column", "n_rows"), [("a", 0), ("b", 2)])
def test_a_filter_of_an_older_snapshot_reads_its_own_columns(
    column: str, n_rows: int, tmp_path: Path
) -> None:
    """By the statistics of the column that has the name now, files with rows were left out."""
    made = written("iceberg", tmp_path)
    first = tables.catalog_of(made).load_table(made.path).current_snapshot().snapshot_id
    rename(made, *EXCHANGE)
    tables.append(made, LATER)
    older = open_source(
        made.path,
        made.format,
        options=made.options | {"snapshot": first},
        filter=parse([column, ">", 5]),
    )
    if not n_rows:
        with pytest.raises(ConnectorError, match=r"source\.filter leaves no row"):
            older.list()
        return
    listing = older.list()
    assert sum(shard.n_rows for shard in listing.shards) == n_rows


def test_identities_hold_numbers_where_earlier_schemas_are_unknown(tmp_path: Path) -> None:
    from connectors.tables.iceberg import reassigned_names

    made = written("iceberg", tmp_path)
    rename(made, *EXCHANGE)
    metadata = tables.catalog_of(made).load_table(made.path).metadata
    columns = metadata.schema()
    numbers = {"b": 1, "a": 2, "y": 3}
    assert reassigned_names(metadata, columns) == numbers
    assert reassigned_names(metadata.model_copy(update={"schemas": [columns]}), columns) == numbers
