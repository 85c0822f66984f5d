"""Reader of small JSON files that lie in a shared output: states of operators, records, manifests.

Anyone who can write to an output may have changed these files. The reader accepts regular files of bounded
size, number of values and depth only. The engine reads its own records by
:func:`engine.core.json_files.read_json`, which adds object stores and calls :func:`parse_json`.
"""

from __future__ import annotations

import json
import os
import re
import stat
from itertools import accumulate
from pathlib import Path
from typing import Any

from operators.base import OperatorError

MAX_BYTES = 256 * 2**20
MAX_VALUES = 10_000_000
"""Values of a file, counted by its brackets and commas: each may take 100 bytes of memory."""
MAX_DEPTH = 100
"""Levels of lists and objects. Python's parser ends in RecursionError at about 1,000."""
_TEXT = re.compile(rb'"(?:[^"\\]|\\.)*+(?:"|\\?\Z)', re.DOTALL)
"""A JSON string, also one without an end: otherwise the search for ends would take quadratic time."""
_NOT_BRACKETS = re.compile(rb"[^][{}]+")


class BadJsonError(OperatorError, ValueError):
    """A file of JSON that is damaged or forged. The message is one paragraph with the file and the remedy."""

    def __init__(self, place: object, why: str) -> None:
        """Make the message from the file and the reason ``why``, which is kept."""
        super().__init__(
            f"{place} is damaged or forged: {why}. Restore it, or remove it and run the recipe again."
        )
        self.why = why

    def __reduce__(self) -> tuple[object, ...]:
        """Let workers return the error: by default, one is made again from its message alone."""
        return BadJsonError, (self.args[0].partition(" is damaged or forged: ")[0], self.why)


def read_json(path: Path) -> Any:
    """Return the value in a JSON file.

    Raises
    ------
    BadJsonError
        It is not a regular file, too large, nested too deeply, or not JSON in UTF-8.
    OSError
        It cannot be opened, for example because it does not exist.
    """
    # O_NONBLOCK: opening a named pipe must not wait for its writer.
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise BadJsonError(path, "it is no regular file")
        return parse_json(file.read(MAX_BYTES + 1), path)


def parse_json(data: bytes | str, place: object) -> Any:
    """Return the value of a JSON text of bounded size, number of values and depth.

    Parameters
    ----------
    data : the text; bytes are UTF-8.
    place : the file that it is from, for the error.

    Raises
    ------
    BadJsonError
        It exceeds a bound, or is not JSON.
    """
    found = data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data
    if len(found) > MAX_BYTES:
        raise BadJsonError(place, f"it is larger than {MAX_BYTES >> 20} MiB")
    opened = found.count(b"[") + found.count(b"{")
    if opened + found.count(b",") > MAX_VALUES:
        raise BadJsonError(place, f"it holds more than {MAX_VALUES:,} values")
    if opened > MAX_DEPTH and _depth(found) > MAX_DEPTH:
        raise BadJsonError(place, f"lists and objects are nested more than {MAX_DEPTH} deep")
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise BadJsonError(place, f"it is no JSON ({error})") from None


def _depth(data: bytes) -> int:
    """Return the largest number of open brackets outside of strings, in linear time."""
    brackets = _NOT_BRACKETS.sub(b"", _TEXT.sub(b"", data))
    return max(accumulate(1 if sign in b"[{" else -1 for sign in brackets), default=0)
