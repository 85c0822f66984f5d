"""Weights against their definition, whatever the shards."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from sklearn.linear_model import LogisticRegression

from operators.base import FEATURES, GROUP, IS_OUTLIER, LABEL, WEIGHT
from operators.columns import numpy_to_vectors, vectors_to_numpy
from operators.hashing import row_hashes
from operators.weights.adaptor import Weights
from operators.weights.kernel import (
    balance_keys,
    balanced_weights,
    bound_noise,
    class_priors,
    doubtful,
    group_masses,
    largest_groups,
    trusted_share,
)
from operators.weights.params import CrossFit, WeightsParams
from operators.weights.totals import few_rows_warnings
from tests.on_arrays import trust_on_arrays
from tests.unit.in_memory import run_operator, split_table

# (class, group, marked as an outlier)
rows = st.lists(
    st.tuples(st.integers(0, 2), st.integers(-1, 3), st.booleans()).map(
        lambda r: (*r[:2], r[2] and r[1] < 0)
    ),
    min_size=1,
    max_size=40,
)


def as_table(found: list[tuple[int, int, bool]]) -> pa.Table:
    y, group, is_outlier = zip(*found, strict=True)
    columns = {
        LABEL: pa.array(y, pa.int32()),
        GROUP: pa.array(group, pa.int32()),
        IS_OUTLIER: pa.array(is_outlier),
    }
    return pa.table(columns)


@given(found=rows, cuts=st.lists(st.integers(0, 40), max_size=4))
def test_every_group_weighs_the_same_and_noise_as_if_it_had_the_size_of_a_group(
    found: list[tuple[int, int, bool]], cuts: list[int]
) -> None:
    with TemporaryDirectory() as folder:
        operator = Weights(WeightsParams(method="group_balanced", trust="all"))
        result, metrics = run_operator(operator, split_table(as_table(found), cuts), Path(folder))
    everyone = result[WEIGHT].to_numpy()
    outliers = np.array([is_outlier for *_, is_outlier in found])
    assert (everyone[outliers] == 1).all()
    kept = [row for row in found if not row[2]]
    names = [group if group >= 0 else ("noise", y) for y, group, _ in kept]
    sums: dict[object, float] = dict.fromkeys(names, 0.0)
    weights = everyone[~outliers]
    for name, weight in zip(names, weights, strict=True):
        sums[name] += weight
    sizes = Counter(names)
    smallest = {
        y: min(sizes[group] for c, group, _ in kept if c == y and group >= 0)
        for y, group, _ in kept
        if any(c == y and group >= 0 for c, group, _ in kept)
    }
    shares = [
        total / sizes[name] * max(sizes[name], smallest.get(name[1], 0) if isinstance(name, tuple) else 0)
        for name, total in sums.items()
    ]
    np.testing.assert_allclose(shares, shares[:1] * len(shares), rtol=1e-5)
    assert everyone.mean() == pytest.approx(1, rel=1e-5)
    assert all(len({w for n, w in zip(names, weights, strict=True) if n == name}) == 1 for name in sums)
    assert metrics["groups"] == len(sums)
    assert metrics["largest_weight"] == pytest.approx(everyone.max())
    assert metrics["effective_sample_size"] == pytest.approx(
        everyone.sum() ** 2 / (everyone**2).sum(), rel=1e-5
    )
    assert metrics["doubted"] == 0
    assert result.schema == pa.schema(list(operator.adds))


def test_uniform_weights_are_one(tmp_path: Path) -> None:
    operator = Weights(WeightsParams(method="uniform", trust="all"))
    result, _ = run_operator(operator, [as_table([(0, 0, False), (1, -1, True)])], tmp_path)
    assert result.to_pydict() == {WEIGHT: [1, 1]}


def test_unknown_groups_weigh_one() -> None:
    keys = balance_keys(
        np.array([0, 1, 1, 1]), np.array([0, 1, -1, -1]), np.array([False, False, False, True])
    )
    assert group_masses(keys, np.array([1.0, 2.0, 0.5, 9.0])) == {0: 1, 1: 2, -2: 0.5}
    assert balanced_weights(keys, {0: 1, 1: 1})[2] == 1.0


def test_an_outlier_within_a_group_is_counted_in_it() -> None:
    keys = balance_keys(np.array([0, 0, 1]), np.array([0, 0, 1]), np.array([True, False, True]))
    assert keys.tolist() == [0, 0, 1]


def test_unknown_methods_are_refused() -> None:
    with pytest.raises(ValidationError, match="group_balanced"):
        WeightsParams(method="balanced")  # type: ignore[arg-type]


def test_cross_fit_without_self_confidence_is_refused() -> None:
    with pytest.raises(ValidationError, match="cross_fit is read by"):
        WeightsParams.model_validate({"trust": "all", "cross_fit": {"folds": 3}})


FOLDS, L2 = 3, 0.02


def doubtful_problem() -> pa.Table:
    """Three classes in five dimensions; a rare group in each of two, some noise, some wrong labels."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 300)
    group = np.where((rng.random(300) < 0.1) & (y < 2), 3 + y, y)
    group[rng.random(300) < 0.05] = -1
    X = rng.normal(size=(300, 5)) * [1, 2, 3, 4, 5] + 2 * np.eye(3, 5)[y] + 7
    X[group == 3] += 3
    wrong = rng.random(300) < 0.05
    y = np.where(wrong, (y + 1) % 3, y)
    group = np.where(wrong, -1, group)
    columns = {
        FEATURES: numpy_to_vectors(X.astype(np.float32)),
        LABEL: pa.array(y, pa.int32()),
        GROUP: pa.array(group, pa.int32()),
        IS_OUTLIER: pa.array(group < 0),
    }
    return pa.table(columns)


