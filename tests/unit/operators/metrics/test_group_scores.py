"""Small groups decide nothing, and intervals hold for all groups at once."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import binomtest

from engine.training.data.rows import dataset_of_arrays
from engine.training.evaluation.by_group import evaluate, summarise
from engine.training.evaluation.metric_sums import sum_over_rows
from engine.training.fit.ensemble import Ensemble
from engine.training.fit.job import mix
from engine.training.fit.kernel import fit
from operators.metrics.group_scores import MIN_ROWS, compare_groups, few_rows_text, pooled_name, worst_of
from tests.unit.engine.training.fit.test_training import data, params


def test_small_groups_are_pooled_under_their_names() -> None:
    rows = {"a": 400, "b": 30, "c": 2, "d": 40, "empty": 0}
    right = {"a": 380.0, "b": 24.0, "c": 0.0, "d": 30.0}
    large, pool = compare_groups(rows, right)
    assert (large.members, large.rows, large.pooled) == (("a",), 400, False)
    assert (pool.members, pool.rows, pool.pooled) == (("b", "c", "d"), 72, True)
    assert pool.accuracy == pytest.approx(54 / 72)
    assert worst_of((large, pool)) is pool


def test_a_pool_that_is_too_small_says_nothing() -> None:
    (only,) = compare_groups({0: 500, 1: 2}, {0: 450.0, 1: 0.0})
    assert only.members == (0,)


def test_groups_of_few_rows_are_named_as_what_they_are() -> None:
    assert few_rows_text({"a": 60, "b": 50}) == ""
    assert few_rows_text({"a": 60, "b": 20, "c": 30}) == (
        "b (20 rows), c (30 rows) have fewer than 50 scored rows each and are compared as one group"
    )
    assert few_rows_text({"a": 60, "b": 12, "none": 0}, remedy="add rows") == (
        "b (12 rows) is left out of the worst group, as it has fewer than 50 scored rows; add rows"
    )
    assert few_rows_text({"a": 60, "b": 12, "3": 1}, word="class", details={"b": "2 right"}) == (
        "b (12 rows, 2 right), group 3 (1 row) are left out of the worst class, as they have fewer than 50 "
        "scored rows together"
    )
    assert few_rows_text({"a": 20, "b": 12, "none": 0}) == (
        "no group has 50 scored rows, so that all are compared as one: a (20 rows), b (12 rows)"
    )
    assert few_rows_text({"a": 20}) == ""


def test_a_pool_is_named_by_its_members() -> None:
    assert pooled_name(["a"]) == "a"
    assert pooled_name([*"abcdefg"]) == "7 groups of fewer than 50 rows, pooled: a, b, c, d, e and 2 more"


def test_an_evaluation_names_groups_that_are_in_no_figure_of_the_worst_group() -> None:
    """A champion of .944 had 0 of 38 rows right in a group that no sentence named."""
    model = mix(fit(data(600), params(trainer="erm")), params(trainer="erm"), {})
    assert isinstance(model, Ensemble)
    rng = np.random.default_rng(1)
    X, y = rng.normal(size=(400, 2)), rng.integers(0, 2, 400)
    right = model.predict(X) == y
    groups = np.where(np.arange(400) < 38, 1, 0)
    found = evaluate(model, X, y, groups)
    table = found.groupings["inferred"]
    assert (table.worst_group, table.left_out) == ("0", ("1",))
    assert found.notes("inferred") == (
        f"group 1 (38 rows, {right[:38].sum()} right) is left out of the worst group, as it has fewer than "
        "50 scored rows; a larger validation or test split has more of them"
    )
    assert found.to_dict()["groupings"]["inferred"]["left_out"] == ("1",)
    groups[38:58] = 2
    pooled = evaluate(model, X, y, groups).groupings["inferred"]
    assert pooled.left_out == ()
    assert "group 1 (38 rows" in pooled.notes()
    assert "compared as one group" in pooled.notes()
    pool = "2 groups of fewer than 50 rows, pooled: 1, 2"
    worst = replace(pooled, worst_group=pool, worst_group_accuracy=0.123)
    assert worst.notes().endswith("are compared as one group, the worst, with 0.123")


def test_a_group_of_wrong_labels_is_not_the_worst() -> None:
    """A model that fits the wrong labels would win every comparison by that group."""
    model = mix(fit(data(600), params(trainer="erm")), params(trainer="erm"), {})
    assert isinstance(model, Ensemble)
    X = np.random.default_rng(1).normal(size=(400, 2))
    y, groups = model.predict(X), np.repeat([0, 1, 2], [200, 100, 100])
    y = np.where((groups == 1) | (np.arange(400) % 10 == 0), 1 - y, y)
    sums = sum_over_rows(model, X, y, {"inferred": groups}, [])
    plain = summarise(sums, model, [])
    assert (plain.groupings["inferred"].worst_group, plain.notes("inferred")) == ("1", "")
    found = summarise(sums, model, [], wrong_labels={1: 0.92, 2: 0.1, 7: 0.9})
    table = found.groupings["inferred"]
    assert table.worst_group == "0"
    assert table.worst_group_accuracy == pytest.approx(0.9)
    assert found.metrics()["worst_group_accuracy"] == pytest.approx(0.9)
    assert [group.accuracy for group in table.groups] == pytest.approx([0.9, 0.0, 0.9])
    assert found.notes("inferred") == (
        "by the estimate of `cues` labels may be wrong in group 1 (about 92%), group 2 (about 10%), where "
        "accuracy is then too low; group 1 is left out of the worst group"
    )
    assert found.to_dict()["groupings"]["inferred"]["wrong_labels"] == {"1": 0.92, "2": 0.1}


def test_without_a_large_group_all_rows_are_one() -> None:
    (only,) = compare_groups({0: 20, 1: 10}, {0: 18.0, 1: 1.0})
    assert (only.members, only.rows) == ((0, 1), 30)
    assert compare_groups({}, {}) == ()
    assert worst_of(()) is None


def test_every_group_by_itself_on_request() -> None:
    found = compare_groups({0: 20, 1: 1}, {0: 18.0, 1: 0.0}, min_rows=1)
    assert [group.accuracy for group in found] == [0.9, 0.0]


def test_intervals_hold_for_all_groups_at_once() -> None:
    groups = compare_groups(dict.fromkeys(range(4), 100), dict(enumerate([50.0, 60.0, 70.0, 80.0])))
    for group, correct in zip(groups, (50, 60, 70, 80), strict=True):
        expected = binomtest(correct, 100).proportion_ci(1 - 0.05 / 4, method="wilson")
        assert (group.low, group.high) == pytest.approx((expected.low, expected.high))


def test_two_corrupt_rows_of_a_small_group_do_not_choose_the_epoch() -> None:
    """A group of 12 rows with two flipped labels once kept the first epoch, at half the accuracy."""
    rng = np.random.default_rng(0)
    n = 1200
    y = rng.integers(0, 2, n)
    X = np.column_stack([y + rng.normal(0, 0.5, n), rng.normal(0, 1, n)])
    groups = np.where(np.arange(n) % 100 == 0, 9, y)
    split = np.where(np.arange(n) % 2 == 0, "validation", "train")
    small = np.flatnonzero((groups == 9) & (split == "validation"))
    y[small[:2]] = 1 - y[small[:2]]
    rows = dataset_of_arrays(X, y, groups=groups, split=split)
    kept = fit(rows, params(trainer="erm", keep="best", epochs=15, lr=0.01, model="logistic", hidden=[4]))
    last = fit(rows, params(trainer="erm", keep="last", epochs=15, lr=0.01, model="logistic", hidden=[4]))
    error = [found.selection_losses.mean() for found in (kept, last)]
    assert error[0] <= error[1] + 0.005


def test_rows_without_a_group_stand_beside_the_groups() -> None:
    fitted = fit(data(600), params(trainer="erm"))
    model = mix(fitted, params(trainer="erm"), {})
    assert isinstance(model, Ensemble)
    rng = np.random.default_rng(1)
    X, y = rng.normal(size=(400, 2)), rng.integers(0, 2, 400)
    groups = np.where(np.arange(400) < 200, -1, 5)
    table = evaluate(model, X, y, groups).groupings["inferred"]
    names = [score.group for score in table.groups]
    assert names == ["5", "rows without a group, class 0", "rows without a group, class 1"]
    assert all(score.rows >= MIN_ROWS for score in table.groups)
