"""Names that exports carried before the product was called Rowsieve; they are read, never written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

VERSION, CONTENT = "rowsieve.version", "rowsieve.content"
"""Keys in a table's own metadata: a version's name, and the digest of its bytes."""
LEGACY_VERSION, LEGACY_CONTENT = "winnow.version", "winnow.content"
LEGACY_RECORD = "_winnow.json"
"""Record file of a Parquet export."""


def content_of(properties: Mapping[str, Any] | None) -> str | None:
    """Return the digest that a table's metadata name under today's or the former key, else None."""
    return _value(properties or {}, CONTENT, LEGACY_CONTENT)


def version_of(properties: Mapping[str, Any] | None) -> str | None:
    """Return the version's name that a table's metadata hold under today's or the former key, else None."""
    return _value(properties or {}, VERSION, LEGACY_VERSION)


def _value(properties: Mapping[str, Any], key: str, former: str) -> str | None:
    found = properties.get(key, properties.get(former))
    return None if found is None else str(found)


def application_names(content: str) -> tuple[str, str]:
    """Return the Delta application names of an export: the one written today, then the former one."""
    return f"rowsieve-{content}", f"winnow-{content}"
