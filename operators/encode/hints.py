"""Hints on texts that ``encode`` takes as categories: dates of other formats, numbers with signs."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from operators.arrays import Float64
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
SIGN = "[$€£¥]"
NUMBER = re.compile(rf"[+-]?{SIGN}? ?[+-]?\d+([,.']\d{{3}})*([.,]\d+)? ?({SIGN}|%)?")
WITH_MARKS = re.compile(rf"{SIGN}|%|\d[,']\d{{3}}(?!\d)|\d\.\d{{3}}\.")


def hint(name: str, examples: Sequence[str]) -> str:
    """Return how texts could be used as dates or numbers, with the remedy; empty if they are neither.

    Parameters
    ----------
    name : the column.
    examples : its most frequent texts.
    """
    if not examples:
        return ""
    if all(NUMBER.fullmatch(text) for text in examples) and any(map(WITH_MARKS.search, examples)):
        shown = next(text for text in examples if WITH_MARKS.search(text))
        return (
            f"numbers written with signs or thousands marks, such as {shown!r}: used as numbers if the "
            f"source has them without (in CSV, source.options.thousands names what stands between thousands)"
        )
    texts = pa.array(examples, pa.large_string())
    fits = [format for format in FORMATS if _all_near(dates(texts, format))]
    if not fits:
        return ""
    also = f" or {fits[1]!r}" if len(fits) > 1 else ""
    return (
        f"dates such as {examples[0]!r}: used as dates if operators.encode.columns says "
        f"`{inline_entry(name, {'format': fits[0]})}`{also}"
    )


def _all_near(seconds: Float64) -> bool:
    """Return whether all (n,) are times within ``MAX_SECONDS`` of 1970; NaN, for no date, is not."""
    return bool((np.abs(seconds) < MAX_SECONDS).all())
