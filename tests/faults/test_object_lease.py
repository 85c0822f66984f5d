"""One writer on an object store: every step that counts is a PUT under a condition. On S3 over HTTP."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import cast

import pyarrow as pa
import pytest

from connectors.storage import ObjectPath, place_of
from engine.core.errors import InputError, LockedError
from engine.core.output_layout import version_folder
from engine.publish.publisher import make_current
from engine.storage.lease import Lease, has_active_writer, hold_lease, newest_token, read_holder
from engine.storage.lease.objects import CurrentPointer, ObjectLease
from engine.storage.manifest import is_published
from engine.storage.withdrawals import current_version
from tests.faults.processes import finish, start, until
from tests.faults.racing import winners
from tests.s3 import S3Server

SHORT = 1.0
MANIFEST = '{"version": "vold"}\n'


@pytest.fixture
def output(s3: S3Server) -> ObjectPath:
    """An empty prefix."""
    return cast(ObjectPath, place_of(s3.uri(s3.bucket(), "out")))


@pytest.fixture
def acquire(output: ObjectPath) -> Callable[[ExitStack, str], Lease]:
    """Take the lease although somebody has it, as if its heart had stood still."""

    def take(stack: ExitStack, who: str) -> Lease:
        pretend(output, released=True)
        return stack.enter_context(hold_lease(output, who))

    return take


def pretend(output: ObjectPath, **changes: object) -> None:
    """Change what the newest lease file says, as if somebody else had written it."""
    file = Lease(output, newest_token(output)).file
    file.write_bytes(json.dumps(json.loads(file.read_text()) | changes).encode())


def sleepless(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every check passes: what follows is what a writer does that slept right after it."""
    monkeypatch.setattr(Lease, "check", lambda self: None)


def hold(root: str, key: str, folder: str) -> None:
    """Take the lease, then wait until told to publish; exit 5 if fenced off."""
    output = ObjectPath(root, key)
    try:
        with hold_lease(output, "old", stale_seconds=SHORT) as lease:
            (Path(folder) / "ready").touch()
            until((Path(folder) / "go").exists)
            lease.publish(version_folder(output, "vold"), MANIFEST)
            make_current(output, "vold", lease)
    except LockedError:
        os._exit(5)


def test_the_second_writer_hears_who_has_it(output: ObjectPath) -> None:
    with hold_lease(output, "weekly") as lease:
        assert has_active_writer(output)
        with pytest.raises(LockedError, match=rf"weekly \(process {os.getpid()} on .*since 20"):  # noqa: SIM117
            with hold_lease(output, "other"):
                pass
        lease.check()
    assert not has_active_writer(output)
    with hold_lease(output, "other") as second:
        assert second.token > lease.token
        with pytest.raises(LockedError, match="taken over by other"):
            lease.check()


def test_of_many_at_once_one_wins(output: ObjectPath) -> None:
    for _ in range(3):
        assert winners(output, 6) == 1


def test_a_killed_writer_is_followed_at_once(output: ObjectPath, tmp_path: Path) -> None:
    process = start(hold, output.root, output.key, str(tmp_path))
    until((tmp_path / "ready").exists, process)
    os.kill(process.pid or 0, signal.SIGKILL)
    finish(process)
    assert not has_active_writer(output)
    with hold_lease(output, "new") as lease:
        assert lease.token == 2


@pytest.mark.slow
def test_a_writer_that_was_stopped_cannot_publish(output: ObjectPath, tmp_path: Path) -> None:
    process = start(hold, output.root, output.key, str(tmp_path))
    until((tmp_path / "ready").exists, process)
    os.kill(process.pid or 0, signal.SIGSTOP)
    with pytest.raises(LockedError, match="old"), hold_lease(output, "new"):
        pass
    time.sleep(SHORT + 2)  # S3 tells times in whole seconds
    with hold_lease(output, "new") as lease:
        lease.publish(version_folder(output, "vnew"), '{"version": "vnew"}')
        make_current(output, "vnew", lease)
        os.kill(process.pid or 0, signal.SIGCONT)
        (tmp_path / "go").touch()
        assert finish(process) == 5
    assert current_version(output) == "vnew"
    assert not is_published(output, "vold")


