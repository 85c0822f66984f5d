"""Columns that tell the label on their own are found, and honest or useless ones are not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from sklearn.tree import DecisionTreeClassifier

from operators.leaks import LEAF_ROWS, MAX_LEAVES, _by_cuts, _few_of_large_classes, find_leaks

N = 600
RNG = np.random.default_rng(0)
Y = RNG.integers(0, 3, N).astype(np.int32)


def leaks(column: Any, y: Any = Y) -> list[str]:
    return [leak.name for leak in find_leaks({"c": pa.chunked_array([pa.array(column)])}, y)]


def masked(values: Any, gone: Any) -> pa.Array:
    return pa.array(values, mask=gone)


LEAKS: dict[str, Any] = {
    "the label itself": Y,
    "its text": [f"class {value}" for value in Y],
    "a score": Y * 10 + RNG.normal(0, 0.5, N),
    "many categories of one class each": [f"{value}-{row % 8}" for row, value in enumerate(Y)],
    "dates": (Y * 100).astype("datetime64[D]"),
}
HONEST: dict[str, Any] = {
    "noise": RNG.normal(size=N),
    "a strong feature": Y * 2 + RNG.normal(0, 1, N),
    "an identifier": [f"id{row}" for row in range(N)],
    "row numbers": np.arange(N),
    "constant": ["a"] * N,
    "a vector": [[1.0, 2.0]] * N,
    "all missing": pa.nulls(N, pa.float64()),
}


@pytest.mark.parametrize("name", LEAKS)
def test_leaks_are_found(name: str) -> None:
    assert leaks(LEAKS[name]) == ["c"]


@pytest.mark.parametrize("name", HONEST)
def test_honest_columns_are_not_named(name: str) -> None:
    assert leaks(HONEST[name]) == []


def test_a_column_that_is_missing_where_the_label_is_zero_leaks() -> None:
    y = (Y > 0).astype(np.int32)
    assert leaks(masked(RNG.normal(size=N), y == 0), y) == ["c"]
    assert leaks(masked(np.array(["x"] * N, object), y == 0), y) == ["c"]


def test_a_rare_class_is_not_hidden_by_accuracy() -> None:
    y = (RNG.random(N) < 0.04).astype(np.int32)
    assert leaks(["always the same"] * N, y) == []


def test_a_tiny_class_does_not_hide_a_leak() -> None:
    y = np.where(np.arange(N) % 3 == 0, 2, 0).astype(np.int32)
    y[:8] = 1
    code = np.where(y == 2, 1 + np.arange(N) % 4, 0)  # tells 0 and 1 not apart
    (leak,) = find_leaks({"c": pa.chunked_array([pa.array(code)])}, y)
    assert leak.score == 1.0
    assert leak.chance == 0.5
    assert leaks(RNG.normal(size=N), y) == []


def test_a_tiny_class_counts_where_it_is_one_of_two() -> None:
    y = (np.arange(N) < 30).astype(np.int32)
    assert leaks(y, y) == ["c"]


def test_scores_are_of_unseen_rows_and_in_order() -> None:
    columns = {
        "exact": pa.chunked_array([pa.array(Y)]),
        "nearly": pa.chunked_array([pa.array(np.where(RNG.random(N) < 0.02, 0, Y))]),
    }
    found = find_leaks(columns, Y)
    assert [leak.name for leak in found] == ["exact", "nearly"]
    assert found[0].score == 1.0
    assert found[1].score < 1.0
    assert found[0].chance == pytest.approx(1 / 3)


def test_rows_without_a_label_are_left_out() -> None:
    y = np.where(np.arange(N) % 3, -1, Y).astype(np.int32)
    assert leaks(Y, y) == ["c"]
    assert leaks(Y, np.full(N, -1, np.int32)) == []
    assert leaks(Y[:60], Y[:60]) == []  # too few to tell


def test_a_class_of_a_few_rows_gives_no_verdict_on_a_column() -> None:
    # Two rows with small values look like a perfect rule: one of the two was in the unseen half.
    for n_rare, expected in [(2, []), (19, []), (20, ["c"])]:
        y = (np.arange(1_250) >= n_rare).astype(np.int32)
        assert leaks(np.where(y, RNG.normal(100, 10, len(y)), 1.0), y) == expected


@pytest.mark.parametrize("n_classes", [2, 5])
def test_cuts_are_those_of_a_classification_tree(n_classes: int) -> None:
    y = RNG.integers(0, n_classes, 2000).astype(np.int32)
    values = np.round(y + RNG.normal(0, 1, 2000), 1)
    fit, rows = np.arange(1000), np.arange(1000, 2000)
    tree = DecisionTreeClassifier(
        max_leaf_nodes=MAX_LEAVES, min_samples_leaf=LEAF_ROWS, class_weight="balanced", random_state=0
    )
    expected = tree.fit(values[fit, None], y[fit]).predict(values[rows, None])
    assert (_by_cuts(values, y, fit, rows) == expected).mean() > 0.995  # ties aside


def test_large_classes_are_thinned_out_and_small_ones_kept() -> None:
    y = np.repeat(np.arange(4), [50_000, 300, 20_000, 1_000]).astype(np.int32)
    kept = _few_of_large_classes(RNG.permutation(len(y)), y, 20_000)
    assert np.bincount(y[kept]).tolist() == [9_350, 300, 9_350, 1_000]
    few = np.arange(100)
    assert _few_of_large_classes(few, y, 200) is few


def test_a_label_of_many_classes_and_wide_tables_stay_fast() -> None:
    columns = {f"c{k}": pa.chunked_array([pa.array(RNG.normal(size=6000))]) for k in range(600)}
    columns["told"] = pa.chunked_array([pa.array(np.arange(6000) % 3)])
    assert [leak.name for leak in find_leaks(columns, (np.arange(6000) % 3).astype(np.int32))] == ["told"]
