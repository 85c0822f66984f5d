"""Environments of the orchestrators, each with its own pins, and programs that run in them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "deploy" / "ORCHESTRATORS.md"
HERE = Path(__file__).parent
PACKAGES = {
    "dagster": ["dagster==1.13.29"],
    "airflow": ["apache-airflow==3.3.2"],
    "prefect": ["prefect==3.9.1"],
    "argo": ["hera==7.1.0", "pyyaml==6.0.3"],
}
"""What each environment installs. hera has Argo's API as models, which are made from Argo's own schema."""
PATIENCE = 600
"""Seconds for an installation or a program."""


def examples(title: str, language: str = "python") -> list[str]:
    """Return the blocks of a section of the page."""
    (section,) = (part for part in PAGE.read_text("utf-8").split("\n## ") if part.startswith(f"{title}\n"))
    return re.findall(rf"```{language}\n(.*?)```", section, re.DOTALL)


@cache
def environment(name: str) -> Path:
    """Return the folder of an environment, made at the first call. Skips the test where it cannot be made."""
    folder = ROOT / ".venv-orchestrators" / name
    wanted, stamp = "\n".join(PACKAGES[name]), folder / "packages.txt"
    if stamp.exists() and stamp.read_text() == wanted:
        return folder
    install = [str(folder / "bin" / "pip"), "install", "--quiet", "--no-compile", *PACKAGES[name]]
    for command in ([sys.executable, "-m", "venv", "--clear", str(folder)], install):
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
        if done.returncode:
            pytest.skip(f"the environment of {name} cannot be made here: {done.stderr.strip()[-300:]}")
    stamp.write_text(wanted)
    return folder


def program(name: str, place: Path, *words: str, **variables: str) -> Any:
    """Run ``NAME_program.py`` in the environment of an orchestrator, and return the JSON of its last line.

    Of Rowsieve it finds the command, which is that of the tests' environment, and the package ``rowsieve``
    without what it needs.
    """
    folder, packages = environment(name), place / "packages"
    packages.mkdir(exist_ok=True)
    if not (packages / "rowsieve").exists():
        (packages / "rowsieve").symlink_to(ROOT / "engine" / "api")
    path = f"{folder / 'bin'}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    given = {**os.environ, "PATH": path, "PYTHONPATH": str(packages), "HOME": str(place), **variables}
    done = subprocess.run(
        [str(folder / "bin" / "python"), str(HERE / f"{name}_program.py"), *words],
        cwd=place,
        env=given,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-5000:]
    return json.loads(done.stdout.strip().splitlines()[-1])
