"""The recipe for UCI Adult runs on a made-up table of its columns, and accounts for the published one."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from engine.plan.first_recipe import draft
from engine.plan.planner import make_plan
from engine.plan.preview import check_label, preview
from engine.recipe.recipe import Recipe
from engine.runs.runner import run
from tests.adult import COLUMNS, write_adult
from tests.paper import adult

RECIPE = Path(__file__).resolve().parents[3] / "deploy/recipes/adult.yaml"
REAL = os.environ.get("ROWSIEVE_REAL_DATA", "")
KINDS = {
    "age": "numeric",
    "workclass": "categorical",
    "fnlwgt": "excluded",
    "education": "excluded",
    "education_num": "numeric",
    "marital_status": "categorical",
    "occupation": "categorical",
    "relationship": "categorical",
    "race": "excluded",
    "sex": "truth",
    "capital_gain": "numeric",
    "hours_per_week": "numeric",
    "native_country": "categorical",
    "income": "label",
}


def test_the_recipe_runs_on_a_table_like_adult(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_adult(tmp_path / "adult.csv")
    quick = ["run.executor=local", "report.enabled=false", "tracking.enabled=false"]
    recipe = Recipe.load(RECIPE, quick)
    found = preview(make_plan(recipe))
    check_label(found)
    assert [column.name for column in found.columns] == COLUMNS.split(",")
    assert {column.name: column.kind for column in found.columns}.items() >= KINDS.items()
    assert set(found.label.counts) == {"<=50K", ">50K"}
    assert found.findings == ()
    manifest = run(recipe).manifest
    assert [column["name"] for column in manifest["source"]["columns"]] == COLUMNS.split(",")
    assert manifest["rows"] == 600
    assert manifest["summary"]["quarantined"] == 0


def test_the_two_spellings_of_the_label_are_found_by_init(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_adult(tmp_path / "adult.csv")
    found = draft("adult.csv", "income", output="out")
    keys = {key: choice.value for key, choice in found.source.items()}
    assert keys["strip"] is True
    assert keys["missing"] == ["?"]
    assert keys["label_map"] == {"<=50K.": "<=50K", ">50K.": ">50K"}
    assert found.leaks == ()


@pytest.mark.skipif(not REAL, reason="ROWSIEVE_REAL_DATA names no folder with adult.csv")
def test_the_published_table_is_accounted_for() -> None:
    recipe = Recipe.load(RECIPE, [f"source.path={REAL}/adult.csv"])
    found = preview(make_plan(recipe))
    kinds = {column.name: column.kind for column in found.columns}
    assert kinds.items() >= {**KINDS, "capital_loss": "numeric"}.items()
    assert sum(found.label.counts.values()) == 48_842
    assert json.dumps(found.to_json())


def test_the_page_of_the_whole_table_is_made_or_left_out_with_a_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(adult, "PAGE", tmp_path / "ADULT.md")
    monkeypatch.setattr(adult, "FOLDER", "")
    adult.main()
    assert "ADULT.md is left as it is: ROWSIEVE_REAL_DATA names no folder" in capsys.readouterr().out
    monkeypatch.setattr(adult, "FOLDER", str(tmp_path))
    adult.main()
    assert "adult.csv is not there" in capsys.readouterr().out
    write_adult(tmp_path / "adult.csv")
    adult.main()
    text = (tmp_path / "ADULT.md").read_text()
    assert "600 rows, 0 of them faulty" in text
    assert all(f"| {name} | {kind} |" in text for name, kind in KINDS.items())
