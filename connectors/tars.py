"""Members of a tar, in order, with the bytes they lie in."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from connectors.base import CorruptError

BLOCK = 512


@dataclass(frozen=True)
class Member:
    """A file in a tar. Its header begins at byte ``start``, the next one's at ``stop``."""

    name: str
    start: int
    stop: int
    data: bytes = b""


def members(path: str, stream: Any) -> Iterator[Member]:
    """Files of a tar that is read from its beginning, without their content. Raises CorruptError."""
    yield from _walk(path, stream, "r|", with_data=False)


def unpack(path: str, data: bytes) -> Iterator[Member]:
    """Files in whole members of a tar, with their content. Raises CorruptError."""
    yield from _walk(path, io.BytesIO(data), "r:", with_data=True)


def _walk(path: str, file: Any, mode: Any, *, with_data: bool) -> Iterator[Member]:
    try:
        with tarfile.open(fileobj=file, mode=mode, bufsize=2**20) as tar:
            while (info := tar.next()) is not None:
                tar.members.clear()  # type: ignore[attr-defined]  # else it remembers each
                yield from _file(tar, info, with_data=with_data)
    except (tarfile.TarError, EOFError, UnicodeDecodeError, ValueError) as error:
        raise CorruptError(
            f"{path} is no whole tar: {error}. It may be compressed, or have been cut off while written or "
            f"copied: write or copy it again, uncompressed."
        ) from error


def _file(tar: tarfile.TarFile, info: tarfile.TarInfo, *, with_data: bool) -> Iterator[Member]:
    if not info.isreg():
        return
    if info.sparse is not None:  # a few bytes may stand for any size
        raise tarfile.ReadError(f"{info.name} is a sparse file")
    stop = info.offset_data + -(-info.size // BLOCK) * BLOCK
    content = tar.extractfile(info) if with_data else None
    yield Member(info.name, info.offset, stop, content.read() if content else b"")
