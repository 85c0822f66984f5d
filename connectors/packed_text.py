"""Text files as bytes, unpacked where they are compressed; packed copies beside a file are refused."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress

import pyarrow as pa

from connectors.base import ConnectorError, CorruptError, SourceSpec
from connectors.files import reading, resolve
from connectors.locations import path_of

BLOCK_BYTES = 4 * 2**20
"""Bytes of text that are read or compared at a time."""
UNPACKED_BYTES, MAX_RATIO = 2**28, 250
"""Bytes that any compressed file may unpack to, and the multiple of its size that a larger one may."""
CODECS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}


def compression(path: str) -> str | None:
    """Return the name of the codec that a file's ending stands for."""
    return CODECS.get(os.path.splitext(path_of(path))[1].lower())


def file_size(spec: SourceSpec, path: str) -> int:
    """Return the bytes on disk. Raises ConnectorError."""
    filesystem, where = resolve(path, spec.root, spec.policy)
    with reading(path), filesystem.open_input_file(where) as file:
        return int(file.size())


def text_blocks(spec: SourceSpec, path: str, start: int, stop: int, size: int) -> Iterator[bytes]:
    """Return the bytes ``start`` to ``stop`` (or the end) of the text, in blocks of up to ``size``.

    What lies before ``start`` in a compressed file is unpacked and dropped. Raises ConnectorError, also for a
    compressed file that unpacks to more than ``MAX_RATIO`` times its size.
    """
    filesystem, where = resolve(path, spec.root, spec.policy)
    codec = compression(path)
    with reading(path), filesystem.open_input_file(where) as file:
        if codec is None:
            stop = min(stop, file.size())
            for offset in range(start, stop, size):
                yield bytes(file.read_at(min(size, stop - offset), offset))
            return
        stream = pa.CompressedInputStream(file, codec)
        _skip(path, stream, start, size)
        most = max(UNPACKED_BYTES, MAX_RATIO * file.size())
        while start < stop and (block := _unpacked(path, stream, min(size, stop - start))):
            start += len(block)
            if start > most:
                raise ConnectorError(
                    f"{path} unpacks to more than {MAX_RATIO} times its {file.size():,} bytes, as files do "
                    f"that are made to fill a disk or a memory. If it is what it should be, unpack it, and "
                    f"name the unpacked file."
                )
            yield block


def check_no_copies(spec: SourceSpec, paths: Sequence[str]) -> None:
    """Raise ConnectorError where a packed file repeats the file beside it of that name.

    One of them may have grown since: it then begins with all rows of the other.
    """
    known = frozenset(paths)
    for path in paths:
        bare = os.path.splitext(path)[0] if compression(path) else ""
        if bare not in known:
            continue
        with suppress(CorruptError):  # reading the file reports it
            if _repeats_rows(spec, bare, path):
                raise ConnectorError(
                    f"{path} is the packed copy of {bare}, so that every row would count twice. Remove one, "
                    f"or narrow source.path."
                )


def _repeats_rows(spec: SourceSpec, bare: str, packed: str) -> bool:
    """Return whether the text of one file is that of the other, or its beginning, and more than a header."""
    n_lines = 0
    both = [text_blocks(spec, path, 0, sys.maxsize, BLOCK_BYTES) for path in (bare, packed)]
    for one, other in zip(*map(_even_blocks, both), strict=False):
        shared = min(len(one), len(other))
        if one[:shared] != other[:shared]:
            return False
        n_lines += one.count(b"\n", 0, shared)
    return n_lines > 1


def _even_blocks(blocks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the same bytes in blocks of ``BLOCK_BYTES``; only the last may be shorter."""
    held = b""
    for block in blocks:
        held += block
        while len(held) >= BLOCK_BYTES:
            yield held[:BLOCK_BYTES]
            held = held[BLOCK_BYTES:]
    yield held


def first_run(spec: SourceSpec, path: str, offset: int) -> bytes:
    """Return the bytes from ``offset`` to the next ASCII character, at most 60. Raises ConnectorError."""
    data = b"".join(text_blocks(spec, path, offset, offset + 60, 60))
    return data[: next((place for place, byte in enumerate(data) if byte < 0x80), len(data))]


def _skip(path: str, stream: pa.NativeFile, n_bytes: int, size: int) -> None:
    while n_bytes > 0 and (block := _unpacked(path, stream, min(size, n_bytes))):
        n_bytes -= len(block)


def _unpacked(path: str, stream: pa.NativeFile, size: int) -> bytes:
    try:
        return bytes(stream.read(size))
    except (OSError, pa.ArrowException) as error:
        raise CorruptError(
            f"{path} cannot be unpacked: {str(error).splitlines()[0].rstrip('. ')}. It may have been cut off "
            f"while written or copied, or not be compressed as its name says: write or copy it again."
        ) from error
