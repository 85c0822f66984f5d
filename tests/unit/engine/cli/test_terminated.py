"""Commands that take long end in order on SIGTERM, as a pod that is moved or a cancelled job gets it."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any, NoReturn

import pytest
from typer.testing import CliRunner

from engine.cli import retrain
from engine.cli.app import app
from engine.cli.common import TERMINATED
from engine.execution import cluster
from engine.publish import lineage
from engine.runs.compare import comparison
from tests.data import recipe_for

COMMANDS = {
    "retrain": ["--dataset", "out"],
    "predict": ["models:/m@champion", "in", "found"],
    "export": ["v1", "--output", "out", "--to", "parquet:table"],
    "compare": ["r.yaml", "--methods", "kmeans"],
}


@pytest.mark.parametrize("command", COMMANDS)
def test_it_gives_its_lease_back(command: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The lease of a training stayed until it was stale, and temporary files stayed for ever."""
    ended = []

    def work(*_: Any, **__: Any) -> NoReturn:
        try:
            signal.raise_signal(signal.SIGTERM)
        finally:
            ended.append(True)
        raise AssertionError("the signal ended nothing")

    monkeypatch.chdir(tmp_path)
    (tmp_path / "r.yaml").write_text(json.dumps(recipe_for(tmp_path / "data", tmp_path / "out")))
    monkeypatch.setattr(retrain, "run_retrain", work)
    monkeypatch.setattr("engine.training.retrain.find_dataset", lambda _: None)
    monkeypatch.setattr(cluster, "executor", work)
    monkeypatch.setattr(comparison, "compare", work)
    monkeypatch.setattr(lineage, "locate", lambda *_: (tmp_path / "out", "v1"))
    before = signal.signal(signal.SIGTERM, lambda *_: None)
    try:
        done = CliRunner().invoke(app, [command, *COMMANDS[command]])
    finally:
        signal.signal(signal.SIGTERM, before)
    assert done.exit_code == TERMINATED, done.output
    assert ended
    assert "stopped. Committed work is kept" in done.output
