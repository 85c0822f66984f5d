"""DCKM against equations 5 and 7 written out feature by feature, in float64."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone

from operators.dckm import DecorrelatedKMeans, DecorrelationWeights, steps
from operators.dckm.balance import (
    COLUMN_BLOCK,
    ROW_BLOCK,
    Coded,
    balance_cost,
    balance_derivative,
    correlation,
    gram,
    moments,
    row_gradient,
    total,
)
from operators.dckm.features import CODINGS, Coder, column_sums, join_sums, squared_deviations
from operators.dckm.kernel import INITS, DckmSettings, InMemory, Solution, solve
from operators.dckm.selection import TriedPair, select_pair, try_pair
from operators.dckm.steps import candidate, earlier

seeds = st.integers(0, 10_000)
codings = st.sampled_from(CODINGS)


def problem(seed: int, n: int = 30, d: int = 5, coding: Any = "binarize") -> Coded:
    """Correlated features, in float64."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) + 1.5 * rng.normal(size=(n, 1)) * rng.random(d)
    coded = Coder.of(X, coding)(X)
    return replace(coded, Z=coded.Z.astype(np.float64))


def balance_by_feature(Z: Any, w: Any) -> float:
    """Equation 5 as it stands, but for features without a treated or a control group."""
    cost = 0.0
    for j in range(Z.shape[1]):
        treated = Z[:, j] > 0
        if treated.all() or not treated.any():
            continue
        means = [w[part] @ Z[part] / w[part].sum() for part in (treated, ~treated)]
        gap = means[0] - means[1]
        gap[j] = 0
        cost += gap @ gap
    return cost


def objective(Z: Any, w: Any, error: Any, settings: DckmSettings) -> float:
    """Return the objective of equation 7."""
    return float(
        w @ error
        + settings.lambda1 * balance_by_feature(Z, w)
        + settings.lambda2 * w @ w
        + settings.lambda3 * (w.sum() - 1) ** 2
    )


def slopes(f: Any, x: Any, step: float = 1e-6) -> Any:
    """Return the derivatives by central differences."""
    moves = step * np.eye(len(x))
    return np.array([(f(x + move) - f(x - move)) / (2 * step) for move in moves])


@given(seed=seeds, coding=codings, d=st.integers(1, 6))
def test_balance_is_equation_5(seed: int, coding: Any, d: int) -> None:
    coded = problem(seed, d=d, coding=coding)
    w = np.random.default_rng(seed).random(30)
    expected = balance_by_feature(coded.Z, w)
    assert balance_cost(moments(coded, w)) == pytest.approx(expected, rel=1e-9, abs=1e-12)
    assert balance_cost(moments(coded, 7 * w)) == pytest.approx(expected, rel=1e-9, abs=1e-12)
    in_float32 = replace(coded, Z=coded.Z.astype(np.float32))
    assert balance_cost(moments(in_float32, w)) == pytest.approx(expected, rel=1e-3, abs=1e-5)


@given(seed=seeds)
def test_signs_are_four_times_the_papers_cost_of_zeros_and_ones(seed: int) -> None:
    """So 4 lambda2 and 4 lambda3 here are the paper's lambda2 and lambda3 (see operators/README)."""
    coded = problem(seed, coding="binarize")
    w = 0.5 + np.random.default_rng(seed).random(len(coded))
    assert balance_cost(moments(coded, w)) == pytest.approx(4 * balance_by_feature((coded.Z + 1) / 2, w))


@given(seed=seeds, coding=codings)
def test_gradient_of_the_balance_is_that_of_finite_differences(seed: int, coding: Any) -> None:
    coded = problem(seed, coding=coding)
    w = 0.5 + np.random.default_rng(seed).random(30)
    cost, derivative = balance_derivative(moments(coded, w))
    assert cost == pytest.approx(balance_by_feature(coded.Z, w))
    expected = slopes(lambda at: balance_by_feature(coded.Z, at), w)
    np.testing.assert_allclose(row_gradient(coded, derivative), expected, atol=1e-6)


