"""Names and values in SQL text mean themselves, whatever is in them."""

from __future__ import annotations

import math
import sqlite3
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.base import ConnectorError
from connectors.filters import Predicate, parse
from connectors.tables.sql_text import literal, quoted, where

letters = st.characters(exclude_categories=["Cs"], exclude_characters="\0")
texts = st.text(letters, max_size=20)
columns = st.lists(st.text(letters, min_size=1, max_size=20), min_size=1, max_size=3, unique_by=str.lower)
VALUES = {pa.int64(): st.integers(-(2**53), 2**53), pa.string(): texts, pa.bool_(): st.booleans()}
operations = st.sampled_from(["=", "!=", "<", "<=", ">", ">="])


@given(texts)
def test_a_text_is_itself(text: str) -> None:
    (found,) = sqlite3.connect(":memory:").execute(f"SELECT {literal(text)}").fetchone()
    assert found == text


@given(columns, st.data())
def test_a_condition_lets_through_all_that_the_filter_takes(names: list[str], data: st.DataObject) -> None:
    kinds = [data.draw(st.sampled_from([*VALUES])) for _ in names]
    schema = pa.schema(list(zip(names, kinds, strict=True)))
    rows = data.draw(st.lists(st.tuples(*(st.none() | VALUES[kind] for kind in kinds)), max_size=8))
    table = pa.Table.from_pylist([dict(zip(names, row, strict=True)) for row in rows], schema)

    def clause() -> Any:
        place = data.draw(st.integers(0, len(names) - 1))
        some = VALUES[kinds[place]]
        if data.draw(st.booleans()):
            return (
                names[place],
                data.draw(st.sampled_from(["in", "not in"])),
                tuple(data.draw(st.lists(some, max_size=3))),
            )
        return names[place], data.draw(operations), data.draw(some)

    alternatives = tuple(tuple(clause() for _ in range(data.draw(st.integers(1, 2)))) for _ in range(2))
    predicate = Predicate(alternatives)
    connection = sqlite3.connect(":memory:")
    connection.execute(f"CREATE TABLE t (__n__ INTEGER, {', '.join(map(quoted, names))})")
    marks = ", ".join("?" * (len(names) + 1))
    connection.executemany(f"INSERT INTO t VALUES ({marks})", [(i, *row) for i, row in enumerate(rows)])
    passed = {n for (n,) in connection.execute(f"SELECT __n__ FROM t WHERE {where(predicate, schema)}")}
    taken = {i for i, keep in enumerate(predicate.mask(table).to_pylist()) if keep}
    assert taken <= passed
    operators = {op for alternative in alternatives for _, op, _ in alternative}
    if pa.bool_() not in kinds and operators <= {"=", "in"}:
        assert taken == passed


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (7, "7"),
        (Decimal("1.50"), "1.50"),
        (date(2026, 1, 2), "'2026-01-02'"),
        (datetime(2026, 1, 2, 3, 4, 5), "'2026-01-02T03:04:05'"),
    ],
)
def test_values_by_kind(value: Any, text: str) -> None:
    assert literal(value) == text


@pytest.mark.parametrize("value", [True, b"x", [1], "a\0b", math.inf, math.nan])
def test_what_has_no_text_is_refused(value: Any) -> None:
    with pytest.raises(ConnectorError, match="cannot be written as SQL"):
        literal(value)


@pytest.mark.parametrize("kind", [pa.float32(), pa.float64()])
@pytest.mark.parametrize(
    "clause",
    [
        ["x", "=", 0.1],
        ["x", "in", [0.1, math.inf]],
        ["x", "not in", [1.5]],
        ["x", "!=", math.inf],
        ["x", "!=", 0.1],
    ],
)
def test_no_row_is_lost_by_rounding_or_infinity(kind: pa.DataType, clause: list[Any]) -> None:
    """DuckDB compares a float32 column with 0.1 as float32, Arrow as float64."""
    duckdb = pytest.importorskip("duckdb")
    schema, values = pa.schema([("x", kind)]), [0.1, 1.5, math.inf]
    table = pa.table([pa.array(values, kind)], schema=schema)
    connection = duckdb.connect()
    connection.register("t", table)
    predicate = parse(clause)
    passed = [
        x for (x,) in connection.execute(f"SELECT x FROM t WHERE {where(predicate, schema)}").fetchall()
    ]
    assert set(table.filter(predicate.mask(table))["x"].to_pylist()) <= set(passed)


def test_an_unknown_column_is_named() -> None:
    with pytest.raises(ConnectorError, match="no column 'b'"):
        where(parse(["b", "=", 1]), pa.schema([("a", pa.int64())]))
