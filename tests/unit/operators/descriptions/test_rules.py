"""Rules that describe groups: found where they exist, stated as they are evaluated, else absent."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from operators.descriptions import GroupSample, describe_groups, describe_slices, find_rule
from operators.descriptions.conditions import Level, Missing, Range, Term, merge, shown
from operators.descriptions.rules import holds, score_rule
from operators.descriptions.table_views import readable_cuts, views_of
from operators.descriptions.views import LevelView, NumberView
from operators.encode.texts import MISSING_TEXTS
from operators.hashing import row_hashes
from operators.readable import readable_between

N = 1_200


def table(n: int = N, seed: int = 0) -> pa.Table:
    rng = np.random.default_rng(seed)
    hours = rng.integers(10, 60, n)
    return pa.table(
        {
            "status": rng.choice(["Never-married", "Married", " Divorced"], n).tolist(),
            "hours": hours,
            "income": [None if value < 0.1 else float(f"{value:.4f}") for value in rng.random(n)],
            "active": rng.random(n) < 0.5,
            "pixels": [[0.0, 1.0]] * n,
            "noise": rng.normal(size=n),
        }
    )


def halves(n: int = N) -> np.ndarray:
    return np.arange(n) % 2 == 0


def find(found: pa.Table, inside: np.ndarray, **options: int):
    fit = halves(found.num_rows)
    return find_rule(views_of(found, fit), inside, np.ones(found.num_rows), fit, **options)


def test_a_rule_of_two_columns_is_found_as_it_was_planted() -> None:
    rows = table()
    hours = rows["hours"].to_numpy()
    inside = (np.array(rows["status"].to_pylist()) == "Never-married") & (hours < 35)
    rule = find(rows, inside)
    assert rule is not None
    assert set(rule.text.split(" and ")) == {"status = Never-married", "hours < 35"}
    assert rule.score.coverage == rule.score.purity == 1.0
    base = inside[~halves()].mean()
    assert rule.score.base == pytest.approx(base)
    assert rule.score.lift == pytest.approx(1 / base)
    assert rule.score.checked == N // 2


@pytest.mark.parametrize(
    ("seconds", "scale", "text"),
    [
        (951_782_400.0, "date", "2000-02-29"),
        (951_782_461.9, "time", "2000-02-29 00:01"),
        (300_739_824_000.0, "date", "11500-01-25"),
        (-62_135_596_800.0, "date", "0001-01-01"),
        (-62_135_596_801.0, "time", "0000-12-31 23:59"),
        (-70_000_000_000.0, "date", "-249-10-15"),
        (-0.5, "time", "1969-12-31 23:59"),
    ],
)
def test_dates_of_every_year_have_a_text(seconds: float, scale: Any, text: str) -> None:
    assert Range("day", low=seconds, scale=scale).text == f"day >= {text}"


@pytest.mark.parametrize("centre", [300_739_824_000, -70_000_000_000])
def test_dates_beyond_year_9999_are_described(centre: int) -> None:
    days = centre + np.arange(N) * 86_400
    rows = pa.table({"day": pa.array(days, pa.timestamp("s"))})
    rule = find(rows, np.arange(N) < N // 3)
    assert rule is not None
    assert rule.text.startswith("day < ")
    assert rule.score.purity > 0.9


def test_missing_values_are_a_condition() -> None:
    rows = table()
    inside = np.array([value is None for value in rows["income"].to_pylist()])
    rule = find(rows, inside)
    assert rule is not None
    assert rule.text == "income is missing"
    present = find(rows, ~inside)
    assert present is not None
    assert present.text == "income is not missing"


def test_random_groups_get_no_rule() -> None:
    """At level .01 for all together, 40 random groups give a rule with probability .01 or less."""
    rng = np.random.default_rng(1)
    rows = table()
    found = [find(rows, rng.random(N) < 0.3, tests=40) for _ in range(40)]
    assert found == [None] * 40


def test_the_figures_are_those_of_the_text_on_held_out_rows() -> None:
    rows = table()
    rng = np.random.default_rng(2)
    hours = rows["hours"].to_numpy() // 10 * 10
    rows = rows.set_column(1, "hours", pa.array(hours))
    inside = (hours >= 40) ^ (rng.random(N) < 0.2)
    rule = find(rows, inside)
    assert rule is not None
    assert rule.text == "hours >= 40"
    held, mine = ~halves(), hours >= 40
    assert rule.score.coverage == pytest.approx(mine[held & inside].mean())
    assert rule.score.purity == pytest.approx(inside[held & mine].mean())


def test_a_sample_with_kept_small_groups_gives_the_shares_of_all_rows() -> None:
    inside = np.array([True] * 50 + [False] * 50)
    rule = np.array([True] * 40 + [False] * 10 + [True] * 10 + [False] * 40)
    weights = np.where(inside, 1.0, 9.0)  # the other rows stand for nine each
    score = score_rule(rule, inside, weights, np.ones(100, bool))
    assert score.coverage == pytest.approx(0.8)
    assert score.base == pytest.approx(0.1)
    assert score.purity == pytest.approx(40 / (40 + 90))
    assert score.rows == pytest.approx(130)
    assert score.p_value < 1e-6


@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=80))
def test_cuts_have_values_on_both_sides(values: list[float]) -> None:
    x = np.array(values)
    cuts = readable_cuts(x)
    assert (np.diff(cuts) > 0).all()
    for cut in cuts:
        assert (x < cut).any()
        assert (x >= cut).any()
    if 2 <= len(np.unique(x)) <= 32:
        assert len(cuts) == len(np.unique(x)) - 1


@pytest.mark.parametrize(
    ("low", "high", "cut"),
    [
        (34, 35, 35),
        (34.2, 35.8, 35),
        (0.12, 0.13, 0.13),
        (980, 1043, 1000),
        (-4.7, -3.2, -4),
        (-1, 2, 0),
        (3.2, 1e308, 1e308),
        (-1.7976931348623157e308, 0.3, 0),
        (1.2e308, 1.7976931348623157e308, 1.5e308),
    ],
)
def test_cuts_have_few_digits(low: float, high: float, cut: float) -> None:
    assert readable_between(low, high) == pytest.approx(cut, abs=1e-12)


def test_dates_are_cut_at_days() -> None:
    start = int(datetime(2020, 1, 1, tzinfo=UTC).timestamp())
    seconds = start + np.arange(N) * 86_400 // 2
    rows = pa.table({"hired": pa.array(seconds * 1_000_000, pa.timestamp("us", "UTC"))})
    rule = find(rows, np.arange(N) >= N // 2)
    assert rule is not None
    assert rule.text.startswith("hired >= 2020-10-")
    assert rule.score.coverage > 0.9


def test_texts_are_told_by_their_terms() -> None:
    rng = np.random.default_rng(3)
    words = ["delivery", "price", "quality", "colour", "packaging", "service"]
    inside = rng.random(N) < 0.3
    texts = [
        " ".join(
            ["my", "order", *rng.permutation(words)[:3], *(["refund"] if mine and rng.random() < 0.9 else [])]
        )
        for mine in inside
    ]
    sample = GroupSample(
        pa.table({"comment": texts}),
        np.arange(N),
        np.zeros(N, np.int64),
        inside.astype(np.int64),
        {(0, 0): int((~inside).sum()), (0, 1): int(inside.sum())},
    )
    rest, group = describe_groups(sample, ["c"])
    assert group["description"] == 'comment mentions "refund"'
    assert [term["term"] for term in group["terms"]] == ["refund"]
    assert rest["description"] == 'comment does not mention "refund"'


def test_conditions_on_one_column_are_merged() -> None:
    path = [
        Range("a", low=2),
        Level("b", 1, "x", negated=True),
        Range("a", high=9, missing=True),
        Range("a", low=4),
    ]
    assert [condition.text for condition in merge(path)] == ["4 <= a < 9", "b != x"]
    certain = [Level("b", 0, "y", negated=True), Level("b", 1, "x")]
    assert [condition.text for condition in merge(certain)] == ["b = x"]
    assert merge([Range("a"), Missing("a")]) == [Missing("a")]
    both = [Term("t", 0, "p"), Term("t", 1, "q", negated=True)]
    assert merge(both) == both


def test_too_few_rows_are_named_where_no_rule_is_searched_for() -> None:
    ids = np.arange(400)
    fit = (row_hashes(ids, 0, "descriptions/fit") & np.uint64(1)).astype(bool)
    some = np.concatenate([ids[:75], ids[200:275]])  # fewer than 80 of each, but 20 in the fit and the check
    one_sided = np.concatenate([ids[:200][fit[:200]], ids[200:]])
    for rows, searched in ((some, True), (one_sided, False)):
        group = (rows >= 200).astype(np.int64)
        sizes = {(0, one): int((group == one).sum()) for one in (0, 1)}
        values = pa.table({"c": np.random.default_rng(0).normal(size=len(rows))})
        sample = GroupSample(values, rows, np.zeros(len(rows), np.int64), group, sizes)
        said = describe_groups(sample, ["c"])[1]["description"]
        few = f"too few rows for a rule ({sizes[0, 1]} of the group, {sizes[0, 0]} others of its class)"
        assert (said == few) == (not searched)
        assert said.startswith("no rule of up to three conditions") == searched


def test_values_are_shown_so_that_spaces_are_seen() -> None:
    assert shown("Oslo") == "Oslo"
    assert shown("") == '""'
    assert len(shown("x" * 200)) == 40


@given(
    st.lists(
        st.one_of(st.none(), st.floats(-50, 50), st.integers(-5, 5).map(float)), min_size=60, max_size=90
    )
)
def test_every_path_of_the_trees_is_evaluated_as_the_tree_does(values: list[float | None]) -> None:
    """A split's condition holds for exactly the rows that the tree sends to that side."""
    present = [value for value in values if value is not None]
    if len(set(present)) < 2:
        return
    rows = pa.table({"v": pa.array(values, pa.float64())})
    everything = np.ones(len(values), bool)
    (view,) = views_of(rows, everything)
    codes = view.matrix()[:, 0]
    for threshold in (*np.unique(codes[~np.isnan(codes)])[:-1] + 0.5, math.inf):
        for goes_left in (True, False):
            left = np.where(np.isnan(codes), goes_left and not math.isinf(threshold), codes <= threshold)
            sides = {True: left, False: ~left}
            for side, expected in sides.items():
                condition = view.condition(0, threshold, left=side, missing=goes_left == side)
                assert np.array_equal(holds([condition], [view]), expected), condition.text


