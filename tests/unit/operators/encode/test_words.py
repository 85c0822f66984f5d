"""Cuts of features in words: the words select exactly the rows that the cut selects."""

import math
import re

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from operators.encode.calendar_words import MONTHS, VALUES, WEEKDAYS, cuts, part_text, selected
from operators.encode.numeric import fit_scale
from operators.encode.sketches import Histogram
from operators.encode.words import OR_MISSING, ElapsedWords, Gap, NumberWords, condition_of
from tests.unit.operators.encode.test_encodings import encoded

N = 2000


@pytest.fixture(scope="module")
def table() -> pa.Table:
    rng = np.random.default_rng(0)
    days = pd.to_datetime("2012-11-03") + pd.to_timedelta(rng.integers(0, 900 * 24 * 60, N), unit="min")
    gaps = rng.random(N) < 0.1
    return pa.table(
        {
            "hired": pa.array(days.to_pydatetime(), mask=gaps),
            "paid": pa.array(days.to_pydatetime()),
            "age": pa.array(rng.integers(18, 90, N).astype(float), mask=gaps),
            "money": rng.lognormal(8, 2, N).round(2),
            "member": pa.array(rng.random(N) < 0.7, mask=gaps),
            "city": rng.choice(["Oslo", "Rome", "Lima", *"abcdefghij"], N, p=[0.4, 0.3, 0.2, *[0.01] * 10]),
            "zip": [f"z{k}" for k in rng.zipf(1.3, N) % 150],
            "tags": [list({"red", "blue", "rare" + str(k)} - {("red", "blue")[k % 2]}) for k in range(N)],
            "y": rng.choice(["no", "yes"], N),
        }
    )


