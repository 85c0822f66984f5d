"""The report's arithmetic against independent references."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest
from sklearn.metrics import adjusted_rand_score, precision_score, recall_score

from engine.report.findings import Findings, sentences
from engine.report.groups import GroupRow, focus, worst_group
from engine.report.sampling import ROW, first_per_group, keep_strongest, row_hash
from engine.report.scores import outlier_scores
from engine.report.spaces import plane
from engine.report.statistics import Stat, adjusted_rand_index, wilson
from engine.report.survey import Key, Survey
from engine.report.thumbnails import flat_numbers, scaled
from engine.report.words import number, percent, short

labels = st.lists(st.tuples(st.integers(-1, 4), st.integers(0, 3)), min_size=1, max_size=60)


def contingency(pairs: list[tuple[int, int]]) -> dict[tuple[int, int], int]:
    return {pair: pairs.count(pair) for pair in set(pairs)}


@given(labels)
def test_rand_index_is_scikit_learns(pairs: list[tuple[int, int]]) -> None:
    first, second = zip(*pairs, strict=True)
    assert adjusted_rand_index(contingency(pairs)) == pytest.approx(
        adjusted_rand_score(first, second), abs=1e-12
    )


def test_rand_index_of_large_counts_does_not_overflow() -> None:
    small = {(0, 0): 5, (0, 1): 2, (1, 1): 4, (2, 0): 1}
    large = {pair: rows * 10**11 for pair, rows in small.items()}
    shares = {pair: rows * 10**7 for pair, rows in small.items()}
    assert adjusted_rand_index(large) == pytest.approx(adjusted_rand_index(shares), abs=1e-6)


@given(st.integers(0, 200), st.integers(1, 200))
def test_wilson_is_scipys(right: int, rows: int) -> None:
    right = min(right, rows)
    low, high = binomtest(right, rows).proportion_ci(method="wilson")
    assert wilson(right, rows) == pytest.approx((low, high), abs=1e-9)


def test_wilson_without_rows_or_predictions_is_nan() -> None:
    assert all(math.isnan(value) for pair in (wilson(0, 0), wilson(math.nan, 5)) for value in pair)


@given(st.lists(st.tuples(st.booleans(), st.booleans(), st.integers(-1, 1)), min_size=1, max_size=40))
def test_outlier_scores_are_scikit_learns(rows: list[tuple[bool, bool, int]]) -> None:
    cells: dict[Key, Stat] = {}
    for truth, marked, group in rows:
        key = Key(0, group, None, marked, None, None, None, truth)
        cells[key] = cells.get(key, Stat()) + Stat(1)
    none = np.empty(0, np.int64)
    flaggings, base_rate = outlier_scores(Survey(cells, 0, none, {}, none, none))
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
    rows["hash"] = row_hash(rows["row_id"], 7)
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


def test_hashes_differ_by_row_and_seed_and_fill_the_range() -> None:
    rows = np.arange(20_000)
    first, second = row_hash(rows, 0), row_hash(rows, 1)
    assert len(np.unique(first)) == len(rows)
    assert not np.any(first == second)
    counts = np.histogram(first.astype(np.float64), bins=16, range=(0, 2.0**64))[0]
    assert np.all(np.abs(counts - 1250) < 250)


def test_strongest_are_marked_rows_first_then_by_loss() -> None:
    rows = np.array([[0, 9.0, 1], [1, 1.0, 2], [1, 3.0, 3], [0, 2.0, 4], [1, 3.0, 0]])
    assert keep_strongest(rows)[:, 2].tolist() == [0, 3, 2, 1, 4]


def test_plane_is_the_two_largest_directions_of_variance() -> None:
    X = np.random.default_rng(0).normal(size=(50, 5)) * [5, 3, 1, 0.5, 0.1]
    points, explained = plane(X, 0)
    values = np.linalg.svd(X - X.mean(0), compute_uv=False) ** 2
    assert explained == pytest.approx(values[:2] / values.sum())
    assert (points**2).sum(0) == pytest.approx(values[:2])


@pytest.mark.parametrize("X", [np.ones((1, 3)), np.ones((4, 3)), np.arange(4.0)[:, None]])
def test_plane_of_degenerate_rows_is_finite(X: np.ndarray) -> None:
    points, explained = plane(X, 0)
    assert points.shape == (len(X), 2)
    assert np.isfinite(points).all()
    assert np.isfinite(explained).all()


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


def row(y: int, group: int, rows: int, right: int, *, worse: bool = False) -> GroupRow:
    return GroupRow(y, group, "ab"[y], Stat(rows, right), rows / 100, {}, 0, 0, worse)


def findings(*groups: GroupRow, **changed: int) -> Findings:
    own = tuple(g for g in groups if not g.is_noise)
    noise = tuple(g for g in groups if g.is_noise)
    rows = sum(g.stat.rows for g in groups)
    sizes = {y: sum(g.stat.rows for g in groups if g.y == y) for y in (0, 1)}
    counts = {"quarantined": 0, "noise": sum(g.stat.rows for g in noise), "outliers": 0, **changed}
    accuracy = sum(g.stat.right for g in groups) / rows
    return Findings(
        rows=rows,
        n_classes=2,
        groups=own,
        noise_rows=noise,
        worst=worst_group(list(groups)),
        class_rows=sizes,
        accuracy=accuracy,
        **counts,
    )


def said(*groups: GroupRow, **changed: int) -> str:
    return " ".join(sentences(findings(*groups, **changed))).replace("\u00a0", " ")


def test_the_worst_group_is_named_with_its_numbers() -> None:
    text = said(row(0, 0, 50, 50), row(0, 1, 10, 1, worse=True), row(1, 2, 40, 40))
    assert "100 rows in 2 classes; 3 groups were inferred." in text
    assert "The smallest, group 1 (class a, 10 rows, 10 %), is where the probe is worst: 10 % right" in text
    assert "against 91 % overall" in text
    assert "no noise. No row is marked" in text


def test_groups_that_all_do_well_are_not_called_worst() -> None:
    groups = [row(0, 0, 50, 50), row(1, 1, 40, 39), row(1, -1, 10, 1, worse=True)]
    text = said(*groups, outliers=10)
    assert "No group stands out" in text
    assert "No more groups than classes" in text
    assert "10 rows (10 %) fit no group (noise, group -1) and are marked as outliers." in text
    assert "badly on the noise of class b (10 % right)" in text
    assert focus(groups) is groups[2]
    assert focus(groups[:2]) is groups[1]


def test_a_class_of_noise_and_rejected_rows_are_said() -> None:
    text = said(row(0, 0, 50, 50), row(1, 1, 10, 10), row(1, -1, 40, 40), outliers=1, quarantined=2)
    assert "Most of class b (40 of 50 rows) is noise" in text
    assert "1 row (1 %) is marked as an outlier." in text
    assert "2 rows could not be used" in text
