"""Hashes of source rows: the same for the same values, whatever their types, files and cuts."""

from __future__ import annotations

import datetime as dt
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from operators.parts.content import table_hashes, value_hashes
from operators.parts.held_out import FITTED, TEST, VALIDATION, Draw
from operators.row_identity import key_hashes

VALUES: dict[str, pa.Array] = {
    "integers": pa.array([3, None, -7, 0]),
    "floats": pa.array([0.5, None, 2.0, -0.25]),
    "booleans": pa.array([True, None, False, True]),
    "texts": pa.array(["a", None, "", "b"]),
    "bytes": pa.array([b"a", None, b"", b"b"]),
    "dates": pa.array([dt.date(2020, 1, 2), None, dt.date(1969, 1, 2), dt.date(2020, 1, 3)]),
    "times": pa.array([dt.datetime(2020, 1, 2), None, dt.datetime(1900, 1, 1), dt.datetime(2021, 1, 1)]),
    "zoned": pa.array([1, None, 3, 4], pa.timestamp("us", "Europe/Berlin")),
    "categories": pa.array(["a", None, "b", "a"]).dictionary_encode(),
    "lists": pa.array([[1.0, 2.0], None, [], [2.0, 1.0]]),
    "vectors": pa.array([[1.0, 2.0], None, [0.0, 0.0], [2.0, 1.0]], pa.list_(pa.float32(), 2)),
    "nested": pa.array([[["a"], ["b"]], None, [["a", "b"]], [[], ["a", "b"]]]),
    "structs": pa.array([{"a": 1, "b": "x"}, None, {"a": None, "b": None}, {"a": 2, "b": "x"}]),
    "maps": pa.array([[("k", 1)], None, [], [("k", 2)]], pa.map_(pa.string(), pa.int64())),
    "nothing": pa.nulls(4),
    "decimals": pa.array([1, None, 3, 4]).cast(pa.decimal128(30, 2)),
}


@pytest.mark.parametrize("kind", VALUES)
def test_a_value_has_one_hash_wherever_it_stands(kind: str) -> None:
    array = VALUES[kind]
    hashes = value_hashes(array)
    assert hashes.shape == (4,)
    assert hashes[1] == 0
    values = array.to_pylist()
    for i in range(4):
        assert value_hashes(array.slice(i, 1))[0] == hashes[i]
        assert value_hashes(array.take(pa.array([i, 0])))[0] == hashes[i]
        for j in range(4):
            assert (hashes[i] == hashes[j]) == (values[i] == values[j])
    chunked = pa.chunked_array([array.slice(0, 1), array.slice(1)])
    assert value_hashes(chunked).tolist() == hashes.tolist()


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (pa.array([1, 2]), pa.array([1.0, 2.0], pa.float32())),
        (pa.array([0.0]), pa.array([-0.0])),
        (pa.array([1, None]), pa.array([1.0, np.nan])),
        (pa.array(["a", "b"]), pa.array(["a", "b"], pa.large_string())),
        (pa.array(["a", "b"]), pa.array(["a", "b"]).dictionary_encode()),
        (pa.array([[1.0, 2.0]]), pa.array([[1, 2]], pa.list_(pa.int8(), 2))),
    ],
)
def test_equal_values_of_other_types_have_equal_hashes(one: pa.Array, other: pa.Array) -> None:
    assert value_hashes(one).tolist() == value_hashes(other).tolist()


SECONDS = pa.array([0, 86_400, None, -5], pa.int64())
UNITS = ("s", "ms", "us", "ns")
KINDS = {"times": pa.timestamp, "zoned": lambda unit: pa.timestamp(unit, "UTC"), "durations": pa.duration}


@pytest.mark.parametrize("hashes_of", [value_hashes, lambda array: key_hashes(array)[0]], ids=["row", "key"])
@pytest.mark.parametrize("kind", KINDS)
def test_an_instant_has_one_hash_in_every_unit(kind: str, hashes_of: Any) -> None:
    seconds = SECONDS.cast(KINDS[kind]("s"))
    of_unit = {unit: hashes_of(seconds.cast(KINDS[kind](unit))).tolist() for unit in UNITS}
    assert all(hashes == of_unit["us"] for hashes in of_unit.values())
    assert len(set(of_unit["us"])) == 4
    counts = pa.array([1000, 1001, 1002, 1_700_000_000_000_000_001, 1_700_000_000_000_000_002])
    finer = hashes_of(counts.cast(KINDS[kind]("ns")))
    assert len(set(finer.tolist())) == 5
    assert finer[0] == hashes_of(pa.array([1]).cast(KINDS[kind]("us")))[0]


def test_a_date_has_the_hash_of_its_midnight_and_times_in_microseconds_that_of_their_count() -> None:
    days = pa.array([0, 19_000, None], pa.int32()).cast(pa.date32())
    midnights = value_hashes(days.cast(pa.timestamp("us"))).tolist()
    assert value_hashes(days).tolist() == value_hashes(days.cast(pa.date64())).tolist() == midnights
    counts = pa.array([0, 1_700_000_000_000_001, None])  # draws over such tables stay as they were
    assert value_hashes(counts.cast(pa.timestamp("us"))).tolist() == value_hashes(counts).tolist()
    hours = pa.array([0, 3_600, None], pa.int32()).cast(pa.time32("s"))
    for hashes in (value_hashes, lambda array: key_hashes(array)[0]):
        assert hashes(hours).tolist() == hashes(hours.cast(pa.time64("ns"))).tolist()


def test_names_of_columns_count_and_their_order_does_not() -> None:
    table = pa.table({"a": [1, 2, 3], "b": [1, 1, 3]})
    hashes = table_hashes(table)
    assert table_hashes(table.select(["b", "a"])).tolist() == hashes.tolist()
    assert not set(table_hashes(table.rename_columns(["b", "a"])).tolist()).intersection(hashes[1:2].tolist())
    wider = table.append_column("later", pa.nulls(3, pa.string()))
    assert table_hashes(wider).tolist() == hashes.tolist()  # old rows stay when a column is added
    assert len(set(hashes.tolist())) == 3


def test_a_draw_takes_its_shares() -> None:
    hashes = table_hashes(pa.table({"n": np.arange(20_000)}))
    parts: Any = Draw(0.2, 0.1, 3, "test", validation_first=True).parts(hashes)
    shares = np.bincount(parts, minlength=3) / len(parts)
    assert shares[[FITTED, VALIDATION, TEST]] == pytest.approx([0.7, 0.2, 0.1], abs=0.01)
    other = Draw(0.2, 0.1, 4, "test", validation_first=True).parts(hashes)
    assert (parts == other).mean() == pytest.approx(0.7**2 + 0.2**2 + 0.1**2, abs=0.02)


def test_a_key_that_is_nan_is_none() -> None:
    _, has_value = key_hashes(pa.array([1.0, np.nan, None]))
    assert has_value.tolist() == [True, False, False]
