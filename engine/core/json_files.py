"""JSON and text files. A reader sees the old file or the whole new one, never a part.

Every JSON file of an output is read by :func:`read_json`, or, by an operator, by
:func:`operators.bounded_json.read_json`: outputs may be shared with others, who may forge their files.
"""

from __future__ import annotations

import json
from typing import Any, TypeVar

from connectors.base import ConnectorError
from connectors.foundation.json_text import MAX_BYTES
from connectors.storage import Place, read_whole, write_whole
from engine.core.errors import InputError
from operators.bounded_json import BadJsonError, parse_json

T = TypeVar("T")


class DamagedFileError(InputError, ValueError):
    """A JSON file that is damaged or forged. Readers that can do without the file catch it as ValueError."""


def read_json(path: Place, *, root: Place | None = None) -> Any:
    """Return the value in a JSON file of bounded size and depth.

    Parameters
    ----------
    root
        A folder above it, beneath which no link is followed, such as the output; default: its folder.

    Raises
    ------
    DamagedFileError
        It is a link, no regular file, too large, nested too deeply, or no JSON in UTF-8.
    OSError
        It cannot be opened, for example because it does not exist.

    """
    try:
        return parse_json(read_whole(path, root=root or path.parent, max_bytes=MAX_BYTES), path)
    except BadJsonError as error:
        raise DamagedFileError(str(error)) from None
    except ConnectorError as error:  # a link, a pipe, too large
        why = str(error).removeprefix(f"{path} ").partition(". ")[0].rstrip(".")
        raise DamagedFileError(str(BadJsonError(path, f"it {why}"))) from None


def read_key(path: Place, key: str, kind: type[T]) -> T:
    """Return the value of one key of a JSON file, which has the type ``kind`` (such as ``list``).

    Raises DamagedFileError as :func:`read_json` does, also if the key is missing or has another type, and
    OSError.
    """
    found = read_json(path)
    value = found.get(key) if isinstance(found, dict) else None
    if not isinstance(value, kind):
        raise DamagedFileError(str(BadJsonError(path, f"it has no {kind.__name__} under {key!r}")))
    return value


def json_value(data: bytes | str, place: Place | str) -> Any:
    """Return the value of the text of a JSON file, as :func:`read_json` does. Raises DamagedFileError."""
    try:
        return parse_json(data, place)
    except BadJsonError as error:
        raise DamagedFileError(str(error)) from None


def write_json(path: Place, value: Any, *, durable: bool = True, root: Place | None = None) -> None:
    """Write JSON so that a reader sees the old file or the whole new one, never a part.

    Parameters
    ----------
    durable
        Flush it to disk; a note on progress, which the next one replaces, needs no flush.
    root
        A folder above it, beneath which no link is followed, such as the output.
    """
    write_whole(path, to_json(value).encode(), durable=durable, root=root)


def to_json(value: Any) -> str:
    """Format a value as sorted, indented JSON: the same value always gives the same bytes."""
    return json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def write_text(path: Place, text: str, *, root: Place | None = None) -> None:
    """Write text so that a reader sees the old file or the whole new one, never a part.

    No link beneath ``root``, a folder above it, is followed.
    """
    write_whole(path, text.encode(), root=root)
