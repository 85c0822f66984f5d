"""A record in a shared output makes no run upload anything but a report."""

import json
from pathlib import Path

import pytest

from engine.publish.mlflow_outbox import RUNNING, Record, deliver, pending, pending_folder


class Client:
    """Keeps the names of uploaded files; every other call does nothing."""

    def __init__(self) -> None:
        self.uploaded: list[str] = []

    def log_artifact(self, run_id: str, path: str) -> None:
        self.uploaded.append(path)

    def __getattr__(self, name: str) -> object:
        return lambda *_, **__: None


@pytest.mark.parametrize("name", ["../secret.html", "reports/../../secret.html", "recipe.yaml", "reports/x"])
def test_only_reports_are_uploaded(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.publish.mlflow_outbox.check_artifacts", lambda *_: None)
    monkeypatch.setattr("engine.publish.mlflow_outbox._find", lambda *_: "r")
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
    assert client.uploaded == [str(output / "reports" / "v1.html")]
    refused = "".join(caplog.messages)
    assert repr(name) in refused
    assert repr("reports/link.html") in refused


def test_a_record_removes_no_other_file(tmp_path: Path) -> None:
    pending_folder(tmp_path).mkdir(parents=True)
    values = {"id": "../../CURRENT", "experiment": "e", "name": "n", "start_ms": 1, "status": RUNNING}
    (pending_folder(tmp_path) / "x.json").write_text(json.dumps(values))
    assert pending(tmp_path) == []
