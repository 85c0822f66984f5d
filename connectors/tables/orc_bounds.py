"""Bounds of ORC files, of which a few bytes may stand for gigabytes.

The tail of a file says how much memory its reader takes for each block, and is checked before any reader sees
the file. What the rows take is counted in small batches, in which the reader expands few of them at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyarrow import orc

from connectors.errors import ConnectorError

MAX_BLOCK_BYTES = 2**23
"""Of a compressed block: the format has no larger ones."""
MAX_TAIL_BYTES = 64 * 2**20
"""Of the descriptions at the end of a file, as they are stored."""
ROWS = 64
"""Rows that are expanded at once: one text of a megabyte in all of them takes 64 MB."""
LONGEST_END = 256
FOOTER_LENGTH, BLOCK_SIZE, METADATA_LENGTH = 1, 3, 5
"""Numbers of fields in the end of a file, which is a message of Protocol Buffers."""
VARINT, TEXT = 0, 2
"""Their kinds of values there."""


def checked_orc(stream: Any, place: str) -> orc.ORCFile:
    """Open a file whose tail is sound. Raises ConnectorError for another."""
    try:
        fields = _end_of(stream)
        block = fields.get(BLOCK_SIZE, 0)
        tail = fields.get(FOOTER_LENGTH, 0) + fields.get(METADATA_LENGTH, 0)
    except (IndexError, ValueError) as error:
        raise ConnectorError(f"{place} is not an ORC file, or a damaged one: {error}.") from error
    if block > MAX_BLOCK_BYTES or tail > MAX_TAIL_BYTES:
        raise ConnectorError(
            f"{place} states blocks of {block:,} bytes and descriptions of {tail:,}, and {MAX_BLOCK_BYTES:,} "
            f"and {MAX_TAIL_BYTES:,} are read: it is damaged or forged."
        )
    return orc.ORCFile(stream)


def small_batches(stream: Any, columns: list[str] | None = None) -> Iterator[pa.RecordBatch]:
    """Yield columns of a file, all by default, a few rows at a time."""
    import pyarrow.dataset as ds  # takes longer to load than a look at a table may

    fragment = ds.OrcFileFormat().make_fragment(stream)
    scanner = ds.Scanner.from_fragment(
        fragment, columns=columns, batch_size=ROWS, batch_readahead=0, fragment_readahead=0, use_threads=False
    )
    yield from scanner.to_batches()


def _end_of(stream: Any) -> dict[int, int]:
    """Return the numbers of the last part of a file by their field, as they are stored."""
    size = stream.seek(0, 2)
    stream.seek(max(0, size - LONGEST_END))
    data = stream.read(LONGEST_END)
    stream.seek(0)
    length = data[-1]
    if length + 1 > len(data):
        raise ValueError(f"it has {size:,} bytes, and its end has {length + 1}")
    at, end, found = len(data) - 1 - length, len(data) - 1, dict[int, int]()
    while at < end:
        key, at = _varint(data, at)
        value, at = _varint(data, at)
        if key & 7 == TEXT:
            at += value
        elif key & 7 == VARINT:
            found[key >> 3] = value
        else:
            raise ValueError(f"its end has a value of the kind {key & 7}")
    return found


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Return the number at a place, of which each byte holds seven bits, and the place after it."""
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
