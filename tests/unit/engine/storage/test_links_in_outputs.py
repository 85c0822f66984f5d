"""Links and foreign files in a shared output make no writer remove or write anything elsewhere."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from engine.core.errors import InputError
from engine.core.output_layout import FOLDERS, FOLDERS_OF_FOLDERS, check_real_folders
from engine.publish.lineage import sync_records
from engine.publish.mlflow_outbox import Record
from engine.runs import history
from engine.runs.descriptions import read_descriptions
from engine.storage.lease import hold_lease, newest_token
from engine.storage.manifest import read_manifest
from engine.storage.stores import store_of
from engine.storage.withdrawals import current_version

FINGERPRINT = "0" * 32


@pytest.fixture
def shared(tmp_path: Path) -> tuple[Path, Path]:
    """An empty output, and a folder elsewhere whose files have the names of an output's files."""
    output, elsewhere = tmp_path / "out", tmp_path / "elsewhere"
    output.mkdir()
    for name in ("1.txt", "00000001.json", "00000001.d/x", f"{FINGERPRINT}/x", "manifest.json", "data"):
        (elsewhere / name).parent.mkdir(parents=True, exist_ok=True)
        (elsewhere / name).write_text("precious")
    return output, elsewhere


def files(folder: Path) -> dict[str, str]:
    return {str(path): path.read_text() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.mark.parametrize("name", [*FOLDERS, *(f"{one}/{FINGERPRINT}" for one in FOLDERS_OF_FOLDERS)])
def test_a_link_stops_whoever_writes(name: str, shared: tuple[Path, Path]) -> None:
    output, elsewhere = shared
    before = files(elsewhere)
    (output / name).parent.mkdir(parents=True, exist_ok=True)
    (output / name).symlink_to(elsewhere)
    with pytest.raises(InputError, match=f"{name} is a link to"), hold_lease(output, "test"):
        pass
    for dry_run in (False, True):
        with pytest.raises(InputError, match=f"{name} is a link to"):
            history.prune(output, 1, dry_run=dry_run)
    assert files(elsewhere) == before


@pytest.mark.parametrize("name", ["store", "runs/pending"])
def test_a_file_in_place_of_a_folder_stops_whoever_writes(name: str, tmp_path: Path) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("")
    with pytest.raises(InputError, match=f"{name} is not a folder"), hold_lease(tmp_path, "test"):
        pass


def test_real_folders_pass(shared: tuple[Path, Path], tmp_path: Path) -> None:
    output, _ = shared
    check_real_folders(output / "absent")
    for name in FOLDERS:
        (output / name).mkdir(parents=True)
    check_real_folders(output)
    (tmp_path / "alias").symlink_to(output)  # the output itself may be named through a link
    with hold_lease(tmp_path / "alias", "test"):
        assert newest_token(output) == 1


def test_records_are_not_delivered_from_elsewhere(shared: tuple[Path, Path]) -> None:
    output, elsewhere = shared
    Record("a" * 32, "e", "n", 1).write(elsewhere)
    before = files(elsewhere)
    (output / "runs").symlink_to(elsewhere / "runs")
    with pytest.raises(InputError, match="runs is a link to"):
        sync_records(None, output)
    assert files(elsewhere) == before


def test_a_training_does_not_follow_a_link(
    shared: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    from engine.training import training_run

    output, elsewhere = shared
    (output / "models").symlink_to(elsewhere)
    version = SimpleNamespace(output=output, name="v1")
    monkeypatch.setattr(training_run, "open_version", lambda _: version)
    monkeypatch.setattr(training_run, "_check_mix", lambda _: None)
    monkeypatch.setattr(training_run, "training_fingerprint", lambda *_: FINGERPRINT)
    params = SimpleNamespace(task="classification", target=None, is_pretrained=False)
    spec: Any = SimpleNamespace(dataset="d", folder=None, params=params, seed=0, truth=None)
    before = files(elsewhere)
    with pytest.raises(InputError, match="models is a link to"):
        training_run.train(spec, cast(Any, None))
    assert files(elsewhere) == before


def test_a_lease_removes_only_what_leases_leave(tmp_path: Path) -> None:
    """Also the rest of a removal that was interrupted; a link is removed, not what it leads to."""
    with hold_lease(tmp_path, "first"):
        pass
    with hold_lease(tmp_path, "second"):
        pass
    lease, elsewhere = tmp_path / ".lease", tmp_path / "elsewhere"
    (elsewhere / "x").mkdir(parents=True)
    foreign = ["1.txt", "2", "00000001.txt", "00000001.json.bak", "gone-x", "³.json", "1.d/x"]
    for name in [*foreign, "00000000.tmp", "00000001.d/x", "gone-00000001.d/x", "00000004.d/x"]:
        (lease / name).parent.mkdir(exist_ok=True)
        (lease / name).write_text("")
    (lease / "00000000.d").symlink_to(elsewhere)
    with hold_lease(tmp_path, "third"):
        left = {entry.name for entry in lease.iterdir()}
    assert left == {name.partition("/")[0] for name in foreign} | {
        "00000003.json",
        "00000003.d",
        "00000004.d",
    }
    assert (elsewhere / "x").is_dir()


def test_prune_removes_no_foreign_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "history", lambda _: [{"version": "v1", "current": True, "withdrawn": None}])
    monkeypatch.setattr(history, "_models", lambda *_, **__: {})
    operators = [{"fingerprint": "1" * 32}]
    monkeypatch.setattr(history, "read_manifest", lambda _: {"operators": operators})
    names = ["photos", ".snapshots", FINGERPRINT, FINGERPRINT[1:], FINGERPRINT + "0", "A" * 32, "1" * 32]
    for name in names:
        (store_of(tmp_path).folder(name) / "x").mkdir(parents=True)
    (tmp_path / "store" / ("2" * 32)).write_text(json.dumps({}))
    assert history.prune(tmp_path, 1).fingerprints == (FINGERPRINT,)
    left = {entry.name for entry in (tmp_path / "store").iterdir()}
    assert left == {*names, "2" * 32} - {FINGERPRINT}


@pytest.mark.parametrize("name", ["CURRENT", "versions/v1/manifest.json"])
def test_a_pipe_is_not_waited_for(name: str, tmp_path: Path) -> None:
    """Nor is a link followed: what a published version says lies in the output."""
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    os.mkfifo(tmp_path / name)
    read: Any = (
        current_version if name == "CURRENT" else lambda _: read_manifest(tmp_path / "versions" / "v1")
    )
    with pytest.raises(InputError, match="regular file"):
        read(tmp_path)
    (tmp_path / name).unlink()
    (tmp_path / "elsewhere").write_text("v1")
    (tmp_path / name).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InputError, match="is a link"):
        read(tmp_path)


def test_descriptions_in_a_pipe_are_none(tmp_path: Path) -> None:
    (tmp_path / "reports").mkdir()
    os.mkfifo(tmp_path / "reports" / "v1.groups.json")
    assert read_descriptions(tmp_path, "v1") is None
