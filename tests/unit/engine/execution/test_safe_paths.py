"""Ray's workers import from the folders of this process only, not from the folder that it runs in."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from engine.execution.cluster import SafePaths, _start
from engine.recipe.recipe import RunSection


def test_the_working_directory_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "modules").mkdir()
    monkeypatch.setattr(sys, "path", ["/usr/lib/python3", str(tmp_path / "modules")])
    paths = SafePaths()
    paths.extend([str(tmp_path), str(tmp_path / "modules")])
    assert paths == [str(tmp_path / "modules")]
    monkeypatch.setattr(sys, "path", ["", "/usr/lib/python3"])  # an interactive session
    paths.extend([str(tmp_path)])
    assert str(tmp_path) in paths


@pytest.mark.parametrize("address", [None, "head:6379"])
def test_ray_gets_these_paths(address: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    ray = pytest.importorskip("ray")
    given: list[dict[str, Any]] = []
    monkeypatch.setattr(ray, "init", lambda **settings: given.append(settings))
    _start(RunSection(), address, verbose=False)
    assert type(given[0]["job_config"]._py_driver_sys_path) is SafePaths
