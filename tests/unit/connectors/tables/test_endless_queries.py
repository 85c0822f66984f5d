"""A query or a view without an end is stopped; values of monstrous size are refused."""

from __future__ import annotations

import sqlite3
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import ValidationError

from connectors import open_source
from connectors.base import ConnectorError
from connectors.tables.sqlite_cursor import array_of, reading_sqlite

ENDLESS = "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) SELECT count(*) AS id FROM r"


@pytest.fixture
def databases(tmp_path: Path) -> dict[str, Any]:
    """URLs of databases with the table ``t`` and the view ``v``, which has no end."""
    duckdb = pytest.importorskip("duckdb")
    pytest.importorskip("adbc_driver_manager")
    with sqlite3.connect(tmp_path / "x.sqlite") as lite, duckdb.connect(tmp_path / "x.duckdb") as duck:
        for connection in (lite, duck):
            connection.execute("CREATE TABLE t AS SELECT 1 AS id, 2.5 AS a")
            connection.execute(f"CREATE VIEW v AS {ENDLESS}")
    return {kind: f"{kind}:///{tmp_path}/x.{kind}" for kind in ("sqlite", "duckdb")}


@pytest.mark.parametrize("kind", ["sqlite", "duckdb"])
@pytest.mark.parametrize("what", [{"query": ENDLESS}, {"table": "v"}], ids=["query", "view"])
def test_what_has_no_end_is_stopped(
    kind: str, what: dict[str, str], databases: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROWSIEVE_MAX_SECONDS", "1")
    started = time.monotonic()
    with pytest.raises(ConnectorError, match=r"stopped after 1 seconds.*ROWSIEVE_MAX_SECONDS"):
        open_source(databases[kind], options={**what, "key": "id"}).list()
    assert time.monotonic() - started < 10
    good = open_source(databases[kind], options={"table": "t", "key": "id"}).list()
    assert [shard.n_rows for shard in good.shards] == [1]


@pytest.mark.parametrize(
    "query", ["SELECT 1 AS id, zeroblob(900000000) AS x", "SELECT 1 AS id, hex(zeroblob(9e8))"]
)
def test_values_of_sqlite_are_bounded(query: str, databases: dict[str, str]) -> None:
    with pytest.raises(ConnectorError, match="too big"):
        open_source(databases["sqlite"], options={"query": query, "key": "id"}, max_bytes=10**6).list()


def test_values_of_sqlite_are_bounded_together(
    databases: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each value may be as large as a shard, and there may be a thousand in a batch."""
    rows = "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r LIMIT 400)"
    query = f"{rows} SELECT n AS id, hex(zeroblob(50000)) AS x FROM r"
    made: list[int] = []
    monkeypatch.setattr("connectors.tables.sqlite_cursor.BATCH_BYTES", 10**6)
    monkeypatch.setattr("connectors.tables.sqlite_cursor.TABLE_BYTES", 10**6)
    usual = array_of
    monkeypatch.setattr(
        "connectors.tables.sqlite_cursor.array_of",
        lambda values: (made.append(len(values)), usual(values))[1],
    )
    for most in (10**6, 10**8):
        source = open_source(databases["sqlite"], options={"query": query, "key": "id"}, max_bytes=most)
        listing = source.list()
        with pytest.raises(ConnectorError, match="take more") if most < 10**7 else nullcontext():
            assert source.read(listing.shards[0], ["x"], listing.schema).num_rows == 400
    assert max(made) <= 11


def test_batches_of_sqlite_are_cut_by_their_bytes(
    databases: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("connectors.tables.sqlite_cursor.BATCH_BYTES", 100)
    with reading_sqlite(databases["sqlite"].removeprefix("sqlite:///"), "x", 10, 10**6) as cursor:
        cursor.execute("SELECT 'a' AS s UNION ALL SELECT hex(zeroblob(100)) UNION ALL SELECT 'b'")
        assert [batch.num_rows for batch in cursor.fetch_record_batch()] == [2, 1]


def test_an_answer_of_sqlite_is_whole_or_refused(
    databases: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sample may end early; the bounds of the shards may not, as rows would be lost."""
    monkeypatch.setattr("connectors.tables.sqlite_cursor.TABLE_BYTES", 100)
    with reading_sqlite(databases["sqlite"].removeprefix("sqlite:///"), "x", 10, 10**6) as cursor:
        for text, rows in (("hex(zeroblob(100))", 2), ("'b'", 3)):
            query = f"SELECT 'a' AS s UNION ALL SELECT {text} UNION ALL SELECT 'c'"
            cursor.execute(query)
            assert cursor.fetch_sample().num_rows == rows
            cursor.execute(query)
            with pytest.raises(ConnectorError, match="Name another key") if rows < 3 else nullcontext():
                assert cursor.fetch_arrow_table().num_rows == 3


def test_a_view_of_sqlite_only_reads(tmp_path: Path) -> None:
    """Functions that load code are refused also where a view of the database calls them."""
    with sqlite3.connect(tmp_path / "x.db") as connection:
        connection.execute("CREATE TABLE t (id)")
        connection.execute("CREATE VIEW v AS SELECT load_extension('/tmp/x') AS id")
        connection.execute("CREATE VIRTUAL TABLE f USING fts5(words)")
        connection.execute("INSERT INTO f VALUES ('a b')")
    with pytest.raises(ConnectorError, match="load_extension"):
        open_source(f"sqlite:///{tmp_path}/x.db", options={"table": "v", "key": "id"}).list()
    with reading_sqlite(str(tmp_path / "x.db"), "x", 10, 10**6) as cursor:
        cursor.execute("SELECT words FROM f WHERE f MATCH 'a'")
        assert cursor.fetch_arrow_table().to_pylist() == [{"words": "a b"}]


@example([2**53 + 1, 0.0])
@given(st.lists(st.none() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | st.text("aé1")))
def test_one_type_holds_all_values(values: list[Any]) -> None:
    found = array_of(values)
    assert found.is_null().to_pylist() == [value is None for value in values]
    if pa.types.is_string(found.type):
        texts = [value for value in values if isinstance(value, str)]
        assert [text for text in found.to_pylist() if text in texts or not text] or not texts
    else:
        assert found.to_pylist() == [None if value is None else pytest.approx(value) for value in values]


@pytest.mark.parametrize("kind", ["sqlite", "duckdb"])
def test_a_query_that_the_parser_would_take_minutes_for_is_refused(
    kind: str, databases: dict[str, str]
) -> None:
    query = "SELECT 1 AS id" + " UNION SELECT 1" * 30_000
    with pytest.raises(ValidationError, match="at most 20000 characters"):
        open_source(databases[kind], options={"query": query, "key": "id"})
