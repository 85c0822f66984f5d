"""Guarantees of a storage place, the same on a local disk and on S3 over HTTP."""

import os
import pickle
import re
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from connectors.base import ConnectorError
from connectors.sink import write_parquet
from connectors.storage import (
    ObjectPath,
    Place,
    exist_many,
    find_column,
    make_folder,
    place_of,
    read_columns,
    read_many,
    remove_tree,
    write_whole,
)
from connectors.storage.object_path import PART_BYTES
from engine.core.errors import InputError
from engine.core.output_layout import output_of
from engine.storage.manifest import published_versions
from tests.s3 import BROKEN, SECRET, USER, S3Server

COPY_TWICE = """
import sys
from pathlib import Path
from connectors.storage import place_of
from engine.storage.state_sync import download, upload

def peak():
    (line,) = (one for one in Path("/proc/self/status").read_text().splitlines() if one.startswith("VmHWM"))
    return int(line.split()[1])

place, folder = place_of(sys.argv[1]), Path(sys.argv[2])
(place / "small").write_bytes(b"1")
Path("/proc/self/clear_refs").write_text("5")  # the peak is from now on
before = peak()
upload(folder, ["large"], place)
(folder / "large").unlink()
download(place, ["large"], folder)
print((folder / "large").stat().st_size, peak() - before)
"""
"""Copies the file `large` of a folder to a place and back; prints its size and the growth of memory, KiB."""


