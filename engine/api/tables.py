"""Tables in memory as the source of a recipe: any library's frame becomes one Parquet file."""

from __future__ import annotations

import hashlib
import os
import re
import sys
import uuid
import warnings
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from connectors.schema import map_type, usual_type
from engine.core.errors import InputError

ROW_GROUP_BYTES = 64 * 2**20
"""Size of a row group in memory. Shards are cut at row groups, so memory stays bounded by it."""


def as_arrow(data: Any) -> pa.Table:
    """Return a pandas, polars or Arrow table as an Arrow table with plain types.

    The index of a pandas DataFrame is left out, with a warning where it has a name. Long or view types become
    their plain form, so that the same values from any library give the same table.

    Raises
    ------
    InputError
        ``data`` is not a table, or a column holds values that Arrow cannot represent.

    """
    pandas = sys.modules.get("pandas")
    try:
        if isinstance(data, pa.Table):
            table = data
        elif pandas is not None and isinstance(data, pandas.DataFrame):
            _check_frame(data)
            table = pa.Table.from_pandas(data, preserve_index=False)
        elif hasattr(data, "__arrow_c_stream__"):
            table = pa.table(data)
        else:
            raise InputError(
                f"curate: data has the type {type(data).__name__}. Give a pandas or polars DataFrame, an "
                f"Arrow table, or the path of a dataset; a lazy frame needs .collect() first."
            )
        schema = pa.schema([pa.field(field.name, map_type(field.type, _plain)) for field in table.schema])
        plain = table.replace_schema_metadata(None).cast(schema)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise InputError(f"curate: data cannot be read as a table: {_reason(error)}") from None
    _check_names(plain.column_names)
    return plain


def _check_frame(frame: Any) -> None:
    """Warn of a named index, which is left out. Raises InputError for two columns of one name."""
    _check_names([str(name) for name in frame.columns])
    levels = [str(name) for name in frame.index.names if name is not None]
    if levels:
        warnings.warn(
            f"curate: the index ({', '.join(levels)}) is left out; data.reset_index() makes columns of it.",
            stacklevel=5,
        )


def _check_names(names: Sequence[str]) -> None:
    duplicates = sorted(name for name, count in Counter(names).items() if count > 1)
    if duplicates:
        raise InputError(
            f"curate: data has more than one column named {duplicates[0]!r}. Rename one of them."
        )


def _reason(error: Exception) -> str:
    """Return Arrow's message; for a pandas column of several types, its name and a remedy."""
    reason = " ".join("; ".join(map(str, error.args)).split())
    column = re.search(r"Conversion failed for column (.+) with type object$", reason)
    if column is None:
        return reason
    name = column[1]
    return (
        f"column {name!r} holds values that are not of one type ({reason.partition(';')[0]}). Give it one, "
        f"such as frame[{name!r}].astype(str), or drop it."
    )


def _plain(kind: pa.DataType) -> pa.DataType:
    """Return the usual type of texts and bytes, also in a dictionary, which gets 32-bit indices."""
    if pa.types.is_dictionary(kind):
        return pa.dictionary(pa.int32(), map_type(kind.value_type, _plain))
    return usual_type(kind)


def write_input(data: Any, folder: Path) -> Path:
    """Write a table to ``folder`` under a name that depends on its content, once; return the file.

    Curating the same values again therefore finds the same file, and what was computed is reused. Raises
    InputError for data that are no table, or have no rows.
    """
    table = as_arrow(data)
    if not table.num_rows:
        raise InputError("curate: data has no rows. Give a table with rows.")
    folder.mkdir(parents=True, exist_ok=True)
    scratch = folder / f".{uuid.uuid4().hex}.tmp"
    rows = max(1, int(table.num_rows * ROW_GROUP_BYTES / max(table.nbytes, 1)))
    try:
        pq.write_table(table, scratch, row_group_size=rows)
        with scratch.open("rb") as file:
            content = hashlib.file_digest(file, "sha256").hexdigest()
        target = folder / f"{content[:16]}.parquet"
        if not target.exists():
            os.replace(scratch, target)
    finally:
        scratch.unlink(missing_ok=True)
    return target
