"""Columns that the names of folders give, as Hive writes them: ``year=2024/part-0.parquet``."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from urllib.parse import unquote

import pyarrow as pa

from connectors.base import ConnectorError, SourceSpec
from connectors.locations import below

NULL = "__HIVE_DEFAULT_PARTITION__"
INTEGER = re.compile(r"-?[0-9]{1,18}")


def partition(spec: SourceSpec, path: str) -> dict[str, str | None]:
    """Return the columns that the folders between ``spec.path`` and a file name, and their values as text."""
    parts = (part.partition("=") for part in below(spec.path, path).split("/")[:-1])
    return {name: None if value == NULL else unquote(value) for name, mark, value in parts if name and mark}


def partition_schema(spec: SourceSpec, paths: Sequence[str]) -> pa.Schema:
    """Return the partition columns of all files: int64 if all values are whole numbers, else text.

    Columns in ``spec.text_columns`` are text. Raises ConnectorError if folders name different columns.
    """
    first = partition(spec, paths[0])
    seen: dict[str, bool] = dict.fromkeys(first, True)
    for path in paths:
        found = partition(spec, path)
        if list(found) != list(first):
            raise ConnectorError(
                f"{path} lies in folders that name the columns {list(found)}, {paths[0]} in ones that name "
                f"{list(first)}. Give all files the same folders, narrow source.path, or set "
                f"source.options.hive: false."
            )
        for name, value in found.items():
            seen[name] &= value is None or INTEGER.fullmatch(value) is not None
    number = {name for name, whole in seen.items() if whole and name not in spec.text_columns}
    return pa.schema([(name, pa.int64() if name in number else pa.string()) for name in first])


def digest(values: Mapping[str, str | None]) -> str:
    """Return the SHA-256 of a file's partition columns and their values."""
    return hashlib.sha256(json.dumps([*values.items()]).encode()).hexdigest()


def constant(spec: SourceSpec, path: str, schema: pa.Schema, n_rows: int) -> dict[str, pa.Array]:
    """Return a file's partition columns, those that ``schema`` has, with its types."""
    found = partition(spec, path)
    texts = {name: pa.scalar(found[name], pa.string()) for name in schema.names if name in found}
    return {name: pa.repeat(text.cast(schema.field(name).type), n_rows) for name, text in texts.items()}
