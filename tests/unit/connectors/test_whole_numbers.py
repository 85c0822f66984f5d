"""Whole numbers of CSV and JSON lines either keep every digit or are an error that says how they can."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors import open_source
from connectors.base import ConnectorError
from connectors.whole_numbers import holds_large, is_inexact
from engine.plan.source_keys import inspect_source


def values(path: Path, **settings: Any) -> list[Any]:
    source = open_source(str(path), **settings)
    listing = source.list()
    found = [source.read(shard, ["id"], listing.schema) for shard in listing.shards]
    return pa.concat_tables(found)["id"].to_pylist()


def written(folder: Path, format: str, ids: list[Any]) -> Path:
    path = folder / f"a.{format}"
    if format == "csv":
        path.write_text("id,y\n" + "".join(f"{one},{row % 2}\n" for row, one in enumerate(ids)))
    else:
        path.write_text("".join(f'{{"id": {one}, "y": {row % 2}}}\n' for row, one in enumerate(ids)))
    return path


@given(st.integers(-(2**70), 2**70))
def test_a_number_is_exact_where_its_float_gives_it_back(number: int) -> None:
    shortest = np.format_float_positional(float(number), trim="-")
    assert is_inexact(str(number)) == (int(float(number)) != number and shortest != str(number))


LOST = {
    "beyond int64": (9223372036854775809, [2**63 + row for row in range(20)]),
    "23 digits": (12345678901234567890123, [12345678901234567890123 + row for row in range(20)]),
    "a fraction before": (9007199254740993, [1.5, *(2**53 + row for row in range(1, 20))]),
    "negative": (-9223372036854775809, [-(2**63) - row for row in range(1, 20)]),
}


@pytest.mark.parametrize("format", ["csv", "jsonl"])
@pytest.mark.parametrize("case", LOST)
def test_numbers_that_float64_would_change_are_an_error(case: str, format: str, tmp_path: Path) -> None:
    number, ids = LOST[case]
    path = written(tmp_path, format, ids)
    remedy = r"source\.text_columns" if format == "csv" else "as texts, in quotes"
    line = ids.index(number) + (2 if format == "csv" else 1)
    with pytest.raises(ConnectorError, match=rf"line {line}: column 'id': {number} would .*{remedy}"):
        values(path)


@pytest.mark.parametrize("format", ["csv", "jsonl"])
@pytest.mark.parametrize(("ids", "line"), [([*range(2**53, 2**53 + 9), 1.5], 10), ([1, 2, 2**63 + 1], 3)])
def test_a_later_number_of_another_kind_is_named(
    ids: list[Any], line: int, format: str, tmp_path: Path
) -> None:
    path = written(tmp_path, format, ids)
    place = line + (format == "csv")
    with pytest.raises(ConnectorError, match=rf"line {place}: column 'id': '?{ids[-1]}'? is not int64"):
        values(path)


def test_a_later_shard_does_not_lose_digits(tmp_path: Path) -> None:
    path = written(tmp_path, "csv", [1.5] * 50 + [2**53 + 1])
    with pytest.raises(ConnectorError, match=r"line 52: column 'id': 9007199254740993 would become"):
        values(path, shard_bytes=40)


@pytest.mark.parametrize("settings", [{"strip": True}, {"options": {"thousands": "'"}}])
def test_rewritten_cells_do_not_lose_digits(settings: dict[str, Any], tmp_path: Path) -> None:
    cell = f" {2**63 + 1}" if "strip" in settings else f"{2**63 + 1:_}".replace("_", "'")
    path = written(tmp_path, "csv", [cell])
    with pytest.raises(ConnectorError, match="9223372036854775809 would become"):
        values(path, **settings)


def test_numbers_inside_of_lists_and_objects_keep_their_digits(tmp_path: Path) -> None:
    path = written(tmp_path, "jsonl", [json.dumps({"b": [1, 2**63 + row]}) for row in range(5)])
    with pytest.raises(ConnectorError, match=r"line 2: column 'id': 9223372036854775809 would become"):
        values(path)


def test_text_columns_and_quotes_keep_every_digit(tmp_path: Path) -> None:
    ids = [str(2**63 + row) for row in range(5)]
    assert values(written(tmp_path, "csv", ids), text_columns=("id",)) == ids
    assert values(written(tmp_path, "jsonl", [json.dumps(one) for one in ids])) == ids


def test_init_names_the_column_itself(tmp_path: Path) -> None:
    path = written(tmp_path, "csv", [2**63 + row for row in range(5)])
    assert inspect_source(str(path), "auto", 1).keys["text_columns"].value == ["id"]


@pytest.mark.parametrize("format", ["csv", "jsonl"])
@pytest.mark.parametrize(
    "one", ["1e300", "100000000000000000000", "1152921504606847000.5", "0.1234567890123456"]
)
def test_numbers_that_lose_nothing_are_read(one: str, format: str, tmp_path: Path) -> None:
    assert values(written(tmp_path, format, [one, "0.5"])) == [float(one), 0.5]


@pytest.mark.parametrize("format", ["csv", "jsonl"])
def test_a_number_of_thousands_of_digits_is_named_in_short(format: str, tmp_path: Path) -> None:
    with pytest.raises(ConnectorError, match=r"9\.\.\. \(5,000 digits\)") as caught:
        values(written(tmp_path, format, ["9" * 5000]))
    assert len(str(caught.value)) < 600


def test_gaps_and_endless_numbers_are_large_or_not() -> None:
    assert not holds_large(pa.chunked_array([[float("nan"), None, 1.0]], pa.float64()))
    assert holds_large(pa.chunked_array([[float("nan"), None], [-(2.0**60)]], pa.float64()))
    assert not holds_large(pa.chunked_array([], pa.float64()))
    assert not holds_large(pa.chunked_array([[2**60]], pa.int64()))
