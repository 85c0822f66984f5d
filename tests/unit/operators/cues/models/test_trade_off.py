"""Weights over the strength, the trade-off along it, and the choice: exact on small problems."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import ndtri

from operators.class_shares import class_factors
from operators.cues import CueSettings, WeightPath, choose, fit, full_factor, trade_off, weights
from operators.cues.gather import SampledRows
from operators.cues.models.draws import Split, halves
from operators.cues.models.trade_off import STRENGTHS, TradeOffPoint, rows_by_group
from operators.cues.output.curve import measured_curve
from operators.cues.output.curve_report import (
    baseline_sentence,
    curve_record,
    draw,
    small_groups_sentence,
    summary_sentence,
    table_rows,
)
from operators.cues.output.report import cue_section
from operators.cues.settings import Named
from operators.report import ReportFigure, ReportTable
from tests.unit.operators.cues.output.test_cue_report import FOUND

# Rows of each cell (class, feature): the feature follows the class in 85 % of 2,000 rows.
CELLS = {(0, 0): 1300, (0, 1): 120, (1, 0): 180, (1, 1): 400}


def cells_problem() -> tuple[Any, Any, Any, Any]:
    """Return features (n, 1), labels, ids and the factor that balances the feature within each class."""
    keys = [key for key, n in CELLS.items() for _ in range(n)]
    y, x = np.array(keys).T
    total = np.array([1420, 580])
    factor = np.array([total[c] / (2 * CELLS[c, side]) for c, side in keys])
    order = np.random.default_rng(0).permutation(len(y))
    return x[order, None].astype(np.float32), y[order], np.arange(len(y)), factor[order]


def path_of(y: Any, factor: Any, **limits: float) -> WeightPath:
    given = {"cap": 20.0, "min_effective": 0.01, **limits}
    return WeightPath.fit(factor, y, np.bincount(y), **given)


def votes(X: Any, y: Any, w: Any, fitted: Any) -> Any:
    """Return the weighted majority of the fitted rows with the feature: what a full model predicts."""
    x = X[:, 0].astype(int)
    total = np.zeros((2, 2))
    np.add.at(total, (x[fitted], y[fitted]), w[fitted])
    return total.argmax(axis=1)[x]


def test_the_ends_of_the_path_are_erm_class_balance_and_the_robust_weights() -> None:
    _, y, _, factor = cells_problem()
    path, counts = path_of(y, factor), np.bincount(y)
    assert np.array_equal(path.weights(0, factor, y), np.ones(len(y)))
    np.testing.assert_allclose(path.weights(0.5, factor, y), class_factors(counts, strength=0.5)[y])
    np.testing.assert_allclose(path.weights(1, factor, y), (len(y) / (2 * counts))[y])
    robust = path.weights(2, factor, y)
    np.testing.assert_allclose(robust, (len(y) / (2 * counts))[y] * factor)
    middle = (path.weights(1, factor, y) + robust) / 2
    np.testing.assert_allclose(path.weights(1.5, factor, y), middle)
    for strength in STRENGTHS:
        assert path.weights(strength, factor, y).mean() == pytest.approx(1)


@pytest.mark.parametrize("strength", [-0.1, 2.01, np.nan])
def test_a_strength_off_the_path_is_an_error(strength: float) -> None:
    _, y, _, factor = cells_problem()
    with pytest.raises(ValueError, match="give a number from 0 to 2"):
        path_of(y, factor).weights(strength, factor, y)


def test_limits_hold_at_full_strength() -> None:
    _, y, _, factor = cells_problem()
    capped = path_of(y, factor, cap=2.0).weights(2, factor, y)
    balanced = path_of(y, factor).weights(1, factor, y)
    assert (capped <= 2 * balanced + 1e-9).all()
    shrunk = path_of(y, factor, min_effective=0.9).weights(2, factor, y)
    for c in (0, 1):
        w = shrunk[y == c]
        assert w.sum() ** 2 / (len(w) * (w @ w)) == pytest.approx(0.9)


def test_the_curve_is_that_of_a_model_one_can_compute_by_hand() -> None:
    X, y, ids, factor = cells_problem()
    path, half = path_of(y, factor), halves(ids, 0, Split.TRADE_OFF)
    groups = 2 * y + X[:, 0].astype(int)
    points = trade_off(X - 0.5, y, ids, path, factor, groups, l2=1e-7)
    assert tuple(point.strength for point in points) == STRENGTHS
    for point in points:
        w = path.weights(point.strength, factor, y)
        right = np.where(half == 0, votes(X, y, w, half == 1), votes(X, y, w, half == 0)) == y
        by_group = np.array([right[groups == g].mean() for g in range(4)])
        assert point.mean == pytest.approx(right.mean())
        assert point.worst == pytest.approx(by_group.min())
        assert point.group[0] in np.flatnonzero(by_group == by_group.min())
        assert point.worst_low <= point.worst <= point.worst_high
        assert point.effective_share == pytest.approx(w.sum() ** 2 / (len(y) * (w @ w)))
    by_class = trade_off(X - 0.5, y, ids, path, factor, l2=1e-7)
    assert [point.mean for point in by_class] == [point.mean for point in points]
    assert by_class[0].worst == pytest.approx(400 / 580)  # every row of class 1 and feature 0 is wrong
    assert by_class[0].group == (1,)


def test_intervals_hold_for_all_compared_groups_at_once() -> None:
    X, y, ids, factor = cells_problem()
    (point,) = trade_off(X - 0.5, y, ids, path_of(y, factor), factor, strengths=(0.0,), l2=1e-7)
    z2, n, p = ndtri(1 - 0.05 / 2 / 2) ** 2, 580, 400 / 580  # two classes
    middle, half = p + z2 / (2 * n), np.sqrt(z2 * (p * (1 - p) / n + z2 / (4 * n * n)))
    assert point.worst_low == pytest.approx((middle - half) / (1 + z2 / n))
    assert point.worst_high == pytest.approx((middle + half) / (1 + z2 / n))


def test_a_class_that_is_drawn_more_often_counts_by_its_rows_in_the_table() -> None:
    X, y, ids, factor = cells_problem()
    counts = np.bincount(y) * np.array([10, 1])  # the sample has a tenth of class 0
    path = replace(path_of(y, factor), counts=counts)
    (point,) = trade_off(X - 0.5, y, ids, path, factor, strengths=(0.0,), l2=1e-7)
    # With ten rows of class 0 for each drawn one, class 0 has the majority in both cells.
    assert point.mean == pytest.approx(14_200 / 14_780)
    assert point.worst == 0
    assert point.effective_share == pytest.approx(1)


def test_small_groups_are_pooled_and_named() -> None:
    X, y, ids, factor = cells_problem()
    groups = y.copy()
    groups[:30], groups[30:70] = 7, 8
    (point,) = trade_off(X - 0.5, y, ids, path_of(y, factor), factor, groups, strengths=(0.0,))
    record = curve_record(
        [replace(point, group=(7, 8))], rows_by_group(groups), str, grouping="groups", rows=len(y)
    )
    assert (record["pooled"], record["left_out"]) == (["7", "8"], [])
    assert record["points"][0]["worst_group"] == "2 groups of fewer than 50 rows, pooled: 7, 8"
    assert small_groups_sentence(record) == (
        "Group 7 (30 rows), group 8 (40 rows) have fewer than 50 scored rows each and are compared as one "
        "group."
    )


def test_groups_that_are_in_no_figure_are_named() -> None:
    X, y, ids, factor = cells_problem()
    groups = np.where(np.arange(len(y)) < 30, 7, y)
    points = trade_off(X - 0.5, y, ids, path_of(y, factor), factor, groups, strengths=(0.0, 1.0))
    record = curve_record(
        points, rows_by_group(groups), "class {}".format, grouping="classes", rows=len(y), published=1.0
    )
    assert (record["pooled"], record["left_out"]) == ([], ["class 7"])
    assert record["group_rows"]["class 7"] == 30
    said = "Class 7 (30 rows) is left out of the worst class, as it has fewer than 50 scored rows."
    assert said in baseline_sentence(record)
    section = cue_section({**FOUND, "trade_off": record | {"classes_left_out": {"7": 30}}})
    assert any(isinstance(item, str) and item.endswith(said) for item in section.content)
    warned = [finding.text for finding in section.findings if finding.severity == "warning"]
    assert any(text.startswith("The class '7' (30 rows) has fewer than 50 rows") for text in warned)
    record["published_strength"] = None
    assert baseline_sentence(record).endswith(said)
    del record["group_rows"]  # of an earlier release
    assert small_groups_sentence(record) == ""


def test_without_robust_weights_the_path_ends_at_class_balance() -> None:
    X, y, ids, _ = cells_problem()
    factor = np.ones(len(y))
    points = trade_off(X, y, ids, path_of(y, factor), factor)
    assert [point.strength for point in points] == [0, 0.25, 0.5, 0.75, 1]


def test_rows_that_cannot_be_halved_are_an_error() -> None:
    y = np.array([0, 0, 0, 1])
    with pytest.raises(ValueError, match="4 rows are too few"):
        trade_off(np.zeros((4, 1), np.float32), y, np.arange(4), path_of(y, np.ones(4)), np.ones(4))


def point_at(strength: float, mean: float) -> TradeOffPoint:
    return TradeOffPoint(strength, mean, mean, mean, 0.5, 0.4, 0.6, (0,), 100, 1.0)


@pytest.mark.parametrize(
    ("loss", "expected"), [(0.0, 1), (0.005, 1), (0.01, 2), (0.02, 4), (0.0999, 4), (0.1, 5), (1.0, 5)]
)
def test_the_largest_strength_within_the_loss_is_chosen(loss: float, expected: int) -> None:
    means = [0.89, 0.9, 0.89, 0.87, 0.88, 0.8]
    points = [replace(point_at(s, mean), worst=0.5) for s, mean in zip(STRENGTHS, means, strict=False)]
    assert choose(points, loss) == expected


def test_a_strength_that_costs_the_worst_group_too_is_passed_over() -> None:
    worst = [0.27, 0.3, 0.15, 0.6]
    means = [0.956, 0.957, 0.957, 0.8]
    points = [
        replace(point_at(s, mean), worst=low) for s, mean, low in zip(STRENGTHS, means, worst, strict=False)
    ]
    assert choose(points, 0.02) == 1
    assert choose(points, 0.2) == 3
    assert choose(points[1:3], 0.0) == 0


@pytest.mark.parametrize("loss", [-0.01, 1.1, np.nan])
def test_a_loss_that_is_no_share_is_an_error(loss: float) -> None:
    with pytest.raises(ValueError, match="give a number from 0 to 1"):
        choose([point_at(0, 0.5)], loss)


def test_published_weights_lie_on_the_path(cue_problem: Any) -> None:
    X, label, _, _, ids = cue_problem
    for settings in (
        CueSettings(),
        CueSettings(spurious=[Named((6,))]),
        CueSettings(legitimate=frozenset({6})),
    ):
        state = fit(X, label, ids, settings)
        factor = full_factor(state, X, label, ids)
        path = WeightPath.fit(factor, label, np.bincount(label), cap=20.0, min_effective=0.2)
        strength = state.published_strength
        assert strength is not None
        published = weights(state, X, label, ids)
        np.testing.assert_allclose(path.weights(strength, factor, label), published, rtol=1e-6)


def test_the_curve_of_a_cue_rises_for_those_who_break_it(cue_problem: Any) -> None:
    X, label, _, _, ids = cue_problem
    state = fit(X, label, ids)
    sample = SampledRows(X, label, ids)
    record = measured_curve(state, sample, ["no", "yes"])
    assert record is not None
    first, last = record["points"][0], record["points"][-1]
    assert last["worst_accuracy"] > first["worst_accuracy"] + 0.1
    assert last["mean_accuracy"] < first["mean_accuracy"]
    assert first["worst_group"] in ("class no, breaks the shortcut", "class yes, breaks the shortcut")
    assert json.loads(json.dumps(record)) == record


def test_classes_are_compared_where_the_evidence_is_weak(cue_problem: Any) -> None:
    X, label, _, _, ids = cue_problem
    noise = np.delete(X, 6, axis=1)
    state = fit(noise, label, ids)
    record = measured_curve(state, SampledRows(noise, label, ids), ["no", "yes"])
    assert record is not None
    assert record["grouping"] == "classes"
    assert record["published_strength"] == state.class_strength
    assert {point["worst_group"] for point in record["points"]} <= {"class no", "class yes"}
    assert "worst class" in summary_sentence(record)


def test_where_nothing_was_searched_for_the_factor_is_one(cue_problem: Any) -> None:
    X, label, _, _, ids = cue_problem
    assert np.array_equal(full_factor(fit(X[:90], label[:90], ids[:90]), X, label, ids), np.ones(len(label)))


def test_labels_of_points_that_lie_together_are_one() -> None:
    """Those of strengths 0 and 1 were drawn on one another."""
    places = {0.0: (0.90, 0.60), 0.5: (0.90, 0.60), 1.0: (0.9005, 0.602), 2.0: (0.86, 0.80)}
    points = [
        {"strength": s, "mean_accuracy": mean, "worst_accuracy": worst}
        | {f"{key}_{end}": 0.5 for key in ("mean", "worst") for end in ("low", "high")}
        for s, (mean, worst) in places.items()
    ]
    figure = draw({"grouping": "groups", "points": points, "published_strength": None})
    assert [text.get_text() for text in figure.axes[1].texts] == ["0, 1", "2"]
    points[2] |= {"mean_accuracy": 0.88}
    figure = draw({"grouping": "groups", "points": points, "published_strength": None})
    assert [text.get_text() for text in figure.axes[1].texts] == ["0", "1", "2"]


def unpublished(record: dict[str, Any]) -> dict[str, Any]:
    return record | {"published_strength": None}


def test_the_report_has_a_picture_and_a_table(cue_problem: Any, tmp_path: Path) -> None:
    X, label, _, _, ids = cue_problem
    sample = SampledRows(X, label, ids)
    record = measured_curve(fit(X, label, ids), sample, ["no", "yes"])
    assert record is not None
    section = cue_section({**FOUND, "trade_off": record})
    (figure,) = (item for item in section.content if isinstance(item, ReportFigure))
    assert figure.image.axes[0].get_xlabel().startswith("strength")  # type: ignore[union-attr]
    table = [item for item in section.content if isinstance(item, ReportTable)][-1]
    assert [row[0] for row in table.rows] == [*(f"{s:g}" for s in STRENGTHS[:-1]), "2 (published)"]
    marked = table_rows(record, chosen=1.5)
    assert [row[0] for row in marked if "chosen" in row[0]] == ["1.5 (chosen)"]
    drawn = draw(record).axes
    (ring,) = (line for line in drawn[1].lines if line.get_label() == "published (strength 2)")
    last = record["points"][-1]
    assert ring.get_xydata().tolist() == [[last["mean_accuracy"], last["worst_accuracy"]]]  # type: ignore[union-attr]
    (upright,) = (line for line in drawn[0].lines if line.get_label() == "published")
    assert set(upright.get_xdata()) == {2.0}  # type: ignore[arg-type]
    assert not any(line.get_label() == "published" for line in draw(unpublished(record)).axes[0].lines)
    draw(record, 1.5).savefig(tmp_path / "curve.png")
    assert (tmp_path / "curve.png").stat().st_size > 10_000
    base = {**record["baseline"], "worst_accuracy": 0.2}
    flat = {**record, "baseline": base, "points": [{**p, "worst_accuracy": 0.2} for p in record["points"]]}
    assert summary_sentence(flat).endswith("No strength of weighting raises the worst group.")
    whole = summary_sentence({**flat, "grouping": "classes"})
    assert "raises the worst class. This is of whole classes" in whole
    assert whole.endswith("as the `gain` of a suspect says.")
