"""The MLflow run of a training: opened before it, fed while it goes on, and ended whatever happens."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import engine
from engine.cli import retrain as command
from engine.core.errors import InputError
from engine.core.events import Event, silent
from engine.execution.local_executor import LocalExecutor
from engine.publish.mlflow_outbox import Record, pending
from engine.publish.outbox_sync import sync
from engine.publish.tracking import client
from engine.recipe.trainers import parse_params
from engine.storage.lease import hold_lease
from engine.training import live_run
from engine.training.fit import job as job_module
from engine.training.fit import progress
from engine.training.fit.callbacks import EpochEnd
from engine.training.live_run import EXPERIMENT, LiveRun, curve_values
from engine.training.retrain import RetrainOptions, RetrainResult, retrain
from engine.training.training_run import TrainSpec
from operators.base import OperatorError
from tests.data import small_recipe

EPOCHS = 4


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("live")
    engine.run(small_recipe(folder, tracking={"enabled": True}))
    return folder / "out"


@pytest.fixture(autouse=True)
def _quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.setattr(live_run, "SEND_SECONDS", 0.0)
    monkeypatch.setattr(progress, "READ_SECONDS", 0.02)
    monkeypatch.setattr(progress, "WRITE_SECONDS", 0.0)


class Spy:
    """Calls a function after every epoch."""

    def __init__(self, seen: Callable[[EpochEnd], None]) -> None:
        self.on_epoch = seen

    def on_step(self, event: Any) -> None:
        pass

    def on_phase_end(self, event: Any) -> None:
        pass


def trained(
    out: Path, monkeypatch: pytest.MonkeyPatch, seed: int, seen: Callable[[EpochEnd], None], **options: Any
) -> RetrainResult:
    """A training of its own seed, so that it is not found again."""
    monkeypatch.setattr(job_module, "installed_callbacks", lambda: [Spy(seen)])
    params = parse_params({"trainer": "gdro", "epochs": EPOCHS, "batch_size": 64})
    given = RetrainOptions(**{"reference": "none", **options})
    return retrain(TrainSpec(str(out), params, seed), LocalExecutor(), given)


def runs(out: Path) -> dict[str, Any]:
    found = client(out)
    experiment = found.get_experiment_by_name(EXPERIMENT)
    if experiment is None:
        return {}
    return {run.info.run_id: run for run in found.search_runs([experiment.experiment_id])}


def history(out: Path, run_id: str, name: str = "loss") -> list[tuple[int, float]]:
    return [(value.step, value.value) for value in client(out).get_metric_history(run_id, name)]


def test_epochs_are_logged_while_the_training_goes_on(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before, seen = set(runs(out)), []

    def look(event: EpochEnd) -> None:
        if event.epoch != 3:
            return
        until = time.monotonic() + 30
        while time.monotonic() < until and not seen:
            ((run_id, run),) = [(key, run) for key, run in runs(out).items() if key not in before]
            seen.extend((run.info.status, step) for step, _ in history(out, run_id))
            time.sleep(0.05)

    found = trained(out, monkeypatch, 1, look)
    assert ("RUNNING", 0) in seen
    run = runs(out)[str(found.run_id)]
    assert run.info.status == "FINISHED"
    curve = [note["loss"] for note in found.result.record["curve"]]
    assert history(out, str(found.run_id)) == list(enumerate(curve))
    assert run.data.params["trainer"] == "gdro"
    assert run.data.metrics["validation.accuracy"] == found.result.evaluations["validation"].accuracy
    (used,) = run.inputs.dataset_inputs
    assert (used.dataset.digest, used.tags[0].value) == (found.result.version.manifest["content"], "training")
    assert {"training.json", "evaluation.json", "report.html"} <= {
        entry.path for entry in client(out).list_artifacts(str(found.run_id))
    }
    assert pending(out) == []
    assert not list((out / "models").glob("*/.progress*"))


@pytest.mark.parametrize(
    ("error", "status"),
    [(OperatorError("the loss is not a number"), "FAILED"), (KeyboardInterrupt(), "KILLED")],
)
def test_a_training_that_ends_early_leaves_no_running_run(
    out: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException, status: str
) -> None:
    before = set(runs(out))

    def fail(event: EpochEnd) -> None:
        if event.epoch == 2:
            raise error

    with pytest.raises((KeyboardInterrupt, InputError)):
        trained(out, monkeypatch, 2 if status == "FAILED" else 3, fail)
    (run,) = [run for key, run in runs(out).items() if key not in before]
    assert run.info.status == status
    assert [step for step, _ in history(out, run.info.run_id)] == [0]
    assert pending(out) == []


def test_a_registered_model_has_the_run_that_was_opened(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = set(runs(out))
    found = trained(out, monkeypatch, 4, lambda _: None, name="live")
    assert found.registered
    assert set(runs(out)) - before == {found.run_id} == {found.registered.run_id}
    assert [step for step, _ in history(out, str(found.run_id))] == list(range(EPOCHS))
    assert runs(out)[str(found.run_id)].info.status == "FINISHED"


def test_a_server_that_is_away_gets_the_curve_later(
    out: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://user:hunter2@127.0.0.1:9")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with caplog.at_level("WARNING", "rowsieve"):
        found = trained(out, monkeypatch, 5, lambda _: None)
    assert found.run_id is None
    (warning,) = [text for text in caplog.messages if "MLflow" in text]
    assert "The training goes on; its record waits" in warning
    assert "hunter2" not in warning
    (waiting,) = pending(out)
    assert waiting.status == "FINISHED"
    assert [step for name, _, _, step in waiting.series if name == "loss"] == list(range(EPOCHS))
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    before = set(runs(out))
    assert sync(client(out), out) == (1, 0, 0)
    ((run_id, run),) = [(key, run) for key, run in runs(out).items() if key not in before]
    assert run.info.status == "FINISHED"
    curve = [note["loss"] for note in found.result.record["curve"]]
    assert history(out, run_id) == list(enumerate(curve))


def test_the_run_of_a_killed_process_is_continued_or_ended(
    out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = trained(out, monkeypatch, 6, lambda _: None)
    folder = found.result.folder
    lease = f"models/{folder.name}"
    record = Record("a" * 32, EXPERIMENT, "gdro", 1, lease=lease, series=[("loss", 0.5, 1, 0)])
    record.write(out)
    with hold_lease(folder, "another training"):
        assert sync(client(out), out, has_lease=True) == (0, 1, 0)  # it goes on
    (folder / "training.json").unlink()
    again = trained(out, monkeypatch, 6, lambda _: None)
    assert pending(out) == []
    tags = runs(out)[str(again.run_id)].data.tags
    assert tags["rowsieve.record"] == "a" * 32
    replace(record, id="b" * 32).write(out)
    assert sync(client(out), out) == (1, 0, 0)
    killed = [run for run in runs(out).values() if run.data.tags.get("rowsieve.record") == "b" * 32]
    assert [run.info.status for run in killed] == ["KILLED"]


def test_epochs_that_a_killed_process_had_not_sent_are_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process that goes on from the checkpoint of epoch 3 is told of the epochs after it only."""
    sent: list[int] = []
    monkeypatch.setattr(live_run, "client", lambda output: None)
    monkeypatch.setattr(live_run, "deliver", lambda record, *_: sent.extend(s for *_, s in record.series))
    live = LiveRun(tmp_path, Record("a" * 32, EXPERIMENT, "gdro", 1, series=[("loss", 0.5, 1, 1)]))
    curve = [{"phase": 0, "epoch": epoch, "loss": 1 / epoch} for epoch in range(1, 6)]
    live.add([EpochEnd(1, 4, 0.25, number=4, total=5)])
    live.complete(curve, {}, {})
    assert sorted(sent) == [0, 1, 2, 3, 4]


