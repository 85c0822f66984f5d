"""Identifiers: columns that number or name the rows, or whom a row is about, and measure nothing.

A network can learn such a column by heart, and a value that it has not seen tells it nothing.
:mod:`operators.encode.kinds` leaves a certain identifier out, and warns of a column that may be one.
"""

from __future__ import annotations

import math
import re

import numpy as np

from operators.encode.column_forms import Form
from operators.encode.sketches import EXACT, Histogram
from operators.encode.summary import NUMBER, ColumnSummary
from operators.yaml_text import inline_entry

MIN_ROWS = 50
"""Rows with a value below which no column is called an identifier: a small table may lack repetitions."""
MIN_UNIQUE_SHARE = 0.95
"""Distinct values per row from which a column counts as nearly unique."""
MIN_UNIQUE_SHARE_NAMED = 0.5
"""The least share for a column whose name says that it is an identifier: a patient may have several rows.
Texts that repeat more often are categories, which are not compared as numbers."""
MIN_OWNERS, MAX_ROWS_PER_OWNER = 50, 20
"""Whole numbers that are named as identifiers are such from so many distinct values on, with at most so many
rows each on average. Fewer values, or more rows of each, may be codes, such as those of a region."""
MAX_NUMBERING_SPAN = 1.5
"""Nearly unique whole numbers number the rows if at most so many numbers, in steps of their greatest common
divisor, lie between the least and the greatest one for each row."""
MIN_NUMBERED, MAX_OWNER_SPAN, MAX_ROWS_OF_ONE = 400, 1.05, 10.0
"""Numbers of persons or things with several rows each: at least so many distinct ones, almost without gaps,
and no number with more than so many times the mean rows. Ages and counts have fewer values, or gaps among
the largest ones."""
MIN_EVEN_ROWS, MAX_EVEN_DISTANCE = 1_000, 1.63
"""Nearly unique whole numbers of so many rows are spread as evenly as drawn identifiers if the statistic of
Kolmogorov and Smirnov, times the root of the number of rows, is at most that of the level 1 %."""
ID_NAME = re.compile(
    r"(^|[_\-. ])(id|ids|uid|uuid|guid|key|index|idx|rowid|row_id|nr|no)$|^unnamed: 0$"
    r"|^row[_. ]?(name|num|number)s?$|[a-z]I[dD]$"
)
"""Names of columns that number or identify rows. The name and its lower-case form are compared."""
OWNERS = (
    "account|acct|case|client|cust|customer|employee|emp|hh|household|invoice|member|order|participant|patient|"
    "person|pupil|respondent|school|student|study|subject|subj|transaction|unit|user"
)
"""Persons and things whose rows a table may hold."""
OWNER_NAME = re.compile(
    rf"(^|[_\-. ])(id|uid|uuid|guid)$|^unnamed: 0$|[a-z]I[dD]$|^(id[_\-. ]?no|child[_\-. ]?id|({OWNERS})"
    r"[_\-. ]?(id|no|nr|nbr|num|number))$"
    r"|^(client|customer|participant|patient|person|respondent|subject|user)$"
)
"""Names of columns that identify whom or what a row is about. Unlike an index or a number, such a column
cannot be a measurement."""
YEAR_NAME = re.compile(r"(^|[_\-. ])(year|yr|season)[_\-. ]?id$")
"""Names of years that end as those of identifiers, such as ``yearID``, where all values are years."""
FIRST_YEAR, LAST_YEAR = 1000, 2200
TIME_NAME = re.compile(
    r"(^|[_\-. ])(\w*(time|date|stamp)|ts|epoch|year|yr|quarter|month|week|day|hour|minute|second|period)s?"
    r"($|[_\-. ])"
)
"""Names of points in time, which are unique and evenly spaced where a table has a row for each hour."""


def looks_like_id(name: str) -> bool:
    """Return whether the name of a column says that it identifies or numbers rows."""
    return _is_named(ID_NAME, name) or names_owner(name)


