"""The contract of leases, checked on a folder and on an object store."""

import pickle
from pathlib import Path

import pytest

from connectors.storage import Place, place_of
from engine.core.errors import LockedError
from engine.core.output_layout import POINTER, version_folder
from engine.storage.lease import has_active_writer, hold_lease, read_holder
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
