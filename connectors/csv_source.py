"""CSV as a source (RFC 4180: double quotes; commas, tabs or others between), with or without header."""

from __future__ import annotations

import csv
import io
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from connectors.base import Connector, ConnectorError, CorruptError, SourceShard, SourceSpec
from connectors.cells import CellRules, clean_texts, read_rows
from connectors.column_names import (
    check_names,
    check_same_names,
    number_if_renamed,
    number_repeated,
    rename_remedy,
)
from connectors.csv_options import CsvOptions
from connectors.csv_types import completed_type, is_number, ranged_type
from connectors.errors import OddValue
from connectors.files import each, find_names
from connectors.foundation.messages import shorten
from connectors.locations import extension
from connectors.packed_text import BLOCK_BYTES, CODECS, compression
from connectors.row_ranges import RowScanError, RowScanner, any_row_begins, n_fields, whole_rows
from connectors.text_encoding import MARKS, UTF8
from connectors.text_source import JOINED, Diagnosis, TextSource
from connectors.whole_numbers import first_inexact, holds_large, loss_of

MOSTLY = 0.8
"""Share of numbers in a text column of the first shard from which the other texts count as faults."""
HEADER_BYTES = 2**16
"""Bytes that are read at a time to find the end of the header, or the first rows of a shard."""
MAX_COLUMNS = 100_000
MAX_NAME_BYTES, MAX_HEADER_BYTES = 2**10, 2**24
"""Largest lengths of a column name and of all of them. Longer ones are not a header, or an attempt to use up
the memory."""
MARK = MARKS[UTF8]
"""The byte order mark in rows, which are read as UTF-8."""
MAX_DIGITS = 64
"""A longer name is not checked for being a number."""
TSV = (".tsv", *(".tsv" + ending for ending in CODECS))


class Csv(Connector[CsvOptions]):
    """Opens sources of the format ``csv``."""

    name = "csv"
    summary = "Text with a header line (RFC 4180), values between commas or tabs, also compressed"
    extensions = (".csv", *(".csv" + ending for ending in CODECS), *TSV)
    has_encoding = True
    has_text_columns = True
    Options = CsvOptions

    def open(self, spec: SourceSpec, options: CsvOptions) -> CsvSource:
        """Return a source that reads CSV files with the settings of ``spec`` and ``options``."""
        return CsvSource(spec, options)


