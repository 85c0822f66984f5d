"""Columns to a matrix, against a plain loop over rows."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from operators.base import OperatorError
from operators.ingest.kernel import (
    Reason,
    assemble_features,
    explain_value,
    feature_widths,
)
from operators.ingest.labels import class_indices, count_labels

BIG = 1e39
FLOAT32_MAX = float(np.finfo(np.float32).max)
number = st.sampled_from([None, math.nan, math.inf, -math.inf, BIG, -BIG, 0.0, -1.5, 0.1, 3.0])
vector = st.one_of(st.none(), st.lists(number, min_size=2, max_size=2), st.lists(st.just(1.0), max_size=3))
LISTS = [pa.list_(pa.float64()), pa.large_list(pa.float64()), pa.list_(pa.float64(), 2)]


def judge(value: Any, width: int) -> Reason:
    """Return the reason for which a Python value cannot be used."""
    if value is None:
        return Reason.NULL
    if isinstance(value, list):
        if len(value) != width:
            return Reason.LENGTH
        return next((judge(entry, 1) for entry in value if judge(entry, 1)), Reason.GOOD)
    if math.isnan(value):
        return Reason.NAN
    if math.isinf(value):
        return Reason.INFINITE
    return Reason.RANGE if abs(value) > FLOAT32_MAX else Reason.GOOD


@given(
    rows=st.lists(st.tuples(number, vector), max_size=12),
    kind=st.sampled_from(LISTS),
    cut=st.integers(0, 12),
)
def test_every_value_is_judged_as_a_loop_would(rows: list[Any], kind: pa.DataType, cut: int) -> None:
    if pa.types.is_fixed_size_list(kind):
        rows = [(a, v if v is None or len(v) == 2 else [0.0, 1.0]) for a, v in rows]
    table = pa.table(
        {"v": pa.array([v for _, v in rows], kind), "a": pa.array([a for a, _ in rows], pa.float64())}
    )
    table = pa.concat_tables([table.slice(0, cut), table.slice(cut)])
    x, codes = assemble_features(table, ["v", "a"], [2, 1])
    assert (x.dtype, x.shape) == (np.float32, (len(rows), 3))
    assert codes.tolist() == [[judge(v, 2), judge(a, 1)] for a, v in rows]
    for found, (a, v) in zip(x, rows, strict=True):
        expected = (v if not judge(v, 2) else [0, 0]) + [a if not judge(a, 1) else 0]
        np.testing.assert_array_equal(found, np.array(expected, np.float32))


@pytest.mark.parametrize(
    "column",
    [
        pa.array([1, 0, 255], pa.uint8()),
        pa.array([True, False, True]),
        pa.array([1.5, 2.25, -1], pa.float16()),
        pa.array([1, 2, 2**62], pa.int64()),
        pa.array([1, 2, 3]).cast(pa.decimal128(24, 2)),
    ],
)
def test_scalars_of_every_type(column: pa.Array) -> None:
    x, codes = assemble_features(pa.table({"a": column}), ["a"])
    np.testing.assert_array_equal(x[:, 0], np.array([float(v) for v in column.to_pylist()], np.float32))
    assert not codes.any()


def test_vectors_of_integers_and_slices() -> None:
    table = pa.table({"v": pa.array([[9, 9], [1, 2], [3, 4], None], pa.list_(pa.int32()))}).slice(1, 2)
    x, codes = assemble_features(table, ["v"])
    assert x.tolist() == [[1, 2], [3, 4]]
    assert not codes.any()


def test_widths_come_from_the_first_vector() -> None:
    table = pa.table(
        {"a": [1, 2], "v": [None, [1.0, 2.0, 3.0]], "none": pa.array([None, None], pa.list_(pa.int8()))}
    )
    assert feature_widths(table, ["a", "v", "none"]) == (1, 3, None)


def test_explanations_name_the_place() -> None:
    table = pa.table({"v": [[1.0, None], [1.0], [math.inf, math.nan]], "a": [None, BIG, 1.0]})
    assert explain_value(table["v"], 0, Reason.NULL, 2) == ("None", "is null at position 1")
    assert explain_value(table["v"], 1, Reason.LENGTH, 2) == (
        "length 1",
        "is a vector of length 1, the others have 2",
    )
    assert explain_value(table["v"], 2, Reason.INFINITE, 2) == ("inf", "is infinite at position 0")
    assert explain_value(table["a"], 1, Reason.RANGE) == ("1e+39", "is beyond the range of float32")


@pytest.mark.parametrize(
    ("column", "parts"),
    [
        (pa.array(["1", "2", "x3", "y"]), ["'a'", "string", "'x3'", "source.features", "encode"]),
        (pa.array([[["1"]]]), ["'a'", "list"]),
    ],
)
def test_a_column_that_is_no_number_is_named(column: pa.Array, parts: list[str]) -> None:
    with pytest.raises(OperatorError) as caught:
        assemble_features(pa.table({"a": column}), ["a"])
    for part in parts:
        assert part in str(caught.value)


@pytest.mark.parametrize(
    ("labels", "classes", "found"),
    [
        (pa.array(["b", None, "a", "c"]), ["a", "b"], [1, -1, 0, -1]),
        (pa.array(["b", None, "a"]).dictionary_encode(), ["b", "a"], [0, -1, 1]),
        (pa.array([3, 1, None], pa.int8()), [1, 3], [1, 0, -1]),
        (pa.array([0.0, math.nan, 1.0, None]), [0, 1], [0, -1, 1, -1]),
        (pa.array([0.0, -0.0, 1.0]), [-0.0, 1.0], [0, 0, 1]),
        (pa.array([0.0, -0.0, 1.0], pa.float32()), [0, 1], [0, 0, 1]),
        (pa.array([True, False]), [False, True], [1, 0]),
    ],
)
def test_labels_become_their_place_among_the_classes(
    labels: pa.Array, classes: list[Any], found: list[int]
) -> None:
    indices, codes = class_indices(pa.chunked_array([labels]), classes)
    assert indices.tolist() == found
    expected = [judge(v, 1) if v is None or isinstance(v, float) else 0 for v in labels.to_pylist()]
    assert codes.tolist() == expected


@pytest.mark.parametrize("classes", [["0", "1"], [True, False], ["0", 1]])
def test_classes_of_another_type_are_refused(classes: list[Any]) -> None:
    with pytest.raises(OperatorError, match=r"source\.classes.*int64"):
        class_indices(pa.chunked_array([[0, 1]]), classes)


def test_whole_numbers_beyond_int64_are_no_labels() -> None:
    labels = pa.chunked_array([pa.array([1, 2**63, None], pa.uint64())])
    with pytest.raises(OperatorError, match=r"holds 9223372036854775808, .*Write the labels as text"):
        count_labels(labels)
    with pytest.raises(OperatorError, match=r"source\.classes .*9223372036854775808.* cannot be compared"):
        class_indices(labels, [1, 2**63])
    largest = pa.chunked_array([pa.array([2**63 - 1], pa.uint64())])
    assert class_indices(largest, [*count_labels(largest)])[0].tolist() == [0]


def test_counts_leave_out_what_is_missing() -> None:
    assert count_labels(pa.chunked_array([["a", None], ["b", "a"]])) == {"a": 2, "b": 1}
    assert count_labels(pa.chunked_array([[0.0, math.nan, None, 0.0]])) == {0.0: 2}
    counts = count_labels(pa.chunked_array([[-0.0, 1.0], [0.0, -0.0]]))
    assert counts == {0.0: 3, 1.0: 1}
    assert str(min(counts)) == "0.0"
    with pytest.raises(OperatorError, match="date32"):
        count_labels(pa.chunked_array([pa.array([0], pa.date32())]))
