"""Columns of text: tidied values, missing values, and numbers and dates that are written as text.

All functions take distinct values, not rows, and do not loop over them, except over values of great length.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from hashlib import blake2b

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from operators.arrays import Float64
from operators.base import OperatorError

MISSING_TEXTS = (
    "",
    "?",
    "...",
    "#N/A",
    "#N/A N/A",
    "#NA",
    "-NaN",
    "-nan",
    "1.#IND",
    "1.#QNAN",
    "-1.#IND",
    "-1.#QNAN",
    "<NA>",
    "N/A",
    "NA",
    "NULL",
    "NaN",
    "None",
    "n/a",
    "nan",
    "null",
)
"""Texts that stand for a missing value: those of ``pandas.read_csv`` and of skrub's ``Cleaner``."""
MAX_BYTES = 128
"""Longer values are shortened to their beginning and a digest, so that no state grows with their length."""
KEPT_CHARACTERS = 64
"""Characters that a shortened value keeps of its beginning."""
NUMBER = r"^[+-]?(?:(?:0|[1-9]\d*)(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?$"
"""Texts that are numbers. Texts with leading zeros are codes, such as zip codes."""
LIKELY_DATE = r"^\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}"
"""Beginning of all formats of ``DATES``: a cheap test that most other texts fail."""
TIME = r"(?:[ T](?P<H>\d{1,2}):(?P<M>\d{2})(?::(?P<S>\d{2})(?P<f>\.\d{1,9})?)?)? ?(?P<z>Z|[+-]\d{2}:?\d{2})?$"
DATES = {
    "%Y-%m-%d": r"^(?P<y>\d{4})-(?P<m>\d{1,2})-(?P<d>\d{1,2})" + TIME,
    "%Y/%m/%d": r"^(?P<y>\d{4})/(?P<m>\d{1,2})/(?P<d>\d{1,2})" + TIME,
    "%d.%m.%Y": r"^(?P<d>\d{1,2})\.(?P<m>\d{1,2})\.(?P<y>\d{4})" + TIME,
    "%m/%d/%Y": r"^(?P<m>\d{1,2})/(?P<d>\d{1,2})/(?P<y>\d{4})" + TIME,
    "%d/%m/%Y": r"^(?P<d>\d{1,2})/(?P<m>\d{1,2})/(?P<y>\d{4})" + TIME,
}
"""Dates that are recognised, by the format of their day, each with or without time and offset. Where a column
fits several, the first one counts."""
DAY = re.compile("%[de]")
"""Day of the month in a format of ``strptime``."""
SHORT_FORMATS = {"%F": "%Y-%m-%d", "%D": "%m/%d/%y", "%x": "%m/%d/%y"}
"""Formats of ``strptime`` that stand for others with a day of the month."""


def tidy(values: pa.Array, *, strip: bool = True, fold_case: bool = False) -> pa.Array:
    """Return texts without surrounding white space, in lower case if asked, and long ones shortened.

    Raises
    ------
    OperatorError
        A text is not valid UTF-8.
    """
    values = values.cast(pa.large_string())
    try:
        values.validate(full=True)
    except pa.ArrowInvalid:
        raise OperatorError(_invalid_text(values)) from None
    if strip:
        values = pc.utf8_trim_whitespace(values)
    if fold_case:
        values = pc.utf8_lower(values)
    long = np.flatnonzero(
        pc.fill_null(pc.greater(pc.binary_length(values), MAX_BYTES), False).to_numpy(False)
    )
    if not len(long):
        return values
    mask = np.zeros(len(values), bool)
    mask[long] = True
    short = [_shortened(text) for text in values.take(pa.array(long)).to_pylist()]
    return pc.replace_with_mask(values, pa.array(mask), pa.array(short, pa.large_string()))


def is_missing(values: pa.Array, missing: Sequence[str] = MISSING_TEXTS) -> npt.NDArray[np.bool_]:
    """Return which tidied texts (n,) are null or stand for a missing value."""
    known = pa.array([*missing, *(text.lower() for text in missing)], values.type)
    found = pc.or_(pc.is_null(values), pc.fill_null(pc.is_in(values, value_set=known), False))
    return np.asarray(found.to_numpy(zero_copy_only=False))


def numbers(values: pa.Array) -> Float64:
    """Parse tidied texts (n,) as numbers; NaN for texts that are not numbers."""
    fits = pc.fill_null(pc.match_substring_regex(values, NUMBER), False)
    found = pc.if_else(fits, values, pa.scalar(None, values.type)).cast(pa.float64())
    return np.asarray(found.to_numpy(zero_copy_only=False), np.float64)


def dates(values: pa.Array, format: str) -> Float64:
    """Return the seconds since 1970-01-01 (UTC where an offset is given) of tidied texts, NaN for others.

    Parameters
    ----------
    values : (n,) texts.
    format : a key of ``DATES``, or any format of ``strptime``; no text fits one that does not exist.
    """
    if format not in DATES:
        return _by_format(values.cast(pa.string()), format)
    found = np.full(len(values), np.nan)
    fits = pc.fill_null(pc.match_substring_regex(values, LIKELY_DATE), False)
    likely = np.flatnonzero(fits.to_numpy(zero_copy_only=False))
    if len(likely):
        found[likely] = _by_pattern(values.take(pa.array(likely)), DATES[format])
    return found


