"""Summary of a source column without its rows: counts and sketches that can be merged over shards.

``encode`` fits on the merged summaries of all shards; ``init`` and ``validate`` use those of a sample.
:func:`operators.encode.kinds.decide_kind` decides from a summary how the column is used.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from operators.arrays import Float64
from operators.base import OperatorError
from operators.encode.amounts import AmountForms
from operators.encode.column_forms import (
    Form,
    as_numbers,
    as_seconds,
    as_texts,
    first_rows,
    form_of,
    written_time,
)
from operators.encode.durations import DURATION, durations
from operators.encode.images import count_images
from operators.encode.list_lengths import OTHER_LENGTHS, bounded_lengths, list_lengths
from operators.encode.mixed_numbers import MixedNumbers
from operators.encode.sketches import (
    MAX_HASHES,
    Histogram,
    ValueCounts,
    distinct_of,
    large_integers,
    merged_hashes,
)
from operators.encode.tags import count_tags
from operators.encode.texts import DATES, MISSING_TEXTS, dates, is_missing, numbers, tidy
from operators.hashing import Hashes
from operators.ingest.kernel import FLOAT32_MAX
from operators.unspaced_scripts import CHARACTERS
from operators.yaml_text import inline_yaml

NUMBER = "number"
"""Key of :attr:`ColumnSummary.parsed` for texts that are numbers; the others are ``DURATION`` and formats of
dates."""
UNSPACED = f"[{CHARACTERS}]"
"""Characters of scripts without spaces between words; two of them count as one word more."""
N_MOST_FREQUENT = 20
"""Most frequent values that :meth:`ColumnSummary.to_json` names."""
SHOWN_QUANTILES = (0.0, 0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99, 1.0)


@dataclass(frozen=True)
class TextRules:
    """Rules by which texts are compared: which of them are one category, and which are missing.

    Attributes
    ----------
    strip : ignore white space around a text.
    fold_case : ignore the case of letters.
    missing : texts that stand for a missing value.
    as_text : columns of other types that are counted as text, since the recipe calls them categorical.
    formats : formats of the dates of text columns that the recipe gives, by column.
    amounts, durations : columns that the recipe calls so.
    """

    strip: bool = True
    fold_case: bool = False
    missing: tuple[str, ...] = MISSING_TEXTS
    as_text: frozenset[str] = frozenset()
    formats: Mapping[str, str] = field(default_factory=dict)
    amounts: frozenset[str] = frozenset()
    durations: frozenset[str] = frozenset()


@dataclass(frozen=True)
class ColumnSummary:
    """Counts of one column over some rows.

    Attributes
    ----------
    name : the column.
    types : Arrow types of the column in the shards, ascending.
    form : kind of values that these types hold.
    rows : number of rows.
    missing : rows without a value: null, NaN, or a text that stands for one.
    unusable : rows with an infinite number, or one beyond the range of float32; of texts only while all are
        numbers and the recipe does not call the column categorical.
    infinite : those of them with an infinite number.
    large : the smallest hashes of the whole numbers that float64 cannot tell from their neighbours.
    images : for bytes: the rows whose value begins with the signature of an image format.
    histogram : the usable numbers, or the points in time in seconds since 1970; None for other forms.
    values : texts and their rows, of lists of texts the rows that have each entry; None for other forms.
    parsed : for texts: the histogram of the numbers or the points in time that they are written as, for each
        reading that all texts so far allow.
    n_parsed : for texts: the rows that each reading fits.
    mixed : for texts: the numbers among them, and the other texts; None if those are many.
    amounts : for texts that the recipe calls amounts: how they are written; None for other columns.
    characters, words, longest : for texts: sums of characters and words over the rows, and the most bytes of
        one value.
    lengths : for vectors: the rows of each length; of more than ``MAX_LENGTHS`` lengths, all rows under -1.
    zone : time zone of a timestamp; empty without one.
    """

    name: str
    types: tuple[str, ...]
    form: Form
    rows: int
    missing: int
    unusable: int = 0
    infinite: int = 0
    large: Hashes = field(default_factory=lambda: np.empty(0, np.uint64))
    images: int = 0
    histogram: Histogram | None = None
    values: ValueCounts | None = None
    parsed: Mapping[str, Histogram] = field(default_factory=dict)
    n_parsed: Mapping[str, int] = field(default_factory=dict)
    mixed: MixedNumbers | None = None
    amounts: AmountForms | None = None
    characters: int = 0
    words: int = 0
    longest: int = 0
    lengths: Mapping[int, int] = field(default_factory=dict)
    zone: str = ""

    @property
    def present(self) -> int:
        """Rows with a value."""
        return self.rows - self.missing

    @property
    def distinct(self) -> int:
        """Number of distinct values; 0 for forms whose values are not counted."""
        if self.values is not None:
            return self.values.distinct
        found = 0 if self.histogram is None else self.histogram.distinct
        return max(found, distinct_of(self.large))

    @property
    def is_exact(self) -> bool:
        """Return whether the number of distinct values is exact."""
        sketch = self.values or self.histogram
        return (sketch is None or sketch.is_exact) and len(self.large) < MAX_HASHES

    @property
    def missing_share(self) -> float:
        """Share of rows without a value; 0 without rows."""
        return self.missing / self.rows if self.rows else 0.0

    def merge(self, other: ColumnSummary) -> ColumnSummary:
        """Return the summary of the rows of both.

        Raises
        ------
        OperatorError
            The types of the column cannot be joined, such as text in one shard and numbers in the other.
        """
        types = tuple(sorted({*self.types, *other.types}))
        parsed = _joined_readings(self, other)
        has_words = (self.values or other.values) is not None and NUMBER not in parsed
        return replace(
            self,
            types=types,
            form=_joined_form(self, other),
            rows=self.rows + other.rows,
            missing=self.missing + other.missing,
            unusable=0 if has_words else self.unusable + other.unusable,
            infinite=self.infinite + other.infinite,
            large=merged_hashes(self.large, other.large),
            images=self.images + other.images,
            histogram=_merged(self.histogram, other.histogram),
            values=_merged(self.values, other.values),
            parsed=parsed,
            n_parsed={
                key: self.n_parsed.get(key, 0) + other.n_parsed.get(key, 0)
                for key in sorted({*self.n_parsed, *other.n_parsed})
            },
            mixed=_joined_mixed(self, other),
            amounts=_joined_amounts(self, other),
            characters=self.characters + other.characters,
            words=self.words + other.words,
            longest=max(self.longest, other.longest),
            lengths=bounded_lengths(Counter(self.lengths) + Counter(other.lengths) or self.lengths),
            zone=self.zone or other.zone,
        )

    def without_words(self) -> ColumnSummary:
        """Return the summary of texts of which only the numbers are values, and all words are missing."""
        if self.mixed is None:
            return self
        parsed = {NUMBER: self.mixed.numbers} if self.mixed.numbers.rows else {}
        return replace(self, missing=self.missing + self.mixed.n_words, parsed=parsed)

    @property
    def width(self) -> int | None:
        """For vectors: the most frequent length; None while no row has one, or there are too many."""
        found = max(self.lengths, key=lambda length: (self.lengths[length], -length), default=OTHER_LENGTHS)
        return None if found == OTHER_LENGTHS else found

    @property
    def other_widths(self) -> int:
        """For vectors: the rows whose length is not the most frequent one."""
        return sum(self.lengths.values()) - self.lengths.get(
            OTHER_LENGTHS if self.width is None else self.width, 0
        )

    def examples(self, n: int = 3) -> list[str]:
        """Return at most ``n`` values as text, the most frequent first; quantiles of many numbers."""
        if self.values is not None:
            return [text for text, _ in self.values.most_frequent(n)]
        if self.histogram is None or not self.histogram.rows:
            return []
        if len(self.histogram.low) <= n or self.form == Form.BOOLEAN:
            return [self._written(value) for value in self.histogram.low[:n].tolist()]
        return [self._written(value) for value in self.histogram.quantiles(np.linspace(0, 1, n)).tolist()]

    def _written(self, value: float) -> str:
        if self.form == Form.BOOLEAN:
            return "true" if value else "false"
        if self.form == Form.TIME:
            return written_time(value)
        return f"{value:.6g}"

    def to_json(self) -> dict[str, Any]:
        """Return the figures as JSON-able values of bounded size: no histogram, and only the 20 most frequent
        texts."""
        found: dict[str, Any] = {
            "name": self.name,
            "types": list(self.types),
            "form": str(self.form),
            "rows": self.rows,
            "missing": self.missing,
            "unusable": self.unusable,
            "infinite": self.infinite,
            "distinct": self.distinct,
            "distinct_is_exact": self.is_exact,
            "examples": self.examples(),
        }
        if self.histogram is not None and self.histogram.rows:
            quantiles = self.histogram.quantiles(SHOWN_QUANTILES).tolist()
            found["quantiles"] = dict(zip(map(str, SHOWN_QUANTILES), quantiles, strict=True))
        if self.values is not None:
            found["most_frequent"] = [list(pair) for pair in self.values.most_frequent(N_MOST_FREQUENT)]
            found["n_parsed"] = {key: rows for key, rows in self.n_parsed.items() if rows}
            found |= {"characters": self.characters, "words": self.words, "longest": self.longest}
        if self.width is not None:
            found["width"] = self.width
        return found


def summarise(
    table: pa.Table, rules: TextRules | None = None, columns: Sequence[str] | None = None
) -> dict[str, ColumnSummary]:
    """Summarise columns of a table; all of them by default.

    Raises
    ------
    OperatorError
        A text is not valid UTF-8.
    """
    rules, found = rules or TextRules(), {}
    for name in table.column_names if columns is None else columns:
        try:
            found[name] = _summary(name, table.column(name), rules)
        except OperatorError as error:
            raise OperatorError(f"column {name!r}: {error}") from None
    return found


def _summary(name: str, column: pa.ChunkedArray, rules: TextRules) -> ColumnSummary:
    form, kind, rows = form_of(column.type), column.type, len(column)
    found = ColumnSummary(name, (str(kind),), form, rows, int(column.null_count))
    counted = name in rules.as_text and form in (Form.NUMBER, Form.INTEGER, Form.BOOLEAN)
    if counted or form in (Form.TEXT, Form.CATEGORY):
        texts = as_texts(column) if counted or form == Form.CATEGORY else column
        form = Form.CATEGORY if counted else form
        return _text_summary(replace(found, form=form, missing=int(texts.null_count)), texts, rules)
    if form in (Form.NUMBER, Form.INTEGER, Form.BOOLEAN):
        values = as_numbers(column)
        missing, usable = np.isnan(values), np.abs(values) <= FLOAT32_MAX
        unusable = rows - int(missing.sum()) - int(usable.sum())
        return replace(
            found,
            missing=int(missing.sum()),
            unusable=unusable,
            infinite=int(np.isinf(values).sum()),
            large=large_integers(column) if form == Form.INTEGER else found.large,
            histogram=Histogram.of(values[usable]),
        )
    if form == Form.TIME:
        seconds = as_seconds(column)
        zone = (kind.tz or "") if pa.types.is_timestamp(kind) else ""
        return replace(found, histogram=Histogram.of(seconds[~np.isnan(seconds)]), zone=zone)
    if form == Form.VECTOR:
        return replace(found, lengths=list_lengths(column))
    if form == Form.IMAGE:
        return replace(found, images=count_images(column))
    if form == Form.TAGS:
        tags = count_tags(column, strip=rules.strip, fold_case=rules.fold_case, missing=rules.missing)
        return replace(found, values=tags)
    return found


def _text_summary(found: ColumnSummary, column: pa.ChunkedArray, rules: TextRules) -> ColumnSummary:
    counted = pc.value_counts(column.drop_null())
    values, rows = counted.field("values"), counted.field("counts").to_numpy()
    raw = values.cast(pa.large_string())
    texts = tidy(raw, strip=rules.strip, fold_case=rules.fold_case)
    absent = is_missing(texts, rules.missing)
    kept = pa.array(np.flatnonzero(~absent))
    missing = found.missing + int(rows[absent].sum())
    raw, texts, rows = raw.take(kept), texts.take(kept), rows[~absent]
    as_read = rules.strip and not rules.fold_case
    plain = texts if as_read else tidy(raw)  # as the encoding reads numbers, whatever the rules of categories
    formats = dict.fromkeys([*DATES, *([rules.formats[found.name]] if found.name in rules.formats else [])])
    readings = {NUMBER: numbers(texts)} | {format: dates(texts, format) for format in formats}
    if found.name in rules.durations:
        readings[DURATION] = durations(plain)
    fits = {key: ~np.isnan(read) for key, read in readings.items()}
    whole = {key: read for key, read in readings.items() if np.isfinite(read).all() and len(read)}
    are_numbers = NUMBER in whole and found.form == Form.TEXT and found.name not in rules.as_text
    beyond = np.abs(readings[NUMBER]) > FLOAT32_MAX
    is_amount = found.name in rules.amounts
    spaces = pc.count_substring(raw, " ").to_numpy(zero_copy_only=False)
    unspaced = pc.count_substring_regex(raw, UNSPACED).to_numpy(zero_copy_only=False)
    return replace(
        found,
        missing=missing,
        unusable=int(rows[beyond].sum()) if are_numbers else 0,
        values=ValueCounts.of(texts, rows),
        parsed={key: _usable(read, rows) for key, read in whole.items()},
        n_parsed={key: int(rows[fit].sum()) for key, fit in fits.items()},
        mixed=MixedNumbers.of(plain, readings[NUMBER] if as_read else numbers(plain), rows),
        amounts=AmountForms.of(plain, rows, first_rows(column, raw)) if is_amount else None,
        characters=_total_length(pc.utf8_length(raw), rows),
        words=int(((spaces + 1 + unspaced // 2) * rows).sum()),
        longest=int(pc.max(pc.binary_length(raw)).as_py() or 0),
    )


def _usable(values: Float64, rows: npt.NDArray[np.int64]) -> Histogram:
    """Return the histogram of numbers that float32 holds, as that of a column of numbers."""
    usable = np.abs(values) <= FLOAT32_MAX
    return Histogram.of(values[usable], rows[usable])


def _total_length(lengths: pa.Array, rows: npt.NDArray[np.int64]) -> int:
    return int((lengths.to_numpy(zero_copy_only=False).astype(np.int64) * rows).sum())


def _merged(mine: Any, other: Any) -> Any:
    """Merge two sketches, either of which may be None."""
    if mine is None or other is None:
        return other if mine is None else mine
    return mine.merge(other)


def _joined_form(mine: ColumnSummary, other: ColumnSummary) -> Form:
    forms = {mine.form, other.form} - {Form.NOTHING}
    if len(forms) <= 1:
        return next(iter(forms), Form.NOTHING)
    if forms == {Form.NUMBER, Form.INTEGER}:
        return Form.NUMBER
    if forms == {Form.TEXT, Form.CATEGORY}:
        return Form.TEXT
    raise OperatorError(
        f"The column {mine.name!r} changes its type between shards: {', '.join(mine.types)} and then "
        f"{', '.join(other.types)}. Write it with one type at the source, read it as text "
        f"(source.text_columns, for CSV), or exclude it: source.exclude: {inline_yaml([mine.name])}."
    )


def _joined_mixed(mine: ColumnSummary, other: ColumnSummary) -> MixedNumbers | None:
    """Return the numbers and words of both; a side without texts leaves those of the other."""
    if not mine.present or not other.present:
        return mine.mixed if mine.present else other.mixed
    return None if mine.mixed is None or other.mixed is None else mine.mixed.merge(other.mixed)


def _joined_amounts(mine: ColumnSummary, other: ColumnSummary) -> AmountForms | None:
    """Return how the amounts of both are written; the rows of the other one come later."""
    if other.amounts is None:
        return mine.amounts
    return (mine.amounts or AmountForms({}, 0)).merge(other.amounts, mine.rows)


def _joined_readings(mine: ColumnSummary, other: ColumnSummary) -> dict[str, Histogram]:
    """Return the readings that fit the texts of both; a side without texts allows all of the other's."""
    if not mine.present or not other.present:
        return dict(mine.parsed or other.parsed)
    return {key: mine.parsed[key].merge(other.parsed[key]) for key in mine.parsed if key in other.parsed}