@pytest.mark.parametrize("coding", CODINGS)
def test_columns_and_rows_in_several_blocks(coding: Any) -> None:
    d = 2 * COLUMN_BLOCK + 9
    coded = problem(1, ROW_BLOCK + 50, d, coding)
    w = np.random.default_rng(2).normal(size=len(coded))
    sums, Z, T = moments(coded, w), coded.Z, coded.Z > 0
    np.testing.assert_allclose(sums.cross, Z.T @ (w[:, None] * T), atol=1e-9)
    np.testing.assert_allclose(sums.treated, T.T @ w, atol=1e-9)
    np.testing.assert_allclose(gram(coded, w), Z.T @ (w[:, None] * Z), atol=1e-9)
    np.testing.assert_allclose(total(coded, w), sums.total, atol=1e-9)
    _, derivative = balance_derivative(moments(coded, w**2))
    P, p, q, c = derivative
    expected = np.einsum("ij,jk,ik->i", Z, P, T, optimize=True) + Z @ p + T @ q + c
    np.testing.assert_allclose(row_gradient(coded, derivative), expected, atol=1e-9)


def test_a_feature_that_never_or_always_is_counts_as_balanced() -> None:
    coded = problem(3)
    coded.Z[:, 2] = 1
    coded.Z[:, 4] = -1
    w = np.random.default_rng(0).random(30)
    cost, derivative = balance_derivative(moments(coded, w))
    assert cost == pytest.approx(balance_by_feature(coded.Z, w))
    assert np.isfinite(row_gradient(coded, derivative)).all()


SETTINGS = DckmSettings(n_clusters=3, lambda1=0.5, lambda2=2.0, lambda3=1.5, max_iter=15, tol=1e-9)


@given(seed=seeds, coding=codings)
def test_a_step_follows_the_gradient_of_equation_7(seed: int, coding: Any) -> None:
    coded = problem(seed, coding=coding)
    rng = np.random.default_rng(seed)
    state, _ = steps.initialise(coded, np.arange(30), 3, 1.0, seed)
    centres = rng.normal(size=(3, 5))
    state = replace(state, omega=rng.normal(size=30), gradient=rng.normal(size=30))
    before, gradient = state.omega, state.gradient
    state, at_y = steps.assign_rows(coded, state, centres, 0.2, 0.7)
    after = np.ones(30) - 0.2 * gradient
    np.testing.assert_allclose(state.omega, after)
    np.testing.assert_allclose(y := state.ahead, after + 0.7 * (after - before))
    gaps = ((coded.Z[:, None] - centres) ** 2).sum(axis=2)
    np.testing.assert_array_equal(state.labels, gaps.argmin(axis=1))
    np.testing.assert_allclose(state.error, gaps.min(axis=1))
    assert float(at_y.error_before) == pytest.approx(after**2 @ state.error)

    _, derivative = balance_derivative(at_y.moments)
    slope = steps.Slope(derivative, 0.5, 2.0, 2 * 1.5 * (float(at_y.moments.weight) - 1))
    state, line = steps.compute_gradient(coded, state, slope, 3)
    expected = slopes(lambda at: objective(coded.Z, at**2, state.error, SETTINGS), y)
    np.testing.assert_allclose(state.gradient, expected, rtol=1e-5, atol=1e-4)

    # The sums along the line are those of the weights there.
    r = 0.013
    w = (y - r * state.gradient) ** 2
    for found, wanted in zip(at_y.moments.along(line.first, line.second, r), moments(coded, w), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-8, atol=1e-8)
    assert np.polyval(line.square[::-1], r) == pytest.approx(w @ w)
    assert np.polyval(line.error[::-1], r) == pytest.approx(w @ state.error)
    for k in range(3):
        mine = state.labels == k
        sums = np.tensordot(r ** np.arange(3), line.clusters.sums, 1)[k]
        np.testing.assert_allclose(sums, w[mine] @ coded.Z[mine], rtol=1e-8, atol=1e-8)


def check_descent(coded: Coded, settings: DckmSettings) -> None:
    """Equation 7, written out, of the last two of ``settings.max_iter`` loops, both at the same centres.

    The recorded sequence shows nothing by itself: the search drops every step that it thinks would raise it.
    """
    rows, rows_before = InMemory(coded), InMemory(coded)
    found = solve(rows, settings)
    before = solve(rows_before, replace(settings, max_iter=settings.max_iter - 1))
    error = np.zeros(len(coded))
    if before.centres is not None:
        error = ((coded.Z[:, None] - before.centres) ** 2).sum(axis=2).min(axis=1)
    if len(found.objective) == settings.max_iter:
        last, previous = (objective(coded.Z, one.weight, error, settings) for one in (rows, rows_before))
        assert found.objective[-1] == pytest.approx(last, rel=1e-6)
        assert last <= previous * (1 + 1e-9)
    else:
        np.testing.assert_array_equal(found.objective, before.objective)


