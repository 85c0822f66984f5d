"""Opening Parquet files whose footer was checked: Arrow follows the levels of a schema by recursion.

A footer of 200 KB can name a column within 15,000 others, by which its reader leaves the stack and ends the
process. Arrow first reads at most ``MAX_ENTRIES`` entries of a list in the footer, too few for that many
levels. Where a list is longer, as of a table with more columns, the levels are counted here before it does.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from connectors.errors import ConnectorError

MAX_LEVELS = 100
"""Levels of lists and structs in a column, as of JSON. Python follows types by recursion too."""
MAX_ENTRIES = 5_000
"""Entries of a list in a footer that Arrow reads unchecked; with 12,000 levels it still has enough stack."""
MAX_FOOTER = 100 * 2**20
"""Bytes of a footer that is read here; Arrow reads no larger one either."""
MAX_LIST = 1_000_000
"""Entries of a list that Arrow reads at most."""
TOO_LONG = "Exceeded size limit"
"""Arrow's words for a list of more entries."""
SCHEMA, CHILDREN = 2, 5
"""Numbers of fields: the schema in a footer, the number of columns within a column in an entry of it."""
BYTE, DOUBLE, BINARY, LISTS, MAP, STRUCT = 3, 7, 8, (9, 10), 11, 12
"""Types of Thrift's compact protocol; those from 4 to 6 are whole numbers, 1 and 2 are true and false."""


def open_parquet(source: Any, place: object, **settings: Any) -> pq.ParquetFile:
    """Open a Parquet file: a path or a stream that can be positioned; ``place`` names it in errors.

    Raises
    ------
    ConnectorError
        A column has more than ``MAX_LEVELS`` levels of lists and structs.
    pyarrow.ArrowException, OSError
        It is not a Parquet file.
    """
    try:
        file = pq.ParquetFile(source, thrift_container_size_limit=MAX_ENTRIES, **settings)
    except OSError as error:
        if TOO_LONG not in str(error):
            raise
        if _levels(_footer(source)) > MAX_ENTRIES:
            raise _too_deep(place) from None
        file = pq.ParquetFile(source, **settings)
    if _depth(file.schema_arrow) > MAX_LEVELS:
        raise _too_deep(place)
    return file


def _too_deep(place: object) -> ConnectorError:
    return ConnectorError(
        f"{place} has a column of more than {MAX_LEVELS} levels of lists and structs, which readers of "
        f"Parquet follow by recursion. The file may be forged: write it with flat columns."
    )


def _depth(schema: pa.Schema) -> int:
    """Return the most levels of a column, or a larger number than ``MAX_LEVELS``, without recursion."""
    types, depth = [field.type for field in schema], 0
    while types and depth <= MAX_LEVELS:
        types = [kind.field(index).type for kind in types for index in range(kind.num_fields)]
        depth += 1
    return depth


def _footer(source: Any) -> bytes:
    """Return the bytes of a footer, without its length and the mark at the end."""
    if isinstance(source, (str, Path)):
        with open(source, "rb") as file:
            return _footer(file)
    size = source.seek(0, 2) or source.tell()
    source.seek(max(0, size - 8))
    length = int.from_bytes(source.read(8)[:4], "little")
    if length > min(MAX_FOOTER, size - 8):
        raise OSError(f"its footer states {length:,} bytes")
    source.seek(size - 8 - length)
    found = bytes(source.read(length))
    source.seek(0)
    return found


@lru_cache(maxsize=2)
def _levels(footer: bytes) -> int:
    """Return the most levels of a column in any schema of a footer. Raises OSError for a damaged one."""
    try:
        found, fields = 0, _Thrift(footer)
        for number, kind in fields.struct():
            if number == SCHEMA and kind in LISTS:
                found = max(found, _nested(fields.children()))
            else:
                fields.skip(kind)
        return found
    except (IndexError, RecursionError) as error:
        raise OSError("its footer is damaged") from error


def _nested(children: Iterable[int]) -> int:
    """Return the most levels of columns that are listed with their numbers of columns, outer ones first."""
    left, deepest = list[int](), 0
    for count in children:
        deepest = max(deepest, len(left))
        if left:
            left[-1] -= 1
        if count > 0:
            left.append(count)
        while left and left[-1] == 0:
            left.pop()
    return deepest


class _Thrift:
    """Walks through values of Thrift's compact protocol."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def _byte(self) -> int:
        self._at += 1
        return self._data[self._at - 1]

    def _number(self) -> int:
        value = shift = 0
        while (byte := self._byte()) >= 0x80:
            value |= (byte & 0x7F) << shift
            shift += 7
            if shift > 63:
                raise IndexError(shift)
        return value | byte << shift

    def struct(self) -> Iterable[tuple[int, int]]:
        """Yield the number and type of each field; the caller reads or skips its value."""
        number = 0
        while head := self._byte():
            step = head >> 4
            number = number + step if step else self._signed()
            yield number, head & 15

    def _signed(self) -> int:
        value = self._number()
        return value >> 1 ^ -(value & 1)

    def _list(self) -> tuple[int, int]:
        """Return the length of a list and the type of its entries."""
        head = self._byte()
        return (head >> 4 if head >> 4 < 15 else self._number()), head & 15

    def children(self) -> Iterable[int]:
        """Yield, for each entry of a schema, its number of columns."""
        length, kind = self._list()
        if length > MAX_LIST:
            raise IndexError(length)
        for _ in range(length):
            found = 0
            for number, inner in self.struct() if kind == STRUCT else ():
                if number == CHILDREN and 4 <= inner <= 6:
                    found = self._signed()
                else:
                    self.skip(inner)
            yield found

    def skip(self, kind: int, *, in_list: bool = False) -> None:
        """Pass over a value. A true or false of a list has a byte, one of a struct has none."""
        if kind in (1, 2, BYTE):
            self._at += 1 if in_list or kind == BYTE else 0
        elif 4 <= kind <= 6:
            self._number()
        elif kind in (DOUBLE, BINARY):
            length = 8 if kind == DOUBLE else self._number()
            self._at += length
        elif kind in LISTS:
            length, inner = self._list()
            self._skip_all(length, (inner,))
        elif kind == MAP:
            length = self._number()
            kinds = self._byte() if length else 0
            self._skip_all(length, (kinds >> 4, kinds & 15))
        elif kind == STRUCT:
            for _, inner in self.struct():
                self.skip(inner)
        else:
            raise IndexError(kind)

    def _skip_all(self, length: int, kinds: tuple[int, ...]) -> None:
        for _ in range(length):
            for kind in kinds:
                self.skip(kind, in_list=True)
            if self._at > len(self._data):
                raise IndexError(self._at)
