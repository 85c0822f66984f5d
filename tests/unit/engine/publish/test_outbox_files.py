"""A record in a shared output makes no run upload anything but a report."""

import json
import os
from pathlib import Path

import pytest

from engine.publish.mlflow_outbox import RUNNING, Record, deliver, pending, pending_folder


class Client:
    """Keeps the names of uploaded files; every other call does nothing."""

    def __init__(self) -> None:
        self.uploaded: list[str] = []

    def log_artifact(self, run_id: str, path: str, name: str | None = None) -> None:
        self.uploaded.append(f"{Path(path).name}: {Path(path).read_text()}")

    def __getattr__(self, name: str) -> object:
        return lambda *_, **__: None


@pytest.mark.parametrize("name", ["../secret.html", "reports/../../secret.html", "recipe.yaml", "reports/x"])
def test_only_reports_are_uploaded(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.publish.mlflow_outbox.check_artifacts", lambda *_: None)
    monkeypatch.setattr("engine.publish.mlflow_outbox._find_run", lambda *_: "r")
    output = tmp_path / "out"
    (output / "reports").mkdir(parents=True)
    for place in (output / "reports" / "v1.html", output / "reports" / "x", tmp_path / "secret.html"):
        place.write_text("text")
    (output / "recipe.yaml").write_text("text")
    (output / "reports" / "link.html").symlink_to(tmp_path / "secret.html")
    record = Record("a" * 32, "e", "n", 1, files=[name, "reports/link.html", "reports/v1.html"])
    client = Client()
    with caplog.at_level("WARNING", "rowsieve"):
        deliver(record, client, output)  # type: ignore[arg-type]
    assert client.uploaded == ["v1.html: text"]
    refused = "".join(caplog.messages)
    assert repr(name) in refused
    assert repr("reports/link.html") in refused


def test_a_record_removes_no_other_file(tmp_path: Path) -> None:
    pending_folder(tmp_path).mkdir(parents=True)
    values = {"id": "../../CURRENT", "experiment": "e", "name": "n", "start_ms": 1, "status": RUNNING}
    (pending_folder(tmp_path) / "x.json").write_text(json.dumps(values))
    assert pending(tmp_path) == []


def test_a_link_that_is_swapped_in_is_not_uploaded(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The report, and then its folder, become links after the check of their paths."""
    monkeypatch.setattr("engine.publish.mlflow_outbox.check_artifacts", lambda *_: None)
    monkeypatch.setattr("engine.publish.mlflow_outbox._find_run", lambda *_: "r")
    monkeypatch.setattr("engine.publish.mlflow_outbox._is_report", lambda *_: True)
    reports, elsewhere = tmp_path / "out" / "reports", tmp_path / "elsewhere"
    reports.mkdir(parents=True)
    elsewhere.mkdir()
    (elsewhere / "v1.html").write_text("secret")
    client = Client()
    record = Record("a" * 32, "e", "n", 1, files=["reports/v1.html"])
    (reports / "v1.html").symlink_to(elsewhere / "v1.html")
    deliver(record, client, tmp_path / "out")  # type: ignore[arg-type]
    (reports / "v1.html").unlink()
    os.mkfifo(reports / "v1.html")
    deliver(record, client, tmp_path / "out")  # type: ignore[arg-type]
    (reports / "v1.html").unlink()
    reports.rmdir()
    reports.symlink_to(elsewhere)
    deliver(record, client, tmp_path / "out")  # type: ignore[arg-type]
    assert client.uploaded == []
    assert "".join(caplog.messages).count("reports/v1.html") == 3


def test_a_pipe_or_a_link_is_no_record(tmp_path: Path) -> None:
    Record("a" * 32, "e", "n", 1).write(tmp_path)
    assert len(pending(tmp_path)) == 1
    (pending_folder(tmp_path) / f"{'a' * 32}.json").rename(tmp_path / "elsewhere.json")
    (pending_folder(tmp_path) / f"{'a' * 32}.json").symlink_to(tmp_path / "elsewhere.json")
    os.mkfifo(pending_folder(tmp_path) / f"{'b' * 32}.json")
    assert pending(tmp_path) == []
