"""Data files of tables in which a few bytes stand for gigabytes are refused before they are expanded."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from connectors import ConnectorError, open_source
from connectors.base import Source
from tests import tables
from tests.avro_files import AvroText, forge, number

N, LONG = 300, "x" * 2**20


def bomb(kind: str) -> pa.Array:
    """The same long text in every row, stored once."""
    text = pa.DictionaryArray.from_arrays(pa.array([0] * N, pa.int32()), pa.array([LONG]))
    return text if kind == "text" else pa.ListArray.from_arrays(pa.array(range(N + 1), pa.int32()), text)


def plain(kind: str) -> pa.Table:
    return pa.table({"k": [1, 2], "t": ["a", "b"] if kind == "text" else [["a"], ["b"]]})


def refused(source: Source) -> None:
    """The text is counted and not expanded; the other column is read."""
    listing = source.list()
    pool = pa.proxy_memory_pool(pa.default_memory_pool())
    usual = pa.default_memory_pool()
    pa.set_memory_pool(pool)
    try:
        with pytest.raises(ConnectorError, match="once its values are written out"):
            source.read(listing.shards[0], ["k", "t"], listing.schema)
    finally:
        pa.set_memory_pool(usual)
    assert pool.max_memory() < N * len(LONG) // 4
    assert source.read(listing.shards[0], ["k"], listing.schema).num_rows == N


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
