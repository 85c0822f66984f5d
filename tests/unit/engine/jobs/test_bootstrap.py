"""A job starts with an interpreter that has Rowsieve's dependencies, or says what to install."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from engine.jobs.bootstrap import ENTRYPOINT, SCRIPT, SCRIPT_NAME

NODE = "import subprocess, sys; sys.exit(subprocess.call(sys.argv[2], shell=True))"
"""Stands for the Ray node's process: it has the worker command among its arguments and starts the job."""


def interpreter(path: Path, *, complete: bool) -> Path:
    """An executable that stands for a Python: complete, or without any package that is not its own."""
    start = shlex.quote(sys.executable) + ("" if complete else " -I -S")
    cases = f'case "$1" in -m) echo "$0 $*"; exit 7;; *) exec {start} "$@";; esac'
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{cases}\n")
    path.chmod(0o755)
    return path


def start(folder: Path, node: str = "none") -> subprocess.CompletedProcess[str]:
    """Run the job's command below a process that looks like a Ray node, with a path of ``folder/bin``."""
    (folder / SCRIPT_NAME).write_text(SCRIPT)
    (folder / "engine").mkdir()
    return subprocess.run(
        [sys.executable, "-c", NODE, f"--python_worker_command={node} setup_worker.py", ENTRYPOINT],
        cwd=folder,
        env={**os.environ, "PATH": f"{folder / 'bin'}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("named", ["python", "python3"])
def test_a_python_of_the_path_is_taken_if_it_is_complete(named: str, tmp_path: Path) -> None:
    for name in ("python", "python3"):
        interpreter(tmp_path / "bin" / name, complete=name == named)
    done = start(tmp_path)
    assert (done.returncode, done.stdout.split()[0]) == (7, str(tmp_path / "bin" / named))
    assert done.stdout.split()[1:] == ["-m", "engine.cli", "run", "recipe.yaml", "--log-format", "plain"]


def test_a_head_started_by_the_path_of_an_environment_lends_its_interpreter(tmp_path: Path) -> None:
    for name in ("python", "python3"):
        interpreter(tmp_path / "bin" / name, complete=False)
    node = interpreter(tmp_path / "venv" / "bin" / "python", complete=True)
    done = start(tmp_path, str(node))
    assert (done.returncode, done.stdout.split()[0]) == (7, str(node))


def test_without_any_the_error_names_the_remedy(tmp_path: Path) -> None:
    for name in ("python", "python3"):
        interpreter(tmp_path / "bin" / name, complete=False)
    node = interpreter(tmp_path / "venv" / "bin" / "python", complete=False)
    done = start(tmp_path, str(node))
    assert done.returncode == 2
    (line,) = done.stderr.strip().splitlines()
    assert line.startswith("error: No Python on the cluster's head has Rowsieve's dependencies")
    assert str(tmp_path / "bin" / "python") in line
    assert str(node) in line
    assert "pip install 'rowsieve[deploy]'" in line
