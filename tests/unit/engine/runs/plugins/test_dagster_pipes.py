"""Messages of a run to Dagster: those of the Pipes protocol, as dagster-pipes writes them into a file."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.core.errors import InputError
from engine.publish import publisher
from engine.recipe.recipe import Recipe
from engine.runs.plugins.base import Publication
from engine.runs.plugins.dagster_pipes import checks
from engine.runs.runner import run
from tests.data import small_recipe, spurious_table, write_shards

pipes = pytest.importorskip("dagster_pipes", reason="needs dagster-pipes, of rowsieve[dagster]")
Messages = Callable[[], list[dict[str, Any]]]


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Recipe:
    """A recipe that has run before and has new rows since."""
    folder = tmp_path_factory.mktemp("pipes")
    made = small_recipe(folder, shards=2, incremental={"base": "current"})
    run(made)
    write_shards(folder / "more", spurious_table(60, seed=1), 1)
    (folder / "more" / "s0.parquet").rename(folder / "data" / "s9.parquet")
    return made


@pytest.fixture
def started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Messages:
    """The environment of a process that Dagster has started for the asset ``churn``."""
    names = ("code_version_by_asset_key", "provenance_by_asset_key", "partition_key", "partition_key_range")
    context = dict.fromkeys((*names, "partition_time_window", "job_name"))
    context |= {"asset_keys": ["churn"], "run_id": "r", "retry_number": 0, "extras": {"checks": ["drift"]}}
    file = tmp_path / "messages"
    monkeypatch.setenv("DAGSTER_PIPES_CONTEXT", pipes.encode_param({"data": context}))
    monkeypatch.setenv("DAGSTER_PIPES_MESSAGES", pipes.encode_param({"path": str(file)}))
    monkeypatch.setattr(pipes.PipesContext, "_instance", None)

    def read() -> list[dict[str, Any]]:
        found = [json.loads(line) for line in file.read_text().splitlines()]
        assert all(set(one) == {"__dagster_pipes_version", "method", "params"} for one in found)
        return found

    return read


def test_a_version_is_a_materialisation_and_drift_a_check(recipe: Recipe, started: Messages) -> None:
    result = run(recipe)
    found = started()
    assert [one["method"] for one in found if one["method"] != "log"] == [
        "opened",
        "report_asset_materialization",
        "report_asset_check",
        "closed",
    ]
    by_method = {one["method"]: one["params"] for one in found}
    made = by_method["report_asset_materialization"]
    values = {name: value["raw_value"] for name, value in made["metadata"].items()}
    assert (made["asset_key"], made["data_version"]) == ("churn", result.version)
    assert values["dagster/row_count"] == result.manifest["rows"] == 300
    assert values["version"] == result.version
    sizes = {name: rows for name, rows in result.manifest["summary"]["groups"].items() if name != "-1"}
    assert (values["groups"], values["rows_by_group"]) == (len(sizes), sizes)
    assert values["decision"].startswith(result.manifest["incremental"]["outcome"])
    check = by_method["report_asset_check"]
    over = any(figure["over"] for figure in result.manifest["incremental"]["drift"])
    assert (check["check_name"], check["severity"], check["passed"]) == ("drift", "WARN", not over)
    assert check["metadata"].keys() == {one["name"] for one in result.manifest["incremental"]["drift"]}
    assert by_method["closed"] == {}
    logged = [one["params"]["message"].partition(":")[0] for one in found if one["method"] == "log"]
    assert logged == [one.name for one in result.operators]


def test_a_version_that_was_published_before_is_reported_too(recipe: Recipe, started: Messages) -> None:
    result = run(recipe)
    assert result.reused
    (made,) = [one["params"] for one in started() if one["method"] == "report_asset_materialization"]
    assert made["data_version"] == result.version


def test_a_run_that_fails_says_why_and_reports_no_version(
    recipe: Recipe, started: Messages, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise InputError("s3://key:secret@bucket/x refuses.")

    monkeypatch.setattr(publisher, "write_part", refuse)
    other = recipe.output.model_copy(update={"prefix": "q"})
    with pytest.raises(InputError):
        run(recipe.model_copy(update={"output": other}))
    found = started()
    assert {one["method"] for one in found} == {"opened", "log", "closed"}
    error = found[-1]["params"]["exception"]
    assert error["name"] == "InputError"
    assert "refuses" in error["message"]
    assert "secret" not in error["message"]


def test_a_process_of_its_own_reports_itself(recipe: Recipe, started: Messages) -> None:
    """Code of a user that has opened Pipes goes on after the run."""
    with pipes.open_dagster_pipes() as context:
        run(recipe)
        context.report_custom_message("after the run")
    assert [one["method"] for one in started()][-2:] == ["report_custom_message", "closed"]


def test_a_missing_package_is_named(
    recipe: Recipe, started: Messages, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "dagster_pipes", None)
    with caplog.at_level(logging.WARNING, "rowsieve"):
        run(recipe)
    assert "pip install 'rowsieve[dagster]'" in caplog.text


@pytest.mark.parametrize(
    ("manifest", "training", "passed"),
    [
        ({}, None, (True, True)),
        (
            {"incremental": {"drift": [{"name": "a", "over": False}, {"name": "b", "over": True}]}},
            None,
            (False, True),
        ),
        ({}, {"promoted": {"promoted": False, "reason": "worse"}}, (True, False)),
    ],
)
def test_checks(manifest: dict[str, Any], training: dict[str, Any] | None, passed: tuple[bool, bool]) -> None:
    found = checks(Publication(manifest, (), training=training))
    assert (found["drift"][0], found["promotion"][0]) == passed
    assert all(values for _, values in found.values())


def test_a_version_without_new_rows_is_one_too(recipe: Recipe, started: Messages) -> None:
    run(recipe, plugins=[])
    result = run(recipe.model_copy(update={"seed": 9}))
    made = next(one for one in started() if one["method"] == "report_asset_materialization")
    assert result.manifest["incremental"]["shards"]["new"] == 0
    assert made["params"]["metadata"]["decision"]["raw_value"] == "predict: there are no new rows"