def trust_by_scikit_learn(table: pa.Table, seed: int) -> tuple[Any, Any]:
    """min(1, p / prior) outside the largest groups, p by weighted softmax regressions; and p of all rows."""
    X = np.array(table[FEATURES].to_pylist())
    y, group = table[LABEL].to_numpy(), table[GROUP].to_numpy()
    names = np.where(group < 0, -1 - y, group)
    size = {name: np.sum(names == name) for name in np.unique(names)}
    share = np.sum(names >= 0) / np.sum(np.unique(names) >= 0)
    fold = row_hashes(np.arange(300), seed, "weights/trust-folds") % 3
    p = np.empty(300)
    for k in range(FOLDS):
        seen = fold != k
        mean, std = X[seen].mean(axis=0), X[seen].std(axis=0)
        weight = np.array([share / size[name] if name >= 0 else 1 for name in names])[seen]
        model = LogisticRegression(C=1 / L2, tol=1e-10, max_iter=10_000)
        model.fit((X[seen] - mean) / std, y[seen], sample_weight=weight / weight.sum())
        p[~seen] = model.predict_proba((X[~seen] - mean) / std)[np.arange((~seen).sum()), y[~seen]]
    named = names[names >= 0]
    largest = [
        max((size[name], -name) for name in np.unique(named[y[names >= 0] == c]))[1] * -1 for c in range(3)
    ]
    weight = np.array([share / size[name] if name >= 0 else 1 for name in names])
    prior = np.array([weight[y == c].sum() for c in range(3)]) / weight.sum()
    return np.where(names == np.array(largest)[y], 1.0, np.minimum(1, p / prior[y])), p


def test_rows_in_no_group_are_not_trusted_for_their_number() -> None:
    sizes = {(0, 4): 30, (0, 2): 30, (0, -1): 500, (1, 3): 10, (1, -2): 9, (2, -3): 7}
    assert largest_groups(sizes) == {0: 2, 1: 3, 2: -3}


def test_a_label_as_likely_as_its_class_keeps_its_weight() -> None:
    sizes = {(0, 0): 300, (0, 1): 100, (0, 2): 200, (1, 3): 200, (1, -2): 50}
    priors = class_priors(sizes, 3)
    np.testing.assert_allclose(priors, np.array([600, 250, 0]) / 850)
    assert class_priors({}, 4).tolist() == [0.25] * 4
    assert trusted_share(np.zeros(1), np.zeros(1)) == [1.0]  # nothing is known of such a label
    share = trusted_share(np.array([0.8, 0.3, 0.147, 0.5]), priors[[0, 1, 1, 2]])
    np.testing.assert_allclose(share, [1, 1, 0.147 * 850 / 250, 1])


