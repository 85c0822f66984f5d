"""Sizes of Roaring bitmaps in the portable format, without making them: a few bytes may stand for any rows.

Source: the Roaring format specification, and "Deletion Vector Format" of the Delta protocol for the 64 bits.
"""

from __future__ import annotations

import struct

RUNS, NO_RUNS = 12347, 12346
"""First numbers of a bitmap of 32 bits, with and without containers of runs."""
FEW = 4
"""Containers from which a bitmap with runs states their offsets."""
ARRAY_VALUES = 4096
"""Most values of a container that lists them; a larger one is a map of 8 KiB."""
CONTAINER = 2**16


class _Bytes:
    """Numbers of a text of bytes, one after the other. Raises ValueError beyond its end."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def skip(self, n: int) -> int:
        start, self.at = self.at, self.at + n
        if self.at > len(self.data):
            raise ValueError("a bitmap ends within a container")
        return start

    def number(self, n: int) -> int:
        start = self.skip(n)
        return int.from_bytes(self.data[start : self.at], "little")

    def pairs(self, n: int) -> list[tuple[int, int]]:
        start = self.skip(4 * n)
        return list(struct.iter_unpack("<HH", self.data[start : self.at]))


def width_of(data: bytes) -> int:
    """Return the number of rows up to the last container of a bitmap of 64 bits. Raises ValueError."""
    source, widest = _Bytes(data), 0
    for _ in range(source.number(8)):
        high = source.number(4)
        widest = max(widest, (high << 32) + _width(source))
    return widest


def _width(source: _Bytes) -> int:
    """Pass over a bitmap of 32 bits. Return its rows up to the last container."""
    cookie = source.number(4)
    if cookie & 0xFFFF == RUNS:
        size = (cookie >> 16) + 1
        start = source.skip((size + 7) // 8)
        marks = int.from_bytes(source.data[start : source.at], "little")
    elif cookie == NO_RUNS:
        size, marks = source.number(4), 0
    else:
        raise ValueError("a bitmap begins with another number")
    containers = source.pairs(size)
    if cookie == NO_RUNS or size >= FEW:
        source.skip(4 * size)
    for place, (_, count) in enumerate(containers):
        if marks >> place & 1:
            source.pairs(source.number(2))
        else:
            source.skip(2 * (count + 1) if count < ARRAY_VALUES else CONTAINER // 8)
    return max((key + 1) * CONTAINER for key, _ in containers) if containers else 0
