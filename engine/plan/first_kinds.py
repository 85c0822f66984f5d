"""Kinds of text columns that a drafted recipe names: amounts, durations, and dates with names of months."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from engine.plan.doubtful_values import TEXT_REASONS
from engine.plan.source_columns import SourceColumn
from operators.encode.amount_use import amounts_in
from operators.encode.amounts import MAX_UNREAD_SHARE
from operators.encode.column_use import Kind
from operators.encode.durations import are_durations
from operators.encode.hints import date_format
from operators.encode.sketches import ValueCounts


def with_kinds(
    operators: Mapping[str, dict[str, Any]], columns: Sequence[SourceColumn]
) -> dict[str, dict[str, Any]]:
    """Return the operators, of which ``encode`` names the columns of amounts, durations and dates in text."""
    found = {
        column.name: _kind_of(column.summary.values)
        for column in columns
        if (column.use.kind == Kind.CATEGORICAL or column.use.reason in TEXT_REASONS)
        and column.summary is not None
        and column.summary.values is not None
    }
    kinds = {name: kind for name, kind in found.items() if kind}
    if not kinds or "embed" in operators:
        return dict(operators)
    return {**operators, "encode": {**operators.get("encode", {}), "columns": kinds}}


def _kind_of(values: ValueCounts) -> str | dict[str, str]:
    """Return how a recipe says what texts are; empty for categories."""
    if are_durations(values):
        return str(Kind.DURATION)
    if amounts_in(values, max_bare_share=MAX_UNREAD_SHARE) is not None:
        return str(Kind.AMOUNT)
    format = date_format(values)
    return {"format": format} if format else ""
