"""Source files made to harm: pickled objects, bombs, bytes changed anywhere."""

import json
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.base import ConnectorError, narrowed
from connectors.registry import open_source
from tests.data import spurious_table
from tests.faults.fuzzing import HOW_MANY, judged, often


class Owned:
    """Writes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self._path),)


@pytest.mark.parametrize("name", ["ray.data.arrow_pickled_object", "arrow.py_extension_type"])
def test_pickled_columns_are_refused(name: str, tmp_path: Path) -> None:
    payload = pickle.dumps(Owned(tmp_path / "owned"))
    metadata = {"ARROW:extension:name": name, "ARROW:extension:metadata": payload}
    for kind, values in ((pa.binary(), [payload] * 4), (pa.list_(pa.binary()), [[payload]] * 4)):
        inner = pa.field("a", pa.binary(), metadata=metadata)
        field = inner if kind == pa.binary() else pa.field("a", pa.list_(inner))
        table = pa.table([pa.array(values, kind), pa.array(["x", "y"] * 2)], names=["a", "label"])
        schema = pa.schema([field, pa.field("label", pa.string())])
        pq.write_table(
            table.cast(pa.schema([pa.field("a", kind), schema.field(1)])), tmp_path / "plain.parquet"
        )
        with pq.ParquetWriter(tmp_path / "a.parquet", schema) as writer:
            writer.write_table(pa.Table.from_arrays(table.columns, schema=schema))
        with pytest.raises(ConnectorError, match=r"'a' holds pickled"):
            open_source(str(tmp_path / "a.parquet")).list()
    assert not (tmp_path / "owned").exists()


def test_a_few_bytes_that_stand_for_gigabytes(tmp_path: Path) -> None:
    """One long text in a dictionary, named by every row; in a column, and in lists of a column."""
    n, long = 20_000, "x" * 2**20
    codes = pa.array([0] * n, pa.int32())
    text = pa.DictionaryArray.from_arrays(codes, pa.array([long]))
    bomb = tmp_path / "bomb.parquet"
    plain = pa.schema([("a", pa.string()), ("label", pa.int64())])
    table = pa.table({"a": text, "label": pa.array([0, 1] * (n // 2))})
    pq.write_table(table, bomb, store_schema=False)
    assert bomb.stat().st_size < 2**21
    source = open_source(str(bomb), max_bytes=2**30)
    listing = source.list()
    assert listing.schema == plain
    with pytest.raises(ConnectorError, match=r"bomb\.parquet.*bytes or more in memory.*max_shard_bytes"):
        source.read(listing.shards[0], ["a", "label"], listing.schema)
    assert source.read(listing.shards[0], ["label"], listing.schema).num_rows == n
    small = open_source(str(bomb), max_bytes=n * 8 - 1)
    with pytest.raises(ConnectorError, match="max_shard_bytes"):
        small.read(listing.shards[0], ["label"], listing.schema)


def _bombs(n: int, long: str) -> dict[str, pa.Array]:
    """Columns in which every row is the same long text, stored once."""
    text = pa.DictionaryArray.from_arrays(pa.array([0] * n, pa.int32()), pa.array([long]))
    view = np.full((n, 4), 0, np.int32)
    view[:, 0], view[:, 1] = len(long), int.from_bytes(long[:4].encode(), "little")
    buffers = [None, pa.py_buffer(view.tobytes()), pa.py_buffer(long.encode())]
    return {
        "dictionary": text,
        "list": pa.ListArray.from_arrays(pa.array(range(n + 1), pa.int32()), text),
        "struct": pa.StructArray.from_arrays([text], ["k"]),
        "view": pa.Array.from_buffers(pa.string_view(), n, buffers),
    }


@pytest.mark.parametrize("kind", ["dictionary", "list", "struct", "view"])
@pytest.mark.parametrize("format", ["arrow", "parquet"])
def test_declared_dictionaries_and_views_are_counted(format: str, kind: str, tmp_path: Path) -> None:
    """Their columns stay small as they are read; the first cast to text makes gigabytes of them."""
    n = 20_000
    column = _bombs(n, "x" * 2**20)[kind]
    table = pa.table({"a": column, "label": pa.array([0, 1] * (n // 2))})
    path = tmp_path / f"bomb.{format}"
    if format == "parquet":
        if kind == "view":
            pytest.skip("pyarrow writes the texts out")
        pq.write_table(table, path)
    else:
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table)
    source = open_source(str(path), max_bytes=2**30)
    listing = source.list()
    for shard in (listing.shards[0], narrowed(source, listing.shards[0], 5000)):
        with pytest.raises(
            ConnectorError, match=rf"bomb\.{format}, rows .*'a'.*written out.*max_shard_bytes"
        ):
            source.read(shard, ["a", "label"], listing.schema)
    assert source.read(listing.shards[0], ["label"], listing.schema).num_rows == n


def test_doubtful_texts_that_are_fine_are_read_as_ever(tmp_path: Path) -> None:
    values = [f"word {i % 7}" for i in range(5000)]
    table = pa.table({"a": values, "b": [[value] for value in values], "c": list(range(5000))})
    pq.write_table(table, tmp_path / "a.parquet")
    whole = open_source(str(tmp_path / "a.parquet"))
    wary = open_source(str(tmp_path / "a.parquet"), max_bytes=300_000)
    listing = whole.list()
    for columns in (["a", "c"], ["b"], ["c", "a", "b"]):
        expected = whole.read(listing.shards[0], columns, listing.schema)
        assert wary.read(listing.shards[0], columns, listing.schema).equals(expected)
        assert expected.equals(table.select(columns))


@pytest.mark.parametrize("suffix", ["parquet", "csv", "jsonl"])
@HOW_MANY
def test_changed_files(suffix: str, examples: int, tmp_path: Path) -> None:
    """Bytes changed, cut out or put in: read, or refused; nothing else."""
    table = spurious_table(60).drop_columns(["vector"])
    path = tmp_path / f"data.{suffix}"
    if suffix == "parquet":
        pq.write_table(table, path)
    elif suffix == "csv":
        pa.csv.write_csv(table, path)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))
    good = path.read_bytes()

    def read() -> None:
        source = open_source(str(path), shard_bytes=1000)
        listing = source.list()
        for shard in listing.shards:
            source.read(shard, listing.schema.names, listing.schema)

    @often(examples)
    @given(st.integers(0, len(good)), st.integers(0, 40), st.binary(max_size=40))
    def check(start: int, cut: int, put: bytes) -> None:
        path.write_bytes(good[:start] + put + good[start + cut :])
        judged(read, path.name)

    check()
