"""The reader of JSON that strangers may have written: bounded size, number of values and depth.

``operators.bounded_json`` and ``engine.core.json_files`` read files of an output by it, and sources the files
that describe a dataset.
"""

from __future__ import annotations

import json
import re
from itertools import accumulate
from typing import Any

MAX_BYTES = 256 * 2**20
MAX_VALUES = 10_000_000
"""Values of a text, counted by its brackets and commas: each may take 100 bytes of memory."""
MAX_DEPTH = 100
"""Levels of lists and objects. Python's parser ends in RecursionError at about 1,000."""
_TEXT = re.compile(rb'"(?:[^"\\]|\\.)*+(?:"|\\?\Z)', re.DOTALL)
"""A JSON string, also one without an end: otherwise the search for ends would take quadratic time."""
_NOT_BRACKETS = re.compile(rb"[^][{}]+")


class JsonTextError(ValueError):
    """A text that exceeds a bound or is not JSON; the message says which, as ``it is ...``."""


def parse_json_text(data: bytes | str) -> Any:
    """Return the value of a JSON text of bounded size, number of values and depth.

    Parameters
    ----------
    data : the text; bytes are UTF-8. Whoever reads it from a file reads at most ``MAX_BYTES + 1``.

    Raises
    ------
    JsonTextError
        It exceeds a bound, or is not JSON.
    """
    found = data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data
    if len(found) > MAX_BYTES:
        raise JsonTextError(f"it is larger than {MAX_BYTES >> 20} MiB")
    opened = found.count(b"[") + found.count(b"{")
    if opened + found.count(b",") > MAX_VALUES:
        raise JsonTextError(f"it holds more than {MAX_VALUES:,} values")
    if opened > MAX_DEPTH and _depth(found) > MAX_DEPTH:
        raise JsonTextError(f"lists and objects are nested more than {MAX_DEPTH} deep")
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise JsonTextError(f"it is not JSON ({error})") from None


def _depth(data: bytes) -> int:
    """Return the largest number of open brackets outside of strings, in linear time."""
    brackets = _NOT_BRACKETS.sub(b"", _TEXT.sub(b"", data))
    return max(accumulate(1 if sign in b"[{" else -1 for sign in brackets), default=0)