def test_a_server_that_does_not_answer_holds_a_training_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    now, calls = [0.0], []

    def hang(output: Path) -> None:
        calls.append(now[0])
        now[0] += 30
        raise TimeoutError("no answer")

    monkeypatch.setattr(live_run, "client", hang)
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    live = LiveRun(tmp_path, Record("a" * 32, EXPERIMENT, "gdro", 1))
    writes: list[float] = []
    for number in range(1, 200):
        live.add([EpochEnd(1, number, 0.25, number=number, total=199)])
        now[0] += 1
        file = tmp_path / "runs" / "pending" / f"{'a' * 32}.json"
        writes += [file.stat().st_mtime_ns] if file.stat().st_mtime_ns not in writes else []
    live.close("FINISHED")
    assert calls == [0.0]
    assert len(writes) < 6, "not after every epoch"
    (waiting,) = pending(tmp_path)
    assert (waiting.status, len(waiting.series)) == ("FINISHED", 199)
    (warning,) = caplog.messages
    assert "The training goes on; its record waits" in warning


def test_no_run_is_opened_where_it_is_not_wanted(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = set(runs(out))
    assert trained(out, monkeypatch, 7, lambda _: None, track=False).run_id is None
    assert trained(out, monkeypatch, 7, lambda _: None).run_id is None  # found again: it has no epochs
    assert set(runs(out)) == before


def test_the_winner_of_a_search_has_a_run_with_its_curve(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[Event] = []
    params = parse_params({"trainer": "gdro", "epochs": 2, "batch_size": 64})
    options = RetrainOptions(grid={"lr": [0.01, 0.1]}, reference="none")
    found = retrain(TrainSpec(str(out), params, 8), LocalExecutor(), options, heard.append)
    assert [step for step, _ in history(out, str(found.run_id))] == [0, 1]
    counted = [(event.kind, event.rows, event.total_rows) for event in heard if event.operator == "search"]
    assert counted == [("start", 0, 2), ("progress", 1, 2), ("progress", 2, 2), ("finish", 2, 2)]


def test_a_listener_hears_of_the_epochs(out: Path) -> None:
    heard: list[Event] = []
    params = parse_params({"trainer": "gdro", "epochs": 3, "batch_size": 64})
    options = RetrainOptions(reference="none", track=False)
    retrain(TrainSpec(str(out), params, 9), LocalExecutor(), options, heard.append)
    assert {event.unit for event in heard} == {"epochs"}
    assert (heard[0].kind, heard[0].rows, heard[0].total_rows) == ("start", 0, 3)
    assert (heard[-1].kind, heard[-1].rows, heard[-1].total_rows) == ("finish", 3, 3)


@pytest.mark.parametrize("text", ["[", "7", '[{"phase": "x"}]', "[" * 5000, '[{"number": 1}]'])
def test_a_forged_progress_file_has_no_epochs(tmp_path: Path, text: str) -> None:
    heard: list[Any] = []
    path = tmp_path / progress.PROGRESS
    path.write_text(text)
    progress.ProgressReader(path, tmp_path, heard.append).read()
    path.unlink()
    target = tmp_path / "elsewhere.json"
    target.write_text('[{"phase": 1, "epoch": 1, "loss": 0.5, "number": 1, "total": 1}]')
    path.symlink_to(target)
    progress.ProgressReader(path, tmp_path, heard.append).read()
    assert heard == []
    target.rename(path)
    progress.ProgressReader(path, tmp_path, heard.append).read()
    assert heard == [[EpochEnd(1, 1, 0.5, number=1, total=1)]]


def test_curves_have_a_name_for_each_figure() -> None:
    note = {"phase": 0, "epoch": 1, "loss": 0.5, "accuracy": 0.9, "worst_group_accuracy": None}
    assert curve_values([note], 7) == [("loss", 0.5, 7, 0), ("epoch.accuracy", 0.9, 7, 0)]


@pytest.mark.parametrize(("on_terminal", "as_json"), [(False, False), (True, True), (False, True)])
def test_no_bar_beside_json_or_without_a_terminal(
    monkeypatch: pytest.MonkeyPatch, on_terminal: bool, as_json: bool
) -> None:
    monkeypatch.setattr(command, "sys", SimpleNamespace(stderr=SimpleNamespace(isatty=lambda: on_terminal)))
    with command.progress_listener(as_json) as listener:
        assert listener is silent


def test_a_bar_on_a_terminal_says_how_long_it_takes() -> None:
    screen = pty_text(
        "from engine.cli.retrain import progress_listener\n"
        "from engine.core.events import Event\n"
        "import time\n"
        "with progress_listener(False) as listener:\n"
        "    for done in range(5):\n"
        "        listener(Event('progress', 'train', done, 8, unit='epochs'))\n"
        "        time.sleep(0.3)\n"
    )
    assert "4/8 epochs" in screen
    assert re.search(r"4/8 epochs 0:00:0\d 00:0\d", screen)


def pty_text(code: str) -> str:
    """Return the text that a program writes to its terminal, without escape sequences."""
    reader, writer = os.openpty()
    subprocess.run([sys.executable, "-c", code], stderr=writer, stdout=subprocess.DEVNULL, check=True)
    os.close(writer)
    text = b""
    with suppress(OSError):  # the end of a terminal's output is an error on Linux
        while part := os.read(reader, 65536):
            text += part
    os.close(reader)
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text.decode(errors="replace"))
