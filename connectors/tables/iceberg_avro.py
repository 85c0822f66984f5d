"""Avro files of Iceberg tables, which are manifests and lists of them, read within bounds.

pyiceberg's compiled decoder follows the lengths that a file states: a forged one makes it read memory beyond
the file, or ends the process. It also unpacks whole blocks, and makes as many objects as a file states.
:mod:`connectors.tables.iceberg_bounds` puts the classes of this module in the place of pyiceberg's.
"""

from __future__ import annotations

import bz2
import io
import zlib
from typing import Any, TypeVar

import zstandard
from pyiceberg.avro import file as avro_file
from pyiceberg.avro.decoder import BinaryDecoder
from pyiceberg.typedef import StructProtocol

from connectors.foundation.json_text import parse_json_text
from connectors.tables.common import MetadataError

MAX_FILE_BYTES = 256 * 2**20
"""Bytes of a manifest, as stored and unpacked."""
SPARE_ENTRIES, BYTES_PER_ENTRY = 10_000, 8
"""Entries that any manifest may have, and fewest bytes for each one beyond: the names of files alone, which
hold 16 random bytes, take more. An entry takes kilobytes of memory, however small the file is."""
MAX_SCHEMA_BYTES = 2**20
MAX_INT_BYTES = 10
"""Bytes of a number of 64 bits."""
DAMAGE = (
    ArithmeticError,
    AttributeError,
    EOFError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
    zlib.error,
    zstandard.ZstdError,
)
"""Errors of pyiceberg's readers, and of codecs, for bytes that are not what they expect."""
D = TypeVar("D", bound=StructProtocol)


class CheckedDecoder(BinaryDecoder):
    """Decodes the bytes of a file. Raises EOFError for what is not within them, ValueError for no number."""

    __slots__ = ("_at", "_data", "_size")

    def __init__(self, data: bytes) -> None:
        self._data, self._at, self._size = data, 0, len(data)

    @property
    def ended(self) -> bool:
        """Whether all bytes have been read."""
        return self._at == self._size

    def tell(self) -> int:
        """Return the number of bytes that have been read."""
        return self._at

    def skip(self, n: int) -> None:
        """Pass over ``n`` bytes."""
        if n < 0:
            raise ValueError(f"it states a length of {n}")
        if n > self._size - self._at:
            raise EOFError("it states a length beyond its end")
        self._at += n

    def read(self, n: int) -> bytes:
        """Return the next ``n`` bytes."""
        start = self._at
        self.skip(n)
        return self._data[start : self._at]

    def read_int(self) -> int:
        """Return a number, which takes one byte where it is small."""
        if self._at >= self._size:
            raise EOFError("it ends within a value")
        value = self._data[self._at]
        if value < 0x80:
            self._at += 1
        else:
            value, self._at = _long(self._data, self._at)
        return (value >> 1) ^ -(value & 1)

    def read_ints(self, n: int) -> tuple[int, ...]:
        """Return ``n`` numbers."""
        self._check_count(n)
        return tuple(self.read_int() for _ in range(n))

    def read_int_bytes_dict(self, n: int, dest: dict[int, bytes]) -> None:
        """Add ``n`` pairs of a number and bytes to ``dest``."""
        self._check_count(n)
        for _ in range(n):
            key = self.read_int()
            dest[key] = self.read(self.read_int())

    def read_bytes(self) -> bytes:
        """Return bytes, whose length comes before them."""
        return self.read(self.read_int())

    def skip_int(self) -> None:
        """Pass over a number."""
        self.read_int()

    def _check_count(self, n: int) -> None:
        if not 0 <= n <= self._size - self._at:  # every item takes a byte
            raise EOFError(f"it states {n:,} items, which are more than its bytes")


def _long(data: bytes, at: int) -> tuple[int, int]:
    """Return the number of seven bits a byte that begins at a place, and the place after it."""
    value = 0
    for i, sign in enumerate(data[at : at + MAX_INT_BYTES]):
        value |= (sign & 0x7F) << (7 * i)
        if sign < 0x80:
            return value, at + i + 1
    raise ValueError("it holds a number without an end")


