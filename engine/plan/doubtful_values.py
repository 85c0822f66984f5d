"""Values that a table may mean otherwise than they are read: numbers that are text, codes that are missing.

The texts of this module are warnings of ``rowsieve validate`` and ``rowsieve init``. They change nothing in
the use of the values.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from connectors.foundation.messages import first_of
from engine.plan.source_columns import SourceColumn, share_text
from operators.encode.amount_use import AMOUNT, amount_example, amounts_in, several_units
from operators.encode.amounts import MAX_UNREAD_SHARE
from operators.encode.column_forms import Form, holds_texts
from operators.encode.column_use import Kind, Unused
from operators.encode.durations import DURATION, are_durations
from operators.encode.mixed_numbers import CODE, MAX_WORD_SHARE, MIN_NUMBERS, MixedNumbers
from operators.encode.sketches import Histogram, ValueCounts
from operators.encode.summary import NUMBER, ColumnSummary
from operators.encode.texts import numbers
from operators.yaml_text import inline_entry, inline_yaml

MAX_WORDS = 3
"""Distinct words among numbers up to which they may all stand for a missing value."""
N_EXAMPLES = 20
"""Most frequent texts of a column that are looked at."""
TEXT_REASONS = (Unused.IDENTIFIER, Unused.WRITTEN)
"""Reasons for which texts that may be numbers are not used."""
NONE = "none"
"""Says of a category that there is no such thing, as of insurance cases; elsewhere no value is known."""
MISSING_ELSEWHERE = ("", "NA", "n/a", "nan")
"""Words for missing that the remedy shows."""
MIN_CODE_SHARE = 0.01
"""Share of missing values of a column from which their word is doubted."""
UNKNOWN = re.compile(
    r"n\.?/?[ak]\.?|unk(nown)?|not (known|available|applicable|given)|missing|tb[ad]|[-?.–—]+", re.IGNORECASE
)
"""Words that stand for a missing value in any column of numbers, be the numbers few or many."""
MIN_RATINGS = 3
"""Distinct numbers of such a column at least."""
BOUND = r"^\s*(?:[<>]=?|[≤≥])\s*[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?\s*$"
"""A number of which only a bound is known, such as ``>90`` or ``<0.05``."""
MIN_BOUND_SHARE = 0.01
"""Share of such values from which a column of numbers is doubted; fewer count as missing, with a warning."""
NINES = re.compile(r"-?9{2,}")
"""Numbers that often stand for a missing value."""
MIN_NINES_SHARE, MIN_NINES = 0.005, 2
"""Least share of the rows with such a number, and least rows."""
FAR = 10
"""Ranges of the other numbers by which such a number lies beyond them."""
MIN_LETTERS = 3
"""Letters of a text from which its case is taken for a matter of spelling; shorter ones may be codes."""
MAX_SPELLINGS = 3
"""Spellings of a text that a sentence shows."""
N_SPELLINGS = 200
"""Most frequent texts whose spellings are compared."""
ALIKE = 0.5
"""Share of a column's frequent values that have to look like such a word."""


def numbers_as_text(
    columns: Sequence[SourceColumn], missing: Sequence[str], named: Mapping[str, object]
) -> Iterator[str]:
    """Yield a sentence for each column of numbers that is read as text, with the remedy.

    Parameters
    ----------
    columns
        All source columns.
    missing
        Words of ``source.missing``.
    named
        Columns of which the recipe tells the kind: nothing is said of them.

    """
    for column in columns:
        summary = column.summary
        is_text = column.use.kind == Kind.CATEGORICAL or column.use.reason in TEXT_REASONS
        if summary is None or summary.values is None or not is_text or column.name in named:
            continue
        if summary.distinct >= MIN_NUMBERS:
            about = _about_numbers(column, summary, missing)
        else:
            rated = summary.mixed is not None and _are_ratings_but_for_words(summary.mixed)
            about = _about_words(column.name, summary.mixed, missing) if summary.mixed and rated else ""
        if about:
            yield f"column {column.name!r}: {about}"


