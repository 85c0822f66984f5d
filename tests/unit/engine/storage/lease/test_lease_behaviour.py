"""The contract of leases, checked on a folder and on an object store."""

import pickle
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from connectors.storage import Place, place_of, write_whole
from engine.core.errors import LockedError
from engine.core.output_layout import POINTER, version_folder
from engine.storage.lease import has_active_writer, hold_lease, read_holder
from engine.storage.lease.folder import FolderLease
from engine.storage.manifest import is_published
from engine.storage.withdrawals import current_version
from tests.s3 import S3Server


@pytest.fixture(params=["folder", "object store"])
def output(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "folder":
        return tmp_path / "out"
    server: S3Server = request.getfixturevalue("s3")
    return place_of(server.uri(server.bucket(), "out"))


def test_a_second_writer_is_refused_and_hears_who_writes(output: Place) -> None:
    with hold_lease(output, "weekly"):
        assert has_active_writer(output)
        with pytest.raises(LockedError, match=r"weekly \(process \d+ on"), hold_lease(output, "other"):
            pass
    assert not has_active_writer(output)


@pytest.mark.parametrize("minutes", [-10, 10])
def test_a_writer_is_active_by_any_clock(
    minutes: int, output: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``rowsieve status`` and ``sync`` ask from hosts whose clocks are wrong."""
    with hold_lease(output, "weekly"):
        right = time.time
        monkeypatch.setattr(time, "time", lambda: right() + 60 * minutes)
        assert has_active_writer(output)
        monkeypatch.undo()


def test_what_is_discarded_is_gone_and_nothing_else(output: Place) -> None:
    for name in ("a/b", "a/c/d", "ab"):
        write_whole(output / name, b"")
    with hold_lease(output, "weekly") as lease:
        for name in ("a", "ab", "absent"):
            lease.discard(output / name)
            assert not any((output / name / below).exists() for below in ("", "b", "c/d"))
    with hold_lease(output, "next"):
        write_whole(output / "a" / "e", b"")
    if isinstance(lease, FolderLease):
        with pytest.raises(LockedError):
            lease.discard(output / "a")
        assert (output / "a" / "e").exists()


def test_tokens_rise_and_an_old_lease_is_refused_everything(output: Place) -> None:
    with hold_lease(output, "first") as old:
        pass
    with hold_lease(output, "second") as lease:
        assert lease.token > old.token
        for act in (
            old.check,
            lambda: old.parts_folder(version_folder(output, "v1")),
            lambda: old.publish(version_folder(output, "v1"), "{}"),
            lambda: old.point(output / POINTER, "v1"),
            lambda: old.point(output / POINTER, None),
            old.release,
        ):
            with pytest.raises(LockedError):
                act()
        lease.check()
    assert not is_published(output, "v1")
    assert current_version(output) is None


def test_a_version_is_visible_only_once_its_manifest_is_and_current_when_it_is_pointed_to(
    output: Place,
) -> None:
    version = version_folder(output, "v1")
    with hold_lease(output, "run") as lease:
        folder = lease.parts_folder(version)
        if isinstance(folder, Path):
            (folder / "data").mkdir(parents=True)
        (folder / "data" / "part").write_bytes(b"rows")
        assert not is_published(output, "v1")
        lease.publish(version, "{}")
        assert is_published(output, "v1")
        assert (version / "data" / "part").read_bytes() == b"rows"
        assert current_version(output) is None
        lease.point(output / POINTER, "v1")
        assert current_version(output) == "v1"
        lease.point(output / POINTER, None)
        assert current_version(output) is None
        lease.point(output / POINTER, "v1")
    assert current_version(output) == "v1"


def test_a_lease_pickles_and_workers_can_check_it(output: Place) -> None:
    with hold_lease(output, "run") as lease:
        copy = pickle.loads(pickle.dumps(lease))
        copy.check()
        copy.renew()
    holder = read_holder(output)
    assert holder is not None
    assert (holder.who, holder.released) == ("run", True)


@contextmanager
def taken_over(output: Place, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Another run has the lease, as if its holder had been suspended for long."""
    for module in ("folder", "objects"):
        monkeypatch.setattr(f"engine.storage.lease.{module}.check_free", lambda lease: None)
    with hold_lease(output, "second"):
        yield


def compute_for(seconds: float, output: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hold the lease, lose it, and go on without a step that needs it."""
    end = time.monotonic() + seconds
    with hold_lease(output, "first", stale_seconds=0.3), taken_over(output, monkeypatch):
        while time.monotonic() < end:
            time.sleep(0.01)
        raise AssertionError("not interrupted")


def test_a_holder_is_interrupted_once_its_lease_was_taken_over(
    output: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fit may take hours, and asks for the lease at its end only."""
    started = time.monotonic()
    with pytest.raises(LockedError, match="taken over by second"):
        compute_for(20, output, monkeypatch)
    assert time.monotonic() - started < 10


def test_a_holder_in_another_thread_is_refused_at_its_next_step(
    output: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the main thread can be interrupted."""
    seen: list[str] = []

    def work() -> None:
        try:
            with hold_lease(output, "first", stale_seconds=0.3) as lease, taken_over(output, monkeypatch):
                time.sleep(0.5)
                seen.append("went on")
                lease.check()
        except LockedError as error:
            seen.append(str(error))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(20)
    assert seen[0] == "went on"
    assert "taken over by second" in seen[1]


def test_a_heartbeat_that_fails_takes_nothing_away(output: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """The storage may not answer for a while."""
    beats = 0

    def fail(lease: object) -> None:
        nonlocal beats
        beats += 1
        raise OSError("the storage is away")

    with hold_lease(output, "first", stale_seconds=0.3) as lease:
        monkeypatch.setattr(type(lease), "renew", fail)
        time.sleep(0.4)
        lease.check()
    assert beats > 2
