"""Footers of Parquet files that name columns within thousands of others."""

import struct
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from connectors.base import ConnectorError
from connectors.parquet_footer import MAX_ENTRIES, MAX_LEVELS, open_parquet
from connectors.registry import open_source
from connectors.storage import read_columns
from connectors.tables.delta_log import check_log
from engine.core.errors import InputError
from engine.storage.state_files import check_state

I32, BINARY, STRUCT, LIST, I64 = 5, 8, 12, 9, 6
"""Types of Thrift's compact protocol."""


def varint(value: int) -> bytes:
    found = b""
    while value >= 0x80:
        found, value = found + bytes([value & 0x7F | 0x80]), value >> 7
    return found + bytes([value])


def field(step: int, kind: int, value: bytes) -> bytes:
    return bytes([step << 4 | kind]) + value


def entry(name: bytes, children: int, *, root: bool = False) -> bytes:
    """Describe a column: type or repetition, name, number of columns within it."""
    first = b"" if root else field(3, I32, b"\x02") if children else field(1, I32, b"\x02")
    named = field(4 if root else 1 if children else 3, BINARY, varint(len(name)) + name)
    return first + named + (field(1, I32, varint(2 * children)) if children else b"") + b"\0"


def entries(levels: int) -> bytes:
    found = [entry(b"root", 1, root=True), *[entry(b"g", 1)] * levels, entry(b"v", 0)]
    return b"\xfc" + varint(len(found)) + b"".join(found)


def nested(path: Path, levels: int, *, after: bool = False) -> Path:
    """Write a file without rows; with ``after`` the schema stands behind an empty one and the row groups."""
    flat = b"\x2c" + entry(b"root", 1, root=True) + entry(b"v", 0)
    middle = field(1, I64, b"\0") + field(1, LIST, b"\x0c")
    schema = field(1, LIST, flat if after else entries(levels))
    again = bytes([LIST]) + b"\x04" + entries(levels) if after else b""  # the number 2 is written out
    footer = field(1, I32, b"\x02") + schema + middle + again + b"\0"
    path.write_bytes(b"PAR1" + footer + struct.pack("<I", len(footer)) + b"PAR1")
    return path


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("levels", [MAX_LEVELS + 1, 2_000, 2 * MAX_ENTRIES, 50_000])
def test_columns_within_thousands_of_columns_are_refused(levels: int, after: bool, tmp_path: Path) -> None:
    """Arrow's reader follows the levels by recursion: 15,000 of them ended the process."""
    path = nested(tmp_path / "a.parquet", levels, after=after)
    command = [
        sys.executable,
        "-c",
        "import sys\n"
        "from connectors.registry import open_source\nfrom connectors.base import ConnectorError\n"
        "try:\n    open_source(sys.argv[1]).list()\nexcept ConnectorError as error:\n    print(error)",
        str(path),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # it may end that process
    assert done.returncode == 0, done.stderr[-500:]
    assert "a.parquet has a column of more than 100 levels" in done.stdout


def test_the_forged_file_is_what_arrow_reads(tmp_path: Path) -> None:
    """The files of the test above are refused for their levels alone."""
    for after in (False, True):
        found = pq.ParquetFile(nested(tmp_path / "a.parquet", 3, after=after)).schema_arrow
        assert str(found.field(0).type) == "struct<g: struct<g: struct<v: int32 not null>>>", after
        assert open_parquet(tmp_path / "a.parquet", "a").schema_arrow == found


def test_parts_states_and_checkpoints_are_refused_alike(tmp_path: Path) -> None:
    path = nested(tmp_path / "a.parquet", 2 * MAX_ENTRIES)
    with pytest.raises(ConnectorError, match="more than 100 levels"):
        read_columns(path)
    log = tmp_path / "table" / "_delta_log"
    log.mkdir(parents=True)
    nested(log / f"{0:020}.checkpoint.parquet", 2 * MAX_ENTRIES)
    with pytest.raises(ConnectorError, match=r"checkpoint\.parquet has a column of more than 100 levels"):
        check_log(str(tmp_path / "table"))
    with pytest.raises(InputError, match="more than 100 levels"):
        check_state(tmp_path)


def test_many_columns_row_groups_and_levels_are_read(tmp_path: Path) -> None:
    wide = pa.table({f"c{i}": [i, -i] for i in range(MAX_ENTRIES + 10)})
    pq.write_table(wide, tmp_path / "wide.parquet")
    many = pa.table({"a": pa.array(range(MAX_ENTRIES + 10), pa.int64())})
    pq.write_table(many, tmp_path / "many.parquet", row_group_size=1)
    value = [1.5]
    for _ in range(30):
        value = [value]  # type: ignore[list-item]
    deep = pa.table({"a": [value], "b": [True]})
    pq.write_table(deep, tmp_path / "deep.parquet")
    for name, table in (("wide", wide), ("many", many), ("deep", deep)):
        assert open_parquet(tmp_path / f"{name}.parquet", name).read().equals(table), name
    assert sum(shard.n_rows for shard in open_source(str(tmp_path / "wide.parquet")).list().shards) == 2


def test_a_damaged_long_footer_is_an_error(tmp_path: Path) -> None:
    """Bytes changed anywhere in a footer with more entries than are read unchecked."""
    wide = pa.table({f"c{i}": [i] for i in range(MAX_ENTRIES + 10)})
    pq.write_table(wide, tmp_path / "wide.parquet", store_schema=False)
    data = (tmp_path / "wide.parquet").read_bytes()
    length = int.from_bytes(data[-8:-4], "little")
    for place in range(len(data) - 8 - length, len(data) - 8, length // 12):
        for byte in (b"\0", b"\xff"):
            (tmp_path / "b.parquet").write_bytes(data[:place] + byte * 20 + data[place + 20 :])
            with suppress(ConnectorError):  # some changes are of names alone
                open_source(str(tmp_path / "b.parquet")).list()