def gaps_of(x: np.ndarray) -> list[Gap]:
    """Every third of the gaps between the values of a feature, at most about 60."""
    values = np.unique(x).astype(np.float64)
    step = max((len(values) - 1) // 60, 1)
    return [Gap(a, b) for a, b in zip(values[:-1:step].tolist(), values[1::step].tolist(), strict=True)]


def by_words(text: str, column: pd.Series) -> np.ndarray:
    """Select rows by reading a condition on a column of dates as a person would."""
    text, missing = text.removesuffix(OR_MISSING), text.endswith(OR_MISSING)
    rest = condition_of(text, str(column.name))
    assert rest is not None
    found = column.isna() & missing
    if moment := re.fullmatch(r"on or after (.+)", rest):
        return np.asarray(found | (column >= pd.Timestamp(moment[1])))
    if year := re.fullmatch(r"in (\d+) or later", rest):
        return np.asarray(found | (column.dt.year >= int(year[1])))
    if rest.startswith("between"):
        minutes = column.dt.hour * 60 + column.dt.minute
        for start, end in re.findall(r"between (\d\d):00 and (\d\d):00", rest):
            low, high = int(start) * 60, int(end) * 60
            inside = (
                (minutes >= low) & (minutes < high) if low < high else (minutes >= low) | (minutes < high)
            )
            found |= column.notna() & inside
        return np.asarray(found)
    if rest.startswith("on day"):
        values, names = column.dt.day, [str(day) for day in range(1, 32)]
        listed = rest.removeprefix("on day ").removesuffix(" of the month")
    elif rest.startswith("in "):
        values, names, listed = column.dt.month, list(MONTHS), rest[3:]
    else:
        values, names, listed = column.dt.day_of_week + 1, list(WEEKDAYS), rest[3:]
    for run in listed.split(", "):
        first, _, last = run.partition("-")
        place = names.index(first)
        while True:
            found |= values == place + 1
            if names[place] == (last or first):
                break
            place = (place + 1) % len(names)
    return np.asarray(found)


@pytest.mark.parametrize("column", ["hired", "paid"])
def test_words_of_dates_select_the_rows_above_every_cut(table, tmp_path, column):
    parts = ("elapsed", "year", "month", "day", "weekday", "hour")
    x, state = encoded(table, 2, tmp_path, column, datetime={"parts": parts})
    words = state.words([column] if table[column].null_count else [])
    dates = table[column].to_pandas()
    dates.name = column
    told = 0
    for place in range(len(parts) * 2 - 2):
        for gap in gaps_of(x[:, place]):
            text = words[place].condition(gap)
            above = x[:, place] > np.float32(gap.middle)
            # Equal angles that differ by rounding are no cut that any rule proposes.
            if gap.high - gap.low < 1e-6 and place > 1:
                continue
            assert by_words(text, dates).tolist() == above.tolist(), text
            assert np.array_equal(
                x[:, place] > np.float32(words[place].cut(words[place].threshold(gap))), above
            )
            again = words[place].parse(condition_of(text, column))
            assert np.array_equal((x[:, place] > np.float32(again)) | dates.isna(), above | dates.isna()), (
                text
            )
            told += 1
    assert told > 130


@pytest.mark.parametrize("scaling", ["none", "standard", "robust", "log", "quantile"])
@pytest.mark.parametrize("column", ["age", "money"])
def test_words_of_numbers_are_in_the_unit_of_the_column(table, tmp_path, column, scaling):
    x, state = encoded(table, 2, tmp_path, column, numeric={"scaling": scaling})
    words = state.words([column])[0]
    values = table[column].to_pandas()
    for gap in gaps_of(x[:, 0]):
        text = words.condition(gap)
        above = x[:, 0] > np.float32(gap.middle)
        number = float(text.removesuffix(OR_MISSING).split(" > ")[1])
        missing = values.isna() & text.endswith(OR_MISSING)
        assert ((values > number) | missing).tolist() == above.tolist(), text
        cut = words.parse(condition_of(text, column))
        assert (x[:, 0] > np.float32(cut)).tolist() == above.tolist() or scaling == "quantile"
        if column == "age" and not missing.any():
            assert re.fullmatch(r"age > \d\d", text)


def test_words_of_levels_shares_and_buckets(table, tmp_path):
    city, zip_code, frame = table["city"].to_pandas(), table["zip"].to_pandas(), table.to_pandas()
    columns = ("member", "city", "zip", "tags", "age")
    categorical = {"min_share": 0.05, "rare": "target"}
    x, state = encoded(table, 1, tmp_path, *columns, categorical=categorical)
    told = state.words(["member", "age"])
    half = Gap(0.0, 1.0)
    texts = [word.condition(half) for word in told.values()]
    member = frame["member"].fillna(state.columns[0].fill > 0.5).astype(bool)
    assert texts[0] in ("member = true", "member = true or is missing")
    assert (x[:, 0] > 0.5).tolist() == member.tolist()
    for name, inside in {
        "member is missing": frame["member"].isna(),
        "city = Oslo": city == "Oslo",
        "city among rare values": ~city.isin(["Oslo", "Rome", "Lima"]),
        "tags contains red": frame["tags"].map(lambda tags: "red" in tags),
        "age is missing": frame["age"].isna(),
    }.items():
        assert (x[:, texts.index(name)] > 0.5).tolist() == inside.tolist(), name
    place = next(
        p for p, output in enumerate(state.outputs) if output.role == "target" and output.source == "zip"
    )
    text = told[place].condition(Gap(0.4, 0.6))
    assert text == f"{state.outputs[place].source} among values with a share of class yes above 0.5"
    assert told[place].parse(condition_of(text, state.outputs[place].source)) == 0.5
    assert zip_code.nunique() > 20


def test_words_of_hashes(table, tmp_path):
    _, state = encoded(table, 1, tmp_path, "zip", categorical={"rare": "hash"})
    place = next(p for p, output in enumerate(state.outputs) if output.role == "hash")
    words = state.words()[place]
    texts = [words.condition(Gap(*ends)) for ends in ((-1.0, 0.0), (0.0, 1.0))]
    assert texts == [
        "zip not among the rare values of hash bucket 0, sign -",
        "zip among the rare values of hash bucket 0, sign +",
    ]
    assert [words.parse(text.removeprefix("zip ")) for text in texts] == [-0.5, 0.5]


def test_parts_are_read_as_a_person_writes_them():
    assert part_text("hour", selected("hour", "cos", 0.45)) == "between 20:00 and 05:00"
    assert part_text("month", {11, 12, 1, 2}) == "in Nov-Feb"
    assert part_text("weekday", {6, 7}) == "on Sat, Sun"
    for part, values in VALUES.items():
        for wave in ("sin", "cos"):
            texts = [part_text(part, selected(part, wave, cut)) for cut in cuts(part, wave)]
            assert len(set(texts)) == len(texts) > 2
            assert all(0 < len(selected(part, wave, cut)) < len(values) for cut in cuts(part, wave))


def test_a_gap_without_room_keeps_both_sides_apart():
    low, high = 1.0, float(np.nextafter(np.float32(1), np.float32(2)))
    assert Gap(low, high).middle == low
    assert math.isclose(Gap(0.0, 1.0).middle, 0.5)


def assert_conditions_select_the_rows(words, x):
    """Assert that the condition of every cut, written and read again, holds for the rows above it."""
    ends = np.unique(x).astype(np.float64).tolist()
    for gap in map(Gap, ends[:-1], ends[1:]):
        text = words.condition(gap)
        cut = words.parse(condition_of(text, "a"))
        assert np.array_equal(x > np.float32(cut), x > np.float32(gap.middle)), text


@pytest.mark.parametrize(
    ("values", "scaling"),
    [
        (1e7 + np.arange(300), "none"),
        (1.7e9 + 128.0 * np.arange(300), "none"),
        (np.round(500 + np.arange(300) * 1e-4, 4), "none"),
        (np.round(101325 + np.random.default_rng(0).normal(0, 0.5, 300), 3), "standard"),
        (np.round(1e6 + np.random.default_rng(1).standard_t(2, 300) * 0.05, 3), "log"),
    ],
)
def test_words_of_numbers_select_the_rows_where_float32_is_coarse(values, scaling):
    scale = fit_scale(Histogram.of(values), scaling)
    x = scale.forward(values).astype(np.float32)
    assert_conditions_select_the_rows(NumberWords("a", scale), x)


def test_words_of_times_select_the_rows_where_float32_is_coarse():
    bursts = [86_400 * day + np.random.default_rng(day).integers(0, 600, 8) for day in range(0, 1000, 20)]
    times = 1.4e9 + np.unique(np.concatenate(bursts))
    centre = float(np.median(times))
    x = ((times - centre) / 86_400).astype(np.float32)
    assert_conditions_select_the_rows(ElapsedWords("a", centre), x)


@pytest.mark.parametrize("moment", ["2016-02-30", "2016-13-01", "2016-01-01 25:00", "2016-01-01 12:61:00"])
def test_a_time_that_does_not_exist_is_no_condition(moment):
    """It ended the run with a ValueError of numpy."""
    assert ElapsedWords("a", 0.0).parse("on or after 2016-02-29") is not None
    assert ElapsedWords("a", 0.0).parse(f"on or after {moment}") is None


def test_numbers_that_hold_stay_short():
    words = NumberWords("a")
    assert words.condition(Gap(35.0, 36.0)) == "a > 35"
    assert words.condition(Gap(float(np.float32(0.1)), float(np.float32(0.2)))) == "a > 0.1"
    day = ElapsedWords("a", 86_400.0 * 15_000)
    assert day.condition(Gap(-3000.0, -2999.0)) == "a on or after 2002-11-10"
