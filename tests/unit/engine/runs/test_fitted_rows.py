"""Operators learn from training rows only: what that guarantees, and when it cannot be."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from engine.core.errors import InputError
from engine.plan.model import Plan
from engine.plan.planner import make_plan
from engine.recipe.recipe import Recipe
from engine.runs.runner import run
from operators.base import LABEL, PART, PREDICTION
from tests.data import recipe_for, spurious_table
from tests.unit.engine.runs.test_holdout import STANDARD, numbered, published

PROBE: dict[str, Any] = {
    "probe": {"trainer": "in_process", "l2": 1e-6},
    "groups": {"method": "none"},
    "weights": {"method": "uniform"},
}
GRASP: dict[str, Any] = {
    "probe": {"l2": 0.05, "trainer": "in_process"},
    "gradients": {},
    "groups": {"min_samples": [5, 10]},
    "weights": {"method": "uniform"},
}


def planned(folder: Path, table: pa.Table, operators: dict[str, Any], **sections: Any) -> Plan:
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, folder / "m.parquet")
    value = recipe_for(folder / "*.parquet", folder / "out", **sections)
    value["operators"] = operators
    return make_plan(Recipe.parse(value))


def columns(plan: Plan, names: list[str]) -> pa.Table:
    return pa.concat_tables(plan.reader().read(shard.index, names) for shard in plan.shards)


@pytest.mark.parametrize(("fit_on", "low", "high"), [("train", 0.3, 0.7), ("all", 0.9, 1.0)])
def test_a_probe_that_memorises_random_labels_is_at_chance_on_validation_rows(
    tmp_path: Path, fit_on: str, low: float, high: float
) -> None:
    """The planted leak: with as many features as rows, what a probe has seen it knows by heart."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 260)).astype(np.float32)
    table = pa.table(
        {
            "v": pa.FixedSizeListArray.from_arrays(pa.array(X.ravel()), 260),
            "label": pa.array(rng.choice(["no", "yes"], 300).tolist()),
        }
    )
    operators = {**PROBE, "split": {"validation": 0.3, "fit_on": fit_on}}
    plan = planned(tmp_path, table, operators, truth={"group": None})
    done = run(plan.recipe)
    split = pq.read_table(done.path / "data")["split"].to_numpy(zero_copy_only=False).astype(str)
    found = columns(plan, [LABEL, PREDICTION])
    right = found[LABEL].to_numpy() == found[PREDICTION].to_numpy()
    assert right[split == "train"].mean() == 1.0
    assert low <= right[split == "validation"].mean() <= high


@pytest.mark.parametrize("operators", [STANDARD, GRASP], ids=["standard", "grasp"])
def test_labels_of_validation_and_test_rows_reach_no_training_row(
    tmp_path: Path, operators: dict[str, Any]
) -> None:
    operators = {**operators, "split": {"validation": 0.2, "test": 0.1}}
    table = numbered(500)
    first, manifest = published(tmp_path / "a", {"m": table}, operators=operators)
    held = first["split"].astype(str).isin(["validation", "test"]).to_numpy()
    assert 0.2 <= held.mean() <= 0.4
    assert "training rows only" in manifest["learnt_from"]
    label = np.asarray(table["label"].to_pylist())
    other = np.where(held, np.where(label == "yes", "no", "yes"), label)
    wrecked = table.set_column(table.column_names.index("label"), "label", pa.array(other.tolist()))
    second, _ = published(tmp_path / "b", {"m": wrecked}, operators=operators)
    assert first["split"].tolist() == second["split"].tolist()
    for name in ("group", "is_outlier", "weight"):
        assert first.loc[~held, name].tolist() == second.loc[~held, name].tolist(), name
    assert first.loc[held, "weight"].notna().all()
    assert first.loc[held, "group"].tolist() != second.loc[held, "group"].tolist()  # they are placed


def test_parts_depend_neither_on_shards_nor_on_files(tmp_path: Path) -> None:
    table = numbered(400)
    whole, _ = published(tmp_path / "a", {"m": table}, operators=STANDARD)
    cut = {"m": table.slice(0, 130), "n": table.slice(130, 1), "o": table.slice(131)}
    parts, _ = published(tmp_path / "b", cut, operators=STANDARD)
    for name in ("split", "group", "is_outlier"):
        assert whole[name].tolist() == parts[name].tolist(), name
    np.testing.assert_allclose(whole["weight"], parts["weight"], rtol=1e-4)


def test_an_increment_keeps_parts_and_draws_those_of_new_rows(tmp_path: Path) -> None:
    sections: dict[str, Any] = {
        "operators": STANDARD,
        "incremental": {"base": "current", "mode": "predict"},
    }
    first, _ = published(tmp_path, {"m": numbered(400)}, **sections)
    second, manifest = published(tmp_path, {"a": numbered(200, seed=1, first=400)}, **sections)
    assert {"parts", "probe", "groups", "split"} <= set(manifest["incremental"]["kept"])
    assert first["split"].tolist() == second.loc[first.index, "split"].tolist()
    new = second.loc[[f"c{i}" for i in range(400, 600)], "split"]
    assert 0.1 <= (new == "validation").mean() <= 0.3
    sections["incremental"]["mode"] = "refit"
    third, manifest = published(tmp_path, {"b": numbered(100, seed=2, first=600)}, **sections)
    assert "parts" in manifest["incremental"]["kept"]
    assert second["split"].tolist() == third.loc[second.index, "split"].tolist()


