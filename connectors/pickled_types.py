"""Refusal of columns whose values are pickled Python objects."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from connectors.errors import ConnectorError

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
    if isinstance(kind, pa.DictionaryType | pa.RunEndEncodedType):  # their values are no fields of theirs
        yield from _parts(pa.field(field.name, kind.value_type))
    for index in range(kind.num_fields):
        yield from _parts(kind.field(index))


def _extension(field: pa.Field) -> str:
    if isinstance(field.type, pa.BaseExtensionType):
        return str(field.type.extension_name)
    return ((field.metadata or {}).get(b"ARROW:extension:name") or b"").decode("utf-8", "replace")
