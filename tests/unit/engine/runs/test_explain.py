"""``rowsieve explain``: operators say of a row what they published of it, foreign operators too."""

from __future__ import annotations

import json
import shutil
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from typer.testing import CliRunner

import rowsieve
from engine.cli.app import app
from engine.recipe.recipe import Recipe
from engine.runs.explain import explain
from engine.runs.runner import run
from engine.training.data.version import open_version
from operators import registry
from operators.base import FEATURES, Apply, Context, Operator, OperatorParams
from operators.explanations import ExplainedRow, Fact, added_facts
from tests.data import recipe_for, spurious_table, write_shards

OPERATORS: dict[str, Any] = {
    "probe": {"l2": 0.05, "trainer": "in_process"},
    "gradients": {},
    "groups": {"method": "kmeans", "k": 2, "min_rows": 0},
    "cues": {},
    "weights": {"trust": "self_confidence", "cross_fit": {"epochs": 3}},
    "split": {},
}


class Doubled(Operator[OperatorParams]):
    """Adds ``doubled``; says nothing of its own to ``explain``."""

    name = "doubled"
    version = 1
    Params = OperatorParams

    @property
    def requires(self) -> tuple[str, ...]:
        return (FEATURES,)

    @property
    def adds(self) -> tuple[pa.Field, ...]:
        return (pa.field("doubled", pa.float32()),)

    def open(self, context: Context) -> Apply:
        return lambda table: pa.table(
            {
                "doubled": pa.array(
                    2 * table[FEATURES].combine_chunks().flatten().to_numpy()[::4], pa.float32()
                )
            }
        )


class Talking(Doubled):
    """Says a fact of its own."""

    name = "talking"

    @property
    def adds(self) -> tuple[pa.Field, ...]:
        return (pa.field("talk", pa.float32()),)

    def open(self, context: Context) -> Apply:
        return lambda table: pa.table({"talk": pa.nulls(table.num_rows, pa.float32())})

    def explain(self, context: Context, row: ExplainedRow) -> list[Fact]:
        return [*added_facts(self.adds, row), Fact("greeting", "hello", f"row {row.row_id}")]


class Broken(Talking):
    """Fails to explain."""

    name = "broken"

    @property
    def adds(self) -> tuple[pa.Field, ...]:
        return (pa.field("broken", pa.float32()),)

    def open(self, context: Context) -> Apply:
        return lambda table: pa.table({"broken": pa.nulls(table.num_rows, pa.float32())})

    def explain(self, context: Context, row: ExplainedRow) -> list[Fact]:
        raise ValueError("no words")


@pytest.fixture(scope="module")
def plugins() -> Any:
    points = [
        EntryPoint(kind.name, f"{__name__}:{kind.__name__}", registry.ENTRY_POINTS)
        for kind in (Doubled, Talking, Broken)
    ]
    patch = pytest.MonkeyPatch()
    patch.setattr(registry, "_plugins", lambda: tuple(points))
    yield
    patch.undo()


