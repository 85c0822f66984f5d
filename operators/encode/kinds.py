"""The kind of a source column: how ``encode`` uses it, or why it does not.

The decision is a pure function of the column's summary. ``encode`` takes it from the summary of all rows,
``init`` and ``validate`` from that of a sample.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import pyarrow as pa

from operators.base import OperatorError
from operators.encode.column_forms import Form, form_of
from operators.encode.hints import hint
from operators.encode.images import FORMATS
from operators.encode.sketches import MAX_VALUES
from operators.encode.summary import NUMBER, ColumnSummary
from operators.encode.texts import DATES

UNIQUE = 0.95
"""Distinct values per row from which a column counts as nearly unique."""
NAMED_UNIQUE = 0.5
"""The same for a column whose name says that it is an identifier: a patient may have several rows."""
MIN_UNIQUE_ROWS = 50
"""Rows with a value below which no column is called an identifier: a small table may lack repetitions."""
MOST_UNUSABLE = 0.1
"""Share of rows without a usable number, or with a vector of another length, up to which they are faults of
their rows. Beyond it vectors are none."""
HINTED = 20
"""Texts of a column that are looked at for dates and numbers of other forms."""
NUMBERING = 1.5
"""Nearly unique whole numbers that span at most so many times their number of rows number the rows."""
MIN_WORDS, MIN_CHARACTERS, MIN_TEXT_DISTINCT = 4.0, 20.0, 0.3
"""Free text has on average at least so many words and characters, and so many distinct values per row."""
LONG_TEXT = 100.0
"""Mean characters above which a column is free text, unless almost all of its rows repeat few values."""
ID_NAME = re.compile(
    r"(^|[_\-. ])(id|ids|uuid|guid|key|index|idx|rowid|row_id|nr|no)$|^unnamed: 0$"
    r"|^row[_. ]?(name|num|number)s?$|[a-z]I[dD]$"
)
"""Names of columns that number or identify rows; the first alternatives are compared in lower case."""
OWNER_NAME = re.compile(r"(^|[_\-. ])(id|uuid|guid)$|^unnamed: 0$|[a-z]I[dD]$")
"""Those of them that cannot be a measure, as an index or a number can: whom or what a row is about."""


class Kind(StrEnum):
    """Use of a column as features."""

    NUMERIC = "numeric"
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
    """Settings that decide the kind beside the summary.

    Attributes
    ----------
    kind
        Kind that the recipe gives the column, ``unused`` for an excluded one; None to decide by the values.
    explicit
        Whether the recipe names the column as a feature: it is used then even if it looks like an identifier.
    text_model
        Whether text can be embedded: a model is named, and its packages are installed.
    date_format
        Format of dates in text that the recipe gives; empty to recognise it.

    """

    kind: Kind | None = None
    explicit: bool = False
    text_model: bool = False
    date_format: str = ""


@dataclass(frozen=True)
class ColumnUse:
    """The decision about one column.

    Attributes
    ----------
    kind
        How the column is used.
    reason
        Why it is unused; None for a column that is used.
    note
        A sentence for people: of an unused column why, with the remedy; else what was recognised, or empty.
    parameters
        What the encoding needs: ``parse`` (``number``, or a format of dates) for numbers and dates in text.

    """

    kind: Kind
    reason: Unused | None = None
    note: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict)

    @property
    def used(self) -> bool:
        """Whether the column gives features."""
        return self.kind != Kind.UNUSED

    def to_json(self) -> dict[str, Any]:
        """Return the decision as JSON-able values."""
        return {
            "kind": str(self.kind),
            "reason": None if self.reason is None else str(self.reason),
            "note": self.note,
            "parameters": dict(self.parameters),
        }


def unused(reason: Unused, note: str) -> ColumnUse:
    """Return the decision not to use a column."""
    return ColumnUse(Kind.UNUSED, reason, note)


def decide_kind(summary: ColumnSummary, options: KindOptions | None = None) -> ColumnUse:
    """Decide how a column is used.

    Raises
    ------
    OperatorError
        The recipe gives a kind that the column's values do not allow.

    """
    options = options or KindOptions()
    if options.kind == Kind.UNUSED:
        return unused(Unused.EXCLUDED, "the recipe excludes it")
    if summary.form in (Form.OTHER, Form.IMAGE):
        return _unsupported(summary)
    if not summary.present:
        return unused(Unused.MISSING, f"none of its {summary.rows:,} rows has a value")
    if summary.unusable == summary.present:
        return _out_of_range(summary)
    if options.kind is not None:
        return _as_told(summary, options)
    found = _by_values(summary, options)
    if found.kind == Kind.TEXT and not options.text_model:
        return _no_model()
    return found


def looks_like_id(name: str) -> bool:
    """Return whether the name of a column says that it identifies or numbers rows."""
    return bool(ID_NAME.search(name.lower()) or ID_NAME.search(name))


def _by_values(summary: ColumnSummary, options: KindOptions) -> ColumnUse:
    if summary.form == Form.VECTOR:
        return unused(Unused.TYPE, _lengths(summary)) if _is_ragged(summary) else ColumnUse(Kind.VECTOR)
    if summary.form == Form.TAGS:
        return _by_tags(summary)
    whole = not summary.missing and not summary.unusable
    if summary.distinct == 1 and whole and not options.explicit:
        return unused(Unused.CONSTANT, f"all rows have the value {summary.examples(1)[0]!r}")
    if len(summary.large) and summary.distinct > 1 and _is_one_number(summary):
        return _told_apart_by_integers(summary)
    if summary.form == Form.BOOLEAN:
        return ColumnUse(Kind.BOOLEAN)
    if summary.form == Form.TIME:
        return ColumnUse(Kind.DATETIME)
    if summary.form in (Form.NUMBER, Form.INTEGER):
        number = summary.form == Form.INTEGER and _is_numbering(summary) and not options.explicit
        return _identifier(summary) if number else ColumnUse(Kind.NUMERIC)
    return _by_texts(summary, options)


def _by_texts(summary: ColumnSummary, options: KindOptions) -> ColumnUse:
    """Decide about texts: numbers, dates, an identifier, free text or categories."""
    if summary.form == Form.TEXT:
        if NUMBER in summary.parsed:
            if _is_numbering(summary) and not options.explicit:
                return _identifier(summary)
            return ColumnUse(Kind.NUMERIC, note="numbers that are written as text", parameters=_parse(NUMBER))
        formats = [format for format in DATES if format in summary.parsed]
        if formats:
            return ColumnUse(Kind.DATETIME, note=_dates_note(formats), parameters=_parse(formats[0]))
        told = hint(summary.name, summary.examples(HINTED))
        if told:
            unique = _nearly_unique(summary) and summary.present >= MIN_UNIQUE_ROWS and not options.explicit
            return unused(Unused.IDENTIFIER, told) if unique else ColumnUse(Kind.CATEGORICAL, note=told)
        if _is_free_text(summary):
            return ColumnUse(Kind.TEXT)
    if _nearly_unique(summary) and summary.present >= MIN_UNIQUE_ROWS and not options.explicit:
        return _identifier(summary)
    return ColumnUse(Kind.CATEGORICAL)


def _by_tags(summary: ColumnSummary) -> ColumnUse:
    """Decide about lists of texts."""
    sketch = summary.values
    if sketch is None or not summary.distinct:
        return unused(Unused.CONSTANT, "no row has an entry in its list")
    if not sketch.is_exact:
        return unused(
            Unused.TYPE,
            f"its lists have more than {MAX_VALUES:,} distinct entries: join rare ones at the source",
        )
    if int(sketch.counts.min()) == summary.rows:
        return unused(Unused.CONSTANT, f"all rows have the entries {', '.join(summary.examples())}")
    return ColumnUse(Kind.TAGS)


def _as_told(summary: ColumnSummary, options: KindOptions) -> ColumnUse:
    """Return the kind that the recipe gives. Raises OperatorError if the values do not allow it."""
    kind, form = options.kind, summary.form
    if form == Form.TAGS:
        return _by_tags(summary) if kind == Kind.TAGS else _refused(summary, str(kind))
    if kind == Kind.CATEGORICAL and summary.values is not None:
        return ColumnUse(Kind.CATEGORICAL)
    if kind == Kind.TEXT and form == Form.TEXT:
        return ColumnUse(Kind.TEXT) if options.text_model else _no_model()
    if kind == Kind.NUMERIC and form in (Form.NUMBER, Form.INTEGER, Form.BOOLEAN):
        return ColumnUse(Kind.NUMERIC)
    if kind == Kind.NUMERIC and NUMBER in summary.parsed:
        return ColumnUse(Kind.NUMERIC, parameters=_parse(NUMBER))
    if kind == Kind.DATETIME and form == Form.TIME:
        return ColumnUse(Kind.DATETIME)
    if kind == Kind.DATETIME and options.date_format in summary.parsed:
        return ColumnUse(Kind.DATETIME, parameters=_parse(options.date_format))
    formats = [key for key in DATES if key in summary.parsed]
    if kind == Kind.DATETIME and formats and not options.date_format:
        return ColumnUse(Kind.DATETIME, note=_dates_note(formats), parameters=_parse(formats[0]))
    if kind == Kind.VECTOR and form == Form.VECTOR and _is_ragged(summary):
        raise OperatorError(
            f"operators.encode.columns: {summary.name!r} cannot be vector: {_lengths(summary)}."
        )
    same = (Kind.BOOLEAN, Form.BOOLEAN), (Kind.VECTOR, Form.VECTOR)
    return ColumnUse(kind) if kind and (kind, form) in same else _refused(summary, str(kind))


def _refused(summary: ColumnSummary, kind: str) -> ColumnUse:
    """Raise OperatorError for a kind that the values of a column do not allow."""
    shown = ", ".join(repr(example) for example in summary.examples())
    raise OperatorError(
        f"operators.encode.columns: {summary.name!r} cannot be {kind}: its type is "
        f"{', '.join(summary.types)}{f', with values such as {shown}' if shown else ''}."
        f"{_fitting(summary, kind)} Give it another kind, or exclude it."
    )


def _fitting(summary: ColumnSummary, kind: str) -> str:
    """Return how many texts a kind would fit, for an error."""
    keys = [NUMBER] if kind == Kind.NUMERIC else []
    if kind == Kind.DATETIME:
        keys = [key for key in summary.n_parsed if key != NUMBER]
    rows = max((summary.n_parsed.get(key, 0) for key in keys), default=0)
    return f" {rows:,} of its {summary.present:,} values could be read so." if keys and summary.values else ""


def _nearly_unique(summary: ColumnSummary) -> bool:
    """Return whether hardly a value is there twice; in a column that is named an identifier, half may be."""
    named = OWNER_NAME.search(summary.name.lower()) or OWNER_NAME.search(summary.name)
    return summary.distinct >= (NAMED_UNIQUE if named else UNIQUE) * summary.present


def _is_numbering(summary: ColumnSummary) -> bool:
    """Return whether whole numbers are nearly unique, and numbered without gaps or named as an identifier."""
    histogram = summary.histogram or summary.parsed.get(NUMBER)
    if histogram is None or summary.present < MIN_UNIQUE_ROWS:
        return False
    if not _nearly_unique(summary) or bool((histogram.low % 1).any()):
        return False
    span = float(histogram.high[-1] - histogram.low[0]) + 1
    return span <= NUMBERING * summary.present or looks_like_id(summary.name)


def _is_free_text(summary: ColumnSummary) -> bool:
    rows = summary.present
    characters, words, distinct = (
        summary.characters / rows,
        summary.words / rows,
        summary.distinct / rows,
    )
    if characters >= LONG_TEXT and distinct >= 0.05:
        return True
    return words >= MIN_WORDS and characters >= MIN_CHARACTERS and distinct >= MIN_TEXT_DISTINCT


def _parse(reading: str) -> dict[str, str]:
    return {"parse": reading}


def _dates_note(formats: list[str]) -> str:
    note = f"dates that are written as text, {formats[0]}"
    if len(formats) > 1 and {"%m/%d/%Y", "%d/%m/%Y"} <= set(formats):
        note += ", though %d/%m/%Y fits too: set `format` for this column if the day comes first"
    return note


def _identifier(summary: ColumnSummary) -> ColumnUse:
    about = "" if summary.is_exact else "about "
    distinct = min(summary.distinct, summary.present)  # an estimate may exceed the rows
    kind = Kind.CATEGORICAL if summary.form in (Form.TEXT, Form.CATEGORY) else Kind.NUMERIC
    return unused(
        Unused.IDENTIFIER,
        f"{about}{distinct:,} distinct values in {summary.present:,} rows; used if "
        f"operators.encode.columns says `{summary.name}: {kind}`",
    )


def _out_of_range(summary: ColumnSummary) -> ColumnUse:
    """Decide about a column of numbers, none of which a feature can hold."""
    beyond = summary.unusable - summary.infinite
    parts = [f"{summary.infinite:,} are infinite"] * bool(summary.infinite)
    parts += [f"{beyond:,} are beyond the range of float32 (3.4e38)"] * bool(beyond)
    return unused(
        Unused.RANGE,
        f"of its {summary.present:,} numbers {' and '.join(parts)}; scale it at the source, such as by its "
        "logarithm",
    )


def _is_one_number(summary: ColumnSummary) -> bool:
    """Return whether float64 rounds all values to one."""
    return summary.histogram is not None and summary.histogram.distinct == 1


def _told_apart_by_integers(summary: ColumnSummary) -> ColumnUse:
    """Decide about whole numbers of which float64 makes a single one."""
    about = "" if summary.is_exact else "about "
    return unused(
        Unused.IDENTIFIER,
        f"{about}{summary.distinct:,} distinct whole numbers beyond 2^53, which as features are one number; "
        f"used if operators.encode.columns says `{summary.name}: categorical`",
    )


def _is_ragged(summary: ColumnSummary) -> bool:
    return summary.width is None or summary.other_widths > MOST_UNUSABLE * summary.present


def _lengths(summary: ColumnSummary) -> str:
    """Say that lists of numbers are no vectors, with the remedy."""
    rows = summary.present - summary.other_widths
    about = (
        f"{rows:,} of {summary.present:,} rows have {summary.width:,} numbers" if summary.width else "many"
    )
    return (
        f"its lists have different lengths ({about}): write vectors of one length at the source, or figures "
        f"such as their mean as columns"
    )


def _no_model() -> ColumnUse:
    return unused(
        Unused.TEXT,
        "free text needs a network: pip install 'rowsieve[embed]', and `encode: {text: {model: minilm}}`",
    )


def is_usable(kind: pa.DataType) -> bool:
    """Return whether a column of this type can be encoded, as far as the type tells."""
    return form_of(kind) not in (Form.OTHER, Form.IMAGE)


def unsupported_type(name: str, kind: pa.DataType | str) -> str:
    """Return why a column of this type is not encoded, with the remedy."""
    if isinstance(kind, pa.DataType) and form_of(kind) == Form.IMAGE:
        return f"its type is {kind}. Images become features by the operator `embed`, instead of `encode`"
    remedy = "write it as numbers, text or a list of numbers"
    if str(kind).startswith("struct"):
        remedy = f"name it under source.flatten, so that its fields become columns such as `{name}.FIELD`"
    return f"the type {kind} has no encoding: {remedy}"


def _unsupported(summary: ColumnSummary) -> ColumnUse:
    kind = ", ".join(summary.types)
    if summary.form == Form.IMAGE and summary.present and not summary.images:
        return unused(
            Unused.TYPE,
            f"the type {kind} has no encoding, and no value that was looked at begins as an image does "
            f"({FORMATS}): write it as numbers or text",
        )
    if summary.form == Form.IMAGE:
        return unused(Unused.IMAGE, unsupported_type(summary.name, pa.binary()).replace("binary", kind, 1))
    return unused(Unused.TYPE, unsupported_type(summary.name, kind))
