"""Grouped permutation importance: scikit-learn's for single columns, a reference by hand for blocks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.inspection import permutation_importance as sklearn_importance
from sklearn.linear_model import LinearRegression, LogisticRegression

from operators.metrics.importance import (
    drawn_rows,
    max_scored_rows,
    permutation_importance,
)

SCORES = ("accuracy", "balanced_accuracy", "worst_group_accuracy")


@pytest.fixture(scope="module")
def problem() -> tuple[Any, ...]:
    """A fitted model with a strong, a weak, a constant and a useless column, and held-out rows."""
    rng = np.random.default_rng(0)
    y = rng.choice(3, 600, p=[0.6, 0.3, 0.1])
    X = rng.normal(size=(600, 5)).astype(np.float32)
    X[:, 0] += 2 * y
    X[:, 1] -= y * 0.5
    X[:, 3] = 7.0
    model = LogisticRegression().fit(X[:300], y[:300])
    return model, X[300:], y[300:], rng.random(300)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("score", ["accuracy", "balanced_accuracy"])
def test_single_columns_are_those_of_scikit_learn(problem: Any, score: str, weighted: bool) -> None:
    model, X, y, weight = problem
    kwargs: dict[str, Any] = {"sample_weight": weight} if weighted else {}
    expected = sklearn_importance(model, X, y, scoring=score, n_repeats=4, random_state=3, **kwargs)
    found = permutation_importance(
        model.predict, X, y, {str(j): [j] for j in range(5)}, n_repeats=4, random_state=3, **kwargs
    )
    np.testing.assert_allclose(found.importances[score], expected.importances, atol=1e-12)
    np.testing.assert_allclose(found.mean(score), expected.importances_mean, atol=1e-12)
    np.testing.assert_allclose(found.std(score), expected.importances_std, atol=1e-12)


@pytest.mark.parametrize("weighted", [False, True])
def test_losses_of_a_regression_are_those_of_scikit_learn(problem: Any, weighted: bool) -> None:
    _, X, _, weight = problem
    y = 3.0 * X[:, 0] - X[:, 1] + np.random.default_rng(1).normal(size=len(X))
    model = LinearRegression().fit(X, y)
    kwargs: dict[str, Any] = {"sample_weight": weight} if weighted else {}
    expected = sklearn_importance(
        model, X, y, scoring="neg_mean_squared_error", n_repeats=4, random_state=3, **kwargs
    )
    groups = (X[:, 0] > 0).astype(int)
    found = permutation_importance(
        model.predict,
        X,
        y,
        {str(j): [j] for j in range(5)},
        loss=squared,
        groups=groups,
        n_repeats=4,
        random_state=3,
        **kwargs,
    )
    np.testing.assert_allclose(found.importances["loss"], expected.importances, rtol=1e-6, atol=1e-9)
    own = weight if weighted else np.ones(len(X))
    error = squared(model.predict(X), y)
    by_group = [float(np.average(error[groups == g], weights=own[groups == g])) for g in (0, 1)]
    assert found.baseline["loss"] == pytest.approx(float(np.average(error, weights=own)))
    assert found.baseline["worst_group_loss"] == pytest.approx(max(by_group))
    assert [entry["column"] for entry in found.to_dict()["columns"]][:2] == ["0", "1"]
    assert (found.margin("loss") >= 0).all()


def squared(predicted: Any, y: Any) -> Any:
    return (predicted - y) ** 2


def test_the_columns_of_a_block_are_shuffled_together() -> None:
    # One category of three values as one-hot columns; the label is the category.
    category = np.array([0, 1, 2, 0, 1, 2, 0, 1])
    X = np.eye(3, dtype=np.float32)[category]
    calls = []

    def predict(rows: Any) -> Any:
        calls.append(rows.copy())
        return rows.argmax(axis=1)

    before = X.copy()
    found = permutation_importance(predict, X, category, {"c": [0, 1, 2]}, n_repeats=3, min_rows=1)
    assert (before == X).all()
    assert all((rows.sum(axis=1) == 1).all() for rows in calls)  # never two categories in one row
    shuffled = [rows.argmax(axis=1) for rows in calls[1:]]
    assert all(sorted(values) == sorted(category) for values in shuffled)
    right = np.array([values == category for values in shuffled])
    by_class = np.array([[one[category == c].mean() for c in range(3)] for one in right])
    np.testing.assert_allclose(found.importances["accuracy"][0], 1 - right.mean(axis=1))
    np.testing.assert_allclose(found.importances["balanced_accuracy"][0], 1 - by_class.mean(axis=1))
    np.testing.assert_allclose(found.importances["worst_group_accuracy"][0], 1 - by_class.min(axis=1))


def test_a_shortcut_helps_on_average_and_harms_the_worst_group() -> None:
    rng = np.random.default_rng(1)
    y = rng.integers(0, 2, 4000)
    cue = np.where(rng.random(4000) < 0.9, y, 1 - y)
    core = y + rng.normal(size=4000)
    X = np.column_stack([cue, core]).astype(np.float32)

    def predict(rows: Any) -> Any:
        return (2 * rows[:, 0] + rows[:, 1] > 1.5).astype(int)

    found = permutation_importance(predict, X, y, {"cue": [0], "core": [1]}, groups=2 * y + (cue != y))
    assert found.mean("accuracy")[0] > 0.2
    assert found.mean("worst_group_accuracy")[0] < -0.1
    assert found.mean("worst_group_accuracy")[1] > 0


def test_small_groups_are_pooled_and_a_pool_too_small_is_left_out() -> None:
    y = np.repeat([0, 1], 100)
    groups = np.r_[np.zeros(97), [1, 1, 2], np.full(100, 3)]
    X = np.arange(200, dtype=np.float32)[:, None]
    wrong = groups == 1

    def predict(rows: Any) -> Any:
        return np.where(wrong, 1 - y, y)

    def worst(min_rows: int) -> float:
        found = permutation_importance(predict, X, y, {"x": [0]}, groups=groups, min_rows=min_rows)
        return found.baseline["worst_group_accuracy"]

    assert worst(50) == 1.0
    assert worst(3) == pytest.approx(1 / 3)
    assert worst(1) == 0.0


def test_constant_blocks_cost_no_prediction_and_lose_nothing(problem: Any) -> None:
    model, X, y, _ = problem
    calls = 0

    def predict(rows: Any) -> Any:
        nonlocal calls
        calls += 1
        return model.predict(rows)

    found = permutation_importance(predict, X, y, {"constant": [3], "nothing": [], "a": [0]}, n_repeats=2)
    assert calls == 3
    assert all((found.importances[score][:2] == 0).all() for score in SCORES)
    first, *others = found.to_dict()["columns"]
    assert first["column"] == "a"
    assert [entry["column"] for entry in others] == ["constant", "nothing"]
    assert found.to_dict()["repeats"] == 2


def test_one_row_and_no_row() -> None:
    X = np.ones((1, 2), np.float32)
    found = permutation_importance(lambda rows: np.zeros(len(rows)), X, np.zeros(1), {"a": [0]})
    assert found.baseline == dict.fromkeys(SCORES, 1.0)
    with pytest.raises(ValueError, match="no rows"):
        permutation_importance(lambda rows: rows[:, 0], X[:0], np.zeros(0), {"a": [0]})
    with pytest.raises(ValueError, match="no column 2; rows have 2"):
        permutation_importance(lambda rows: rows[:, 0], X, np.zeros(1), {"a": [2]})


def test_the_sample_is_bounded_and_knows_no_order() -> None:
    assert [max_scored_rows(k) for k in (0, 20, 100, 10_000)] == [10_000, 10_000, 4_000, 1_000]
    assert max_scored_rows(20, cost=10) == 2_000
    ids = np.arange(1000)
    drawn = ids[drawn_rows(ids, 100, 5, "test")]
    mixed = np.random.default_rng(0).permutation(ids)
    assert (mixed[drawn_rows(mixed, 100, 5, "test")] == drawn).all()
    assert len(drawn) == 100
    assert (np.diff(drawn) > 0).all()
    assert len(drawn_rows(ids, 5000, 5, "test")) == 1000


def test_without_a_block_nothing_is_shuffled() -> None:
    X, y = np.zeros((4, 1), np.float32), np.array([0, 0, 1, 1])
    found = permutation_importance(lambda rows: np.array([0, 0, 1, 0]), X, y, {}, random_state=0)
    assert found.margin("accuracy").shape == (0,)
    assert found.to_dict()["columns"] == []
    assert found.to_dict()["baseline"]["accuracy"] == 0.75


def test_the_margin_covers_what_other_rows_would_give() -> None:
    """Over draws of the held-out rows the loss varies as the standard error says, that of noise is within."""

    def draw(seed: int) -> Any:
        rng = np.random.default_rng(seed)
        y = rng.integers(0, 2, 300)
        X = np.column_stack([y + rng.normal(size=300), rng.normal(size=300)]).astype(np.float32)
        return permutation_importance(
            lambda rows: (rows[:, 0] + 0.2 * rows[:, 1] > 0.5).astype(int),
            X,
            y,
            {"core": [0], "noise": [1]},
            random_state=seed,
        )

    found = [draw(seed) for seed in range(200)]
    for score, slack in (("accuracy", 1.35), ("balanced_accuracy", 1.35), ("worst_group_accuracy", 1.8)):
        means = np.array([one.mean(score)[0] for one in found])
        error = np.mean([one.margin(score)[0] for one in found]) / 2.2414  # the quantile for two blocks
        assert 1 / slack < means.std() / error < slack
    wrong = np.mean([abs(one.mean("accuracy")[1] - 0.005) > one.margin("accuracy")[1] for one in found])
    assert wrong < 0.08


def test_equal_and_opposite_columns_are_shuffled_together_and_listed_once() -> None:
    """Each of two equal columns seemed to matter half as much, and both were listed."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 400)
    x, noise = y + rng.normal(size=400), rng.normal(size=400)
    X = np.column_stack([x, noise, 3 - 2 * x, np.zeros(400), np.zeros(400)]).astype(np.float32)
    blocks = {"x": [0], "noise": [1], "opposite": [2], "none": [3], "nothing": [4]}
    found = permutation_importance(lambda rows: (rows[:, 0] - rows[:, 2] > -1.5).astype(int), X, y, blocks)
    assert found.names == ("x", "noise", "none", "nothing")
    assert {"column": "x", "also": ["opposite"]}.items() <= found.to_dict()["columns"][0].items()
    alone = permutation_importance(lambda rows: (rows[:, 0] > 0.5).astype(int), X[:, :1], y, {"x": [0]})
    assert found.mean("accuracy")[0] == pytest.approx(alone.mean("accuracy")[0])
    assert not permutation_importance(lambda rows: y, X + rng.normal(size=X.shape), y, blocks).also
