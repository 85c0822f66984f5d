"""Bounds of ORC files, of which a few bytes may stand for gigabytes, and which may end the process.

The end of a file says how much memory its reader takes for each block, and is checked first. Then a process
of its own, with a limit of memory, reads the file once (``orc_child.py``); half a second is its start.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Collection
from shutil import copyfileobj
from tempfile import NamedTemporaryFile
from typing import Any

from connectors.errors import ConnectorError

START = (
    "import sys; from json import loads; sys.path[:] = loads(sys.argv.pop(1)); "
    "from connectors.tables.orc_child import main; main()"
)
"""Modules come from this process's own folders, without the working directory."""
SECONDS = 3600
"""Longest time that a file may take."""
MAX_BLOCK_BYTES = 2**23
"""Of a compressed block: the format has no larger ones."""
MAX_TAIL_BYTES = 64 * 2**20
"""Of the descriptions at the end of a file, as they are stored."""
LONGEST_END = 256
FOOTER_LENGTH, BLOCK_SIZE, METADATA_LENGTH = 1, 3, 5
"""Numbers of fields in the end of a file, which is a message of Protocol Buffers."""
VARINT, TEXT = 0, 2
"""Their kinds of values there."""


def check_orc(
    stream: Any,
    place: str,
    max_bytes: int,
    *,
    max_rows: int = 2**62,
    wanted: Collection[bytes] | None = None,
) -> int:
    """Return the rows of a file that can be read within limits; a process of its own tries it.

    Parameters
    ----------
    stream : the file, read from its start.
    place : name of the file, for errors.
    max_bytes : most bytes that its columns may take in memory.
    max_rows : a file of more rows is not read; their number is returned.
    wanted : numbers of the columns; all by default.

    Raises
    ------
    ConnectorError
        The file is damaged or forged, or takes more in memory.
    """
    _check_end(stream, place)
    with NamedTemporaryFile(prefix="rowsieve-", suffix=".orc") as copy:
        copyfileobj(stream, copy)
        copy.flush()
        numbers = None if wanted is None else sorted(number.decode() for number in wanted)
        answer = _answer([copy.name, max_rows, max_bytes, numbers], place)
    if "error" in answer:
        raise ConnectorError(f"{place} is not an ORC file, or a damaged one: {answer['error']}.")
    if answer.get("bytes", 0) > max_bytes:
        raise ConnectorError(
            f"{place}: the rows take {answer['bytes']} bytes or more in memory once its values are written "
            f"out, and {max_bytes} are allowed. If the file is what it should be, raise "
            f"source.max_shard_bytes, or have the table compacted."
        )
    return int(answer["rows"])


def _answer(request: list[Any], place: str) -> dict[str, Any]:
    command = [sys.executable, "-P", "-c", START, json.dumps(sys.path)]
    try:
        done = subprocess.run(  # noqa: S603 - Python itself, without a shell
            command, input=json.dumps(request).encode(), capture_output=True, timeout=SECONDS, check=False
        )
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    except (ValueError, IndexError, subprocess.TimeoutExpired):
        raise ConnectorError(
            f"{place} ended the process that tried to read it, or took it more than {SECONDS} seconds: it is "
            f"damaged or forged, or takes more memory than there is. Restore it, or have the table written "
            f"anew."
        ) from None
    return found


def _check_end(stream: Any, place: str) -> None:
    """Raise ConnectorError for a file whose end states more than any file has."""
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