@pytest.mark.slow
def test_another_host_is_judged_by_the_stores_clock(output: ObjectPath) -> None:
    with hold_lease(output, "far"):
        pass
    pretend(output, kernel="elsewhere", host="far-away", released=False, stale_seconds=SHORT)
    with pytest.raises(LockedError, match="on far-away"), hold_lease(output, "near"):
        pass
    time.sleep(SHORT + 2)
    with hold_lease(output, "near") as lease:
        assert lease.token == 2


def test_the_heart_of_a_holder_beats(output: ObjectPath) -> None:
    with hold_lease(output, "near", stale_seconds=600) as lease:
        before = lease.file.stat().st_mtime
        until(lambda: lease.renew() or lease.file.stat().st_mtime > before, every=0.1)
    lease.renew()
    holder = read_holder(output)
    assert holder is not None
    assert holder.released


def test_who_sleeps_before_a_step_cannot_do_it(
    output: ObjectPath, acquire: Callable[[ExitStack, str], Lease], monkeypatch: pytest.MonkeyPatch
) -> None:
    with ExitStack() as stack:
        old = stack.enter_context(hold_lease(output, "old"))
        acquire(stack, "new")
        sleepless(monkeypatch)
        with pytest.raises(LockedError, match="taken over by new"):
            old.publish(version_folder(output, "vold"), MANIFEST)
        with pytest.raises(LockedError, match="taken over by new"):
            old.point(output / "CURRENT", "vold")
    assert current_version(output) is None
    assert not is_published(output, "vold")