@pytest.mark.parametrize("cuts", [[], [100], [0, 37, 250]])
def test_doubtful_rows_count_by_their_self_confidence(cuts: list[int], tmp_path: Path) -> None:
    table = doubtful_problem()
    (tmp_path / "classes.json").write_text('{"classes": ["a", "b", "c"]}')
    operator = Weights(WeightsParams(method="uniform", cross_fit=CrossFit(folds=FOLDS, l2=L2)))
    states = {"ingest": tmp_path}
    result, metrics = run_operator(operator, split_table(table, cuts), tmp_path, seed=4, states=states)
    trust, p = trust_by_scikit_learn(table, 4)
    weight = result[WEIGHT].to_numpy()
    np.testing.assert_allclose(weight, trust / trust.mean(), rtol=1e-3, atol=1e-5)
    arrays = (vectors_to_numpy(table[FEATURES]), table[LABEL].to_numpy(), table[GROUP].to_numpy())
    np.testing.assert_allclose(trust_on_arrays(*arrays, CrossFit(folds=FOLDS, l2=L2), 4), trust, rtol=1e-3)
    assert metrics["doubted"] == np.sum(trust < 1) > 10
    assert np.ptp(p) > 0.9


def test_no_classifier_is_trained_where_each_class_is_one_group(tmp_path: Path) -> None:
    table = doubtful_problem()
    table = table.set_column(2, GROUP, table[LABEL])
    result, metrics = run_operator(Weights(WeightsParams(method="uniform")), [table], tmp_path)
    assert set(result[WEIGHT].to_pylist()) == {1.0}
    assert [path.name for path in tmp_path.iterdir()] == ["weights.json"]
    assert metrics["doubted"] == 0


def test_no_row_of_a_class_without_rows_to_learn_from_is_in_doubt() -> None:
    y, keys = np.array([0, 0, 2]), np.array([0, 1, -3])
    assert doubtful(y, keys, {0: 0, 1: 5}).tolist() == [False, True, False]


def test_a_group_that_fit_has_not_seen_weighs_one() -> None:
    """Held-out rows may be noise where no row that was learnt from is."""
    found = balanced_weights(np.array([0, 0, 1, -1]), {0: 2, 1: 1})
    assert found[-1] == 1.0


def test_rows_in_no_group_weigh_no_more_than_those_of_the_smallest_group_of_their_class() -> None:
    y = np.repeat([0, 0, 0, 1, 1, 2], [60, 12, 3, 40, 20, 5])
    groups = np.repeat([0, 1, -1, 2, -1, -1], [60, 12, 3, 40, 20, 5])
    keys = balance_keys(y, groups, np.zeros(len(y), bool))
    by_class = Counter(zip(y.tolist(), keys.tolist(), strict=True))
    counted = group_masses(keys, np.ones(len(y)))
    sizes = bound_noise(counted, by_class)
    assert sizes == {0: 60, 1: 12, 2: 40, -1: 12, -2: 40, -3: 5}
    assert bound_noise({0: 60, -1: 3}, {(0, 0): 60, (0, -1): 3}) == {0: 60, -1: 60}
    assert bound_noise({-3: 0.5}, {(2, -3): 5}) == {-3: 0.5}  # masses may be small
    weights = balanced_weights(keys, sizes)
    assert weights[groups == -1][:3].tolist() == weights[(y == 0) & (groups == 1)][:3].tolist()
    # Without the bound three rows would weigh as much together as the sixty of their class's largest group.
    assert balanced_weights(keys, counted)[72] == pytest.approx(20 * balanced_weights(keys, counted)[0])


def test_weights_that_rest_on_few_rows_are_told_of_where_a_run_ends() -> None:
    """Weights that were worth 2 % of the rows were named in the middle of the log alone."""
    metrics = {"effective_sample_size": 2806.0, "effective_share": 2806 / 179_168}
    (said,) = Weights(WeightsParams()).in_chain([]).warnings(metrics, Path)
    assert "worth 1.6% of the rows, 2,806 of 179,168 (effective sample size)" in said
    assert said.endswith("lists the accuracies and the effective share of each strength.")
    assert few_rows_warnings(metrics | {"class_effective_share": 0.02}) == ()
    many = {"effective_sample_size": 200.0, "effective_share": 0.2}
    assert few_rows_warnings(many) == few_rows_warnings({}) == ()