@given(seed=seeds, coding=codings, share=st.floats(0.05, 0.99), n_clusters=st.sampled_from([0, 3]))
def test_weights_never_fall_below_the_floor(seed: int, coding: Any, share: float, n_clusters: int) -> None:
    rows = InMemory(problem(seed, 40, 6, coding))
    settings = replace(SETTINGS, seed=seed, n_clusters=n_clusters, min_effective_share=share)
    found = solve(rows, settings)
    assert found.effective_sample_size >= 40 * share * (1 - 1e-6)
    assert found.effective_sample_size == pytest.approx(rows.weight.sum() ** 2 / (rows.weight @ rows.weight))
    check_descent(problem(seed, 40, 6, coding), replace(settings, max_iter=2 + seed % 10))


def test_without_a_floor_weights_sink_onto_few_rows() -> None:
    """The paper's factors on correlated features: what the floor is for."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 12)) @ rng.normal(size=(12, 12))
    free, kept = (
        DecorrelatedKMeans(4, random_state=0, min_effective_share=share).fit(X) for share in (0.0, 0.5)
    )
    assert free.effective_sample_size_ < 250 <= kept.effective_sample_size_
    assert free.correlation_after_ < kept.correlation_after_ < kept.correlation_before_


def by_the_book(Z: Any, labels: Any, settings: DckmSettings) -> tuple[Any, Any, list[float]]:
    """Equations 10, 14 and 16-20 with accelerated backtracking, nothing shared with the kernel."""
    n, rate, k = len(Z), 0.5, 0
    omega = before = np.ones(n)
    values: list[float] = []
    centres = np.tile(Z.mean(axis=0), (settings.n_clusters, 1))

    def means(w: Any) -> Any:
        members = [labels == c for c in range(settings.n_clusters)]
        return np.array([w[m] @ Z[m] / w[m].sum() if m.any() else centres[c] for c, m in enumerate(members)])

    centres = means(omega**2)
    for _ in range(settings.max_iter):
        gaps = ((Z[:, None] - centres) ** 2).sum(axis=2)
        labels, error = gaps.argmin(axis=1), gaps.min(axis=1)

        def f(at: Any, error: Any = error) -> float:
            return objective(Z, at**2, error, settings)

        for momentum in (k / (k + 3), 0.0):
            y = omega + momentum * (omega - before)
            g = slopes(f, y)
            rate *= 2
            while f(y - rate * g) > f(y) - rate * (g @ g) / 2:
                rate /= 2
            if k == 0 or f(y - rate * g) <= f(omega):
                break
            k = 0
        k += 1
        before, omega = omega, y - rate * g
        values.append(f(omega))
        centres = means(omega**2)
    gaps = ((Z[:, None] - centres) ** 2).sum(axis=2)
    return gaps.argmin(axis=1), omega**2, values


@pytest.mark.parametrize("coding", CODINGS)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_same_as_by_the_book(seed: int, coding: Any) -> None:
    coded = problem(seed, 40, 6, coding)
    state, _ = steps.initialise(coded, np.arange(40), 3, 1.0, seed)
    labels, w, values = by_the_book(coded.Z, state.labels, SETTINGS)
    rows = InMemory(coded)
    found = solve(rows, replace(SETTINGS, seed=seed))
    np.testing.assert_allclose(found.objective, values, rtol=1e-4)
    np.testing.assert_allclose(rows.weight, w, rtol=1e-2, atol=1e-4)
    np.testing.assert_array_equal(rows.labels, labels)


@given(
    seed=seeds,
    coding=codings,
    init=st.sampled_from(INITS),
    lambda1=st.sampled_from([0.0, 0.01, 1.0, 100.0]),
    lambda2=st.sampled_from([0.0, 1.0, 100.0]),
    n_clusters=st.integers(0, 12),
    n_loops=st.integers(2, 25),
)
def test_the_objective_never_rises(
    seed: int, coding: Any, init: Any, lambda1: float, lambda2: float, n_clusters: int, n_loops: int
) -> None:
    coded = problem(seed, n=20, coding=coding)
    rows = InMemory(coded)
    settings = DckmSettings(
        n_clusters=n_clusters,
        lambda1=lambda1,
        lambda2=lambda2,
        lambda3=1.0,
        max_iter=n_loops,
        tol=0.0,
        init=init,
        seed=seed,
    )
    found = solve(rows, settings)
    check_descent(coded, settings)
    check_solution(coded, rows, found)
    if n_clusters:
        assert found.sizes.sum() == 20
        assert rows.labels.max() < n_clusters


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("seed", "d", "lambda2"), [(0, 2, 0.1), (1, 3, 0.1), (21, 2, 10.0), (81, 2, 0.1)])
def test_the_objective_never_rises_in_a_hundred_loops(seed: int, d: int, lambda2: float, dtype: Any) -> None:
    """Few rows then hold all weight, and a feature's share of it falls below MIN_SHARE."""
    Z = np.where(np.random.default_rng(seed).normal(size=(300, d)) > 0, 1, -1)
    settings = DckmSettings(
        n_clusters=3,
        lambda1=0.01,
        lambda2=lambda2,
        lambda3=1.0,
        max_iter=100,
        tol=0.0,
        init="random",
        seed=seed,
    )
    found = solve(InMemory(Coded(np.ascontiguousarray(Z, dtype), signs=True)), settings).objective
    assert (np.diff(found) <= 1e-13 * found[:-1]).all()


