"""Behaviour that every registered source shows, whatever its format: one suite, run on each."""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from connectors import open_source
from connectors.base import ConnectorError, CorruptError, Listing, Source, narrowed
from connectors.filters import parse
from connectors.registry import BUILT_IN
from tests import tables
from tests.mutability import faults
from tests.unit import formats

TABLES = {"lance": "lance", "delta": "delta", "iceberg": "iceberg", "sqlite": "sql", "duckdb": "sql"}
"""Kinds that ``tests.tables`` writes, and their formats."""
FILES = {
    "hive": "parquet",
    "csv_bz2": "csv",
    "jsonl_gz": "jsonl",
    "ipc_file": "arrow",
    "ipc_stream": "arrow",
    "feather": "arrow",
}
"""Kinds of ``tests.unit.formats`` that are not named as their format."""
KINDS = [*formats.WRITERS, *TABLES]
every_source = pytest.mark.parametrize("kind", KINDS)
every_file_format = pytest.mark.parametrize("kind", list(formats.WRITERS))
ONE_FILE = {"huggingface"}
ID = {"images": "path"}
"""Column that tells rows apart, where it is not ``n``."""


def test_every_registered_source_is_covered() -> None:
    """A new format needs a writer in ``tests.unit.formats`` or ``tests.tables``."""
    found = {FILES.get(kind, kind) for kind in formats.WRITERS} | {*TABLES.values()}
    assert found == {*BUILT_IN}


