"""Kinds of Arrow types, and the plain values of a dictionary column."""

import pyarrow as pa
import pytest

from connectors import schema
from operators import columns

NUMBERS = [pa.int8(), pa.uint64(), pa.float16(), pa.float64(), pa.decimal128(9, 2), pa.decimal256(40, 0)]
BYTES = [pa.binary(), pa.large_binary(), pa.binary(4)]
LISTS = [pa.list_(pa.int8()), pa.large_list(pa.string()), pa.list_(pa.float32(), 3)]
OTHERS = [
    pa.bool_(),
    pa.string(),
    pa.timestamp("us"),
    pa.duration("s"),
    pa.struct({"a": pa.int8()}),
    pa.map_(pa.string(), pa.int8()),
    pa.dictionary(pa.int8(), pa.binary()),
    pa.null(),
]


@pytest.mark.parametrize("kind", [*NUMBERS, *BYTES, *LISTS, *OTHERS], ids=str)
def test_a_type_is_of_one_kind(kind: pa.DataType) -> None:
    assert columns.is_number(kind) is (kind in NUMBERS)
    assert columns.is_binary(kind) is (kind in BYTES)
    assert columns.is_list(kind) is schema.is_list(kind) is (kind in LISTS)


@pytest.mark.parametrize(
    "kind", [*NUMBERS, *OTHERS[:4], pa.null(), pa.dictionary(pa.int8(), pa.string())], ids=str
)
def test_values_of_a_type_have_a_text(kind: pa.DataType) -> None:
    assert columns.has_text(kind)


@pytest.mark.parametrize("kind", [*BYTES, *LISTS, *OTHERS[4:7], pa.month_day_nano_interval()], ids=str)
def test_values_of_a_type_have_no_text(kind: pa.DataType) -> None:
    assert not columns.has_text(kind)


def test_a_dictionary_column_has_its_values_and_gaps() -> None:
    column = pa.chunked_array([pa.array(["b", None, "a", "b"]).dictionary_encode()])
    assert columns.plain_values(column).equals(pa.chunked_array([["b", None, "a", "b"]]))
    plain = pa.chunked_array([[1, 2]])
    assert columns.plain_values(plain) is plain