@pytest.fixture(params=["local", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """An empty folder, or an empty prefix."""
    if request.param == "local":
        return tmp_path / "pre fix"
    server: S3Server = request.getfixturevalue("s3")
    return place_of(server.uri(server.bucket(), "pre%20fix/"))


@pytest.fixture
def key(s3: S3Server) -> ObjectPath:
    """A key of S3."""
    found = place_of(s3.uri(s3.bucket(), "some/key.txt"))
    assert isinstance(found, ObjectPath)
    return found


def test_what_is_written_is_read_and_listed(place: Place) -> None:
    assert not (place / "a").exists()
    for name in ("a", "a b%20.txt", "deep/er/c.json", "deep/d.json"):
        write_whole(place / name, name.encode())
    write_whole(place / "a", b"again")
    assert (place / "a").read_bytes() == b"again"
    assert (place / "a b%20.txt").read_text("utf-8") == "a b%20.txt"
    assert (place / "a").stat().st_size == 5
    assert (place / "deep").is_dir()
    assert not (place / "deep").exists() or isinstance(place, Path)
    assert sorted(path.name for path in place.iterdir()) == ["a", "a b%20.txt", "deep"]
    assert sorted(path.name for path in (place / "deep").glob("*.json")) == ["d.json"]
    found = read_many([place / "a", place / "none", place / "deep" / "d.json"])
    assert found == [b"again", None, b"deep/d.json"]
    assert exist_many([place / "a", place / "none", place / "deep" / "d.json"]) == [True, False, True]


def test_versions_of_an_object_store_are_looked_for_at_the_same_time(
    s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An output has a version for each night; one request after the other took minutes for a thousand."""
    output = place_of(s3.uri(s3.bucket(), "out"))
    for name in ("v000000000001", "v000000000002", "v000000000003"):
        write_whole(output / "versions" / name / "manifest.json", b"{}")
    write_whole(output / "versions" / "v000000000004" / "data" / "part-00000.parquet", b"")
    waiting, exists = threading.Barrier(4, timeout=20), ObjectPath.exists

    def exists_with_the_others(self: ObjectPath) -> bool:
        waiting.wait()
        return exists(self)

    monkeypatch.setattr(ObjectPath, "exists", exists_with_the_others)
    assert published_versions(output) == ["v000000000001", "v000000000002", "v000000000003"]


def test_what_is_removed_is_gone(place: Place) -> None:
    for name in ("x/1", "x/y/2", "xy"):
        write_whole(place / name, b"1")
    remove_tree(place / "x")
    remove_tree(place / "never there")
    assert [path.name for path in place.iterdir()] == ["xy"]
    (place / "xy").unlink()
    (place / "xy").unlink(missing_ok=True)
    assert not (place / "xy").exists()
    with pytest.raises(FileNotFoundError) as caught:
        (place / "xy").read_bytes()
    assert str(place) in str(caught.value)


def test_parquet_has_the_same_bytes_everywhere(place: Place, tmp_path: Path) -> None:
    table = pa.table({"a": list(range(50_000)), "b": [f"text {i}" for i in range(50_000)]})
    make_folder(place)
    written = write_parquet(table, place / "t.parquet")
    assert written == write_parquet(table, tmp_path / "reference.parquet")
    assert (place / "t.parquet").read_bytes() == (tmp_path / "reference.parquet").read_bytes()
    found = find_column(place / "t.parquet", "a")
    assert found is not None
    assert found.equals(table.column("a"))
    assert find_column(place / "t.parquet", "c") is None
    assert find_column(place / "none.parquet", "a") is None
    assert read_columns(place / "t.parquet", ["b"]).equals(table.select(["b"]))
    assert read_columns(place / "t.parquet").equals(table)


def test_of_a_large_object_only_what_is_asked_for_is_fetched(
    key: ObjectPath, s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    from connectors.storage import object_path

    monkeypatch.setattr(object_path, "SMALL", 1000)
    wide = np.random.default_rng(0).random(1_000_000)
    table = pa.table({"a": wide, "b": np.arange(len(wide)) % 7})
    size = write_parquet(table, key).n_bytes
    fetched: list[int] = []
    with s3.faults.watching(fetched.append):
        assert read_columns(key, ["b"]).equals(table.select(["b"]))
    assert sum(fetched) < size / 2
    assert read_columns(key).equals(table)
    assert find_column(key, "c") is None


def test_pathlib_and_keys_name_things_alike() -> None:
    local, remote = Path("/b/x/part-1.parquet"), ObjectPath("s3://b", "x/part-1.parquet")
    for path in (local, remote):
        assert (path.name, path.stem, path.suffix) == ("part-1.parquet", "part-1", ".parquet")
        assert path.with_suffix(".json").name == "part-1.json"
        assert path.parent.name == "x"
        assert (path.parent / "y" / "z").name == "z"
    assert str(remote) == "s3://b/x/part-1.parquet"
    assert place_of("some/where") == Path("some/where").absolute()
    assert place_of("file:///some/where") == Path("/some/where")
    assert place_of("s3://b/x//y/") == ObjectPath("s3://b", "x/y")
    assert str(place_of("abfss://box@account.dfs.core.windows.net/x")).startswith("abfss://box@account.dfs.")


@pytest.mark.parametrize("uri", ["ftp://host/x", "s3:///x", "s3://bucket/a/../b", "gs://bucket/./b"])
def test_a_uri_that_is_no_place_is_refused(uri: str) -> None:
    with pytest.raises(ConnectorError, match=re.escape(uri.partition("://")[0])):
        place_of(uri)


def test_one_of_many_creates(key: ObjectPath) -> None:
    key.create(b"first")
    key.create(b"first")  # its own answer was lost: it was this writer
    with pytest.raises(FileExistsError, match=r"some/key\.txt"):
        key.create(b"second")
    assert key.read_bytes() == b"first"


def test_a_change_that_came_between_is_noticed(key: ObjectPath) -> None:
    key.create(b"first")
    _, tag = key.read_tagged()
    key.replace_if(b"second", tag)
    with pytest.raises(FileExistsError):
        key.replace_if(b"third", tag)
    key.replace_if(b"second", tag)
    assert key.read_bytes() == b"second"
    key.unlink()
    with pytest.raises(FileExistsError):
        key.replace_if(b"fourth", tag)
    assert not key.exists()


def test_no_secret_in_its_texts(key: ObjectPath) -> None:
    texts = [str(key), repr(key), str(key.parent)]
    with pytest.raises(FileNotFoundError) as caught:
        key.read_bytes()
    assert not [text for text in [*texts, str(caught.value)] if SECRET in text or USER in text]
    assert pickle.loads(pickle.dumps(key)) == key


def test_a_store_that_denies_or_does_not_answer(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    from connectors.storage import clients

    monkeypatch.setattr(clients, "RETRIES", 0)
    for uri in (
        s3.uri("no-such-bucket-here", "a"),
        "s3://a:b@bucket/a?endpoint_override=127.0.0.1:9&scheme=http",
    ):
        place = place_of(uri)
        with pytest.raises(OSError, match="s3://") as caught:
            write_whole(place / "x", b"")
        assert SECRET not in str(caught.value)


def test_a_killed_writer_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Locally: whatever happens before the rename, the file is the old one. An object is one request."""
    write_whole(tmp_path / "a", b"old")

    def killed(handle: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", killed)
    with pytest.raises(KeyboardInterrupt):
        write_whole(tmp_path / "a", b"new")
    assert (tmp_path / "a").read_bytes() == b"old"


def test_a_store_that_is_busy_is_asked_again(key: ObjectPath, s3: S3Server) -> None:
    methods: list[str] = []

    def slow_down(method: str, path: str) -> int | None:
        methods.append(method)
        return 503 if len(methods) < 3 else None

    with s3.faults.answering(slow_down):
        key.create(b"1")
    assert methods == ["PUT"] * 3
    assert key.read_bytes() == b"1"


@pytest.mark.parametrize("before", [[], [503], [503, 503]])
def test_the_answer_that_there_is_no_object_may_break_off(s3: S3Server, before: list[int]) -> None:
    """Also after an answer that was repeated: a run ended, as the error then speaks of repetitions."""
    answers = iter([*before, BROKEN])
    place = place_of(s3.uri(s3.bucket(), "none"))
    with s3.faults.answering(lambda method, path: next(answers, None)), pytest.raises(FileNotFoundError):
        place.read_bytes()


def test_an_answer_that_breaks_off_is_asked_for_again(key: ObjectPath, s3: S3Server) -> None:
    content = b"0123456789" * 1000
    key.write_bytes(content)
    asked = 0

    def break_two_of_three(method: str, path: str) -> int | None:
        nonlocal asked
        asked += method == "GET"
        return BROKEN if method == "GET" and asked % 3 else None

    with s3.faults.answering(break_two_of_three):
        assert key.read_bytes() == content
        assert key.read_range(5, 1000) == content[5:1005]
        assert key.open().read() == content
        assert [path.key for path in key.parent.below()] == [key.key]
        assert set(key.parent.listing()) == {key.name}
        with pytest.raises(FileNotFoundError):
            (key.parent / "absent").read_bytes()
    assert asked >= 18


def test_a_file_is_the_object_and_the_object_the_file(key: ObjectPath, s3: S3Server, tmp_path: Path) -> None:
    sent, got = tmp_path / "sent", tmp_path / "got"
    asked = 0

    def break_the_first(method: str, path: str) -> int | None:
        nonlocal asked
        asked += method == "GET"
        return BROKEN if method == "GET" and asked == 1 else None

    for content in (b"", b"a few bytes", bytes(range(256)) * (PART_BYTES // 256) + b"and one more part"):
        sent.write_bytes(content)
        tag = key.write_file(sent)
        assert key.parent.tags_below()[key.name].same_content(tag)
        asked = 0
        with s3.faults.answering(break_the_first), got.open("wb") as file:
            key.read_into(file)
        assert got.read_bytes() == content == key.read_bytes()
    with pytest.raises(FileNotFoundError), got.open("wb") as file:
        (key.parent / "absent").read_into(file)


def test_a_large_file_is_copied_in_bounded_memory(s3: S3Server, tmp_path: Path) -> None:
    """Measured in a process of its own: the server's memory, which is here, holds what it stores."""
    size = 192 * 2**20
    with (tmp_path / "large").open("wb") as file:
        file.truncate(size)
    command = [sys.executable, "-c", COPY_TWICE, s3.uri(s3.bucket(), "pre"), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    copied, grown = map(int, done.stdout.split())
    assert copied == size
    assert grown < size / 2 / 1024


@pytest.mark.slow
def test_an_answer_that_always_breaks_off_is_an_error(key: ObjectPath, s3: S3Server) -> None:
    key.write_bytes(b"1")
    with s3.faults.answering(lambda method, path: BROKEN), pytest.raises(OSError, match="refuses"):
        key.read_bytes()


def test_a_right_that_is_missing_is_named(key: ObjectPath, s3: S3Server) -> None:
    with (
        s3.faults.answering(lambda method, path: 403),
        pytest.raises(PermissionError, match=r"403.*AccessDenied.*s3://.*some/key\.txt"),
    ):
        key.write_bytes(b"1")
    with s3.faults.answering(lambda method, path: 403), pytest.raises(PermissionError):
        key.exists()
    with s3.faults.answering(lambda method, path: 403), pytest.raises(PermissionError):
        read_many([key])  # must not pass for a file that is not there


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from connectors.storage import clients

    monkeypatch.setattr(clients, "find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"output\.path: s3://b: .*rowsieve\[storage\]"):
        output_of("s3://b/x")
    assert output_of("x") == Path("x").absolute()