@dataclass(frozen=True)
class CsvSource(TextSource):
    """Reads CSV files. An empty field is null, also in quotes; other texts are not changed."""

    options: CsvOptions = field(default_factory=CsvOptions)
    kind = Csv

    @property
    def _rules(self) -> CellRules:
        return CellRules(self.spec.strip, self.spec.missing, self.options.decimal, self.options.thousands)

    def cells(self, n_bytes: int) -> pa.Table:
        """Read about the first ``n_bytes`` of the first file as text, without stripping and missing values.

        Raises ConnectorError.
        """
        path = find_names(self.spec, Csv)[0]
        names, start = self._header(path)
        start += self._mark_length(path, start)
        try:
            blocks = self._blocks(path, start, sys.maxsize)
            piece = next(self._pieces(path, blocks, start, n_bytes), None)
        except RowScanError as error:
            raise self._bad_byte(path, error) from error
        data = b"" if piece is None else self._text(path, piece.start, piece.stop)
        types = dict.fromkeys(names, pa.string())
        try:
            return read_rows(data or b"\n", self._separator(path), names, names, types)
        except pa.ArrowInvalid as error:
            if piece is None:
                raise ConnectorError(f"{path} cannot be read as CSV: {error}.") from error
            shard = SourceShard(path, piece.start, piece.stop, piece.n_rows, 0, len(data))
            raise self._explain(shard, data, pa.schema(types), error) from error

    def _separator(self, path: str) -> str:
        return self.options.delimiter or ("\t" if extension(path, TSV) else ",")

    def _body(self, path: str, first_path: str) -> int:
        names, start = self._header(path)
        check_names(path, names, self._duplicate_remedy(names), "source.options.empty_names: number")
        if path != first_path:
            check_same_names(path, names, first_path, self._header(first_path)[0])
            self._check_same_order(path, first_path)
        return start + self._mark_length(path, start)

    def _check_same_order(self, path: str, first_path: str) -> None:
        """Raise ConnectorError where names are given by place, and headers have them in other orders."""
        if self.options.column_names is None or not self.options.header:
            return
        first, found = self._first_cells(first_path)[0], self._first_cells(path)[0]
        if first != found and sorted(first) == sorted(found):
            raise ConnectorError(
                f"{path}, line 1: the columns stand in another order than in {first_path}, and "
                f"source.options.column_names names them by place. Take the key out; source.rename names "
                f"them otherwise."
            )

    def _duplicate_remedy(self, names: list[str]) -> str:
        """Return the remedies for two columns of one name."""
        text = f"{rename_remedy(names)}, or number them with source.options.duplicate_names: number"
        short = [name for name in names if 0 < len(name) <= MAX_DIGITS]
        if any(re.fullmatch(self._rules.number, name) for name in short):
            return f"If line 1 is a row of data, set source.options.header: false; else n{text[1:]}"
        return text

    def _header(self, path: str) -> tuple[list[str], int]:
        """Return the column names and the offset of the first row, or of a byte order mark before it."""
        cells, begin, stop = self._first_cells(path)
        return self._names(path, cells), stop if self.options.header else begin

    def _first_cells(self, path: str) -> tuple[list[str], int, int]:
        """Return the cells of the first line that is not blank, and the offsets of its beginning and end."""
        begin = self._mark_length(path)
        stop = self._header_end(path, begin)
        text = self._text(path, begin, stop).lstrip(b"\r\n").decode()
        try:
            cells = next(csv.reader(io.StringIO(text, newline=""), delimiter=self._separator(path)))
        except csv.Error as error:
            raise CorruptError(
                f"{path}: the header cannot be read: {error}. Check that it is CSV."
            ) from error
        return cells, begin, stop

    def _names(self, path: str, cells: list[str]) -> list[str]:
        """Return the names of the columns, given the cells of the first line."""
        if len(cells) > MAX_COLUMNS:
            raise ConnectorError(
                f"{path}: line 1 has {len(cells):,} cells, and at most {MAX_COLUMNS:,} columns are read: "
                f"Arrow's parser takes some ten kilobytes for each, however short the rows are. Write "
                f"Parquet, with the values of many columns in one column of lists."
            )
        given = self.options.column_names
        if given is not None and len(given) != len(cells):
            raise ConnectorError(
                f"{path}: source.options.column_names has {len(given)} names, and line 1 has {len(cells)} "
                f"cells. Give one name for each."
            )
        if given is not None:
            return [*given]
        if not self.options.header:
            return [f"column_{place}" for place in range(1, len(cells) + 1)]
        names = [cell.strip() for cell in cells] if self.spec.strip else cells
        _check_lengths(path, names)
        if self.options.empty_names == "number":
            names = [name or f"column_{place}" for place, name in enumerate(names, 1)]
        if self.options.duplicate_names == "number":
            return number_repeated(names)
        return number_if_renamed(names, self.spec.renamed)

    def _header_end(self, path: str, begin: int) -> int:
        encoding = self._encoding(path)
        scanner, length = RowScanner(begin, separator=self._separator(path), encoding=encoding), 0
        try:
            for block in self._blocks(path, begin, sys.maxsize, HEADER_BYTES):
                length += len(block)
                if length > MAX_HEADER_BYTES:
                    raise _long_header(path)
                ends, filled = scanner.scan(block)
                if filled.any():
                    return int(ends[filled.argmax()])
            ends, filled = scanner.finish()
        except RowScanError as error:
            raise self._bad_byte(path, error) from error
        if not filled.any():
            raise CorruptError(f"{path} has no header: every line is blank. Name the columns on line 1.")
        return int(ends[0])

    def _read(
        self,
        path: str,
        data: bytes,
        columns: list[str],
        types: dict[str, pa.DataType],
        *,
        guess: bool = False,
    ) -> pa.Table:
        """Return the rows as a table; with ``guess``, types that are not given are inferred."""
        names, rules = self._header(path)[0], self._rules
        if rules.rewrites:
            numeric = None if guess else frozenset(name for name in columns if is_number(types[name]))
            data = rules.rewritten(data, self._separator(path), names, columns, numeric)
            names = columns
        return read_rows(data, self._separator(path), names, columns, types, rules)

    def _infer(self, path: str, data: bytes) -> pa.Schema:
        self._check_marks(path, data)
        names = self._header(path)[0]
        types = {name: pa.string() for name in self.spec.text_columns}
        table = self._read(path, data, names, types, guess=True)
        self._check_exact(path, data, table)
        return table.schema

    def _resolved(self, schema: pa.Schema) -> pa.Schema:
        """Return the types with text for columns without a value."""
        return pa.schema([(f.name, pa.string() if pa.types.is_null(f.type) else f.type) for f in schema])

    def _widened(self, schema: pa.Schema, shards: Sequence[SourceShard]) -> pa.Schema:
        """Return the first shard's types, completed by those of the other shards.

        Columns without a value take the type of all other rows, so that a text among numbers makes the column
        text wherever it stands. Integers become float64 where another shard begins with fractions.
        """
        empty = [f.name for f in schema if pa.types.is_null(f.type)]
        whole = [f.name for f in schema if pa.types.is_integer(f.type)]
        by_path: dict[str, list[SourceShard]] = {}
        for shard in shards[1:] if empty or whole else ():
            by_path.setdefault(shard.path, []).append(shard)
        found = each(self.spec, [*by_path], lambda path: self._later_types(by_path[path], empty, whole))
        seen: dict[str, dict[pa.DataType, SourceShard]] = {name: {} for name in schema.names}
        for shard, one in (pair for file in found for pair in file):
            seen[one.name].setdefault(one.type, shard)
        for name in empty:
            if pa.string() in seen[name]:
                self._check_later_texts(seen[name][pa.string()], name)
        return pa.schema([one.with_type(completed_type(one.type, {*seen[one.name]})) for one in schema])

    def _later_types(
        self, shards: Sequence[SourceShard], empty: list[str], whole: list[str]
    ) -> list[tuple[SourceShard, pa.Field]]:
        """Return the types in the shards of one file: of the columns ``empty`` in all rows, of the columns
        ``whole`` in the first ones, each type once a shard.
        """
        found: dict[tuple[SourceShard, pa.Field], None] = {}
        for place, shard in enumerate(shards):
            # To read the beginning of a compressed shard, everything before it must be unpacked.
            begins = whole if place == 0 or not compression(shard.path) else []
            for data in self._whole_rows(shard) if empty else ():
                found.update(dict.fromkeys((shard, one) for one in self._guessed(shard.path, data, empty)))
            if begins:
                head = next(self._whole_rows(shard, HEADER_BYTES), b"")
                found.update(dict.fromkeys((shard, one) for one in self._guessed(shard.path, head, begins)))
        return [*found]

    def _whole_rows(self, shard: SourceShard, size: int = BLOCK_BYTES) -> Iterator[bytes]:
        """Yield a shard's rows as UTF-8, about ``size`` bytes at a time. Raises ConnectorError."""
        self._check_length(shard.path, shard.start, shard.stop)
        encoding, separator = self._encoding(shard.path), self._separator(shard.path)
        blocks = self._blocks(shard.path, shard.start, shard.stop, size)
        for data in whole_rows(blocks, shard.start, separator=separator, encoding=encoding):
            yield encoding.utf8(data)

    def _guessed(self, path: str, data: bytes, names: list[str]) -> pa.Schema:
        """Return the types of columns in some rows as of :func:`ranged_type`; no column if these rows do not
        parse.
        """
        types = {name: pa.string() for name in self.spec.text_columns if name in names}
        try:
            table = self._read(path, data, names, types, guess=True)
        except pa.ArrowInvalid:
            return pa.schema([])
        return pa.schema([one.with_type(ranged_type(table[one.name])) for one in table.schema])

    def _check_later_texts(self, shard: SourceShard, name: str) -> None:
        """Apply :meth:`_check_inferred` to the first shard in which a column has texts."""
        data = self._text(shard.path, shard.start, shard.stop)
        with suppress(pa.ArrowInvalid):  # reading the shard reports it
            self._check_inferred(shard, data, pa.schema([(name, pa.string())]))

    def _check_inferred(self, shard: SourceShard, data: bytes, schema: pa.Schema) -> None:
        """Raise ConnectorError for a column of numbers that a few other words made a text column."""
        texts = [
            f.name for f in schema if pa.types.is_string(f.type) and f.name not in self.spec.text_columns
        ]
        table = self._parse(shard.path, data, pa.schema([schema.field(name) for name in texts]))
        for name in texts:
            column = table[name]
            numbers = pc.match_substring_regex(column, self._rules.number).combine_chunks()
            share = pc.mean(numbers).as_py()
            if share is None or not MOSTLY <= share < 1:
                continue
            row = int(np.flatnonzero(~numbers.fill_null(True).to_numpy(zero_copy_only=False))[0])
            odd = OddValue(name, column[row].as_py(), "number")
            value = shorten(odd.value)
            most = "over 99%" if share > 0.99 else f"{share:.0%}"
            remedy = (
                f"Correct the value or leave it empty; if it stands for a missing value, set "
                f"source.missing: [{value}]; if the column is text, name it in source.text_columns."
            )
            raise ConnectorError(
                f"{shard.path}, {self.locate(shard, row)}: column {name!r}: {value} is not a number, but "
                f"{most} of the column are. {remedy}",
                odd,
            )

    def _parse(self, path: str, data: bytes, schema: pa.Schema) -> pa.Table:
        self._check_marks(path, data)
        columns = schema.names or self._header(path)[0][:1]
        types = {name: pa.string() for name in columns} | {one.name: one.type for one in schema}
        table = self._read(path, data, columns, types).select(schema.names)
        self._check_exact(path, data, table)
        for index, one in enumerate(schema):
            if pa.types.is_string(one.type):
                cleaned = clean_texts(table.column(index), ["", *self.spec.missing], strip=False)
                table = table.set_column(index, one, cleaned)
        return table

    def _check_marks(self, path: str, data: bytes) -> None:
        """Raise ArrowInvalid where a row begins with a byte order mark: it is no part of the first value."""
        if any_row_begins(data, MARK, separator=self._separator(path)):
            raise pa.ArrowInvalid("a row begins with a byte order mark")

    def _check_exact(self, path: str, data: bytes, table: pa.Table) -> None:
        """Raise ArrowInvalid where a whole number of the text became another number in float64."""
        found = self._inexact(path, data, table)
        if found is not None:
            raise pa.ArrowInvalid(f"column {found.column!r}: {found.value} is no float64")

    def _inexact(self, path: str, data: bytes, table: pa.Table) -> OddValue | None:
        """Return the first whole number of the text that became another number in float64."""
        for name in table.schema.names:
            if not holds_large(table[name]):
                continue
            texts = self._read(path, data, [name], {name: pa.string()})[name]
            if self.options.thousands is not None:
                texts = pc.replace_substring(texts, self.options.thousands, "")
            value = first_inexact(texts)
            if value is not None:
                return OddValue(name, value, "float64")
        return None

    def _diagnose(self, path: str, row: bytes, schema: pa.Schema) -> Diagnosis:
        names = self._header(path)[0]
        if row.startswith(MARK):
            after = shorten(row.removeprefix(MARK).decode().rstrip())
            return Diagnosis(f"a byte order mark stands before {after} in column {names[0]!r}, {JOINED}")
        separator = self._separator(path)
        found = n_fields(row, separator)
        if found != len(names):
            return Diagnosis(
                f"{found} field{'s' * (found > 1)}, but the header names {len(names)} columns. Correct the "
                f"row, and put fields that hold {separator!r} or line ends in double quotes."
            )
        for one in schema:
            try:
                self._read(path, row, [one.name], {one.name: one.type})
            except pa.ArrowInvalid:
                as_text = self._read(path, row, [one.name], {one.name: pa.string()})
                value = as_text[one.name][0].as_py()
                return Diagnosis(
                    f"column {one.name!r}: {shorten(value)} is not {one.type}, the type of the rows "
                    f"before. Correct the value or leave it empty; source.missing: [{value!r}] reads it as "
                    f"missing, and with source.filter: [[{one.name!r}, '!=', null]] its rows are left out; "
                    f"source.text_columns: [{one.name!r}] reads the column as text.",
                    OddValue(one.name, value, str(one.type)),
                )
        known = {one.name: one.type for one in schema} | dict.fromkeys(self.spec.text_columns, pa.string())
        inexact = self._inexact(path, row, self._read(path, row, names, known, guess=True))
        if inexact is not None:
            return Diagnosis(
                f"column {inexact.column!r}: {loss_of(str(inexact.value))}. Name the column in "
                f"source.text_columns, which keeps every digit; or correct the values.",
                inexact,
            )
        return Diagnosis(f"the row does not parse: {shorten(row.decode())}. Correct it.")


def _long_header(path: str) -> ConnectorError:
    return ConnectorError(
        f"{path}: line 1, the header, does not end within {MAX_HEADER_BYTES:,} bytes. Check for a missing "
        f"line end or quote; write a file of more columns as Parquet."
    )


def _check_lengths(path: str, names: list[str]) -> None:
    for place, name in enumerate(names, 1):
        size = len(name.encode())
        if size > MAX_NAME_BYTES:
            raise ConnectorError(
                f"{path}, line 1: the name of column {place} has {size:,} bytes, and at most "
                f"{MAX_NAME_BYTES:,} are read: {name[:20]!r}... If line 1 is a row of data, set "
                f"source.options.header: false; else shorten the name, or give source.options.column_names."
            )