class BoundedAvroFile(avro_file.AvroFile[D]):
    """An Avro file of bounded size and number of entries. Raises ConnectorError for another one.

    A block that is cut off, which pyiceberg takes for the end of the file, is an error too.
    """

    decoder: CheckedDecoder

    def __enter__(self) -> BoundedAvroFile[D]:
        """Read the file and its header."""
        size = len(self.input_file)
        if size > MAX_FILE_BYTES:
            raise self._too_large(f"has {size:,} bytes")
        self._left, self._entries = MAX_FILE_BYTES, 0
        self._most_entries = SPARE_ENTRIES + size // BYTES_PER_ENTRY
        try:
            super().__enter__()
        except DAMAGE as error:
            raise self._damaged(error) from error
        return self

    def _read_header(self) -> Any:
        header = super()._read_header()
        if header.magic != avro_file.MAGIC:
            raise ValueError("it does not begin as an Avro file")
        schema = header.meta.get("avro.schema", "")
        if len(schema) > MAX_SCHEMA_BYTES:
            raise ValueError(f"its schema has more than {MAX_SCHEMA_BYTES:,} bytes")
        if _has_empty_items(parse_json_text(schema)):
            raise ValueError("its schema has a list of items that take no bytes")
        return header

    def __next__(self) -> D:
        """Return the next entry."""
        try:
            found: D = super().__next__()
        except DAMAGE as error:
            raise self._damaged(error) from error
        return found

    def _read_block(self) -> int:
        """Open the next block that has entries. Raises EOFError at the end, by which pyiceberg knows it."""
        try:
            while self._has_block():
                if count := self._open_block():
                    return count
        except EOFError as error:
            raise ValueError(str(error)) from error
        raise EOFError

    def _has_block(self) -> bool:
        if self.block and self.decoder.read(avro_file.SYNC_SIZE) != self.header.sync:
            raise ValueError("a block does not end with its mark")
        return not self.decoder.ended

    def _open_block(self) -> int:
        count = self.decoder.read_int()
        data = unpack(self.header.meta.get("avro.codec", "null"), self.decoder.read_bytes(), self._left)
        self._left -= len(data)
        self._entries += count
        if count < 0:
            raise ValueError(f"it states {count} entries")
        if self._left < 0:
            raise self._too_large("unpacks to more")
        if self._entries > self._most_entries:
            raise MetadataError(
                f"{self.input_file.location}, a manifest, states {self._entries:,} entries in "
                f"{len(self.input_file):,} bytes, which no list of files can have: in memory they would take "
                f"gigabytes. Rewrite the manifests of the table."
            )
        self.block = avro_file.Block(self.reader, count, CheckedDecoder(data))
        return count

    def _too_large(self, what: str) -> MetadataError:
        return MetadataError(
            f"{self.input_file.location}, a manifest, {what}, and {MAX_FILE_BYTES:,} bytes are read: it "
            f"would be held in memory. Rewrite the manifests of the table."
        )

    def _damaged(self, error: Exception) -> MetadataError:
        text = " ".join(str(error).split())[:300].rstrip(". ")
        return MetadataError(
            f"{self.input_file.location} is not a manifest of Iceberg, or a damaged one: "
            f"{text or type(error).__name__}. Restore it, or name an earlier snapshot."
        )


def unpack(codec: str, packed: bytes, limit: int) -> bytes:
    """Return the bytes of a block, or the first ``limit + 1``. Raises an error of ``DAMAGE`` otherwise."""
    if codec == "deflate":
        inflater = zlib.decompressobj(-15)
        data = inflater.decompress(packed, limit + 1)
        if not inflater.eof and len(data) <= limit:
            raise ValueError("a compressed block is cut off")
        return data
    if codec == "zstandard":
        with zstandard.ZstdDecompressor().stream_reader(io.BytesIO(packed)) as stream:
            return bytes(stream.read(limit + 1))
    if codec == "bzip2":
        try:
            return bz2.BZ2Decompressor().decompress(packed, limit + 1)
        except OSError as error:
            raise ValueError(str(error)) from error
    if codec != "null":
        raise ValueError(f"blocks are compressed by {codec!r}, which is not read here; write them with gzip")
    return packed


def _has_empty_items(schema: Any) -> bool:
    """Return whether a schema has a list or map whose items take no bytes: any number may be stated."""
    if isinstance(schema, list):
        return any(map(_has_empty_items, schema))
    if not isinstance(schema, dict):
        return False
    items = [schema[key] for key in ("items", "values") if key in schema]
    return any(map(_is_empty, items)) or any(map(_has_empty_items, schema.values()))


def _is_empty(kind: Any) -> bool:
    if not isinstance(kind, dict):
        return bool(kind == "null")
    if kind.get("type") == "record":
        return all(_is_empty(field.get("type")) for field in kind.get("fields", ()))
    if kind.get("type") == "fixed":
        return not kind.get("size")
    return _is_empty(kind.get("type"))