def _by_format(values: pa.Array, format: str) -> Float64:
    """Return the seconds of texts that fit a format of ``strptime``; NaN for others.

    ``strptime`` takes the days 29 to 31 in every month: the 31st of February is the 2nd of March. Such days
    are NaN here.
    """
    for short, whole in SHORT_FORMATS.items():
        format = format.replace(short, whole)
    seconds = _microseconds(values, format) / 1e6
    with_day = pc.binary_join_element_wise(values, "15", " ")
    for day in (29, 30, 31) if DAY.search(format) else ():
        # The month of the texts that have this day, as written: the middle of it stands for its day.
        middle = _microseconds(with_day, f"{DAY.sub(str(day), format)} %d")
        month = np.where(np.isnan(middle), 0, middle).astype("datetime64[us]").astype("datetime64[M]")
        length = (month + 1).astype("datetime64[D]") - month.astype("datetime64[D]")
        seconds[~np.isnan(middle) & (length.astype(np.int64) < day)] = np.nan
    return seconds


def _microseconds(values: pa.Array, format: str) -> Float64:
    parsed = pc.strptime(values, format=format, unit="us", error_is_null=True).cast(pa.int64())
    return np.array(parsed.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False))


def _by_pattern(values: pa.Array, pattern: str) -> Float64:
    parts = pc.extract_regex(values, pattern)
    year, month, day = (_whole(parts, name) for name in "ymd")
    hour, minute, second = (_whole(parts, name, optional=True) for name in "HMS")
    fraction = _fraction(parts)
    good = (year > 0) & (month >= 1) & (month <= 12) & (day >= 1)
    good &= (hour <= 23) & (minute <= 59) & (second <= 60)
    months = (np.where(good, year, 1970) - 1970) * 12 + np.where(good, month, 1) - 1
    first = months.astype("datetime64[M]").astype("datetime64[D]")
    length = (months + 1).astype("datetime64[M]").astype("datetime64[D]") - first
    good &= day <= length.astype(np.int64)
    seconds = (first.astype(np.int64) + day - 1) * 86_400 + hour * 3600 + minute * 60 + second
    return np.where(good, seconds - _offsets(parts) + fraction, np.nan)


def _whole(parts: pa.StructArray, name: str, *, optional: bool = False) -> npt.NDArray[np.int64]:
    """Return a part of dates as integers; -1 where the text is not a date, 0 for an optional part."""
    field = pc.struct_field(parts, name)
    empty = pc.or_kleene(pc.is_null(field), pc.equal(pc.binary_length(field), 0))
    found = pc.if_else(pc.fill_null(empty, True), pa.scalar(None, field.type), field).cast(pa.int64())
    return np.asarray(found.fill_null(0 if optional else -1).to_numpy(zero_copy_only=False), np.int64)


def _fraction(parts: pa.StructArray) -> Float64:
    field = pc.struct_field(parts, "f")
    empty = pc.or_kleene(pc.is_null(field), pc.equal(pc.binary_length(field), 0))
    padded = pc.if_else(pc.fill_null(empty, True), pa.scalar("0", field.type), field)
    return np.asarray(padded.cast(pa.float64()).to_numpy(zero_copy_only=False))


def _offsets(parts: pa.StructArray) -> npt.NDArray[np.int64]:
    """Return the offsets from UTC in seconds, 0 where none is given."""
    field = pc.fill_null(pc.struct_field(parts, "z"), "")
    digits = pc.replace_substring_regex(field, r"[^0-9]", "")
    known = pc.equal(pc.binary_length(digits), 4)
    digits = pc.if_else(known, digits, pa.scalar("0000", digits.type))
    hours = pc.utf8_slice_codeunits(digits, 0, 2).cast(pa.int64()).to_numpy(zero_copy_only=False)
    minutes = pc.utf8_slice_codeunits(digits, 2, 4).cast(pa.int64()).to_numpy(zero_copy_only=False)
    negative = pc.starts_with(field, "-").to_numpy(zero_copy_only=False)
    return np.asarray((hours * 3600 + minutes * 60) * np.where(negative, -1, 1), np.int64)


def _shortened(text: str) -> str:
    return f"{text[:KEPT_CHARACTERS]}… {blake2b(text.encode(), digest_size=8).hexdigest()}"


def _invalid_text(values: pa.Array) -> str:
    for raw in values.cast(pa.large_binary()).to_pylist():
        try:
            (raw or b"").decode()
        except UnicodeDecodeError as error:
            return (
                f"the value {raw[:40]!r} is not valid UTF-8 ({error.reason} at byte {error.start}): the file "
                "was written in another encoding, or in several. Write it again as UTF-8, for example with: "
                "iconv -f latin1 -t utf-8 (give the encoding it was written in)."
            )
    return "a value is not valid UTF-8. Write the file again as UTF-8."
