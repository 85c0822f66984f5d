"""A large object as a file of which exactly what is read is fetched."""

from __future__ import annotations

import io
from collections.abc import Callable


class Ranges(io.RawIOBase):
    """A file of ``size`` bytes; ``fetch(start, length)`` gets some of them."""

    def __init__(self, fetch: Callable[[int, int], bytes], size: int) -> None:
        self._fetch, self._size, self._at = fetch, size, 0

    def read(self, size: int | None = -1) -> bytes:
        """Bytes from here on; by default all that are left."""
        left = max(0, self._size - self._at)
        length = left if size is None or size < 0 else min(size, left)
        data = self._fetch(self._at, length) if length else b""
        self._at += len(data)
        return data

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Go to a place; return it."""
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = start + offset
        return self._at

    def tell(self) -> int:
        """Where the next read begins."""
        return self._at

    def readable(self) -> bool:
        """Yes."""
        return True

    def seekable(self) -> bool:
        """Yes."""
        return True