def table_at(kind: str, folder: Path, shard_bytes: int = 2**20) -> tables.MadeTable:
    for package in ("lance", "deltalake", "pyiceberg", "duckdb", "adbc_driver_postgresql"):
        pytest.importorskip(package)
    made = tables.new(kind, folder)
    if made.format == "sql":
        options = {"table": "rows", "key": "n", "rows_per_shard": max(1, shard_bytes // 100)}
        return tables.MadeTable("sql", made.path, options)
    return made


def opened(kind: str, path: Path, **settings: Any) -> Source:
    if kind not in TABLES:
        return open_source(str(path), rename=formats.RENAMES.get(kind), **settings)
    made = table_at(kind, path, settings.get("shard_bytes", 2**20))
    return open_source(made.path, made.format, options=made.options, **settings)


def values(kind: str, table: pa.Table) -> list[dict[str, Any]]:
    """Rows of a source as :func:`formats.rows` made them."""
    found = table.to_pylist()
    return formats.plain([json.loads(row["image"]) for row in found] if kind == "images" else found)


def write(kind: str, folder: Path, name: str, found: Sequence[formats.Row]) -> Path:
    if kind not in TABLES:
        return formats.WRITERS[kind](folder, name, found)
    tables.append(table_at(kind, folder), formats.as_table(found))
    files = [path for path in folder.rglob("*") if path.suffix in (".parquet", ".lance") and path.is_file()]
    return max(files, key=lambda path: path.stat().st_mtime_ns, default=folder)


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
    if kind in ONE_FILE:
        return write(kind, folder, "a", found)
    write(kind, folder, "b", found[:9])
    return write(kind, folder, "c", found[9:])


@every_source
def test_a_source_and_its_listing_are_immutable(kind: str, tmp_path: Path) -> None:
    """Both are part of a plan, at any depth and also on a worker."""
    written(kind, tmp_path)
    for source in (opened(kind, tmp_path), opened(kind, tmp_path, strip=True, missing=("?",))):
        assert list(faults(pickle.loads(pickle.dumps((source, source.list()))), kind)) == []


@every_source
def test_every_shard_size_gives_the_same_rows(kind: str, tmp_path: Path) -> None:
    written(kind, tmp_path)
    counts = set()
    first = None
    for shard_bytes in (1, 700, 2**20):
        source = pickle.loads(pickle.dumps(opened(kind, tmp_path, shard_bytes=shard_bytes)))
        listing, table = read_all(source)
        counts.add(len(listing.shards))
        assert values(kind, table) == formats.rows()
        assert read_all(source)[1].equals(table)  # again, in the same order
        first = first or (table, listing.schema, listing.identities)
        assert table.equals(first[0])
        assert listing.schema == first[1]
        if TABLES.get(kind) == "sql":
            continue  # a shard of a database is a place of its own
        assert listing.identities == first[2]
        for path in {shard.path for shard in listing.shards}:
            shards = [shard for shard in listing.shards if shard.path == path]
            starts = [sum(shard.n_rows for shard in shards[:i]) for i in range(len(shards))]
            assert [shard.file_row for shard in shards] == starts
    assert len(counts) > 1 or kind in {"jsonl_gz", "csv_bz2", "delta", "iceberg"}  # one shard a file


@every_source
def test_columns_are_read_alone_and_in_any_order(kind: str, tmp_path: Path) -> None:
    written(kind, tmp_path)
    source = opened(kind, tmp_path, shard_bytes=700)
    names = ["y", ID.get(kind, "n")]
    listing, table = read_all(source, names)
    assert table.equals(read_all(source)[1].select(names))
    for shard in listing.shards:
        assert source.read(shard, [], listing.schema).num_rows == shard.n_rows
    with pytest.raises(ConnectorError, match=r"no column 'yy'.*Did you mean 'y'"):
        source.read(listing.shards[0], ["yy"], listing.schema)


def places(kind: str, source: Source) -> dict[Any, tuple[Any, ...]]:
    """Return the stated place of each row, by the column that tells rows apart."""
    name, found = ID.get(kind, "n"), {}
    for shard in (listing := source.list()).shards:
        for row, value in enumerate(source.read(shard, [name], listing.schema)[name].to_pylist()):
            found[value] = (source.locate(shard, row),)
            if TABLES.get(kind) != "sql":  # its filter makes other ranges of the key
                found[value] += (shard.path, *source.file_rows(shard, [row]))
    return found


@every_source
def test_the_first_rows_of_a_shard_are_read_alone(kind: str, tmp_path: Path) -> None:
    written(kind, tmp_path)
    clauses = {} if kind == "images" else {"filter": parse(["y", "=", "a"])}
    for settings, n_rows in product(({}, {"strip": True}, clauses), (1, 2, 5)):
        source = opened(kind, tmp_path, **settings)
        listing = source.list()
        for shard in listing.shards:
            whole = source.read(shard, listing.schema.names, listing.schema)
            assert narrowed(source, shard, shard.n_rows) == shard
            part = narrowed(source, shard, n_rows)
            found = source.read(part, listing.schema.names, listing.schema)
            assert 1 <= found.num_rows == part.n_rows <= shard.n_rows
            assert found.equals(whole.slice(0, part.n_rows))
            assert source.read(part, [], listing.schema).num_rows == part.n_rows
            if kind in ("parquet", "csv", "jsonl") and shard.n_rows > 10:
                assert part.n_rows < shard.n_rows


@every_source
def test_a_filter_equals_filtering_afterwards_and_rows_keep_their_places(kind: str, tmp_path: Path) -> None:
    written(kind, tmp_path)
    whole = opened(kind, tmp_path, shard_bytes=700)
    clauses = [["path", "!=", "b/c011.png"], ["y", "=", "a"]] if kind == "images" else FILTER
    source = opened(kind, tmp_path, shard_bytes=700, filter=parse(clauses))
    _, table = read_all(source)
    everything = read_all(whole)[1]
    assert table.equals(everything.filter(parse(clauses).mask(everything)))  # type: ignore[union-attr]
    assert 0 < table.num_rows < everything.num_rows
    before = places(kind, whole)
    assert all(before[value] == place for value, place in places(kind, source).items())
    with pytest.raises(ConnectorError, match=r"source\.filter leaves no row"):
        opened(kind, tmp_path, filter=parse(["y", "=", "zzz"])).list()


FILTER = [["n", ">", 10], ["y", "=", "a"]]


@every_source
def test_texts_are_cleaned_and_labels_mapped_before_the_filter(kind: str, tmp_path: Path) -> None:
    padded = [{**row, "t": f" {row['t']}\t"} for row in formats.rows()]
    found = [padded] if kind in ONE_FILE else [padded[:9], padded[9:]]
    for name, part in zip("ab", found, strict=False):
        write(kind, tmp_path, name, part)
    settings: dict[str, Any] = {
        "missing": ("t8", "nowhere"),
        "strip": True,
        "label_map": {"a": "A", "z": "Z"},
    }
    source = opened(kind, tmp_path, shard_bytes=700, label="y", **settings)
    table = read_all(pickle.loads(pickle.dumps(source)))[1]
    assert table.schema.field("y").type == pa.string()
    assert sorted(table["y"].to_pylist()) == ["A"] * 12 + ["b"] * 11
    if kind != "images":  # its rows are bytes
        wanted = [{**row, "y": row["y"].replace("a", "A")} for row in formats.rows()]
        wanted[8]["t"] = None
        assert values(kind, table) == wanted
    for clauses in (["y", "=", "A"], ["y", "in", ["A", "b"]]):
        taken = opened(kind, tmp_path, label="y", filter=parse(clauses), **settings)
        assert read_all(taken)[1].num_rows == (12 if clauses[1] == "=" else 23)
    with pytest.raises(ConnectorError, match=r"source\.filter leaves no row"):
        opened(kind, tmp_path, label="y", filter=parse(["y", "=", "a"]), **settings).list()
    with pytest.raises(ConnectorError, match=r"source\.label_map.*the key 1 is not a value of it"):
        opened(kind, tmp_path, label="y", label_map={1: "A"}).list()


@every_source
def test_a_source_without_rows_says_so(kind: str, tmp_path: Path) -> None:
    write(kind, tmp_path, "a", [])
    with pytest.raises(ConnectorError) as caught:
        opened(kind, tmp_path).list()
    assert str(tmp_path) in str(caught.value) or "shop.rows" in str(caught.value)


@every_source
def test_one_row_is_read(kind: str, tmp_path: Path) -> None:
    write(kind, tmp_path, "a", formats.rows()[:1])
    listing, table = read_all(opened(kind, tmp_path))
    assert len(listing.shards) == 1
    assert values(kind, table) == formats.rows()[:1]


@pytest.mark.parametrize("kind", TABLES)
def test_new_rows_of_a_table_are_noticed(kind: str, tmp_path: Path) -> None:
    written(kind, tmp_path)
    before = opened(kind, tmp_path).list().identities
    assert opened(kind, tmp_path).list().identities == before
    write(kind, tmp_path, "d", [{**formats.rows()[0], "n": 999}])
    assert opened(kind, tmp_path).list().identities != before


@every_file_format
@pytest.mark.parametrize("keep", [0.0, 0.5, 0.97])
def test_a_file_that_was_cut_off_is_named_and_may_be_skipped(kind: str, keep: float, tmp_path: Path) -> None:
    path = written(kind, tmp_path)
    whole = opened(kind, tmp_path).list()
    data = path.read_bytes()
    data = data.rstrip(b"\0") if kind == "webdataset" else data
    if kind == "jsonl" and keep:
        pytest.skip("a line is whole or not: cut JSON lines are bad rows, see test_connectors_text")
    if kind == "images":
        pytest.skip("images are not decoded here: a cut one is a bad row of the operator that decodes it")
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


@every_file_format
def test_names_that_need_care_are_read(kind: str, tmp_path: Path) -> None:
    folder = tmp_path / "a b%20é#+"
    folder.mkdir()
    written(kind, folder)
    for path in (str(folder), f"file://{tmp_path}/a%20b%2520%C3%A9%23+"):
        _, table = read_all(opened(kind, path))  # type: ignore[arg-type]
        assert values(kind, table) == formats.rows()


@every_file_format
def test_the_identity_follows_the_bytes(kind: str, tmp_path: Path) -> None:
    path = written(kind, tmp_path)
    before = opened(kind, tmp_path).list().identities
    path.touch()
    assert opened(kind, tmp_path).list().identities == before
    other = formats.rows()
    place = 10 if kind in ("hive", "images") else 9
    other[place]["x" if kind == "images" else "n"] = 999.5 if kind == "images" else 999
    formats.WRITERS[kind](
        tmp_path, "a" if kind in ONE_FILE else "c", other if kind in ONE_FILE else other[9:]
    )
    after = opened(kind, tmp_path).list().identities
    assert after.keys() == before.keys()
    changed = {name for name in before if before[name] != after[name]}
    assert changed
    assert changed <= {
        str(path),
        str(path.parent),
        *(name for name in before if name.endswith(("/c.parquet", "/a"))),
    }


def replaced(kind: str, folder: Path) -> None:
    """Put another file of as many rows in the place of the last one that :func:`written` wrote."""
    other = [{**row, "x": 999.5} for row in formats.rows()]
    if kind in ONE_FILE:
        write(kind, folder, "a", other)
    else:
        write(kind, folder, "c", other[9:])


@every_file_format
@pytest.mark.parametrize("skip_corrupt", [False, True])
def test_a_file_that_is_replaced_after_listing_is_an_error(
    kind: str, skip_corrupt: bool, tmp_path: Path
) -> None:
    path = written(kind, tmp_path)
    name = str(path.parent if kind == "images" else path)
    source = pickle.loads(pickle.dumps(opened(kind, tmp_path, skip_corrupt=skip_corrupt)))
    listing = pickle.loads(pickle.dumps(source.list()))
    shards = [shard for shard in listing.shards if shard.path == name]
    replaced(kind, tmp_path)
    for shard in (shards[-1], narrowed(source, shards[-1], 1)):
        with pytest.raises(ConnectorError, match=r"chang.*since (it was|they were) listed") as caught:
            source.read(shard, ["y"], listing.schema)
        assert name in str(caught.value)
        assert not isinstance(caught.value, CorruptError)  # which would drop the rows


@every_file_format
def test_a_file_that_is_replaced_by_one_of_the_same_size_and_time_is_an_error(
    kind: str, tmp_path: Path
) -> None:
    path = written(kind, tmp_path)
    source = opened(kind, tmp_path)
    listing = source.list()
    before, data = path.stat(), path.read_bytes()
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    name = str(path.parent if kind == "images" else path)
    last = [shard for shard in listing.shards if shard.path == name][-1]
    with pytest.raises(ConnectorError, match=r"chang.*since (it was|they were) listed"):
        source.read(last, ["y"], listing.schema)


@every_file_format
def test_a_file_that_is_touched_after_listing_is_read(kind: str, tmp_path: Path) -> None:
    path = written(kind, tmp_path)
    source = opened(kind, tmp_path)
    listing = source.list()
    path.touch()
    for shard in listing.shards:
        for names in ([], [*listing.schema.names]):
            assert source.read(shard, names, listing.schema).num_rows == shard.n_rows
