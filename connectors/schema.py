"""Schemas of sources: one for many files, a part of it, and tables with its types."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pyarrow as pa

from connectors.column_names import check_same_names
from connectors.errors import ConnectorError
from connectors.foundation.messages import nearest

USUAL = {
    pa.large_string(): pa.string(),
    pa.string_view(): pa.string(),
    pa.large_binary(): pa.binary(),
    pa.binary_view(): pa.binary(),
}
"""Types of texts and bytes, and the usual type of the same values."""


def is_list(kind: pa.DataType) -> bool:
    """Return whether an Arrow type holds lists, of any or of a fixed length."""
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def merged(schemas: Mapping[str, pa.Schema]) -> pa.Schema:
    """Return one schema for files, by path, that holds all of their types (int32 to int64, int to float, null
    to any); columns are in the order of the first file.

    Raises
    ------
    ConnectorError
        A column is missing in one of the files, or its two types have no common one.
    """
    first = next(iter(schemas))
    fields = list(schemas[first])
    for path, schema in schemas.items():
        check_same_names(path, schema.names, first, [field.name for field in fields])
        fields = [_common(path, schema.field(field.name), first, field) for field in fields]
    return pa.schema(fields)


def _common(path: str, field: pa.Field, first_path: str, so_far: pa.Field) -> pa.Field:
    if field.type == so_far.type:
        return so_far
    try:
        (found,) = pa.unify_schemas([pa.schema([so_far]), pa.schema([field])], promote_options="permissive")
    except pa.ArrowException as error:
        raise ConnectorError(
            f"{path}: column {field.name!r} has type {field.type}, but {so_far.type} in {first_path}. "
            f"Write the column with one type in all files, or narrow source.path."
        ) from error
    return found


def pick(schema: pa.Schema, columns: Sequence[str], where: str) -> pa.Schema:
    """Return ``schema`` cut down to ``columns``, in their order. Raises ConnectorError with the
    nearest name.
    """
    known = frozenset(schema.names)
    for name in columns:
        if name not in known:
            raise ConnectorError(
                f"{where} has no column {name!r}.{nearest(name, schema.names)} "
                f"Its columns: {', '.join(schema.names[:20])}{', ...' if len(schema.names) > 20 else ''}."
            )
    return pa.schema([schema.field(name) for name in columns])


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """Return names and types alone, without what pandas and others write beside them; no view types.

    Lists that are views are plain lists, and JSON is text.

    Dictionaries have indices of 32 bits. A file's own may have 8, and all files together have more values
    than these count.
    """
    return pa.schema([pa.field(field.name, _plain(field.type)) for field in schema])


def _plain(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_list_view(kind):
        return pa.list_(_plain_texts(kind.value_type))
    if pa.types.is_large_list_view(kind):
        return pa.large_list(_plain_texts(kind.value_type))
    if isinstance(kind, pa.JsonType):
        return _plain(kind.storage_type)
    return _plain_texts(kind)


def _plain_texts(kind: pa.DataType) -> pa.DataType:
    """Return a type without views of texts or bytes within lists, structs, maps and dictionaries."""
    if pa.types.is_dictionary(kind):
        return pa.dictionary(pa.int32(), _plain_texts(kind.value_type), kind.ordered)
    if pa.types.is_struct(kind):
        return pa.struct([_plain_field(field) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(_plain_field(kind.key_field), _plain_field(kind.item_field), kind.keys_sorted)
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(_plain_field(kind.value_field), kind.list_size)
    if pa.types.is_large_list(kind):
        return pa.large_list(_plain_field(kind.value_field))
    if pa.types.is_list(kind):
        return pa.list_(_plain_field(kind.value_field))
    plain = {pa.string_view(): pa.large_string(), pa.binary_view(): pa.large_binary()}
    return plain.get(kind, kind)


def _plain_field(field: pa.Field) -> pa.Field:
    return field.with_type(_plain_texts(field.type))


def is_list_view(kind: pa.DataType) -> bool:
    """Return whether an Arrow type holds lists by their place and length, which may overlap."""
    return bool(pa.types.is_list_view(kind) or pa.types.is_large_list_view(kind))


def _plain_lists(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column of list views as plain lists. Arrow's own cast loses values behind a null."""
    kind = _plain(column.type)
    make, offset = (
        (pa.LargeListArray, pa.int64()) if pa.types.is_large_list(kind) else (pa.ListArray, pa.int32())
    )
    chunks = []
    for chunk in column.chunks:
        present = chunk.is_valid().to_numpy(zero_copy_only=False)
        sizes = np.where(present, chunk.sizes.to_numpy(zero_copy_only=False), 0)
        if chunk.values.type != kind.value_type:  # Arrow does not choose among views of texts
            values, lengths = chunk.values.cast(kind.value_type), pa.array(sizes, chunk.sizes.type)
            chunk = type(chunk).from_arrays(chunk.offsets, lengths, values)
        ends = pa.array(np.concatenate([[0], np.cumsum(sizes)]), offset)
        chunks.append(make.from_arrays(ends, chunk.flatten(), mask=pa.array(~present)))
    return pa.chunked_array(chunks, kind)


def map_type(kind: pa.DataType, replace: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    """Return a type with ``replace`` of it, or of the types within it if it is a list or a struct."""
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(map_type(kind.value_type, replace), kind.list_size)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(map_type(kind.value_type, replace))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, map_type(field.type, replace)) for field in kind])
    return replace(kind)


def usual_type(kind: pa.DataType) -> pa.DataType:
    """Return the type of texts or bytes without 64-bit offsets and views, also in lists and structs."""
    return map_type(kind, lambda one: USUAL.get(one, one))


def cast_table(table: pa.Table, schema: pa.Schema, where: str) -> pa.Table:
    """Cast the table's columns to the types of ``schema``; ``where`` names the rows in an error.

    Raises ConnectorError for a column whose values do not fit.
    """
    columns = []
    for field in schema:
        column = table[field.name]
        try:
            plain = _plain_lists(column) if is_list_view(column.type) else column
            columns.append(plain.cast(field.type))
        except pa.ArrowException as error:
            raise ConnectorError(
                f"{where}, column {field.name!r}: {column.type} values do not fit {field.type}: "
                f"{str(error).splitlines()[0].rstrip('. ')}. Write the column with one type in all files."
            ) from error
    return table.select([]) if not columns else pa.table(columns, schema=schema)