def _about_numbers(column: SourceColumn, summary: ColumnSummary, missing: Sequence[str]) -> str:
    """Return what is said of a column whose texts may be numbers; empty if they are none."""
    bounds = _about_bounds(column, summary.values, missing) if summary.values is not None else ""
    if bounds:
        return bounds
    if summary.mixed is not None and _are_numbers_but_for_words(summary.mixed):
        return _about_words(column.name, summary.mixed, missing)
    if summary.values is None:
        return ""
    used = "so that it is not used" if column.use.reason else "and used as categories"
    if amounts_in(summary.values) is not None:
        shown = amount_example(summary.values.values)
        remedy = f"Write `{inline_entry(column.name, AMOUNT)}` under operators.encode.columns"
        return f"amounts such as {shown!r} are text, {used}. {remedy}, and they are numbers."
    if are_durations(summary.values):
        shown = summary.examples(1)[0]
        remedy = f"Write `{inline_entry(column.name, DURATION)}` under operators.encode.columns"
        return f"durations such as {shown!r} are text, {used}. {remedy}, and they are numbers."
    units = several_units(summary.values)
    if units:
        remedy = "Convert them into one at the source"
        return f"amounts in several units, {units}, are text, {used}. {remedy}, and they are numbers."
    return ""


def _about_bounds(column: SourceColumn, values: ValueCounts, missing: Sequence[str]) -> str:
    """Return what is said of numbers of which some have "<" or ">" before them; empty without such ones."""
    is_bound = pc.match_substring_regex(values.values, BOUND).to_numpy(zero_copy_only=False)
    rows, total = int(values.counts[is_bound].sum()), int(values.counts.sum())
    if not MIN_BOUND_SHARE * total <= rows <= total / 2:
        return ""
    others = numbers(values.values.filter(pa.array(~is_bound)))
    if values.counts[~is_bound][np.isnan(others)].sum() > MAX_WORD_SHARE * total:
        return ""
    texts = values.values.filter(pa.array(is_bound)).to_pylist()
    first = texts[int(values.counts[is_bound].argmax())]
    remedy = f"write the bound itself at the source ({first.strip(' <>=≤≥')} for {first!r})"
    if len(texts) <= MAX_WORDS:
        remedy += f"; or set source.missing: {inline_yaml([*missing, *texts])}, and they count as missing"
    elif rows <= MAX_UNREAD_SHARE * total:
        entry = inline_entry(column.name, AMOUNT)
        remedy += f"; or write `{entry}` under operators.encode.columns, and they count as missing"
    used = "so that the column is not used" if column.use.reason else "and every value is a category"
    return (
        f"{rows:,} of {total:,} values ({share_text(rows / total)}) have '<' or '>' before a number, {used}. "
        f"For a numeric column, {remedy}."
    )


def codes_of_nines(columns: Sequence[SourceColumn], missing: Sequence[str], *, is_csv: bool) -> Iterator[str]:
    """Yield a sentence for each numeric column with a number such as 9999 that may stand for no value.

    Parameters
    ----------
    columns
        All source columns.
    missing
        Words of ``source.missing``.
    is_csv
        Whether the source is CSV, in which ``source.missing`` is for numbers, too.

    """
    for column in columns:
        summary = column.summary
        if column.use.kind != Kind.NUMERIC or summary is None:
            continue
        found = summary.histogram or summary.parsed.get(NUMBER) or (summary.mixed and summary.mixed.numbers)
        code = _code_of_nines(found) if found else None
        if not found or code is None:
            continue
        value, rows, low, high = code
        share = share_text(rows / found.rows)
        remedy = "write null for it at the source"
        if is_csv or summary.form == Form.TEXT:
            words = inline_yaml([*missing, f"{value:.0f}"])
            remedy = f"set source.missing: {words}, as the files write it; the key is for all columns"
        yield (
            f"column {column.name!r}: the number {value:.0f} ({rows:,} rows, {share}) "
            f"lies apart from all others, which are from {low:,g} to {high:,g}. If it stands for a missing "
            f"value, {remedy}."
        )


