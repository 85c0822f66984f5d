"""The contract of run stores, checked on a folder and on an object store."""

from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pyarrow as pa
import pytest

from connectors.storage import ObjectPath, place_of, read_columns
from engine.core.errors import LockedError
from engine.storage.lease import hold_lease
from engine.storage.object_run_store import ObjectRunStore
from engine.storage.run_store import RunStore
from engine.storage.stores import store_of
from tests.s3 import S3Server

TABLE = pa.table({"a": pa.array([1, 2, 3], pa.int32())})


@pytest.fixture(params=["folder", "object store"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[RunStore]:
    if request.param == "folder":
        yield RunStore(tmp_path / "store")
        return
    server: S3Server = request.getfixturevalue("s3")
    root = cast(ObjectPath, place_of(server.uri(server.bucket(), "out/store")))
    yield ObjectRunStore(root, tmp_path / "cache")


def test_a_part_counts_only_with_its_record_and_its_bytes(store: RunStore) -> None:
    for shard in range(3):
        store.commit("f", shard, TABLE, seconds=1.0, quarantined=shard)
    store.part("f", 2).with_suffix(".json").unlink()
    store.part("f", 1).write_bytes(b"cut off")
    assert set(store.committed("f")) == {0}
    assert [store.find_commit("f", shard) for shard in range(4)] == [
        store.committed("f")[0],
        None,
        None,
        None,
    ]
    assert store.committed("f")[0].rows == 3
    assert store.committed("other") == {}
    assert read_columns(store.part("f", 0)).equals(TABLE)


def test_a_record_that_is_written_again_is_read_again(store: RunStore) -> None:
    """A process remembers the records that it has read, and each is as long as the one before."""
    for seconds in (1.0, 2.0, 3.0):
        store.commit("f", 0, TABLE, seconds=seconds)
        assert store.committed("f")[0].seconds == seconds


def test_times_of_commits_are_known(store: RunStore) -> None:
    store.commit("f", 0, TABLE, seconds=1.0)
    found = store.commit_times("f", [0, 1])
    assert found[0] > 0
    assert found[1] == 0


def test_a_state_appears_only_when_its_block_ends_well(store: RunStore) -> None:
    with pytest.raises(RuntimeError), store.fitting("f") as scratch:  # noqa: PT012
        (scratch / "half").touch()
        raise RuntimeError
    assert not store.state("f").exists()
    with store.fitting("f") as scratch:
        (scratch / "deep").mkdir()
        (scratch / "deep" / "whole").write_text("1")
    assert (store.state("f") / "deep" / "whole").read_text() == "1"
    assert store.fitted("f") is None
    store.commit_fit("f", {"loss": 0.5}, 1.0)
    assert store.fitted("f") == {"metrics": {"loss": 0.5}, "seconds": 1.0}


def test_a_new_state_replaces_the_old_one_as_a_whole(store: RunStore) -> None:
    output = store.root.parent
    with hold_lease(output, "test") as lease:
        for name in ("first", "second"):
            with store.fitting("f", lease) as scratch:
                (scratch / name).touch()
    assert [path.name for path in store.state("f").iterdir()] == ["second"]


def test_a_writer_that_has_lost_the_lease_leaves_no_state(store: RunStore) -> None:
    output = store.root.parent
    with hold_lease(output, "old") as lease:
        pass
    with hold_lease(output, "new"):  # noqa: SIM117
        with pytest.raises(LockedError), store.fitting("f", lease) as scratch:
            (scratch / "late").touch()
    assert not store.state("f").exists()


def test_replays_are_counted(store: RunStore) -> None:
    assert store.replays() == {}
    store.replay(["f", "g"])
    store.replay(["f"])
    assert store.replays() == {"f": 2, "g": 1}


def test_sweeping_removes_temporary_files_alone(store: RunStore) -> None:
    store.commit("f", 0, TABLE, seconds=1.0)
    before = sorted(path.name for path in store.folder("f").iterdir())
    (store.folder("f") / ".part-00001.parquet.tmp").write_bytes(b"half")
    store.sweep("f")
    assert sorted(path.name for path in store.folder("f").iterdir()) == before


def test_the_store_of_an_output_is_of_its_kind(store: RunStore) -> None:
    assert type(store_of(store.root.parent)) is type(store)
