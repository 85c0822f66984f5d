"""Metadata, manifests and deletion vectors of Iceberg tables that are forged to take memory or time, or to
have memory read that is none of theirs."""

from __future__ import annotations

import gzip
import json
import os
import sqlite3
import zlib
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from connectors import ConnectorError, open_source
from connectors.policy import SourcePolicy, set_policy
from connectors.tables import iceberg as reader
from connectors.tables.iceberg import load_catalog, open_table
from tests import tables
from tests.avro_files import AvroText, forge, number, text

pytest.importorskip("pyiceberg")
import zstandard
from pyarrow import orc
from pyiceberg.io import load_file_io
from pyroaring import BitMap

from connectors.tables.iceberg_bounds import check_deletes, vector_rows

ROWS = pa.table({"k": [1, 2, 3], "y": ["a", "b", "a"]})


@pytest.fixture
def made(tmp_path: Path) -> tables.MadeTable:
    """A table of three rows in a catalog of its own."""
    found = tables.new("iceberg", tmp_path)
    tables.append(found, ROWS)
    return found


def folder_of(made: tables.MadeTable) -> Path:
    """The folder of the table, which is also named by a hint."""
    place = tables.catalog_of(made).load_table(made.path).metadata_location.removeprefix("file://")
    (Path(place).parent / "version-hint.text").write_text(Path(place).name)
    return Path(place).parent.parent


@pytest.fixture
def lake(made: tables.MadeTable) -> Path:
    return folder_of(made)


def refused(*words: str, path: Path) -> None:
    """The table is refused by one paragraph that holds the words."""
    reader._planned.cache_clear()
    with pytest.raises(ConnectorError) as caught:
        open_source(str(path), format="iceberg").list()
    message = str(caught.value)
    assert "\n" not in message
    for word in words:
        assert word in message


def metadata(lake: Path) -> Path:
    return lake / "metadata" / (lake / "metadata" / "version-hint.text").read_text()


def manifest(lake: Path, *, listed: bool = False) -> Path:
    """The manifest of the table, or with ``listed`` the list that names it."""
    found = (lake / "metadata").glob("*.avro")
    return next(file for file in found if file.name.startswith("snap-") == listed)


def test_an_unchanged_table_is_read(lake: Path) -> None:
    for listed in (True, False):
        forge(manifest(lake, listed=listed), lambda parts: parts)
    source = open_source(str(lake), format="iceberg")
    listing = source.list()
    assert source.read(listing.shards[0], ["k", "y"], listing.schema).equals(ROWS)


# Metadata


def test_metadata_have_a_bounded_size(lake: Path) -> None:
    with metadata(lake).open("a") as file:
        file.truncate(2**40)  # takes no room on the disk
    refused("source.path", metadata(lake).name, "67,108,864", path=lake)


def test_compressed_metadata_unpack_to_a_bounded_size(lake: Path) -> None:
    whole = metadata(lake)
    packed = whole.with_name("00009-a.gz.metadata.json")
    packed.write_bytes(gzip.compress(whole.read_bytes() + b" " * 2**26))
    (lake / "metadata" / "version-hint.text").write_text(packed.name)
    assert packed.stat().st_size < 2**20
    refused(packed.name, "67,108,864", path=lake)
    packed.write_bytes(gzip.compress(whole.read_bytes()))
    assert open_source(str(lake), format="iceberg").list().shards[0].n_rows == 3


def test_metadata_of_a_catalog_have_a_bounded_size(made: tables.MadeTable, lake: Path) -> None:
    with metadata(lake).open("a") as file:
        file.truncate(2**40)
    catalog = made.options["catalog"]
    with pytest.raises(ConnectorError, match=r"source\.path.*67,108,864"):
        open_source(made.path, format="iceberg", options={"catalog": catalog}).list()
    with pytest.raises(ConnectorError, match="67,108,864"):
        load_catalog(catalog).load_table(made.path)


@pytest.mark.parametrize("packed", [b"\x1f\x8b\x08\x00forged", b"", gzip.compress(b"{}", mtime=0)[:-9]])
def test_damaged_metadata_are_named(packed: bytes, lake: Path) -> None:
    name = "00009-a.gz.metadata.json"
    (lake / "metadata" / name).write_bytes(packed)
    (lake / "metadata" / "version-hint.text").write_text(name)
    refused("cannot be read", path=lake)