def names_owner(name: str) -> bool:
    """Return whether the name of a column says that it identifies whom or what a row is about."""
    return _is_named(OWNER_NAME, name)


def are_unique_texts(summary: ColumnSummary) -> bool:
    """Return whether few texts repeat; those of a column that is named an identifier may repeat half."""
    least = MIN_UNIQUE_SHARE_NAMED if names_owner(summary.name) else MIN_UNIQUE_SHARE
    return summary.present >= MIN_ROWS and summary.distinct >= least * summary.present


def are_numbers_of_rows(summary: ColumnSummary) -> bool:
    """Return whether whole numbers identify or number the rows, or whom or what they are about.

    They do if they are nearly unique and without many gaps between multiples of one step, or if they are
    named as identifiers, or lie beyond the whole numbers that float64 tells apart.
    """
    histogram = _whole_numbers(summary)
    if histogram is None or _are_years(summary.name, histogram):
        return False
    name, unique = summary.name, summary.distinct >= MIN_UNIQUE_SHARE * summary.present
    if unique and (
        looks_like_id(name)
        or (summary.form != Form.NUMBER and is_numbering(name, summary.present, histogram))
    ):
        return True
    beyond = _is_beyond(histogram) and not _is_named(TIME_NAME, name)
    return _has_owners(summary) and (names_owner(name) or beyond)


def are_nearly_unique_numbers(summary: ColumnSummary) -> bool:
    """Return whether whole numbers repeat seldom enough for an identifier, whatever their range."""
    least = MIN_UNIQUE_SHARE_NAMED * summary.present
    return _whole_numbers(summary) is not None and (summary.distinct >= least or _has_owners(summary))


def identifier_doubt(summary: ColumnSummary) -> str:
    """Return why whole numbers that are used as a feature may be identifiers; empty if nothing says so."""
    histogram = _whole_numbers(summary)
    if histogram is None or summary.distinct < 3 or _are_years(summary.name, histogram):
        return ""
    about = "" if summary.is_exact else "about "
    unique = summary.distinct >= MIN_UNIQUE_SHARE * summary.present
    distinct = f"{about}{summary.distinct:,} distinct whole numbers in {summary.present:,} rows"
    if names_owner(summary.name):
        why = f"its name says that it identifies something ({distinct})"
    elif _is_named(TIME_NAME, summary.name):
        return ""
    # Whole numbers of a type for fractions, such as the scores 0.0 to 100.0: others like these are not used.
    elif unique and is_numbering(summary.name, summary.present, histogram):
        why = f"{distinct} without gaps, as row numbers have them"
    elif _numbers_owners(summary, histogram):
        why = f"{distinct} without gaps, each with a few rows, as numbers of persons or things have them"
    elif _is_even(summary, histogram):
        why = f"{distinct}, as evenly spread over their range as identifiers are"
    else:
        return ""
    entries = (f"`{inline_entry(summary.name, kind)}`" for kind in ("exclude", "categorical"))
    return (
        f"used as a number, but it may be an identifier: {why}. If it is one, write "
        f"{' or '.join(entries)} under operators.encode.columns"
    )


def is_numbering(name: str, n_rows: int, histogram: Histogram) -> bool:
    """Return whether unique whole numbers leave few gaps between multiples of one step, and tell no time.

    The numbers may be those of a sample of ``n_rows`` rows.
    """
    most = MAX_NUMBERING_SPAN * n_rows
    if _span(histogram, 1) <= most:
        return True
    step = _step(histogram)
    is_time = _is_named(TIME_NAME, name) or _is_clock(histogram, step)
    return not is_time and _span(histogram, step) <= most


def expected_repeats(histogram: Histogram) -> float:
    """Return how many pairs of rows would have the same number if all numbers of the range were as likely.

    Where some are likelier there are more. Rows that are numbered have none, and nor has any sample of them.
    """
    return math.comb(histogram.rows, 2) / _span(histogram, _step(histogram))


