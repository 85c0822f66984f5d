"""Column names and types: agreeing over files, and named with the nearest match when wrong."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, count

import pyarrow as pa

from connectors.errors import ConnectorError, nearest


def number_repeated(names: Sequence[str]) -> list[str]:
    """Return names as pandas tells them apart: x, x.1, x.2; a number that is taken is left out."""
    found: list[str] = []
    for name in names:
        numbered = (f"{name}.{n}" for n in count(1) if f"{name}.{n}" not in names)
        found.append(next(one for one in chain([name], numbered) if one not in found))
    return found


def number_if_renamed(names: Sequence[str], renamed: Sequence[str]) -> list[str]:
    """Return the names of a file's columns, numbered where ``source.rename`` names all that come later.

    ``renamed`` are the old names of ``source.rename``, such as ``x.1`` for the second column ``x``.
    """
    numbered = number_repeated(names)
    return numbered if {*numbered} - {*names} <= {*renamed} else [*names]


def rename_remedy(names: Sequence[str]) -> str:
    """Return the remedy for columns of one name."""
    later = [new for old, new in zip(names, number_repeated(names), strict=True) if old != new]
    pairs = ", ".join(f"{name}: NAME" for name in later[:3]) + (", ..." if len(later) > 3 else "")
    return f"Name the later ones with source.rename: {{{pairs}}}"


def with_names(schema: pa.Schema, names: Sequence[str]) -> pa.Schema:
    """Return the schema with other names for its columns."""
    return pa.schema([field.with_name(name) for field, name in zip(schema, names, strict=True)])


def check_names(path: str, names: Sequence[str], or_else: str = "", key: str = "") -> None:
    """Raise ConnectorError if a column has no name or two have the same.

    ``or_else`` are the remedies for two of one name, and ``key`` is the setting that names those without one.
    """
    twice = [name for name, times in Counter(names).items() if times > 1 and (name or not key)]
    if twice:
        places = ", ".join(str(i + 1) for i, name in enumerate(names) if name == twice[0])
        raise ConnectorError(
            f"{path}: the column name {twice[0]!r} is there more than once (columns {places})"
            f"{_also(twice[1:])}. {or_else or 'Rename one of them'}."
        )
    if "" in names:
        raise ConnectorError(
            f"{path}: column {names.index('') + 1} has no name. Name it in the header, or drop it "
            f"(pandas writes such an index column unless told index=False)"
            f"{f'; {key} numbers it' if key else ''}."
        )


def _also(names: Sequence[str]) -> str:
    return f", as {'are' if len(names) > 1 else 'is'} {', '.join(map(repr, names[:5]))}" if names else ""


PICKLED = ("ray.data.arrow_pickled_object", "arrow.py_extension_type")
"""Extension types whose values, or whose very type, are pickled Python: to read them is to run them."""


def check_types(path: str, schema: pa.Schema) -> None:
    """Raise ConnectorError if a column, or anything in it, is of a type that holds pickled objects."""
    for field in schema:
        found = next((name for part in _parts(field) if (name := _extension(part)) in PICKLED), "")
        if found:
            raise ConnectorError(
                f"{path}: column {field.name!r} holds pickled Python objects ({found}), and reading those "
                f"would run whatever their writer put in. Write plain numbers, text, lists or images instead."
            )


def _parts(field: pa.Field) -> Iterator[pa.Field]:
    yield field
    kind = field.type
    if isinstance(kind, pa.BaseExtensionType):
        yield from _parts(pa.field(field.name, kind.storage_type))
    for index in range(kind.num_fields):
        yield from _parts(kind.field(index))


def _extension(field: pa.Field) -> str:
    if isinstance(field.type, pa.BaseExtensionType):
        return str(field.type.extension_name)
    return ((field.metadata or {}).get(b"ARROW:extension:name") or b"").decode("utf-8", "replace")


def check_same_names(path: str, names: Sequence[str], first_path: str, first_names: Sequence[str]) -> None:
    """Raise ConnectorError if two files' column names differ; their order may."""
    for name in first_names:
        if name not in names:
            raise ConnectorError(
                f"{path} has no column {name!r}, which {first_path} has.{nearest(name, names)} "
                f"Give all files the same columns, or narrow source.path."
            )
    for name in names:
        if name not in first_names:
            raise ConnectorError(
                f"{path} has a column {name!r}, which {first_path} has not.{nearest(name, first_names)} "
                f"Give all files the same columns, or narrow source.path."
            )


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
    for name in columns:
        if name not in schema.names:
            raise ConnectorError(
                f"{where} has no column {name!r}.{nearest(name, schema.names)} "
                f"Its columns: {', '.join(schema.names[:20])}{', ...' if len(schema.names) > 20 else ''}."
            )
    return pa.schema([schema.field(name) for name in columns])


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """Return names and types alone, without what pandas and others write beside them; no view types."""
    plain = {pa.string_view(): pa.large_string(), pa.binary_view(): pa.large_binary()}
    return pa.schema([pa.field(field.name, plain.get(field.type, field.type)) for field in schema])


def cast_table(table: pa.Table, schema: pa.Schema, where: str) -> pa.Table:
    """Cast the table's columns to the types of ``schema``; ``where`` names the rows in an error.

    Raises ConnectorError for a column whose values do not fit.
    """
    columns = []
    for field in schema:
        column = table[field.name]
        try:
            columns.append(column.cast(field.type))
        except pa.ArrowException as error:
            raise ConnectorError(
                f"{where}, column {field.name!r}: {column.type} values do not fit {field.type}: "
                f"{str(error).splitlines()[0].rstrip('. ')}. Write the column with one type in all files."
            ) from error
    return table.select([]) if not columns else pa.table(columns, schema=schema)