def test_a_small_share_of_the_weight_is_exact_in_float32() -> None:
    rng = np.random.default_rng(0)
    Z = np.where(rng.random((20_000, 4)) < 0.5, 1, -1)
    w = np.exp(rng.normal(size=len(Z)))
    treated = Z[:, 0] > 0
    w[treated] *= 1e-6 * w[~treated].sum() / w[treated].sum()
    for signs in (True, False):
        found = moments(Coded(Z.astype(np.float32), signs), w)
        np.testing.assert_allclose(found.treated, w @ (Z > 0), rtol=1e-9)
        np.testing.assert_allclose(found.total, w @ Z, rtol=1e-9)


@pytest.mark.parametrize("n", [6, 7, 23, 55, 119, 120])
def test_no_step_leaves_all_weights_zero(n: int) -> None:
    """Equal rows have equal weights, and for some n a step of a power of two ends at exactly 0."""
    model = DecorrelatedKMeans(n_clusters=2, random_state=0).fit(np.ones((n, 3)))
    np.testing.assert_allclose(model.sample_weight_, np.ones(n))
    assert model.effective_sample_size_ == pytest.approx(n)


def check_solution(coded: Coded, rows: InMemory, found: Solution) -> None:
    w = rows.weight
    assert (w >= 0).all()
    assert found.effective_sample_size == pytest.approx(w.sum() ** 2 / (w @ w))
    for norm, weights in ((found.correlation_before, np.ones(len(w))), (found.correlation_after, w)):
        covariance = np.cov(coded.Z.T, aweights=weights, ddof=0)
        off_diagonal = covariance - np.diag(np.diag(covariance))
        assert norm == pytest.approx(np.linalg.norm(off_diagonal), rel=1e-6, abs=1e-9)
    if found.centres is not None:
        for k in range(len(found.centres)):
            assert np.isfinite(found.centres[k]).all()


def test_correlation_of_one_pair() -> None:
    Z = np.array([[1.0, 1], [-1, -1], [1, -1], [-1, 1]])
    w = np.array([3.0, 3, 1, 1])
    assert correlation(Z.T @ (w[:, None] * Z), Z.T @ w, 8.0) == pytest.approx(np.sqrt(2) / 2)


def test_weights_take_a_spurious_correlation_out() -> None:
    rng = np.random.default_rng(0)
    first = rng.random(2000) < 0.5
    second = np.where(rng.random(2000) < 0.9, first, ~first)
    X = np.column_stack([first, second, rng.random((2000, 3)) < 0.5]).astype(float)
    found = DecorrelationWeights(lambda1=100, max_iter=200, tol=1e-6).fit(X)
    assert found.correlation_before_ > 1
    assert found.correlation_after_ < 0.05
    assert found.sample_weight_.mean() == pytest.approx(1)
    # The exact answer weighs the four cells alike, within sampling: 10 % of the rows carry half the weight.
    assert found.sample_weight_[first != second].sum() / 2000 == pytest.approx(0.5, abs=0.02)
    assert found.effective_sample_size_ == pytest.approx(2000 / (0.25 / 0.1 + 0.25 / 0.9), rel=0.2)


def test_draws_follow_the_squared_distances() -> None:
    coded = Coded(np.array([[0.0], [1.0], [2.0], [3.0]]), signs=False)
    centre = np.array([[0.0]])
    drawn = [candidate(coded, np.arange(4), centre, seed).row_id for seed in range(4000)]
    shares = np.bincount(drawn, minlength=4) / 4000
    np.testing.assert_allclose(shares, np.array([0, 1, 4, 9]) / 14, atol=0.03)


