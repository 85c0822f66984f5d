"""Sources on S3, spoken over HTTP, and on filesystems that fsspec knows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from threading import Barrier, get_ident
from typing import Any

import fsspec
import pyarrow.parquet as pq
import pytest

from connectors import open_source
from connectors.base import ConnectorError, CorruptError, SourceSpec
from connectors.errors import redact_uris
from connectors.files import MAX_CONCURRENT, each, each_file, reading
from connectors.filters import parse
from engine import Recipe
from engine.plan.planner import make_plan
from tests.s3 import REGION, SECRET, USER, S3Server
from tests.unit import formats

SLOW = ("webdataset", "parquet", "csv", "jsonl_gz", "ipc_stream", "feather", "huggingface")
KINDS = ["hive", *(pytest.param(kind, marks=pytest.mark.slow) for kind in SLOW)]


def upload(server: S3Server, bucket: str, folder: Path, prefix: str) -> None:
    client = server.client()
    for path in folder.rglob("*"):
        if path.is_file():
            client.upload_file(str(path), bucket, f"{prefix}/{path.relative_to(folder)}")


def stored_rows(source: Any) -> list[dict[str, Any]]:
    listing = source.list()
    found = [source.read(shard, listing.schema.names, listing.schema) for shard in listing.shards]
    return [row for table in found for row in table.to_pylist()]


def rows_of(source: Any) -> list[dict[str, Any]]:
    return formats.plain(stored_rows(source))


@pytest.mark.parametrize("kind", KINDS)
def test_every_format_is_read_from_s3(kind: str, s3: S3Server, tmp_path: Path) -> None:
    formats.WRITERS[kind](tmp_path, "a", formats.rows())
    bucket = s3.bucket()
    upload(s3, bucket, tmp_path, "deep er/data")
    source = open_source(
        s3.uri(bucket, "deep%20er/data"),
        rename=formats.RENAMES.get(kind),
        filter=parse(["n", ">", 4]),
        shard_bytes=700,
    )
    assert rows_of(source) == [row for row in formats.rows() if row["n"] > 4]
    for found in source.list().identities.values():
        assert "etag:" in found
        assert "mtime" not in found


def test_globs_keys_from_the_environment_and_new_bytes(
    s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    formats.jsonl(tmp_path, "a", formats.rows()[:5])
    formats.jsonl(tmp_path, "b c", formats.rows()[5:])
    bucket = s3.bucket()
    upload(s3, bucket, tmp_path, "x/y")
    region = f"?region={REGION}"  # else pyarrow asks AWS for it
    source = open_source(f"s3://{bucket}/x/**/*.jsonl{region}")
    before = source.list().identities
    assert list(before) == [f"s3://{bucket}/x/y/{name}.jsonl{region}" for name in ("a", "b%20c")]
    assert rows_of(source) == formats.rows()
    assert rows_of(open_source(f"s3://{bucket}/x/y/b*.jsonl{region}")) == formats.rows()[5:]
    listing = source.list()
    formats.jsonl(tmp_path, "a", formats.rows()[:5][::-1])  # as many bytes
    upload(s3, bucket, tmp_path, "x/y")
    after = source.list().identities
    assert [before[path] == after[path] for path in before] == [False, True]
    changed, same = listing.shards
    assert source.read(same, ["n"], listing.schema).num_rows == same.n_rows
    with pytest.raises(ConnectorError, match=r"x/y/a\.jsonl.* has changed since it was listed"):
        source.read(changed, ["n"], listing.schema)


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("x/aa.jsonl", "there is no 'aa.jsonl' in its folder, but a 'a.jsonl'"),
        ("y/*.jsonl", "there is no 'y' in its folder, which holds: x"),
        ("x/*.csv", "No file matches"),
    ],
)
def test_what_is_missing_on_s3_is_named(path: str, text: str, s3: S3Server, tmp_path: Path) -> None:
    formats.jsonl(tmp_path, "a", formats.rows())
    bucket = s3.bucket()
    upload(s3, bucket, tmp_path, "x")
    with pytest.raises(ConnectorError, match=text) as caught:
        open_source(s3.uri(bucket, path)).list()
    assert SECRET not in str(caught.value)
    assert USER not in str(caught.value)


def test_stores_that_refuse_are_named_without_secrets(s3: S3Server, tmp_path: Path) -> None:
    path = formats.parquet(tmp_path, "a", formats.rows())
    path.write_bytes(path.read_bytes()[:-9])
    bucket = s3.bucket()
    upload(s3, bucket, tmp_path, "x")
    errors = []
    with pytest.raises(ConnectorError, match="no bucket 'no-such-bucket'") as missing:
        open_source(s3.uri("no-such-bucket", "x"))
    with pytest.raises(ConnectorError, match=r"x/a\.parquet.* is not a whole Parquet file") as corrupt:
        open_source(s3.uri(bucket, "x")).list()
    errors = [missing, corrupt]
    for uri in (s3.uri(bucket, "x/a.parquet"), s3.uri(bucket, "x")):
        with (
            s3.faults.answering(lambda *_: 403),
            pytest.raises(ConnectorError, match="access denied") as caught,
        ):
            open_source(uri, "parquet").list()
        errors.append(caught)
    for error in errors:
        assert SECRET not in str(error.value)
        assert USER not in str(error.value)


def test_images_are_read_from_s3(s3: S3Server) -> None:
    bucket = s3.bucket()
    held = {"cat/1.png": b"one", "cat/2 \u00e4.png": b"two", "dog/3.png": b"three"}
    for key, data in held.items():
        s3.client().put_object(Bucket=bucket, Key=f"zoo/{key}", Body=data)
    source = open_source(s3.uri(bucket, "zoo"), shard_bytes=4)
    assert [(row["path"], row["image"], row["label"]) for row in stored_rows(source)] == [
        (key, data, key[:3]) for key, data in held.items()
    ]
    listing = source.list()
    s3.client().put_object(Bucket=bucket, Key="zoo/dog/3.png", Body=b"other")
    s3.client().put_object(Bucket=bucket, Key="zoo/cat/1.png", Body=b"more than one")
    with pytest.raises(ConnectorError, match=r"zoo/cat.*: its files have changed"):
        source.read(listing.shards[0], ["image"], listing.schema)
    assert source.read(listing.shards[1], ["image"], listing.schema).num_rows == 1


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (OSError("AWS Error UNKNOWN (HTTP status 403) during HeadObject"), "access denied"),
        (OSError("401, message='Unauthorized', url='http://h/x'"), "access denied"),
        (OSError(5, "Input/output error", "data/part-0401.csv"), "Check the file and the path"),
        (OSError("When reading 'a/403/b-401.csv': it broke"), "it broke. Check the file and the path"),
    ],
)
def test_digits_of_a_name_are_no_refusal(error: OSError, text: str) -> None:
    with pytest.raises(ConnectorError) as caught, reading("x"):
        raise error
    assert text in str(caught.value)
    assert ("access denied" in str(caught.value)) == (text == "access denied")


def test_keys_with_two_slashes_are_read() -> None:
    """Listing them ended with "string index out of range"."""
    fsspec.filesystem("memory").pipe("/rowsieve-slashes/a//x.csv", b"n,y\n1,a\n")
    for folder in ("", "/a", "/a/"):
        assert stored_rows(open_source(f"memory://rowsieve-slashes{folder}")) == [{"n": 1, "y": "a"}]


def test_keys_that_pyarrow_cannot_read_are_named(s3: S3Server) -> None:
    bucket = s3.bucket()
    s3.client().put_object(Bucket=bucket, Key="x/a//x.csv", Body=b"n,y\n1,a\n")
    for folder in ("x", "x/a"):
        with pytest.raises(ConnectorError, match=r"x/a//x\.csv.*two slashes in a row.*Rename the object\.$"):
            open_source(s3.uri(bucket, folder)).list()


def test_a_plan_over_s3_records_no_secret(s3: S3Server, tmp_path: Path) -> None:
    formats.csv(tmp_path, "a", formats.rows())
    bucket = s3.bucket()
    upload(s3, bucket, tmp_path, "x")
    source = {"path": s3.uri(bucket, "x"), "label": "y"}
    plan = make_plan(Recipe.parse({"name": "r", "source": source, "output": {"path": str(tmp_path / "out")}}))
    assert plan.n_rows == len(formats.rows())
    assert SECRET not in str(plan.to_dict())


def test_any_filesystem_of_fsspec_is_read(tmp_path: Path) -> None:
    formats.hive(tmp_path, "a b", formats.rows())
    memory = fsspec.filesystem("memory")
    memory.put(str(tmp_path), "/rowsieve-test/data", recursive=True)
    for path in ("memory://rowsieve-test/data", "memory://rowsieve-test/data/**/*.parquet"):
        assert rows_of(open_source(path)) == formats.rows()
    with pytest.raises(ConnectorError, match="memory://rowsieve-test/none does not exist"):
        open_source("memory://rowsieve-test/none")
    with pytest.raises(ConnectorError, match=r"nosuch://x/y.*ROWSIEVE_SCHEMES"):
        open_source("nosuch://x/y")


def test_secrets_of_uris_are_hidden() -> None:
    text = "s3://KEY:abc@b/x?endpoint=e&secret_key=q1 https://b.blob/x?sv=1&sig=Zm9v&x=1"
    assert redact_uris(text) == "s3://***@b/x?endpoint=e&secret_key=*** https://b.blob/x?sv=1&sig=***&x=1"


def test_remote_files_are_looked_at_together_in_order_and_local_ones_one_by_one() -> None:
    remote, local = SourceSpec("s3://bucket/x"), SourceSpec("folder")
    names = [str(i) for i in range(4 * MAX_CONCURRENT)]
    together = Barrier(MAX_CONCURRENT)

    def look(path: str) -> int:
        together.wait(20)  # passes only if as many wait at a time
        return int(path)

    assert list(each(remote, names, look)) == [*range(len(names))]
    threads = list(each(local, names, lambda path: get_ident()))
    assert set(threads) == {get_ident()}


def test_the_first_remote_file_that_cannot_be_read_is_the_error() -> None:
    def look(path: str) -> str:
        if path in ("b", "c"):
            raise CorruptError(f"{path} is broken")
        return path

    with pytest.raises(CorruptError, match="b is broken"):
        each_file(SourceSpec("s3://bucket/x"), ["a", "b", "c"], look)
    lenient = SourceSpec("s3://bucket/x", skip_corrupt=True)
    assert each_file(lenient, ["a", "b", "c", "d"], look) == (
        {"a": "a", "d": "d"},
        {"b": "b is broken", "c": "c is broken"},
    )


def test_a_shard_that_cannot_be_read_keeps_its_place_under_a_filter(tmp_path: Path) -> None:
    path = formats.parquet(tmp_path, "a", formats.rows())
    data = bytearray(path.read_bytes())
    with pq.ParquetFile(path) as file:
        start = file.metadata.row_group(1).column(0).data_page_offset
    data[start : start + 8] = b"\xff" * 8
    whole = path.read_bytes()
    path.write_bytes(data)
    wanted = parse(["n", "in", [0, 5, 9, 10]])
    with pytest.raises(CorruptError, match=r"a\.parquet"):
        open_source(str(path), filter=wanted, shard_bytes=1).list()
    source = open_source(str(path), filter=wanted, shard_bytes=1, skip_corrupt=True)
    listing = source.list()
    assert [(shard.file_row, shard.n_rows) for shard in listing.shards] == [(0, 1), (4, 4), (8, 2)]
    with pytest.raises(CorruptError):
        source.read(listing.shards[1], ["n"], listing.schema)
    assert source.read(listing.shards[2], ["n"], listing.schema)["n"].to_pylist() == [9, 10]
    path.write_bytes(whole)  # nobody knows which of its rows were meant
    with pytest.raises(ConnectorError, match=r"a\.parquet has changed since it was listed"):
        source.read(listing.shards[1], ["n"], listing.schema)
    with pytest.raises(CorruptError, match="could not be read when it was listed"):
        source.read(replace(listing.shards[1], stamp=None), ["n"], listing.schema)
