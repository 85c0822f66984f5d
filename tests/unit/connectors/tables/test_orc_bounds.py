"""The ends of ORC files are checked before the library takes memory by what they state."""

from __future__ import annotations

import io
import resource
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import orc

from connectors import ConnectorError
from connectors.tables.orc_bounds import check_orc
from connectors.tables.orc_child import allowed

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


def test_a_sound_file_has_its_rows() -> None:
    assert check_orc(pa.BufferReader(orc_file()), "a.orc", 2**20) == 200
    with pytest.raises(ConnectorError, match=r"a\.orc: the rows take .* bytes or more in memory"):
        check_orc(pa.BufferReader(orc_file()), "a.orc", 100)
    assert check_orc(pa.BufferReader(orc_file()), "a.orc", 100, max_rows=199) == 200
    assert check_orc(pa.BufferReader(orc_file()), "a.orc", 2**20, wanted=[b"3"]) == 200


@pytest.fixture(scope="module")
def lists() -> bytes:
    """300 lists of two numbers: their lengths are stored as 300 (c1 2b) times 2, a step of 0."""
    file = io.BytesIO()
    orc.write_table(pa.table({"l": [[i, None] for i in range(300)]}), file, compression="uncompressed")
    return file.getvalue()


def test_lengths_below_nothing_end_another_process(lists: bytes) -> None:
    """Arrow follows them to an address beside the values: with one byte changed this process would end."""
    assert check_orc(pa.BufferReader(lists), "a.orc", 2**20) == 300
    forged = lists.replace(b"\xc1\x2b\x02\x00", b"\xc1\x2b\x02\x0d")
    assert forged != lists
    with pytest.raises(ConnectorError, match=r"a\.orc ended the process that tried to read it"):
        check_orc(pa.BufferReader(forged), "a.orc", 2**20)


def test_a_file_that_takes_too_long_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("connectors.tables.orc_bounds.SECONDS", 1)
    monkeypatch.setattr("connectors.tables.orc_bounds.START", "import time; time.sleep(60)")
    with pytest.raises(ConnectorError, match="more than 1 seconds"):
        check_orc(pa.BufferReader(orc_file()), "a.orc", 2**20)


def test_a_module_beside_the_data_is_not_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "json.py").write_text("raise SystemExit(7)")
    monkeypatch.chdir(tmp_path)
    assert check_orc(pa.BufferReader(orc_file()), "a.orc", 2**20) == 200


@pytest.mark.parametrize("block", [2**23 + 1, 2**34, 2**63])
def test_a_forged_size_of_blocks_is_refused(block: int) -> None:
    """The library would reserve as much for every column."""
    forged = with_end(orc_file(), b"\x18" + varint(BLOCKS), b"\x18" + varint(block))
    with pytest.raises(ConnectorError, match=f"a.orc states blocks of {block:,} bytes"):
        check_orc(pa.BufferReader(forged), "a.orc", 2**20)


def test_a_forged_size_of_descriptions_is_refused() -> None:
    data = orc_file()
    end = data[-1 - data[-1] : -1]
    assert end[0] == 0x08  # the field of the footer's length
    with pytest.raises(ConnectorError, match="descriptions of"):
        check_orc(pa.BufferReader(with_end(data, end[:2], b"\x08" + varint(2**33))), "a.orc", 2**20)


@pytest.mark.parametrize("data", [b"", b"ORC", b"ORC\xff", b"\xff" * 256, bytes([0x0D, 0, 0, 0, 0, 5])])
def test_what_is_no_orc_file_is_named(data: bytes) -> None:
    with pytest.raises(ConnectorError, match="is not an ORC file"):
        check_orc(pa.BufferReader(data), "a.orc", 2**20)


def test_a_limit_of_the_process_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a scheduler limits address space to less than two shards, every file was called damaged."""
    monkeypatch.setattr(resource, "getrlimit", lambda _: (2**20, 2**30))
    assert [allowed(2**20), allowed(2**40)] == [2**20, 2**30]
    monkeypatch.setattr(resource, "getrlimit", lambda _: (2**20, resource.RLIM_INFINITY))
    assert allowed(2**40) == 2**40
