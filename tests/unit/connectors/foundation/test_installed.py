"""Entry points: as importlib.metadata finds them, read once, and again where packages come and go."""

from __future__ import annotations

import importlib.metadata
import shutil
from pathlib import Path

import pytest

from connectors.foundation import installed
from connectors.foundation.installed import entry_points

GROUP = "rowsieve.nothing_else"


def install(site: Path, package: str, name: str) -> Path:
    info = site / f"{package}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{GROUP}]\n{name} = {package}:Thing\n")
    return info


def test_they_are_those_of_importlib() -> None:
    expected = importlib.metadata.entry_points(group="console_scripts")
    assert sorted(entry_points(group="console_scripts")) == sorted(expected)
    assert [one.value for one in entry_points(group="console_scripts", name="rowsieve")] == ["rowsieve:main"]
    assert entry_points(group="console_scripts", name="no_such_script") == ()
    assert entry_points(group=GROUP) == ()


def test_packages_that_come_and_go_are_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert entry_points(group=GROUP) == ()
    monkeypatch.syspath_prepend(str(tmp_path))
    assert entry_points(group=GROUP) == ()
    first = install(tmp_path, "first", "one")
    assert [one.value for one in entry_points(group=GROUP)] == ["first:Thing"]
    install(tmp_path, "second", "two")
    assert {one.name for one in entry_points(group=GROUP)} == {"one", "two"}
    assert [one.value for one in entry_points(group=GROUP, name="two")] == ["second:Thing"]
    shutil.rmtree(first)
    assert [one.name for one in entry_points(group=GROUP)] == ["two"]


def test_a_folder_that_is_put_on_the_path_later_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path / "site", "first", "one")
    assert entry_points(group=GROUP) == ()
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    assert [one.name for one in entry_points(group=GROUP)] == ["one"]


def test_they_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[str] = []
    monkeypatch.setattr(installed, "read_entry_points", lambda group: reads.append(group) or ())
    for _ in range(3):
        entry_points(group="rowsieve.read_once")
    assert reads == ["rowsieve.read_once"]
