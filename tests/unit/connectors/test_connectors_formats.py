"""What holds for every file format: rows for any shard size, places, pruning, files that cannot be read."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from connectors import open_source
from connectors.base import ConnectorError, CorruptError, Listing, Source
from connectors.filters import parse
from tests.unit import formats

FORMATS = list(formats.WRITERS)
every_format = pytest.mark.parametrize("kind", FORMATS)
ONE_FILE = {"huggingface"}


def opened(kind: str, path: Path, **settings: Any) -> Source:
    return open_source(str(path), rename=formats.RENAMES.get(kind), **settings)


def read_all(source: Source, columns: list[str] | None = None) -> tuple[Listing, pa.Table]:
    listing = source.list()
    names = columns or listing.schema.names
    tables = [source.read(shard, names, listing.schema) for shard in listing.shards]
    assert [table.num_rows for table in tables] == [shard.n_rows for shard in listing.shards]
    assert all(table.schema.names == names for table in tables)
    return listing, pa.concat_tables(tables)


def written(kind: str, folder: Path) -> Path:
    """All rows, over two files where the format has them."""
    found = formats.rows()
    write = formats.WRITERS[kind]
    if kind in ONE_FILE:
        return write(folder, "a", found)
    write(folder, "b", found[:9])
    return write(folder, "c", found[9:])


@every_format
def test_every_shard_size_gives_the_same_rows(kind: str, tmp_path: Path) -> None:
    written(kind, tmp_path)
    counts = set()
    first = None
    for shard_bytes in (1, 700, 2**20):
        source = pickle.loads(pickle.dumps(opened(kind, tmp_path, shard_bytes=shard_bytes)))  # noqa: S301
        listing, table = read_all(source)
        counts.add(len(listing.shards))
        assert formats.plain(table.to_pylist()) == formats.rows()
        first = first or (table, listing.schema, listing.identities)
        assert table.equals(first[0])
        assert (listing.schema, listing.identities) == first[1:]
        for path in {shard.path for shard in listing.shards}:
            shards = [shard for shard in listing.shards if shard.path == path]
            starts = [sum(shard.n_rows for shard in shards[:i]) for i in range(len(shards))]
            assert [shard.file_row for shard in shards] == starts
    assert len(counts) > 1 or kind in {"jsonl_gz", "csv_bz2"}  # those are one shard a file


@every_format
def test_columns_are_read_alone_and_in_any_order(kind: str, tmp_path: Path) -> None:
    written(kind, tmp_path)
    source = opened(kind, tmp_path, shard_bytes=700)
    listing, table = read_all(source, ["y", "n"])
    assert dict(zip(table["n"].to_pylist(), table["y"].to_pylist(), strict=True)) == {
        row["n"]: row["y"] for row in formats.rows()
    }
    for shard in listing.shards:
        assert source.read(shard, [], listing.schema).num_rows == shard.n_rows
    with pytest.raises(ConnectorError, match=r"no column 'nn'.*'n'"):
        source.read(listing.shards[0], ["nn"], listing.schema)


@every_format
def test_a_filter_takes_rows_and_names_their_places(kind: str, tmp_path: Path) -> None:
    written(kind, tmp_path)
    plain = opened(kind, tmp_path, shard_bytes=700)
    places = {}
    for shard in (listing := plain.list()).shards:
        for row, n in enumerate(plain.read(shard, ["n"], listing.schema)["n"].to_pylist()):
            places[n] = (shard.path, plain.locate(shard, row), *plain.file_rows(shard, [row]))
    source = opened(kind, tmp_path, shard_bytes=700, filter=parse([["n", ">", 10], ["y", "=", "a"]]))
    listing, table = read_all(source)
    wanted = [row for row in formats.rows() if row["n"] > 10 and row["y"] == "a"]
    assert formats.plain(table.to_pylist()) == wanted
    for shard in listing.shards:
        for row, n in enumerate(source.read(shard, ["n"], listing.schema)["n"].to_pylist()):
            assert (shard.path, source.locate(shard, row), *source.file_rows(shard, [row])) == places[n]
    with pytest.raises(ConnectorError, match=r"source\.filter leaves no row"):
        opened(kind, tmp_path, filter=parse(["n", ">", 99])).list()


@every_format
@pytest.mark.parametrize("keep", [0.0, 0.5, 0.97])
def test_a_file_that_was_cut_off_is_named_and_may_be_skipped(kind: str, keep: float, tmp_path: Path) -> None:
    path = written(kind, tmp_path)
    whole = opened(kind, tmp_path).list()
    data = path.read_bytes()
    data = data.rstrip(b"\0") if kind == "webdataset" else data
    if kind == "jsonl" and keep:
        pytest.skip("a line is whole or not: cut JSON lines are bad rows, see test_connectors_text")
    if kind == "csv" and keep:
        pytest.skip("cut CSV is CSV")
    path.write_bytes(data[: int(len(data) * keep)])
    with pytest.raises(CorruptError) as caught:
        read_all(opened(kind, tmp_path))
    assert str(path) in str(caught.value)
    if kind not in ONE_FILE:
        found, table = read_all(opened(kind, tmp_path, skip_corrupt=True))
        assert list(found.skipped) == [str(path)]
        lost = sum(shard.n_rows for shard in whole.shards if shard.path == str(path))
        assert table.num_rows == len(formats.rows()) - lost


@every_format
def test_names_that_need_care_are_read(kind: str, tmp_path: Path) -> None:
    folder = tmp_path / "a b%20é#+"
    folder.mkdir()
    written(kind, folder)
    for path in (str(folder), f"file://{tmp_path}/a%20b%2520%C3%A9%23+"):
        _, table = read_all(opened(kind, path))  # type: ignore[arg-type]
        assert formats.plain(table.to_pylist()) == formats.rows()


@every_format
def test_the_identity_follows_the_bytes(kind: str, tmp_path: Path) -> None:
    path = written(kind, tmp_path)
    before = opened(kind, tmp_path).list().identities
    path.touch()
    assert opened(kind, tmp_path).list().identities == before
    other = formats.rows()
    other[9 if kind != "hive" else 10]["n"] = 999
    formats.WRITERS[kind](
        tmp_path, "a" if kind in ONE_FILE else "c", other if kind in ONE_FILE else other[9:]
    )
    after = opened(kind, tmp_path).list().identities
    assert after.keys() == before.keys()
    changed = {name for name in before if before[name] != after[name]}
    assert changed
    assert changed <= {str(path), *(name for name in before if name.endswith("/c.parquet"))}
