"""MLflow as the record: what a run leaves there, and the way back from a version."""

import contextlib
import fcntl
import json
import os
import shutil
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from engine.cli.app import app
from engine.core.digests import digest
from engine.core.errors import InputError
from engine.plan.planner import make_plan
from engine.publish.lineage import sync_records, trace
from engine.publish.mlflow_outbox import Record, deliver, pending
from engine.publish.results import RunResult
from engine.publish.tracking import by_metric_key, client, has_records, metric_key
from engine.runs.plugins.tracking import recorded_run
from engine.runs.runner import run
from tests.data import small_recipe


@pytest.fixture(scope="module")
def tracked(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, RunResult]:
    """A recorded run; making the database takes seconds, so the tests share it."""
    folder = tmp_path_factory.mktemp("tracked")
    recipe = small_recipe(folder, tracking={"enabled": True}, report={"enabled": True})
    return folder, run(recipe)


def test_a_run_is_recorded(tracked: tuple[Path, RunResult]) -> None:
    folder, result = tracked
    found = client(folder / "out").get_run(str(result.mlflow_run_id))
    assert found.info.status == "FINISHED"
    assert found.data.params["probe.l2"] == "0.05"
    assert found.data.params["rows"] == "240"
    assert found.data.metrics["groups.groups"] >= 2
    assert found.data.metrics["gradients.shards_computed"] == 2
    paces = {f"{one.name}.rows_per_worker_second": one.rows_per_worker_second for one in result.operators}
    assert all(pace > 0 for pace in paces.values())
    assert {name: found.data.metrics[name] for name in paces} == pytest.approx(paces)
    assert any(name.startswith("groups.silhouette") for name in found.data.metrics)
    (entry,) = found.inputs.dataset_inputs
    assert entry.dataset.name == "small"
    assert len(json.loads(entry.dataset.source)["files"]) == 2
    names = {entry.path for entry in client(folder / "out").list_artifacts(str(result.mlflow_run_id))}
    assert {"recipe.yaml", "plan.json", "manifest.json"} <= names
    assert any(name.endswith(".html") for name in names)


