"""Tables of others as sources: every row once, one version through, only what is asked for."""

from __future__ import annotations

import json
import pickle
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from connectors import ConnectorError, Source, open_source
from connectors.base import CorruptError, Listing
from connectors.filters import parse
from connectors.tables import delta
from engine.plan.planner import make_plan
from engine.recipe.recipe import Recipe, TruthSection
from engine.runs.runner import run
from tests import tables
from tests.data import recipe_for, spurious_table

KINDS = ("lance", "delta", "iceberg", "sqlite", "duckdb")
for package in ("lance", "deltalake", "pyiceberg", "duckdb", "adbc_driver_postgresql"):
    pytest.importorskip(package)


def rows(start: int, stop: int) -> pa.Table:
    """Rows with a unique whole number."""
    values = range(start, stop)
    texts = [None if i % 10 == 3 else f'it\'s "{i % 4}"' for i in values]
    return pa.table({"a": pa.array(values, pa.int64()), "x": [i / 2 for i in values], "s": texts})


def opened(made: tables.MadeTable, **settings: Any) -> tuple[Source, Listing]:
    source = open_source(made.path, made.format, options=made.options, **settings)
    return source, source.list()


def read(source: Source, listing: Listing, columns: Sequence[str] = ("a", "x", "s")) -> list[dict[str, Any]]:
    """All rows, by shard as a worker reads them, sorted by their number."""
    travelled = pickle.loads(pickle.dumps(source))
    found = [travelled.read(shard, columns, listing.schema) for shard in listing.shards]
    assert [table.num_rows for table in found] == [shard.n_rows for shard in listing.shards]
    assert all(table.column_names == [*columns] for table in found)
    everything: list[dict[str, Any]] = pa.concat_tables(found).to_pylist()
    return sorted(everything, key=lambda row: row["a"])


@pytest.fixture(params=KINDS)
def made(request: pytest.FixtureRequest, tmp_path: Path) -> tables.MadeTable:
    made = tables.new(request.param, tmp_path)
    tables.append(made, rows(0, 60))
    tables.append(made, rows(60, 100))
    return made


def test_every_row_once_with_plain_types_and_only_the_columns_asked_for(made: tables.MadeTable) -> None:
    source, listing = opened(made)
    assert [str(field.type) for field in listing.schema] == ["int64", "double", "string"]
    assert len(listing.shards) > 1
    assert read(source, listing) == rows(0, 100).to_pylist()
    assert read(source, listing, ["s", "a"]) == rows(0, 100).select(["s", "a"]).to_pylist()
    with pytest.raises(ConnectorError, match="no column 'b'"):
        source.read(listing.shards[0], ["b"], listing.schema)


def test_deleted_rows_are_gone_and_what_did_not_change_keeps_its_identity(made: tables.MadeTable) -> None:
    source, before = opened(made)
    tables.delete(made, "a IN (70, 75, 99)")
    left = [row for row in rows(0, 100).to_pylist() if row["a"] not in (70, 75, 99)]
    newer, after = opened(made)
    assert read(newer, after) == left
    paths = [shard.path for shard in before.shards]
    same = [path for path in paths if after.identities.get(path) == before.identities[path]]
    assert len(same) == 1
    if made.format == "sql":
        with pytest.raises(ConnectorError, match="has changed since it was listed"):
            read(source, before)
    else:  # the version that was planned is still the one that is read
        assert read(source, before) == rows(0, 100).to_pylist()
        assert len(before.identities) == len(paths) + 1  # and its number is on record


def test_a_filter_takes_its_rows(made: tables.MadeTable) -> None:
    for clauses in (
        [["a", "<", 12]],
        [["s", "=", 'it\'s "2"'], ["x", ">=", 40]],
        [[["s", "=", None]], [["a", "in", [5, 98]]]],
        [["s", "not in", ['it\'s "0"', 'it\'s "1"']]],
    ):
        predicate = parse(clauses)
        assert predicate is not None
        wanted = rows(0, 100).filter(predicate.mask(rows(0, 100))).to_pylist()
        assert read(*opened(made, filter=predicate)) == wanted


