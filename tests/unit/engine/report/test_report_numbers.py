"""The report's arithmetic against independent references."""

import math
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest
from sklearn.metrics import adjusted_rand_score, precision_score, recall_score

from engine.report.groups import (
    GroupRow,
    MarkedRows,
    group_to_inspect,
    marked_rows,
    summary_sentences,
    worst_group,
)
from engine.report.rows import group_requests
from engine.report.scores import adjusted_rand_index, group_scores, outlier_scores, score
from engine.report.survey import ROW, Key, Survey, cast_or_null, first_per_group
from engine.report.templates import template
from engine.report.thumbnails import flat_numbers, scaled
from operators.hashing import row_hashes
from operators.planes import plane_of_products, principal_plane
from operators.report import RowStatistics
from operators.report.statistics import first_rows
from operators.report.text import number, percent, short

labels = st.lists(st.tuples(st.integers(-1, 4), st.integers(0, 3)), min_size=1, max_size=60)


def contingency(pairs: list[tuple[int, int]]) -> dict[tuple[int, int], int]:
    return {pair: pairs.count(pair) for pair in set(pairs)}


@given(labels)
def test_rand_index_is_scikit_learns(pairs: list[tuple[int, int]]) -> None:
    first, second = zip(*pairs, strict=True)
    assert adjusted_rand_index(contingency(pairs)) == pytest.approx(
        adjusted_rand_score(first, second), abs=1e-12
    )


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())])
def test_one_text_that_is_no_boolean_takes_its_row_alone(kind: pa.DataType) -> None:
    """It took its whole shard out of the scores of outliers, while those of other shards were scored."""
    column = pa.chunked_array([pa.array(["true", "FALSE", "1", "0", "maybe", " true", None]).cast(kind)])
    found = cast_or_null(column, pa.bool_())
    assert found.to_pylist() == [True, False, True, False, None, None, None]


@pytest.mark.parametrize("kind", [pa.int8(), pa.float64(), pa.float16(), pa.decimal128(4, 1)])
def test_of_numbers_only_0_and_1_are_booleans(kind: pa.DataType) -> None:
    """Any number but 0 counted as true, so that every row of a column of measurements was an outlier."""
    column = pa.chunked_array([pa.array([0, 1, 2, -1, None], pa.int8()).cast(pa.float32()).cast(kind)])
    assert cast_or_null(column, pa.bool_()).to_pylist() == [False, True, None, None, None]


def test_rows_whose_truth_is_not_read_are_told() -> None:
    none = np.empty(0, np.int64)
    cells = {
        Key(0, 0, None, False, None, None, None, truth): RowStatistics(rows)
        for truth, rows in ((True, 3), (False, 5), (None, 2))
    }
    (note,) = score(Survey(cells, 0, none, {}, none), None, "bad").notes
    assert note.startswith(
        "truth.outlier: 2 rows without a value in the column 'bad' that can be read as true"
    )
    known = {key: rows for key, rows in cells.items() if key.true_outlier is not None}
    assert score(Survey(known, 0, none, {}, none), None, "bad").notes == ()


def test_rand_index_of_large_counts_does_not_overflow() -> None:
    small = {(0, 0): 5, (0, 1): 2, (1, 1): 4, (2, 0): 1}
    large = {pair: rows * 10**11 for pair, rows in small.items()}
    shares = {pair: rows * 10**7 for pair, rows in small.items()}
    assert adjusted_rand_index(large) == pytest.approx(adjusted_rand_index(shares), abs=1e-6)


@given(st.integers(0, 200), st.integers(1, 200))
def test_wilson_is_scipys(right: int, rows: int) -> None:
    right = min(right, rows)
    low, high = binomtest(right, rows).proportion_ci(method="wilson")
    assert RowStatistics(rows, right).interval == pytest.approx((low, high), abs=1e-9)


def test_wilson_without_rows_or_predictions_is_nan() -> None:
    for stat in (RowStatistics(), RowStatistics(5, math.nan)):
        assert all(math.isnan(value) for value in (*stat.interval, stat.accuracy))


