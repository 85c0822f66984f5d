"""Files, folders, globs and URIs; what is missing is named."""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import fs

from connectors import files, open_source
from connectors.base import ConnectorError, SourceSpec
from connectors.csv_source import Csv
from connectors.files import find_names, identify, identity, list_files, local_folder, reading
from connectors.jsonl_source import Jsonl
from connectors.parquet_source import Parquet
from connectors.registry import find_connector


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in (
        "data/b.csv",
        "data/a.csv",
        "data/sub/c.csv",
        "data/_SUCCESS",
        "data/.hidden.csv",
        "notes.txt",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x\n1\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("data/b.csv", ["data/b.csv"]),
        ("data", ["data/a.csv", "data/b.csv", "data/sub/c.csv"]),
        ("data/", ["data/a.csv", "data/b.csv", "data/sub/c.csv"]),
        ("./data/sub", ["./data/sub/c.csv"]),
        ("data/*.csv", ["data/a.csv", "data/b.csv"]),
        ("data/?.csv", ["data/a.csv", "data/b.csv"]),
        ("data/[!a].csv", ["data/b.csv"]),
        ("data/**/*.csv", ["data/a.csv", "data/b.csv", "data/sub/c.csv"]),
        ("*/sub/c.*", ["data/sub/c.csv"]),
    ],
)
def test_paths_are_found_sorted_and_named_as_written(tree: Path, path: str, found: list[str]) -> None:
    assert list(list_files(path).names) == found
    absolute = [str(tree / name) for name in found]
    assert [os.path.normpath(name) for name in list_files(str(tree / path)).names] == [
        os.path.normpath(name) for name in absolute
    ]
    as_uri = list_files(f"file://{tree}/{path.removeprefix('./')}") if "?" not in path else None
    assert as_uri is None or [os.path.normpath(n.removeprefix("file://")) for n in as_uri.names] == [
        os.path.normpath(name) for name in absolute
    ]


def test_a_name_with_brackets_is_taken_literally_if_it_exists(tree: Path) -> None:
    shutil.copy("data/a.csv", "data/[a].csv")
    assert list_files("data/[a].csv").names == ("data/[a].csv",)