def test_a_filter_rules_files_out_before_they_are_read(made: tables.MadeTable) -> None:
    if made.format == "lance":
        pytest.skip("Lance keeps no statistics of fragments")
    spec = {"filter": parse([["a", "<", 12]])}
    found = open_source(made.path, made.format, options=made.options, **spec)
    inner = found.source.list().shards  # type: ignore[attr-defined]
    assert sum(shard.n_rows for shard in inner) == (12 if made.format == "sql" else 60)


def test_large_files_are_cut(tmp_path: Path) -> None:
    for name in ("lance", "delta"):
        made = tables.new(name, tmp_path)
        if name == "delta":
            from deltalake import WriterProperties, write_deltalake

            small = WriterProperties(max_row_group_size=100)
            write_deltalake(made.path, rows(0, 1000), writer_properties=small)
        else:
            tables.append(made, rows(0, 1000))
        source, listing = opened(made, shard_bytes=4000)
        assert len(listing.shards) >= 3
        assert read(source, listing) == rows(0, 1000).to_pylist()
        with pytest.raises(ConnectorError, match=r"source\.max_shard_bytes allows \(?10\b"):
            read(*opened(made, max_bytes=10))


def test_a_column_of_sqlite_without_first_values_has_the_type_of_later_ones(tmp_path: Path) -> None:
    """The text '007' was read as the number 7 where the first thousand rows have none."""
    with closing(sqlite3.connect(tmp_path / "x.db")) as database:
        database.execute("CREATE TABLE rows (id INTEGER PRIMARY KEY, code TEXT, x REAL, gap TEXT)")
        rows = [(n, None if n < 1500 else "007", None if n < 1500 else 0.5) for n in range(1600)]
        database.executemany("INSERT INTO rows VALUES (?, ?, ?, NULL)", rows)
        database.commit()
    options = {"table": "rows", "key": "id", "rows_per_shard": 1000}
    wanted = parse(["code", "=", "007"])
    for given in (options, {**options, "table": None, "query": "SELECT * FROM rows"}):
        source = open_source(f"sqlite:///{tmp_path}/x.db", options=given, filter=wanted)
        listing = source.list()
        (shard,) = listing.shards
        found = source.read(shard, ["code", "x", "gap"], listing.schema).to_pylist()
        assert found == [{"code": "007", "x": 0.5, "gap": None}] * 100
        assert source.locate(shard, 0) == "id = 1500"


@pytest.mark.parametrize(
    ("clause", "ids"),
    [
        (["n", "!=", "abc"], [2, 3]),
        (["n", "not in", ["abc", "zz"]], [2, 3]),
        (["n", "=", "abc"], [1]),
        (["m", "=", "5"], [1, 2]),
        (["m", "in", ["5", "6"]], [1, 2]),
        (["m", "!=", "5"], [3]),
    ],
)
def test_texts_are_compared_without_the_databases_rules(
    clause: list[Any], ids: list[int], tmp_path: Path
) -> None:
    """By the collation NOCASE 'ABC' was left out with 'abc'; so was the number 5 of a column without type."""
    with closing(sqlite3.connect(tmp_path / "x.db")) as database:
        database.execute("CREATE TABLE rows (id INTEGER PRIMARY KEY, n TEXT COLLATE NOCASE, m)")
        rows = [(1, "abc", 5), (2, "ABC", "5"), (3, "x", "q"), (4, None, None)]
        database.executemany("INSERT INTO rows VALUES (?, ?, ?)", rows)
        database.commit()
    options = {"table": "rows", "key": "id"}
    source = open_source(f"sqlite:///{tmp_path}/x.db", options=options, filter=parse(clause))
    (shard,) = (listing := source.list()).shards
    assert source.read(shard, ["id"], listing.schema)["id"].to_pylist() == ids


def test_a_key_of_several_types_is_refused(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "x.db")) as database:
        database.execute("CREATE TABLE rows (id, y TEXT)")
        database.executemany("INSERT INTO rows VALUES (?, 'a')", [(1,), ("k",)])
        database.commit()
    with pytest.raises(ConnectorError, match=r'key: "id" holds values of several types \(integer, text\)'):
        open_source(f"sqlite:///{tmp_path}/x.db", options={"table": "rows", "key": "id"}).list()


