"""Values that Arrow can hold and Python cannot."""

from __future__ import annotations

import datetime as dt

import pyarrow as pa
import pytest

from operators.values import python_rows, python_value

FAR = 2**60


@pytest.mark.parametrize(
    "kind", [pa.timestamp("us"), pa.timestamp("ms", "UTC"), pa.duration("s"), pa.timestamp("s")]
)
def test_what_python_cannot_hold_is_a_text(kind: pa.DataType) -> None:
    assert python_value(pa.scalar(FAR, kind)) == f"{FAR} ({kind})"


def test_lists_of_such_values_are_texts_too() -> None:
    nested = pa.scalar([FAR], pa.list_(pa.timestamp("us")))
    assert python_value(nested) == "a value beyond Python (list<item: timestamp[us]>)"


def test_rows_keep_all_other_values() -> None:
    table = pa.table({"t": pa.array([0, FAR, None], pa.timestamp("us")), "n": [1, 2, 3]})
    assert python_rows(table) == [
        {"t": dt.datetime(1970, 1, 1), "n": 1},
        {"t": f"{FAR} (timestamp[us])", "n": 2},
        {"t": None, "n": 3},
    ]
