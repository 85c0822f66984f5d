"""Guesses the encoding of text files that are not UTF-8 from their bytes, for ``rowsieve init``."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from typing import Any

from connectors.base import Connector, ConnectorError, SourceSpec
from connectors.files import find_names
from connectors.packed_text import BLOCK_BYTES, text_blocks
from connectors.text_encoding import MARKS, STRAY_UTF8, UTF8, UTF16

HEAD_BYTES = 2**16
"""Bytes at the start of a file by which UTF-16 without a byte order mark is recognised."""
MAX_HELD_BYTES = 2**26
"""Bytes of a line that are decoded together."""
WORD = re.compile(r"\w*[^\W\x00-\x7f]\w*")


def guess_encoding(spec: SourceSpec, kind: type[Connector[Any]]) -> tuple[str, str]:
    """Return the encoding of text files, and the reason for it; ``utf-8`` and no reason for UTF-8.

    All bytes are read, unless files mix UTF-8 with another encoding. Encodings of one byte per character
    cannot be distinguished: ``cp1252`` is proposed, which has all printable characters of Latin-1, or
    ``latin-1`` if a byte is undefined in cp1252.

    Raises
    ------
    ConnectorError
        A file cannot be read, or some text is UTF-8 and some is not.
    """
    utf8, other = "", ("", b"")
    for path in find_names(spec, kind):
        start = b"".join(text_blocks(spec, path, 0, HEAD_BYTES, HEAD_BYTES))
        if start[:2] in (MARKS["utf-16-le"], MARKS["utf-16-be"]):
            return UTF16, "the file begins with its byte order mark"
        zeros = start[1::2].count(0), start[::2].count(0)
        if max(zeros) > len(start) / 4:
            name = "utf-16-le" if zeros[0] > zeros[1] else "utf-16-be"
            return name, "every other byte is zero"
        letters, foreign = _inspect_file(spec, path)
        utf8 = utf8 or letters
        other = other if other[0] else foreign
        if utf8 and other[0]:
            raise ConnectorError(
                f"The files mix encodings: {utf8} is UTF-8, {other[0]} is not. No one encoding reads both: "
                f"write the file that is not UTF-8 again, for example with: iconv -f cp1252 -t utf-8 (give "
                f"the encoding it was written in)."
            )
    return _one_byte(other[1]) if other[0] else (UTF8, "")


def _inspect_file(spec: SourceSpec, path: str) -> tuple[str, tuple[str, bytes]]:
    """Return the first place with letters in UTF-8, and the first that is not UTF-8 with text around it.

    A place is a phrase for a message, empty if there is none. The whole file is read unless it has both.
    """
    utf8, other, offset, line, rest = "", ("", b""), 0, 1, b""
    blocks = text_blocks(spec, path, 0, sys.maxsize, BLOCK_BYTES)
    for block, is_last in _with_last(blocks):
        whole = rest + block
        end = len(whole) if is_last or len(whole) > MAX_HELD_BYTES else _last_line_end(whole)
        data, rest = whole[:end], whole[end:]
        if not data.isascii():
            found = None if utf8 else STRAY_UTF8.search(data)
            if found is not None:
                place = line + data.count(b"\n", 0, found.start())
                utf8 = f"{path}, line {place} ({found[0][:24].decode(UTF8, 'ignore')!r}),"
            bad = -1 if other[0] else _first_bad(data)
            if bad >= 0:
                place = line + data.count(b"\n", 0, bad)
                other = f"{path}, line {place}, byte {offset + bad}", data
            if utf8 and other[0]:
                break
        offset += len(data)
        line += data.count(b"\n")
    return utf8, other


def _last_line_end(data: bytes) -> int:
    return max(data.rfind(b"\n"), data.rfind(b"\r")) + 1


def _with_last(blocks: Iterator[bytes]) -> Iterator[tuple[bytes, bool]]:
    """Yield each block, and whether it is the last."""
    held = next(blocks, b"")
    for block in blocks:
        yield held, False
        held = block
    yield held, True


def _first_bad(data: bytes) -> int:
    """Return the offset of the first byte that is not UTF-8; -1 if all are."""
    try:
        data.decode(UTF8)
    except UnicodeDecodeError as error:
        return error.start
    return -1


def _one_byte(block: bytes) -> tuple[str, str]:
    name = "cp1252"
    try:
        text = block.decode(name)
    except UnicodeDecodeError:
        name, text = "latin-1", block.decode("latin-1")
    found = WORD.search(text)
    shown = f", in which it reads {found[0][:24]!r}" if found else ""
    return name, f"the file is not UTF-8; a guess{shown}: correct it where that is wrong"