@pytest.mark.parametrize("depth", [1_000, 50_000])
def test_deep_types_of_columns_are_refused(depth: int, lake: Path) -> None:
    head = '{"type": "list", "element-id": 9, "element-required": false, "element": '
    found = metadata(lake).read_text()
    assert '"type":"long"' in found
    metadata(lake).write_text(found.replace('"long"', head * depth + '"long"' + "}" * depth))
    refused("cannot be read", path=lake)


def place_metadata(made: tables.MadeTable, place: Path) -> None:
    """Have the catalog say that the metadata of its table lie somewhere else."""
    with sqlite3.connect(made.options["catalog"]["uri"].removeprefix("sqlite:///")) as connection:
        connection.execute("UPDATE iceberg_tables SET metadata_location = ?", [f"file://{place}"])


def test_the_metadata_that_a_catalog_names_are_a_file(made: tables.MadeTable, tmp_path: Path) -> None:
    """A recipe's own catalog names a pipe, for which the reader would wait."""
    os.mkfifo(tmp_path / "x.metadata.json")
    place_metadata(made, tmp_path / "x.metadata.json")
    with pytest.raises(ConnectorError, match=r"x\.metadata\.json is a pipe or a device"):
        open_source(made.path, format="iceberg", options=made.options).list()


def test_the_metadata_that_a_catalog_names_are_within_the_policy(
    made: tables.MadeTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are not read before their place is checked; the name of a table is no local file."""
    monkeypatch.setattr("pyiceberg.io.pyarrow.PyArrowFile.open", lambda *_, **__: pytest.fail("it was read"))
    set_policy(SourcePolicy(schemes=frozenset({"s3", "sqlite"})))
    try:
        with pytest.raises(ConnectorError, match="URIs of the scheme 'file' are not opened"):
            open_source(made.path, format="iceberg", options=made.options).list()
    finally:
        set_policy(None)


# Manifests and their lists

LONG = number(2**31)
FORGED: dict[str, Callable[[AvroText], AvroText | bytes]] = {
    "a text that is longer than the file": lambda parts: replace(parts, data=LONG + parts.data),
    "a text of negative length": lambda parts: replace(parts, data=number(-9) + parts.data),
    "a text of 2^62 bytes": lambda parts: replace(parts, data=number(2**62) + parts.data),
    "a number without an end": lambda parts: replace(parts, data=b"\xff" * 100_000),
    "no data": lambda parts: replace(parts, data=b""),
    "more records than data": lambda parts: replace(parts, count=parts.count + 1),
    "a negative number of records": lambda parts: replace(parts, count=-5),
    "half a file": lambda parts: parts.to_bytes()[:-100],
    "no end mark": lambda parts: parts.to_bytes()[:-16] + b"\1" * 16 + number(1) + text(b""),
    "a block that is not packed": lambda parts: parts.to_bytes(b"\xff" * 50),
    "a schema that is a list": lambda parts: parts.with_schema([1]),
    "a deep schema": lambda parts: parts.with_schema(parts.schema | {"x": json.loads("[" * 500 + "]" * 500)}),
}


@pytest.mark.parametrize("listed", [True, False], ids=["list", "manifest"])
@pytest.mark.parametrize("kind", FORGED)
def test_a_forged_manifest_is_named(kind: str, listed: bool, lake: Path) -> None:
    """A length was followed beyond the file, so that the process ended or other memory was read."""
    file = manifest(lake, listed=listed)
    forge(file, FORGED[kind])
    refused("source.path", file.name, path=lake)


def bomb(parts: AvroText) -> bytes:
    """The file with a block that unpacks to 16 MiB."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    return parts.to_bytes(packer.compress(bytes(2**24)) + packer.flush())


@pytest.mark.parametrize("listed", [True, False], ids=["list", "manifest"])
def test_a_manifest_unpacks_to_a_bounded_size(
    listed: bool, lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("connectors.tables.iceberg_avro.MAX_FILE_BYTES", 2**20)
    file = manifest(lake, listed=listed)
    forge(file, bomb)
    assert file.stat().st_size < 2**16
    refused("source.path", file.name, "unpacks to more, and 1,048,576 bytes", path=lake)


@pytest.mark.parametrize("listed", [True, False], ids=["list", "manifest"])
def test_a_manifest_has_a_bounded_size(listed: bool, lake: Path) -> None:
    file = manifest(lake, listed=listed)
    with file.open("a") as stream:
        stream.truncate(2**40)
    refused(file.name, "268,435,456", path=lake)


@pytest.mark.parametrize("listed", [True, False], ids=["list", "manifest"])
def test_a_small_manifest_stands_for_no_million_files(listed: bool, lake: Path) -> None:
    file = manifest(lake, listed=listed)
    forge(file, lambda parts: replace(parts, count=200_000, data=parts.data * 200_000))
    assert file.stat().st_size < 2**20
    refused(file.name, "200,000 entries", path=lake)


def test_a_manifest_that_is_listed_twice_is_refused(lake: Path) -> None:
    forge(manifest(lake, listed=True), lambda parts: replace(parts, count=2, data=parts.data * 2))
    refused("twice", path=lake)


def test_items_that_take_no_bytes_are_refused(lake: Path) -> None:
    """A list of 2^60 records without fields took for ever to pass over."""
    nothing = {"type": "record", "name": "nothing", "fields": []}
    field = {"name": "x", "field-id": 9999, "type": {"type": "array", "items": nothing, "element-id": 9998}}
    forge(
        manifest(lake),
        lambda parts: replace(
            parts.with_schema(parts.schema | {"fields": [field, *parts.schema["fields"]]}),
            data=number(2**60) + number(0) + parts.data,
        ),
    )
    refused(manifest(lake).name, path=lake)


def test_manifests_count_as_bytes_of_the_source(lake: Path) -> None:
    set_policy(SourcePolicy(max_bytes=2000))
    try:
        refused("2,000 are allowed", path=lake)
    finally:
        set_policy(None)


def with_figures(rows: int, size: int) -> Callable[[AvroText], AvroText]:
    """Return a change of a manifest by which its data file has other rows and bytes."""

    def change(parts: AvroText) -> AvroText:
        at = parts.data.index(b".parquet")
        start = parts.data.index(number(ROWS.num_rows), at)
        end = start + 1
        while parts.data[end] >= 0x80:
            end += 1
        return replace(parts, data=parts.data[:start] + number(rows) + number(size) + parts.data[end + 1 :])

    return change


@pytest.mark.parametrize(("rows", "size"), [(-3, 1000), (3, -1000)])
def test_negative_figures_of_a_data_file_are_refused(rows: int, size: int, lake: Path) -> None:
    """They would make room for others under the limits of an installation."""
    forge(manifest(lake), with_figures(rows, size))
    refused("source.path", "negative", path=lake)


def test_the_bytes_of_data_files_are_their_own(lake: Path) -> None:
    """A manifest may state a byte for a file of any size."""
    forge(manifest(lake), with_figures(3, 1))
    data = next((lake / "data").glob("*.parquet"))
    data.write_bytes(data.read_bytes() + bytes(100_000))
    set_policy(SourcePolicy(max_bytes=50_000))
    try:
        source = open_source(str(lake), format="iceberg")
        listing = source.list()
        with pytest.raises(ConnectorError, match=r"source\.path.* bytes, and its table states 1, "):
            source.read(listing.shards[0], ["k"], listing.schema)
    finally:
        set_policy(None)


def test_a_table_without_its_catalog_is_bounded_too(lake: Path) -> None:
    with metadata(lake).open("a") as file:
        file.truncate(2**40)
    with pytest.raises(ConnectorError, match="67,108,864"):
        open_table(str(metadata(lake)), None)


# Files of deleted rows


def puffin(*payloads: bytes, codec: str | None = None) -> bytes:
    """A Puffin file of deletion vectors, each in its frame of length, magic number and checksum."""
    body, blobs = b"PFA1", []
    for payload in payloads:
        frame = (len(payload) + 4).to_bytes(4, "big") + b"\xd1\xd3\x39\x64" + payload + bytes(4)
        raw = zstandard.compress(frame) if codec else frame
        blob = {"type": "deletion-vector-v1", "offset": len(body), "length": len(raw)}
        blobs.append(blob | ({"compression-codec": codec} if codec else {}))
        body += raw
    footer = json.dumps({"blobs": blobs}).encode()
    return body + b"PFA1" + footer + len(footer).to_bytes(4, "little") + bytes(4) + b"PFA1"


def vector(*bitmaps: tuple[int, bytes], count: int | None = None) -> bytes:
    """A deletion vector of bitmaps with their keys."""
    number_of = (len(bitmaps) if count is None else count).to_bytes(8, "little")
    return number_of + b"".join(key.to_bytes(4, "little") + data for key, data in bitmaps)


ROW = BitMap([4, 9]).serialize()
ALL = BitMap(range(2**26)).serialize()


@pytest.mark.parametrize("codec", [None, "zstd"])
def test_the_rows_of_a_deletion_vector_are_counted(codec: str | None) -> None:
    data = puffin(vector((0, ROW), (1, ROW)), vector((0, ROW)), codec=codec)
    assert vector_rows("a.puffin", data) == 6
    assert len(ALL) < 20_000  # a run stands for 65,536 rows in four bytes
    assert vector_rows("a.puffin", puffin(*[vector((0, ALL))] * 9)) == 2**26


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (puffin(vector((2**31 - 1, ROW))), "the bitmap 2,147,483,647"),
        (puffin(vector((0, ROW), count=2**63)), "a.puffin"),
        (puffin(vector((0, b"forged" * 9))), "deserialize"),
        (puffin(bytes(2**28 + 9), codec="zstd"), "268,435,456"),
        (puffin(vector((0, ROW)))[:-1], "not a Puffin file"),
        (b"PFA1" + (10**6).to_bytes(4, "little") + bytes(4) + b"PFA1", "a.puffin"),
        (b"PFA1[[[]]]" + (6).to_bytes(4, "little") + bytes(4) + b"PFA1", "a.puffin"),
    ],
    ids=["key", "count", "bitmap", "bomb", "half", "footer", "list"],
)
def test_a_forged_deletion_vector_is_named(data: bytes, words: str) -> None:
    """The library makes a list of two thousand million bitmaps, or of as many rows."""
    with pytest.raises(ConnectorError, match=words):
        vector_rows("a.puffin", data)


