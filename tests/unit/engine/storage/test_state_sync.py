"""A fit on hosts that share no disk: its folder, and the states it reads, are on each when its work is."""

from __future__ import annotations

import resource
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import Any, BinaryIO, Literal, cast

import pytest
from obstore.store import MemoryStore

from connectors.storage import ObjectPath, place_of
from connectors.storage.object_path import PART_BYTES
from engine.core.errors import InputError, LockedError
from engine.execution.local_executor import LocalExecutor
from engine.plan.planner import make_plan
from engine.recipe.trainers import ErmParams
from engine.runs.runner import run
from engine.storage.lease import hold_lease
from engine.storage.object_run_store import ObjectRunStore, synced_executor, working_copy
from engine.storage.state_sync import SyncedFolder, SyncingExecutor, download, snapshot
from engine.training.data.version import Version
from engine.training.evaluation.split_scores import GroupFacts, score
from engine.training.fit.job import TrainingJob
from engine.training.serving.pyfunc import write_served_model
from engine.training.training_run import TrainSpec, train
from operators.base import Context, Resources
from tests.data import small_recipe
from tests.s3 import S3Server
from tests.unit.engine.storage.test_object_output import files_of, recipe_at


class FullDisk:
    """An object whose content fits in a buffer; the disk takes none of it when the buffer is written."""

    def __truediv__(self, name: str) -> FullDisk:
        return self

    def read_into(self, file: BinaryIO) -> None:
        file.write(b"content")
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))