@given(seed=seeds, cut=st.integers(1, 29), n_centres=st.integers(0, 3))
def test_draws_do_not_depend_on_shards(seed: int, cut: int, n_centres: int) -> None:
    coded, ids = problem(seed), np.arange(30)
    centres = coded.Z[:n_centres]
    whole = candidate(coded, ids, centres, seed)
    parts = [
        candidate(Coded(coded.Z[rows], True), ids[rows], centres, seed)
        for rows in (slice(cut), slice(cut, None))
    ]
    assert earlier(*parts).row_id == whole.row_id


def test_draws_of_different_centres_are_independent() -> None:
    """Ten rows at one distance from every centre: two draws agree by chance, in a tenth of the seeds."""
    angles = np.arange(10) * 2 * np.pi / 10
    coded = Coded(np.column_stack([np.cos(angles), np.sin(angles)]), signs=False)
    drawn = np.array(
        [
            [candidate(coded, np.arange(10), np.zeros((k, 2)), seed).row_id for k in range(3)]
            for seed in range(0, 6000, 3)
        ]
    )
    for first, second in combinations(range(3), 2):
        agree = (drawn[:, first] == drawn[:, second]).mean()
        assert agree == pytest.approx(0.1, abs=4 * np.sqrt(0.09 / 2000))


def test_k_means_plus_plus_takes_distinct_rows() -> None:
    coded = Coded(np.repeat(np.array([[1.0, -1], [-1, 1], [1, 1]]), 5, axis=0), signs=True)
    rows = InMemory(coded)
    found = solve(
        rows,
        DckmSettings(
            n_clusters=3,
            lambda1=0.0,
            lambda2=10.0,
            lambda3=1.0,
            max_iter=1,
            tol=0.01,
            init="k-means++",
            seed=4,
        ),
    )
    assert sorted(found.sizes) == [5, 5, 5]


@given(seed=seeds, cut=st.integers(1, 29))
def test_features_are_coded_alike_from_parts(seed: int, cut: int) -> None:
    X = np.random.default_rng(seed).normal(3, 2, (30, 4))
    X[:, 3] = 0.1
    sums = join_sums(column_sums(X[:cut]), column_sums(X[cut:]))
    mean = sums[1] / sums[0]
    squares = squared_deviations(X[:cut], mean) + squared_deviations(X[cut:], mean)
    scores = Coder.from_sums("standardize", sums, squares)(X).Z
    expected = (X[:, :3] - X[:, :3].mean(axis=0)) / X[:, :3].std(axis=0)
    np.testing.assert_allclose(scores[:, :3], expected, atol=1e-5)
    np.testing.assert_array_equal(scores[:, 3], 0)
    np.testing.assert_array_equal(Coder.from_sums("binarize", sums)(X).Z[:, :3] > 0, expected > 0)


def test_more_rows_than_a_block_are_coded_alike() -> None:
    X = np.random.default_rng(0).normal(5, 3, (2 * ROW_BLOCK + 7, 3))
    found = Coder.of(X, "standardize")(X).Z
    np.testing.assert_allclose(found, (X - X.mean(axis=0)) / X.std(axis=0), atol=1e-5)


def test_only_equal_values_are_constant() -> None:
    X = np.column_stack([np.full(100, 0.1), 1e9 + np.arange(100), np.arange(100) * 1e-30])
    coded = Coder.of(X, "standardize")(X)
    np.testing.assert_array_equal(coded.Z[:, 0], 0)
    np.testing.assert_allclose(coded.Z[:, 1:].std(axis=0), 1, rtol=1e-5)


def test_two_values_keep_their_names() -> None:
    X = np.random.default_rng(0).random((50, 3)) < [0.1, 0.5, 0.9]
    for found in (Coder.of(2.0 * X - 1, "binarize")(2.0 * X - 1), Coder.of(1.0 * X, "binarize")(1.0 * X)):
        np.testing.assert_array_equal(found.Z, 2.0 * X - 1)


@pytest.mark.parametrize("coding", CODINGS)
def test_memory_is_that_of_the_rows_and_a_few_squares(coding: Any) -> None:
    n, d = 20_000, 100
    X = np.random.default_rng(0).normal(size=(n, d)).astype(np.float32)
    tracemalloc.start()
    DecorrelatedKMeans(10, random_state=0, max_iter=2, coding=coding).fit(X)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    # Codes, what is remembered of rows, blocks, d x d sums: no room for a second copy in float64.
    assert peak < 2 * X.nbytes + 20 * d * d * 8


