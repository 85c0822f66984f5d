"""Source columns that the example rows show beside the label: those that the sections are about first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import yaml

from connectors.foundation.messages import nearest
from engine.plan.model import Plan
from operators.columns import is_meant
from operators.report import SOURCE_COLUMN, RecipeChoices, ReportSection, ReportTable

MAX_FIELDS = 8
"""Columns that are shown unless the recipe names them."""
NESTED = (pa.types.is_nested, pa.types.is_binary, pa.types.is_large_binary)


def shown_fields(plan: Plan, sections: Sequence[ReportSection] = ()) -> tuple[list[str], list[str]]:
    """Choose the source columns to show in addition to the label; also return notes on missing ones.

    Without ``report.fields`` these are at most ``MAX_FIELDS``: first the columns that readers are asked
    about, such as suspected shortcuts and columns that the recipe names, then the most important ones, then
    the others in the order of the source.
    """
    schema, report, label = plan.listing.schema, plan.recipe.report, plan.recipe.source.label
    if report.fields is not None:
        missing = [name for name in report.fields if name not in schema.names]
        notes = [
            f"report.fields: the source has no column {name!r}.{nearest(name, schema.names)}"
            for name in missing
        ]
        return [name for name in report.fields if name not in missing and name != label], notes
    apart = {label, *plan.recipe.truth.columns}
    names = [f.name for f in schema if f.name not in apart]
    scalar = [name for name in names if not any(test(schema.field(name).type) for test in NESTED)]
    known = scalar or names
    first = [name for meant in named_columns(sections) for name in known if is_meant(name, meant)]
    return [*dict.fromkeys([*first, *known])][:MAX_FIELDS], []


def named_columns(sections: Sequence[ReportSection]) -> list[str]:
    """Return names, or patterns of names, of the columns that sections are about.

    Those of recipe choices come first, then those of tables whose first head is ``SOURCE_COLUMN``; each in
    their order.
    """
    content = [item for section in sections for item in section.content]
    choices = [item for part in content if isinstance(part, RecipeChoices) for item in part.items]
    asked = [name for choice in choices for name in _names(yaml.safe_load(choice.value))]
    tables = [
        item for item in content if isinstance(item, ReportTable) and [*item.columns[:1]] == [SOURCE_COLUMN]
    ]
    return [*asked, *(str(row[0]) for table in tables for row in table.rows)]


def _names(value: Any) -> Iterator[str]:
    """Yield the columns of an item of a recipe: a name, several of them, or a mapping with ``column``."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        yield from (name for one in value for name in _names(one))
    elif isinstance(value, dict):
        yield from _names(value.get("column"))
