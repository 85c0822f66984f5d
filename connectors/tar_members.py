"""A reader of tars (POSIX ustar and pax, GNU) that takes time and memory in proportion to the bytes it gets.

Python's ``tarfile`` does not: for a member that states 10^18 bytes it loops for years behind the end of the
stream, its patterns for pax headers take the square of their length (CVE-2024-6232), and it follows extended
headers by recursion.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

BLOCK = 512
"""Bytes of a block: members are padded to whole blocks."""
MAX_EXTENDED = 2**20
"""Bytes of an extended header, which holds a long name or attributes."""
MAX_DIGITS = 20
"""Digits of a number in a pax header."""
CHUNK = 2**20
"""Bytes that are passed over at once."""
FILES, FOLDER, SPARSE = (b"0", b"\0", b"7"), b"5", b"S"
LONG_NAME, LONG_LINK, PAX, GLOBAL = b"L", b"K", (b"x", b"X"), b"g"
"""Types of members; extended headers stand before the member that they describe."""
SPARSE_KEYS = b"GNU.sparse."


class TarError(ValueError):
    """A tar is damaged or forged, or has what is not read. The message is a clause without a full stop."""


@dataclass(frozen=True)
class Member:
    """A file in a tar. Its first header begins at byte ``start``, the next member's at ``stop``."""

    name: str
    start: int
    stop: int
    data: bytes = b""


class NotAFileError(Exception):
    """A member, named by the message, is a link or a device."""


@dataclass
class _Described:
    """Facts of extended headers about the next member."""

    start: int
    name: bytes | None = None
    size: int | None = None
    sparse: bool = False


def tar_members(stream: Any, *, with_data: bool) -> Iterator[Member]:
    """Yield the files of a tar that is read from its beginning; folders are passed over.

    Parameters
    ----------
    stream : has ``read(n_bytes)``, which may return fewer.
    with_data : whether members have their content.

    Raises
    ------
    TarError
        The tar is cut off or damaged, or has sparse files or names that are not UTF-8.
    NotAFileError
        A member is a link or a device.
    """
    tar, described = _Blocks(stream), None
    while header := tar.header():
        start = tar.at - BLOCK
        kind, size = header[156:157], _number(header[124:136])
        if kind in (LONG_NAME, LONG_LINK, *PAX, GLOBAL):
            described = _extended(tar, kind, size, described, start)
            continue
        described = described or _Described(start)
        size = size if described.size is None else described.size
        name = _name(header, kind, described.name)
        if kind == SPARSE or described.sparse:  # a few bytes may stand for any size
            raise TarError(f"{name} is a sparse file")
        if kind in FILES and not (kind == b"\0" and name.endswith("/")):
            data = tar.take(size, name) if with_data else tar.skip(size, name)
            yield Member(name, described.start, tar.at, data)
        elif kind not in (FOLDER, b"\0"):
            raise NotAFileError(name)
        described = None
    if described is not None:
        raise TarError("it ends after an extended header")


class _Blocks:
    """The blocks of a stream, with their place."""

    def __init__(self, stream: Any) -> None:
        self._stream, self.at = stream, 0

    def _read(self, n_bytes: int) -> bytes:
        """Return so many bytes, or those until the end."""
        pieces, missing = list[bytes](), n_bytes
        while missing and (piece := self._stream.read(min(missing, CHUNK))):
            pieces.append(bytes(piece))
            missing -= len(piece)
        self.at += n_bytes - missing
        return b"".join(pieces)

    def header(self) -> bytes:
        """Return the next header; nothing at the end of the tar. Raises TarError for a damaged one."""
        found = self._read(BLOCK)
        if not found.strip(b"\0"):
            return b""
        if len(found) < BLOCK:
            raise TarError("a header is cut off")
        without = found[:148] + b" " * 8 + found[156:]
        signed = sum(without) - 256 * sum(byte > 127 for byte in without)
        if _number(found[148:156]) not in (sum(without), signed):
            raise TarError("a header has the wrong checksum")
        return found

    def take(self, size: int, name: str) -> bytes:
        """Return the content of a member, and pass over its padding."""
        found = self._read(size)
        if len(found) < size or len(self._read(-size % BLOCK)) < -size % BLOCK:
            raise TarError(f"it ends within {name}")
        return found

    def skip(self, size: int, name: str) -> bytes:
        """Pass over the content of a member and its padding, and return nothing."""
        stop = self.at + size + -size % BLOCK
        while self.at < stop:
            if not self._read(min(stop - self.at, CHUNK)):
                raise TarError(f"it ends within {name}")
        return b""


def _extended(tar: _Blocks, kind: bytes, size: int, before: _Described | None, start: int) -> Any:
    """Return what is known about the next member after an extended header."""
    if size > MAX_EXTENDED:
        raise TarError(f"an extended header states {size:,} bytes, and {MAX_EXTENDED:,} are read")
    data = tar.take(size, "an extended header")
    if kind == GLOBAL:
        if _records(data).keys() & {b"path", b"size"}:
            raise TarError("a global header gives all members one name or size")
        return before
    found = before or _Described(start)
    if kind == LONG_NAME:
        found.name = data.partition(b"\0")[0]
    elif kind in PAX:
        records = _records(data)
        found.name = records.get(b"path", found.name)
        found.size = _decimal(records[b"size"]) if b"size" in records else found.size
        found.sparse |= any(key.startswith(SPARSE_KEYS) for key in records)
    return found


def _records(data: bytes) -> dict[bytes, bytes]:
    """Return the records of a pax header: a length in decimal digits, a blank, ``key=value``, a line end."""
    found, at = dict[bytes, bytes](), 0
    while at < len(data) and data[at]:
        length, blank, _ = data[at : at + MAX_DIGITS + 1].partition(b" ")
        end = at + _decimal(length)
        key, equals, value = data[at + len(length) + 1 : end - 1].partition(b"=")
        if not (blank and equals) or end > len(data):
            raise TarError("a pax header is damaged")
        found[key], at = value, end
    return found


def _decimal(text: bytes) -> int:
    if not text.isdigit() or len(text) > MAX_DIGITS:
        raise TarError("a number of a pax header is none")
    return int(text)


def _number(field: bytes) -> int:
    """Return a number of a header: octal digits, or a large one in binary."""
    if field[0] == 0o200:
        return int.from_bytes(field[1:], "big")
    digits = field.partition(b"\0")[0].strip() or b"0"
    if not digits.isdigit() or b"8" in digits or b"9" in digits:
        raise TarError("a number of a header is none")
    return int(digits, 8)


def _name(header: bytes, kind: bytes, given: bytes | None) -> str:
    name = header[:100].partition(b"\0")[0] if given is None else given
    prefix = header[345:500].partition(b"\0")[0]
    if prefix and given is None and kind != SPARSE:
        name = prefix + b"/" + name
    try:
        return name.decode()
    except UnicodeDecodeError:
        shown = name.decode("utf-8", "surrogateescape")
        raise TarError(f"the name {shown!a} is not UTF-8") from None
