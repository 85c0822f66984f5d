"""A folder of an output that becomes a link between a check and its use leads no writer elsewhere."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from connectors import storage
from connectors.base import ConnectorError
from connectors.sink import write_parquet
from connectors.storage import beneath
from engine.core.errors import InputError
from engine.core.json_files import write_json
from engine.runs import history
from engine.storage.lease import folder as lease_folder
from engine.storage.lease import hold_lease
from engine.storage.lease.folder import FolderLease
from engine.storage.run_store import RunStore, sweep

FINGERPRINT = "0" * 32
OLD_PART, NEW_PART = "versions/v0/data/p.parquet", "versions/v1/data/p.parquet"
ROWS = pa.table({"a": [1]})


@pytest.fixture
def places(tmp_path: Path) -> tuple[Path, Path]:
    """An output in use, and a folder elsewhere that holds files of the same names."""
    output, elsewhere = tmp_path / "out", tmp_path / "elsewhere"
    for base in (output, elsewhere):
        for name in (
            f"store/{FINGERPRINT}/state/x",
            f"store/{FINGERPRINT}/.old.tmp/x",
            f"store/{FINGERPRINT}/fit.json",
            "versions/v1/manifest.json",
            "versions/v1/data/x",
            "versions/v0/data/p.parquet",
            "reports/v1.html",
            "runs/v1.json",
            ".lease/00000001.d/x",
            ".lease/00000001.json",
        ):
            (base / name).parent.mkdir(parents=True, exist_ok=True)
            (base / name).write_text("precious" if base == elsewhere else "own")
    return output, elsewhere


def files(folder: Path) -> dict[str, str]:
    return {str(path): path.read_text() for path in sorted(folder.rglob("*")) if path.is_file()}


def swap(output: Path, elsewhere: Path, name: str) -> None:
    """Put a link to the other folder in place of one of the output's."""
    (output / name).rename(output / f"{name.replace('/', '-')}-moved")
    (output / name).symlink_to(elsewhere / name)


def _fitting(output: Path) -> None:
    with RunStore(output / "store").fitting(FINGERPRINT):
        pass


def _take_part(output: Path) -> None:
    FolderLease(output, 1).reuse_part(output / OLD_PART, output / NEW_PART)


USES: dict[str, tuple[str, Callable[[Path], object]]] = {
    "remove a version": ("versions", lambda out: history._remove(out, "v1", FolderLease(out, 1))),
    "remove a version's folder": ("versions/v1", lambda out: history._remove(out, "v1", FolderLease(out, 1))),
    "remove a report": ("reports", lambda out: history._remove(out, "v1", FolderLease(out, 1))),
    "remove a run's record": ("runs", lambda out: history._remove(out, "v1", FolderLease(out, 1))),
    "commit a part": ("store", lambda out: RunStore(out / "store").commit(FINGERPRINT, 0, ROWS, seconds=0)),
    "commit into a folder": (
        f"store/{FINGERPRINT}",
        lambda out: RunStore(out / "store").commit(FINGERPRINT, 0, ROWS, seconds=0),
    ),
    "commit a fit": ("store", lambda out: RunStore(out / "store").commit_fit(FINGERPRINT, {}, 0)),
    "fit": ("store", _fitting),
    "sweep": ("store", lambda out: sweep(out / "store" / FINGERPRINT, root=out)),
    "replace a state": (
        "store",
        lambda out: FolderLease(out, 1).replace_folder(
            out / "store" / FINGERPRINT / ".old.tmp", out / "store" / FINGERPRINT / "state"
        ),
    ),
    "publish": ("versions", lambda out: FolderLease(out, 1).publish(out / "versions" / "v1", "{}")),
    "give a lease back": (".lease", lambda out: FolderLease(out, 1).release()),
    "clear leases": (".lease", lambda out: lease_folder._clear(out, 9)),
    "write a record": ("runs", lambda out: write_json(out / "runs" / "v1.json", {}, root=out)),
    "take a part of another version": ("versions/v0", lambda out: _take_part(out)),
    "take a part over": ("versions/v1", lambda out: _take_part(out)),
    "write a part": (
        "versions/v1",
        lambda out: write_parquet(ROWS, out / "versions" / "v1" / "data" / "p.parquet", root=out),
    ),
}


