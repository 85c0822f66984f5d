"""All fitted columns together: a table of source columns to one matrix of features."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from operators.arrays import Float32
from operators.base import REASON
from operators.bounded_json import BadJsonError, read_json
from operators.encode.categories import CategoryEncoding
from operators.encode.datetimes import DatetimeEncoding
from operators.encode.numeric import NumberEncoding
from operators.encode.tags import TagsEncoding
from operators.encode.targets import TargetTable
from operators.encode.vectors import TextEncoding, VectorEncoding
from operators.encode.words import Encoding, Words, words_of
from operators.encoded_features import STATE, Output
from operators.ingest.kernel import Codes, Reason, explain_value


@dataclass(frozen=True)
class TableEncoding:
    """The fitted columns in the order of their features.

    Attributes
    ----------
    columns : encodings of the columns that are used.
    about : further values of the state: the use and summary of every column, the seed and the rows.
    """

    columns: tuple[Encoding, ...]
    about: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def outputs(self) -> list[Output]:
        """Return the features, with the source column of each."""
        return [output for column in self.columns for output in column.outputs]

    @property
    def sources(self) -> list[str]:
        """Columns that are read."""
        return [column.source for column in self.columns]

    def words(self, missing: Collection[str] = ()) -> dict[int, Words]:
        """Return the words for cuts of the features, by position; features without words are left out.

        Parameters
        ----------
        missing : columns that have missing values.
        """
        found = (word for one in self.columns for word in words_of(one, has_missing=one.source in missing))
        return {place: word for place, word in enumerate(found) if word is not None}

    def transform(self, table: pa.Table, folds: npt.NDArray[np.int64] | None = None) -> tuple[Float32, Codes]:
        """Encode the rows of a table.

        Parameters
        ----------
        table : the source columns.
        folds : fold of each row (n,) where the class shares were counted on these rows; else None.

        Returns
        -------
        x, codes
            (n, d) float32, and (n, len(columns)) the reason of each value that cannot be used. Rows with a
            reason have no meaning in ``x``.
        """
        x = np.zeros((table.num_rows, len(self.outputs)), np.float32)
        codes = np.zeros((table.num_rows, len(self.columns)), np.uint8)
        start = 0
        for index, encoding in enumerate(self.columns):
            width = len(encoding.outputs)
            block, reasons = x[:, start : start + width], codes[:, index]
            if isinstance(encoding, CategoryEncoding):
                encoding.encode(table[encoding.source], block, reasons, folds)
            else:
                encoding.encode(table[encoding.source], block, reasons)
            start += width
        return x, codes

    def faults(self, table: pa.Table, codes: Codes) -> pa.Array:
        """Return the first reason of every faulty row as the column ``x_fault``, null for the others."""
        bad = np.flatnonzero(codes.any(axis=1))
        if not len(bad):
            return pa.nulls(table.num_rows, REASON)
        reasons: list[dict[str, str] | None] = [None] * table.num_rows
        for row in bad.tolist():
            index = int(np.flatnonzero(codes[row])[0])
            encoding = self.columns[index]
            width = encoding.width if isinstance(encoding, VectorEncoding) else 1
            reason = Reason(int(codes[row, index]))
            value, error = explain_value(table[encoding.source], row, reason, width)
            reasons[row] = {"column": encoding.source, "value": value, "error": error}
        return pa.array(reasons, REASON)

    def save(self, folder: Path) -> None:
        """Write ``encoding.json``, and one Parquet file for each table of class shares."""
        entries = []
        for index, encoding in enumerate(self.columns):
            entry = encoding.to_json()
            if isinstance(encoding, CategoryEncoding) and encoding.target is not None:
                file = target_file(index)
                encoding.target.save(folder / file)
                entry["target"] = {
                    "file": file,
                    "names": list(encoding.target.names),
                    "smoothing": encoding.target.smoothing,
                }
            entries.append(entry)
        state = {
            **self.about,
            "outputs": [output.to_json() for output in self.outputs],
            "encodings": entries,
        }
        (folder / STATE).write_text(json.dumps(state, indent=1, ensure_ascii=False), "utf-8")

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Read what :meth:`save` wrote. Raises BadJsonError for other values, or names of files."""
        path = folder / STATE
        state = read_json(path)
        try:
            columns = tuple(_read(entry, folder, index) for index, entry in enumerate(state.pop("encodings")))
            return cls(columns, state)
        except BadJsonError:
            raise
        except (KeyError, TypeError, AttributeError, IndexError, ValueError) as error:
            reason = " ".join(f"{type(error).__name__}: {error}".split())[:200]
            raise BadJsonError(path, f"it is not an encoding of columns ({reason})") from error


def target_file(index: int) -> str:
    """Return the name of the file with the class shares of a column."""
    return f"target-{index}.parquet"


def _read(entry: dict[str, Any], folder: Path, index: int) -> Encoding:
    kind = entry["type"]
    if kind == "category":
        about = entry.get("target")
        if about and about["file"] != target_file(index):  # a forged name could lead to any file
            why = f"it names the file {about['file']!r} for column {index}, and not {target_file(index)}"
            raise BadJsonError(folder / STATE, why)
        target = about and TargetTable.load(folder / target_file(index), about["names"], about["smoothing"])
        return CategoryEncoding.from_json(entry, target)
    readers: Mapping[str, Any] = {
        "number": NumberEncoding,
        "datetime": DatetimeEncoding,
        "tags": TagsEncoding,
        "vector": VectorEncoding,
        "text": TextEncoding,
    }
    found: Encoding = readers[kind].from_json(entry)
    return found
