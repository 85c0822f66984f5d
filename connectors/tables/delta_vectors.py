"""Checks of a Delta table's deletion vectors before the library makes a mask of the rows of each.

A mask has an entry for every row up to the last one that a vector marks, and sixty bytes may mark row 2^40:
without memory for it the library ends the process. Source: the Delta protocol, "Deletion Vector Format".
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import unquote
from uuid import UUID

import pyarrow as pa
import pyarrow.fs as fs

from connectors.base import ConnectorError
from connectors.foundation.messages import shorten
from connectors.tables.roaring import width_of

MAX_ROWS = 2**28
"""Rows of a file up to the last one that a vector marks, and rows that all vectors of a version mark."""
MAX_VECTOR_BYTES = 2**28
MAGIC_BYTES = 4
"""Bytes of the number before the bitmap of a vector."""
ENCODED_UUID = 20
"""Characters of a vector's file name, by Z85, at the end of a relative path; what is before is a folder."""
AT_ONCE = 8
_SCHEME = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]*:(//)?")
_Z85 = bytes.maketrans(
    b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#",
    b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~",
).decode("latin-1")


@dataclass(frozen=True)
class Vector:
    """The place of a deletion vector, as a log describes it."""

    kind: str
    """i: in the log itself; u: a file named by a UUID; p: a file with an absolute path."""
    name: str
    offset: int

    @classmethod
    def of(cls, found: dict[str, Any]) -> Vector:
        """Return the vector of a descriptor."""
        return cls(
            str(found.get("storageType", "u")), str(found["pathOrInlineDv"]), int(found.get("offset") or 0)
        )


def bare_path(name: str) -> str:
    """Return an absolute path, or the path of a URI, as the file system of a table has it."""
    return unquote(_SCHEME.sub("", name))


def check_widths(filesystem: fs.FileSystem, where: str, vectors: Iterable[Vector]) -> None:
    """Raise ConnectorError for a vector that cannot be read, or marks a row that no file is to have.

    One whose file is not there is passed over: it may be of an earlier version.
    """
    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(partial(_check, filesystem, where), {*vectors}))


def _check(filesystem: fs.FileSystem, where: str, vector: Vector) -> None:
    named = f"source.path: the log of {where} has the deletion vector {shorten(vector.name)}"
    try:
        data = _unquoted(vector.name) if vector.kind == "i" else _stored(filesystem, where, vector)
        wide = data is not None and width_of(data[MAGIC_BYTES:]) > MAX_ROWS
    except (ValueError, pa.ArrowException) as error:
        raise ConnectorError(f"{named}, which cannot be read: {error}. Write the table anew.") from error
    if wide:
        raise ConnectorError(
            f"{named}, which marks a row beyond the {MAX_ROWS:,} that are read of a file: a mask of all rows "
            f"would be held in memory. Write the table anew in smaller files."
        )


def _unquoted(text: str) -> bytes:
    return base64.b85decode(text.translate(_Z85))


def _stored(filesystem: fs.FileSystem, where: str, vector: Vector) -> bytes | None:
    """Return a vector from its file, which states its bytes before them; None where there is no file."""
    if vector.kind == "p":
        place = bare_path(vector.name)
    else:
        folder, code = vector.name[:-ENCODED_UUID], vector.name[-ENCODED_UUID:]
        if "%" in folder:
            raise ValueError("readers disagree about % in the name of a folder")
        parts = (where.rstrip("/"), folder.strip("/"), f"deletion_vector_{UUID(bytes=_unquoted(code))}.bin")
        place = "/".join(filter(None, parts))
    if filesystem.get_file_info(place).type != fs.FileType.File:
        return None
    with filesystem.open_input_file(place) as file:
        size = int.from_bytes(file.read_at(4, vector.offset), "big")
        return bytes(file.read_at(min(size, MAX_VECTOR_BYTES), vector.offset + 4))
