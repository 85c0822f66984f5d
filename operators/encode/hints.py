"""Hints on texts that ``encode`` takes as categories or free text: dates of other formats, amounts, lists of
names."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from connectors.foundation.messages import cut
from operators.arrays import Float64
from operators.encode.amount_use import AMOUNT, amount_example, amounts_in
from operators.encode.durations import DURATION, are_durations
from operators.encode.mixed_numbers import MIN_NUMBERS
from operators.encode.sketches import ValueCounts
from operators.encode.texts import dates
from operators.yaml_text import inline_entry

FORMATS = (
    "%d-%b-%Y",
    "%d-%b-%y",
    "%d %b %Y",
    "%b %d, %Y",
    "%b %d %Y",
    "%Y-%m",
    "%m/%Y",
    "%b %Y",
    "%m-%d-%Y",
    "%d-%m-%Y",
    "%m/%d/%y",
    "%d/%m/%y",
    "%m/%d/%Y %I:%M %p",
    "%d/%m/%Y %I:%M %p",
    "%m/%d/%Y %I:%M:%S %p",
    "%m/%d/%y %H:%M",
    "%d/%m/%y %H:%M",
)
"""Formats of dates that are read only where the recipe names them, since some are ambiguous."""
MAX_SECONDS = 500 * 365.25 * 86_400.0
"""Seconds from 1970 within which dates are plausible: `10-12` does not mean December of the year 10."""
N_FIRST = 20
"""Texts on which a format is tried before all of them."""
MIN_LISTS, MIN_NAMES, MAX_NAME_WORDS = 0.8, 0.95, 4
"""Of a column that lists names: least shares of texts with a comma and of names between commas, and most
words of a name."""


def hint(name: str, examples: Sequence[str]) -> str:
    """Return how texts could be used as dates or numbers, with the remedy; empty if they are neither.

    Parameters
    ----------
    name : the column.
    examples : its most frequent texts.
    """
    if not examples:
        return ""
    texts = pa.array(examples, pa.large_string())
    rule = amounts_in(ValueCounts.of(texts, np.ones(len(texts), np.int64)), least=1)
    if rule is not None:
        return (
            f"amounts such as {amount_example(texts)!r}: used as numbers if operators.encode.columns says "
            f"`{inline_entry(name, AMOUNT)}`"
        )
    if are_durations(ValueCounts.of(texts, np.ones(len(texts), np.int64)), least=1):
        return (
            f"durations such as {examples[0]!r}: used as numbers if operators.encode.columns says "
            f"`{inline_entry(name, DURATION)}`"
        )
    fits = _fitting(texts)
    if not fits:
        return ""
    also = f" or {fits[1]!r}" if len(fits) > 1 else ""
    return (
        f"dates such as {examples[0]!r}: used as dates if operators.encode.columns says "
        f"`{inline_entry(name, {'format': fits[0]})}`{also}"
    )


def date_format(values: ValueCounts) -> str:
    """Return the only format of ``FORMATS`` that all texts fit; empty if none or several do.

    A column of few distinct dates may be one of batches, whose categories tell more.
    """
    if values.distinct < MIN_NUMBERS:
        return ""
    fits = _fitting(values.values)
    return fits[0] if len(fits) == 1 else ""


def list_hint(examples: Sequence[str]) -> str:
    """Return how texts that list names could be used as tags; empty if they are no such lists.

    Parameters
    ----------
    examples : some of the column's texts.
    """
    entries = [[entry.strip() for entry in text.split(",")] for text in examples]
    flat = [entry for one in entries for entry in one]
    several, names = sum(len(one) > 1 for one in entries), sum(map(_is_name, flat))
    if several < MIN_LISTS * max(len(entries), 1) or names < MIN_NAMES * len(flat):
        return ""
    return (
        f"lists such as {cut(examples[0], 40)!r}: a source that holds them as lists of texts (Parquet, JSON) "
        "makes them tags, which need no network"
    )


def _is_name(entry: str) -> bool:
    """Return whether a text is a few words, the first of which begins with a capital letter or a digit."""
    return bool(entry) and not entry[0].islower() and len(entry.split()) <= MAX_NAME_WORDS


def _fitting(texts: pa.Array) -> list[str]:
    """Return the formats of ``FORMATS`` that all texts fit; most fail at the first of them."""
    first = texts.slice(0, N_FIRST)
    return [
        format for format in FORMATS if _all_near(dates(first, format)) and _all_near(dates(texts, format))
    ]


def _all_near(seconds: Float64) -> bool:
    """Return whether all (n,) are times within ``MAX_SECONDS`` of 1970; NaN, for no date, is not."""
    return bool((np.abs(seconds) < MAX_SECONDS).all())