@pytest.mark.parametrize("use", USES)
def test_a_link_that_is_swapped_in_is_not_followed(
    use: str, places: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder is replaced when the first path is opened, after every check of paths."""
    output, elsewhere = places
    name, act = USES[use]
    before, opened, swapped = files(elsewhere), os.open, []

    def swapping(path: Any, *args: Any, **kwargs: Any) -> int:
        if not swapped:
            swapped.append(path)
            swap(output, elsewhere, name)
        return opened(path, *args, **kwargs)

    monkeypatch.setattr(FolderLease, "check", lambda _: None)
    monkeypatch.setattr(beneath.os, "open", swapping)
    with pytest.raises((ConnectorError, InputError), match="is a link"):
        act(output)
    assert swapped
    assert files(elsewhere) == before


def test_without_a_swap_everything_works(places: tuple[Path, Path]) -> None:
    output, _ = places
    storage.remove_tree(output / ".lease")
    with hold_lease(output, "test") as lease:
        _fitting(output)
        store = RunStore(output / "store")
        store.commit(FINGERPRINT, 0, ROWS, seconds=0)
        store.sweep(FINGERPRINT)
        assert [*store.committed(FINGERPRINT)] == [0]
        part = lease.parts_folder(output / "versions" / "v2") / "data"
        storage.make_folder(part, root=output)
        lease.put_part(part / "p.parquet", ROWS)
        lease.publish(output / "versions" / "v2", "{}")
    assert (output / "versions" / "v2" / "data" / "p.parquet").exists()
    with hold_lease(output, "test") as lease:
        history._remove(output, "v1", lease)
    assert not [*output.rglob("*v1*")]
    assert not [*output.rglob("*.tmp")]


def test_a_link_in_place_of_a_tree_is_removed_alone(places: tuple[Path, Path]) -> None:
    output, elsewhere = places
    before = files(elsewhere)
    swap(output, elsewhere, "versions/v1")
    storage.remove_tree(output / "versions" / "v1", root=output)
    storage.remove_tree(output / "versions" / "absent", root=output)
    storage.remove_tree(output / "absent" / "v1", root=output)
    assert not os.path.lexists(output / "versions" / "v1")
    assert files(elsewhere) == before


def test_the_root_may_be_reached_by_a_link_and_paths_stay_beneath_it(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "alias").symlink_to(tmp_path / "real")
    write_json(tmp_path / "alias" / "a" / "b.json", {}, root=tmp_path / "alias")
    assert (tmp_path / "real" / "a" / "b.json").exists()
    for place in (tmp_path / "b.json", tmp_path / "alias" / ".." / "b.json"):
        with pytest.raises(ValueError, match=r"beneath|subpath"):
            write_json(place, {}, root=tmp_path / "alias")
    with pytest.raises(NotADirectoryError):
        write_json(tmp_path / "alias" / "a" / "b.json" / "c.json", {}, root=tmp_path / "alias")


def test_no_descriptor_stays_open(tmp_path: Path) -> None:
    before = len(os.listdir("/dev/fd"))
    for _ in range(3):
        write_json(tmp_path / "a" / "b.json", {}, root=tmp_path)
        storage.remove_tree(tmp_path / "a", root=tmp_path)
        with pytest.raises(FileNotFoundError):
            beneath.rename_beneath(tmp_path, tmp_path / "x" / "y", tmp_path / "z")
    assert len(os.listdir("/dev/fd")) == before


@pytest.mark.parametrize("linked", [True, False])
def test_a_part_is_taken_over(
    linked: bool, places: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a hard link, or a copy where the filesystem has none; in place of one that a killed run has left."""
    output, _ = places
    if not linked:
        monkeypatch.setattr(beneath.os, "link", _no_link)
    for _ in range(2):
        _take_part(output)
    assert (output / NEW_PART).read_text() == "own"
    assert (output / NEW_PART).samefile(output / OLD_PART) == linked


def _no_link(*_: object, **__: object) -> None:
    raise PermissionError


@pytest.mark.parametrize("linked", [True, False])
def test_a_part_that_is_a_link_is_not_taken_over(
    linked: bool, places: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where it becomes one between its opening and the making of its other name."""
    output, elsewhere = places
    before = files(elsewhere)
    if not linked:
        swap(output, elsewhere, OLD_PART)
        with pytest.raises(ConnectorError, match="is a link"):
            _take_part(output)
    else:
        link = os.link

        def swapping(*names: Any, **settings: Any) -> None:
            swap(output, elsewhere, OLD_PART)
            link(*names, **settings)

        monkeypatch.setattr(beneath.os, "link", swapping)
        _take_part(output)
        assert (output / NEW_PART).read_text() == "own"  # of the file that was opened
        assert not (output / NEW_PART).is_symlink()
    assert files(elsewhere) == before


def test_a_pipe_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "x")
    with pytest.raises(ConnectorError, match="not a regular file"):
        storage.read_whole(tmp_path / "x", root=tmp_path)


# Trained models


def _model_uses() -> dict[str, tuple[str, Callable[[Path], object]]]:
    import torch

    from engine.training.fit.checkpoint import Checkpoints, ModelStore, Progress
    from operators.communicator import SingleProcess, Slots

    slots = Slots(SingleProcess(), 1, 1)
    state = {"w": torch.zeros(1)}

    def checkpoints(output: Path) -> Checkpoints:
        return Checkpoints(output / "models" / "m" / "checkpoints", slots, "f", output)

    return {
        "store a model": (
            "models/m",
            lambda out: ModelStore(out / "models" / "m" / "models", slots, out).put(0, state),
        ),
        "save a checkpoint": ("models/m", lambda out: checkpoints(out).save(Progress(tensors=state))),
        "save in another folder": ("models", lambda out: checkpoints(out).save(Progress(tensors=state))),
        "clear checkpoints": ("models/m/checkpoints", lambda out: checkpoints(out).clear()),
        "clear the folder of checkpoints": ("models", lambda out: checkpoints(out).clear()),
    }


@pytest.mark.parametrize("use", _model_uses())
def test_a_training_writes_and_removes_nothing_behind_a_link(use: str, places: tuple[Path, Path]) -> None:
    """Its folders are links when it comes to write: it has checked them at its start."""
    output, elsewhere = places
    for base in places:
        for name in ("checkpoints/00000-00000/common.safetensors", "models/000.safetensors"):
            (base / "models" / "m" / name).parent.mkdir(parents=True, exist_ok=True)
            (base / "models" / "m" / name).write_text("precious")
    before = files(elsewhere)
    name, act = _model_uses()[use]
    swap(output, elsewhere, name)
    if use == "clear checkpoints":  # the link alone is removed
        act(output)
        assert not os.path.lexists(output / name)
    else:
        with pytest.raises(ConnectorError, match="is a link"):
            act(output)
    assert files(elsewhere) == before
