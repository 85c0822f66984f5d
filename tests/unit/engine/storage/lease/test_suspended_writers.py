"""A writer that is suspended at any point and continues after another one has taken over changes nothing."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.core.errors import LockedError
from engine.storage.lease import Lease, newest_token
from engine.storage.lease.folder import FolderLease, acquire
from engine.storage.run_store import RunStore

STALE = 60.0


def take_over(output: Path) -> FolderLease:
    """Take the lease of a holder whose heart has stopped."""
    file = Lease(output, newest_token(output)).file
    file.write_text("{}")
    os.utime(file, (0, 0))
    lease, _ = acquire(output, "successor", STALE)
    return lease


def suspended(monkeypatch: pytest.MonkeyPatch, moment: int, meanwhile: Callable[[], None]) -> None:
    """Let ``meanwhile`` happen just before the rename number ``moment`` of the old writer."""
    original, count = os.replace, 0

    def replace(*args: Any, **kwargs: Any) -> None:
        nonlocal count
        count += 1
        if count == moment + 1:
            monkeypatch.setattr(os, "replace", original)
            meanwhile()
        original(*args, **kwargs)

    monkeypatch.setattr(os, "replace", replace)


def parts(lease: FolderLease, version: Path, text: str) -> None:
    folder = lease.parts_folder(version)
    folder.mkdir()
    (folder / "part").write_text(text)


@pytest.mark.parametrize("moment", range(5))
def test_a_version_of_the_successor_stays(
    moment: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    version = tmp_path / "versions" / "v1"
    old, _ = acquire(tmp_path, "old", STALE)
    parts(old, version, "old")
    version.mkdir(parents=True)  # of a writer that was killed between its renames
    happened: list[int] = []

    def meanwhile() -> None:
        happened.append(moment)
        successor = take_over(tmp_path)
        if not (version / "manifest.json").exists():
            parts(successor, version, "new")
            successor.publish(version, "new")

    suspended(monkeypatch, moment, meanwhile)
    with pytest.raises(LockedError):
        old.publish(version, "old")
    assert happened
    assert (version / "part").read_text() == (version / "manifest.json").read_text() == "new"


@pytest.mark.parametrize("moment", range(3))
def test_a_state_of_the_successor_stays(moment: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = RunStore(tmp_path / "store")
    old, _ = acquire(tmp_path, "old", STALE)
    store.state("f").mkdir(parents=True)
    (store.state("f") / "broken").touch()

    def meanwhile() -> None:
        with store.fitting("f", take_over(tmp_path)) as scratch:
            (scratch / "state").write_text("new")

    with pytest.raises(LockedError), store.fitting("f", old) as scratch:  # noqa: PT012
        (scratch / "state").write_text("old")
        suspended(monkeypatch, moment, meanwhile)
    assert [path.name for path in store.state("f").iterdir()] == ["state"]
    assert (store.state("f") / "state").read_text() == "new"
