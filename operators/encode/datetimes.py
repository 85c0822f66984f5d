"""Dates and points in time: elapsed days, and the cyclic parts of the calendar and the day.

Parts and periods are those of skrub's ``DatetimeEncoder(periodic_encoding="circular", add_weekday=True)``;
``elapsed`` is its ``total_seconds``, in days since the column's median, so that float32 holds it.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from operators.arrays import Float32, Float64
from operators.encode.calendar_words import PERIODS, waves
from operators.encode.column_forms import Form, as_numbers, as_seconds, dictionary_encoded, form_of
from operators.encode.sketches import Histogram
from operators.encode.summary import ColumnSummary
from operators.encode.texts import dates, is_missing, tidy
from operators.encoded_features import Output
from operators.ingest.kernel import Codes, Reason
from operators.readable import SECONDS_PER_DAY

MIN_DAYS = MappingProxyType({"month": 60.0, "weekday": 7.0})
"""Days between the 1st and the 99th percentile from which a part is used by default."""


@dataclass(frozen=True)
class DatetimeEncoding:
    """A fitted column of dates.

    Attributes
    ----------
    source : the column.
    parts : its parts in the order of the features; a cyclic one is two features, sine and cosine.
    centre : median, in seconds since 1970.
    indicator : whether there is a feature "is missing". A missing date has the year of ``centre``, and
        0 in every other feature.
    fails : whether a missing value is a fault of its row.
    format : format of dates in text; empty for dates.
    zone : time zone in which days begin; empty for UTC or times without zone.
    missing : texts that stand for a missing value.
    """

    source: str
    parts: tuple[str, ...]
    centre: float
    indicator: bool
    fails: bool = False
    format: str = ""
    zone: str = ""
    missing: tuple[str, ...] = ()

    @property
    def outputs(self) -> list[Output]:
        """Return the features, with the source column of each."""
        found: list[Output] = []
        for part in self.parts:
            label = f"{self.source}: {part}"
            names = [f"{label} (sin)", f"{label} (cos)"] if part in PERIODS else [label]
            names = [self.source] if part == "elapsed" else names
            found += [
                Output(self.source, "datetime", name, "value" if part == "elapsed" else "part")
                for name in names
            ]
        if self.indicator:
            found.append(Output(self.source, "datetime", f"{self.source} is missing", "missing"))
        return found

    def encode(self, column: pa.ChunkedArray, x: Float32, codes: Codes) -> None:
        """Write the features of n rows into ``x`` (n, width), and reasons of faulty rows into ``codes``."""
        seconds, local, wrong = read_dates(column, self.format, self.zone, self.missing)
        codes[wrong] = Reason.DATE
        gaps = np.isnan(seconds)
        if self.fails:
            null = column.is_null().to_numpy()
            codes[gaps & ~wrong] = np.where(null, Reason.NULL, Reason.MISSING_TEXT)[gaps & ~wrong]
        start = 0
        for part in self.parts:
            fill = self.centre_year if part == "year" else 0.0
            for values in self._features(
                part, np.where(gaps, self.centre, seconds), np.where(gaps, 0, local)
            ):
                x[:, start] = np.where(gaps, fill, values)
                start += 1
        if self.indicator:
            x[:, start] = gaps & ~wrong

    @property
    def centre_year(self) -> float:
        """Year of the median, in UTC: the year of a missing date. A year 0 would be far from all others."""
        return float(calendar_part(np.array([self.centre]), "year")[0])

    def _features(self, part: str, seconds: Float64, local: Float64) -> list[Float64]:
        if part == "elapsed":
            return [(seconds - self.centre) / SECONDS_PER_DAY]
        values = calendar_part(local, part)
        if part == "year":
            return [values]
        return list(waves(values, part).values())

    def to_json(self) -> dict[str, Any]:
        """Return the encoding as JSON-able values."""
        return {
            "type": "datetime",
            "source": self.source,
            "parts": list(self.parts),
            "centre": self.centre,
            "indicator": self.indicator,
            "fails": self.fails,
            "format": self.format,
            "zone": self.zone,
            "missing": list(self.missing),
        }

    @classmethod
    def from_json(cls, found: dict[str, Any]) -> Self:
        """Read what :meth:`to_json` returned."""
        known = {key: value for key, value in found.items() if key != "type"}
        return cls(**{**known, "parts": tuple(found["parts"]), "missing": tuple(found["missing"])})


def fit_datetime(
    summary: ColumnSummary,
    *,
    parts: tuple[str, ...] | None,
    format: str,
    fails: bool,
    min_missing_share: float,
    missing_texts: tuple[str, ...],
) -> DatetimeEncoding:
    """Fit the encoding of a column of dates on its summary."""
    histogram = summary.histogram or summary.parsed.get(format) or Histogram.of([])
    centre = float(histogram.quantiles([0.5])[0]) if histogram.rows else 0.0
    enough = min_missing_share <= summary.missing_share <= 1 - min_missing_share
    return DatetimeEncoding(
        summary.name,
        parts or default_parts(histogram),
        centre,
        indicator=enough and summary.missing > 0 and not fails,
        fails=fails,
        format=format,
        zone=summary.zone,
        missing=missing_texts if format else (),
    )


def default_parts(histogram: Histogram) -> tuple[str, ...]:
    """Return elapsed time and the parts that vary: month, weekday and hour."""
    if not histogram.rows:
        return ("elapsed",)
    low, high = histogram.quantiles([0.01, 0.99]).tolist()
    found = [part for part, days in MIN_DAYS.items() if high - low >= days * SECONDS_PER_DAY]
    hour = ["hour"] if bool((histogram.low % SECONDS_PER_DAY != 0).any()) else []
    return ("elapsed", *found, *hour)


def calendar_part(local: Float64, part: str) -> Float64:
    """Return the year, month (1-12), day (1-31), weekday (Monday is 1) or hour of times (n,) in seconds."""
    days = np.floor(local / SECONDS_PER_DAY).astype(np.int64)
    if part == "hour":
        return np.asarray(np.floor((local - days * SECONDS_PER_DAY) / 3600))
    if part == "weekday":
        return np.asarray((days + 3) % 7 + 1, np.float64)
    date = days.astype("datetime64[D]")
    months = date.astype("datetime64[M]")
    if part == "day":
        whole = (date - months.astype("datetime64[D]")).astype(np.int64) + 1
    elif part == "month":
        whole = months.astype(np.int64) % 12 + 1
    else:
        whole = date.astype("datetime64[Y]").astype(np.int64) + 1970
    return np.asarray(whole, np.float64)


def read_dates(
    column: pa.ChunkedArray, format: str, zone: str, missing: tuple[str, ...]
) -> tuple[Float64, Float64, npt.NDArray[np.bool_]]:
    """Read dates and points in time.

    Returns
    -------
    seconds, local_seconds, wrong
        Seconds since 1970 in UTC (n,), the same in the local time of ``zone``, both NaN where there is no
        date, and which rows (n,) hold a value that is not a date.
    """
    form = form_of(column.type)
    if form in (Form.TEXT, Form.CATEGORY):
        encoded = dictionary_encoded(column)
        texts = tidy(encoded.dictionary)
        found, absent = dates(texts, format or "%Y-%m-%d"), is_missing(texts, missing or ("",))
        rows = encoded.indices.fill_null(len(texts)).to_numpy()
        seconds = np.append(np.where(absent, np.nan, found), np.nan)[rows]
        return seconds, seconds, np.append(np.isnan(found) & ~absent, False)[rows]
    nothing = np.zeros(len(column), bool)
    if form == Form.NOTHING:
        return np.full(len(column), np.nan), np.full(len(column), np.nan), nothing
    if form != Form.TIME:  # numbers are not dates; JSON has them as text
        return np.full(len(column), np.nan), np.full(len(column), np.nan), ~np.isnan(as_numbers(column))
    seconds = as_seconds(column)
    if not (zone and pa.types.is_timestamp(column.type) and column.type.tz):
        return seconds, seconds, nothing
    zoned = column.cast(pa.timestamp(column.type.unit, zone))
    return seconds, as_seconds(pc.local_timestamp(zoned)), nothing
