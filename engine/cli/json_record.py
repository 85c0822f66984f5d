"""The base of the records that commands print with ``--json``, and records that several commands share."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict

Object = dict[str, Any]


class Record(BaseModel):
    """A JSON object with exactly these keys."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)


class LeakRecord(Record):
    """A source column that tells the label on its own."""

    name: str
    """Name of the column."""
    score: float
    """Balanced accuracy of the column alone on unseen rows."""
    chance: float
    """Balanced accuracy of a guess."""


class ExportRecord(Record):
    """An export of a version to a table."""

    format: str
    """delta, hf, iceberg, lance or parquet."""
    path: str
    """Path or name of the table."""
    state: str
    """The table's own name for its state with the version."""
    written: bool
    """False where the table had the version already."""
