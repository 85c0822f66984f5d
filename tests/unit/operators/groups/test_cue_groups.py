"""``groups: {method: cues}``: rows that follow a shortcut and rows that break it, whatever the shards."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from operators.base import FEATURES, GROUP, LABEL
from operators.columns import numpy_to_vectors
from operators.cues.adaptor import Cues
from operators.cues.params import CuesParams
from operators.groups.by_cue import ByCue, groups_of_parts, unsplit_notes, wrong_by_group
from operators.groups.params import CueGroupsParams
from operators.groups.state import read_group_record
from tests.on_arrays import place_rows
from tests.unit.in_memory import run_operator, split_table


def cue_table(agrees: float = 0.95, n: int = 6000) -> tuple[pa.Table, Any, Any]:
    """Labels, 5 % of them wrong, a core of 4 features, and a cue in feature 5."""
    rng = np.random.default_rng(3)
    y = rng.integers(0, 2, n)
    X = rng.normal(size=(n, 6)).astype(np.float32)
    X[:, :4] += (2 * y[:, None] - 1) * 0.7
    cue = np.where(rng.random(n) < agrees, y, 1 - y)
    X[:, 5] = cue * 2 + 0.1 * rng.normal(size=n)
    y = np.where(rng.random(n) < 0.05, 1 - y, y)
    return pa.table({FEATURES: numpy_to_vectors(X), LABEL: pa.array(y, pa.int32())}), y, cue


def groups_of(folder: Path, tables: list[pa.Table], cues: CuesParams | None = None, **params: Any) -> Any:
    """Groups, metrics and the state folder of the groups."""
    states = {name: folder / name for name in ("ingest", "cues", "groups")}
    for path in states.values():
        path.mkdir(parents=True)
    (states["ingest"] / "classes.json").write_text(json.dumps({"classes": ["a", "b"], "widths": [1] * 6}))
    run_operator(Cues(cues or CuesParams(), list("abcdef")), tables, states["cues"], 0, states)
    operator = ByCue(CueGroupsParams(**params))
    found, metrics = run_operator(operator, tables, states["groups"], 0, states)
    return found, metrics, states["groups"]


def test_a_group_holds_the_rows_that_break_the_cue(tmp_path: Path) -> None:
    table, y, cue = cue_table()
    found, metrics, _ = groups_of(tmp_path / "one", [table])
    group = found[GROUP].to_numpy()
    assert metrics["groups"] == 4
    breaks = group % 2 == 1
    assert (group // 2 == y).all()
    assert breaks[y != cue].mean() > 0.7
    assert breaks[y == cue].mean() < 0.05
    assert metrics["minority_share"] == pytest.approx(breaks.mean())
    assert (metrics["unsplit_rows"], ByCue(CueGroupsParams()).warnings(metrics, Path)) == (0, ())
    assert set(found["group_outlier"].to_pylist()) == {""}
    again, _, _ = groups_of(tmp_path / "many", split_table(table, [1, 2000, 2001]))
    assert again.to_pydict() == found.to_pydict()


def test_a_named_shortcut_divides_each_class_by_its_rarer_side(tmp_path: Path) -> None:
    table, y, cue = cue_table()
    found, _, _ = groups_of(tmp_path, [table], CuesParams(spurious=("f",)))
    breaks = found[GROUP].to_numpy() % 2 == 1
    assert breaks[y != cue].mean() > 0.95
    assert breaks[y == cue].mean() < 0.05


def test_the_share_of_wrong_labels_of_each_group_is_kept(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    truth = rng.integers(0, 2, 6000)
    X = rng.normal(size=(6000, 6)).astype(np.float32)
    X[:, :4] += (2 * truth[:, None] - 1) * 0.7
    X[:, 5] = np.where(rng.random(6000) < 0.98, truth, 1 - truth)
    y = np.where(rng.random(6000) < 0.06, 1 - truth, truth)
    table = pa.table({FEATURES: numpy_to_vectors(X), LABEL: pa.array(y, pa.int32())})
    found, _, state = groups_of(tmp_path, [table], CuesParams(spurious=("f",)))
    group, estimated = found[GROUP].to_numpy(), read_group_record(state)["wrong_labels"]
    assert {*estimated} == {"1", "3"}
    for name, share in estimated.items():
        assert share == pytest.approx((y != truth)[group == int(name)].mean(), abs=0.05)


def test_small_groups_are_estimated_with_the_one_that_they_join() -> None:
    record = {"class": 1, "offset": 4, "group_of": [0, 1, 1]}
    rows, wrong = {(1, 0): 90, (1, 1): 20, (1, 2): 20}, {(1, 1): 18.0, (1, 2): 2.0}
    assert wrong_by_group([record], rows, wrong) == {5: 0.5}


def test_rows_that_break_several_of_three_columns_are_a_group(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    y = rng.integers(0, 2, 8000)
    X = rng.normal(size=(8000, 6)).astype(np.float32)
    X[:, :3] += np.outer(2 * y - 1, [0.5, 0.5, 0.5])
    cues = [np.where(rng.random(8000) < told, y, 1 - y) for told in (0.95, 0.93, 0.9)]
    X[:, 3:] = np.column_stack(cues)
    table = pa.table({FEATURES: numpy_to_vectors(X), LABEL: pa.array(y, pa.int32())})
    found, metrics, _ = groups_of(tmp_path / "one", [table], min_rows=20)
    assert metrics["groups"] == 10
    group, broken = found[GROUP].to_numpy(), (np.column_stack(cues) != y[:, None]).sum(axis=1)
    np.testing.assert_array_equal(group % 5 == 4, broken > 1)
    np.testing.assert_array_equal(group % 5 == 0, broken == 0)
    again, _, _ = groups_of(tmp_path / "many", split_table(table, [1, 3000, 3001]), min_rows=20)
    assert again.to_pydict() == found.to_pydict()


def test_where_the_gate_is_shut_a_class_is_one_group(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    y = (rng.random(2000) < 0.25).astype(int)
    X = (rng.normal(size=(2000, 6)) + 0.3 * y[:, None]).astype(np.float32)
    table = pa.table({FEATURES: numpy_to_vectors(X), LABEL: pa.array(y, pa.int32())})
    found, metrics, _ = groups_of(tmp_path, [table])
    assert found[GROUP].to_numpy().tolist() == y.tolist()
    assert (metrics["groups"], metrics["minority_share"], metrics["unsplit_rows"]) == (2, 0, 0)
    assert ByCue(CueGroupsParams()).warnings(metrics, Path) == ()


@pytest.mark.parametrize("limit", [{"min_rows": 1000}, {"min_share": 0.4}])
def test_small_groups_are_merged(limit: dict[str, float], tmp_path: Path) -> None:
    table, y, cue = cue_table()
    found, metrics, _ = groups_of(tmp_path, [table], **limit)
    assert found[GROUP].to_numpy().tolist() == y.tolist()
    assert metrics["groups"] == 2
    assert metrics["unsplit_rows"] == pytest.approx((y != cue).sum(), rel=0.1)
    warned = ByCue(CueGroupsParams(**limit)).warnings(metrics, Path)
    assert [text.split(" break")[0] for text in warned] == [f"{int(metrics['unsplit_rows'])} rows"]


def test_a_class_that_is_not_split_beside_others_is_told_of(tmp_path: Path) -> None:
    """Nothing said so, and the report called the whole class the worst group."""
    table, y, cue = cue_table()
    kept = np.flatnonzero((y == 0) | (cue == 1) | (np.arange(len(y)) % 9 == 0))
    few = int(((y == 1) & (cue == 0))[kept].sum())
    named = CuesParams(spurious=("f",))
    _, metrics, state = groups_of(tmp_path / "one", [table.take(pa.array(kept))], named)
    assert (metrics["groups"], few < 100) == (3, True)
    (note,) = ByCue(CueGroupsParams()).warnings(metrics, lambda: state)
    follow = int((y[kept] == 1).sum()) - int(metrics["unsplit_rows"])
    assert note == (
        f"Rows that break what `cues` balances are no group: {int(metrics['unsplit_rows'])} of class 'b' "
        f"beside {follow:,} others. A group has 100 rows at least. A lower `min_rows` splits the class; "
        "until then the worst group may be hidden in it."
    )
    assert metrics["unsplit_rows"] == pytest.approx(few, abs=5)
    _, metrics, _ = groups_of(tmp_path / "low", [table.take(pa.array(kept))], named, min_rows=few // 2)
    assert (metrics["groups"], metrics["unsplit_rows"]) == (4, 0)


def test_many_classes_that_are_not_split_are_told_of_together() -> None:
    one = {"class": "a", "follow": 1000, "broken": 7, "least": 100, "setting": "min_share"}
    (note,) = unsplit_notes({"unsplit": [one] * 6 + [one | {"least": 150, "setting": "min_rows"}]})
    assert note.count("7 of class 'a' beside 1,000 others (a group has 100 rows at least)") == 5
    assert ", and those of 2 further classes. A lower `min_rows` or `min_share` splits these" in note
    assert unsplit_notes({}) == ()


def test_new_rows_are_placed_from_the_state_alone(tmp_path: Path) -> None:
    table, _, _ = cue_table()
    found, _, state = groups_of(tmp_path, [table], CuesParams(spurious=("f",)))
    placed = place_rows(state, table.slice(100, 50))
    assert placed[GROUP].to_pylist() == found[GROUP].slice(100, 50).to_pylist()


@pytest.mark.parametrize(
    ("sizes", "group_of"),
    [
        ([900], [0]),
        ([900, 100], [0, 1]),
        ([900, 99], [0, 0]),
        ([99, 900], [0, 0]),
        ([900, 100, 200], [0, 1, 2]),
        ([900, 60, 60], [0, 1, 1]),
        ([900, 40, 200], [0, 1, 1]),
        ([900, 300, 60, 50], [0, 1, 2, 2]),
        ([900, 200, 30, 300], [0, 1, 2, 2]),
        ([900, 30, 0, 20], [0, 0, 0, 0]),
    ],
)
def test_parts_of_a_class_become_groups(sizes: list[int], group_of: list[int]) -> None:
    assert groups_of_parts(sizes, 100) == group_of


def test_rows_that_break_either_of_two_columns_are_groups_of_their_own(tmp_path: Path) -> None:
    rng, n = np.random.default_rng(3), 8000
    y = rng.integers(0, 2, n)
    X = rng.normal(size=(n, 4)) + np.outer(2 * y - 1, [0.5, 0.5, 0.5, 0])
    cues = [np.where(rng.random(n) < told, y, 1 - y) for told in (0.93, 0.88)]
    values = np.column_stack([X, *cues]).astype(np.float32)
    table = pa.table({FEATURES: numpy_to_vectors(values), LABEL: pa.array(y, pa.int32())})
    found, metrics, _ = groups_of(tmp_path, [table])
    broken = np.where(cues[0] != y, 1, 2 * (cues[1] != y))
    assert metrics["groups"] == 6
    assert found[GROUP].to_pylist() == (3 * y + broken).tolist()
    assert metrics["minority_share"] == pytest.approx((broken > 0).mean())
