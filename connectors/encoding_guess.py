"""The encoding of text files that are not UTF-8, told from their bytes, for ``rowsieve init``."""

from __future__ import annotations

import codecs
import re
import sys
from typing import Any

from connectors.base import Connector, SourceSpec
from connectors.files import find_names
from connectors.text_encoding import MARKS, UTF8, UTF16
from connectors.text_source import BLOCK_BYTES, text_blocks

HEAD_BYTES = 2**16
"""Bytes at the start of a file that tell UTF-16 without a mark."""
WORD = re.compile(r"\w*[^\W\x00-\x7f]\w*")


def guess_encoding(spec: SourceSpec, kind: type[Connector[Any]]) -> tuple[str, str]:
    """Return the encoding of text files, and the reason for it; ``utf-8`` and no reason for UTF-8.

    All bytes are read up to the first that is not UTF-8. Encodings of one byte a character cannot be told
    from each other: ``cp1252`` is proposed, which has all printable characters of Latin-1, or ``latin-1``
    where a byte stands for no character of it.

    Raises
    ------
    ConnectorError
        A file cannot be read.

    """
    for path in find_names(spec, kind):
        start = b"".join(text_blocks(spec, path, 0, HEAD_BYTES, HEAD_BYTES))
        if start[:2] in (MARKS["utf-16-le"], MARKS["utf-16-be"]):
            return UTF16, "the file begins with its byte order mark"
        zeros = start[1::2].count(0), start[::2].count(0)
        if max(zeros) > len(start) / 4:
            name = "utf-16-le" if zeros[0] > zeros[1] else "utf-16-be"
            return name, "every other byte is zero"
        block = _first_other_block(spec, path)
        if block:
            return _one_byte(block)
    return UTF8, ""


def _first_other_block(spec: SourceSpec, path: str) -> bytes:
    """Return the first block of a file with bytes that are not UTF-8; empty if there is none."""
    decoder = codecs.getincrementaldecoder(UTF8)()
    block = b""
    for block in text_blocks(spec, path, 0, sys.maxsize, BLOCK_BYTES):
        pending = decoder.getstate()[0]
        if not pending and block.isascii():
            continue
        try:
            decoder.decode(block)
        except UnicodeDecodeError:
            return bytes(pending) + block
    try:
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return block
    return b""


def _one_byte(block: bytes) -> tuple[str, str]:
    name = "cp1252"
    try:
        text = block.decode(name)
    except UnicodeDecodeError:
        name, text = "latin-1", block.decode("latin-1")
    found = WORD.search(text)
    shown = f", in which it reads {found[0][:24]!r}" if found else ""
    return name, f"the file is not UTF-8; a guess{shown}: correct it where that is wrong"
