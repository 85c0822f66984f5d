"""Uses of a source column, and the reasons and remedies for columns that are not used.

:mod:`operators.encode.kinds` decides between them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import pyarrow as pa

from operators.embed.params import missing_packages
from operators.encode.amounts import Decimal
from operators.encode.column_forms import Form, form_of
from operators.encode.images import FORMATS
from operators.encode.summary import ColumnSummary
from operators.yaml_text import inline_entry


class Kind(StrEnum):
    """Use of a column as features."""

    NUMERIC = "numeric"
    AMOUNT = "amount"
    """Numbers in texts with a currency, a unit or thousands marks: a recipe asks for it, and gets numbers."""
    DURATION = "duration"
    """Lengths of time in texts: a recipe asks for it, and gets seconds."""
    BOOLEAN = "boolean"
    CATEGORICAL = "categorical"
    DATETIME = "datetime"
    TEXT = "text"
    VECTOR = "vector"
    TAGS = "tags"
    """Lists of texts."""
    IMAGE = "image"
    UNUSED = "unused"


class Unused(StrEnum):
    """Reasons for which a column is not used."""

    IDENTIFIER = "identifier"
    WRITTEN = "not read in this form"
    """Distinct texts that are amounts or dates, which are read only if the recipe says so."""
    CONSTANT = "constant"
    LABEL = "label"
    TRUTH = "truth"
    EXCLUDED = "excluded"
    MISSING = "all missing"
    RANGE = "no usable number"
    TEXT = "text without a model"
    IMAGE = "image"
    TYPE = "unsupported type"


@dataclass(frozen=True)
class KindOptions:
    """Options of the recipe that decide the kind of a column together with its summary.

    Attributes
    ----------
    kind : kind that the recipe gives the column, ``unused`` for an excluded one; None to decide by the
        values.
    explicit : whether the recipe names the column as a feature: it is used then even if it looks like an
        identifier.
    text_model : whether the recipe names a network for free text, installed here or not: the same recipe
        gives the same features on every machine, or an error.
    date_format : format of dates in text that the recipe gives; empty to recognise it.
    decimal : decimal mark of amounts that the recipe gives; None to find it in the values.
    """

    kind: Kind | None = None
    explicit: bool = False
    text_model: bool = False
    date_format: str = ""
    decimal: Decimal | None = None

    @property
    def may_be_identifier(self) -> bool:
        """Return whether the values decide if the column is an identifier."""
        return self.kind is None and not self.explicit


@dataclass(frozen=True)
class ColumnUse:
    """The decision about one column.

    Attributes
    ----------
    kind : how the column is used.
    reason : why it is unused; None for a column that is used.
    note : a sentence for people: for an unused column the reason with the remedy, else what was recognised;
        may be empty.
    parameters : what the encoding needs: ``parse`` (``number``, ``amount`` or a format of dates) for numbers
        and dates in text, ``words``, the texts among numbers that count as missing values, and ``rule``, how
        amounts are read.
    warning : a sentence for people about a column whose use may be wrong, with the remedy; may be empty.
    """

    kind: Kind
    reason: Unused | None = None
    note: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    warning: str = ""

    @property
    def used(self) -> bool:
        """Return whether the column gives features."""
        return self.kind != Kind.UNUSED

    def to_json(self) -> dict[str, Any]:
        """Return the decision as JSON-able values."""
        return {
            "kind": str(self.kind),
            "reason": None if self.reason is None else str(self.reason),
            "note": self.note,
            "parameters": dict(self.parameters),
            "warning": self.warning,
        }


def unused(reason: Unused, note: str) -> ColumnUse:
    """Return the decision not to use a column."""
    return ColumnUse(Kind.UNUSED, reason, note)


def unused_identifier(summary: ColumnSummary) -> ColumnUse:
    """Return the decision not to use a column that identifies or numbers the rows."""
    about = "" if summary.is_exact else "about "
    distinct = min(summary.distinct, summary.present)  # an estimate may exceed the rows
    no_order = len(summary.large) > 0 or 2 * summary.distinct < summary.present
    is_number = summary.form not in (Form.TEXT, Form.CATEGORY) and not no_order
    kind = Kind.NUMERIC if is_number else Kind.CATEGORICAL
    return unused(
        Unused.IDENTIFIER,
        f"{about}{distinct:,} distinct values in {summary.present:,} rows; used if "
        f"operators.encode.columns says `{inline_entry(summary.name, str(kind))}`",
    )


def unused_range(summary: ColumnSummary) -> ColumnUse:
    """Return the decision not to use numbers that are all infinite or beyond float32."""
    beyond = summary.unusable - summary.infinite
    parts = [f"{summary.infinite:,} are infinite"] * bool(summary.infinite)
    parts += [f"{beyond:,} are beyond the range of float32 (3.4e38)"] * bool(beyond)
    return unused(
        Unused.RANGE,
        f"of its {summary.present:,} numbers {' and '.join(parts)}; scale it at the source, such as by its "
        "logarithm",
    )


def unused_large_integers(summary: ColumnSummary) -> ColumnUse:
    """Return the decision not to use whole numbers that float64 rounds to a single one."""
    about = "" if summary.is_exact else "about "
    return unused(
        Unused.IDENTIFIER,
        f"{about}{summary.distinct:,} distinct whole numbers beyond 2^53, which as features are one number; "
        f"used if operators.encode.columns says `{inline_entry(summary.name, 'categorical')}`",
    )


def ragged_note(summary: ColumnSummary) -> str:
    """Return why lists of numbers cannot be used as vectors, with the remedy."""
    rows = summary.present - summary.other_widths
    about = (
        f"{rows:,} of {summary.present:,} rows have {summary.width:,} numbers" if summary.width else "many"
    )
    return (
        f"its lists have different lengths ({about}): write vectors of one length at the source, or figures "
        f"such as their mean as columns"
    )


def unused_text() -> ColumnUse:
    """Return the decision not to use free text, for which there is no network."""
    return unused(
        Unused.TEXT,
        "free text needs a network: pip install 'rowsieve[embed]', and `encode: {text: {model: minilm}}`",
    )


def missing_network(model: str) -> str:
    """Return what this machine lacks to read free text by a network, with the remedy; empty if nothing."""
    missing = missing_packages(model)
    if not missing:
        return ""
    return (
        f"operators.encode.text.model {model!r}: the package {missing[0]} is not installed. On every machine "
        "that computes: pip install 'rowsieve[embed]'. Or leave free text out, which makes another version: "
        "operators.encode.text: {model: null}"
    )


def unsupported_type(name: str, kind: pa.DataType | str) -> str:
    """Return why a column of this type is not encoded, with the remedy."""
    if isinstance(kind, pa.DataType) and form_of(kind) == Form.IMAGE:
        return f"its type is {kind}. Images become features by the operator `embed`, instead of `encode`"
    remedy = "write it as numbers, text or a list of numbers"
    if str(kind).startswith("struct"):
        remedy = f"name it under source.flatten, so that its fields become columns such as `{name}.FIELD`"
    return f"the type {kind} has no encoding: {remedy}"


def unused_type(summary: ColumnSummary) -> ColumnUse:
    """Return the decision not to use a column whose type has no encoding."""
    kind = ", ".join(summary.types)
    if summary.form == Form.IMAGE and summary.present and not summary.images:
        return unused(
            Unused.TYPE,
            f"the type {kind} has no encoding, and no value examined is an image file "
            f"({FORMATS}): write it as numbers or text",
        )
    if summary.form == Form.IMAGE:
        return unused(Unused.IMAGE, unsupported_type(summary.name, pa.binary()).replace("binary", kind, 1))
    return unused(Unused.TYPE, unsupported_type(summary.name, kind))
