"""Digests of rows by the values of some source columns, for matching the rows of two versions.

Equal values give equal digests, whatever file, shard or Arrow type with the same meaning they are read from:
a column that is of whole numbers in one version and of floats in the other is compared as floats.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from connectors.foundation.messages import nearest
from engine.core.errors import InputError
from engine.plan.chain import CONTRACT
from engine.training.data.version import Version
from operators.columns import has_text, is_binary, is_number, plain_values

DIGEST_BYTES = 16


@dataclass(frozen=True)
class ComparedColumn:
    """A source column of both versions, and whether its types differ."""

    name: str
    types_differ: bool


def common_columns(before: Version, after: Version) -> tuple[ComparedColumn, ...]:
    """Return the source columns that two versions share, sorted by name."""
    then, now = _source_types(before), _source_types(after)
    return tuple(ComparedColumn(name, then[name] != now[name]) for name in sorted(then.keys() & now.keys()))


def named_columns(before: Version, after: Version, names: Sequence[str]) -> tuple[ComparedColumn, ...]:
    """Return the columns of a key. Raises InputError if a version has no such source column."""
    for version in (before, after):
        known = _source_types(version)
        for name in names:
            if name not in known:
                raise InputError(
                    f"--key {name}: the version {version.name} has no source column of this name."
                    f"{nearest(name, known) or ' It has: ' + ', '.join(known) + '.'}"
                )
    found = {column.name: column for column in common_columns(before, after)}
    return tuple(found[name] for name in dict.fromkeys(names))


def digests(table: pa.Table, columns: Sequence[ComparedColumn]) -> list[bytes]:
    """Return the digest of each row of a table by some of its columns."""
    texts: list[Any] = []
    others: list[list[bytes]] = []
    for column in columns:
        values = _plain(table.column(column.name), column.types_differ)
        if isinstance(values, list):
            others.append(values)
        else:
            size = pc.cast(pc.binary_length(values), pa.large_string())
            texts.append(_joined([pc.cast(size, pa.large_binary()), values], b":"))
    rows: list[Iterator[bytes]] = [iter(one) for one in others]
    if texts:
        marked = [pc.fill_null(text, pa.scalar(b"null", pa.large_binary())) for text in texts]
        rows.insert(0, iter(_joined(marked, b"|").to_pylist()))
    return [blake2b(b"".join(row), digest_size=DIGEST_BYTES).digest() for row in zip(*rows, strict=True)]


def key_texts(table: pa.Table, columns: Sequence[ComparedColumn]) -> pa.Array:
    """Return the key of each row as text, null where a column of it is null; several columns as a list."""
    values = [pc.cast(plain_values(table.column(column.name)), pa.string()).to_pylist() for column in columns]
    rows = zip(*values, strict=True)
    if len(values) == 1:
        return pa.array(values[0], pa.string())
    texts = [None if None in row else json.dumps(row, ensure_ascii=False) for row in rows]
    return pa.array(texts, pa.string())


def check_key_types(table: pa.Table, columns: Sequence[ComparedColumn]) -> None:
    """Raise InputError if a column of a key has values that are not plain values."""
    for column in columns:
        kind = plain_values(table.column(column.name)).type
        if not has_text(kind):
            raise InputError(
                f"--key {column.name}: the column has the type {kind}, which cannot be a key. Name a column "
                f"of texts, numbers or dates."
            )


def _source_types(version: Version) -> dict[str, str]:
    """Return the types of a version's source columns by their names."""
    manifest = version.manifest
    ours = {str(one["name"]) for one in manifest.get("outputs", ())}
    ours |= {version.prefix + field.name for field in CONTRACT}
    return {str(one["name"]): str(one["type"]) for one in manifest["schema"] if one["name"] not in ours}


def _joined(columns: Sequence[Any], mark: bytes) -> Any:
    """Join columns of large binaries; null where one of them is."""
    return pc.binary_join_element_wise(*columns, pa.scalar(mark, pa.large_binary()))


def _plain(column: pa.ChunkedArray, types_differ: bool) -> pa.ChunkedArray | list[bytes]:
    """Return the values as bytes: a column where Arrow can write them, else a list with a value per row."""
    column = plain_values(column)
    kind = column.type
    if is_binary(kind):
        return column.cast(pa.large_binary())
    if pa.types.is_fixed_size_list(kind) and not types_differ and _is_fixed_number(kind.value_type):
        return _fixed_rows(column)
    if not has_text(kind):
        return [_as_json(value) for value in column.to_pylist()]
    if types_differ and is_number(kind):
        column = pc.cast(column, pa.float64(), safe=False)
    elif types_differ and (pa.types.is_timestamp(kind) or pa.types.is_date(kind)):
        column = pc.cast(column, pa.timestamp("us"), safe=False)
    return pc.cast(pc.cast(column, pa.large_string()), pa.large_binary())


def _fixed_rows(column: pa.ChunkedArray) -> list[bytes]:
    """Return the bytes of lists of one length that hold numbers; lists with a null are written as JSON.

    The bytes of a list depend on it alone, not on the others of its shard.
    """
    lists = column.combine_chunks()
    size, valid = column.type.list_size, np.flatnonzero(lists.is_valid().to_numpy(zero_copy_only=False))
    values = lists.take(pa.array(valid)).flatten()
    with_null = values.is_null().to_numpy(zero_copy_only=False).reshape(len(valid), size).any(axis=1)
    filled = pc.fill_null(values, pa.scalar(0).cast(values.type)).to_numpy(zero_copy_only=False)
    found = [_as_json(None)] * len(lists)
    for row, numbers in zip(valid.tolist(), filled.reshape(len(valid), size), strict=True):
        found[row] = numbers.tobytes()
    for row in valid[with_null].tolist():
        found[row] = _as_json(lists[row].as_py())
    return found


def _as_json(value: Any) -> bytes:
    return json.dumps(value, default=str, sort_keys=True).encode() + b"\n"


def _is_fixed_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))