@pytest.mark.parametrize("coding", CODINGS)
def test_predict_gives_the_labels_of_fit(coding: Any) -> None:
    X = np.random.default_rng(1).normal(size=(100, 6))
    model = DecorrelatedKMeans(4, random_state=1, coding=coding).fit(X)
    np.testing.assert_array_equal(model.predict(X), model.labels_)
    assert model.sample_weight_.mean() == pytest.approx(1)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"n_clusters": 0}, r"n_clusters=0 must be a whole number"),
        ({"n_clusters": 31}, r"n_clusters=31 is more than the n_samples=30 rows"),
        ({"lambda1": -1}, r"lambda1=-1 must be a number of at least 0"),
        ({"tol": -0.5}, r"tol=-0\.5 must be a number of at least 0"),
        ({"lambda3": 0}, r"lambda3=0 would let all weights vanish"),
        ({"min_effective_share": 1}, r"min_effective_share=1 must be below 1"),
        ({"max_iter": 2.5}, r"max_iter=2\.5 must be a whole number"),
        ({"init": "zero"}, r"init='zero' is unknown; there are: random, k-means\+\+"),
        ({"coding": "raw"}, r"coding='raw' is unknown"),
    ],
)
def test_wrong_parameters_say_what_is_right(changed: dict[str, Any], message: str) -> None:
    model = DecorrelatedKMeans(2).set_params(**changed)
    with pytest.raises(ValueError, match=message):
        model.fit(problem(0).Z)


def test_one_row_has_no_correlation_to_remove() -> None:
    with pytest.raises(ValueError, match="minimum of 2 is required"):
        DecorrelatedKMeans(1).fit(problem(0).Z[:1])


tried_settings = st.lists(
    st.builds(
        TriedPair,
        lambda1=st.sampled_from([0.01, 1.0]),
        lambda2=st.sampled_from([0.01, 1.0]),
        share=st.floats(0, 1),
        correlation=st.floats(0, 100),
    ),
    min_size=1,
    max_size=8,
)


@given(tried=tried_settings, least=st.floats(0, 1))
def test_the_pick_has_the_least_correlation_among_those_with_enough_rows(
    tried: list[TriedPair], least: float
) -> None:
    picked = select_pair(tried, least)
    assert picked in tried
    if any(setting.share >= least for setting in tried):
        assert picked.share >= least
        assert all(s.correlation >= picked.correlation for s in tried if s.share >= least)
    else:
        assert picked.share == max(setting.share for setting in tried)


def test_the_search_ends_at_the_second_value_that_differs_by_less_than_the_tolerance() -> None:
    found = solve(InMemory(problem(0)), replace(SETTINGS, tol=1e9))
    assert found.converged
    assert len(found.objective) == 2


@pytest.mark.parametrize("share", [0.0, 0.5])
def test_a_search_that_ends_at_the_least_share_has_not_converged(share: float) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 1)) + 0.7 * rng.normal(size=(400, 6))
    settings = DckmSettings(
        n_clusters=0,
        lambda1=100.0,
        lambda2=0.01,
        lambda3=1.0,
        max_iter=2000,
        tol=0.0,
        min_effective_share=share,
    )
    found = solve(InMemory(Coder.of(X, "binarize")(X)), settings)
    assert (found.converged, found.limited) == (share == 0, share > 0)


def test_half_of_the_rows_are_kept_unless_asked_otherwise() -> None:
    tried = [TriedPair(1.0, k, share, 1 - k) for k, share in ((0.1, 0.6), (0.2, 0.5), (0.3, 0.49))]
    assert select_pair(tried) == tried[1]


def test_lambdas_are_chosen_by_fits_without_labels() -> None:
    X = problem(0, 60, 4).Z
    model = DecorrelatedKMeans(2, random_state=3, max_iter=5)
    tried = try_pair(model, X, 2, (10.0, 0.1))
    assert (tried.lambda1, tried.lambda2) == (10, 0.1)
    seeds = np.random.RandomState(3).randint(np.iinfo(np.int32).max, size=2)
    fits = [clone(model).set_params(lambda1=10, lambda2=0.1, random_state=s).fit(X) for s in seeds]
    assert tried.correlation == pytest.approx(np.mean([fit.correlation_after_ for fit in fits]))
    assert tried.share == pytest.approx(np.mean([fit.effective_sample_size_ for fit in fits]) / 60)
    with pytest.raises(ValueError, match="no pair to select from"):
        select_pair([])
