"""Names that outputs carried before the product was called Rowsieve; they are read, never written."""

from __future__ import annotations

from collections.abc import Mapping

PREFIX, LEGACY_PREFIX = "rowsieve.", "winnow."


def tag_names(name: str) -> tuple[str, str]:
    """Return both names of a tag on MLflow: the one written today, then the former one."""
    return name, LEGACY_PREFIX + name.removeprefix(PREFIX)


def tag_value(tags: Mapping[str, str], name: str) -> str | None:
    """Return the value of a tag under today's or the former name, else None."""
    return next((tags[known] for known in tag_names(name) if known in tags), None)