@pytest.mark.parametrize("kind", ["PUFFIN", "PARQUET", "ORC"])
def test_files_of_deleted_rows_have_a_bounded_number(kind: str, tmp_path: Path) -> None:
    rows = pa.table({"file_path": ["a"] * 7, "pos": list(range(7))})
    with (tmp_path / "d").open("wb") as file:
        if kind == "PUFFIN":
            file.write(puffin(vector((0, BitMap(range(7)).serialize()))))
        else:
            (pq.write_table if kind == "PARQUET" else orc.write_table)(rows, file)
    table = SimpleNamespace(io=load_file_io())
    deletes = [SimpleNamespace(file_path=str(tmp_path / "d"), file_format=SimpleNamespace(value=kind))]
    check_deletes(table, deletes)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("connectors.tables.iceberg_bounds.MAX_DELETED", 6)
        with pytest.raises(ConnectorError, match="names 7 rows, and 6 are read"):
            check_deletes(table, deletes)
    with (tmp_path / "d").open("a") as file:
        file.truncate(2**40)
    with pytest.raises(ConnectorError, match="268,435,456"):
        check_deletes(table, deletes)


def test_long_names_in_a_file_of_deleted_rows_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The library writes the path of a data file out for every row of an ORC file."""
    rows = pa.table({"file_path": ["a" * 2**16] * 1024, "pos": list(range(1024))})
    orc.write_table(rows, tmp_path / "d", compression="zstd", dictionary_key_size_threshold=1.0)
    assert (tmp_path / "d").stat().st_size < 2**13
    table = SimpleNamespace(io=load_file_io())
    deletes = [SimpleNamespace(file_path=str(tmp_path / "d"), file_format=SimpleNamespace(value="ORC"))]
    check_deletes(table, deletes)
    monkeypatch.setattr("connectors.tables.iceberg_bounds.MAX_DELETED_BYTES", 2**25)
    with pytest.raises(ConnectorError, match="and 33554432 are allowed"):
        check_deletes(table, deletes)


def test_files_of_deleted_rows_are_checked_before_they_are_read(
    made: tables.MadeTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = tables.catalog_of(made).load_table(made.path)
    task = next(iter(found.scan().plan_files()))
    deleted = SimpleNamespace(file_path=f"{found.location()}/data/deleted", file_format=None)
    task.delete_files = [deleted]
    (folder_of(made) / "data" / "deleted").write_bytes(b"")
    asked: list[str] = []

    def note(table: object, files: Iterable[Any]) -> None:
        asked.extend(file.file_path for file in files)

    monkeypatch.setattr("pyiceberg.table.DataScan.plan_files", lambda self: [task])
    monkeypatch.setattr("connectors.tables.iceberg_bounds.check_deletes", note)
    reader._planned.cache_clear()
    reader._planned(found.metadata_location, found.current_snapshot().snapshot_id, (), None)
    reader._planned.cache_clear()
    assert asked == [f"{found.location()}/data/deleted"]
