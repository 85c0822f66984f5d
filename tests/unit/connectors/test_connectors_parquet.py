"""Parquet: row-group shards, agreeing schemas, broken files."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from connectors import open_source
from connectors.base import ConnectorError

RELAXED = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


@RELAXED
@given(
    lengths=st.lists(st.integers(0, 30), min_size=1, max_size=4).filter(any),
    group=st.integers(1, 12),
    shard_bytes=st.integers(1, 3000),
)
def test_shards_are_the_rows_in_order(
    tmp_path: Path, lengths: list[int], group: int, shard_bytes: int
) -> None:
    for old in tmp_path.iterdir():
        old.unlink()
    first = 0
    for index, n in enumerate(lengths):
        table = pa.table({"i": range(first, first + n), "s": [f"row {i}" for i in range(first, first + n)]})
        table = table.cast(pa.schema([("i", pa.int64()), ("s", pa.string())]))
        pq.write_table(table, tmp_path / f"{index}.parquet", row_group_size=group)
        first += n
    source = open_source(str(tmp_path), shard_bytes=shard_bytes)
    listing = source.list()
    tables = [source.read(shard, ["s", "i"], listing.schema) for shard in listing.shards]
    assert [table.num_rows for table in tables] == [shard.n_rows for shard in listing.shards]
    whole = pa.concat_tables(tables)
    assert whole.column_names == ["s", "i"]
    assert whole["i"].to_pylist() == list(range(first))
    for shard, table in zip(listing.shards, tables, strict=True):
        before = sum(lengths[: int(Path(shard.path).stem)])
        assert table["i"][0].as_py() == before + shard.file_row
        assert source.locate(shard, 1) == f"row {shard.file_row + 1}"


def test_shards_fill_up_to_their_size(tmp_path: Path) -> None:
    pq.write_table(pa.table({"i": range(100)}), tmp_path / "a.parquet", row_group_size=10)
    size = pq.read_metadata(tmp_path / "a.parquet").row_group(0).total_byte_size
    listing = open_source(str(tmp_path), shard_bytes=3 * size + 1).list()
    assert [shard.n_rows for shard in listing.shards] == [30, 30, 30, 10]


def test_types_are_widened_over_files(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": pa.array([1], pa.int32()), "b": [1], "c": [None]}), tmp_path / "0.parquet")
    pq.write_table(pa.table({"b": [0.5], "a": [2**40], "c": ["x"]}), tmp_path / "1.parquet")
    source = open_source(str(tmp_path))
    listing = source.list()
    assert listing.schema == pa.schema([("a", pa.int64()), ("b", pa.float64()), ("c", pa.string())])
    found = pa.concat_tables(
        [source.read(shard, ["a", "b", "c"], listing.schema) for shard in listing.shards]
    )
    assert found.to_pydict() == {"a": [1, 2**40], "b": [1.0, 0.5], "c": [None, "x"]}


def test_vectors_and_dictionaries_keep_their_types(tmp_path: Path) -> None:
    pixels = pa.FixedSizeListArray.from_arrays(pa.array([1, 2, 3, 4], pa.float32()), 2)
    table = pa.table({"v": pixels, "d": pa.array(["a", "b"]).dictionary_encode()})
    pq.write_table(table, tmp_path / "a.parquet")
    source = open_source(str(tmp_path))
    listing = source.list()
    assert source.read(listing.shards[0], ["v", "d"], listing.schema).equals(table)
    assert source.read(listing.shards[0], [], listing.schema).num_rows == 2


def write_pair(folder: Path, first: pa.Table, second: pa.Table) -> None:
    pq.write_table(first, folder / "0.parquet")
    pq.write_table(second, folder / "1.parquet")


@pytest.mark.parametrize(
    ("second", "parts"),
    [
        ({"age": ["x"], "y": [1]}, ["1.parquet", "column 'age'", "string", "int64", "0.parquet", "one type"]),
        ({"y": [1]}, ["1.parquet has no column 'age'"]),
        ({"age": [1], "y": [1], "ages": [1]}, ["1.parquet has a column 'ages'", "Did you mean 'age'?"]),
    ],
)
def test_files_that_disagree_are_named(
    tmp_path: Path, second: dict[str, list[object]], parts: list[str]
) -> None:
    write_pair(tmp_path, pa.table({"age": [1], "y": [1]}), pa.table(second))
    with pytest.raises(ConnectorError) as caught:
        open_source(str(tmp_path)).list()
    for part in parts:
        assert part in str(caught.value)


def test_a_truncated_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "cut.parquet"
    pq.write_table(pa.table({"a": range(1000)}), path)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(ConnectorError, match=r"cut\.parquet is not a whole Parquet file.*copy it again"):
        open_source(str(path)).list()


def test_a_damaged_page_is_named(tmp_path: Path) -> None:
    path = tmp_path / "bad.parquet"
    pq.write_table(pa.table({"a": [f"text {i}" for i in range(1000)]}), path, use_dictionary=False)
    source = open_source(str(path))
    listing = source.list()
    data = bytearray(path.read_bytes())
    data[4:60] = b"\xff" * 56
    path.write_bytes(bytes(data))
    with pytest.raises(ConnectorError, match=r"bad\.parquet"):
        source.read(listing.shards[0], ["a"], listing.schema)


def test_empty_files_are_named(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    path.write_bytes(b"")
    with pytest.raises(ConnectorError, match=r"a\.parquet is empty \(0 bytes\)"):
        open_source(str(path)).list()
    pq.write_table(pa.table({"a": pa.array([], pa.int64())}), path)
    with pytest.raises(ConnectorError, match=r"a\.parquet holds no rows"):
        open_source(str(path)).list()


def test_columns_are_checked(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"label": [1]}), path)
    source = open_source(str(path))
    listing = source.list()
    with pytest.raises(ConnectorError, match=r"no column 'lable'\. Did you mean 'label'\?"):
        source.read(listing.shards[0], ["lable"], listing.schema)
    twice = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"])
    pq.write_table(twice, path)
    with pytest.raises(ConnectorError, match="'a' is there more than once"):
        open_source(str(path)).list()


def test_a_file_that_changes_after_listing_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"a": range(10)}), path)
    source = open_source(str(path))
    listing = source.list()
    pq.write_table(pa.table({"a": range(9)}), path)
    with pytest.raises(ConnectorError, match="has changed since it was listed"):
        source.read(listing.shards[0], ["a"], listing.schema)


@pytest.mark.parametrize("kind", ["parquet", "feather", "arrows"])
def test_categories_of_all_files_may_be_more_than_those_of_one(kind: str, tmp_path: Path) -> None:
    """pandas gives a column of up to 127 categories 8-bit indices; 300 of three files were an error."""
    parts = []
    for part in range(3):
        values = pa.array([f"k{part * 100 + row}" for row in range(100)]).dictionary_encode()
        parts.append(pa.record_batch({"c": values.cast(pa.dictionary(pa.int8(), pa.string()))}))
    for part, batch in enumerate(parts):
        if kind == "parquet":
            pq.write_table(pa.Table.from_batches([batch]), tmp_path / f"{part}.parquet")
        elif kind == "feather":
            feather.write_feather(pa.Table.from_batches([batch]), tmp_path / f"{part}.feather")
    if kind == "arrows":
        with pa.ipc.new_stream(tmp_path / "a.arrows", parts[0].schema) as writer:
            for batch in parts:
                writer.write_batch(batch)
    source = open_source(str(tmp_path))
    listing = source.list()
    table = pa.concat_tables([source.read(shard, ["c"], listing.schema) for shard in listing.shards])
    assert listing.schema.field("c").type == pa.dictionary(pa.int32(), pa.string())
    assert table.combine_chunks()["c"].to_pylist() == [f"k{row}" for row in range(300)]