def test_states_that_have_learnt_from_all_rows_are_not_kept(tmp_path: Path) -> None:
    """A base that an earlier release published, or that has `fit_on: all`, is learnt anew once."""
    data = {"m": numbered(300)}
    published(tmp_path, data, operators={**STANDARD, "split": {"fit_on": "all"}})
    incremental = {"base": "current", "mode": "predict"}
    _, manifest = published(tmp_path, data, operators=STANDARD, incremental=incremental)
    assert manifest["incremental"]["kept"] == []
    fitted = manifest["incremental"]["fitted"]
    assert fitted.pop("parts") == "it is new in the recipe"
    assert fitted.pop("split") == "its parameters have changed: fit_on"
    assert set(fitted.values()) == {"operators of the base have learnt from other rows"}


@pytest.mark.slow
def test_small_classes_and_classes_of_one_key_are_learnt(tmp_path: Path) -> None:
    table = numbered(300)
    label = table["label"].to_pylist()
    label[:5] = ["rare"] * 5
    label[5:45] = ["sole"] * 40
    customer = ["one"] * 45 + [f"c{i}" for i in range(45, 300)]
    table = table.set_column(table.column_names.index("label"), "label", pa.array(label))
    table = table.set_column(table.column_names.index("customer"), "customer", pa.array(customer))
    for seed in range(8):  # at one of them the customer `one` is drawn for validation
        plan = planned(tmp_path / str(seed), table, {**PROBE, "split": {"key": "customer"}}, seed=seed)
        run(plan.recipe)
        parts = columns(plan, [PART])[PART].to_numpy()
        assert not parts[:45].any()
        assert 0.1 < (parts[45:] == 1).mean() < 0.35


def test_a_table_of_few_different_rows_is_drawn_by_position(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    a = rng.integers(0, 2, 600)
    table = pa.table({"a": a.astype(float), "label": np.where(rng.random(600) < 0.8, a, 1 - a).astype(str)})
    plan = planned(tmp_path, table, {**PROBE, "split": {}}, truth={"group": None})
    run(plan.recipe)
    parts = columns(plan, [PART])[PART].to_numpy()
    assert 0.14 < (parts == 1).mean() < 0.26


def test_equal_rows_are_in_one_part(tmp_path: Path) -> None:
    table = numbered(200)
    twice = pa.concat_tables([table, table])
    plan = planned(tmp_path, twice, {**PROBE, "split": {"validation": 0.4}})
    run(plan.recipe)
    parts = columns(plan, [PART])[PART].to_numpy()
    assert parts[:200].tolist() == parts[200:].tolist()


@pytest.mark.parametrize(
    ("operators", "sentence"),
    [
        ({**PROBE, "split": {}}, "training rows only.*their content .validation 0.2, test 0"),
        ({**PROBE, "split": {"key": "customer"}}, "training rows only.*the column 'customer'"),
        ({**PROBE, "split": {"fit_on": "all"}}, "all rows.*optimistic.*fit_on is all"),
        ({**PROBE, "split": {"stratify_by_group": True}}, "all rows.*within groups"),
        ({**PROBE, "split": {"method": "cluster"}}, "all rows.*optimistic"),
        ({**PROBE, "split": {"validation": 0}}, "all rows; `split` draws neither"),
        ({**PROBE, "decorrelation": {}, "split": {}}, "all rows.*operators.decorrelation cannot place"),
    ],
)
def test_the_plan_says_which_rows_are_learnt_from(
    tmp_path: Path, operators: dict[str, Any], sentence: str
) -> None:
    plan = planned(tmp_path, numbered(60), operators)
    assert plan.to_dict()["learnt_from"] == plan.learnt_from
    assert re.search(sentence, plan.learnt_from)


@pytest.mark.parametrize(
    ("operators", "message"),
    [
        (
            {**PROBE, "decorrelation": {}, "split": {"fit_on": "train"}},
            "operators.decorrelation cannot place",
        ),
        ({**PROBE, "split": {"fit_on": "train", "stratify_by_group": True}}, "set fit_on to all"),
        ({**PROBE, "parts": {}, "split": {}}, "operators.parts: the engine adds this operator"),
        ({**PROBE, "split": {"fit_on": "trian"}}, "fit_on"),
    ],
)
def test_what_cannot_be_is_refused(tmp_path: Path, operators: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        planned(tmp_path, numbered(60), operators)


def test_dropped_outliers_are_dropped_from_every_part(tmp_path: Path) -> None:
    operators = {**GRASP, "eos": {"model": "gaussian"}, "outliers": {"rule": "any"}}
    operators["split"] = {"validation": 0.3, "drop_outliers": True}
    found, _ = published(
        tmp_path,
        {"m": spurious_table(300).append_column("customer", pa.array(range(300)))},
        operators=operators,
    )
    outlier = found["is_outlier"].to_numpy()
    assert outlier.any()
    assert (found.loc[outlier, "split"] == "dropped").all()
    assert not (found.loc[~outlier, "split"] == "dropped").any()