def test_a_download_that_the_disk_does_not_take_leaves_no_file(tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        with pytest.raises(OSError, match="File too large"):
            download(cast(ObjectPath, FullDisk()), ["a"], tmp_path / "state")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert [path.name for path in tmp_path.rglob("*")] == ["state"]


class OtherHosts:
    """Runs every piece on one of two hosts that have nothing of the driver's disk, in turn."""

    kind: Literal["local", "ray"] = "ray"

    def __init__(self, shared: Path) -> None:
        self._here, self._count = shared, 0

    def map(
        self, fn: Callable[[Any], Any], items: Sequence[Any], *, resources: Resources | None = None
    ) -> Iterator[Any]:
        for item in items:
            self._count += 1
            mine = self._here.with_name("driver")
            theirs = self._here.with_name(f"host{self._count % 2}")
            self._here.rename(mine)
            theirs.mkdir(exist_ok=True)
            theirs.rename(self._here)
            result = fn(item)
            self._here.rename(theirs)
            mine.rename(self._here)
            yield result


def tally(state: Path, other: Path, item: int) -> int:
    """Reads what the driver and an earlier fit left, and what itself left in the pass before."""
    offset = int((state / "offset.txt").read_text()) + int((other / "base.txt").read_text())
    mine = state / "parts" / f"{item}.txt"
    before = int(mine.read_text()) if mine.exists() else 0
    mine.parent.mkdir(exist_ok=True)
    mine.write_text(str(before + item + offset))
    if item == 2:
        (state / "old.txt").unlink(missing_ok=True)
    return before


def test_every_host_sees_what_the_others_left(s3: S3Server, tmp_path: Path) -> None:
    root = cast(ObjectPath, place_of(s3.uri(s3.bucket(), "out/store")))
    store = ObjectRunStore(root, tmp_path / "cache")
    with store.fitting("e" * 32) as scratch:
        (scratch / "base.txt").write_text("1000")
    store.commit_fit("e" * 32, {}, 1.0)
    other = store.state("e" * 32)
    reader = make_plan(small_recipe(tmp_path / "data")).reader()
    with store.fitting("f" * 32) as scratch:
        context = Context(reader, scratch, {"earlier": other})
        hosts = OtherHosts(tmp_path / "cache")
        mirror = SyncedFolder(scratch, store.folder("f" * 32) / ".scratch.tmp")
        syncing = SyncingExecutor(hosts, mirror, partial(store.ensure_local, list(context.states.values())))
        (scratch / "offset.txt").write_text("10")
        (scratch / "old.txt").write_text("")

        def work(item: int) -> int:
            return tally(scratch, other, item)

        assert list(syncing.map(work, [1, 2, 3])) == [0, 0, 0]
        assert not (scratch / "old.txt").exists()
        (scratch / "offset.txt").write_text("20")
        assert list(syncing.map(work, [3, 1, 2])) == [1013, 1011, 1012]
        found = {path.name: int(path.read_text()) for path in (scratch / "parts").iterdir()}
        assert found == {"1.txt": 2032, "2.txt": 2034, "3.txt": 2036}
    store.sweep("f" * 32)
    assert sorted(path.name for path in store.folder("f" * 32).iterdir()) == ["state", "state.json"]
    copy = store.state("f" * 32)
    assert sorted(path.name for path in copy.iterdir()) == ["offset.txt", "parts"]


@pytest.mark.slow  # a run and two trainings
def test_a_training_is_on_the_driver_wherever_it_ran(
    s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.runs.plugins.report.write_report", lambda *_: None)
    cache = tmp_path / "cache"
    cache.mkdir()
    monkeypatch.setattr("engine.storage.object_run_store.local_cache", lambda: cache)
    monkeypatch.setattr("engine.storage.object_run_store.several_hosts", lambda: True)
    uri = s3.uri(s3.bucket(), "out")
    run(recipe_at(tmp_path, uri))
    params = ErmParams(epochs=2)
    found = []
    for executor in (OtherHosts(cache), LocalExecutor()):
        result = train(TrainSpec(uri, params), executor)
        assert not result.reused
        found.append(files_of(result.place))
        job = TrainingJob(result.version, params, 0, result.folder)
        with synced_executor(executor, result.place, result.folder) as opened:
            again = score(job, result.model, opened, GroupFacts.of_record(result.record, job.version))
        assert {k: v.to_dict() for k, v in again.items()} == {
            k: v.to_dict() for k, v in result.evaluations.items()
        }
        result.place.remove_below()  # type: ignore[union-attr]
    kept = [{name: data for name, data in files.items() if ".lease" not in name} for files in found]
    assert kept[0] == kept[1]
    assert any(name.endswith(".safetensors") for name in kept[0])


def test_an_empty_folder_is_there_on_every_host(s3: S3Server, tmp_path: Path) -> None:
    remote = cast(ObjectPath, place_of(s3.uri(s3.bucket(), "folders")))
    state = tmp_path / "cache" / "state"
    (state / "work" / "inner").mkdir(parents=True)
    syncing = SyncingExecutor(OtherHosts(tmp_path / "cache"), SyncedFolder(state, remote))
    written = syncing.map(lambda item: (state / "work/inner" / f"{item}").write_text("x"), [1, 2, 3])
    assert list(written) == [1, 1, 1]
    assert {path.name for path in (state / "work/inner").iterdir()} == {"1", "2", "3"}


def test_a_folder_that_one_host_removes_is_gone_on_the_others(s3: S3Server, tmp_path: Path) -> None:
    remote = cast(ObjectPath, place_of(s3.uri(s3.bucket(), "emptied")))
    state = tmp_path / "cache" / "state"
    (state / "tree-1").mkdir(parents=True)
    (state / "tree-1" / "ids").write_text("ids")
    syncing = SyncingExecutor(OtherHosts(tmp_path / "cache"), SyncedFolder(state, remote))
    assert list(syncing.map(lambda _: len(list(state.glob("tree-*"))), [1, 2])) == [1, 1]
    shutil.rmtree(state / "tree-1")
    assert list(syncing.map(lambda _: len(list(state.glob("tree-*"))), [1, 2])) == [0, 0]


def test_what_a_host_has_put_it_does_not_fetch(s3: S3Server, tmp_path: Path) -> None:
    """Also what it has put in parts, of which the store tells the generation when it is put alone."""
    mine = SyncedFolder(tmp_path / "mine", cast(ObjectPath, place_of(s3.uri(s3.bucket(), "out"))))
    before = mine.pull()
    for name, size in (("small", 1), ("large", PART_BYTES + 1)):
        (mine.folder / name).write_bytes(bytes(size))
    mine.push(before)
    fetched: list[str] = []

    def watched(method: str, path: str) -> int | None:
        if method == "GET" and path.endswith(("small", "large")):
            fetched.append(path)
        return None

    with s3.faults.answering(watched):
        mine.pull()
        assert not fetched
        SyncedFolder(tmp_path / "theirs", mine.remote).pull()
    assert len(fetched) == 2


def test_folders_are_made_for_this_user_alone(s3: S3Server, tmp_path: Path) -> None:
    """On a host on which nothing has run yet, the first task makes the folder of all copies."""
    remote = cast(ObjectPath, place_of(s3.uri(s3.bucket(), "private")))
    SyncedFolder(tmp_path / "rowsieve-0" / "store" / "state", remote).pull()
    assert (tmp_path / "rowsieve-0").stat().st_mode & 0o077 == 0


def test_what_is_being_written_is_not_exchanged(s3: S3Server, tmp_path: Path) -> None:
    remote = cast(ObjectPath, place_of(s3.uri(s3.bucket(), "hidden")))
    folder = SyncedFolder(tmp_path / "state", remote)
    folder.pull()
    (folder.folder / ".half").write_text("half")
    (folder.folder / "whole").write_text("whole")
    folder.push({})
    assert set(remote.tags_below()) == {"whole"}


def test_a_file_that_vanishes_meanwhile_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_text(name)
    whole = Path.is_file

    def is_file(path: Path) -> bool:
        found = whole(path)
        if path.name == "a":
            path.unlink()
        return found

    monkeypatch.setattr(Path, "is_file", is_file)
    assert set(snapshot(tmp_path)) == {"b"}


def test_a_push_waits_for_a_pull_of_the_same_host(s3: S3Server, tmp_path: Path) -> None:
    """Nothing that another task of this host has pushed meanwhile is lost or downloaded again."""
    remote = cast(ObjectPath, place_of(s3.uri(s3.bucket(), "meeting")))
    folder = SyncedFolder(tmp_path / "state", remote)
    folder.pull()
    threads: list[Thread] = []

    class Racing:
        """The prefix; another task of this host begins to push a file as soon as the prefix was listed."""

        def tags_below(self) -> Any:
            there = remote.tags_below()
            (folder.folder / "fresh").write_text("fresh")
            threads.append(Thread(target=folder.push, args=({},)))
            threads[0].start()
            threads[0].join(0.3)
            assert threads[0].is_alive()
            return there

        def __getattr__(self, name: str) -> Any:
            return getattr(remote, name)

    SyncedFolder(folder.folder, cast(ObjectPath, Racing())).pull()
    threads[0].join()
    assert (folder.folder / "fresh").read_text() == "fresh"
    assert set(remote.tags_below()) == {"fresh"}
    (folder.folder / "fresh").write_text("newer")  # not pushed yet
    folder.pull()
    assert (folder.folder / "fresh").read_text() == "newer"


def test_the_champion_is_scored_where_hosts_share_no_disk(
    s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from engine.recipe.incremental import TrainSection
    from engine.runs.plugins import training

    cache = tmp_path / "cache"
    cache.mkdir()
    monkeypatch.setattr(training, "local_cache", lambda: cache)
    monkeypatch.setattr("engine.storage.object_run_store.several_hosts", lambda: True)

    def champion_of(_: Any, __: str, scratch: Path, ___: Any) -> tuple[str, Path]:
        folder = Path(scratch) / "model"
        folder.mkdir()
        (folder / "weights").write_text("weights")
        return "1", folder

    def score(
        job: Any, champion: Any, executor: Any, groups: Any, *, folder: Path, **_: Any
    ) -> dict[str, Any]:
        read = executor.map(lambda name: (folder / name).read_text(), ["weights", "weights", "weights"])
        assert list(read) == ["weights"] * 3
        return {}

    monkeypatch.setattr("engine.training.serving.stored_models.champion_of", champion_of)
    monkeypatch.setattr("engine.training.evaluation.split_scores.score", score)
    monkeypatch.setattr(
        "engine.training.data.version.open_version", lambda _: Version(tmp_path, {"operators": []})
    )
    monkeypatch.setattr("engine.training.fit.ensemble.Ensemble.load", lambda _: None)
    monkeypatch.setattr("engine.training.champion.rows_for", lambda *_: None)
    monkeypatch.setattr("engine.training.fit.job.TrainingJob.maker", SimpleNamespace(fit=lambda _: None))
    monkeypatch.setattr(training, "client", lambda _: None)
    uri = s3.uri(s3.bucket(), "out")
    section = TrainSection(when="accuracy < 0.8", register_as="m")
    executor = OtherHosts(cache)
    found = training._champion_scores(
        section, recipe_at(tmp_path, uri), cast(Any, place_of(uri)), {"version": "v1"}, lambda: executor
    )
    assert found is None


@pytest.mark.slow  # a run and a training
def test_a_champions_scores_are_the_same_on_hosts_that_share_no_disk(
    s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The whole way of `train.when`: only MLflow's registry is replaced by a folder."""
    from engine.recipe.incremental import TrainSection
    from engine.runs.plugins import training

    monkeypatch.setattr("engine.runs.plugins.report.write_report", lambda *_: None)
    cache = tmp_path / "cache"
    cache.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(cache))  # what else the driver makes, it makes on its disk
    monkeypatch.setattr(training, "local_cache", lambda: cache)
    monkeypatch.setattr("engine.storage.object_run_store.local_cache", lambda: cache)
    monkeypatch.setattr("engine.storage.object_run_store.several_hosts", lambda: True)
    uri = s3.uri(s3.bucket(), "out")
    recipe = recipe_at(tmp_path, uri)
    version = run(recipe).version
    trained = train(TrainSpec(uri, ErmParams(epochs=2)), LocalExecutor())
    registry = tmp_path / "registry"
    maker = TrainingJob(trained.version, ErmParams(epochs=2), 0, trained.folder).maker
    write_served_model(trained.model, trained.version, maker, registry)

    def champion_of(_: Any, __: str, scratch: Path, ___: Any) -> tuple[str, Path]:
        return "1", Path(shutil.copytree(registry, Path(scratch) / "model"))

    monkeypatch.setattr("engine.training.serving.stored_models.champion_of", champion_of)
    monkeypatch.setattr(training, "client", lambda _: None)
    section = TrainSection(when="accuracy < 0.8", register_as="m", params={"epochs": 2})
    output, manifest = cast(Any, place_of(uri)), {"version": version}
    found = [
        training._champion_scores(section, recipe, output, manifest, lambda executor=executor: executor)
        for executor in (OtherHosts(cache), LocalExecutor())
    ]
    assert found[0] == found[1]
    scores = trained.evaluations["validation"].metrics()
    del scores["average_accuracy"]  # it weighs groups by the rows of a training, and none was made here
    assert found[0] == scores


def test_a_copy_is_uploaded_after_an_error_and_not_under_a_new_writer(
    s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = place_of(s3.uri(s3.bucket(), "model"))
    assert isinstance(place, ObjectPath)

    def write(text: str, *, lost: bool) -> None:
        with hold_lease(place, "training") as lease, working_copy(place, lease) as folder:
            (folder / "weights").write_text(text)
            if lost:
                monkeypatch.setattr("engine.storage.lease.base.newest_token", lambda folder: 10**6)
            raise ValueError("broken off")

    with pytest.raises(ValueError, match="broken off"):
        write("first", lost=False)
    assert (place / "weights").read_bytes() == b"first"
    with pytest.raises(LockedError):
        write("second", lost=True)
    assert (place / "weights").read_bytes() == b"first"


@pytest.fixture
def place_of_several_hosts(monkeypatch: pytest.MonkeyPatch) -> ObjectPath:
    """A prefix of an object store in memory, for a cluster of several hosts."""
    monkeypatch.setattr("engine.storage.object_run_store.several_hosts", lambda: True)
    store = MemoryStore()
    monkeypatch.setattr("connectors.storage.object_path.client", lambda root: store)
    return ObjectPath("s3://memory", "out/models/m")


def test_who_has_lost_a_lease_takes_no_files_from_its_successor(
    tmp_path: Path, place_of_several_hosts: ObjectPath
) -> None:
    """Two drivers work on one place; the former wakes up, and tidies up, between two passes of the other."""
    place = place_of_several_hosts

    def work(copy: Path, item: int) -> list[str]:
        (copy / f"{item}.txt").write_text("")
        return sorted(path.name for path in copy.glob("*.txt"))

    with ExitStack() as former, ExitStack() as successor:
        for name, stack in (("a", former), ("b", successor)):
            copy = tmp_path / name / "cache" / "copy"
            copy.mkdir(parents=True)
            hosts = OtherHosts(copy.parent)
            executor = stack.enter_context(synced_executor(hosts, place, copy))
            assert list(executor.map(partial(work, copy), [0])) == [["0.txt"]]
        former.close()
        assert list(executor.map(partial(work, copy), [1])) == [["0.txt", "1.txt"]]
    assert place.below() == []


def test_what_a_killed_driver_exchanged_is_removed_two_leases_later(
    tmp_path: Path, place_of_several_hosts: ObjectPath
) -> None:
    place = place_of_several_hosts
    for number in (6, 7):
        (place / f".synced-{number:08d}-killed" / "file").write_bytes(b"")
    (place / "training.json").write_bytes(b"{}")
    (place / ".lease" / "00000008.json").write_bytes(b"{}")
    with synced_executor(OtherHosts(tmp_path / "copy"), place, tmp_path / "copy"):
        pass
    left = {path.key.partition("/m/")[2] for path in place.below()}
    assert left == {".synced-00000007-killed/file", "training.json", ".lease/00000008.json"}


@pytest.mark.parametrize("what", ["a file of the state", "a list of names", "no object"])
def test_a_state_that_was_changed_after_its_fit_is_refused(what: str, s3: S3Server, tmp_path: Path) -> None:
    root = cast(ObjectPath, place_of(s3.uri(s3.bucket(), "out/store")))
    with ObjectRunStore(root, tmp_path / "writer").fitting("e" * 32) as scratch:
        (scratch / "base.txt").write_text("1000")
    state = root / ("e" * 32)
    if what == "a file of the state":
        (state / "state" / "base.txt").write_bytes(b"1001")
        message = "base.txt: its SHA-256 is not the one in state.json"
    else:
        (state / "state.json").write_bytes(b'{"files": ["base.txt"]}' if what == "a list of names" else b"[]")
        message = "state.json is no list of a state's files"
    reader = ObjectRunStore(root, tmp_path / "reader")
    with pytest.raises(InputError, match=message):
        reader.state("e" * 32)
    assert not [path for path in (tmp_path / "reader").rglob("*") if path.is_file()]
