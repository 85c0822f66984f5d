"""`rowsieve status` from files alone: while a run goes, after it died or failed, after it published."""

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from engine.cli.app import app
from engine.recipe.recipe import Recipe
from engine.runs.runner import run
from tests.data import recipe_for, spurious_table, write_shards
from tests.faults.killing import recipe_in
from tests.faults.processes import finish, run_recipe, until


def status(folder: Path, recipe: dict[str, Any]) -> dict[str, Any]:
    path = folder / "status.yaml"
    path.write_text(yaml.safe_dump(recipe))
    found = CliRunner().invoke(app, ["status", str(path), "--json"])
    assert found.exit_code == 0, found.output
    shown = CliRunner().invoke(app, ["status", str(path)])
    assert (shown.exit_code, found.output[:1]) == (0, "{")
    result: dict[str, Any] = json.loads(found.output) | {"shown": " ".join(shown.output.split())}
    return result


def test_a_run_that_goes_dies_and_goes_on(tmp_path: Path) -> None:
    recipe = recipe_in(tmp_path)
    before = status(tmp_path, recipe)
    assert not (before["running"])
    assert not (before["died"])
    assert not (before["published"])
    process = run_recipe(tmp_path, recipe)
    assert until(lambda: len(list(tmp_path.glob("out/store/*/part-*.json"))) >= 4, process)
    os.kill(process.pid or 0, signal.SIGSTOP)
    going = status(tmp_path, recipe)
    assert going["running"]
    assert f"process {process.pid} on" in going["shown"]
    assert sum(row["committed"] for row in going["operators"]) >= 4
    assert going["step"]["version"] == going["version"]
    os.kill(process.pid or 0, signal.SIGKILL)
    finish(process)
    died = status(tmp_path, recipe)
    assert died["died"]
    assert not died["running"]
    assert "run it again" in died["shown"]
    assert [row["committed"] for row in died["operators"]] == [row["committed"] for row in going["operators"]]
    assert finish(run_recipe(tmp_path, recipe)) == 0
    done = status(tmp_path, recipe)
    assert done["current"]
    assert not (done["running"])
    assert not (done["died"])
    assert not (done["last_error"])
    assert all(row["committed"] == row["total"] and row["eta_seconds"] is None for row in done["operators"])


@pytest.mark.faults
def test_the_last_error_stays_until_a_run_ends_well(tmp_path: Path) -> None:
    table = spurious_table()
    write_shards(tmp_path / "data", table.set_column(0, "a", [[float("inf")] * 10 + [1.0] * 230]))
    recipe = recipe_for(tmp_path / "data", tmp_path / "out", source={"on_error": "quarantine"})
    with pytest.raises(Exception, match="10 of 240"):
        run(Recipe.parse(recipe))
    failed = status(tmp_path, recipe)
    assert "10 of 240 rows are faulty" in failed["last_error"]["error"]
    assert failed["last_error"]["exit_code"] == 3
    assert "last error" in failed["shown"]
    assert not (failed["running"])
    assert not (failed["died"])
    assert {row["operator"]: row["quarantined"] for row in failed["operators"]}["ingest"] == 10
    recipe["source"]["max_error_rate"] = 0.5
    run(Recipe.parse(recipe))
    assert status(tmp_path, recipe)["last_error"] is None