def _code_of_nines(found: Histogram) -> tuple[float, int, float, float] | None:
    """Return a number of nines that lies apart, its rows, and the least and largest other number."""
    if len(found.low) <= 2:
        return None
    for end, others in ((0, slice(1, None)), (-1, slice(None, -1))):
        value, rows = float(found.low[end]), int(found.counts[end])
        low, high = float(found.low[others][0]), float(found.high[others][-1])
        is_single = value == found.high[end] and NINES.fullmatch(f"{value:.0f}") and value == round(value)
        is_apart = max(low - value, value - high) > FAR * (high - low) or value < 0 <= low
        if is_single and is_apart and rows >= max(MIN_NINES, MIN_NINES_SHARE * found.rows):
            return value, rows, low, high
    return None


def _are_numbers_but_for_words(mixed: MixedNumbers) -> bool:
    """Return whether most values are numbers, and the others a few words without a digit."""
    if not mixed.are_mostly_numbers or mixed.numbers.distinct < MIN_NUMBERS or len(mixed.words) > MAX_WORDS:
        return False
    return not any(CODE.fullmatch(word) or re.search(r"\d", word) for word in mixed.words)


def _are_ratings_but_for_words(mixed: MixedNumbers) -> bool:
    """Return whether most values are numbers, of which there are few, and the others stand for none."""
    if not mixed.words or not mixed.are_mostly_numbers or mixed.numbers.distinct < MIN_RATINGS:
        return False
    return all(map(UNKNOWN.fullmatch, mixed.words))


def _about_words(name: str, mixed: MixedNumbers, missing: Sequence[str]) -> str:
    words = sorted(mixed.words, key=lambda word: (-mixed.words[word], word))
    rows, share = mixed.n_words, mixed.n_words / (mixed.numbers.rows + mixed.n_words)
    return (
        f"all values but {' and '.join(map(repr, words))} ({rows:,} rows, {share_text(share)}) are numbers, "
        "and each of them is a category. If that stands for a missing value, set source.missing: "
        f"{inline_yaml([*missing, *words])}, and the column is numeric; if it is a category, say so by "
        f"operators.encode.columns: {{{inline_entry(name, str(Kind.CATEGORICAL))}}}."
    )


OF_SOURCE = "take the word out of source.missing, which is for all columns"
OF_ENCODE = "set operators.encode.missing_values to the words that stand for no value, without it"


def codes_read_as_missing(
    words: Mapping[str, Mapping[str, float]],
    summaries: Mapping[str, ColumnSummary],
    label: str,
    remedy: str = OF_SOURCE,
) -> Iterator[str]:
    """Yield a sentence for each column of which a word for missing values may be a code or a category.

    ``NA`` stands for North America beside ``EU`` and ``AS``, and for no value elsewhere.

    Parameters
    ----------
    words
        Words that are read as null, by column, each with its share of the rows.
    summaries
        Figures of the columns, with these words as missing values.
    label
        Of which nothing is said.
    remedy
        Says how the word becomes a value.

    """
    for name, found in words.items():
        values = summaries[name].examples(N_EXAMPLES) if name != label and name in summaries else []
        for word, share in found.items():
            alike = sum(len(value) == len(word) and value.isupper() for value in values)
            is_code = word.isalpha() and word.isupper() and alike > ALIKE * len(values)
            is_category = word.lower() == NONE and name in summaries and summaries[name].form == Form.TEXT
            if MIN_CODE_SHARE <= share < 1 and (is_code or is_category):
                read, shown = f"{share_text(share)} of the rows", ", ".join(map(repr, values[:3]))
                others = f"{shown} {'are values' if len(values) > 1 else 'is a value'}"
                others = others if values else "the column has no value"
                yield (
                    f"column {name!r}: {word!r}, {read}, is read as a missing value, and {others}. "
                    f"If it is one as well, {remedy}."
                )