def test_what_was_decided_is_published_by_the_next(
    output: ObjectPath, acquire: Callable[[ExitStack, str], Lease], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The old writer sleeps between its decision and the manifest; later it finds it made, and stops."""
    manifest = version_folder(output, "vold") / "manifest.json"
    with ExitStack() as stack:
        old = stack.enter_context(hold_lease(output, "old"))
        original = ObjectPath.create
        late: list[bytes] = []

        def asleep(self: ObjectPath, data: bytes) -> None:
            if self == manifest and not late:
                late.append(data)
                acquire(stack, "new")
            original(self, data)

        monkeypatch.setattr(ObjectPath, "create", asleep)
        old.publish(version_folder(output, "vold"), MANIFEST)
        assert late == [MANIFEST.encode()]
        with pytest.raises(LockedError):
            old.point(output / "CURRENT", "vold")
    assert manifest.read_text() == MANIFEST
    assert CurrentPointer.parse((output / "CURRENT").read_bytes()) == CurrentPointer("", 2)


def test_the_late_part_of_an_old_writer_changes_nothing(
    output: ObjectPath, acquire: Callable[[ExitStack, str], Lease]
) -> None:
    part = version_folder(output, "v1") / "data" / "part-00000.parquet"
    one, two = pa.table({"a": [1]}), pa.table({"a": [2]})
    with ExitStack() as stack:
        old = stack.enter_context(hold_lease(output, "old"))
        old.put_part(part, one)  # of a run that was killed: the same bytes are kept, others replaced
        old.put_part(part, two)
        new = acquire(stack, "new")
        written = new.put_part(part, one)
        old.put_part(part, one)
        with pytest.raises(LockedError):
            old.put_part(part, two)
    assert len(part.read_bytes()) == written.n_bytes


def test_a_pointer_that_somebody_copied_there_is_taken_over(output: ObjectPath) -> None:
    (output / "CURRENT").write_bytes(b"v0\n")
    assert current_version(output) == "v0"
    with hold_lease(output, "new") as lease:
        assert current_version(output) == "v0"
        lease.publish(version_folder(output, "v1"), MANIFEST)
        lease.point(output / "CURRENT", "v1")
    assert current_version(output) == "v1"


@pytest.mark.parametrize("text", ["", "v1", "v1\nlease x\n", "v1\nlease 1\npublishing ../x\n", "\x00\xff"])
def test_a_fence_that_nobody_made_is_nobodys(text: str) -> None:
    found = CurrentPointer.parse(text.encode("utf-8", "replace"))
    assert (found.token, found.publishing) == (0, "")


def test_a_store_without_conditions_is_refused(output: ObjectPath, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that ignores If-None-Match and If-Match, as some do."""
    monkeypatch.setattr(ObjectPath, "_put_if", lambda self, data, mode: self.write_bytes(data))
    with (
        pytest.raises(InputError, match=r"although its condition.*overwrite each other"),
        hold_lease(output, "a"),
    ):
        pass


def test_a_key_that_may_not_write_is_told_so(output: ObjectPath, s3: S3Server) -> None:
    denied = s3.faults.answering(lambda method, path: 403 if method == "PUT" else None)
    with (
        denied,
        pytest.raises(InputError, match="cannot be written: permission denied"),
        hold_lease(output, "a"),
    ):
        pass
    with hold_lease(output, "a") as lease:
        assert isinstance(lease, ObjectLease)


def start_version(output: ObjectPath, name: str) -> ObjectPath:
    """A part of a version that has no manifest."""
    part = version_folder(output, name) / "data" / "part-00000.parquet"
    part.write_bytes(b"rows")
    return part


def test_unfinished_versions_are_swept_but_not_the_writers_own(output: ObjectPath) -> None:
    with hold_lease(output, "old") as lease:
        start_version(output, "vold")
        lease.publish(version_folder(output, "vold"), MANIFEST)
    own, other = start_version(output, "vown"), start_version(output, "vother")
    with hold_lease(output, "new") as lease:
        assert lease.remove_unfinished_versions(output / "versions", "vown") == ("vother",)
        assert (own.exists(), other.exists()) == (True, False)
    names = {place.key.partition("/versions/")[2] for place in (output / "versions").below()}
    part = "data/part-00000.parquet"
    assert names == {f"vold/{part}", "vold/manifest.json", f"vown/{part}"}


def test_a_sweeper_that_lost_the_lease_removes_nothing(
    output: ObjectPath, acquire: Callable[[ExitStack, str], Lease]
) -> None:
    part = start_version(output, "vx")
    with ExitStack() as stack:
        old = stack.enter_context(hold_lease(output, "old"))
        acquire(stack, "new")
        with pytest.raises(LockedError, match="taken over by new"):
            old.remove_unfinished_versions(output / "versions", "")
    assert [place.name for place in version_folder(output, "vx").below()] == [part.name]


def test_nobody_writes_where_a_sweeper_may_yet_remove(
    output: ObjectPath, acquire: Callable[[ExitStack, str], Lease], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The old one sleeps right after it has seen that the lease is its own."""
    part, below = start_version(output, "vx"), ObjectPath.below
    with ExitStack() as stack:
        old = stack.enter_context(hold_lease(output, "old"))

        def sleepy(place: ObjectPath) -> list[ObjectPath]:
            monkeypatch.undo()
            new = acquire(stack, "new")
            with pytest.raises(LockedError, match=r"being removed by old .*vx/.sweeping"):
                new.parts_folder(version_folder(output, "vx"))
            assert new.remove_unfinished_versions(output / "versions", "") == ()
            assert part.exists()
            return below(place)

        monkeypatch.setattr(ObjectPath, "below", sleepy)
        assert old.remove_unfinished_versions(output / "versions", "") == ("vx",)
        assert not part.exists()
        Lease(output, newest_token(output)).check()


def test_a_version_that_may_yet_be_removed_is_not_made_current(
    output: ObjectPath, acquire: Callable[[ExitStack, str], Lease]
) -> None:
    """A removal sleeps, and its successor finds the version there."""
    version = version_folder(output, "vold")
    with ExitStack() as stack:
        old = stack.enter_context(hold_lease(output, "old"))
        old.publish(version, MANIFEST)
        with old.removing(version):
            new = acquire(stack, "new")
            with pytest.raises(LockedError, match=r"being removed by old .*vold/.sweeping"):
                new.point(output / "CURRENT", "vold")
            old.discard(version)
        with pytest.raises(LockedError, match="was removed by another run"):
            new.point(output / "CURRENT", "vold")
    assert current_version(output) is None
