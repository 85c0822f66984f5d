"""Two exports of one version at once are one commit; one that is killed before the commit is none."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from connectors import open_source
from connectors.tables.delta_export import DeltaExport
from connectors.tables.export import CommitConflictError, Mode, VersionTag, open_export
from engine.core.errors import InputError
from engine.publish.export import ExportResult
from tests.s3 import S3Server
from tests.unit.engine.publish.test_export import Target, Version

for package in ("lance", "deltalake", "pyiceberg"):
    pytest.importorskip(package)
FORMATS = ("delta", "iceberg", "lance", "parquet")
EXPORT = """
import json, os, signal, sys, time
from pathlib import Path
from connectors.tables.export import PendingExport
from engine.execution.local_executor import LocalExecutor
from engine.publish.export import export
from engine.plan.exports import open_exports
from engine.recipe.recipe import ExportSection

section, folder, manifest, gate = json.loads(sys.argv[1])
whole = PendingExport.commit
def commit(pending, records):
    if gate == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    Path(gate, str(os.getpid())).touch()
    while len(os.listdir(gate)) < 2:
        time.sleep(0.001)
    return whole(pending, records)
PendingExport.commit = commit
(table,) = open_exports([ExportSection.model_validate(section)])
print(export(Path(folder), manifest, table, lambda: LocalExecutor()).written)
"""


@pytest.fixture(params=FORMATS)
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Target:
    return Target(request.param, tmp_path)


def expected(mode: Mode) -> list[int]:
    return sorted([*range(8), *(range(5) if mode == "append" else ())])


@pytest.mark.parametrize("mode", ["create", "append", "overwrite"])
def test_one_that_comes_between_the_look_and_the_commit_is_seen(
    target: Target, mode: Mode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if target.format == "parquet" and mode == "overwrite":
        pytest.skip("Parquet folders are not overwritten")
    old, new = Version(tmp_path, "v1", 5), Version(tmp_path, "v2", 8)
    if mode != "create":
        target.export(old, "create")
    kind = type(open_export(target.format, target.path, mode, target.catalog))  # type: ignore[arg-type]
    look = "committed_state" if target.format == "parquet" else "_find"
    looked, looks, rivals = getattr(kind, look), [0], []

    def slowly(*args: Any) -> Any:
        looks[0] += 1
        found = looked(*args)
        if looks[0] == 2:  # the first is before anything is written, the second just before the commit
            rivals.append(target.export(new, mode))
        return found

    monkeypatch.setattr(kind, look, slowly)
    done = target.export(new, mode)
    assert [one.written for one in rivals] == [True]
    assert done == ExportResult(done.format, done.path, rivals[0].state, written=False)
    assert target.ids() == expected(mode)


def test_a_delta_table_is_created_once_by_threads_that_saw_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The library tries a commit that was beaten again, and its check for a table comes before."""
    meeting, look = threading.Barrier(2), DeltaExport._find

    def together(*args: Any) -> Any:
        found = look(*args)
        if args[1] is None:
            meeting.wait(10)
        return found

    monkeypatch.setattr(DeltaExport, "_find", together)
    rows, tag = pa.table({"a": [1, 2]}), VersionTag("v1", "content")
    for round_ in range(12):
        made = DeltaExport(str(tmp_path / f"t{round_}"), "create")
        both = [made.start_export(rows.schema, tag) for _ in range(2)]
        written = [[one.write(rows, 0)] for one in both]
        with ThreadPoolExecutor(2) as pool:
            done = [pool.submit(one.attempt, files) for one, files in zip(both, written, strict=True)]
        faults = [one.exception() for one in done]
        assert [type(fault) for fault in faults if fault] == [CommitConflictError], round_


def test_other_versions_that_come_between_are_kept(
    target: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An append that is beaten by another version's append goes after it."""
    old, new, other = (Version(tmp_path, f"v{n}", n) for n in (5, 8, 3))
    target.export(old, "create")
    kind = type(open_export(target.format, target.path, "append", target.catalog))  # type: ignore[arg-type]
    look = "committed_state" if target.format == "parquet" else "_find"
    looked, looks = getattr(kind, look), [0]

    def slowly(*args: Any) -> Any:
        looks[0] += 1
        found = looked(*args)
        if looks[0] == 2:
            target.export(other, "append")
        return found

    monkeypatch.setattr(kind, look, slowly)
    assert target.export(new, "append").written
    assert target.ids() == sorted([*range(5), *range(8), *range(3)])


def start(target: Target, version: Version, mode: Mode, gate: str) -> subprocess.Popen[str]:
    """An export in a process of its own, which dies before its commit or waits there for another one."""
    value = json.dumps([target.section(mode), str(version.folder), version.manifest, gate])
    return subprocess.Popen([sys.executable, "-c", EXPORT, value], stdout=subprocess.PIPE, text=True)


SLOW = [pytest.param(one, marks=pytest.mark.slow) for one in FORMATS[1:]]


@pytest.mark.parametrize("format", [FORMATS[0], *SLOW])
@pytest.mark.parametrize("mode", ["create", "append"])
def test_a_process_killed_between_its_files_and_the_commit_shows_nothing(
    format: str, mode: Mode, tmp_path: Path
) -> None:
    target, old, new = Target(format, tmp_path), Version(tmp_path, "v1", 5), Version(tmp_path, "v2", 8)
    if mode == "append":
        target.export(old, "create")
    with start(target, new, mode, "kill") as dying:
        assert dying.wait(120) == -signal.SIGKILL
    if mode == "append":
        assert target.ids() == [*range(5)]
    else:
        with pytest.raises(Exception, match=r"(?i)no |not|none"):
            open_source(target.path, target.format, options=target.made.options).list()
    assert target.export(new, mode).written
    assert not target.export(new, mode).written
    assert target.ids() == expected(mode)
    if format == "parquet":  # what the dead one left is gone
        assert not [path for path in Path(target.path).iterdir() if path.name.startswith("_")]


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["create", "append"])
def test_two_processes_are_one_commit(target: Target, mode: Mode, tmp_path: Path) -> None:
    old, new, gate = Version(tmp_path, "v1", 5), Version(tmp_path, "v2", 8), tmp_path / "gate"
    gate.mkdir()
    if mode == "append":
        target.export(old, "create")
    both = [start(target, new, mode, str(gate)) for _ in range(2)]
    outcomes = sorted(one.communicate(timeout=120)[0].strip() for one in both)
    assert outcomes == ["False", "True"]
    assert target.ids() == expected(mode)


def test_parquet_goes_to_an_object_store_and_is_marked_once_it_is_whole(s3: S3Server, tmp_path: Path) -> None:
    target, old, new = Target("parquet", tmp_path), Version(tmp_path, "v1", 5), Version(tmp_path, "v2", 8)
    bucket = s3.bucket()
    target.path = s3.uri(bucket, "people")
    assert target.export(old, "create").state == "folder v1"
    assert not target.export(old, "create").written
    assert target.export(new, "append").written
    names = [entry["Key"] for entry in s3.client().list_objects_v2(Bucket=bucket)["Contents"]]
    files = [f"people/v{n}/rowsieve-c0ffee{i}-0000{k}.parquet" for n, i in ((1, 5), (2, 8)) for k in (0, 1)]
    assert sorted(names) == sorted([*files, "people/v1/_rowsieve.json", "people/v2/_rowsieve.json"])
    assert target.ids() == sorted([*range(5), *range(8)])
    other = Version(tmp_path / "other", "v2", 3)
    with pytest.raises(InputError, match="not of this export"):
        target.export(other, "append")