@pytest.mark.parametrize("word", [*MISSING_TEXTS, "na"])
def test_texts_are_missing_as_for_encode(word: str) -> None:
    """Dates of which one in ten was "NA" were no dates, and a rule read `c = NA`."""
    days = [word if i % 10 == 0 else f"20{10 + i % 10}-0{1 + i % 9}-15" for i in range(N)]
    names = [word if i % 10 == 0 else "xy"[i % 3 > 0] for i in range(N)]
    day, *_, name = views_of(pa.table({"day": days, "name": names}), halves())
    assert isinstance(day, NumberView)
    assert isinstance(name, LevelView)
    assert (set(name.levels), name.has_missing) == ({"x", "y"}, True)


def test_texts_that_the_recipe_calls_missing_are() -> None:
    rows = pa.table({"c": ["n.d." if i % 10 == 0 else "xy"[i % 3 > 0] for i in range(N)]})
    (view,) = views_of(rows, halves(), ("n.d.",))
    assert (set(view.levels), view.has_missing) == ({"x", "y"}, True)
    sample = GroupSample(
        rows,
        np.arange(N),
        np.zeros(N, int),
        np.arange(N) // 10 * 10 == np.arange(N),
        {(0, 0): N - N // 10, (0, 1): N // 10},
        missing=("n.d.",),
    )
    assert "c is missing" in describe_groups(sample, ["all"])[1]["description"]


@pytest.mark.parametrize("text", ["00{}", "1_{}"])
def test_codes_are_no_numbers(text: str) -> None:
    """Zip codes gave the rule `zip < 10000`, since Python reads them as numbers."""
    (view,) = views_of(pa.table({"c": [text.format(100 + i % 20) for i in range(N)]}), halves())
    assert isinstance(view, LevelView)


@pytest.mark.parametrize("kind", [pa.duration("s"), pa.time32("s"), pa.time64("us")])
def test_times_are_numbers_of_seconds(kind: pa.DataType) -> None:
    values = pa.array([i % 5 * (10**6 if kind.unit == "us" else 1) for i in range(N)], pa.int64())
    column = (values.cast(pa.int32()) if kind == pa.time32("s") else values).cast(kind)
    (view,) = views_of(pa.table({"t": column}), halves())
    assert isinstance(view, NumberView)
    assert view.cuts.tolist() == [1, 2, 3, 4]


def test_texts_of_every_type_have_a_view() -> None:
    names = ["xy"[i % 3 > 0] for i in range(N)]
    for kind in (pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())):
        (view,) = views_of(pa.table({"c": pa.array(names).cast(kind)}), halves())
        assert set(view.levels) == {"x", "y"}


