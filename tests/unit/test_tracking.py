"""MLflow as the record: what a run leaves there, and the way back from a version."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from engine.cli.app import app
from engine.errors import InputError
from engine.lineage import trace
from engine.results import RunResult
from engine.runner import run
from engine.tracking import client
from tests.data import small_recipe


@pytest.fixture(scope="module")
def tracked(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, RunResult]:
    """A recorded run; making the database takes seconds, so the tests share it."""
    folder = tmp_path_factory.mktemp("tracked")
    recipe = small_recipe(folder, tracking={"enabled": True})
    return folder, run(recipe)


def test_a_run_is_recorded(tracked: tuple[Path, RunResult]) -> None:
    folder, result = tracked
    found = client(folder / "out").get_run(str(result.mlflow_run_id))
    assert found.info.status == "FINISHED"
    assert found.data.params["probe.l2"] == "0.05"
    assert found.data.params["rows"] == "240"
    assert found.data.metrics["groups.groups"] >= 2
    assert found.data.metrics["gradients.shards_computed"] == 4
    paces = {f"{one.name}.rows_per_worker_second": one.rows_per_worker_second for one in result.operators}
    assert all(pace > 0 for pace in paces.values())
    assert {name: found.data.metrics[name] for name in paces} == pytest.approx(paces)
    assert any(name.startswith("groups.silhouette") for name in found.data.metrics)
    (entry,) = found.inputs.dataset_inputs
    assert entry.dataset.name == "small"
    assert len(json.loads(entry.dataset.source)["files"]) == 4
    names = {entry.path for entry in client(folder / "out").list_artifacts(str(result.mlflow_run_id))}
    assert {"recipe.yaml", "plan.json", "manifest.json"} <= names
    assert any(name.endswith(".html") for name in names)


def test_lineage_walks_back_to_the_source(tracked: tuple[Path, RunResult]) -> None:
    folder, result = tracked
    found = trace(result.version, folder / "out")
    assert found == trace(str(result.path), None)
    assert [entry["run_id"] for entry in found["runs"]] == [result.mlflow_run_id]
    assert set(found["source"]["files"]) == {str(path) for path in (folder / "data").iterdir()}
    shown = CliRunner().invoke(app, ["lineage", str(result.path)])
    assert shown.exit_code == 0
    joined = "".join(shown.output.split())
    assert result.version in joined
    assert str(result.mlflow_run_id) in joined
    assert "s0.parquet" in joined


def test_an_unknown_version_names_the_nearest(tracked: tuple[Path, RunResult]) -> None:
    folder, result = tracked
    with pytest.raises(InputError, match=f"Did you mean '{result.version}'"):
        trace(result.version[:-1] + "x", folder / "out")


def test_a_failed_run_is_recorded_as_failed(
    tracked: tuple[Path, RunResult], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, _ = tracked
    recipe = small_recipe(folder, tracking={"enabled": True, "experiment": "failing"}, seed=4)
    monkeypatch.setattr("engine.runner.point_to", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        run(recipe)
    mlflow_client = client(folder / "out")
    experiment = mlflow_client.get_experiment_by_name("failing")
    (found,) = mlflow_client.search_runs([experiment.experiment_id])
    assert found.info.status == "FAILED"


def test_a_server_that_does_not_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with pytest.raises(InputError, match="MLFLOW_TRACKING_URI"):
        run(small_recipe(tmp_path, tracking={"enabled": True}))