def test_a_source_reads_from_where_it_was_opened(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = open_source("data/a.csv")
    monkeypatch.chdir("/")
    listing = source.list()
    assert listing.shards[0].path == "data/a.csv"
    assert source.read(listing.shards[0], ["x"], listing.schema)["x"].to_pylist() == [1]


def test_names_with_spaces_are_read_through_uris(tree: Path) -> None:
    shutil.copy("data/a.csv", "data/sub/d e.csv")
    source = open_source(f"file://{tree}/data/sub/d*.csv")
    listing = source.list()
    assert list(listing.identities) == [f"file://{tree}/data/sub/d%20e.csv"]
    assert source.read(listing.shards[0], ["x"], listing.schema)["x"].to_pylist() == [1]


def test_a_uri_is_read_like_a_path(tree: Path) -> None:
    source = open_source(f"file://{tree}/data/*.csv")
    listing = source.list()
    assert list(listing.identities) == [f"file://{tree}/data/a.csv", f"file://{tree}/data/b.csv"]
    assert source.read(listing.shards[1], ["x"], listing.schema)["x"].to_pylist() == [1]


@pytest.mark.parametrize(
    ("path", "parts"),
    [
        ("data/aa.csv", ["data/aa.csv does not exist", "'a.csv'"]),
        ("dta/a.csv", ["no 'dta'", "'data'"]),
        ("zzz.parquet", ["no 'zzz.parquet'", "data, notes.txt"]),
        ("nowhere/*.csv", ["no 'nowhere'"]),
        ("data/*.parquet", ["No file matches data/*.parquet"]),
        ("notes.txt/a.csv", ["does not exist"]),
        ("nosuch://bucket/a.csv", ["nosuch://bucket/a.csv", "ROWSIEVE_SCHEMES"]),
    ],
)
def test_missing_paths_name_the_nearest(tree: Path, path: str, parts: list[str]) -> None:
    with pytest.raises(ConnectorError) as caught:
        list_files(path)
    for part in parts:
        assert part in str(caught.value)


def test_formats_are_chosen_by_extension(tree: Path) -> None:
    (tree / "data/d.jsonl").write_text('{"x": 1}\n')
    with pytest.raises(ConnectorError, match=r"several formats \(csv, jsonl\).*source\.format"):
        find_connector("data")
    assert find_names(SourceSpec("data"), Jsonl) == ("data/d.jsonl",)
    assert find_names(SourceSpec("notes.txt"), Csv) == ("notes.txt",)
    with pytest.raises(ConnectorError, match=r"notes\.txt holds no readable file"):
        find_connector("notes.txt")
    with pytest.raises(ConnectorError, match=r"data holds no parquet file; it holds: data/a\.csv"):
        find_names(SourceSpec("data"), Parquet)


def test_packed_files_that_are_not_read_are_named(tree: Path) -> None:
    (tree / "packed").mkdir()
    (tree / "packed/a.csv.zip").write_bytes(b"")
    with pytest.raises(ConnectorError, match="unpack the others"):
        find_connector("packed")


def test_identity_follows_the_content_alone(tree: Path) -> None:
    before = identity("data/a.csv")
    assert before == "sha256:" + hashlib.sha256(b"x\n1\n").hexdigest()
    os.utime("data/a.csv", (0, 0))
    shutil.copy("data/a.csv", "data/copy.csv")
    assert identity("data/a.csv") == identity("data/copy.csv") == before
    Path("data/copy.csv").write_text("x\n2\n")
    assert identity("data/copy.csv") != before


def test_identity_of_a_remote_file_is_size_and_time(monkeypatch: pytest.MonkeyPatch, tree: Path) -> None:
    remote = fs.SubTreeFileSystem(str(tree), fs.LocalFileSystem())
    monkeypatch.setattr(files, "resolve", lambda path, root="", policy=None: (remote, path))
    mtime = Path("data/a.csv").stat().st_mtime_ns
    assert identity("data/a.csv") == f"size:4,mtime_ns:{mtime}"


def test_a_cache_answers_for_local_files(tree: Path) -> None:
    asked: list[str] = []

    def cached(names: object) -> dict[str, str]:
        asked.extend(names)  # type: ignore[call-overload]
        return dict.fromkeys(asked, "known")

    source = open_source("data/*.csv", identities=cached)
    assert source.list().identities == {"data/a.csv": "known", "data/b.csv": "known"}
    assert asked == [str(tree / "data/a.csv"), str(tree / "data/b.csv")]
    uri = f"file://{tree}/data/a.csv"
    assert identify(SourceSpec(uri, identities=cached), [uri]) == {uri: identity("data/a.csv")}


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (PermissionError(13, "no"), "permission denied. Make it readable"),
        (FileNotFoundError(2, "no"), "is gone"),
        (OSError(5, "Input/output error"), "Input/output error"),
    ],
)
def test_the_systems_errors_name_the_file(error: OSError, text: str) -> None:
    with pytest.raises(ConnectorError, match=text) as caught, reading("a.csv"):
        raise error
    assert str(caught.value).startswith("a.csv")


def test_what_a_store_s_library_raises_is_named_and_hides_the_key() -> None:
    uri = "abfs://account:secret@127.0.0.1:1/box"
    with pytest.raises(ConnectorError, match="cannot be read: Unknown error: no TLS") as caught, reading(uri):
        raise pa.ArrowException("Unknown error: no TLS")
    assert "secret" not in str(caught.value)
    with pytest.raises(pa.ArrowInvalid), reading(uri):
        raise pa.ArrowInvalid("a value does not fit")


def test_a_folder_whose_name_reads_as_a_pattern_is_named_with_the_remedy(tmp_path: Path) -> None:
    folder = tmp_path / "data [v2]"
    folder.mkdir()
    (folder / "a.csv").write_text("x,y\n1,a\n")
    with pytest.raises(ConnectorError, match=r"data \[v2\]\. It is a folder .* write \[\[\] for each \["):
        open_source(str(folder)).list()
    assert len(open_source(f"{tmp_path}/data [[]v2]/**/*").list().shards) == 1


def test_the_folder_of_a_local_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "a b"
    for path in ("a b/x.csv", f"{folder}/x.csv", f"file://{tmp_path}/a%20b/x.csv"):
        assert local_folder(path) == folder
    for path in ("memory://a/x.csv", f"file://{folder}/x.csv", "sqlite:///x.db#rows[1..2]"):
        assert local_folder(path) is None
    monkeypatch.setenv("ROWSIEVE_SCHEMES", "https")
    assert local_folder("a b/x.csv") is None