def test_columns_without_words_are_left_out() -> None:
    rows = (
        table()
        .append_column("row", pa.array(np.arange(N)))
        .append_column("customer_id", pa.array(np.random.default_rng(0).permutation(N)))
    )
    assert [view.column for view in views_of(rows, halves())] == [
        "status",
        "hours",
        "income",
        "active",
        "noise",
    ]


def test_central_rows_are_the_nearest_to_the_mean() -> None:
    X = np.arange(10, dtype=np.float32)[:, None]
    sample = GroupSample(
        pa.table({"a": list(range(10))}),
        np.arange(100, 110),
        np.zeros(10, np.int64),
        np.zeros(10, np.int64),
        {(0, 0): 10},
        features=X,
        feature_rows=np.arange(10),
    )
    (group,) = describe_groups(sample, ["c"])
    assert group["central_rows"] == [104, 105, 103, 106, 102, 107, 101, 108]
    assert group["description"] == "all rows of class c"


def test_a_slice_of_a_vector_is_told_by_the_columns() -> None:
    rows = table()
    warm = rows["hours"].to_numpy() >= 35
    told = warm + 0.1 * np.random.default_rng(5).normal(size=N)
    X = np.column_stack([np.zeros(N), told]).astype(np.float32)
    sample = GroupSample(
        rows,
        np.arange(N),
        np.zeros(N, np.int64),
        np.zeros(N, np.int64),
        {(0, 0): N},
        features=X,
        feature_rows=np.arange(N),
    )
    (found,) = describe_slices(sample, [("vector[1] > 0.5", 1, 0.5)])
    assert found["description"] == "hours >= 35"
    assert found["rule"]["purity"] > 0.98
    (chance,) = describe_slices(sample, [("vector[0] > 0", 0, 0.0)])
    assert chance["rule"] is None


