"""Data files of tables in which a few bytes stand for gigabytes are refused before they are expanded."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc

from connectors import ConnectorError, open_source
from connectors.base import Source
from connectors.tables.common import gather
from tests import tables
from tests.avro_files import AvroText, forge, number

N, LONG = 300, "x" * 2**20


def bomb(kind: str) -> pa.Array:
    """The same long text in every row, stored once."""
    text = pa.DictionaryArray.from_arrays(pa.array([0] * N, pa.int32()), pa.array([LONG]))
    return text if kind == "text" else pa.ListArray.from_arrays(pa.array(range(N + 1), pa.int32()), text)


def plain(kind: str) -> pa.Table:
    return pa.table({"k": [1, 2], "t": ["a", "b"] if kind == "text" else [["a"], ["b"]]})


def refused(source: Source, n_rows: int = N, column: str = "t") -> None:
    """The text is counted and not expanded; the other column is read."""
    listing = source.list()
    pool = pa.proxy_memory_pool(pa.default_memory_pool())
    usual = pa.default_memory_pool()
    pa.set_memory_pool(pool)
    try:
        with pytest.raises(ConnectorError, match="once its values are written out"):
            source.read(listing.shards[0], ["k", column], listing.schema)
    finally:
        pa.set_memory_pool(usual)
    assert pool.max_memory() < N * len(LONG) // 4
    assert source.read(listing.shards[0], ["k"], listing.schema).num_rows == n_rows


@pytest.mark.parametrize("kind", ["text", "list"])
def test_a_data_file_of_delta(kind: str, tmp_path: Path) -> None:
    pytest.importorskip("deltalake")
    made = tables.new("delta", tmp_path)
    tables.append(made, plain(kind))
    file = next(Path(made.path).glob("*.parquet"))
    pq.write_table(pa.table({"k": range(N), "t": bomb(kind)}), file, store_schema=False)
    log = next((Path(made.path) / "_delta_log").glob("*.json"))
    actions = [json.loads(line) for line in log.read_text().splitlines()]
    for action in actions:
        if "add" in action:
            action["add"] |= {"size": file.stat().st_size, "stats": json.dumps({"numRecords": N})}
    log.write_text("\n".join(map(json.dumps, actions)))
    refused(open_source(made.path, format="delta", max_bytes=2**25))


def test_a_data_file_of_iceberg(tmp_path: Path) -> None:
    """Its columns are found by their numbers, whatever their names are."""
    pytest.importorskip("pyiceberg")
    made = tables.new("iceberg", tmp_path)
    tables.append(made, plain("text"))
    file = next((tmp_path / "lake").rglob("*.parquet"))
    number_k, number_t = (field.metadata for field in pq.read_table(file).schema)
    text = bomb("text")
    fields = [
        pa.field("t", pa.int64(), metadata=number_k),
        pa.field("other", text.type, metadata=number_t),
    ]
    rows = pa.table([pa.array(range(N)), text], schema=pa.schema(fields))
    pq.write_table(rows, file, store_schema=False)

    def count(parts: AvroText) -> AvroText:
        at = parts.data.index(number(2), parts.data.index(b".parquet"))
        return replace(parts, data=parts.data[:at] + number(N) + parts.data[at + 1 :])

    forge(next(f for f in (tmp_path / "lake").rglob("*.avro") if not f.name.startswith("snap-")), count)
    refused(open_source(made.path, format="iceberg", options=made.options, max_bytes=2**25))


def orc_table(folder: Path, rows: pa.Table) -> tables.MadeTable:
    """An Iceberg table of two rows whose data file is one of ORC now, with these rows and its numbers."""
    made = tables.new("iceberg", folder)
    tables.append(made, plain("text"))
    file = next((folder / "lake").rglob("*.parquet"))
    numbers = [(field.metadata or {})[b"PARQUET:field_id"] for field in pq.read_table(file).schema]
    fields = [
        field.with_metadata({"iceberg.id": number.decode()})
        for field, number in zip(rows.schema, numbers, strict=True)
    ]
    orc.write_table(rows.cast(pa.schema(fields)), file, compression="zstd", dictionary_key_size_threshold=1.0)

    def as_orc(parts: AvroText) -> AvroText:
        data = parts.data.replace(number(7) + b"PARQUET", number(3) + b"ORC")
        at = data.index(number(2), data.index(b".parquet"))
        return replace(parts, data=data[:at] + number(rows.num_rows) + data[at + 1 :])

    forge(next(f for f in (folder / "lake").rglob("*.avro") if not f.name.startswith("snap-")), as_orc)
    return made


def test_a_data_file_of_orc_is_read(tmp_path: Path) -> None:
    pytest.importorskip("pyiceberg")
    rows = pa.table({"k": range(N), "t": [f"text {i}" for i in range(N)]})
    made = orc_table(tmp_path, rows)
    source = open_source(made.path, format="iceberg", options=made.options)
    listing = source.list()
    assert source.read(listing.shards[0], ["k", "t"], listing.schema).equals(rows)


def test_a_data_file_of_orc_that_stands_for_gigabytes(tmp_path: Path) -> None:
    pytest.importorskip("pyiceberg")
    many, text = 16 * N, LONG[: len(LONG) // 16]
    made = orc_table(tmp_path, pa.table({"k": range(many), "t": [text] * many}))
    assert next((tmp_path / "lake").rglob("*.parquet")).stat().st_size < 2**16
    refused(open_source(made.path, format="iceberg", options=made.options, max_bytes=2**25), many)


def test_a_data_file_of_lance_is_expanded_in_small_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its library has batches of thousands of rows, and reads many of them ahead."""
    lance = pytest.importorskip("lance")
    many, text = 16 * N, LONG[: len(LONG) // 16]
    path = tmp_path / "rows.lance"
    lance.write_dataset(pa.table({"k": range(many), "t": [text] * many}), path)
    assert sum(file.stat().st_size for file in (path / "data").iterdir()) < 2**20
    source = open_source(str(path), format="lance", max_bytes=2**25)
    listing = source.list()
    held: list[int] = []

    def noted(spec: Any, shard: Any, batches: Iterable[pa.RecordBatch], *rest: Any) -> pa.Table:
        def each() -> Iterator[pa.RecordBatch]:
            for batch in batches:
                held.append(batch.nbytes)
                yield batch

        return gather(spec, shard, each(), *rest)

    monkeypatch.setattr("connectors.tables.lance.gather", noted)
    with pytest.raises(ConnectorError, match="take more in memory than source"):
        source.read(listing.shards[0], ["k", "t"], listing.schema)
    assert max(held) <= 2**25
    assert source.read(listing.shards[0], ["k"], listing.schema).num_rows == many


@pytest.mark.parametrize("sizes", [(2**26 + 1,), (10, 2**26 + 1, 10)])
def test_a_manifest_of_lance_has_a_bounded_size(sizes: tuple[int, ...], tmp_path: Path) -> None:
    """The library makes objects of all that a manifest lists."""
    lance = pytest.importorskip("lance")
    path = tmp_path / "rows.lance"
    lance.write_dataset(pa.table({"k": [1]}), path)
    for version, size in enumerate(sizes, start=8):
        with (path / "_versions" / f"{2**64 - 1 - version}.manifest").open("wb") as file:
            file.truncate(size)
    with pytest.raises(ConnectorError, match=r"manifest of a Lance dataset, has 67,108,865 bytes"):
        open_source(str(path), format="lance").list()


@pytest.mark.parametrize("kind", ["text", "list"])
@pytest.mark.parametrize("name", ["t", "a.t"])
def test_a_parquet_file_is_counted_whatever_its_columns_are_called(
    kind: str, name: str, tmp_path: Path
) -> None:
    """A list in a column whose name has a dot was not counted."""
    table = pa.table({"k": range(N), name: bomb(kind)})
    pq.write_table(table, tmp_path / "x.parquet", store_schema=False)
    refused(open_source(str(tmp_path / "x.parquet"), max_bytes=2**24), column=name)
