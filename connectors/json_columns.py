"""Which columns JSON lines have: the union of what is seen in samples, and what turns up outside of them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pyarrow as pa

KEY = re.compile(rb'"([^"\\]*)"\s*:')
"""A key without escapes; a text value never matches, as the quotes in it are escaped."""
MOST = 100
"""Keys that are named; data whose keys are values of their own have no end of them."""


def united(known: pa.Schema, other: pa.Schema) -> pa.Schema:
    """``known`` with the columns, also of structs, that only ``other`` has; nulls take its types."""
    return pa.schema(_united([*known], [*other]))


def _united(known: list[pa.Field], other: list[pa.Field]) -> list[pa.Field]:
    later = {field.name: field for field in other}
    found = [_wider(field, later.pop(field.name, field)) for field in known]
    return [*found, *later.values()]


def _wider(known: pa.Field, other: pa.Field) -> pa.Field:
    if pa.types.is_null(known.type):
        return other
    if pa.types.is_struct(known.type) and pa.types.is_struct(other.type):
        return known.with_type(pa.struct(_united([*known.type], [*other.type])))
    return known


def unread_keys(data: bytes, schema: pa.Schema) -> tuple[str, ...]:
    """Keys of JSON lines that no column of ``schema`` holds, sorted, at most ``MOST``; "a.b" is b inside a.

    Most data are looked through by a pattern alone: rows are parsed only where it finds an unknown key.
    """
    names = {name.encode() for name in _names([*schema])}
    if {*KEY.findall(data)} <= names:
        return ()
    found: set[str] = set()
    for row in data.splitlines():
        if not {*KEY.findall(row)} <= names:
            with suppress(ValueError):  # reading it says why
                found.update(_unread(json.loads(row), [*schema]))
        if len(found) >= MOST:
            break
    return tuple(sorted(found)[:MOST])


def _names(fields: list[pa.Field]) -> Iterator[str]:
    for field in fields:
        yield field.name
        yield from _names([field.type.field(index) for index in range(field.type.num_fields)])


def _unread(value: Any, fields: list[pa.Field]) -> Iterator[str]:
    known = {field.name: field.type for field in fields}
    for key, inner in value.items() if isinstance(value, dict) else ():
        if key not in known:
            yield key
        else:
            yield from (f"{key}.{name}" for name in _inside(inner, known[key]))


def _inside(value: Any, kind: pa.DataType) -> Iterator[str]:
    if pa.types.is_struct(kind):
        yield from _unread(value, [*kind])
    elif pa.types.is_list(kind):
        for inner in value if isinstance(value, list) else ():
            yield from _inside(inner, kind.value_type)
