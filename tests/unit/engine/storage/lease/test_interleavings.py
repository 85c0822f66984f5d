"""The commit protocol under every order of two writers' operations, with kills, on both kinds of storage.

The invariants stand in ``engine/storage/README.md`` under "The commit protocol". A second writer may begin at
any operation of the first, as if that had given no sign of life for too long.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest

from connectors.storage import ObjectPath, Place, make_folder, write_whole
from engine.core.errors import LockedError
from engine.core.output_layout import POINTER, version_folder
from engine.storage.lease import base, folder, objects, orphans
from engine.storage.lease.objects import CurrentPointer
from tests.unit.engine.storage.lease.interleavings import (
    Fate,
    KilledError,
    Writer,
    stops_of_files,
    stops_of_objects,
)

PARTS = ("data/part-00000.parquet", "data/part-00001.parquet")
SAME, DIFFERENT = {"a": "v1", "b": "v1"}, {"a": "v1", "b": "v2"}


class Scene:
    """An output that writers publish into, and what every reader of it must find."""

    def __init__(self, output: Place, versions: dict[str, str]) -> None:
        self.output, self.versions = output, versions
        self.writers: list[Writer] = []
        self.holders: dict[int, str] = {}
        """Writers that got the lease, by its number."""
        self._last = ""
        self._acquire: Callable[..., Any] = folder.acquire if isinstance(output, Path) else objects.acquire

    def start(self, name: str) -> Writer:
        """Start a writer; it stops before its first operation."""
        self.writers.append(Writer(name, self._publish))
        return self.writers[-1]

    def _publish(self, name: str) -> None:
        """Take the lease, publish a version, make it current, tidy up, and give the lease back."""
        lease, handle = self._acquire(self.output, name, 60.0)
        self.holders[lease.token] = name
        with handle:
            try:
                self._carry_out(lease, self.versions[name])
            except Exception:
                lease.check()  # as in hold_lease: after a takeover, that is the reason
                raise
            with suppress(OSError, LockedError):
                lease.release()

    def _carry_out(self, lease: base.Lease, version: str) -> None:
        final = version_folder(self.output, version)
        if not (final / "manifest.json").exists():
            place = lease.parts_folder(final)
            make_folder(place / "data", root=self.output)
            for part in PARTS:
                lease.put_part(place / part, pa.table({"version": [version]}))
            lease.publish(final, json.dumps({"version": version}))
        lease.point(self.output / POINTER, version)
        lease.remove_unfinished_versions(final.parent, version)

    def look(self) -> None:
        """Check what holds at every moment: what is published is whole, and so is what is current."""
        versions = self.output / "versions"
        for version in _names(versions):
            if (versions / version / "manifest.json").exists():
                manifest = json.loads((versions / version / "manifest.json").read_text())
                assert manifest == {"version": version}
                for part in PARTS:
                    assert (versions / version / part).exists(), f"{version} has lost {part}"
        current = self.current()
        assert not current or (versions / current / "manifest.json").exists()
        if current != self._last:  # by the holder: whoever has lost the lease changes nothing any more
            assert current == self.versions[self.newest()], f"{current} was made current too late"
            self._last = current

    def newest(self) -> str:
        """Return the writer with the newest lease."""
        return self.holders[max(self.holders)]

    def current(self) -> str:
        """Return the current version; empty if there is none."""
        try:
            text = (self.output / POINTER).read_bytes()
        except FileNotFoundError:
            return ""
        return CurrentPointer.parse(text).version.strip()

    def finish(self) -> None:
        """Check what holds in the end."""
        self.look()
        for writer in self.writers:
            assert writer.ended
            if not isinstance(writer.error, LockedError | KilledError | type(None)):
                raise AssertionError(f"{writer.name} ended with {writer.error!r}") from writer.error
        last = next(writer for writer in self.writers if writer.name == self.newest())
        if last.error is None:
            assert self.current() == self.versions[last.name]
        assert not all(isinstance(writer.error, LockedError) for writer in self.writers)


def _names(place: Place) -> list[str]:
    try:
        return [entry.name for entry in place.iterdir()]
    except FileNotFoundError:
        return []


@pytest.fixture(params=["folder", "objects"])
def scene(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[dict[str, str]], Scene]]:
    """Return a function that makes a new, empty scene."""
    kept: list[Scene] = []

    def is_dead(lease: Any, holder: base.Holder) -> bool:
        return any(writer.name == holder.who and writer.killed for writer in kept[-1].writers)

    def in_folder(versions: dict[str, str]) -> Scene:
        shutil.rmtree(tmp_path / "out", ignore_errors=True)
        (tmp_path / "out").mkdir()
        kept.append(Scene(tmp_path / "out", versions))
        return kept[-1]

    def in_store(versions: dict[str, str]) -> Scene:
        from obstore.store import MemoryStore

        store = MemoryStore()
        client.side_effect = lambda root: store
        kept.append(Scene(ObjectPath("s3://memory", "out"), versions))
        return kept[-1]

    stops = stops_of_files() if request.param == "folder" else stops_of_objects()
    with (
        patch("connectors.storage.object_path.client") as client,
        patch.object(folder, "check_free"),
        patch.object(objects, "check_free"),
        patch.object(objects, "check_conditional_puts"),
        patch.object(orphans, "is_dead", is_dead),
        stops,
    ):
        yield in_folder if request.param == "folder" else in_store


def carry_out(made: Scene, first: int, second: int) -> None:
    """Let writer a take ``first`` steps, b ``second``, then a to its end and b to its end."""
    a = made.start("a")
    _steps(made, a, first)
    b = made.start("b")
    _steps(made, b, second)
    for writer in (a, b):
        while not writer.ended:
            _steps(made, writer, 1)
    made.finish()


def _steps(made: Scene, writer: Writer, n: int, fate: Fate = "go on") -> None:
    for _ in range(n):
        if not writer.ended:
            writer.step(fate)
            made.look()


def length(made: Scene) -> int:
    """Return the number of steps of one writer alone."""
    writer = made.start("a")
    writer.run_to_end()
    made.finish()
    assert made.current() == made.versions["a"]
    return writer.steps


STRIDES = [pytest.param(1, marks=pytest.mark.slow, id="every order"), pytest.param(9, id="some orders")]
VERSIONS = [pytest.param(SAME, id="one version"), pytest.param(DIFFERENT, id="two versions")]
Make = Callable[[dict[str, str]], Scene]


def explore(make: Make, versions: dict[str, str], stride: int) -> None:
    """Try the ways in which b begins within a, and a wakes up within b."""
    n = length(make(versions))
    for first in range(0, n + 1, stride):
        for second in range(first % stride, n + 6, stride):  # b also removes what a has left
            carry_out(make(versions), first, second)


def kill(make: Make, versions: dict[str, str], fate: Fate, stride: int) -> None:
    """Kill a at an operation and let b follow."""
    for at in range(0, length(make(versions)), stride):
        made = make(versions)
        a = made.start("a")
        _steps(made, a, at)
        _steps(made, a, 1, fate)
        assert a.ended
        b = made.start("b")
        while not b.ended:
            _steps(made, b, 1)
        assert b.error is None, f"after {at} steps: {b.error!r}"
        made.finish()


@pytest.mark.parametrize("stride", STRIDES)
@pytest.mark.parametrize("versions", VERSIONS)
def test_two_writers_in_any_order(versions: dict[str, str], stride: int, scene: Make) -> None:
    explore(scene, versions, stride)


@pytest.mark.parametrize("fate", ["die before", "die after"])
@pytest.mark.parametrize("stride", [pytest.param(1, marks=pytest.mark.slow), 3])
@pytest.mark.parametrize("versions", VERSIONS)
def test_a_writer_that_dies_anywhere_is_followed_by_another(
    versions: dict[str, str], stride: int, fate: Fate, scene: Make
) -> None:
    kill(scene, versions, fate, stride)


@pytest.mark.parametrize("followed", [False, True], ids=["alone", "another in between"])
@pytest.mark.parametrize("scene", ["objects"], indirect=True)
@pytest.mark.parametrize("versions", VERSIONS)
def test_an_answer_that_is_lost(versions: dict[str, str], followed: bool, scene: Make) -> None:
    """Each request of a writer is repeated, at once or after another writer has published."""
    for at in range(length(scene(versions))):
        made = scene(versions)
        a = made.start("a")
        _steps(made, a, at)
        _steps(made, a, 1, "lose the answer")
        b = made.start("b") if followed else a
        for writer in (b, a):
            while not writer.ended:
                _steps(made, writer, 1)
        made.finish()
        assert b.error is None, f"after {at} steps: {b.error!r}"


def _nothing(*_: Any, **__: Any) -> None:
    """Stand in for a step of the protocol."""


def _point_unchecked(self: objects.ObjectLease, file: ObjectPath, version: str) -> None:
    file.write_bytes(CurrentPointer(version, self.token).to_bytes())


def _manifest_first(self: Any, version: Any, manifest: str) -> None:
    make_folder(version, root=self.folder)
    write_whole(version / "manifest.json", manifest.encode(), root=self.folder)


BROKEN = {
    "folder": [(folder, "_clear", _nothing), (folder.FolderLease, "publish", _manifest_first)],
    "objects": [
        (objects.ObjectLease, "point", _point_unchecked),
        (objects.ObjectLease, "fence_off_previous_holder", _nothing),
    ],
}


@pytest.mark.parametrize("broken", [0, 1])
def test_a_broken_protocol_is_noticed(broken: int, scene: Make, request: pytest.FixtureRequest) -> None:
    kind = request.node.callspec.params["scene"]
    owner, name, instead = BROKEN[kind][broken]
    with patch.object(owner, name, instead), pytest.raises(AssertionError):
        explore(scene, DIFFERENT, 2)