@given(st.lists(st.tuples(st.booleans(), st.booleans(), st.integers(-1, 1)), min_size=1, max_size=40))
def test_outlier_scores_are_scikit_learns(rows: list[tuple[bool, bool, int]]) -> None:
    cells: dict[Key, RowStatistics] = {}
    for truth, marked, group in rows:
        key = Key(0, group, None, marked, None, None, None, truth)
        cells[key] = cells.get(key, RowStatistics()) + RowStatistics(1)
    none = np.empty(0, np.int64)
    flaggings, base_rate = outlier_scores(Survey(cells, 0, none, {}, none))
    truth = [row[0] for row in rows]
    assert base_rate == pytest.approx(np.mean(truth))
    for found, flags in zip(
        flaggings, ([row[1] for row in rows], [row[2] == -1 for row in rows]), strict=True
    ):
        for ours, theirs in ((found.precision, precision_score), (found.recall, recall_score)):
            assert ours == pytest.approx(theirs(truth, flags, zero_division=math.nan), nan_ok=True)


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(-1, 2)), max_size=60), st.integers(1, 5))
def test_first_per_group_keeps_the_smallest_hashes(pairs: list[tuple[int, int]], k: int) -> None:
    rows = np.empty(len(pairs), ROW)
    rows["y"], rows["group"] = np.array(pairs, dtype=int).reshape(-1, 2).T
    rows["row_id"] = np.arange(len(pairs))
    rows["hash"] = row_hashes(rows["row_id"], 7, "report/rows")
    kept, rank = first_per_group(rows, k)
    expected = set()
    for y, group in set(pairs):
        own = [row for row in rows if (row["y"], row["group"]) == (y, group)]
        expected |= {int(row["row_id"]) for row in sorted(own, key=lambda row: row["hash"])[:k]}
    assert set(kept["row_id"].tolist()) == expected
    assert np.all(rank < k)
    halves = [first_per_group(half, k)[0] for half in (rows[::2], rows[1::2])]
    again, _ = first_per_group(np.concatenate(halves), k)
    assert again.tolist() == kept.tolist()


def test_strongest_are_marked_rows_first_then_by_loss() -> None:
    rows = np.array([[0, 9.0, 1], [1, 1.0, 2], [1, 3.0, 3], [0, 2.0, 4], [1, 3.0, 0]])
    assert first_rows(rows, 24)[:, 2].tolist() == [0, 3, 2, 1, 4]


@pytest.mark.parametrize(("n", "d"), [(50, 5), (20, 60), (700, 600)])
def test_the_plane_holds_the_two_largest_directions_of_variance(n: int, d: int) -> None:
    X = np.random.default_rng(0).normal(size=(n, d)) * np.geomspace(5, 0.1, d) + 3
    left, values, _ = np.linalg.svd(X - X.mean(0), full_matrices=False)
    for points, explained in (principal_plane(X), plane_of_products(X @ X.T)):
        assert explained == pytest.approx((values**2)[:2] / (values**2).sum())
        assert np.abs(points) == pytest.approx(np.abs(left * values)[:, :2], abs=1e-6)
        assert np.all(points[np.argmax(np.abs(points), axis=0), [0, 1]] > 0)


@pytest.mark.parametrize("X", [np.ones((1, 3)), np.full((4, 3), 0.1), np.arange(4.0)[:, None]])
def test_the_plane_of_degenerate_rows_is_finite(X: np.ndarray) -> None:
    for points, explained in (principal_plane(X), plane_of_products(X @ X.T)):
        assert points.shape == (len(X), 2)
        assert np.isfinite(points).all()
        assert explained[0] == pytest.approx(float(np.ptp(X) > 0))
        assert explained[1] == 0


