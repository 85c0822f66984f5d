"""The report's tables where there are thousands of groups, or the truth column names no groups."""

import time
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from engine.recipe.recipe import TruthSection
from engine.report.groups import GroupRow, group_rows
from engine.report.page import printable_sections
from engine.report.rows import group_requests, sample_rows
from engine.report.scores import group_scores
from engine.report.survey import ROW, SMALL, Key, Rows, ShardSurvey, Summary, Survey
from operators.base import ROW_ID
from operators.report import ExampleRows, ReportSection, RowStatistics

NONE = np.empty(0, np.int64)


def summary() -> Summary:
    return Summary({}, np.empty(0, ROW), np.empty(0, ROW), np.empty((0, 3)))


def rows_of_groups(n_groups: int, rows: int) -> Rows:
    found = np.zeros(n_groups * rows, ROW)
    found["group"] = np.repeat(np.arange(n_groups), rows)[::-1]
    found["y"] = found["group"] % 2
    found["hash"] = found["row_id"] = np.arange(len(found))
    return found


def test_groups_of_one_number_in_several_classes_have_pictures_of_their_own() -> None:
    """The group of an oracle is a value of a column, which several classes have."""
    groups = [
        GroupRow(y, g, f"class {y}", RowStatistics(9), 0.1, {}, 0, 0, clearly_worse=True)
        for y in (0, 1)
        for g in (-1, 0)
    ]
    found = Survey({}, 0, NONE, {(row.y, row.group): NONE for row in groups}, NONE)
    requests, _ = group_requests(found, groups)
    assert sorted(request.slug for request in requests) == [
        "group-0-0",
        "group-1-0",
        "noise-0--1",
        "noise-1--1",
    ]


def test_a_section_may_ask_for_no_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no row of the page was to be shown, the report ended with an error."""
    monkeypatch.setattr("engine.report.rows.shown_fields", lambda plan, sections: ([], []))
    monkeypatch.setattr("engine.report.rows.rows_per_request", lambda plan, n_requests: 24)
    section = ReportSection("Doubtful labels", [ExampleRows("Rows", [])])
    plan: Any = None
    samples = sample_rows(plan, Survey({}, 0, NONE, {}, NONE), [], [], [ExampleRows("Centre", [])], [section])
    [printed] = printable_sections([("labels", section)], iter(samples.sections))
    assert [item["sample"].title for item in printed["items"]] == ["Rows"]


def test_thousands_of_groups_take_a_moment() -> None:
    """The time grew with the square of the groups: 24 s for these."""
    n_groups, splits = 4_000, ("train", "validation", "test")
    whole, other = summary(), summary()
    for g in range(n_groups):
        for split in splits:
            key = Key(g % 2, g, split, False, None, None, None, None)
            other.cells[key] = RowStatistics(g + 1, 1.0, 1.0, 10.0)
    other.shown = rows_of_groups(n_groups, 3)
    whole.add(other, rows_per_group=2)
    start = time.process_time()
    found = whole.survey()
    rows = group_rows(found, ["a", "b"])
    assert time.process_time() - start < 5
    assert [row.rank for row in rows] == list(range(n_groups))
    assert all(row.splits == dict.fromkeys(splits, row.group + 1) for row in rows)
    last = 3 * (n_groups - 1)
    assert found.shown[0, 0].tolist() == [last, last + 1]
    assert found.shown[1, n_groups - 1].tolist() == [0, 1]
    assert len(found.shown) == n_groups


class Shards:
    """A reader of two shards whose truth column has a value of its own in each row."""

    columns = dict.fromkeys(SMALL)

    def read_all(self, shard: int, columns: list[str]) -> pa.Table:
        values = {ROW_ID: range(4 * shard, 4 * shard + 4), "y": [0, 0, 1, 1], "group": [0, 0, 1, 1]}
        values |= {"is_outlier": [True, False, False, False]}
        return pa.table({name: values.get(name, [None] * 4) for name in (ROW_ID, *SMALL)})

    def read_with_truth(self, shard: int, columns: list[str]) -> pa.Table:
        return pa.table({"name": [f"row {4 * shard + i}" for i in range(4)]})


@pytest.mark.parametrize(("limit", "named"), [(8, 8), (7, 0), (3, 0)])
def test_a_truth_column_of_unique_values_is_not_counted(
    limit: int, named: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.report.survey.MAX_TRUE_GROUPS", limit)
    survey_of = ShardSurvey(Shards(), TruthSection(group="name"), 0, 4)  # type: ignore[arg-type]
    whole = summary()
    for shard in (0, 1):
        whole.add(survey_of((shard, True)), 4)
    found = whole.survey()
    assert sum(key.true_group is not None for key in found.cells) == named
    assert len(found.cells) == (named or 3)
    assert sum(stat.rows for stat in found.cells.values()) == 8
    notes = group_scores(found, "name").notes
    assert [note.split(",")[0] for note in notes] == (
        [] if named else ["truth.group: the column 'name' has more than 10"]
    )
