"""``ingest`` over shards: state, columns, and faults with their place."""

from __future__ import annotations

import json
import math
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pydantic import ValidationError

from engine.execution.local_executor import LocalExecutor
from operators.base import (
    FEATURES,
    LABEL,
    ROW_ID,
    VALID,
    Context,
    DatasetDelta,
    OperatorError,
    RowError,
)
from operators.ingest.adaptor import MAX_CLASSES, Ingest
from operators.ingest.params import IngestParams
from tests.unit.in_memory import MemoryReader


def fitted(folder: Path, tables: list[pa.Table], **params: Any) -> tuple[Ingest, Context]:
    ingest = Ingest(IngestParams(label="label", features=("v", "a"), **params))
    context = Context(MemoryReader(tables), folder)
    ingest.fit(context, LocalExecutor())
    return ingest, context


def applied(ingest: Ingest, context: Context, shard: int) -> pa.Table:
    table = context.shards.read_source(shard, [ROW_ID, *ingest.source_columns])
    return ingest.open(context)(table)


def shards() -> list[pa.Table]:
    first = pa.table({"label": ["no", "yes"], "v": [None, [1.0, 2.0]], "a": [1, 2]})
    second = pa.table({"label": ["no", "no"], "v": [[3.0, 4.0], [5.0, 6.0]], "a": [3, 4]})
    return [first.slice(1), second]


def test_columns_and_state(tmp_path: Path) -> None:
    ingest, context = fitted(tmp_path, shards())
    assert json.loads((tmp_path / "classes.json").read_text()) == {
        "classes": ["no", "yes"],
        "counts": [2, 1],
        "label": "label",
        "n_features": 3,
        "widths": [2, 1],
    }
    found = applied(ingest, context, 1)
    assert found.schema == pa.schema(list(ingest.adds))
    assert found.to_pydict() == {VALID: [True, True], LABEL: [0, 0], FEATURES: [[3, 4, 3], [5, 6, 4]]}


def test_new_rows_of_many_classes_are_counted_in_linear_time(tmp_path: Path) -> None:
    """Each label was looked up in a list of all labels, in the driver: two seconds a shard."""
    labels = [f"class {number}" for number in range(MAX_CLASSES)]
    table = pa.table({"label": labels, "v": [[0.0]] * len(labels), "a": range(len(labels))})
    ingest, context = fitted(tmp_path, [table], classes=tuple(labels))
    start = time.process_time()
    delta = DatasetDelta(tmp_path, {}, (0,) * 5, rows_removed=False)
    ingest.partial_fit(context, delta, LocalExecutor())
    assert time.process_time() - start < 4
    assert {*json.loads((tmp_path / "classes.json").read_text())["counts"]} == {6}


def test_a_label_of_one_row_may_be_mistyped(tmp_path: Path) -> None:
    labels = ["no"] * 300 + ["yes"] * 200 + ["Yse"]
    table = pa.table({"label": labels, "v": [[0.0]] * 501, "a": range(501)})
    ingest, _ = fitted(tmp_path, [table])
    (said,) = ingest.warnings({}, lambda: tmp_path)
    assert said.startswith("The class 'Yse' of the label 'label' has 1 row, too few to learn from. ")
    assert "source.classes: ['no', 'yes'] with source.on_error: quarantine" in said
    listed = Ingest(IngestParams(label="label", features=("v", "a"), classes=("no", "yes", "Yse")))
    assert listed.warnings({}, lambda: tmp_path) == ()


def test_numbers_sort_by_value(tmp_path: Path) -> None:
    table = pa.table({"label": [10, 9, 10], "v": [[0.0]] * 3, "a": [1, 2, 3]})
    fitted(tmp_path, [table])
    assert json.loads((tmp_path / "classes.json").read_text())["classes"] == [9, 10]


def test_classes_are_those_of_all_rows_and_counts_those_of_rows_to_learn_from(tmp_path: Path) -> None:
    table = pa.table({"label": ["a", "b", "c", "a"], "v": [[0.0]] * 4, "a": [1, 2, 3, 4]})
    learnt, everything = MemoryReader([table.slice(0, 2)]), MemoryReader([table])
    ingest = Ingest(IngestParams(label="label", features=("v", "a")))
    context = Context(learnt, tmp_path, all_shards=everything)
    ingest.fit(context, LocalExecutor())
    state = json.loads((tmp_path / "classes.json").read_text())
    assert (state["classes"], state["counts"]) == (["a", "b", "c"], [1, 1, 0])
    with pytest.raises(OperatorError, match="value is 'a' among the rows to learn from; 'b', 'c' occur in"):
        ingest.fit(replace(context, shards=MemoryReader([table.slice(0, 1)])), LocalExecutor())