def test_pixels_are_scaled_by_the_range_they_live_in() -> None:
    assert scaled(np.array([0.2, 0.4], np.float32)).tolist() == pytest.approx([0.2, 0.4])
    assert scaled(np.array([0, 51, 255], np.float32)).tolist() == pytest.approx([0, 0.2, 1])
    assert scaled(np.array([0, 4, 16], np.float32)).tolist() == pytest.approx([0, 0.25, 1])
    assert scaled(np.array([-1, 0, 1], np.float32)).tolist() == pytest.approx([0, 0.5, 1])
    assert scaled(np.array([3, 3], np.float32)).tolist() == [0, 0]
    assert flat_numbers([[1, 2], [3, 4]]).tolist() == [1, 2, 3, 4]
    assert len(flat_numbers("no")) == len(flat_numbers([[1], [2, 3]])) == 0


@pytest.mark.parametrize(
    ("value", "text"),
    [(1797, "1,797"), (1797.0, "1,797"), (0.12345, "0.123"), (1e-5, "1.0e-05"), (math.nan, "–")],
)
def test_numbers(value: float, text: str) -> None:
    assert number(value) == text


@pytest.mark.parametrize(
    ("share", "text"),
    [(0, "0 %"), (0.034, "3.4 %"), (0.97, "97 %"), (1, "100 %"), (0.9999, "> 99.9 %"), (1e-6, "< 0.1 %")],
)
def test_percentages(share: float, text: str) -> None:
    assert percent(share).replace("\u00a0", " ") == text


def test_values_are_shortened() -> None:
    assert short([1.0] * 64) == "[64 numbers]"
    assert short(["a"]) == "[1 value]"
    assert short("x" * 81) == "x" * 79 + "…"
    assert short(None) == "–"
    assert short(b"ab") == "[2 bytes]"


def row(y: int, group: int, rows: int, right: int, *, worse: bool = False, outliers: int = 0) -> GroupRow:
    return GroupRow(y, group, "ab"[y], RowStatistics(rows, right), rows / 100, {}, outliers, 0, worse)


def summary_text(*groups: GroupRow, quarantined: int = 0) -> str:
    return " ".join(summary_sentences(list(groups), quarantined)).replace("\u00a0", " ")


def test_the_worst_group_is_named_with_its_numbers() -> None:
    text = summary_text(row(0, 0, 500, 500), row(0, 1, 100, 10, worse=True), row(1, 2, 400, 400))
    assert "1,000 rows in 2 classes; 3 groups were inferred." in text
    assert (
        "lowest accuracy on the smallest group, group 1 (class a, 100 rows, 100 %): 10 %, against 91 %"
        in text
    )
    assert "may fail on these rows" in text
    assert "no noise. No row is marked" in text


def test_a_class_that_is_not_split_is_no_group_to_look_at() -> None:
    """Its rows have the class in common, and 0 % is that of a regularised classifier on a rare class."""
    groups = [row(0, 0, 900, 890), row(1, 1, 100, 0, worse=True)]
    text = summary_text(*groups)
    assert "lowest accuracy on a whole class, b: 0 %, against 89 % over all rows. As no class was" in text
    assert "was split, this does not tell whether the class is rare, or hard to tell, or some of its" in text
    assert "the rows that it treats otherwise are too few for a group" in text
    assert "smallest group" not in text
    assert group_to_inspect(groups) is None
    noise = row(1, -1, 60, 10, worse=True)
    assert group_to_inspect([*groups, noise]) is noise


def test_a_whole_class_beside_split_ones_is_not_called_a_group() -> None:
    groups = [row(0, 0, 900, 890), row(0, 1, 300, 280), row(1, 2, 100, 0, worse=True)]
    text = summary_text(*groups)
    assert (
        "lowest accuracy on a whole class, b: 0 %, against 90 % over all rows. As this class was not" in text
    )
    assert "may fail on these rows" not in text


def test_of_groups_without_a_right_row_the_same_one_is_called_worst_and_looked_at() -> None:
    groups = [row(0, 0, 95, 0, worse=True), row(1, 1, 900, 890), row(1, 2, 128, 0, worse=True)]
    worst = worst_group(groups)
    assert worst is not None
    assert worst.members == (groups[2],)
    assert group_to_inspect(groups) is groups[2]