def test_a_key_that_float64_rounds_is_refused(tmp_path: Path) -> None:
    """Its ranges ended at rounded keys: for ever, rows "had changed since they were listed"."""
    with closing(sqlite3.connect(tmp_path / "x.db")) as database:
        database.execute("CREATE TABLE rows (id, y TEXT)")
        database.executemany("INSERT INTO rows VALUES (?, 'a')", [(1,), (1.5,), (2**53,), (1e300,)])
        database.commit()
        source = open_source(
            f"sqlite:///{tmp_path}/x.db", options={"table": "rows", "key": "id", "rows_per_shard": 2}
        )
        listing = source.list()
        found = [source.read(shard, ["id"], listing.schema)["id"].to_pylist() for shard in listing.shards]
        assert found == [[1, 1.5], [2**53, 1e300]]
        database.execute("INSERT INTO rows VALUES (?, 'a')", (2**53 + 1,))
        database.commit()
    with pytest.raises(ConnectorError, match=r'key: "id" holds fractions beside 9007199254740993, which flo'):
        source.list()


def test_errors_of_sqlite_name_a_remedy(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "x.db")) as database:
        database.execute('CREATE TABLE "my.rows" (id INTEGER, y TEXT)')
        database.execute("INSERT INTO \"my.rows\" VALUES (1, CAST(x'ff' AS TEXT))")
        database.commit()
    path = f"sqlite:///{tmp_path}/x.db"
    with pytest.raises(ConnectorError, match=r'source\.options\.query, in which it is written "my\.rows"\.$'):
        open_source(path, options={"table": "my.rows", "key": "id"}).list()
    query = 'SELECT * FROM "my.rows"'
    with pytest.raises(ConnectorError, match=r"column 'y'.*options\.query, as CAST\(\.\.\. AS BLOB\)\.$"):
        open_source(path, options={"query": query, "key": "id"}).list()
    as_bytes = open_source(path, options={"query": query.replace("*", "id, CAST(y AS BLOB) y"), "key": "id"})
    assert as_bytes.list().schema.field("y").type == pa.binary()


@pytest.mark.parametrize("shard_bytes", [1, 10**6])
@pytest.mark.parametrize("name", ["lance", "delta"])
def test_rows_are_named_by_their_place_among_deleted_ones(
    name: str, shard_bytes: int, tmp_path: Path
) -> None:
    made = tables.new(name, tmp_path)
    tables.append(made, rows(0, 60))
    if name == "delta":
        tables.mark_deleted(made.path, [0, 1, 9, 10, 35])
    else:
        tables.delete(made, "a in (0, 1, 9, 10, 35)")
    source = open_source(made.path, made.format, shard_bytes=shard_bytes)
    listing = source.list()
    for shard in listing.shards:
        values = source.read(shard, ["a"], listing.schema)["a"].to_pylist()
        assert [*source.file_rows(shard, range(len(values)))] == values
        assert source.locate(shard, len(values) - 1) == f"row {values[-1]}"


@pytest.mark.parametrize("name", ["lance", "delta", "iceberg"])
def test_a_damaged_file_is_told_from_other_errors(name: str, tmp_path: Path) -> None:
    made = tables.new(name, tmp_path)
    tables.append(made, rows(0, 60))
    source, listing = opened(made)
    (file,) = [
        path for path in tmp_path.rglob("*") if path.suffix in (".parquet", ".lance") and path.is_file()
    ]
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    with pytest.raises(CorruptError, match="cannot be read by"):
        source.read(listing.shards[0], ["a"], listing.schema)
    file.unlink()
    with pytest.raises(CorruptError):
        source.read(listing.shards[0], ["a"], listing.schema)