def faulty() -> list[pa.Table]:
    vectors = [[1.0, 2.0], [1.0], None, [0.0, math.nan], [1.0, 1.0], [1.0, 1.0]]
    second = pa.table(
        {"label": ["no", "no", "no", "no", None, "no"], "v": vectors, "a": [1.0, 1, 1, math.inf, 1, 1e39]}
    )
    first = shards()[0]
    return [first.set_column(2, "a", first["a"].cast(pa.float64())), second]


def test_quarantine_marks_rows_and_tells_why(tmp_path: Path) -> None:
    ingest, context = fitted(tmp_path, faulty(), on_error="quarantine")
    found = applied(ingest, context, 1)
    assert found.to_pydict() == {
        VALID: [True, False, False, False, False, False],
        LABEL: [0, None, None, None, None, None],
        FEATURES: [[1, 2, 1], None, None, None, None, None],
    }
    table = context.shards.read_source(1, [ROW_ID, *ingest.source_columns])
    assert [(f.row, f.column, f.value, f.error) for f in ingest.faults(context, table)] == [
        (1, "v", "length 1", "is a vector of length 1, the others have 2"),
        (2, "v", "None", "is null"),
        (3, "v", "nan", "is NaN at position 1"),
        (4, "label", "None", "is null"),
        (5, "a", "1e+39", "is beyond the range of float32"),
    ]


def test_fail_names_the_first_bad_row(tmp_path: Path) -> None:
    ingest, context = fitted(tmp_path, faulty())
    with pytest.raises(
        RowError, match=r"column 'v'.*length 1.*Correct or remove the row.*quarantine"
    ) as caught:
        applied(ingest, context, 1)
    error = caught.value
    assert (error.shard, error.row, error.column, error.value) == (1, 1, "v", "length 1")


def test_a_row_without_a_label_can_be_left_out(tmp_path: Path) -> None:
    table = pa.table({"v": [[1.0, 2.0]] * 6, "label": ["a", "b", None, "a", "b", "a"], "a": [1.0] * 6})
    ingest, context = fitted(tmp_path, [table])
    with pytest.raises(RowError, match=r"leave such rows out, set source\.filter: \[\[label, '!=', null\]\]"):
        applied(ingest, context, 0)


def test_a_label_outside_the_declared_classes_is_a_fault(tmp_path: Path) -> None:
    ingest, context = fitted(tmp_path, shards(), classes=("yes", "no", "maybe"))
    assert applied(ingest, context, 0)[LABEL].to_pylist() == [0]
    ingest = Ingest(IngestParams(label="label", features=("v", "a"), classes=("yes", "other")))
    with pytest.raises(
        OperatorError, match=r"'label' needs at least two classes, but only .* of source.classes .* occurs"
    ):
        ingest.fit(context, LocalExecutor())
    tables = [*shards(), pa.table({"label": ["?"], "v": [[0.0, 0.0]], "a": [0]})]
    ingest, context = fitted(tmp_path, tables, classes=("yes", "no"))
    with pytest.raises(RowError, match="column 'label' is not one of the declared classes") as caught:
        applied(ingest, context, 2)
    assert (caught.value.shard, caught.value.row, caught.value.value) == (2, 0, "'?'")


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({"label": ["no", "no"]}, ["'label'", "two classes", "its only value is 'no'", "source.label"]),
        ({"label": pa.array([None, None], pa.string())}, ["'label'", "it has no value"]),
        ({"a": ["1", "oops"]}, ["'a'", "string", "'oops'", "source.features"]),
        ({"v": pa.array([None, None], pa.list_(pa.float32()))}, ["'v'", "holds no vector"]),
        ({"label": [[1], [2]]}, ["label column has type list", "source.label"]),
    ],
)
def test_data_that_cannot_be_used_is_named(tmp_path: Path, changes: dict[str, Any], parts: list[str]) -> None:
    columns = {"label": ["no", "yes"], "v": [[1.0], [2.0]], "a": [1, 2]}
    with pytest.raises(OperatorError) as caught:
        fitted(tmp_path, [pa.table(columns | changes)])
    for part in parts:
        assert part in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_an_id_is_no_label(tmp_path: Path) -> None:
    n = MAX_CLASSES + 1
    table = pa.table({"label": range(n), "v": [[1.0]] * n, "a": range(n)})
    with pytest.raises(OperatorError, match="more than 10000 different values"):
        fitted(tmp_path, [table])


def test_a_label_that_is_a_quantity_is_refused_without_validate(tmp_path: Path) -> None:
    table = pa.table({"label": [f"c{i}" for i in range(200)] * 2, "v": [[1.0]] * 400, "a": range(400)})
    with pytest.raises(OperatorError, match=r"'label' has 200 distinct values.*free text or an identifier"):
        fitted(tmp_path, [table])


def test_features_are_never_empty() -> None:
    with pytest.raises(ValidationError, match="at least 1"):
        IngestParams(label="y", features=())
