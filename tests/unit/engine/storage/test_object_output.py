"""Whole runs whose output lies on S3, beside the same run on a disk: the same bytes, the same resume."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from connectors.storage import ObjectPath, Place
from engine.core.errors import InputError
from engine.core.output_layout import output_of
from engine.execution.local_executor import LocalExecutor
from engine.execution.quarantine import read_quarantine
from engine.plan.planner import make_plan
from engine.publish.lineage import sync_records, trace
from engine.publish.mlflow_outbox import pending
from engine.publish.results import RunResult
from engine.publish.tracking import client
from engine.recipe.recipe import Recipe
from engine.recipe.trainers import ErmParams
from engine.runs.runner import run
from engine.runs.status import status_of
from engine.storage.withdrawals import current_version
from engine.training.data.version import open_version
from engine.training.retrain import RetrainOptions, retrain
from engine.training.training_run import TrainSpec, train
from tests.data import recipe_for, spurious_table, write_shards
from tests.s3 import SECRET, USER, S3Server

CHEAP: dict[str, dict[str, Any]] = {
    "groups": {"method": "kmeans", "space": "features", "k": 2, "min_rows": 0},
    "weights": {"method": "uniform", "trust": "all"},
    "split": {"method": "random"},
}
"""The whole chain is for the slow tests."""


def recipe_at(folder: Path, output: str, operators: dict[str, Any] | None = None) -> Recipe:
    """A recipe over three shards, with a faulty row."""
    if not (folder / "data").exists():
        table = spurious_table()
        column = [float("inf"), *table.column("a").to_pylist()[1:]]
        write_shards(folder / "data", table.set_column(0, "a", pa.array(column)), 3)
    recipe = recipe_for(folder / "data", output, source={"on_error": "quarantine"})  # type: ignore[arg-type]
    return Recipe.parse(recipe | {"operators": operators or CHEAP, "report": {}})


def files_of(version: Place) -> dict[str, bytes]:
    """Everything a version holds."""
    if isinstance(version, ObjectPath):
        return {path.key[len(version.key) + 1 :]: path.read_bytes() for path in version.below()}
    return {str(p.relative_to(version)): p.read_bytes() for p in version.rglob("*") if p.is_file()}


@pytest.fixture(scope="module")
def on_disk(tmp_path_factory: pytest.TempPathFactory) -> RunResult:
    """The same run on a disk; its recipe's folder is ``path.parents[2]``."""
    folder = tmp_path_factory.mktemp("disk")
    return run(recipe_at(folder, str(folder / "out")))


def folder_of(on_disk: RunResult) -> Path:
    """Return the output folder of a run."""
    return Path(str(on_disk.path)).parents[2]


def test_the_same_bytes_as_on_a_disk_and_nothing_twice(s3: S3Server, on_disk: RunResult) -> None:
    uri = s3.uri(s3.bucket(), "deep/er")
    recipe = recipe_at(folder_of(on_disk), uri)
    result = run(recipe)
    output = output_of(uri)
    assert files_of(result.path) == files_of(on_disk.path)
    assert current_version(output) == on_disk.version
    assert b"<html" in (output / "reports" / f"{result.version}.html").read_bytes()
    again = run(recipe)
    assert again.reused
    assert [operator.computed for operator in again.operators] == [0] * len(again.operators)
    status = status_of(make_plan(recipe))
    assert (status["published"], status["current"], status["running"]) == (True, True, False)
    assert open_version(uri).name == result.version
    assert open_version(f"{uri}@{result.version}").folder == result.path
    assert trace(result.version, output)["content"] == on_disk.manifest["content"]
    assert read_quarantine(make_plan(recipe)).num_rows == 1
    names = {path.key for path in output.below()}
    assert not [name for name in names if name.endswith(".tmp") or ("/.lease/" in name and ".d/" in name)]
    contents = [path.read_bytes() for path in output.below()]
    assert not [text for text in contents if SECRET.encode() in text or USER.encode() in text]


