"""Avro files taken apart and put together again, for tests of forged ones."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

MAGIC, SYNC_SIZE = b"Obj\x01", 16


def number(value: int) -> bytes:
    """Return Avro's bytes of a whole number."""
    left, found = (value << 1) ^ (value >> 63), b""
    while left >= 0x80:
        found += bytes([left & 0x7F | 0x80])
        left >>= 7
    return found + bytes([left])


def text(value: bytes) -> bytes:
    """Return Avro's bytes of a text."""
    return number(len(value)) + value


@dataclass(frozen=True)
class AvroText:
    """An Avro file of one block, unpacked."""

    meta: dict[bytes, bytes]
    count: int
    data: bytes

    @property
    def schema(self) -> dict[str, Any]:
        """The schema in the header."""
        found: dict[str, Any] = json.loads(self.meta[b"avro.schema"])
        return found

    def with_schema(self, schema: object) -> AvroText:
        """Return the file with another schema in its header."""
        return replace(self, meta=self.meta | {b"avro.schema": json.dumps(schema).encode()})

    def to_bytes(self, packed: bytes | None = None) -> bytes:
        """Return the whole file; ``packed`` stands for the compressed block."""
        if packed is None:
            packer = zlib.compressobj(9, zlib.DEFLATED, -15)
            packed = packer.compress(self.data) + packer.flush()
        meta = {**self.meta, b"avro.codec": b"deflate"}
        head = MAGIC + number(len(meta)) + b"".join(text(key) + text(value) for key, value in meta.items())
        sync = bytes(SYNC_SIZE)
        return head + number(0) + sync + number(self.count) + text(packed) + sync


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, len(MAGIC)

    def number(self) -> int:
        value = shift = 0
        while True:
            sign = self.data[self.at]
            self.at += 1
            value |= (sign & 0x7F) << shift
            shift += 7
            if sign < 0x80:
                return (value >> 1) ^ -(value & 1)

    def text(self) -> bytes:
        length = self.number()
        self.at += length
        return self.data[self.at - length : self.at]


def take_apart(data: bytes) -> AvroText:
    """Return the parts of a file of one block that pyiceberg wrote."""
    reader, meta = _Reader(data), {}
    while count := reader.number():
        for _ in range(count):
            key = reader.text()
            meta[key] = reader.text()
    reader.at += SYNC_SIZE
    records, packed = reader.number(), reader.text()
    unpacked = zlib.decompress(packed, -15) if meta[b"avro.codec"] == b"deflate" else packed
    return AvroText(meta, records, unpacked)


def forge(file: Path, change: Callable[[AvroText], AvroText | bytes]) -> None:
    """Replace a file by what ``change`` makes of its parts."""
    found = change(take_apart(file.read_bytes()))
    file.write_bytes(found if isinstance(found, bytes) else found.to_bytes())
