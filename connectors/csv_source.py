"""CSV as a source (RFC 4180: double quotes; commas, tabs or others between), with a header line."""

from __future__ import annotations

import csv
import io
import sys
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pv
from pydantic import Field

from connectors.base import Connector, ConnectorError, SourceOptions, SourceShard, SourceSpec
from connectors.locations import extension
from connectors.row_ranges import RowScanError, RowScanner, n_fields
from connectors.schema import check_names, check_same_names, number_repeated
from connectors.text_source import BOM, CODECS, TextSource, quote_value, whole

NUMBER = r"^\s*([+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|(?i:nan|n/a|na|null|[+-]?inf(inity)?))\s*$"
MOSTLY = 0.8
HEADER_BYTES = 2**16
TSV = (".tsv", *(".tsv" + ending for ending in CODECS))


class CsvOptions(SourceOptions):
    """Options of ``csv``."""

    delimiter: str | None = Field(
        default=None,
        pattern=r"^[!#-/:-@\[-`{-~\t]$",
        description="One character between fields; default: a tab in .tsv files, else a comma",
    )
    duplicate_names: Literal["error", "number"] = Field(
        default="error", description="number: a second column `x` becomes `x.1`, a third `x.2`"
    )


class Csv(Connector[CsvOptions]):
    """Connector of this format."""

    name = "csv"
    summary = "Text with a header line (RFC 4180), values between commas or tabs, also compressed"
    extensions = (".csv", *(".csv" + ending for ending in CODECS), *TSV)
    Options = CsvOptions

    def open(self, spec: SourceSpec, options: CsvOptions) -> CsvSource:
        """Return a source that reads CSV files with the settings of ``spec`` and ``options``."""
        return CsvSource(spec, options.duplicate_names == "number", options.delimiter)


@dataclass(frozen=True)
class CsvSource(TextSource):
    """CSV files. An empty field is null, also in quotes; text is not changed otherwise."""

    numbered: bool = False
    delimiter: str | None = None
    kind = Csv

    def _separator(self, path: str) -> str:
        return self.delimiter or ("\t" if extension(path, TSV) else ",")

    def _body(self, path: str, first_path: str) -> int:
        names, start = self._header(path)
        check_names(path, names, ", or tell them apart with source.options.duplicate_names: number")
        if path != first_path:
            check_same_names(path, names, first_path, self._header(first_path)[0])
        return start

    def _header(self, path: str) -> tuple[list[str], int]:
        """Column names and the offset just after them."""
        begin = len(BOM) if self._bytes(path, 0, len(BOM)) == BOM else 0
        stop = self._header_end(path, begin)
        text = self._bytes(path, begin, stop).lstrip(b"\r\n").decode()
        try:
            names = next(csv.reader(io.StringIO(text, newline=""), delimiter=self._separator(path)))
        except csv.Error as error:
            raise ConnectorError(
                f"{path}: the header cannot be read: {error}. Check that it is CSV."
            ) from error
        return (number_repeated(names) if self.numbered else names), stop

    def _header_end(self, path: str, begin: int) -> int:
        scanner = RowScanner(begin, separator=self._separator(path))
        try:
            for block in self._blocks(path, begin, sys.maxsize, HEADER_BYTES):
                ends, filled = scanner.scan(block)
                if filled.any():
                    return int(ends[filled.argmax()])
            ends, filled = scanner.finish()
        except RowScanError as error:
            raise self._bad_byte(path, error) from error
        if not filled.any():
            raise ConnectorError(f"{path} has no header: every line is blank. Name the columns on line 1.")
        return int(ends[0])

    def _infer(self, path: str, data: bytes) -> pa.Schema:
        names = self._header(path)[0]
        types = {name: pa.string() for name in self.spec.text_columns}
        found = _read(data, self._separator(path), names, names, types).schema
        return pa.schema([(f.name, pa.string() if pa.types.is_null(f.type) else f.type) for f in found])

    def _check_inferred(self, shard: SourceShard, data: bytes, schema: pa.Schema) -> None:
        """One word in a column of numbers makes it text, which then is no feature: better say so."""
        texts = [
            f.name for f in schema if pa.types.is_string(f.type) and f.name not in self.spec.text_columns
        ]
        table = self._parse(shard.path, data, pa.schema([schema.field(name) for name in texts]))
        for name in texts:
            column = table[name]
            numbers = pc.match_substring_regex(column, NUMBER).combine_chunks()
            share = pc.mean(numbers).as_py()
            if share is None or not MOSTLY <= share < 1:
                continue
            row = int(np.flatnonzero(~numbers.fill_null(True).to_numpy(zero_copy_only=False))[0])
            value = quote_value(column[row].as_py())
            raise ConnectorError(
                f"{shard.path}, {self.locate(shard, row)}: column {name!r}: {value} is no number, but "
                f"{share:.0%} of the column are. Correct the value or leave it empty; if the column is text, "
                f"name it in source.text_columns."
            )

    def _parse(self, path: str, data: bytes, schema: pa.Schema) -> pa.Table:
        names = self._header(path)[0]
        types = {field.name: field.type for field in schema}
        table = _read(data, self._separator(path), names, schema.names or names[:1], types).select(
            schema.names
        )
        for index, field in enumerate(schema):
            if pa.types.is_string(field.type):
                column = table.column(index)
                filled = pc.if_else(pc.equal(column, ""), pa.scalar(None, field.type), column)
                table = table.set_column(index, field, filled)
        return table

    def _diagnose(self, path: str, row: bytes, schema: pa.Schema) -> str:
        names = self._header(path)[0]
        separator = self._separator(path)
        found = n_fields(row, separator)
        if found != len(names):
            return (
                f"{found} fields, but the header names {len(names)} columns. Mend the row, and put fields "
                f"that hold {separator!r} or line ends in double quotes."
            )
        for field in schema:
            try:
                _read(row, separator, names, [field.name], {field.name: field.type})
            except pa.ArrowInvalid:
                value = _read(row, separator, names, [field.name], {field.name: pa.string()})[field.name][
                    0
                ].as_py()
                return (
                    f"column {field.name!r}: {quote_value(value)} is not {field.type}, the type of the rows "
                    f"before. Correct the value or leave it empty; a larger source.shard_bytes lets more "
                    f"rows decide the type; source.text_columns reads a column as text."
                )
        return f"the row does not parse: {quote_value(row.decode())}. Mend it."


def _read(
    data: bytes, separator: str, names: list[str], columns: list[str], types: dict[str, pa.DataType]
) -> pa.Table:
    file, block_size = whole(data)
    return pv.read_csv(
        file,
        read_options=pv.ReadOptions(column_names=names, block_size=block_size),
        parse_options=pv.ParseOptions(delimiter=separator, newlines_in_values=True),
        convert_options=pv.ConvertOptions(include_columns=columns, column_types=types),
    )
