"""Durations in texts: how they are read, where they are recognised, and the features of a column."""

import json

import numpy as np
import pyarrow as pa
import pytest

from engine.execution.local_executor import LocalExecutor
from operators.base import Context, OperatorError
from operators.encode.adaptor import Encode
from operators.encode.durations import are_durations, durations
from operators.encode.hints import date_format, hint
from operators.encode.params import EncodeParams
from operators.encode.sketches import ValueCounts
from tests.unit.in_memory import MemoryReader
from tests.unit.operators.encode.test_encodings import same_for_all_shards

RUNS = [f"{k // 60}h {k % 60}m" if k >= 60 else f"{k}m" for k in range(40, 640)]


def counts(texts):
    return ValueCounts.of(pa.array(texts, pa.large_string()), np.ones(len(texts), np.int64))


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("3h 22m", 12_120),
        ("3h22m", 12_120),
        ("1d2h3m4s", 93_784),
        ("1 day, 2 hours", 93_600),
        ("45 min", 2700),
        ("1.5 hrs", 5400),
        ("01:22:05", 4925),
        ("101:00:00.5", 363_600.5),
        ("0s", 0),
    ],
)
def test_durations_are_read_as_seconds(text, seconds):
    assert durations(pa.array([text])) == [seconds]


@pytest.mark.parametrize("text", ["", "2:05", "01:60:00", "3 kg", "3h 2", "h", "12", "2m 3h", "-3h"])
def test_other_texts_are_no_durations(text):
    assert np.isnan(durations(pa.array([text]))).all()


def test_they_are_recognised_where_some_have_several_parts():
    assert are_durations(counts(RUNS))
    assert are_durations(counts([f"01:22:{k:02d}" for k in range(60)]))
    assert not are_durations(counts([f"{k} m" for k in range(60)]))  # metres
    assert not are_durations(counts([*RUNS, "unknown"]))
    assert not are_durations(counts(["3h 22m", "4h 1m"]))
    assert "used as numbers if operators.encode.columns says `run: duration`" in hint("run", RUNS[30:50])


def test_the_only_format_of_dates_is_found():
    days = [f"{k:02d}" for k in range(1, 29)]
    assert date_format(counts([f"Apr {day}, 2023" for day in days])) == "%b %d, %Y"
    assert date_format(counts([f"{day} Apr 2023" for day in days])) == "%d %b %Y"
    assert date_format(counts([f"04-{day}-2023" for day in days])) == "%m-%d-%Y"
    assert date_format(counts([f"0{k % 9 + 1}-{k % 12 + 1:02d}-2023" for k in range(40)])) == ""
    assert date_format(counts([f"{day} Apr 2023" for day in days[:10]])) == ""
    assert date_format(counts([*(f"{day} Apr 2023" for day in days), "soon"])) == ""


def test_a_column_is_its_seconds_for_any_number_of_shards(tmp_path):
    table = pa.table({"c": [*RUNS, None, "NA"], "y": ["no", "yes"] * 301})
    x, state = same_for_all_shards(table, tmp_path, "c", columns={"c": "duration"}, min_missing_share=0.5)
    (column,) = state.columns
    assert column.durations
    seconds = np.append(np.arange(40, 640) * 60.0, [(339.5 * 60)] * 2)
    np.testing.assert_allclose(column.scale.backward(x[:, 0]), seconds, rtol=1e-6)


def test_a_value_that_is_none_is_an_error_and_a_fault_of_a_new_row(tmp_path):
    operator = Encode(EncodeParams(features=("c",), columns={"c": "duration"}))
    (tmp_path / "bad").mkdir()
    reader = MemoryReader([pa.table({"c": [*RUNS, "soon"]})])
    with pytest.raises(OperatorError, match=r"'c' cannot be duration.* 600 of its 601 values could be read"):
        operator.fit(Context(reader, tmp_path / "bad"), LocalExecutor())
    context = Context(MemoryReader([pa.table({"c": RUNS})]), tmp_path)
    operator.fit(context, LocalExecutor())
    made = operator.open_for_new_rows(context)(pa.table({"row_id": [0, 1], "c": ["3h", "soon"]}))
    assert made["x_fault"].to_pylist()[0] is None
    assert made["x_fault"].to_pylist()[1]["value"] == "'soon'"
    assert json.loads((tmp_path / "encoding.json").read_text())["encodings"][0]["durations"]
