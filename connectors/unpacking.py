"""Bytes of a text file, unpacked on the way where its name says that it is compressed."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pyarrow as pa

from connectors.base import CorruptError, SourceSpec
from connectors.names import path_of
from connectors.paths import reading, resolve

CODECS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}


def compression(path: str) -> str | None:
    """Name of the codec that a file's ending stands for."""
    return CODECS.get(os.path.splitext(path_of(path))[1].lower())


def file_size(spec: SourceSpec, path: str) -> int:
    """Bytes on disk. Raises ConnectorError."""
    filesystem, where = resolve(path, spec.root)
    with reading(path), filesystem.open_input_file(where) as file:
        return int(file.size())


def text_blocks(spec: SourceSpec, path: str, start: int, stop: int, size: int) -> Iterator[bytes]:
    """Bytes ``start`` to ``stop`` (or the end) of the text, in blocks of up to ``size``.

    What lies before ``start`` in a compressed file is unpacked and dropped. Raises ConnectorError.
    """
    filesystem, where = resolve(path, spec.root)
    codec = compression(path)
    with reading(path), filesystem.open_input_file(where) as file:
        if codec is None:
            stop = min(stop, file.size())
            for offset in range(start, stop, size):
                yield bytes(file.read_at(min(size, stop - offset), offset))
            return
        stream = pa.CompressedInputStream(file, codec)
        _skip(path, stream, start, size)
        while start < stop and (block := _unpacked(path, stream, min(size, stop - start))):
            start += len(block)
            yield block


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
