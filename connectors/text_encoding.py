"""Encodings of text files (``source.encoding``): rows are cut in the stored bytes and read as UTF-8.

Row ends, quotes and separators are ASCII characters. In UTF-8, in encodings of one byte a character, and in
the listed ones of several bytes, a byte below 0x30 is always such a character, so that files are cut without
decoding them. In UTF-16 a code unit has two bytes, which are looked at as one.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module

import numpy as np

UTF8 = "utf-8"
UTF16 = "utf-16"
MARKS = {UTF8: codecs.BOM_UTF8, "utf-16-le": codecs.BOM_UTF16_LE, "utf-16-be": codecs.BOM_UTF16_BE}
"""Encoding -> the byte order mark that a file of it may begin with."""
WIDE = frozenset(
    [
        "gb2312",
        "gbk",
        "gb18030",
        "big5",
        "big5hkscs",
        "cp950",
        "shift_jis",
        "cp932",
        "euc_jp",
        "euc_kr",
        "cp949",
    ]
)
"""Encodings of one to four bytes a character whose further bytes are 0x30 or more, as Python names them."""
WESTERN = frozenset(["cp1252", "iso8859-1", "iso8859-15"])
"""Encodings in which almost any bytes are text, so that UTF-8 read as one of them gives wrong letters."""
_QUOTES = rb"\x80\x85\x91-\x97\x99\xa0\xab\xb0\xbb"
"""Bytes of cp1252 that may follow a capital letter: quotation marks, dashes, dots, spaces, degrees."""
_UTF8_LETTERS = (
    rb"(?:\xc3[\x80-\xbf]|\xe2\x80[\x90-\xaf]|\xe2\x82\xac)*"
    rb"(?:\xc3(?![" + _QUOTES + rb"])[\x80-\xbf]|\xe2\x80[\x90-\xaf]|\xe2\x82\xac)"
    rb"(?:\xc3[\x80-\xbf]|\xe2\x80[\x90-\xaf]|\xe2\x82\xac)*"
    rb"|(?:[\xce\xcf][\x80-\xbf]){2,}|(?:[\xd0\xd1][\x80-\xbf]){2,}|(?:[\xe3-\xe9][\x80-\xbf]{2}){2,}"
)
STRAY_UTF8 = re.compile(rb"(?<=[\x00-\x7f])(?:" + _UTF8_LETTERS + rb")(?=[\x00-\x7f])")
"""Letters and marks in UTF-8 between ASCII characters, which no text in a Western encoding of one byte a
character holds: an accented letter, a typographic mark, or Greek, Cyrillic, Chinese or Japanese letters."""
OTHER = 0x80
"""Stands for a code unit that is not an ASCII character."""


class UnknownEncodingError(ValueError):
    """Raised for an encoding that does not exist, or whose files cannot be cut into rows."""


@dataclass(frozen=True)
class Encoding:
    """An encoding of text files.

    Attributes
    ----------
    name : its name, as Python's codecs have it.
    unit : bytes of a code unit: 2 for UTF-16, else 1.
    """

    name: str = UTF8

    @property
    def unit(self) -> int:
        """Bytes of a code unit."""
        return 2 if self.name.startswith(UTF16) else 1

    @property
    def mark(self) -> bytes:
        """The byte order mark that files may begin with; empty if there is none."""
        return MARKS.get(self.name, b"")

    def units(self, data: bytes) -> bytes:
        """Return one byte for each code unit, which is the character where that is an ASCII character."""
        if self.unit == 1:
            return data
        kind = np.dtype("<u2" if self.name == "utf-16-le" else ">u2")
        units = np.frombuffer(data, kind, count=len(data) // 2)
        return np.where(units < OTHER, units, OTHER).astype(np.uint8).tobytes()

    def stray_utf8(self, data: bytes) -> int | None:
        """Return where text of a Western encoding holds letters in UTF-8 instead; None if nowhere."""
        if self.name not in WESTERN or data.isascii():
            return None
        found = STRAY_UTF8.search(data)
        return None if found is None else found.start()

    def whole_units(self, blocks: Iterable[bytes]) -> Iterator[bytes]:
        """Yield the same bytes in blocks of whole code units; an odd last byte is left in the last block."""
        if self.unit == 1:
            yield from blocks
            return
        rest = b""
        for block in blocks:
            data = rest + block
            cut = len(data) - len(data) % self.unit
            rest = data[cut:]
            yield data[:cut]
        if rest:
            yield rest

    def utf8(self, data: bytes) -> bytes:
        """Return text that is stored in this encoding as UTF-8. Raises UnicodeDecodeError."""
        return data if self.name == UTF8 else data.decode(self.name).encode()

    def stored_length(self, data: bytes) -> int:
        """Return how many bytes a text, given as UTF-8, has in this encoding."""
        return len(data) if self.name == UTF8 else len(data.decode().encode(self.name))


def find_encoding(name: str) -> str:
    """Return Python's name of an encoding that files can be read in.

    Raises
    ------
    UnknownEncodingError
        Python knows no such encoding, or rows cannot be found in it without decoding the file from its start.
    """
    try:
        found = codecs.lookup(name)
    except (LookupError, ValueError):
        found = None
    plain = found.name if found is not None else ""
    if plain == "utf-8-sig":
        return UTF8
    if plain in (UTF8, UTF16, *MARKS, *WIDE) or (found is not None and _has_one_byte(plain)):
        return plain
    why = "rows cannot be found in it" if found is not None else "there is no such encoding"
    raise UnknownEncodingError(
        f"{name!r}: {why}. Readable are utf-8, utf-16, encodings of one byte a character such as latin-1 "
        f"and cp1252, and {', '.join(sorted(WIDE))}. Convert other files, for example with: iconv -f FROM -t "
        f"utf-8."
    )


def _has_one_byte(name: str) -> bool:
    """Return whether every byte is a character of its own or none, and the first 128 are those of ASCII."""
    if name in ("ascii", "iso8859-1"):
        return True
    with suppress(ImportError):
        module = import_module(f"encodings.{name.replace('-', '_')}")
        table = getattr(module, "decoding_table", None)  # of codecs of one byte a character
        return table is not None and table[:128] == bytes(range(128)).decode("ascii")
    return False


def keeping_mark(data: bytes) -> bytes:
    """Return rows such that Arrow's readers, which drop one mark, leave one with which the first row begins.

    The mark of a file is dropped before. A later one is the character U+FEFF, wherever a shard begins.
    """
    return MARKS[UTF8] + data if data.startswith(MARKS[UTF8]) else data