def _is_named(pattern: re.Pattern[str], name: str) -> bool:
    return bool(pattern.search(name.lower()) or pattern.search(name))


def _are_years(name: str, histogram: Histogram) -> bool:
    """Return whether whole numbers are years, by their name and their range."""
    plausible = histogram.low[0] >= FIRST_YEAR and histogram.high[-1] <= LAST_YEAR
    return bool(plausible and YEAR_NAME.search(name.lower()))


def _whole_numbers(summary: ColumnSummary) -> Histogram | None:
    """Return the numbers of enough rows if all are whole; else None."""
    histogram = summary.histogram if summary.form in (Form.INTEGER, Form.NUMBER) else None
    histogram = histogram or summary.parsed.get(NUMBER)
    if histogram is None or not histogram.rows or summary.present < MIN_ROWS:
        return None
    return None if bool((histogram.low % 1).any() or (histogram.high % 1).any()) else histogram


def _has_owners(summary: ColumnSummary) -> bool:
    """Return whether there are many values, with few rows each."""
    few_rows = summary.distinct >= max(MIN_OWNERS, summary.present / MAX_ROWS_PER_OWNER)
    return few_rows or summary.distinct >= MIN_UNIQUE_SHARE_NAMED * summary.present


def _numbers_owners(summary: ColumnSummary, histogram: Histogram) -> bool:
    """Return whether whole numbers without gaps have a few rows each, about as many as one another."""
    distinct = summary.distinct
    if distinct < max(MIN_NUMBERED, summary.present / MAX_ROWS_PER_OWNER) or distinct > summary.present / 1.5:
        return False
    crowded = bool(histogram.counts.max() > MAX_ROWS_OF_ONE * histogram.counts.mean())
    return not crowded and _span(histogram, _step(histogram)) <= MAX_OWNER_SPAN * distinct


def _is_even(summary: ColumnSummary, histogram: Histogram) -> bool:
    """Return whether many nearly unique numbers are spread as evenly as draws of a uniform distribution."""
    few = summary.present < MIN_EVEN_ROWS or summary.distinct < MIN_UNIQUE_SHARE * summary.present
    if few or _is_clock(histogram, _step(histogram)):
        return False
    ends = np.cumsum(histogram.counts) / histogram.rows
    places = (histogram.high - histogram.low[0]) / (histogram.high[-1] - histogram.low[0])
    distance = float(np.abs(ends - places).max())
    return distance * math.sqrt(histogram.rows) <= MAX_EVEN_DISTANCE


def _step(histogram: Histogram) -> int:
    """Return the greatest common divisor of the differences between numbers, at least 1.

    Of buckets only the bounds are known: their divisor is a multiple of that of all numbers, and the same one
    unless thousands of numbers happen to share a factor that the others lack.
    """
    bounds = np.unique(np.concatenate([histogram.low, histogram.high]))
    if max(abs(bounds[0]), abs(bounds[-1])) >= 2.0**62:  # differences would leave int64
        return 1
    steps = np.diff(bounds.astype(np.int64))
    return int(np.gcd.reduce(steps)) if len(steps) else 1


def _span(histogram: Histogram, step: int) -> float:
    """Return how many numbers of this step lie between the least and the greatest one, both included."""
    return float(histogram.high[-1] - histogram.low[0]) / step + 1


def _is_beyond(histogram: Histogram) -> bool:
    """Return whether nearly all numbers lie beyond those that float64 tells apart."""
    beyond = (histogram.low > EXACT) | (histogram.high < -EXACT)
    return int(histogram.counts[beyond].sum()) >= MIN_UNIQUE_SHARE * histogram.rows


def _is_clock(histogram: Histogram, step: int) -> bool:
    """Return whether numbers are full minutes from 1980 to 2100, in some unit of time since 1970."""
    low, high = float(histogram.low[0]), float(histogram.high[-1])
    units = (1, 10**3, 10**6, 10**9)
    return any(3.2e8 * unit <= low and high <= 4.1e9 * unit and step % (60 * unit) == 0 for unit in units)
