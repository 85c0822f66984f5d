"""The manifest describes every column that a version has beside the source's."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from engine.plan.model import Plan
from engine.plan.planner import make_plan
from engine.runs.runner import run
from tests.data import small_recipe

PLAIN = {"groups": {"method": "none"}, "weights": {}, "split": {}}


def test_a_version_names_its_outputs_in_the_order_of_its_files(tmp_path: Path) -> None:
    result = run(small_recipe(tmp_path, shards=2, operators=PLAIN, report={"enabled": False}))
    outputs = result.manifest["outputs"]
    names = [column["name"] for column in outputs]
    assert names == ["row_id", "group", "is_outlier", "outlier_source", "weight", "split"]
    assert pq.read_schema(result.path / result.manifest["parts"][0]["path"]).names[-len(names) :] == names
    assert {c["name"]: c["operator"] for c in outputs}["weight"] == "weights"
    assert [{"name": c["name"], "type": c["type"]} for c in outputs] == result.manifest["schema"][
        -len(names) :
    ]


@pytest.mark.parametrize("split", [{}, {"method": "cluster", "folds": 4}], ids=["random", "folds"])
def test_every_column_is_described(split: dict[str, object], tmp_path: Path) -> None:
    recipe = small_recipe(tmp_path, operators={**PLAIN, "split": split})
    output = recipe.output.model_copy(update={"prefix": "rs_"})
    outputs = make_plan(recipe.model_copy(update={"output": output})).outputs
    assert all(column["description"].endswith(".") for column in outputs)
    assert all(column["name"].startswith("rs_") for column in outputs)
    assert any(column["name"] == "rs_fold" for column in outputs) == bool(split)


def test_values_go_to_their_columns_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = small_recipe(tmp_path, shards=2, operators=PLAIN, report={"enabled": False})
    usual = run(recipe)
    schema = make_plan(recipe).published_schema
    monkeypatch.setattr(Plan, "published_schema", pa.schema(list(schema)[::-1]))
    other = run(
        recipe.model_copy(
            update={"output": recipe.output.model_copy(update={"path": str(tmp_path / "other")})}
        )
    )
    for part in usual.manifest["parts"]:
        expected, found = (pq.read_table(result.path / part["path"]) for result in (usual, other))
        assert found.schema.names == expected.schema.names[::-1]
        assert found.select(expected.schema.names).equals(expected)