@pytest.mark.slow
def test_a_right_that_is_taken_away_midway_stops_it_and_it_goes_on_later(
    s3: S3Server, on_disk: RunResult
) -> None:
    uri = s3.uri(s3.bucket(), "out")
    recipe, output = recipe_at(folder_of(on_disk), uri), output_of(uri)
    seen: list[str] = []

    def denied(method: str, path: str) -> int | None:
        seen.append(path) if method == "PUT" and "/store/" in path else None
        return 403 if method == "PUT" and len(seen) > 9 else None

    with (
        s3.faults.answering(denied),
        pytest.raises(InputError, match=r"object store refuses: .*continues from there"),
    ):
        run(recipe)
    with s3.faults.answering(lambda method, path: 403), pytest.raises(InputError, match="permission denied"):
        run(recipe)
    assert current_version(output) is None
    store = output / "store"
    assert isinstance(store, ObjectPath)
    kept = {path.key: path.stat().st_mtime for path in store.below() if path.name.endswith(".json")}
    assert kept
    result = run(recipe)
    assert files_of(result.path) == files_of(on_disk.path)
    assert sum(operator.reused for operator in result.operators) > 0
    assert {key: ObjectPath(store.root, key).stat().st_mtime for key in kept} == kept


@pytest.mark.slow
def test_a_busy_store_only_slows_a_run_down(s3: S3Server, on_disk: RunResult) -> None:
    n_requests = [0]

    def now_and_then(method: str, path: str) -> int | None:
        n_requests[0] += 1
        return 503 if n_requests[0] % 23 == 0 else None

    recipe = recipe_at(folder_of(on_disk), s3.uri(s3.bucket(), "out"))
    with s3.faults.answering(now_and_then):
        result = run(recipe)
    assert files_of(result.path) == files_of(on_disk.path)


@pytest.mark.slow
def test_a_record_for_mlflow_waits_where_no_server_is_named(
    s3: S3Server, on_disk: RunResult, caplog: pytest.LogCaptureFixture
) -> None:
    uri = s3.uri(s3.bucket(), "out")
    recipe = recipe_at(folder_of(on_disk), uri)
    recipe = recipe.model_copy(update={"tracking": recipe.tracking.model_copy(update={"enabled": True})})
    run(recipe)
    assert [record.status for record in pending(output_of(uri))] == ["FINISHED"]
    assert "MLFLOW_TRACKING_URI" in caplog.text
    assert SECRET not in caplog.text
    with pytest.raises(InputError, match="MLFLOW_TRACKING_URI"):
        sync_records(None, output_of(uri))


@pytest.mark.slow
def test_a_model_is_trained_on_a_version_there(s3: S3Server, on_disk: RunResult) -> None:
    uri = s3.uri(s3.bucket(), "out")
    run(recipe_at(folder_of(on_disk), uri))
    here, there = (
        train(TrainSpec(place, ErmParams(epochs=2)), LocalExecutor())
        for place in (Path(str(on_disk.path)).parents[1], uri)
    )
    assert there.evaluations == here.evaluations
    assert train(TrainSpec(uri, ErmParams(epochs=2)), LocalExecutor()).reused
    assert (output_of(uri) / "models" / here.folder.name / "ensemble.json").exists()


@pytest.mark.slow
def test_a_model_trained_on_a_version_there_is_registered(
    s3: S3Server, on_disk: RunResult, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    monkeypatch.chdir(tmp_path)
    uri = s3.uri(s3.bucket(), "out")
    run(recipe_at(folder_of(on_disk), uri))
    found = retrain(TrainSpec(uri, ErmParams(epochs=1)), LocalExecutor(), RetrainOptions(name="on-s3"))
    assert found.registered is not None
    mlflow_run = client(output_of(uri)).get_run(found.registered.run_id)
    assert mlflow_run.info.status == "FINISHED"


def test_a_registration_that_fails_leaves_no_running_mlflow_run(
    on_disk: RunResult, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    monkeypatch.chdir(tmp_path)

    def fails(*arguments: Any) -> None:
        raise RuntimeError("the disk is full")

    monkeypatch.setattr("engine.training.registration.signature", fails)
    spec = TrainSpec(Path(str(on_disk.path)).parents[1], ErmParams(epochs=1))
    with pytest.raises(RuntimeError, match="disk is full"):
        retrain(spec, LocalExecutor(), RetrainOptions(name="broken"))
    found = client(output_of(str(spec.dataset)))
    experiments = [experiment.experiment_id for experiment in found.search_experiments()]
    assert [one.info.status for one in found.search_runs(experiments)] == ["FAILED"]
