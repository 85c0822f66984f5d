"""Signature and example of a registered model, for every type of column that features are made from."""

from __future__ import annotations

import json
from datetime import date, datetime, time
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from mlflow.models.utils import _enforce_schema, _Example, dataframe_from_parsed_json
from mlflow.types import Schema

from engine.training.data.raw_rows import table_of
from engine.training.data.version import Version
from engine.training.serving.model_package import _input_columns, input_example
from engine.training.serving.pyfunc import ServedModel

MORNING = [time(3, 4), time(5, 6, 7)]
DAYS = [date(2020, 1, 1), date(2021, 2, 3)]
MOMENTS = [datetime(2020, 1, 1, 3), datetime(2021, 2, 3)]
TYPES: list[tuple[pa.DataType, list[Any]]] = [
    (pa.int8(), [1, -2]),
    (pa.uint64(), [1, 2]),
    (pa.float32(), [1.5, 2.0]),
    (pa.bool_(), [True, False]),
    (pa.decimal128(6, 2), [Decimal("12.34"), Decimal("-2.25")]),
    (pa.decimal256(50, 3), [Decimal("1.500"), Decimal("2.125")]),
    (pa.duration("s"), [3, 5]),
    (pa.duration("us"), [3, 5]),
    (pa.time32("ms"), MORNING),
    (pa.time64("us"), MORNING),
    (pa.date32(), DAYS),
    (pa.date64(), DAYS),
    (pa.timestamp("us"), MOMENTS),
    (pa.timestamp("us", "UTC"), MOMENTS),
    (pa.string(), ["a", "b"]),
    (pa.large_string(), ["a", "b"]),
    (pa.string_view(), ["a", "b"]),
    (pa.null(), [None, None]),
    (pa.list_(pa.float32()), [[1.0, 2.0], [3.0, 4.0]]),
    (pa.list_(pa.float32(), 2), [[1.0, 2.0], [3.0, 4.0]]),
    (pa.list_(pa.decimal128(6, 2)), [[Decimal("1.00")], [Decimal("2.50")]]),
    (pa.list_(pa.string()), [["a"], ["b", "c"]]),
]


@pytest.mark.parametrize("optional", [False, True], ids=["whole", "gaps"])
@pytest.mark.parametrize(("kind", "values"), TYPES, ids=lambda value: str(value) if value else None)
def test_the_example_and_a_frame_are_read_as_the_column(
    tmp_path: Path, kind: pa.DataType, values: list[Any], optional: bool
) -> None:
    """A model of a column of decimals or of durations could not be registered after its training."""
    schema = pa.schema([pa.field("c", kind)])
    table = pa.table({"c": pa.array(values, kind)})
    pq.write_table(table.append_column("split", pa.array(["train"] * 2)), tmp_path / "part.parquet")
    manifest = {"parts": [{"path": "part.parquet"}], "schema": [{"name": "row_id"}]}
    gaps = frozenset(["c"] if optional else [])
    served = cast(ServedModel, SimpleNamespace(schema=schema, optional=gaps))
    inputs = Schema(_input_columns(served))
    example = input_example(Version(tmp_path, manifest), served)
    assert example is not None
    sent = json.loads(_Example(example).json_input_example)
    received = dataframe_from_parsed_json(sent, pandas_orient="split", schema=inputs)
    for frame in (example, received, table.to_pandas()):
        found, faults = table_of(cast(pd.DataFrame, _enforce_schema(frame, inputs)), schema)
        assert not faults
        assert found.schema.field("c").type == kind
        assert found["c"].to_pylist() == table["c"].to_pylist()
