"""Written files: whole, the same to the byte, or an error and nothing."""

from __future__ import annotations

import errno
import hashlib
import itertools
from pathlib import Path
from typing import IO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from connectors import sink
from connectors.base import ConnectorError
from connectors.sink import write_parquet

RELAXED = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


def example(n: int = 200) -> pa.Table:
    rng = np.random.default_rng(0)
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(rng.normal(size=n * 3).astype(np.float32)), 3)
    words = pa.array([None if i % 7 == 0 else f"w{i % 5}" for i in range(n)])
    lists = pa.array([None if i % 5 == 0 else [float(i)] * (i % 3) for i in range(n)], pa.list_(pa.float32()))
    return pa.table({"v": vectors, "w": words, "l": lists, "c": words.dictionary_encode()})


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    table = example().replace_schema_metadata({"pandas": "{}"})
    written = write_parquet(table, tmp_path / "a.parquet")
    data = (tmp_path / "a.parquet").read_bytes()
    assert (written.sha256, written.n_bytes) == (hashlib.sha256(data).hexdigest(), len(data))
    back = pq.read_table(tmp_path / "a.parquet")
    assert back.equals(table)
    assert b"pandas" not in (back.schema.metadata or {})
    assert [path.name for path in tmp_path.iterdir()] == ["a.parquet"]


def test_row_groups_of_long_lists_are_short(tmp_path: Path) -> None:
    width, n = 2**13, 1000
    wide = pa.array(np.zeros(n * width, np.float32))
    offsets = pa.array(np.arange(n + 1, dtype=np.int32) * width)
    lists = pa.table({"x": pa.ListArray.from_arrays(offsets, wide), "k": pa.array(range(n))})
    fixed = pa.table({"x": pa.FixedSizeListArray.from_arrays(wide, width)})
    for table in (lists, fixed):
        write_parquet(table, tmp_path / "a")
        found = pq.ParquetFile(tmp_path / "a")
        rows = [found.metadata.row_group(k).num_rows for k in range(found.num_row_groups)]
        assert rows[0] * width == sink.ROW_GROUP_VALUES
        assert sum(rows) == n
        assert found.read().equals(table)
    write_parquet(lists.select(["k"]), tmp_path / "b")
    assert pq.ParquetFile(tmp_path / "b").num_row_groups == 1


@RELAXED
@given(cuts=st.lists(st.integers(0, 200), max_size=6).map(sorted))
def test_bytes_do_not_depend_on_chunks(tmp_path: Path, cuts: list[int]) -> None:
    table = example()
    edges = [0, *cuts, table.num_rows]
    pieces = pa.concat_tables([table.slice(a, b - a) for a, b in itertools.pairwise(edges)])
    assert write_parquet(pieces, tmp_path / "a").sha256 == write_parquet(table, tmp_path / "b").sha256


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("none/a.parquet", "folder does not exist"),
        ("file/a.parquet", "is a file"),
        ("folder", "has that name"),
    ],
)
def test_unwritable_places_are_named(tmp_path: Path, path: str, text: str) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "folder").mkdir()
    with pytest.raises(ConnectorError, match=text) as caught:
        write_parquet(example(), tmp_path / path)
    assert str(tmp_path / path) in str(caught.value)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["file", "folder"]


@pytest.mark.parametrize(
    ("code", "text"), [(errno.ENOSPC, "disk is full"), (errno.EACCES, "permission denied")]
)
def test_a_write_that_breaks_off_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, text: str
) -> None:
    path = tmp_path / "a.parquet"
    path.write_bytes(b"old")

    def breaks_off(table: pa.Table, part: IO[bytes], _: object) -> None:
        part.write(b"half")
        raise OSError(code, "as the system says it")

    monkeypatch.setattr(sink, "_write", breaks_off)
    with pytest.raises(ConnectorError, match=text):
        write_parquet(example(), path)
    assert path.read_bytes() == b"old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.parquet"]
