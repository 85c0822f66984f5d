"""The views of a table's columns: which columns a rule may use, and how their values are divided.

Numbers and dates are cut at readable thresholds. Texts with few values, and booleans, give one column for
each frequent value; long texts give one column for each frequent term, and lists of texts one for each
frequent entry. White space around texts is ignored.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from operators.arrays import Float64
from operators.columns import is_number
from operators.descriptions.views import LevelView, NumberView, PartView, TextView, View
from operators.encode.calendar_words import PERIODS
from operators.encode.column_forms import as_numbers
from operators.encode.datetimes import calendar_part, default_parts
from operators.encode.identifiers import expected_repeats, is_numbering, looks_like_id
from operators.encode.sketches import Histogram
from operators.encode.tags import is_tags, read_tags
from operators.encode.texts import DATES, MISSING_TEXTS, dates, is_missing, numbers, tidy
from operators.readable import SECONDS_PER_DAY, Scale, readable_between
from operators.unspaced_scripts import lower_words, mean_words

MAX_CUTS = 31
"""Most thresholds by quantiles of the rows, and as many by quantiles of the distinct values."""
MAX_LEVELS, MIN_LEVEL_SHARE, MIN_LEVEL_ROWS = 24, 0.005, 20
"""Most frequent values of a column, and the least share and number of rows of each."""
MAX_TERMS, MIN_TERM_ROWS = 400, 10
"""Most terms or entries of a column, and the fewest rows that have a term."""
MAX_CHARACTERS = 4_000
"""Characters of a text that are read."""
TEXT_WORDS = 4.0
"""Mean number of words from which a column is text rather than a category."""
NUMBER_SHARE = 0.95
"""Texts count as numbers or dates if at least this share of the values can be parsed."""
UNIQUE_SHARE = 0.98
"""Share of distinct whole numbers above which a column may be an identifier."""
MAX_REPEATS, MIN_EXPECTED_REPEATS = 0.1, 5.0
"""Repeats among numbers of rows, in multiples of those among random numbers of the range, and how many of
the latter a sample must be expected to have if their lack is to say anything."""


def views_of(
    table: pa.Table,
    fit: npt.NDArray[np.bool_],
    missing: Sequence[str] = MISSING_TEXTS,
    n_rows: int | None = None,
) -> list[View]:
    """Return the columns that a rule may use, in the order of the table.

    Columns of vectors, bytes and structs, constant columns and identifiers have no view. Durations and times
    of day are numbers of seconds. Texts are numbers, dates or missing as for ``encode``.

    Parameters
    ----------
    table : source columns of n sampled rows.
    fit : rows, shape (n,), from which thresholds, frequent values and terms are taken.
    missing : texts that stand for a missing value.
    n_rows : rows that the table is a sample of; by default its own.
    """
    found: list[View | None] = []
    for name in table.column_names:
        column = table.column(name).combine_chunks()
        if pa.types.is_string_view(column.type):
            column = column.cast(pa.large_string())
        column = _with_dates(column, fit, missing)
        found += [_view(name, column, fit, missing, n_rows or table.num_rows), *_parts(name, column, fit)]
    return [view for view in found if view is not None and view.width]


def _view(
    name: str, column: pa.Array, fit: npt.NDArray[np.bool_], missing: Sequence[str], n_rows: int
) -> View | None:
    kind = column.type
    if pa.types.is_dictionary(kind):
        column = column.cast(kind.value_type)
        kind = column.type
    if pa.types.is_boolean(kind):
        texts = pc.if_else(column, "true", "false")
        return _levels(name, texts.to_pylist(), fit)
    if is_number(kind):
        values = _floats(column)
        return None if _is_identifier(name, values, kind, n_rows) else _numbers(name, values, fit)
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        return _dates(name, column, fit)
    if pa.types.is_duration(kind) or pa.types.is_time(kind):
        return _numbers(name, as_numbers(pa.chunked_array([column])), fit)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return _strings(name, column, fit, missing)
    return _entries(name, column, fit) if is_tags(kind) else None


def _floats(column: pa.Array) -> Float64:
    values = pc.cast(column, pa.float64(), safe=False)
    found = np.array(values.to_numpy(zero_copy_only=False), np.float64)
    found[~np.isfinite(found)] = np.nan
    return found


def _is_identifier(name: str, values: Float64, kind: pa.DataType, n_rows: int) -> bool:
    """Return whether whole numbers are unique, and named as identifiers or numbered without gaps."""
    present = values[~np.isnan(values)]
    if not pa.types.is_integer(kind) or len(present) < 3:
        return False
    repeats = len(present) - len(np.unique(present))
    if repeats >= (1 - UNIQUE_SHARE) * len(present):
        return False
    return looks_like_id(name) or _number_rows(name, present, repeats, n_rows)


def _number_rows(name: str, present: Float64, repeats: int, n_rows: int) -> bool:
    """Return whether numbers of a sample of ``n_rows`` rows number these rows.

    Any whole numbers with a wide range are nearly unique in a small sample. They must repeat less than random
    ones would; where these would hardly repeat either, they must rise or fall with the rows.
    """
    histogram = Histogram.of(present)
    if not is_numbering(name, n_rows, histogram):
        return False
    expected = expected_repeats(histogram)
    if expected >= MIN_EXPECTED_REPEATS:
        return repeats <= MAX_REPEATS * expected
    steps = np.diff(present)
    return bool((steps > 0).all() or (steps < 0).all())


def _numbers(
    name: str, values: Float64, fit: npt.NDArray[np.bool_], scale: Scale = "number"
) -> NumberView | None:
    present = values[fit & ~np.isnan(values)]
    cuts = readable_cuts(present, scale)
    gaps = bool(np.isnan(values[fit]).any())
    return NumberView(name, values, cuts, scale) if len(cuts) or (gaps and len(present)) else None


def _dates(name: str, column: pa.Array, fit: npt.NDArray[np.bool_]) -> NumberView | None:
    moments = pc.cast(column, pa.timestamp("us"), safe=False)
    micros = _floats(pc.cast(moments, pa.int64()))
    return _numbers(name, micros / 1e6, fit, "date" if _spans_days(micros / 1e6) else "time")


def _with_dates(column: pa.Array, fit: npt.NDArray[np.bool_], missing: Sequence[str]) -> pa.Array:
    """Return a column of texts as dates if nearly all of them are dates of one format, else unchanged."""
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        return column
    texts = tidy(column)
    present = ~is_missing(texts, missing)
    for format in DATES:
        seconds = dates(texts, format)
        if present[fit].any() and np.isfinite(seconds)[present & fit].mean() >= NUMBER_SHARE:
            gaps = np.isnan(seconds)
            micros = np.round(np.where(gaps, 0, seconds) * 1e6).astype(np.int64)
            return pa.array(micros, mask=gaps).cast(pa.timestamp("us"))
    return column


def _parts(name: str, column: pa.Array, fit: npt.NDArray[np.bool_]) -> list[PartView]:
    """Return the cyclic parts of a column of dates that vary, in the local time of its zone."""
    if not (pa.types.is_date(column.type) or pa.types.is_timestamp(column.type)):
        return []
    zoned = pa.types.is_timestamp(column.type) and column.type.tz
    moments = pc.cast(pc.local_timestamp(column) if zoned else column, pa.timestamp("us"), safe=False)
    seconds = _floats(pc.cast(moments, pa.int64())) / 1e6
    absent = np.isnan(seconds)
    if not (fit & ~absent).any():
        return []
    parts = default_parts(Histogram.of(seconds[fit & ~absent]))
    whole = np.where(absent, 0.0, seconds)
    return [
        PartView(name, part, np.where(absent, np.nan, calendar_part(whole, part)))
        for part in parts
        if part in PERIODS
    ]


def _spans_days(seconds: Float64) -> bool:
    present = seconds[~np.isnan(seconds)]
    return not len(present) or float(np.ptp(present)) > 60 * SECONDS_PER_DAY


def _strings(name: str, column: pa.Array, fit: npt.NDArray[np.bool_], missing: Sequence[str]) -> View | None:
    tidied = tidy(column)
    absent = is_missing(tidied, missing)
    present = fit & ~absent
    if not present.any():
        return None
    values = numbers(tidied)
    values = np.where(absent | np.isinf(values), math.nan, values)
    if (~np.isnan(values))[present].mean() >= NUMBER_SHARE:
        return _numbers(name, values, fit)
    texts = [
        None if gone else value[:MAX_CHARACTERS].strip()
        for value, gone in zip(column.to_pylist(), absent, strict=True)
    ]
    chosen = [text for text, use in zip(texts, present, strict=True) if use and text is not None]
    if mean_words(chosen) >= TEXT_WORDS and len(set(chosen)) > MAX_LEVELS:
        return _terms(name, texts, fit)
    return _levels(name, texts, fit)


def _levels(name: str, texts: Sequence[str | None], fit: npt.NDArray[np.bool_]) -> LevelView | None:
    counts: dict[str, int] = {}
    for text, use in zip(texts, fit, strict=True):
        if use and text is not None:
            counts[text] = counts.get(text, 0) + 1
    least = max(MIN_LEVEL_ROWS, MIN_LEVEL_SHARE * int(fit.sum()))
    frequent = [text for text, rows in counts.items() if rows >= least]
    levels = sorted(frequent, key=lambda text: (-counts[text], text))[:MAX_LEVELS]
    place = {text: code for code, text in enumerate(levels)}
    other = len(levels)  # present, but not frequent
    codes = np.array([-1 if text is None else place.get(text, other) for text in texts], np.int64)
    gaps = bool((codes[fit] < 0).any() and (codes[fit] >= 0).any())
    constant = len(counts) < 2
    return None if constant and not gaps else LevelView(name, codes, () if constant else tuple(levels), gaps)


def _terms(name: str, texts: Sequence[str | None], fit: npt.NDArray[np.bool_]) -> TextView | None:
    from sklearn.feature_extraction.text import CountVectorizer

    filled = [text or "" for text in texts]
    counter = CountVectorizer(
        binary=True,
        preprocessor=lower_words,
        stop_words="english",
        min_df=MIN_TERM_ROWS,
        max_df=0.95,
        max_features=MAX_TERMS,
        token_pattern=r"(?u)\b\w[\w'-]+\b",
        dtype=np.uint8,
    )
    try:
        counter.fit([text for text, use in zip(filled, fit, strict=True) if use])
    except ValueError:  # no term is frequent enough
        return None
    occurs = counter.transform(filled).toarray().astype(np.bool_)
    return TextView(name, occurs, tuple(counter.get_feature_names_out()))


def _entries(name: str, column: pa.Array, fit: npt.NDArray[np.bool_]) -> TextView | None:
    lists = pa.chunked_array([column])
    texts, rows, places = read_tags(lists, strip=True, fold_case=False, missing=("",))
    counts = np.bincount(places[fit[rows]], minlength=len(texts))
    frequent = np.flatnonzero((counts >= MIN_LEVEL_ROWS) & (counts < fit.sum()))
    kept = np.sort(frequent[np.argsort(-counts[frequent], kind="stable")[:MAX_TERMS]])
    if not len(kept):
        return None
    column_of = np.full(len(texts), -1)
    column_of[kept] = np.arange(len(kept))
    inside = column_of[places] >= 0
    occurs = np.zeros((len(column), len(kept)), np.bool_)
    occurs[rows[inside], column_of[places[inside]]] = True
    return TextView(name, occurs, tuple(texts.take(pa.array(kept)).to_pylist()))


def readable_cuts(values: Float64, scale: Scale = "number") -> Float64:
    """Return increasing thresholds with few digits that cut the values about evenly.

    Parameters
    ----------
    values : shape (m,), without NaN.
    scale : dates are cut at the beginning of a day.

    Returns
    -------
    At most twice ``MAX_CUTS`` thresholds t, each with values on both sides (value < t and value >= t).
    Between few distinct values every gap has one; else each lies within half a step of an even quantile of
    the values, or of the distinct values.
    """
    distinct = np.unique(values)
    if len(distinct) < 2:
        return np.empty(0)
    if len(distinct) <= MAX_CUTS + 1:
        pairs = list(pairwise(distinct))
    else:
        step = 1 / (MAX_CUTS + 1)
        middle = np.arange(1, MAX_CUTS + 1) * step
        pairs = []
        # Quantiles of the rows miss rare large values; quantiles of the distinct values do not.
        for of in (values, distinct):
            low, high = (np.quantile(of, middle + side * step / 2, method="lower") for side in (-0.5, 0.5))
            pairs += list(zip(low, high, strict=True))
    cuts = [readable_between(float(a), float(b), scale) for a, b in pairs if b > distinct[0]]
    return np.unique(np.array([cut for cut in cuts if distinct[0] < cut <= distinct[-1]], np.float64))