def test_a_group_whose_rows_are_mostly_marked_is_named() -> None:
    """Of 387 rows that break a shortcut 361 were marked, and the right ones among them too."""
    text = summary_text(row(0, 0, 500, 500, outliers=10), row(1, 1, 100, 90, outliers=60))
    assert "Most rows are marked as outliers in group 1 of class b (60 of 100)." in text
    assert "Most rows" not in summary_text(row(0, 0, 500, 500, outliers=10), row(1, 1, 100, 90, outliers=40))
    assert "Most rows" not in summary_text(row(0, 0, 500, 500), row(1, 1, 20, 9, outliers=20))


def test_a_handful_of_rows_is_never_the_worst_group() -> None:
    large = [row(0, 0, 500, 500), row(1, 1, 400, 380)]
    handful = row(0, 2, 8, 0)
    worst = worst_group([*large, handful])
    assert worst is not None
    assert worst.members == (large[1],)
    assert "No group stands out. The classifier has its lowest accuracy on a whole class, b: 95 %" in (
        summary_text(*large, handful)
    )
    left_out = "Group 2 of class a (8 rows, 0 right) is left out of the worst group, as it has fewer than 50"
    assert left_out in summary_text(*large, handful)
    assert "left out" not in summary_text(*large)
    pool = [row(0, group, 20, 2) for group in (2, 3, 4)]
    worst = worst_group([*large, *pool])
    assert worst is not None
    assert worst.members == tuple(pool)
    assert worst.clearly_worse
    assert worst.stat.rows == 60
    assert worst.pooled
    text = summary_text(*large, *pool)
    assert "the groups with fewer than 50 rows taken together (groups 2, 3, 4; 60 rows, 60 %): 10 %" in text
    assert group_to_inspect([*large, *pool]) is pool[0]
    assert worst_group(pool[:2]) is None
    assert worst_group(large[:1]) is None
    assert "Every group has fewer than 50 rows, too few to say on which" in summary_text(*pool[:2])


def test_one_group_that_is_large_enough_is_not_the_worst_of_one() -> None:
    groups = [row(0, 0, 58, 58), row(1, 1, 2, 0)]
    assert worst_group(groups) is None
    assert group_to_inspect(groups) is None
    text = summary_text(*groups)
    assert "lowest accuracy" not in text
    assert "Only group 0 (class a, 58 rows, 58 %) has at least 50 rows, so that there is no other" in text
    assert "Group 1 of class b (2 rows, 0 right) is left out" in text


def test_a_class_is_split_whatever_other_classes_hold() -> None:
    split = [row(0, 0, 500, 500), row(0, 1, 100, 10, worse=True)]
    for others in ([], [row(1, -1, 100, 50)]):
        text = summary_text(*split, *others)
        assert "No class was split" not in text
        assert "may fail on these rows" in text
    assert "600 rows in 1 class; 2 groups" in summary_text(*split)
    assert "No class was split" in summary_text(row(0, 0, 90, 90), row(1, 1, 90, 90), row(1, -1, 9, 9))


def test_groups_of_an_oracle_are_not_called_inferred() -> None:
    groups = [row(0, 0, 90, 90), row(1, 1, 90, 90), row(1, -1, 9, 9)]
    assert "1 group was read" in summary_sentences([row(0, 0, 90, 90), row(1, 0, 90, 90)], 0, ("_g",))[0]
    text = " ".join(summary_sentences(groups, 0, ("_g",)))
    assert "2 groups were read from the column '_g' (oracle: the truth, not inferred)." in text
    assert "No class was split into several groups. " in text
    assert "inferred." not in text


def test_names_of_classes_are_cut_and_blank_ones_quoted() -> None:
    def named(name: str) -> str:
        return replace(row(0, 0, 90, 90), class_name=name).sized_name

    assert named("y" * 300).count("y") == 39
    assert "(class '', 90 rows" in named("")
    assert "(class ' ', 90 rows" in named(" ")