@pytest.fixture(scope="module")
def output(plugins: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("explained")
    table = spurious_table()
    table = table.set_column(0, "a", pa.array([float("inf"), *table["a"].to_pylist()[1:]], pa.float64()))
    write_shards(folder / "data", table, 3)
    recipe = recipe_for(folder / "data", folder / "out")
    recipe["operators"] = {**OPERATORS, "doubled": {}, "talking": {}, "broken": {}}
    recipe["source"] |= {"on_error": "quarantine", "features": ["a", "b", "vector"]}
    run(Recipe.parse(recipe))
    return folder / "out"


def facts_of(output: Path, row_id: int) -> dict[str, dict[str, Any]]:
    found = explain(open_version(str(output)), row_id)
    return {one.operator: {fact.name: fact.value for fact in one.facts} for one in found.operators}


@pytest.mark.parametrize("row_id", [1, 80, 239])
def test_the_facts_are_what_was_published(output: Path, row_id: int) -> None:
    published = rowsieve.open(output).to_arrow().slice(row_id, 1).to_pylist()[0]
    facts = facts_of(output, row_id)
    assert facts["ingest"]["class"] == published["label"]
    assert facts["groups"]["group"] == published["group"]
    assert facts["split"]["split"] == published["split"]
    assert facts["outliers"]["is_outlier"] == published["is_outlier"]
    assert facts["weights"]["weight"] == pytest.approx(published["weight"])
    first = 0.5 * facts["doubled"]["doubled"]
    assert first == pytest.approx(np.float32(published["a"]))


@pytest.mark.parametrize("row_id", [1, 80, 239])
def test_the_factors_multiply_to_the_weight(output: Path, row_id: int) -> None:
    weights = facts_of(output, row_id)["weights"]
    product = weights["within limits"] * weights["scale"] * weights.get("trust", 1.0)
    assert product == pytest.approx(weights["weight"], rel=1e-5)
    expected = weights["class balance"] * (
        weights["shrinkage"] + (1 - weights["shrinkage"]) * weights["relative to class"]
    )
    assert weights["within limits"] == pytest.approx(expected, rel=0.05)


@pytest.mark.parametrize("row_id", [1, 80, 239])
def test_a_row_says_whether_it_was_learnt_from(output: Path, row_id: int) -> None:
    found = explain(open_version(str(output)), row_id)
    (parts,) = (one for one in found.operators if one.operator == "parts")
    (drawn,) = (fact for fact in parts.facts if fact.name == "drawn as")
    assert drawn.value == found.published["split"]
    assert ("no operator has learnt" in drawn.note) == (drawn.value != "train")


def test_the_verdict_is_that_of_the_run(output: Path) -> None:
    """Posterior and threshold, computed again for one row, give the published mark."""
    for row_id in range(1, 240, 24):
        found = explain(open_version(str(output)), row_id)
        (one,) = (one for one in found.operators if one.operator == "outliers")
        (posterior,) = (fact for fact in one.facts if fact.name == "posterior")
        marked = "marked from" in posterior.note and posterior.value >= float(posterior.note.split()[-3])
        assert marked == found.published["is_outlier"]


def test_foreign_operators_have_facts(output: Path) -> None:
    facts = facts_of(output, 5)
    assert set(facts["doubled"]) == {"doubled"}
    assert facts["talking"]["greeting"] == "hello"
    assert set(facts["broken"]) == {"error"}


def test_a_row_that_was_set_aside_says_why(output: Path) -> None:
    found = explain(open_version(str(output)), 0)
    ingest = next(one for one in found.operators if one.operator == "ingest")
    assert ingest.facts[0].value is False
    assert "column 'a'" in ingest.facts[-1].note
    assert found.published["split"] == "dropped"


@pytest.mark.parametrize("row_id", ["240", "-1"])
def test_unknown_rows_name_the_range(output: Path, row_id: str) -> None:
    failed = CliRunner().invoke(app, ["explain", str(output), "--", row_id])
    assert failed.exit_code == 2
    assert "rows are 0 to 239" in failed.output


def test_the_command_prints_text_and_json(output: Path) -> None:
    shown = CliRunner().invoke(app, ["explain", str(output), "7"])
    assert shown.exit_code == 0, shown.output
    assert "operator weights" in shown.output
    as_json = CliRunner().invoke(app, ["explain", str(output), "7", "--json"])
    found = json.loads(as_json.output)
    assert found["row_id"] == 7
    assert [one["operator"] for one in found["operators"]][:2] == ["parts", "encode"]
    assert set(found["source"]) == {"a", "b", "vector", "label", "truth"}


def test_a_copied_version_without_its_store_says_what_is_missing(output: Path, tmp_path: Path) -> None:
    version = open_version(str(output))
    shutil.copytree(str(version.folder), tmp_path / "copy")
    found = explain(open_version(str(tmp_path / "copy")), 3)
    assert found.published["row_id"] == 3
    split = next(one for one in found.operators if one.operator == "split")
    assert "no longer has this column" in split.facts[0].note


def test_dates_beyond_python_and_control_characters_are_shown(tmp_path: Path) -> None:
    table = spurious_table()
    far = pa.array([2**60] * table.num_rows, pa.timestamp("us"))
    table = table.append_column("late\x1b[2J", far)
    write_shards(tmp_path / "data", table, 1)
    recipe = recipe_for(tmp_path / "data", tmp_path / "out")
    recipe["source"]["features"] = ["a", "b", "vector"]
    recipe["report"] = {"fields": ["late\x1b[2J"]}
    recipe["operators"] = {"groups": {"method": "none"}, "weights": {"method": "uniform"}, "split": {}}
    run(Recipe.parse(recipe))
    done = CliRunner().invoke(app, ["explain", str(tmp_path / "out"), "3"])
    assert done.exit_code == 0, done.output
    assert "1152921504606846976 (timestamp[us])" in done.output
    assert "late" in done.output
    assert "\x1b" not in done.output


def test_a_state_of_another_version_of_the_operator_is_named(output: Path) -> None:
    version = open_version(str(output))
    for entry in version.manifest["operators"]:
        entry["version"] -= entry["name"] == "broken"
    (broken,) = (one for one in explain(version, 3).operators if one.operator == "broken")
    assert broken.facts[0].note == (
        "made by version 0 of the operator, which version 1, installed here, cannot explain "
        "(ValueError: no words); run the recipe again"
    )