def codes_among_categories(
    columns: Sequence[SourceColumn],
    rows: pa.Table,
    missing: Sequence[str],
    label: str,
    remedy: str = OF_ENCODE,
) -> Iterator[str]:
    """Yield a sentence for each column of which a word that is read as missing may be a code.

    Parameters
    ----------
    columns
        All source columns.
    rows
        Rows with these words as they are written.
    missing
        Texts that stand for a missing value.
    label
        Of which nothing is said.
    remedy
        Says how the word becomes a value.

    """
    words, summaries = dict[str, dict[str, float]](), dict[str, ColumnSummary]()
    asked = pa.array([word for word in missing if word and word.lower() != NONE], pa.large_string())
    for column in columns:
        is_category = column.use.kind == Kind.CATEGORICAL or column.use.reason == Unused.MISSING
        summary = column.summary
        if not is_category or summary is None or column.name not in rows.column_names:
            continue
        if not holds_texts(rows[column.name].type) or not rows.num_rows:
            continue
        texts = pc.utf8_trim_whitespace(rows[column.name].cast(pa.large_string()))
        counts = texts.filter(pc.is_in(texts, asked)).value_counts().to_pylist()
        words[column.name] = {one["values"]: one["counts"] / len(texts) for one in counts}
        summaries[column.name] = summary
    yield from codes_read_as_missing(words, summaries, label, remedy)


def doubtful_categories(
    columns: Sequence[SourceColumn],
    rows: pa.Table,
    named: Mapping[str, object],
    missing: Sequence[str],
    *,
    fold_case: bool,
) -> Iterator[str]:
    """Yield a sentence for each column with "none" among its texts, or texts that differ in case alone.

    Parameters
    ----------
    columns
        All source columns.
    rows
        The rows that were looked at.
    named
        Columns of which the recipe tells the kind: nothing is said of them.
    missing
        Texts that stand for a missing value to ``encode``.
    fold_case
        Whether ``encode`` ignores the case of letters.

    """
    is_missing = NONE in {word.lower() for word in missing}
    for column in columns:
        without_value = column.use.reason == Unused.MISSING
        if column.use.kind != Kind.CATEGORICAL and not without_value:
            continue
        summary = column.summary
        if column.name in named or column.name not in rows.column_names:
            continue
        if summary is None or summary.form != Form.TEXT or summary.values is None:
            continue
        word, share = _none_of(rows[column.name]) if is_missing else ("", 0.0)
        if share >= MIN_CODE_SHARE and not (without_value and share == 1):
            yield (
                f"column {column.name!r}: {word!r}, {share_text(share)} of the rows, is read as a missing "
                "value. If it is a category, set operators.encode.missing_values to the words that stand for "
                f"no value, such as {inline_yaml(list(MISSING_ELSEWHERE))}."
            )
        spellings = (
            [] if fold_case else _spellings([text for text, _ in summary.values.most_frequent(N_SPELLINGS)])
        )
        if spellings:
            shown = first_of([*map(repr, spellings)], MAX_SPELLINGS)
            yield (
                f"column {column.name!r}: {shown} differ in the case of letters alone, and each is a "
                "category. If they are one, set operators.encode.categorical.fold_case: true."
            )


def _none_of(column: pa.ChunkedArray) -> tuple[str, float]:
    """Return "none" as a column first writes it, and the share of the rows that hold it in any case."""
    texts = pc.utf8_trim_whitespace(column.cast(pa.large_string()))
    found = texts.filter(pc.equal(pc.utf8_lower(texts), NONE))
    return (str(found[0]), len(found) / len(texts)) if len(found) else ("", 0.0)


def _spellings(texts: Sequence[str]) -> list[str]:
    """Return the first texts that differ in case alone; empty without such texts."""
    found: dict[str, list[str]] = {}
    for text in texts:
        found.setdefault(text.casefold(), []).append(text)
    return next((same for key, same in found.items() if len(same) > 1 and len(key) >= MIN_LETTERS), [])
