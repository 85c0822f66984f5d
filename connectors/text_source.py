"""Common base of the CSV and JSON-lines sources: byte-range shards, one schema, errors that name the line."""

from __future__ import annotations

import io
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any, ClassVar

import pyarrow as pa

from connectors.base import (
    Connector,
    ConnectorError,
    CorruptError,
    FileSource,
    Listing,
    SourceShard,
)
from connectors.errors import OddValue
from connectors.file_stamps import listing_of, of_unchanged_file
from connectors.files import check_rows, each_file, find_files
from connectors.packed_text import (
    BLOCK_BYTES,
    check_no_copies,
    compression,
    file_size,
    first_run,
    text_blocks,
)
from connectors.row_ranges import ByteRange, RowScanError, cut, first_failing, row_spans
from connectors.schema import pick
from connectors.text_encoding import MARKS, UTF8, UTF16, Encoding, keeping_mark

Shards = list[SourceShard]
MAX_TEXT_SHARD = 2**30
JOINED = (
    "as where files are joined. Remove the mark, and with it a header that is repeated there; or name the "
    "single files with source.path, which may be a folder."
)
"""Cause and remedy of a byte order mark within a file."""
LONE_RETURN = " A carriage return (\\r) without a line feed, which editors hardly show, ends or precedes it."


@dataclass(frozen=True)
class Diagnosis:
    """The fault of a row in words, and the value that does not fit, if it is one."""

    text: str
    odd_value: OddValue | None = None


