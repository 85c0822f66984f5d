"""A plan is immutable at any depth, also after it was pickled for a worker."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from ray import cloudpickle

from engine.plan.model import Plan
from engine.plan.planner import make_plan
from engine.recipe.recipe import Recipe
from engine.runs.runner import run
from operators.base import OperatorError
from tests.data import recipe_for, spurious_table
from tests.mutability import faults
from tests.unit.operators.test_contract import EXAMPLES, ROWS, recipe, rows, write


def everything_of(plan: Plan) -> Plan:
    """Compute what a plan computes when it is asked for."""
    assert plan.shards
    assert plan.published_schema
    assert plan.inputs
    assert plan.store
    return plan


def check(plan: Plan) -> None:
    for copy in (everything_of(plan), cloudpickle.loads(cloudpickle.dumps(plan))):
        assert list(faults(copy, "plan")) == []
        assert list(faults(copy.reader(copy.operators[-1], fitting=True), "reader")) == []


def source_of(folder: Path) -> Path:
    table = spurious_table(60).append_column("word", pa.array(["one", "two", "three"] * 20))
    (folder / "data").mkdir()
    pq.write_table(table, folder / "data" / "a.parquet")
    return folder / "data"


@pytest.mark.parametrize(
    ("name", "number"), [(name, number) for name, some in EXAMPLES.items() for number in range(len(some))]
)
def test_a_plan_with_any_operator(tmp_path: Path, name: str, number: int) -> None:
    write(tmp_path / "data", rows(), [ROWS])
    plan = make_plan(recipe(tmp_path, name, number))
    assert name in {planned.name for planned in plan.operators}
    check(plan)


def test_a_plan_with_a_mapping_in_every_section(tmp_path: Path) -> None:
    value = recipe_for(
        source_of(tmp_path),
        tmp_path / "out",
        train={"trainer": "erm", "params": {"epochs": 2}},
        report={"fields": ["a"]},
    )
    value["source"] |= {
        "rename": {"a": "first"},
        "label_map": {"yes": "YES"},
        "filter": [["b", ">=", -100.0], ["word", "in", ["one", "two"]]],
        "holdout": 0.2,
    }
    value["operators"]["encode"] = {"columns": {"first": {"scaling": "quantile"}, "word": "exclude"}}
    value["report"] = {"fields": ["first"]}
    value["output"]["export"] = [{"format": "parquet", "path": str(tmp_path / "table")}]
    check(make_plan(Recipe.parse(value)))


def test_a_plan_of_a_copied_recipe(tmp_path: Path) -> None:
    """As `rowsieve compare` makes them, one for each method."""
    given = Recipe.parse(recipe_for(source_of(tmp_path), tmp_path / "out"))
    source = given.source.model_copy(update={"exclude": ("word",), "rename": {"a": "first"}})
    operators = {**given.operators, "groups": {"method": "kmeans", "k": [2, 3]}}
    check(make_plan(given.model_copy(update={"source": source, "operators": operators})))


def test_a_plan_that_continues_from_a_version(tmp_path: Path) -> None:
    source = source_of(tmp_path)
    value = recipe_for(source, tmp_path / "out", incremental={"base": "current", "mode": "predict"})
    value["source"]["exclude"] = ["word"]
    run(Recipe.parse(value))
    pq.write_table(pq.read_table(source / "a.parquet").slice(0, 20), source / "b.parquet")
    plan = make_plan(Recipe.parse(value))
    assert plan.increment is not None
    assert plan.increment.undecided
    check(plan)
    run(Recipe.parse(value))
    pq.write_table(pq.read_table(source / "a.parquet").slice(20, 20), source / "c.parquet")
    decided = make_plan(Recipe.parse(value), probe=Decided())
    assert decided.increment is not None
    assert not decided.increment.undecided
    check(decided)


class Decided:
    """A probe that places no row and finds no drift."""

    def place_new_rows(self, plan: Plan, operators: Any) -> None:
        check(plan)

    def measure_drift(self, plan: Plan) -> list[dict[str, Any]]:
        check(plan)
        return []


def test_a_change_is_refused_with_the_place_and_the_remedy(tmp_path: Path) -> None:
    value = recipe_for(source_of(tmp_path), tmp_path / "out")
    value["source"]["exclude"] = ["word"]
    plan = make_plan(Recipe.parse(value))
    before = plan.to_dict()
    with pytest.raises(TypeError, match="cannot be changed"):
        plan.listing.identities.clear()
    with pytest.raises(TypeError, match="cannot be changed"):
        plan.recipe.operators["groups"]["min_samples"].append(7)
    with pytest.raises(OperatorError, match=r"operators\.probe: .*context\.state"):
        next(one for one in plan.operators if one.name == "probe").operator.extra = 1  # type: ignore[attr-defined]
    value["operators"]["groups"]["min_samples"].append(7)  # what the caller keeps is a copy
    assert plan.to_dict() == before