def test_deltas_deletion_vectors_and_partitions(tmp_path: Path) -> None:
    from deltalake import WriterProperties, write_deltalake

    path = str(tmp_path / "t")
    part = pa.array(["a b/c%"] * 50 + [None] * 50)
    table = rows(0, 100).append_column("p", part)
    config = {"delta.enableDeletionVectors": "true"}
    write_deltalake(path, table.slice(50), partition_by=["p"], configuration=config)
    small = WriterProperties(max_row_group_size=10)
    write_deltalake(path, table.slice(0, 50), mode="append", writer_properties=small)
    tables.mark_deleted(path, [0, 9, 10, 33, 49])
    source, listing = opened(tables.MadeTable("auto", path), shard_bytes=1)
    wanted = [row for row in table.to_pylist() if row["a"] not in (0, 9, 10, 33, 49)]
    assert read(source, listing, ["a", "p", "x", "s"]) == [
        {name: row[name] for name in ("a", "p", "x", "s")} for row in wanted
    ]
    source, listing = opened(tables.MadeTable("delta", path), filter=parse([["p", "=", "a b/c%"]]))
    assert [row["a"] for row in read(source, listing)] == [row["a"] for row in wanted if row["a"] < 50]


def test_deletion_vectors_of_files_of_one_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table that was a folder of Parquet has ``part-0.parquet`` in every partition."""
    from deltalake import DeltaTable, write_deltalake

    folder = tmp_path / "a table"
    table = rows(0, 20).append_column("p", pa.array(["a b"] * 10 + ["c%"] * 10))
    config = {"delta.enableDeletionVectors": "true"}
    write_deltalake(str(folder), table, partition_by=["p"], configuration=config)
    log = folder / "_delta_log" / f"{0:020d}.json"
    actions = [json.loads(line) for line in log.read_text().splitlines()]
    for add in (action["add"] for action in actions if "add" in action):
        named = f"{add['path'].rpartition('/')[0]}/part-0.parquet"
        (folder / unquote(add["path"])).rename(folder / unquote(named))
        add["path"] = named
    log.write_text("".join(json.dumps(action) + "\n" for action in actions))
    tables.mark_deleted(str(folder), [0, 3])  # of the file that the log names first
    first = next(action["add"] for action in actions if "add" in action)["partitionValues"]["p"]
    gone = (0, 3) if first == "a b" else (10, 13)
    made = tables.MadeTable("delta", str(folder))
    found = read(*opened(made), ["a", "p"])
    assert [row["a"] for row in found] == [i for i in range(20) if i not in gone]

    def elsewhere(self: Any) -> Any:
        yield pa.record_batch({"filepath": ["file:///x/part-0.parquet"], "selection_vector": [[False]]})

    delta._read_log.cache_clear()
    monkeypatch.setattr(DeltaTable, "deletion_vectors", elsewhere)
    with pytest.raises(ConnectorError, match="rows that were deleted would be read"):
        opened(made)


def test_icebergs_files_of_deleted_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
    from pyiceberg.table import FileScanTask

    from connectors.tables import iceberg

    made = tables.new("iceberg", tmp_path)
    tables.append(made, rows(0, 20))
    planned = iceberg._planned

    def with_deletes(*key: Any) -> Any:
        table, tasks = planned(*key)
        ((path, task),) = tasks.items()
        file = str(tmp_path / "deleted.parquet")
        pq.write_table(pa.table({"file_path": [path] * 2, "pos": pa.array([4, 17], pa.int64())}), file)
        gone = DataFile.from_args(
            content=DataFileContent.POSITION_DELETES, file_path=file, file_format=FileFormat.PARQUET
        )
        return table, {path: FileScanTask(task.file, {gone})}

    before = opened(made)[1]
    monkeypatch.setattr(iceberg, "_planned", with_deletes)
    source = open_source(made.path, made.format, options=made.options)
    after = source.list()
    found = source.read(after.shards[0], ["a"], after.schema)["a"].to_pylist()
    assert found == [i for i in range(20) if i not in (4, 17)]
    path = after.shards[0].path
    assert before.identities[path] != after.identities[path]


def test_iceberg_deletes_by_position_hold_and_those_by_value_are_refused(tmp_path: Path) -> None:
    """The error of equality deletes said to correct the address or permissions."""
    from pyiceberg.manifest import DataFileContent

    made = tables.new("iceberg", tmp_path)
    tables.append(made, rows(0, 20))
    path = opened(made)[1].shards[0].path
    gone = pa.table({"file_path": [path] * 2, "pos": pa.array([4, 17], pa.int64())})
    tables.add_iceberg_deletes(made, DataFileContent.POSITION_DELETES, gone)
    tables.append(made, rows(20, 25))  # written after the deletes
    kept = [i for i in range(25) if i not in (4, 17)]
    assert sorted(row["a"] for row in read(*opened(made), ["a"])) == kept
    source = open_source(made.path, made.format, options=made.options, filter=parse([["a", ">", 15]]))
    found = read(source, source.list(), ["a"])
    assert sorted(row["a"] for row in found) == [i for i in kept if i > 15]
    before = tables.catalog_of(made).load_table(made.path).current_snapshot().snapshot_id
    equal = {"equality_ids": [1], "value_counts": {1: 1}}
    tables.add_iceberg_deletes(made, DataFileContent.EQUALITY_DELETES, pa.table({"a": [5]}), **equal)
    with pytest.raises(ConnectorError, match=r"files of equality deletes.* rewrite_data_files .*snapshot"):
        opened(made)
    older = tables.MadeTable("iceberg", made.path, made.options | {"snapshot": before})
    assert sorted(row["a"] for row in read(*opened(older), ["a"])) == kept


def test_versions_can_be_named(tmp_path: Path) -> None:
    for name, option in (("lance", {"version": 1}), ("delta", {"version": 0})):
        made = tables.new(name, tmp_path)
        tables.append(made, rows(0, 5))
        tables.append(made, rows(5, 9))
        assert len(read(*opened(tables.MadeTable(name, made.path, option)))) == 5
        with pytest.raises(ConnectorError):
            opened(tables.MadeTable(name, made.path, {"version": 77}))
    made = tables.new("iceberg", tmp_path)
    tables.append(made, rows(0, 5))
    first = tables.catalog_of(made).load_table(made.path).current_snapshot().snapshot_id
    tables.append(made, rows(5, 9))
    chosen = made.options | {"snapshot": first}
    assert len(read(*opened(tables.MadeTable("iceberg", made.path, chosen)))) == 5
    with pytest.raises(ConnectorError, match="no snapshot 1;"):
        opened(tables.MadeTable("iceberg", made.path, made.options | {"snapshot": 1}))
    metadata = tables.catalog_of(made).load_table(made.path).metadata_location
    assert len(read(*opened(tables.MadeTable("iceberg", metadata)))) == 9


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"table": "rows", "key": "s"}, r"'s' has 4 values in 100 rows \(10 null\)"),
        ({"table": "rows", "key": "b"}, "no column 'b'"),
        ({"table": "nothing", "key": "a"}, "nothing"),
        ({"query": "SELECT a, a % 7 AS s FROM rows", "key": "s"}, "'s' has 7 values in 100 rows"),
    ],
)
def test_a_bad_key_or_table_is_named(options: dict[str, Any], text: str, tmp_path: Path) -> None:
    made = tables.new("sqlite", tmp_path)
    tables.append(made, rows(0, 100))
    with pytest.raises(ConnectorError, match=text):
        opened(tables.MadeTable("sql", made.path, options))


def test_sql_queries_text_keys_changes_and_rows_by_key(tmp_path: Path) -> None:
    made = tables.new("sqlite", tmp_path)
    tables.append(made, rows(0, 100))
    options = {
        "query": "SELECT printf('k%03d', a) AS k, a, x FROM rows",
        "key": "k",
        "rows_per_shard": 30,
        "changed_by": "x",
    }
    source, listing = opened(tables.MadeTable("auto", made.path, options))
    assert [shard.n_rows for shard in listing.shards] == [30, 30, 30, 10]
    assert read(source, listing, ["a"]) == rows(0, 100).select(["a"]).to_pylist()
    assert source.locate(listing.shards[1], 4) == "k = 'k034'"
    tables._execute(made, "UPDATE rows SET x = 1000 WHERE a = 31")
    after = source.list()
    paths = [shard.path for shard in listing.shards]
    assert [listing.identities[p] == after.identities[p] for p in paths] == [True, False, True, True]


def test_the_password_of_a_url_comes_from_the_environment_and_stays_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("adbc_driver_postgresql")
    url = "postgresql://ann:${DB_PASS}@localhost:1/shop"
    monkeypatch.setenv("ROWSIEVE_ENVIRONMENT_NAMES", "DB_PASS")
    with pytest.raises(ConnectorError, match="DB_PASS is not set"):
        open_source(url, options={"table": "t", "key": "k"})
    monkeypatch.setenv("DB_PASS", "s3cr3t/@")
    source = open_source(url, options={"table": "t", "key": "k"})
    assert "s3cr3t" not in repr(source)
    assert source.url == "postgresql://ann:s3cr3t%2F%40@localhost:1/shop"  # type: ignore[attr-defined]
    with pytest.raises(ConnectorError, match="postgresql://localhost:1/shop#t") as caught:
        source.list()
    assert "s3cr3t" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("postgresql://ann:${CLOUD_SECRET}@evil.example/shop", r"\$\{CLOUD_SECRET\} would send"),
        ("postgresql://${CLOUD_SECRET}:x@evil.example/shop", r"\$\{CLOUD_SECRET\} would send"),
        ("postgresql://ann:x@${DB_PASS}.evil.example/shop", "user and password of a database URL only"),
        ("postgresql://evil.example/${DB_PASS}", "user and password of a database URL only"),
        ("postgresql://evil.example/?options=${DB_PASS}@x", "user and password of a database URL only"),
        ("sqlite:///data/${DB_PASS}.db", "user and password of a database URL only"),
    ],
)
def test_a_url_sends_no_variable_that_the_operator_has_not_listed(
    url: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("adbc_driver_postgresql")
    monkeypatch.setenv("ROWSIEVE_ENVIRONMENT_NAMES", "DB_PASS")
    monkeypatch.setenv("DB_PASS", "hunter2hunter2")
    monkeypatch.setenv("CLOUD_SECRET", "s3cr3ts3cr3t")
    with pytest.raises(ConnectorError, match=message) as caught:
        open_source(url, options={"table": "t", "key": "k"})
    assert "hunter2" not in str(caught.value)
    assert "s3cr3t" not in str(caught.value)


def test_a_library_that_is_not_there_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    from connectors.tables.common import library

    with pytest.raises(ConnectorError, match=r"pip install 'rowsieve\[delta\]'"):
        library("no_such_library", "delta")


def test_a_changed_table_is_another_plan(made: tables.MadeTable, tmp_path: Path) -> None:
    recipe = Recipe.parse(
        recipe_for(Path(), tmp_path / "out", source={**made.source, "label": "s"}, truth={})
    )
    recipe = recipe.model_copy(update={"truth": TruthSection()})
    first = make_plan(recipe)
    assert make_plan(recipe).version == first.version
    assert first.n_rows == 100
    tables.append(made, rows(100, 110))
    assert make_plan(recipe).version != first.version


@pytest.mark.slow
@pytest.mark.parametrize("name", ["delta", "lance"])
def test_a_table_is_curated_as_files_are(name: str, tmp_path: Path) -> None:
    made = tables.new(name, tmp_path)
    table = spurious_table()
    for start in range(0, 240, 80):
        tables.append(made, table.slice(start, 80))
    recipe = Recipe.parse(recipe_for(Path(made.path), tmp_path / "out"))
    result = run(recipe)
    found = pq.read_table(result.path / "data")
    assert found.select(["a", "label"]).to_pylist() == table.select(["a", "label"]).to_pylist()
    assert run(recipe).reused


@pytest.mark.slow
def test_an_increment_reads_only_the_files_that_were_added(tmp_path: Path) -> None:
    made = tables.new("delta", tmp_path)
    table = spurious_table(300)
    tables.append(made, table.slice(0, 120))
    tables.append(made, table.slice(120, 120))
    recipe = recipe_for(Path(made.path), tmp_path / "out")
    run(Recipe.parse(recipe))
    tables.append(made, table.slice(240, 60))
    result = run(Recipe.parse(recipe | {"incremental": {"base": "current", "mode": "predict"}}))
    assert {operator.name: operator.computed for operator in result.operators}["ingest"] == 1
    found = pq.read_table(result.path / "data")
    assert found["a"].to_pylist() == table["a"].to_pylist()
