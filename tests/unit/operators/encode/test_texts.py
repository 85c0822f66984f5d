"""Texts that are missing values, numbers or dates."""

import calendar
import itertools
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pytest

from operators.base import OperatorError
from operators.encode.texts import DATES, MAX_BYTES, dates, is_missing, numbers, tidy


def column(*values):
    return pa.array(values, pa.large_string())


def test_tidy_strips_and_folds():
    assert tidy(column(" A ", "b\t")).to_pylist() == ["A", "b"]
    assert tidy(column(" A "), strip=False).to_pylist() == [" A "]
    assert tidy(column(" ÄB "), fold_case=True).to_pylist() == ["äb"]


def test_a_value_of_ten_megabytes_becomes_short_and_stays_distinct():
    long = "x" * 10_000_000
    found = tidy(column(long, long + "y", "short", None)).to_pylist()
    assert found[2:] == ["short", None]
    assert found[0] != found[1]
    assert max(len(text.encode()) for text in found[:2]) < 2 * MAX_BYTES
    assert tidy(column(long)).to_pylist() == found[:1]


def test_another_encoding_is_named():
    raw = pa.array(["fine", "Köln"], pa.large_string()).cast(pa.large_binary()).to_pylist()
    raw[1] = "Köln".encode("latin-1")
    broken = pa.Array.from_buffers(pa.large_string(), 2, pa.array(raw, pa.large_binary()).buffers())
    with pytest.raises(OperatorError, match=r"b'K\\xf6ln' is not valid UTF-8.*iconv -f latin1"):
        tidy(broken)


def test_missing_texts():
    found = is_missing(column("?", "", None, "NA", "n/a", "none", "nan", "Nancy", "0", "-"))
    assert found.tolist() == [True, True, True, True, True, True, True, False, False, False]


def test_numbers():
    found = numbers(column("1", "-2.5", "+.5", "1e3", "3.", "007", "1,5", "inf", "x", None, "0", "0.25"))
    expected = [1, -2.5, 0.5, 1000, 3, np.nan, np.nan, np.nan, np.nan, np.nan, 0, 0.25]
    np.testing.assert_array_equal(found, expected)


def seconds(*when):
    return datetime(*when, tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("text", "format", "expected"),
    [
        ("2024-02-29", "%Y-%m-%d", seconds(2024, 2, 29)),
        ("2024-02-29 23:59", "%Y-%m-%d", seconds(2024, 2, 29, 23, 59)),
        ("2024-02-29T23:59:58.25", "%Y-%m-%d", seconds(2024, 2, 29, 23, 59, 58) + 0.25),
        ("2024-02-29T12:00:00Z", "%Y-%m-%d", seconds(2024, 2, 29, 12)),
        ("2024-02-29T12:00:00+02:00", "%Y-%m-%d", seconds(2024, 2, 29, 10)),
        ("2024-02-29 12:00:00-0330", "%Y-%m-%d", seconds(2024, 2, 29, 15, 30)),
        ("2024/3/1", "%Y/%m/%d", seconds(2024, 3, 1)),
        ("1.3.2024", "%d.%m.%Y", seconds(2024, 3, 1)),
        ("03/01/2024", "%m/%d/%Y", seconds(2024, 3, 1)),
        ("31/01/2024", "%d/%m/%Y", seconds(2024, 1, 31)),
        ("1066-10-14", "%Y-%m-%d", seconds(1066, 10, 14)),
        ("2999-12-31", "%Y-%m-%d", seconds(2999, 12, 31)),
        ("14 Oct 1999", "%d %b %Y", seconds(1999, 10, 14)),
    ],
)
def test_dates(text, format, expected):
    assert dates(column(text), format).tolist() == [pytest.approx(expected)]


@pytest.mark.parametrize(
    "text", ["2023-02-29", "2023-13-01", "2023-00-10", "2023-01-01 25:00", "x", None, "20230101"]
)
def test_what_is_no_date(text):
    for format in DATES:
        assert np.isnan(dates(column(text, "2023-01-01"), format)[0])


def test_nothing_fits_a_format_that_does_not_exist():
    assert np.isnan(dates(column("2020-01-01"), "%Q")[0])


@pytest.mark.parametrize(
    ("format", "written", "offset"),
    [
        ("%d/%m/%y", "{d:02}/{m:02}/{y:02}", 0),
        ("%Y%m%d", "20{y}{m:02}{d:02}", 0),
        ("%D", "{m}/{d}/{y}", 0),
        ("%F %H:%M", "20{y}-{m:02}-{d:02} 00:00", 0),
        ("%e.%m.%Y %z", "{d}.{m}.20{y} +0500", 5 * 3600),
    ],
)
def test_days_that_do_not_exist_are_no_dates_of_any_format(format, written, offset):
    """Arrow reads the 31st of February as the 2nd of March."""
    texts, expected = [], []
    for year, month, day in itertools.product((19, 20), range(1, 13), range(1, 32)):
        texts.append(written.format(y=year, m=month, d=day))
        exists = day <= calendar.monthrange(2000 + year, month)[1]
        moment = datetime(2000 + year, month, day if exists else 1, tzinfo=UTC).timestamp() - offset
        expected.append(moment if exists else np.nan)
    np.testing.assert_array_equal(dates(column(*texts), format), expected)
