"""Checks that texts of Arrow tables are UTF-8, which writers of Parquet and Arrow files need not ensure."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from connectors.base import CorruptError, SourceShard
from connectors.schema import is_list

BYTES_OF = {
    pa.string(): pa.binary(),
    pa.large_string(): pa.large_binary(),
    pa.string_view(): pa.binary_view(),
}
"""Types of texts, and the types as which their bytes can be seen."""


def check_texts(table: pa.Table, shard: SourceShard, first: int = 0) -> None:
    """Raise CorruptError for the first text that is not UTF-8, at any depth of a column.

    ``first`` is the row of the shard at which ``table`` begins. Raises pyarrow.ArrowInvalid for a column that
    is invalid in another way.
    """
    for name, column in zip(table.schema.names, table.columns, strict=True):
        if not _holds_texts(column.type):
            continue
        row = first
        for chunk in column.chunks:
            try:
                chunk.validate(full=True)
            except pa.ArrowInvalid:
                raise _fault(chunk, f"column {name!r}", shard, row) from None
            row += len(chunk)


def _fault(chunk: pa.Array, named: str, shard: SourceShard, first: int) -> CorruptError:
    """Return the error of a chunk with an invalid text. Raises ArrowInvalid if something else is invalid."""
    stored = chunk.view(_bytes_type(chunk.type))
    stored.validate(full=True)  # else a forged offset would be followed below
    text = "a text in it" if pa.types.is_nested(chunk.type) else "the text"
    for row, value in enumerate(stored):
        if bad := _bad_text(value.as_py(), chunk.type):
            return CorruptError(
                f"{shard.path}, row {shard.file_row + first + row}, {named}: byte {bad.start} of {text} "
                f"(0x{bad.object[bad.start]:02x}) is not UTF-8. Write the column again as UTF-8, or as "
                f"binary."
            )
    return CorruptError(
        f"{shard.rows_text}, {named}: a text that no row shows is not UTF-8. Write the file again."
    )


def _holds_texts(kind: pa.DataType) -> bool:
    """Return whether values of a type are texts, or hold some."""
    if pa.types.is_dictionary(kind):
        return _holds_texts(kind.value_type)
    return kind in BYTES_OF or any(_holds_texts(kind.field(place).type) for place in range(kind.num_fields))


def _bytes_type(kind: pa.DataType) -> pa.DataType:
    """Return a type with bytes in place of texts, as which an array can be seen without a copy."""
    if pa.types.is_dictionary(kind):
        return pa.dictionary(kind.index_type, _bytes_type(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_bytes_type(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(_bytes_type(kind.key_type), _bytes_type(kind.item_type))
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(_bytes_type(kind.value_type), kind.list_size)
    if pa.types.is_large_list(kind):
        return pa.large_list(_bytes_type(kind.value_type))
    return pa.list_(_bytes_type(kind.value_type)) if pa.types.is_list(kind) else BYTES_OF.get(kind, kind)


def _bad_text(value: Any, kind: pa.DataType) -> UnicodeDecodeError | None:
    """Return the error of the first text within a value whose texts are given as bytes."""
    if value is None:
        return None
    if kind in BYTES_OF:
        try:
            value.decode()
        except UnicodeDecodeError as error:
            return error
        return None
    if pa.types.is_dictionary(kind):
        return _bad_text(value, kind.value_type)
    if pa.types.is_struct(kind):
        parts = [(value[field.name], field.type) for field in kind]
    elif pa.types.is_map(kind):
        parts = [part for key, item in value for part in ((key, kind.key_type), (item, kind.item_type))]
    else:
        parts = [(item, kind.value_type) for item in value] if is_list(kind) else []
    return next((bad for item, own in parts if (bad := _bad_text(item, own))), None)
