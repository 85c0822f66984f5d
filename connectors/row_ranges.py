"""Cut text into byte ranges that end where rows end, a block at a time, without a loop over rows.

A row ends at LF, CR or CR LF. In quoted text (CSV, RFC 4180) such a byte ends a row only where the
number of quote characters so far is even. Blank lines are not rows.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from connectors.text_encoding import Encoding

LF, CR, SPACE, QUOTE = b'\n\r "'
Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]
UTF8_TEXT = Encoding()


@dataclass(frozen=True)
class ByteRange:
    """Bytes ``start`` to ``stop`` (exclusive), holding ``n_rows`` whole rows."""

    start: int
    stop: int
    n_rows: int


class RowScanError(Exception):
    """The text cannot be cut: ``offset`` says where, ``kind`` why ("encoding", "mixed" or "quote")."""

    def __init__(self, offset: int, kind: str) -> None:
        super().__init__(f"{kind} at byte {offset}")
        self.offset, self.kind = offset, kind


class RowScanner:
    """Finds row ends in consecutive blocks.

    Parameters
    ----------
    start : byte offset of the first block.
    separator : one ASCII character between values that may be quoted (CSV). Empty for JSON lines, where
        nothing is quoted and lines of white space count as blank as well.
    encoding : how the text is stored; blocks hold whole code units of it, but for an odd byte at its end.
    """

    def __init__(self, start: int, *, separator: str, encoding: Encoding = UTF8_TEXT) -> None:
        self.offset = start
        self.encoding = encoding
        self.quoted = bool(separator)
        self._before_quote = (*separator.encode(), LF, CR, QUOTE)
        self._inside = False  # a quoted field is open
        self._opened = start  # where the last quoted field began
        self._content = False  # the open row has some content
        self._previous = LF
        self._decoder = codecs.getincrementaldecoder(encoding.name)()

    def scan(self, block: bytes) -> tuple[Ints, Bools]:
        """Return the offsets just after each row end in the block, and whether that row is not blank."""
        self._check_text(block)
        data = np.frombuffer(self.encoding.units(block), np.uint8)
        breaks = (data == LF) | (data == CR)
        content = ~breaks if self.quoted else data > SPACE
        if self.quoted:
            breaks &= ~self._quoted_bytes(data)
        ends = np.flatnonzero(breaks) + 1
        starts = np.concatenate(([0], ends))
        full = starts[starts < len(data)]
        filled = np.logical_or.reduceat(content, full) if len(full) else np.zeros(0, bool)
        if len(full) < len(starts):
            filled = np.append(filled, False)
        filled[0] |= self._content
        self._content = bool(filled[-1])
        offsets = ends.astype(np.int64) * self.encoding.unit + self.offset
        self.offset += len(block)
        return offsets, filled[:-1]

    def finish(self) -> tuple[Ints, Bools]:
        """End the last row where the text ends; same result as :meth:`scan`."""
        self._check_text(b"", final=True)
        if self._inside:
            raise RowScanError(self._opened, "quote")
        rows = int(self._content)
        return np.full(rows, self.offset, np.int64), np.ones(rows, bool)

    def _quoted_bytes(self, data: npt.NDArray[np.uint8]) -> Bools:
        """Return the mask of bytes in quoted fields. Raises RowScanError at a quote in an unquoted field."""
        quotes = data == QUOTE
        inside: Bools = np.logical_xor.accumulate(quotes) ^ self._inside
        opening = np.flatnonzero(quotes & inside)
        if len(opening):
            before = np.where(opening > 0, data[opening - 1], self._previous)
            # a quote right after a closing one is the second half of an escaped quote
            stray = ~np.isin(before, self._before_quote)
            if stray.any():
                raise RowScanError(self._place(opening[stray.argmax()]), "quote")
            fields = opening[before != QUOTE]
            self._opened = self._place(fields[-1]) if len(fields) else self._opened
        if len(data):
            self._inside, self._previous = bool(inside[-1]), int(data[-1])
        return inside

    def _place(self, unit: np.int64) -> int:
        """Return the byte offset in the file of a code unit of the current block."""
        return self.offset + int(unit) * self.encoding.unit

    def _check_text(self, block: bytes, *, final: bool = False) -> None:
        pending = len(self._decoder.getstate()[0])
        if not pending and self.encoding.unit == 1 and block.isascii():
            return
        try:
            self._decoder.decode(block, final)
        except UnicodeDecodeError as error:
            raise RowScanError(self.offset - pending + error.start, "encoding") from error
        stray = self.encoding.stray_utf8(block)
        if stray is not None:
            raise RowScanError(self.offset + stray, "mixed")


class _RangeBuilder:
    """Collects rows into pieces of at most ``size`` bytes, or of one row where a row is longer."""

    def __init__(self, start: int, size: int) -> None:
        self.start = self.stop = start
        self.size = size
        self.n_rows = 0

    def add(self, ends: Ints, filled: Bools) -> Iterator[ByteRange]:
        rows = np.concatenate(([0], np.cumsum(filled)))
        done = 0
        while done < len(ends):
            fits = max(done, int(np.searchsorted(ends, self.start + self.size, side="right")))
            if fits == done and self.stop == self.start:
                fits = done + 1
            self.n_rows += int(rows[fits] - rows[done])
            self.stop = int(ends[fits - 1]) if fits > done else self.stop
            if fits < len(ends):
                yield from self.close()
            done = fits

    def close(self) -> Iterator[ByteRange]:
        if self.n_rows:
            yield ByteRange(self.start, self.stop, self.n_rows)
        self.start, self.n_rows = self.stop, 0


def cut(
    blocks: Iterable[bytes], start: int, size: int, *, separator: str, encoding: Encoding = UTF8_TEXT
) -> Iterator[ByteRange]:
    """Cut the text in ``blocks``, which begins at offset ``start``, into pieces of up to ``size`` bytes.

    Raises
    ------
    RowScanError
        The text is not in the encoding, or holds UTF-8 beside it, a quote stands inside an unquoted field, or
        one is never closed.
    """
    scanner = RowScanner(start, separator=separator, encoding=encoding)
    cutter = _RangeBuilder(start, size)
    for block in blocks:
        yield from cutter.add(*scanner.scan(block))
    yield from cutter.add(*scanner.finish())
    yield from cutter.close()


def whole_rows(
    blocks: Iterable[bytes], start: int, *, separator: str, encoding: Encoding = UTF8_TEXT
) -> Iterator[bytes]:
    """Yield the text in ``blocks``, which begins at offset ``start``, in blocks that end where rows end.

    Raises RowScanError as :func:`cut` does.
    """
    scanner, held = RowScanner(start, separator=separator, encoding=encoding), [b""]
    for block in blocks:
        offset = scanner.offset
        ends, _ = scanner.scan(block)
        length = int(ends[-1]) - offset if len(ends) else 0
        if length:
            yield b"".join([*held, block[:length]])
            held = []
        held.append(block[length:])
    scanner.finish()
    if any(held):
        yield b"".join(held)


def row_spans(data: bytes, *, separator: str, encoding: Encoding = UTF8_TEXT) -> tuple[Ints, Ints]:
    """Start and stop of every row within ``data``, blank lines left out."""
    scanner = RowScanner(0, separator=separator, encoding=encoding)
    ends, filled = (np.concatenate(parts) for parts in zip(scanner.scan(data), scanner.finish(), strict=True))
    starts = np.concatenate(([0], ends[:-1])) if len(ends) else ends
    return starts[filled], ends[filled]


def any_row_begins(data: bytes, mark: bytes, *, separator: str) -> bool:
    """Return whether a row of ``data`` begins with ``mark``; elsewhere, and in quotes, it does not count."""
    if mark[:1] not in data or mark not in data:  # a single byte is found ten times as fast
        return False
    places = [found.start() for found in re.finditer(re.escape(mark), data)]
    return bool(np.isin(row_spans(data, separator=separator)[0], places).any())


def n_fields(row: bytes, separator: str = ",") -> int:
    """Return the number of fields of one CSV row; separators in quotes are text."""
    data = np.frombuffer(row, np.uint8)
    inside = np.logical_xor.accumulate(data == QUOTE)
    return int(np.count_nonzero((data == ord(separator)) & ~inside)) + 1


def first_failing(n: int, fails: Callable[[int, int], bool]) -> int:
    """Return the index of the first of ``n`` rows that fails, where ``fails(lo, hi)`` says if one in
    lo..hi-1 does.

    At least one row must fail. ``fails`` is asked about O(log n) ranges, all rows before ``lo`` being good.
    """
    low, high = 0, n
    while high - low > 1:
        middle = (low + high) // 2
        if fails(low, middle):
            high = middle
        else:
            low = middle
    return low
