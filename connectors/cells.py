"""Normalises cells: white space around texts, words for "missing", separators of thousands.

CSV cells are rewritten before their types are guessed, so that ``" 1"`` is a number and ``"?"`` is null. In
JSON lines, values that are one of the words become ``null``. Text columns of all formats are cleaned after
reading.
"""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pv

from connectors.base import SourceSpec
from connectors.text_encoding import keeping_mark

NULLS = tuple(pv.ConvertOptions().null_values)
"""Texts that Arrow takes for a missing number: an empty cell, ``NA``, ``NaN``, ``null`` and the like."""
SYNTAX = set(',:{}[]"\\')
"""Characters of JSON's syntax."""


@dataclass(frozen=True)
class CellRules:
    """Rules by which the cells of a CSV file are read."""

    strip: bool = False
    """Whether to drop white space around every cell."""
    missing: tuple[str, ...] = ()
    """Texts that stand for null."""
    decimal: str = "."
    """Decimal point of numbers."""
    thousands: str | None = None
    """Separator of groups of three digits."""

    @property
    def rewrites(self) -> bool:
        """Return whether cells have to be rewritten before Arrow can infer their types."""
        return self.strip or self.thousands is not None

    @property
    def null_values(self) -> list[str]:
        """Cells that are null in columns which are not text."""
        return [*NULLS, *self.missing]

    @property
    def number(self) -> str:
        """Regular expression of a number, a word for a missing number, or an infinite number.

        It is used by the engines of Python and of Arrow. No text matches it in two ways, because the time of
        Python's engine would then grow with the square of the text's length.
        """
        point = re.escape(self.decimal)
        digits = rf"\d+(?:{point}\d*)?|{point}\d+"
        if self.thousands is not None:
            digits += rf"|[1-9]\d{{0,2}}({re.escape(self.thousands)}\d{{3}})+({point}\d*)?"
        words = "|".join(["nan", "n/a", "na", "null", "[+-]?inf(inity)?", *map(re.escape, self.missing)])
        return rf"^\s*([+-]?({digits})([eE][+-]?\d+)?|(?i:{words}))\s*$"

    def rewritten(
        self,
        data: bytes,
        separator: str,
        names: list[str],
        columns: list[str],
        numeric: frozenset[str] | None,
    ) -> bytes:
        """Return the rows, only ``columns`` of them, with cells that Arrow can parse.

        Parameters
        ----------
        data : rows of CSV without a header.
        separator : character between two cells.
        names : names of all columns.
        columns : names of the columns to keep, in the order of the result.
        numeric : names of the columns of numbers; None if they are not known yet.

        Raises
        ------
        pyarrow.ArrowInvalid
            A row has another number of cells than there are names.
        """
        table = read_rows(data, separator, names, columns, dict.fromkeys(columns, pa.string()))
        for index, name in enumerate(columns):
            column = table.column(index)
            if self.strip:
                column = pc.utf8_trim_whitespace(column)
            if self.thousands is not None and self._is_numeric(column, name, numeric):
                column = self._joined(column)
            table = table.set_column(index, name, column)
        file = io.BytesIO()
        pv.write_csv(table, file, pv.WriteOptions(include_header=False, delimiter=separator))
        return file.getvalue()

    def _is_numeric(self, column: pa.ChunkedArray, name: str, numeric: frozenset[str] | None) -> bool:
        if numeric is not None:
            return name in numeric
        looks = pc.or_(pc.match_substring_regex(column, self.number), pc.equal(column, ""))
        return bool(pc.all(looks, min_count=1).as_py())

    def _joined(self, column: pa.ChunkedArray) -> pa.ChunkedArray:
        """Return a column in which numbers have no separators of thousands; other texts are unchanged."""
        mark, point = re.escape(self.thousands or ""), re.escape(self.decimal)
        grouped = pc.match_substring_regex(
            column, rf"^\s*[+-]?[1-9]\d{{0,2}}({mark}\d{{3}})+({point}\d*)?\s*$"
        )
        return pc.if_else(grouped, pc.replace_substring(column, self.thousands or "", ""), column)


def read_rows(
    data: bytes,
    separator: str,
    names: list[str],
    columns: list[str],
    types: dict[str, pa.DataType],
    rules: CellRules | None = None,
) -> pa.Table:
    """Parse rows of CSV. Raises pyarrow.ArrowInvalid where they do not fit.

    Parameters
    ----------
    data : rows without a header.
    separator : character between two cells.
    names : names of all columns.
    columns : names of the columns to return.
    types : types of columns; those of the others are guessed.
    rules : rules for null values and decimal points; by default the standard ones.
    """
    rules = rules or CellRules()
    data = keeping_mark(data)
    return pv.read_csv(
        io.BytesIO(data),
        read_options=pv.ReadOptions(column_names=names, block_size=max(len(data) + 1, 1024)),
        parse_options=pv.ParseOptions(delimiter=separator, newlines_in_values=True),
        convert_options=pv.ConvertOptions(
            include_columns=columns,
            column_types=types,
            null_values=rules.null_values,
            decimal_point=rules.decimal,
        ),
    )


def nulls_for_missing(data: bytes, spec: SourceSpec) -> bytes:
    """Return JSON lines in which values that ``spec.missing`` names are ``null``.

    Words with characters of JSON's syntax are left to :class:`connectors.cleaned.Cleaned`.
    """
    words = [word.strip() if spec.strip else word for word in spec.missing if not SYNTAX & set(word)]
    if not words:
        return data
    # A possessive quantifier: backtracking over white space would take quadratic time.
    space = r"\s*+" if spec.strip else ""
    found = "|".join(re.escape(word) for word in words)
    return re.sub(rf'(:\s*)"{space}(?:{found}){space}"(?=\s*[,}}])'.encode(), rb"\1null", data)


def clean_texts(column: pa.ChunkedArray, missing: Sequence[str], strip: bool) -> pa.ChunkedArray:
    """Return texts with white space around them removed (``strip``) and those in ``missing`` as null."""
    if strip:
        column = pc.utf8_trim_whitespace(column)
    if missing:
        found = pc.is_in(column, value_set=pa.array(list(missing), column.type))
        column = pc.if_else(found, pa.scalar(None, column.type), column)
    return column


def is_text(kind: pa.DataType) -> bool:
    """Return whether values of a type are texts."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))
