"""New rows: new categories and gaps are counted, and beyond a bound another fit is asked for."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from engine.execution.local_executor import LocalExecutor
from engine.plan.planner import make_plan
from engine.recipe.recipe import Recipe
from engine.runs.runner import run
from operators.base import CannotPredictError, Context, DatasetDelta
from operators.encode.adaptor import Encode
from operators.encode.level_counts import read_counts
from operators.encode.params import EncodeParams
from tests.data import recipe_for
from tests.unit.in_memory import MemoryReader

COLUMNS = ("age", "city", "hired")


def rows(n=200, seed=0, **changed):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, n)
    values = {
        "age": pa.array(rng.normal(y, 1.0), mask=rng.random(n) < 0.1),
        "city": pa.array(rng.choice(["Oslo", "Rome", "Lima"], n, p=[0.6, 0.3, 0.1])),
        "hired": pa.array(np.datetime64("2020-01-01") + rng.integers(0, 900, n)),
        "label": pa.array(np.where(y, "yes", "no")),
    }
    return pa.table({**values, **changed})


def grown(tmp_path, *new, **params):
    """Fit on the usual rows, then take in new ones; return the operator, its context and the metrics."""
    operator = Encode(EncodeParams.model_validate({"features": COLUMNS, "label": "label", **params}))
    first, state = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    state.mkdir()
    metrics = operator.fit(Context(MemoryReader([rows()]), first), LocalExecutor())
    context = Context(MemoryReader([rows(), *new]), state)
    delta = DatasetDelta(first, metrics, tuple(range(1, 1 + len(new))), rows_removed=False)
    operator.partial_fit(context, delta, LocalExecutor())
    return operator, context


def test_rows_like_the_old_ones_are_encoded_by_the_kept_state(tmp_path):
    operator, context = grown(tmp_path, rows(100, 1), rows(60, 2))
    old, new = (json.loads((tmp_path / k / "encoding.json").read_text()) for k in ("first", "second"))
    assert old == new
    seen, counted = read_counts(context.state, "seen"), read_counts(context.state, "new")
    assert {name: counts.rows for name, counts in seen.items()} == dict.fromkeys(COLUMNS, 200)
    assert {name: counts.rows for name, counts in counted.items()} == dict.fromkeys(COLUMNS, 160)
    assert seen["age"].missing == rows()["age"].null_count
    assert counted["age"].missing == rows(100, 1)["age"].null_count + rows(60, 2)["age"].null_count
    both = rows(100, 1)["city"].to_pylist() + rows(60, 2)["city"].to_pylist()
    assert counted["city"].levels == {
        "= Lima": both.count("Lima"),
        "= Oslo": both.count("Oslo"),
        "= Rome": both.count("Rome"),
        "infrequent": 0,
        "a new category": 0,
    }
    made = operator.open_for_new_rows(context)(context.shards.read_source(1, ["row_id", *COLUMNS]))
    assert made["x"].null_count == 0


def test_new_categories_are_counted_and_many_of_them_ask_for_a_fit(tmp_path):
    few = ["Bonn"] * 5 + ["Pune"] * 5 + ["Oslo"] * 90
    _, context = grown(tmp_path, rows(100, 1, city=pa.array(few)))
    assert read_counts(context.state, "new")["city"].new == 10
    (tmp_path / "many").mkdir()
    many = ["Bonn"] * 50 + ["Oslo"] * 50
    with pytest.raises(
        CannotPredictError, match="50% of the new rows have a category of 'city' that no row had"
    ):
        grown(tmp_path / "many", rows(100, 1, city=pa.array(many)))
    (tmp_path / "told").mkdir()
    grown(tmp_path / "told", rows(100, 1, city=pa.array(many)), max_new_share=0.6)


@pytest.mark.parametrize("column", COLUMNS)
def test_many_more_missing_values_ask_for_a_fit(tmp_path, column):
    table = rows(100, 1)
    emptied = table.set_column(
        table.column_names.index(column), column, pa.nulls(100, table.schema.field(column).type)
    )
    with pytest.raises(CannotPredictError, match=f"100% of the new rows lack a value of '{column}'"):
        grown(tmp_path, emptied)


def recipe(folder, **drift):
    return Recipe.parse(
        recipe_for(
            folder / "data",
            folder / "out",
            truth={"group": None},
            operators={
                "probe": {"l2": 0.1, "trainer": "in_process"},
                "gradients": {},
                "groups": {"method": "none"},
                "weights": {"method": "uniform"},
                "split": {},
            },
            incremental={
                "base": "current",
                "mode": "auto",
                "drift": {"columns": None, "features": None, "gradients": None, **drift},
            },
        )
    )


def test_drift_of_categories_and_missing_values_decides_a_run(tmp_path):
    (tmp_path / "data").mkdir()
    pq.write_table(rows(300), tmp_path / "data" / "a.parquet")
    run(recipe(tmp_path))
    pq.write_table(rows(150, 1), tmp_path / "data" / "b.parquet")
    found = run(recipe(tmp_path)).manifest["incremental"]
    figures = {figure["name"]: figure for figure in found["drift"]}
    assert found["outcome"] == "predict"
    assert not figures["levels"]["over"]
    moved = pa.array(["Lima"] * 60 + ["Oslo"] * 90)
    gaps = pa.array([None] * 30 + [1.0] * 120, pa.float64())
    pq.write_table(rows(150, 2, city=moved, age=gaps), tmp_path / "data" / "c.parquet")
    found = run(recipe(tmp_path)).manifest["incremental"]
    assert found["outcome"] == "refit"
    figures = {figure["name"]: figure for figure in found["drift"]}
    assert figures["levels"]["over"]
    assert figures["levels"]["columns"] == ["city"]
    assert "encode" in found["kept"]


def test_a_later_fit_is_asked_for_and_the_run_fits_again(tmp_path):
    (tmp_path / "data").mkdir()
    pq.write_table(rows(300), tmp_path / "data" / "a.parquet")
    run(recipe(tmp_path))
    pq.write_table(rows(150, 1, city=pa.array(["Bonn"] * 150)), tmp_path / "data" / "b.parquet")
    result = run(recipe(tmp_path))
    found = result.manifest["incremental"]
    assert found["outcome"] == "full"
    assert "'city' that no row had before" in found["why"]
    plan = make_plan(recipe(tmp_path))
    state = plan.store.state(plan.fingerprint_of("encode"))
    labels = [output["label"] for output in json.loads((state / "encoding.json").read_text())["outputs"]]
    assert "city = Bonn" in labels
