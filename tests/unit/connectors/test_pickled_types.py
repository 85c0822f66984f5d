"""Columns whose values are pickled objects are refused at any depth, since a reader would run them."""

from __future__ import annotations

import pyarrow as pa
import pytest

from connectors.errors import ConnectorError
from connectors.pickled_types import PICKLED, check_types

OBJECTS = pa.field("x", pa.binary(), metadata={"ARROW:extension:name": PICKLED[0]})
STRUCT = pa.struct([OBJECTS])


@pytest.mark.parametrize(
    "kind",
    [
        STRUCT,
        pa.list_(OBJECTS),
        pa.map_(pa.string(), STRUCT),
        pa.dictionary(pa.int32(), STRUCT),
        pa.dictionary(pa.int32(), pa.list_(OBJECTS)),
        pa.list_(pa.dictionary(pa.int8(), STRUCT)),
        pa.run_end_encoded(pa.int32(), STRUCT),
        pa.struct([pa.field("a", pa.dictionary(pa.int32(), STRUCT))]),
    ],
    ids=str,
)
def test_pickled_objects_are_found_at_any_depth(kind: pa.DataType) -> None:
    with pytest.raises(ConnectorError, match=r"column 'c' holds pickled Python objects"):
        check_types("file.arrow", pa.schema([pa.field("c", kind)]))


def test_plain_columns_pass() -> None:
    kinds = [
        pa.dictionary(pa.int32(), pa.string()),
        pa.list_(pa.int8()),
        pa.run_end_encoded(pa.int32(), pa.int8()),
    ]
    check_types("file.arrow", pa.schema([pa.field(str(kind), kind) for kind in kinds]))