def test_slices_of_the_same_rows_are_told_once() -> None:
    rows, rng = table(), np.random.default_rng(5)
    warm = rows["hours"].to_numpy() >= 35
    X = np.column_stack([warm, warm ^ (rng.random(N) < 0.02), ~warm, rng.normal(size=N)]).astype(np.float32)
    sample = GroupSample(
        rows,
        np.arange(N),
        np.zeros(N, np.int64),
        np.zeros(N, np.int64),
        {(0, 0): N},
        features=X,
        feature_rows=np.arange(N),
    )
    found = describe_slices(sample, [(f"text[{k}] > 0.5", k, 0.5) for k in range(4)])
    assert [(one["slice"], one["also"]) for one in found] == [
        ("text[0] > 0.5", ["text[1] > 0.5"]),
        ("text[2] > 0.5", []),
        ("text[3] > 0.5", []),
    ]


@pytest.mark.parametrize("kind", ["time", "zoned", "text"])
@pytest.mark.parametrize(
    ("part", "values", "words"),
    [
        ("hour", {20, 21, 22, 23, 0, 1, 2, 3}, "left between 20:00 and 04:00"),
        ("month", {11, 12, 1, 2}, "left in Nov-Feb"),
        ("weekday", {6, 7}, "left on Sat, Sun"),
    ],
)
def test_parts_of_dates_are_told_in_words(kind: str, part: str, values: set[int], words: str) -> None:
    rng = np.random.default_rng(5)
    n = 4000
    hours = pd.Series(pd.Timestamp("2013-01-01") + pd.to_timedelta(rng.integers(0, 24 * 900, n), unit="h"))
    inside = {"hour": hours.dt.hour, "month": hours.dt.month, "weekday": hours.dt.day_of_week + 1}[part]
    hours[rng.random(n) < 0.05] = pd.NaT
    chosen = (inside.isin(values) & hours.notna()).to_numpy()
    column = {
        "time": pa.array(hours),
        "zoned": pa.array(hours.dt.tz_localize("UTC").dt.tz_convert("America/New_York")),
        "text": pa.array(hours.dt.strftime("%Y-%m-%d %H:%M").where(hours.notna(), None), pa.string()),
    }[kind]
    if kind == "zoned":  # by the clock of the zone
        clock = hours.dt.tz_localize("UTC").dt.tz_convert("America/New_York").dt
        inside = {"hour": clock.hour, "month": clock.month, "weekday": clock.day_of_week + 1}[part]
        chosen = inside.isin(values).to_numpy()
    rule = find(pa.table({"left": column, "noise": rng.normal(size=n)}), chosen)
    assert rule is not None
    assert rule.text == words
    assert rule.score.coverage == rule.score.purity == 1.0


def test_sorted_amounts_have_a_view_and_row_numbers_have_none() -> None:
    """Amounts in a sorted file rise as row numbers do, and groups that they define were not described."""
    rows = np.sort(np.random.default_rng(0).choice(100_000, N, replace=False))
    amounts = np.sort(np.random.default_rng(0).lognormal(10, 0.6, N) * 100).astype(np.int64)
    found = pa.table({"pay": amounts, "line": rows * 10 + 3, "shuffled": np.roll(rows, 400)})
    assert [view.column for view in views_of(found, halves(), n_rows=100_000)] == ["pay"]


def test_amounts_of_a_large_table_have_a_view_and_its_row_numbers_have_none() -> None:
    """Amounts that repeat in the table hardly do in a sample, and were taken for row numbers."""
    rng, n_rows = np.random.default_rng(0), 100_000
    rows = np.sort(rng.choice(n_rows, N, replace=False))
    found = pa.table(
        {"income": rng.integers(0, n_rows, N), "line": rows, "shuffled": rng.permutation(rows) * 10 + 7}
    )
    assert [view.column for view in views_of(found, halves(), n_rows=n_rows)] == ["income"]
    # So few rows repeat neither way: only their order tells.
    few = found.take(pa.array(np.arange(0, N, 20)))
    assert [view.column for view in views_of(few, halves()[::20], n_rows=n_rows)] == ["income", "shuffled"]
