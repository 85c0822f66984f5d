"""Parameters of ``ingest``; the engine fills them from the recipe's ``source`` section."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from operators.base import OperatorParams


class IngestParams(OperatorParams):
    """Columns of label and features, and the treatment of rows without a usable value."""

    execution_only: ClassVar[frozenset[str]] = frozenset({"resources", "max_error_rate"})

    label: str
    """Column with the class of each row."""
    features: tuple[str, ...] | None = Field(min_length=1)
    """Numeric, bool or numeric-vector columns; null where another operator adds ``x``."""
    classes: tuple[str | int | bool, ...] | None = Field(default=None, min_length=2)
    """Allowed labels, in the order of their class index."""
    on_error: Literal["fail", "quarantine"] = "fail"
    """Treatment of a faulty row: end the run, or set the row aside."""
    max_error_rate: float = Field(default=0.01, ge=0, le=1)
    """Share of rows that may be quarantined; the engine checks it."""
