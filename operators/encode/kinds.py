"""The kind of a source column: how ``encode`` uses it, or the reason for which it is not used.

The decision is a pure function of the column's summary. ``encode`` takes it from the summary of all rows,
``init`` and ``validate`` from that of a sample.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa

from operators.base import OperatorError
from operators.encode.amount_use import amount_use
from operators.encode.column_forms import Form, form_of
from operators.encode.column_use import (
    ColumnUse,
    Kind,
    KindOptions,
    Unused,
    ragged_note,
    unused,
    unused_identifier,
    unused_large_integers,
    unused_range,
    unused_text,
    unused_type,
)
from operators.encode.durations import DURATION
from operators.encode.hints import hint, list_hint
from operators.encode.identifiers import (
    are_nearly_unique_numbers,
    are_numbers_of_rows,
    are_unique_texts,
    identifier_doubt,
)
from operators.encode.mixed_numbers import MixedNumbers
from operators.encode.sketches import MAX_VALUES
from operators.encode.summary import NUMBER, ColumnSummary
from operators.encode.texts import DATES
from operators.yaml_text import inline_entry

MAX_OTHER_WIDTHS = 0.1
"""Share of rows with a vector of another length up to which these rows are faulty. Above it the column is not
used as vectors."""
N_HINT_TEXTS = 20
"""Texts of a column that are examined for dates and numbers in other formats."""
MIN_WORDS, MIN_CHARACTERS, MIN_TEXT_DISTINCT = 4.0, 20.0, 0.3
"""Free text has on average at least so many words and characters, and so many distinct values per row."""
LONG_TEXT = 100.0
"""Mean characters above which a column is free text, unless almost all of its rows repeat few values."""


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
        return unused_type(summary)
    if not summary.present:
        return unused(Unused.MISSING, f"none of its {summary.rows:,} rows has a value")
    if summary.unusable == summary.present and options.kind != Kind.TEXT:
        return unused_range(summary)
    if options.kind is not None:
        return _requested_use(summary, options)
    found = _use_by_values(summary, options)
    if found.kind == Kind.TEXT and not options.text_model:
        return unused_text()
    return found


def may_identify(summary: ColumnSummary) -> bool:
    """Return whether a column without a kind in the recipe may be an identifier by the rows seen so far."""
    if summary.form in (Form.TEXT, Form.CATEGORY) and NUMBER not in summary.parsed:
        free_text = summary.form == Form.TEXT and bool(summary.present) and _is_free_text(summary)
        return are_unique_texts(summary) and not free_text
    return are_nearly_unique_numbers(summary)


def _use_by_values(summary: ColumnSummary, options: KindOptions) -> ColumnUse:
    if summary.form == Form.VECTOR:
        return unused(Unused.TYPE, ragged_note(summary)) if _is_ragged(summary) else ColumnUse(Kind.VECTOR)
    if summary.form == Form.TAGS:
        return _use_of_tags(summary)
    whole = not summary.missing and not summary.unusable
    if summary.distinct == 1 and whole and not options.explicit:
        return unused(Unused.CONSTANT, f"all rows have the value {summary.examples(1)[0]!r}")
    if len(summary.large) and summary.distinct > 1 and _is_one_float(summary):
        return unused_large_integers(summary)
    if summary.form == Form.BOOLEAN:
        return ColumnUse(Kind.BOOLEAN)
    if summary.form == Form.TIME:
        return ColumnUse(Kind.DATETIME)
    if summary.form in (Form.NUMBER, Form.INTEGER):
        return _use_of_numbers(summary, options)
    return _use_by_texts(summary, options)


def _use_by_texts(summary: ColumnSummary, options: KindOptions) -> ColumnUse:
    """Decide about texts: numbers, dates, an identifier, free text or categories."""
    if summary.form == Form.TEXT:
        if NUMBER in summary.parsed:
            use = _use_of_numbers(summary, options)
            as_text = replace(use, note="numbers that are written as text", parameters=_parse(NUMBER))
            return as_text if use.used else use
        formats = [format for format in DATES if format in summary.parsed]
        if formats:
            return ColumnUse(Kind.DATETIME, note=_dates_note(formats), parameters=_parse(formats[0]))
        if summary.mixed is not None and summary.mixed.are_numbers_with_few_words:
            return _use_of_mixed(summary, summary.mixed, options)
        advice = hint(summary.name, summary.examples(N_HINT_TEXTS))
        if advice:
            unique = are_unique_texts(summary) and not options.explicit
            return unused(Unused.WRITTEN, advice) if unique else ColumnUse(Kind.CATEGORICAL, note=advice)
        if _is_free_text(summary):
            return ColumnUse(Kind.TEXT, note=list_hint(summary.examples(N_HINT_TEXTS)))
    if are_unique_texts(summary) and not options.explicit:
        return unused_identifier(summary)
    return ColumnUse(Kind.CATEGORICAL)


def _use_of_numbers(summary: ColumnSummary, options: KindOptions) -> ColumnUse:
    """Decide whether numbers are a feature or identifiers; columns that the recipe names are a feature."""
    if options.explicit:
        return ColumnUse(Kind.NUMERIC)
    if are_numbers_of_rows(summary):
        return unused_identifier(summary)
    return ColumnUse(Kind.NUMERIC, warning=identifier_doubt(summary))


def _use_of_mixed(summary: ColumnSummary, mixed: MixedNumbers, options: KindOptions) -> ColumnUse:
    """Decide about numbers with words among them: the words count as missing values."""
    use = _use_of_numbers(summary.without_words(), options)
    if not use.used:
        return use
    entry = inline_entry(summary.name, str(Kind.CATEGORICAL))
    told = f"{mixed.about}. To keep them apart as categories, write `{entry}` under operators.encode.columns"
    return replace(
        use,
        note="numbers that are written as text",
        parameters=_parse(NUMBER) | {"words": sorted(mixed.words)},
        warning=". ".join(text for text in (told, use.warning) if text),
    )


def _use_of_tags(summary: ColumnSummary) -> ColumnUse:
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


def _requested_use(summary: ColumnSummary, options: KindOptions) -> ColumnUse:
    """Return the use that the recipe asks for.

    Raises
    ------
    OperatorError
        The values do not allow it.
    """
    kind, form = options.kind, summary.form
    if form == Form.TAGS:
        if kind != Kind.TAGS:
            raise _kind_error(summary, str(kind))
        return _use_of_tags(summary)
    if kind == Kind.CATEGORICAL and summary.values is not None:
        return ColumnUse(Kind.CATEGORICAL)
    if kind == Kind.TEXT and form == Form.TEXT:
        return ColumnUse(Kind.TEXT) if options.text_model else unused_text()
    if kind == Kind.AMOUNT and summary.amounts is not None:
        return amount_use(summary.name, summary.amounts, options.decimal)
    if kind in (Kind.NUMERIC, Kind.AMOUNT, Kind.DURATION):
        return _requested_numbers(summary, kind)
    if kind == Kind.DATETIME:
        return _requested_datetime(summary, options.date_format)
    if kind == Kind.VECTOR and form == Form.VECTOR and _is_ragged(summary):
        raise OperatorError(
            f"operators.encode.columns: {summary.name!r} cannot be vector: {ragged_note(summary)}."
        )
    if kind and (kind, form) in ((Kind.BOOLEAN, Form.BOOLEAN), (Kind.VECTOR, Form.VECTOR)):
        return ColumnUse(kind)
    raise _kind_error(summary, str(kind))


def _requested_numbers(summary: ColumnSummary, kind: Kind) -> ColumnUse:
    """Return the use as numbers.

    Raises
    ------
    OperatorError
        More than half of the values are words, or one is no duration.
    """
    if summary.form in (Form.NUMBER, Form.INTEGER, Form.BOOLEAN):
        return ColumnUse(Kind.NUMERIC)
    if kind == Kind.DURATION:
        if DURATION not in summary.parsed:
            raise _kind_error(summary, str(kind))
        return ColumnUse(Kind.NUMERIC, note="durations in seconds", parameters=_parse(DURATION))
    if NUMBER in summary.parsed:
        return ColumnUse(Kind.NUMERIC, parameters=_parse(NUMBER))
    mixed = summary.mixed
    if mixed is None or not mixed.are_mostly_numbers:
        raise _kind_error(summary, str(Kind.NUMERIC))
    return ColumnUse(
        Kind.NUMERIC, note=mixed.about, parameters=_parse(NUMBER) | {"words": sorted(mixed.words)}
    )


def _requested_datetime(summary: ColumnSummary, date_format: str) -> ColumnUse:
    """Return the use as dates. Raises OperatorError if the values are not dates of the format."""
    if summary.form == Form.TIME:
        return ColumnUse(Kind.DATETIME)
    if date_format in summary.parsed:
        return ColumnUse(Kind.DATETIME, parameters=_parse(date_format))
    formats = [key for key in DATES if key in summary.parsed]
    if not formats or date_format:
        raise _kind_error(summary, str(Kind.DATETIME))
    return ColumnUse(Kind.DATETIME, note=_dates_note(formats), parameters=_parse(formats[0]))


def _kind_error(summary: ColumnSummary, kind: str) -> OperatorError:
    """Return the error for a kind that the values of a column do not allow."""
    shown = ", ".join(repr(example) for example in summary.examples())
    return OperatorError(
        f"operators.encode.columns: {summary.name!r} cannot be {kind}: its type is "
        f"{', '.join(summary.types)}{f', with values such as {shown}' if shown else ''}."
        f"{_readable_rows(summary, kind)} Give it another kind, or exclude it."
    )


def _readable_rows(summary: ColumnSummary, kind: str) -> str:
    """Return how many values could be read as a kind, for an error message."""
    keys = {Kind.NUMERIC: [NUMBER], Kind.DURATION: [DURATION]}.get(Kind(kind), [])
    if kind == Kind.DATETIME:
        keys = [key for key in summary.n_parsed if key not in (NUMBER, DURATION)]
    rows = max((summary.n_parsed.get(key, 0) for key in keys), default=0)
    return f" {rows:,} of its {summary.present:,} values could be read so." if keys and summary.values else ""


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


def _parse(reading: str) -> dict[str, Any]:
    return {"parse": reading}


def _dates_note(formats: list[str]) -> str:
    note = f"dates that are written as text, {formats[0]}"
    if len(formats) > 1 and {"%m/%d/%Y", "%d/%m/%Y"} <= set(formats):
        note += ", though %d/%m/%Y fits too: set `format` for this column if the day comes first"
    return note


def _is_one_float(summary: ColumnSummary) -> bool:
    """Return whether float64 rounds all values to one."""
    return summary.histogram is not None and summary.histogram.distinct == 1


def _is_ragged(summary: ColumnSummary) -> bool:
    return summary.width is None or summary.other_widths > MAX_OTHER_WIDTHS * summary.present


def is_usable(kind: pa.DataType) -> bool:
    """Return whether a column of this type can be encoded, judged by the type alone."""
    return form_of(kind) not in (Form.OTHER, Form.IMAGE)