@dataclass(frozen=True)
class TextSource(FileSource, ABC):
    """Base of the sources that read text files.

    A shard is a byte range of up to ``spec.shard_bytes`` that ends where a row ends. The schema is inferred
    from all rows of the first shard and enforced on the others. Columns named in ``spec.text_columns``
    are read as text, whatever they look like.
    """

    kind: ClassVar[type[Connector[Any]]]

    def __post_init__(self) -> None:
        if self.spec.shard_bytes > MAX_TEXT_SHARD:
            raise ConnectorError(
                f"source.shard_bytes is {self.spec.shard_bytes}: a shard of text is parsed at once, so "
                f"choose at most {MAX_TEXT_SHARD} (1 GiB)."
            )

    @abstractmethod
    def _separator(self, path: str) -> str:
        """Return the separator of values that may be quoted; empty if nothing is quoted."""

    @abstractmethod
    def _body(self, path: str, first_path: str) -> int:
        """Return the byte offset of the first data row; checks the file's header against the first file's."""

    @abstractmethod
    def _infer(self, path: str, data: bytes) -> pa.Schema:
        """Return the schema of rows; raises ArrowInvalid if they do not fit together."""

    def _widened(self, schema: pa.Schema, shards: Sequence[SourceShard]) -> pa.Schema:
        """Return the first shard's schema with columns that only others have, where a format allows that."""
        return schema

    def _resolved(self, schema: pa.Schema) -> pa.Schema:
        """Return the types to read, once all that a guess goes by has been seen."""
        return schema

    def _check_inferred(self, shard: SourceShard, data: bytes, schema: pa.Schema) -> None:
        """Raise ConnectorError where a format's guess is likely not what was meant."""
        return

    @abstractmethod
    def _parse(self, path: str, data: bytes, schema: pa.Schema) -> pa.Table:
        """Return the rows as exactly ``schema``; raises ArrowInvalid if one does not fit."""

    @abstractmethod
    def _diagnose(self, path: str, row: bytes, schema: pa.Schema) -> Diagnosis:
        """Say what is wrong with one bad row, where in it, and how to correct it."""

    def list(self) -> Listing:
        """Scan every file once; see :class:`connectors.base.Source`."""
        files = find_files(self.spec, self.kind)
        paths = [file.name for file in files]
        check_no_copies(self.spec, paths)
        first = self._first_with_body(paths)
        found, skipped = each_file(self.spec, paths, lambda path: self._cut(path, first))
        shards = [shard for held in found.values() for shard in held]
        check_rows(self.spec, shards, skipped)
        schema = self._resolved(self._widened(self._first_schema(shards), shards))
        pick(schema, self.spec.text_columns, f"source.text_columns: {self.spec.path}")
        return listing_of(self.spec, files, schema, found, skipped)

    @of_unchanged_file
    def read(self, shard: SourceShard, columns: Sequence[str], schema: pa.Schema) -> pa.Table:
        """Read the named columns of one shard as ``schema`` has them."""
        wanted = pick(schema, columns, shard.path)
        data = self._text(shard.path, shard.start, shard.stop)
        try:
            table = self._parse(shard.path, data, wanted)
        except pa.ArrowInvalid as error:
            raise self._explain(shard, data, wanted, error) from error
        if table.num_rows != shard.n_rows:
            raise self._explain(shard, data, wanted, None)
        return table

    def locate(self, shard: SourceShard, row: int) -> str:
        """Name row ``row`` (0-based within the shard) by its line in the file, 1-based: "line 17"."""
        data = self._bytes(shard.path, shard.start, shard.stop)
        encoding = self._encoding(shard.path)
        starts, _ = row_spans(data, separator=self._separator(shard.path), encoding=encoding)
        return f"line {self._line(shard.path, shard.start + int(starts[row]))}"

    def narrowed(self, shard: SourceShard, n_rows: int) -> SourceShard:
        """Return the bytes of about the first ``n_rows`` rows of a shard."""
        if n_rows >= shard.n_rows:
            return shard
        size = max(1, (shard.stop - shard.start) * n_rows // shard.n_rows)
        blocks = self._blocks(shard.path, shard.start, shard.stop)
        piece = next(self._pieces(shard.path, blocks, shard.start, size))
        n_bytes = shard.n_bytes * piece.n_rows // shard.n_rows
        return replace(shard, start=piece.start, stop=piece.stop, n_rows=piece.n_rows, n_bytes=n_bytes)

    def _first_with_body(self, paths: Sequence[str]) -> str:
        """Return the first file, or if corrupt ones are left out, the first whose beginning can be read."""
        for path in paths if self.spec.skip_corrupt else ():
            with suppress(CorruptError):
                self._size(path)
                self._body(path, path)
                return path
        return paths[0]

    def _first_schema(self, shards: Sequence[SourceShard]) -> pa.Schema:
        """Return the schema of the first shard, or if corrupt ones are left out, of the first that parses."""
        for shard in shards if self.spec.skip_corrupt else ():
            with suppress(CorruptError):
                return self._schema_of(shard)
        return self._schema_of(shards[0])

    def _schema_of(self, shard: SourceShard) -> pa.Schema:
        data = self._text(shard.path, shard.start, shard.stop)
        try:
            schema = self._infer(shard.path, data)
        except pa.ArrowInvalid as error:
            raise self._explain(shard, data, None, error) from error
        self._check_inferred(shard, data, schema)
        return schema

    def _size(self, path: str) -> int:
        """Return the bytes of a file on disk. Raises CorruptError for a file without any."""
        size = file_size(self.spec, path)
        if size == 0:
            raise CorruptError(f"{path} is empty (0 bytes). Remove it or write it again.")
        return size

    def _cut(self, path: str, first_path: str) -> Shards:
        size = self._size(path)
        start = self._body(path, first_path)
        # Who wants the end of compressed text must unpack what is before it.
        target = MAX_TEXT_SHARD if compression(path) else self.spec.shard_bytes
        try:
            blocks = self._blocks(path, start, sys.maxsize)
            pieces = [*self._pieces(path, blocks, start, target)]
        except RowScanError as error:
            raise self._bad_byte(path, error) from error
        firsts = accumulate((piece.n_rows for piece in pieces), initial=0)
        ratio = size / pieces[-1].stop if pieces and compression(path) else 1.0
        return [
            SourceShard(
                path, piece.start, piece.stop, piece.n_rows, first, int((piece.stop - piece.start) * ratio)
            )
            for piece, first in zip(pieces, firsts, strict=False)
        ]

    def _explain(
        self, shard: SourceShard, data: bytes, schema: pa.Schema | None, error: Exception | None
    ) -> CorruptError:
        """Find the first bad row of a shard whose rows do not parse, or are not as many as listed."""
        starts, stops = row_spans(data, separator=self._separator(shard.path))

        def fails(low: int, high: int) -> bool:
            first = 0 if schema is None else low  # types are inferred from all rows before
            return not self._fits(shard.path, data[starts[first] : stops[high - 1]], high - first, schema)

        if not len(starts) or not fails(0, len(starts)):
            reason = f"cannot be read: {error}" if error else "has changed since it was listed"
            return CorruptError(f"{shard.path} {reason}. Plan and run again.")
        bad = first_failing(len(starts), fails)
        if schema is None:
            schema = self._resolved(self._infer(shard.path, data[: starts[bad]])) if bad else pa.schema([])
        before = self._encoding(shard.path).stored_length(data[: starts[bad]])
        place = f"{shard.path}, line {self._line(shard.path, shard.start + before)}"
        found = self._diagnose(shard.path, data[starts[bad] : stops[bad]], schema)
        ends = (data[: starts[bad]], data[: stops[bad]])
        lone = b"\n" in data and any(text.endswith(b"\r") for text in ends)
        return CorruptError(f"{place}: {found.text}{LONE_RETURN if lone else ''}", found.odd_value)

    def _fits(self, path: str, data: bytes, n_rows: int, schema: pa.Schema | None) -> bool:
        try:
            found = self._resolved(self._infer(path, data)) if schema is None else schema
            return bool(self._parse(path, data, found).num_rows == n_rows)
        except pa.ArrowInvalid:
            return False

    def _bad_byte(self, path: str, error: RowScanError) -> CorruptError:
        line = self._line(path, error.offset)
        if error.kind == "quote":
            mark = self._encoding(path).mark
            before = error.offset - len(mark)
            if mark and before >= 0 and self._bytes(path, before, error.offset) == mark:
                return CorruptError(f"{path}, line {line}: a byte order mark stands before a quote, {JOINED}")
            return CorruptError(
                f"{path}, line {line}: the quote character at byte {error.offset} is inside an unquoted "
                f"field or never closed. Put the whole field in quotes and double each quote inside it "
                f'("5"" pipe").'
            )
        if error.kind == "mixed":
            text = first_run(self.spec, path, error.offset)
            return CorruptError(
                f"{path}, line {line}: {text.decode(UTF8, 'replace')!r} is written in UTF-8, but "
                f"source.encoding is {self.spec.encoding}, in which it reads "
                f"{text.decode(self.spec.encoding, 'replace')!r}. Take the key away if all files are UTF-8; "
                f"else they mix encodings: write them again in one, for example with: iconv -f "
                f"{self.spec.encoding} -t utf-8 for those that are not UTF-8."
            )
        byte = b"".join(text_blocks(self.spec, path, error.offset, error.offset + 1, 1))
        place = f"{path}, line {line}: byte {error.offset} (0x{byte.hex()}) is not"
        if self.spec.encoding != UTF8:
            return CorruptError(
                f"{place} {self.spec.encoding}. Correct source.encoding, or the file. Without the key, it is "
                f"read as UTF-8."
            )
        start = b"".join(text_blocks(self.spec, path, 0, 2, 2))
        marked = [UTF16] if start in (MARKS["utf-16-le"], MARKS["utf-16-be"]) else []
        names = marked or ["cp1252", "latin-1"]
        return CorruptError(
            f"{place} UTF-8. Name the encoding that it was written in, such as source.encoding: "
            f"{' or '.join(names)}, or save it as UTF-8."
        )

    def _line(self, path: str, offset: int) -> int:
        """Return the line of a byte, 1-based, as an editor counts: CR LF, CR and LF each end one line."""
        line, last = 1, b""
        encoding = self._encoding(path)
        for block in map(encoding.units, self._blocks(path, 0, offset)):
            line += block.count(b"\n") + block.count(b"\r") - (last + block).count(b"\r\n")
            last = block[-1:]
        return line

    def _check_length(self, path: str, start: int, stop: int) -> None:
        """Raise ConnectorError where so many bytes are not to be held in memory."""
        if stop - start > MAX_PARSED:  # before it is unpacked into memory
            raise ConnectorError(
                f"{path}, bytes {start} to {stop}: {stop - start:,} bytes are more than the {MAX_PARSED:,} "
                "that can be parsed at once. Check for a missing line end or quote, or set a smaller "
                "source.shard_bytes."
            )
        if stop - start > self.spec.max_bytes:
            raise ConnectorError(
                f"{path}, bytes {start} to {stop}: one row is longer than source.max_shard_bytes "
                f"({self.spec.max_bytes}). Check for a missing line end, or raise that limit."
            )

    def _bytes(self, path: str, start: int, stop: int) -> bytes:
        self._check_length(path, start, stop)
        return b"".join(self._blocks(path, start, stop))

    def _text(self, path: str, start: int, stop: int) -> bytes:
        """Return the bytes ``start`` to ``stop`` as UTF-8. Raises CorruptError where they have
        changed since.
        """
        try:
            return self._encoding(path).utf8(self._bytes(path, start, stop))
        except UnicodeDecodeError as error:
            raise CorruptError(f"{path} has changed since it was listed. Plan and run again.") from error

    def _blocks(self, path: str, start: int, stop: int, size: int = BLOCK_BYTES) -> Iterator[bytes]:
        """Return the bytes ``start`` to ``stop`` as they are stored, in blocks of whole code units."""
        blocks = text_blocks(self.spec, path, start, stop, size)
        return self._encoding(path).whole_units(blocks)

    def _pieces(self, path: str, blocks: Iterable[bytes], start: int, size: int) -> Iterator[ByteRange]:
        encoding = self._encoding(path)
        return cut(blocks, start, size, separator=self._separator(path), encoding=encoding)

    def _encoding(self, path: str) -> Encoding:
        """Return how a file is stored, for ``utf-16`` by its byte order mark. Raises CorruptError."""
        if self.spec.encoding != UTF16:
            return Encoding(self.spec.encoding)
        start = b"".join(text_blocks(self.spec, path, 0, 2, 2))
        for name, mark in MARKS.items():
            if start == mark:
                return Encoding(name)
        raise CorruptError(
            f"{path} does not begin with a byte order mark, so it does not say in which order its bytes are. "
            f"Name it with source.encoding: utf-16-le (usual on Windows) or utf-16-be."
        )

    def _mark_length(self, path: str, start: int = 0) -> int:
        """Return the bytes of the byte order marks that stand at ``start``; 0 without one.

        There are several where files with a mark were joined, or a writer added a second one.
        """
        mark, length = self._encoding(path).mark, 0
        while mark and self._bytes(path, start + length, start + length + len(mark)) == mark:
            length += len(mark)
        return length


def whole(data: bytes) -> tuple[io.BytesIO, int]:
    """Return the bytes as a file, and a block size that holds all of them at once."""
    data = keeping_mark(data)
    return io.BytesIO(data), max(len(data) + 1, 1024)


MAX_PARSED = 2**31 - 2
"""Most bytes of a block of Arrow's parsers, which count them in 32 bits."""
