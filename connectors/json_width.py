"""The memory that JSON lines take as columns: every object has a cell for each key that any of them has.

So a megabyte of objects with keys of their own takes gigabytes. A format with a header is not like this:
there, each cell is in the file. Sources of JSON call :func:`check_width` before Arrow parses rows.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator

import pyarrow as pa
import pyarrow.json as pj

from connectors.errors import ConnectorError

MAX_CELLS, FEW_CELLS = 2**29, 2**25
"""Cells that rows may take, and those that they may take however small the file is: a cell has some ten bytes
while Arrow parses it."""
CELLS_PER_BYTE = 32
Keys = dict[str, "Keys"]
"""Keys of objects, each with those of the objects below it."""
PIECE_BYTES = 2**15
"""Bytes of rows whose columns are found at once: with a key for each object they take 24 million cells."""


def check_width(data: bytes, schema: pa.Schema | None, place: str, count: Callable[[bytes], int]) -> None:
    """Raise ConnectorError, which names ``place``, where rows would take far more memory than their text.

    Parameters
    ----------
    data : JSON lines, no deeper than Arrow may parse.
    schema : the columns to read; None: those that the rows have.
    count : number of objects in JSON lines, without braces in texts. It is called where braces are many.
    """
    most = min(MAX_CELLS, max(FEW_CELLS, CELLS_PER_BYTE * len(data)))
    known = data.count(b":") if schema is None else n_leaves(schema)
    if known * data.count(b"{") <= most:
        return
    n_objects = count(data)
    widths = [n_leaves(schema)] if schema is not None else _widths(data)
    for width in widths:
        if width * n_objects > most:
            raise ConnectorError(
                f"{place}: {n_objects:,} objects have {width:,} keys or more between them, which makes "
                f"{width * n_objects:,} cells of columns, and {most:,} are read. Write keys that are values "
                f'as values, as in [{{"key": ..., "value": ...}}], or as one text; a lower '
                f"source.shard_bytes has fewer rows at a time."
            )


def n_leaves(schema: pa.Schema) -> int:
    """Return the number of columns of a schema, with those of structs."""
    return sum(_leaves(field.type) for field in schema)


def _leaves(kind: pa.DataType) -> int:
    return 1 + sum(_leaves(kind.field(index).type) for index in range(kind.num_fields))


def _widths(data: bytes) -> Iterator[int]:
    """Yield the number of keys, by their paths, in more and more of the rows."""
    found, last = 0, None
    keys: Keys = {}
    for piece in _pieces(data):
        if piece.count(b":") * piece.count(b"{") <= FEW_CELLS:
            try:
                schema = pj.read_json(
                    io.BytesIO(piece), read_options=pj.ReadOptions(block_size=len(piece) + 1024)
                ).schema
            except pa.ArrowInvalid:  # the error of the whole
                return
            if schema != last:
                found += sum(_add_type(keys, field.name, field.type) for field in schema)
                last = schema
        else:
            try:
                found += _add_value(keys, json.loads(piece))
            except (ValueError, RecursionError):
                return
        yield found


def _pieces(data: bytes) -> Iterator[bytes]:
    """Yield whole rows of up to ``PIECE_BYTES`` together, or one that is larger."""
    start = 0
    while start < len(data):
        stop = data.rfind(b"\n", start, start + PIECE_BYTES) + 1
        stop = stop or data.find(b"\n", start) + 1 or len(data)
        if data[start:stop].strip():
            yield data[start:stop]
        start = stop


def _add_type(keys: Keys, name: str, kind: pa.DataType) -> int:
    """Add a column and those in it; return how many were not known."""
    new = name not in keys
    inner = keys.setdefault(name, {})
    fields = [kind.field(index) for index in range(kind.num_fields)]
    return new + sum(_add_type(inner, field.name, field.type) for field in fields)


def _add_value(keys: Keys, value: object) -> int:
    """Add the keys of a value of JSON; return how many were not known. A list stands under ``item``."""
    if isinstance(value, dict):
        found = 0
        for name, inner in value.items():
            found += name not in keys
            found += _add_value(keys.setdefault(name, {}), inner)
        return found
    if isinstance(value, list):
        below = keys.setdefault("item", {})
        return sum(_add_value(below, inner) for inner in value)
    return 0