def test_a_repetition_that_adds_nothing_is_not_recorded_again(
    tracked: tuple[Path, RunResult], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, first = tracked
    recipe = small_recipe(folder, tracking={"enabled": True}, report={"enabled": True})
    assert run(recipe).mlflow_run_id == first.mlflow_run_id
    record = json.loads((folder / "out" / "runs" / f"{first.version}.json").read_text("utf-8"))
    assert record["mlflow_run_id"] == first.mlflow_run_id
    elsewhere = f"sqlite:///{folder / 'other.db'}"
    assert recorded_run(make_plan(recipe), digest(elsewhere)) is None  # that server has no such run
    assert recorded_run(make_plan(recipe), record["mlflow_server"]) == first.mlflow_run_id


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


def test_a_named_database_counts_once_it_exists(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its runs and models keep versions from `prune`, also if the output has no database of its own."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/elsewhere.db")
    assert not has_records(tmp_path / "out")
    (tmp_path / "elsewhere.db").touch()
    assert has_records(tmp_path / "out")


def test_lineage_takes_the_same_names_as_the_other_commands(tracked: tuple[Path, RunResult]) -> None:
    folder, result = tracked
    found = trace(result.version, folder / "out")
    assert trace(f"{folder / 'out'}@{result.version}", None) == found
    assert trace(str(folder / "out"), None) == found
    with pytest.raises(InputError, match=f"Did you mean '{result.version}'"):
        trace(f"{folder / 'out'}@{result.version[:-1]}x", None)
    with pytest.raises(InputError, match="Give OUTPUT@VERSION"):
        trace(str(folder / "nothing"), None)


def test_an_unknown_version_names_the_nearest(tracked: tuple[Path, RunResult]) -> None:
    folder, result = tracked
    with pytest.raises(InputError, match=f"Did you mean '{result.version}'"):
        trace(result.version[:-1] + "x", folder / "out")


def test_a_failed_run_is_recorded_as_failed(
    tracked: tuple[Path, RunResult], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, _ = tracked
    recipe = small_recipe(folder, tracking={"enabled": True, "experiment": "failing"}, seed=4)
    monkeypatch.setattr("engine.runs.runner.make_current", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        run(recipe)
    mlflow_client = client(folder / "out")
    experiment = mlflow_client.get_experiment_by_name("failing")
    (found,) = mlflow_client.search_runs([experiment.experiment_id])
    assert found.info.status == "FAILED"


@pytest.mark.slow
def test_a_server_that_does_not_answer(
    tracked: tuple[Path, RunResult],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The run goes on; its record waits, and is delivered once, later."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://user:hunter2@127.0.0.1:9")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    recipe = small_recipe(tmp_path, tracking={"enabled": True})
    with caplog.at_level("WARNING", "rowsieve"):
        result = run(recipe)
    assert result.mlflow_run_id is None
    (warning,) = (message for message in caplog.messages if not message.startswith("likely leak"))
    assert "rowsieve lineage --sync" in warning
    assert "hunter2" not in warning + str(read_everything(tmp_path / "out"))
    (waiting,) = pending(tmp_path / "out")
    assert waiting.status == "FINISHED"
    with pytest.raises(InputError, match="MLFLOW_TRACKING_URI"):
        sync_records(None, tmp_path / "out")
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    shutil.copy(tracked[0] / "out" / "mlflow.db", tmp_path / "out" / "mlflow.db")
    with closing(sqlite3.connect(tmp_path / "out" / "mlflow.db")) as connection, connection:
        place = (tmp_path / "out" / "mlartifacts").as_uri()  # the copy may write into its own output only
        connection.execute("update experiments set artifact_location = ?", [place])
    waiting.status = "RUNNING"  # as if it had been killed
    waiting.id = "0" * 32
    waiting.write(tmp_path / "out")
    command = ["lineage", result.version, "--output", str(tmp_path / "out"), "--sync"]
    assert "2 records delivered" in CliRunner().invoke(app, command).output
    assert "No record waits" in CliRunner().invoke(app, command).output
    found = [entry["status"] for entry in trace(result.version, tmp_path / "out")["runs"]]
    assert sorted(found) == ["FINISHED", "FINISHED", "KILLED"]  # one was in the database that was copied


class Dying:
    """A client whose server is gone after so many calls."""

    def __init__(self, real: Any, calls: int) -> None:
        self._real, self._left = real, calls

    def __getattr__(self, name: str) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            if self._left <= 0:
                raise ConnectionError("gone")
            self._left -= 1
            return getattr(self._real, name)(*args, **kwargs)

        return call


def test_a_server_that_dies_at_any_call(tracked: tuple[Path, RunResult]) -> None:
    """Delivered again and again: one run, each value once."""
    output = tracked[0] / "out"
    record = Record("a" * 32, "dying", "name", 1000, params={"k": "v"}, metrics={"m": 1.5})
    record.dataset = {"name": "d", "digest": "e", "source_type": "rowsieve", "source": "{}"}
    record.texts, record.status, record.end_ms = {"plan.json": "{}"}, "FINISHED", 2000
    real = client(output)
    for calls in range(12):
        fresh = replace(record, run_id=None)  # what the file says if the process died, too
        with contextlib.suppress(ConnectionError):
            deliver(fresh, Dying(real, calls), output)
    deliver(replace(record), real, output)
    (found,) = real.search_runs([real.get_experiment_by_name("dying").experiment_id])
    assert (found.info.status, found.data.params, found.data.metrics) == ("FINISHED", {"k": "v"}, {"m": 1.5})
    assert len(found.inputs.dataset_inputs) == 1
    assert len(real.get_metric_history(found.info.run_id, "m")) == 1


def read_everything(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


def test_two_processes_do_not_create_the_database_at_once(tmp_path: Path) -> None:
    """A run and its training did, on the first night, and one found the tables of the other half made."""
    waiting = threading.Thread(target=client, args=(tmp_path,))
    with open_folder(tmp_path) as other:
        fcntl.flock(other, fcntl.LOCK_EX)  # as another process that creates it
        waiting.start()
        waiting.join(1)
        assert waiting.is_alive()
        assert not (tmp_path / "mlflow.db").exists()
    waiting.join()
    assert (tmp_path / "mlflow.db").exists()


def test_a_process_that_hangs_does_not_stop_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.publish.tracking.CREATION_SECONDS", 0.1)
    with open_folder(tmp_path) as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        client(tmp_path)
    assert (tmp_path / "mlflow.db").exists()


@contextlib.contextmanager
def open_folder(folder: Path) -> Iterator[int]:
    found = os.open(folder, os.O_RDONLY)
    try:
        yield found
    finally:
        os.close(found)


def test_every_class_can_be_in_the_name_of_a_metric(tracked: tuple[Path, RunResult]) -> None:
    """One class called so kept the whole record from MLflow."""
    names = ["https://example.org/x", "../../etc", "a/", "a//b", "./a", "a/b", "far: 5 %"]
    keys = {metric_key(f"cues.left_out_rows.{name}") for name in names}
    server = client(tracked[0] / "out")
    found = server.create_run(server.create_experiment("names of metrics")).info.run_id
    for key in keys:
        server.log_metric(found, key, 3.0)
    assert {*server.get_run(found).data.metrics} == keys


def test_metrics_of_two_classes_have_two_names() -> None:
    """The last of the classes 狗 and 猫 was the only one that MLflow had."""
    values = {"rows.狗": 1.0, "rows._": 2.0, "rows.猫": 3.0, "Rows._": 4.0, "rows.a?b": 5.0, "rows.a b": 6.0}
    assert by_metric_key(values) == {
        "Rows._": 4.0,
        "rows.a b": 6.0,
        "rows.a_b": 5.0,
        "rows.__2": 2.0,
        "rows.__3": 1.0,
        "rows.__4": 3.0,
    }


def test_warnings_of_a_state_that_is_not_there(tracked: tuple[Path, RunResult]) -> None:
    plan = make_plan(small_recipe(tracked[0]))
    for file in (tracked[0] / "out").rglob("classes.json"):
        file.unlink()
    assert any("its warnings cannot be read" in text for text in plan.warnings())
