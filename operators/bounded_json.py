"""Reader of small JSON files that lie in a shared output: states of operators, records, manifests.

Anyone who can write to an output may have changed these files. The reader accepts regular files of bounded
size, number of values and depth only. The engine reads its own records by
:func:`engine.core.json_files.read_json`, which adds object stores and calls :func:`parse_json`.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

from connectors.foundation.json_text import MAX_BYTES, JsonTextError, parse_json_text
from operators.base import OperatorError


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
    if not stat.S_ISREG(os.fstat(handle).st_mode):  # before it is made a file, which a folder cannot be
        os.close(handle)
        raise BadJsonError(path, "it is not a regular file")
    with open(handle, "rb") as file:
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
    try:
        return parse_json_text(data)
    except JsonTextError as error:
        raise BadJsonError(place, str(error)) from None
