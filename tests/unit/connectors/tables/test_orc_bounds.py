"""The ends of ORC files are checked before the library takes memory by what they state."""

from __future__ import annotations

import io

import pyarrow as pa
import pytest
from pyarrow import orc

from connectors import ConnectorError
from connectors.tables.orc_bounds import checked_orc, small_batches

BLOCKS = 65_536


def orc_file() -> bytes:
    file = io.BytesIO()
    rows = pa.table({"k": list(range(200))})
    orc.write_table(rows, file, compression="zstd", compression_block_size=BLOCKS)
    return file.getvalue()


def varint(value: int) -> bytes:
    found = b""
    while value >= 0x80:
        found += bytes([value & 0x7F | 0x80])
        value >>= 7
    return found + bytes([value])


def with_end(data: bytes, old: bytes, new: bytes) -> bytes:
    """Return a file whose last part, the length of which is its last byte, has one field changed."""
    end = data[-1 - data[-1] : -1]
    assert old in end
    changed = end.replace(old, new, 1)
    return data[: -1 - data[-1]] + changed + bytes([len(changed)])


def test_a_sound_file_is_read_in_small_batches() -> None:
    data = orc_file()
    assert checked_orc(pa.BufferReader(data), "a.orc").nrows == 200
    batches = list(small_batches(pa.BufferReader(data), ["k"]))
    assert max(batch.num_rows for batch in batches) < 200
    assert pa.Table.from_batches(batches)["k"].to_pylist() == list(range(200))


@pytest.mark.parametrize("block", [2**23 + 1, 2**34, 2**63])
def test_a_forged_size_of_blocks_is_refused(block: int) -> None:
    """The library would reserve as much for every column."""
    forged = with_end(orc_file(), b"\x18" + varint(BLOCKS), b"\x18" + varint(block))
    with pytest.raises(ConnectorError, match=f"a.orc states blocks of {block:,} bytes"):
        checked_orc(pa.BufferReader(forged), "a.orc")


def test_a_forged_size_of_descriptions_is_refused() -> None:
    data = orc_file()
    end = data[-1 - data[-1] : -1]
    assert end[0] == 0x08  # the field of the footer's length
    with pytest.raises(ConnectorError, match="descriptions of"):
        checked_orc(pa.BufferReader(with_end(data, end[:2], b"\x08" + varint(2**33))), "a.orc")


@pytest.mark.parametrize("data", [b"", b"ORC", b"ORC\xff", b"\xff" * 256, bytes([0x0D, 0, 0, 0, 0, 5])])
def test_what_is_no_orc_file_is_named(data: bytes) -> None:
    with pytest.raises(ConnectorError, match="is not an ORC file"):
        checked_orc(pa.BufferReader(data), "a.orc")