def marked(split: str, weight: float) -> Survey:
    key = Key(0, 0, split, True, "eos", None, None, None)
    other = key._replace(split="train", is_outlier=False)
    cells = {key: RowStatistics(3, weight=weight), other: RowStatistics(9, weight=9.0)}
    none = np.empty(0, np.int64)
    return Survey(cells, 2, none, {}, none)


@pytest.mark.parametrize(
    ("split", "weight", "left_out"), [("train", 1.0, False), ("train", 0.0, True), ("dropped", 1.0, True)]
)
def test_marked_rows_are_left_out_where_they_are_dropped_or_weigh_nothing(
    split: str, weight: float, left_out: bool
) -> None:
    assert marked_rows(marked(split, weight)) == MarkedRows(3, left_out, weight / (weight + 9))


def by_truth(rows: list[tuple[str | None, int, int]]) -> Survey:
    cells = {Key(0, g, None, False, None, None, name, None): RowStatistics(n) for name, g, n in rows}
    none = np.empty(0, np.int64)
    return Survey(cells, 0, none, {}, none)


def test_rows_without_a_true_group_count_in_none() -> None:
    found = group_scores(by_truth([("None", 0, 7), ("a", 1, 5), (None, 0, 30), (None, 1, 30)]), "_t")
    assert found.true_groups == [("None", RowStatistics(7)), ("a", RowStatistics(5))]
    assert found.table == [("None", [7, 0]), ("a", [0, 5])]
    assert found.ari == 1
    assert found.notes == ("60 rows without a value in the column '_t' count in no true group.",)


def test_a_truth_without_values_is_said() -> None:
    (note,) = group_scores(by_truth([(None, 0, 30)]), "_t").notes
    assert "no value of the column '_t' can be read as the name of a group" in note


def test_true_groups_and_groups_that_the_table_leaves_out_are_counted() -> None:
    found = group_scores(by_truth([(f"t{i}", i % 50, 9) for i in range(300)]), "_t")
    assert (len(found.true_groups), found.more_true_groups) == (40, 260)
    assert (len(found.columns), found.more_columns) == (40, 10)


def test_hidden_groups_are_called_more_accurate_only_if_there_is_an_accuracy() -> None:
    def notes(right: float) -> list[str]:
        groups = [GroupRow(g, g, "c", RowStatistics(9, right), 0.1, {}, 0, 0, False) for g in range(30)]
        none = np.empty(0, np.int64)
        return group_requests(Survey({}, 0, none, {(g, g): none for g in range(30)}, none), groups)[1]

    assert notes(math.nan) == ["6 more groups are not shown."]
    assert notes(5.0) == ["6 more groups, on which the classifier is more accurate, are not shown."]


def test_groups_that_all_do_well_are_not_called_worst() -> None:
    groups = [row(0, 0, 50, 50), row(1, 1, 60, 59), row(1, -1, 10, 1, worse=True, outliers=10)]
    text = summary_text(*groups)
    assert "No group stands out" in text
    assert "No class was split" in text
    assert "may fail on these rows" not in text
    assert "10 rows (8.3 %) are in no group (noise, group -1), and as many are marked as outliers." in text
    assert "poor on the rows in no group of class b (accuracy 10 %)" in text
    assert group_to_inspect(groups) is groups[2]
    assert group_to_inspect(groups[:2]) is None, "two whole classes"


def test_a_class_of_noise_and_rejected_rows_are_said() -> None:
    text = summary_text(row(0, 0, 50, 50, outliers=1), row(1, 1, 10, 10), row(1, -1, 40, 40), quarantined=2)
    assert "More than half of class b (40 of 50 rows) is in no group" in text
    assert "1 row (1 %) is marked as an outlier." in text
    assert "2 rows could not be used and are quarantined" in text


def test_templates_are_compiled_once() -> None:
    assert template("model.html.j2") is template("model.html.j2")
