"""Texts that are not UTF-8 are named wherever they stand: in lists, structs, maps and dictionaries."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from connectors import open_source
from connectors.base import CorruptError, SourceShard
from connectors.utf8_texts import check_texts

BAD = pa.array([b"ok", b"x\xff", b"y"], pa.binary()).view(pa.string())
TURNED = pa.array([0, 2, 1])
COLUMNS = {
    "plain": (BAD, 1),
    "large": (BAD.cast(pa.binary()).cast(pa.large_binary()).view(pa.large_string()), 1),
    "list": (pa.ListArray.from_arrays([0, 0, 1, 3], BAD), 2),
    "list of structs": (pa.ListArray.from_arrays([0, 1, 2, 3], pa.StructArray.from_arrays([BAD], ["f"])), 1),
    "fixed list": (pa.FixedSizeListArray.from_arrays(BAD, 1), 1),
    "large list": (pa.LargeListArray.from_arrays([0, 1, 2, 3], BAD), 1),
    "struct": (pa.StructArray.from_arrays([pa.array([1, 2, 3]), BAD], ["n", "f"]), 1),
    "map": (pa.MapArray.from_arrays([0, 1, 2, 3], pa.array(["a", "b", "c"]), BAD), 1),
    "dictionary": (pa.DictionaryArray.from_arrays(TURNED, BAD), 2),
    "list of dictionaries": (
        pa.ListArray.from_arrays([0, 1, 2, 3], pa.DictionaryArray.from_arrays(TURNED, BAD)),
        2,
    ),
}
DICTIONARIES = ("dictionary", "list of dictionaries")


def written(table: pa.Table, path: Path) -> Path:
    if path.suffix == ".parquet":
        pq.write_table(table, path)
    else:
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table)
    return path


@pytest.mark.parametrize("ending", ["parquet", "arrow"])
@pytest.mark.parametrize("kind", COLUMNS)
def test_a_text_that_is_not_utf8_is_named(kind: str, ending: str, tmp_path: Path) -> None:
    """In lists and structs it was read, and ended the run as a bare UnicodeDecodeError."""
    column, row = COLUMNS[kind]
    path = written(pa.table({"id": range(3), "t": column}), tmp_path / f"a.{ending}")
    source = open_source(str(path))
    listing = source.list()
    assert source.read(listing.shards[0], ["id"], listing.schema).num_rows == 3
    with pytest.raises(CorruptError) as caught:
        source.read(listing.shards[0], ["id", "t"], listing.schema)
    place = "rows 0 to 2" if ending == "parquet" and kind in DICTIONARIES else f"row {row}"
    assert f"{path}, {place}, column 't': " in str(caught.value)
    assert "is not UTF-8. Write the column again as UTF-8, or as binary." in str(caught.value)


def test_rows_are_counted_through_chunks_and_batches() -> None:
    column = pa.chunked_array([pa.array(["a", "b"]), BAD.slice(1)])
    table = pa.table({"t": column})
    with pytest.raises(CorruptError, match=r"^f, row 12, column 't': byte 1 of the text \(0xff\)"):
        check_texts(table, SourceShard("f", 0, 1, 9, 5, 99), first=5)


def test_a_forged_offset_is_not_followed() -> None:
    """A column with an invalid text may have other faults, and Python reads its values unchecked."""
    offsets = pa.array([0, 10**6, 2], pa.int32()).buffers()[1]
    forged = pa.Array.from_buffers(pa.string(), 2, [None, offsets, pa.py_buffer(b"\xff\xff")])
    with pytest.raises(pa.ArrowInvalid, match="offset"):
        check_texts(pa.table({"t": forged}), SourceShard("f", 0, 1, 2, 0, 9))


def test_bytes_are_no_texts() -> None:
    rows = [{"b": b"\xff", "t": "a"}, None]
    check_texts(pa.table({"t": pa.array(rows)}), SourceShard("f", 0, 1, 2, 0, 9))
