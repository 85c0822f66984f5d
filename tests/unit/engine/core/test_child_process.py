"""Processes that this package starts import from its own folders, not from the one that it runs in."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from engine.core import child_process
from engine.core.child_process import command_of
from engine.jobs.schedule import rowsieve_run
from engine.publish.record_delivery import ProcessSender

PLANTED = ("json", "yaml", "typing", "logging", "engine", "mlflow", "pydantic")


@pytest.fixture
def trap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with modules that write a file when they are imported."""
    folder = tmp_path / "data"
    folder.mkdir()
    for name in PLANTED:
        (folder / f"{name}.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'a').write({name!r})")
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])
    return tmp_path / "ran"


def test_a_child_imports_nothing_beside_the_data(trap: Path) -> None:
    """``python -c`` and ``python -m`` look for modules in the working directory first."""
    unsafe = [sys.executable, "-c", "import json"]
    subprocess.run(unsafe, check=False, capture_output=True)
    assert trap.exists()  # the trap works
    trap.unlink()
    command = command_of("engine.cli.app", "main", "schema", "run")
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert json.loads(done.stdout)
    assert not trap.exists()


@pytest.mark.parametrize("start", ["schedule", "delivery"])
def test_every_child_is_started_so(start: str, trap: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``rowsieve schedule``, and each run that MLflow is told of, ran a ``json.py`` beside the data."""
    if start == "schedule":
        assert rowsieve_run(["none.yaml"])() == 2  # the recipe is missing
    else:
        sender = ProcessSender(trap.parent)
        assert sender._process.stdin
        sender._process.stdin.close()
        assert sender._process.wait(60) == 0
    assert not trap.exists()


def test_the_folders_of_this_process_are_passed_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ours.py").write_text("import sys\n\ndef show():\n    print(sys.argv)")
    monkeypatch.setattr(child_process.sys, "path", [*sys.path, str(tmp_path)])
    done: Any = subprocess.run(command_of("ours", "show", "a b"), check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "['rowsieve', 'a b']"
