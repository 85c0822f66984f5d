"""Constrained kernel k-means against a linear program, brute force and the definitions of its figures."""

from __future__ import annotations

import sys
from itertools import combinations, pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment, linprog
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.gaussian_process.kernels import RBF
from sklearn.kernel_approximation import Nystroem

from operators.splits import ConstrainedFolds, ConstrainedKernelKMeans
from operators.splits.features import BLOCK, blocks, check_gamma, make_map
from operators.splits.folds import assign_rows
from operators.splits.in_memory import FeatureRows, GramRows
from operators.splits.kernel import Centroids, iterate, random_mmd
from operators.splits.selection import DisjointGroups, Marginals, make_quotas, smallest
from operators.splits.start import pick_landmarks
from tests.on_arrays import mmd

Array = Any


def problem(n: int, seed: int) -> tuple[Array, Array]:
    random = np.random.default_rng(seed)
    return random.normal(size=(n, 3)), random.integers(0, 3, n)


def linear_program(gain: Array, groups: Array, low: Array, high: Array) -> tuple[float, Array]:
    """The paper's program in both clusters' variables, solved by HiGHS: cost and validation mask."""
    n = len(gain)
    names = np.unique(groups)
    once = np.hstack([np.eye(n), np.eye(n)])
    inside = np.hstack([(groups == names[:, None]).astype(float), np.zeros((len(names), n))])
    cost = np.concatenate([gain, np.zeros(n)])
    found = linprog(
        cost,
        A_ub=np.vstack([inside, -inside]),
        b_ub=np.concatenate([high, -low]),
        A_eq=once,
        b_eq=np.ones(n),
        bounds=(0, 1),
        method="highs",
    )
    return float(found.fun), found.x[:n] > 0.5


gains = st.lists(st.integers(-4, 4), min_size=2, max_size=40)


@given(
    values=gains, data=st.data(), holdout=st.sampled_from([0.2, 0.3, 0.5]), tau=st.sampled_from([0, 0.5, 2])
)
def test_selection_is_the_optimum_of_the_program(
    values: list[int], data: st.DataObject, holdout: float, tau: float
) -> None:
    groups = np.array(data.draw(st.lists(st.integers(0, 2), min_size=len(values), max_size=len(values))))
    gain = np.array(values, float)
    try:
        selector = DisjointGroups(groups, holdout, tau)
    except ValueError:
        return
    mask, quotas = selector.select(gain), selector.quotas
    cost, _ = linear_program(gain, groups, quotas.low, quotas.high)
    assert gain[mask].sum() == pytest.approx(cost, abs=1e-9)
    taken = np.array([mask[groups == name].sum() for name in quotas.names])
    assert (quotas.low <= taken).all()
    assert (taken <= quotas.high).all()


@given(seed=st.integers(0, 1000), holdout=st.floats(0.05, 0.9))
def test_labels_are_those_of_the_program(seed: int, holdout: float) -> None:
    random = np.random.default_rng(seed)
    groups, gain = random.integers(0, 4, 60), random.normal(size=60)
    selector = DisjointGroups(groups, holdout)
    quotas = selector.quotas
    assert quotas.low.tolist() == [round(holdout * (groups == name).sum()) for name in np.unique(groups)]
    np.testing.assert_array_equal(
        selector.select(gain), linear_program(gain, groups, quotas.low, quotas.high)[1]
    )


@given(values=st.lists(st.integers(0, 3), max_size=30), count=st.integers(-1, 31))
def test_of_equal_gains_the_earlier_row_is_taken(values: list[int], count: int) -> None:
    order = sorted(range(len(values)), key=lambda row: (values[row], row))
    expected = {order[i] for i in range(max(0, min(count, len(values))))}
    assert set(np.flatnonzero(smallest(np.array(values, float), count)).tolist()) == expected


@given(
    n=st.integers(8, 60),
    seed=st.integers(0, 10**6),
    holdout=st.sampled_from([0.2, 0.35, 0.5]),
    tolerance=st.sampled_from([0.0, 0.4]),
    kernel=st.sampled_from(["linear", "rbf", "nystrom"]),
)
def test_the_objective_is_the_sum_of_squares(
    n: int, seed: int, holdout: float, tolerance: float, kernel: Any
) -> None:
    X, groups = problem(n, seed)
    groups = groups % 2
    landmarks = 5 if kernel == "nystrom" else None
    model = ConstrainedKernelKMeans(
        holdout,
        "linear" if kernel == "linear" else "rbf",
        landmarks=landmarks,
        tolerance=tolerance,
        n_init=2,
        random_state=seed,
    ).fit(X, groups)
    mask = model.validation_mask_
    if model.feature_map_ is not None:
        phi = model.feature_map_.features(X).astype(np.float64)
    else:
        z = (X - X.mean(axis=0)) / X.std(axis=0)
        gram = RBF(np.sqrt(0.5 / model.gamma_))(z)
        values, vectors = np.linalg.eigh(gram)
        phi = vectors * np.sqrt(np.maximum(values, 0))
    inertia = sum(np.square(phi[part] - phi[part].mean(axis=0)).sum() for part in (mask, ~mask))
    total = np.square(phi - phi.mean(axis=0)).sum()
    v, t = mask.sum(), (~mask).sum()
    assert model.inertia_ == pytest.approx(inertia, rel=1e-6)
    assert model.mmd_ == pytest.approx(
        np.linalg.norm(phi[mask].mean(axis=0) - phi[~mask].mean(axis=0)), rel=1e-6
    )
    assert model.mmd_**2 == pytest.approx(n / (v * t) * (total - model.inertia_), rel=1e-6)


def test_every_step_keeps_the_cheaper_labeling() -> None:
    """From the same centroids no other feasible rows, on either side, give a lower k-means cost."""
    X, groups = problem(10, 3)
    groups = groups % 2
    model = ConstrainedKernelKMeans(0.3, standardize=False, random_state=0).fit(X, groups)
    mask = model.validation_mask_
    centroids = [X[part].mean(axis=0) for part in (mask, ~mask)]
    distances = np.stack([np.square(X - centre).sum(axis=1) for centre in centroids])

    def cost(validation: Array) -> float:
        both = [distances[0][validation].sum() + distances[1][~validation].sum()]
        both.append(distances[1][validation].sum() + distances[0][~validation].sum())
        return float(min(both))

    wanted = [round(0.3 * (groups == name).sum()) for name in (0, 1)]
    least = min(
        cost(np.isin(np.arange(10), [*first, *second]))
        for first in combinations(np.flatnonzero(groups == 0), wanted[0])
        for second in combinations(np.flatnonzero(groups == 1), wanted[1])
    )
    assert cost(mask) == pytest.approx(least)


def test_with_enough_starts_it_finds_the_best_split_of_few_rows() -> None:
    X, _ = problem(12, 5)
    model = ConstrainedKernelKMeans(0.25, "rbf", n_init=60, random_state=0).fit(X)
    z = (X - X.mean(axis=0)) / X.std(axis=0)
    best = max(
        mmd(z, np.isin(np.arange(12), rows), "rbf", model.gamma_) for rows in combinations(range(12), 3)
    )
    assert model.mmd_ == pytest.approx(best)


def test_wisconsin_starts_differ_as_published_here() -> None:
    """Restarts matter: on this table ten starts end between 3.75 and 4.84, a random split at .5 to .6."""
    X, y = load_breast_cancer(return_X_y=True)
    model = ConstrainedKernelKMeans(0.2, random_state=0).fit(X, y)
    assert model.mmd_ == pytest.approx(4.84, abs=0.01)
    assert model.start_mmds_.min() == pytest.approx(3.75, abs=0.01)
    assert model.start_mmds_.max() == model.mmd_
    z = (X - X.mean(axis=0)) / X.std(axis=0)
    assert mmd(z, model.validation_mask_, "linear") == pytest.approx(model.mmd_, rel=1e-6)
    random = np.random.default_rng(0)
    floors = []
    for _ in range(300):
        mask = np.zeros(len(X), bool)
        mask[random.choice(len(X), model.validation_mask_.sum(), replace=False)] = True
        floors.append(mmd(z, mask, "linear") ** 2)
    assert np.sqrt(np.mean(floors)) == pytest.approx(model.random_mmd_, rel=0.1)


@pytest.mark.parametrize(("n", "count"), [(5, 2), (7, 3), (4, 1)])
def test_the_mmd_of_random_splits_is_the_mean_over_all_of_them(n: int, count: int) -> None:
    phi = np.random.default_rng(n).normal(size=(n, 3))
    squares = []
    for rows in combinations(range(n), count):
        inside = np.isin(np.arange(n), rows)
        squares.append(np.square(phi[inside].mean(axis=0) - phi[~inside].mean(axis=0)).sum())
    scatter = float(np.square(phi - phi.mean(axis=0)).sum())
    assert random_mmd(scatter, n, count) == pytest.approx(np.sqrt(np.mean(squares)), rel=1e-12)


@given(seed=st.integers(0, 300), start=st.integers(0, 8))
def test_steps_are_those_of_lloyd_by_enumeration(seed: int, start: int) -> None:
    """Every step takes the best of all feasible splits, as long as the sum of squares falls."""
    phi = np.random.default_rng(seed).normal(size=(9, 2)).astype(np.float32)
    feasible = [np.isin(np.arange(9), rows) for rows in combinations(range(9), 3)]
    wide = phi.astype(np.float64)

    def parts(mask: Array) -> Any:
        return wide[mask].mean(axis=0), wide[~mask].mean(axis=0)

    def inertia(mask: Array) -> float:
        return sum(np.square(wide[side] - wide[side].mean(axis=0)).sum() for side in (mask, ~mask))

    centroids, expected = (wide[start], wide[(start + 1) % 9]), list[float]()
    while True:
        far = [np.square(wide - centre).sum(axis=1) for centre in centroids]
        first, second = far
        costs = [
            min(first[one].sum() + second[~one].sum(), second[one].sum() + first[~one].sum())
            for one in feasible
        ]
        mask = feasible[int(np.argmin(costs))]
        if expected and inertia(mask) >= expected[-1] - 1e-9:
            break
        expected.append(inertia(mask))
        centroids = parts(mask)
    rows = FeatureRows(phi, DisjointGroups(np.zeros(9, np.int64), 1 / 3))
    fit = iterate(rows, Centroids(wide[start], wide[(start + 1) % 9]), 50)
    found = [rows.scatter - between for between in fit.between]
    np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.fixture(scope="module")
def digits() -> tuple[Array, Array, Array, ConstrainedKernelKMeans]:
    X, y = load_digits(return_X_y=True)
    z = (X - X.mean(axis=0)) / np.where(X.std(axis=0) > 0, X.std(axis=0), 1)
    return X, y, z, ConstrainedKernelKMeans(kernel="rbf", n_init=3, random_state=0).fit(X, y)


def test_landmarks_by_kmeans_do_not_depend_on_units() -> None:
    sample = np.random.default_rng(0).normal(size=(60, 3)).astype(np.float32)
    units = np.array([1.0, 1024.0, 0.125], np.float32)  # powers of two: nothing is rounded
    found = [pick_landmarks(rows, 8, "kmeans", 0) for rows in (sample, sample * units)]
    np.testing.assert_allclose(found[0] * units, found[1], rtol=1e-4)


def test_landmarks_by_kmeans_are_the_same_without_faiss(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same split had other rows, under one name, where the extra `cpu` was not installed."""
    sample = np.random.default_rng(2).normal(size=(300, 3))
    found = pick_landmarks(sample, 8, "kmeans", 0)
    monkeypatch.setitem(sys.modules, "faiss", None)
    np.testing.assert_array_equal(found, pick_landmarks(sample, 8, "kmeans", 0))


def test_landmarks_by_kmeans_follow_the_seed() -> None:
    sample = np.random.default_rng(0).normal(size=(300, 3)).astype(np.float32)
    first, again, other = (pick_landmarks(sample, 8, "kmeans", seed) for seed in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert not np.allclose(first, other)


def test_every_step_of_a_fit_in_memory_is_recorded() -> None:
    X, groups = problem(200, 4)
    settings = {"n_init": 1, "random_state": 0}
    whole = ConstrainedKernelKMeans(max_iter=50, **settings).fit(X, groups).objective_
    first = ConstrainedKernelKMeans(max_iter=1, **settings).fit(X, groups).objective_
    assert len(whole) > 2
    assert first[0] == pytest.approx(whole[0])


def test_landmarks_by_density_are_different_rows() -> None:
    pytest.importorskip("faiss", reason="density-weighted landmarks need FAISS")
    sample = np.random.default_rng(0).normal(size=(60, 3)).astype(np.float32)
    found = pick_landmarks(sample, 40, "density", 0)
    assert len(np.unique(found, axis=0)) == 40


def test_directions_of_landmarks_are_left_out_by_their_share_of_the_largest() -> None:
    marks = np.linspace(0, 1, 40)[:, None]
    values = np.linalg.eigvalsh(np.exp(-np.square(marks - marks.T)))
    assert values[-1] > 10, "or the share would be as good as the number itself"
    found = make_map(marks, "rbf", 1.0, marks, standardize=False)
    assert found.whiten.shape[1] == np.count_nonzero(values > 1e-6 * values[-1])


@pytest.mark.parametrize("way", ["uniform", "kmeans", "density"])
def test_landmarks_give_the_split_of_the_exact_kernel(digits: tuple[Any, ...], way: Any) -> None:
    if way == "density":
        pytest.importorskip("faiss", reason="density-weighted landmarks need FAISS")
    X, y, z, exact = digits
    assert mmd(z, exact.validation_mask_, "rbf", exact.gamma_) == pytest.approx(exact.mmd_, rel=1e-9)
    near = ConstrainedKernelKMeans(
        kernel="rbf", landmarks=200, landmarks_by=way, n_init=3, random_state=0
    ).fit(X, y)
    assert near.gamma_ == pytest.approx(exact.gamma_, rel=1e-5)
    assert mmd(z, near.validation_mask_, "rbf", exact.gamma_) == pytest.approx(exact.mmd_, rel=0.01)


def test_features_are_those_of_nystroem() -> None:
    random = np.random.default_rng(0)
    X = random.normal(size=(700, 8))
    by = make_map(X, "rbf", 0.05, X[:40], standardize=False)
    peer = Nystroem(gamma=0.05, n_components=40).fit(X[:40])
    mine, theirs = by.features(X).astype(np.float64), peer.transform(X)
    np.testing.assert_allclose(mine @ mine.T, theirs @ theirs.T, atol=2e-4)


@given(cuts=st.lists(st.integers(0, 1500), max_size=5), kernel=st.sampled_from(["linear", "rbf"]))
def test_features_do_not_depend_on_who_computes_them(cuts: list[int], kernel: Any) -> None:
    X = np.random.default_rng(1).normal(size=(1500, 5)).astype(np.float32)
    by = make_map(X[:100], kernel, landmarks=X[:20])
    edges = [0, *sorted(cuts), 1500]
    ids = np.arange(1500)
    parts = [by.features(X[a:b], ids[a:b]) for a, b in pairwise(edges)]
    np.testing.assert_array_equal(np.concatenate(parts), by.features(X))
    some = np.flatnonzero(np.random.default_rng(2).random(1500) < 0.5)
    np.testing.assert_array_equal(by.features(X[some], some), by.features(X)[some])


def test_blocks_cover_rows_once() -> None:
    ids = np.array([3, 4, 510, 511, 512, 513, 2000])
    seen = np.concatenate([ids[rows] for rows, _ in blocks(ids)])
    np.testing.assert_array_equal(seen, ids)
    assert list(blocks(np.empty(0, np.int64))) == []


@pytest.mark.parametrize("ids", [[5, 11], [5, 6, 12], [0, 2], [1, 2, 3], [511, 512]])
def test_places_of_a_block_are_those_of_the_row_ids(ids: list[int]) -> None:
    every = np.arange(BLOCK)
    found = [every[place] + BLOCK * (ids[rows][0] // BLOCK) for rows, place in blocks(np.array(ids))]
    np.testing.assert_array_equal(np.concatenate(found), ids)


def test_a_map_survives_its_file(tmp_path: Any) -> None:
    X, _ = problem(60, 0)
    for kernel in ("linear", "rbf"):
        by = make_map(X, kernel, landmarks=X[:9])  # type: ignore[arg-type]
        by.save(tmp_path / "map.npz")
        np.testing.assert_array_equal(type(by).load(tmp_path / "map.npz").features(X), by.features(X))


@pytest.mark.slow
def test_many_rows_start_on_a_sample() -> None:
    random = np.random.default_rng(0)
    X = np.concatenate([random.normal(size=(4500, 2)), random.normal(4, 1, size=(1000, 2))])
    y = random.integers(0, 2, len(X))
    model = ConstrainedKernelKMeans(0.2, kernel="rbf", landmarks=50, n_init=3, random_state=0).fit(X, y)
    assert model.mmd_ == pytest.approx(model.start_mmds_.max(), rel=0.1)
    assert model.validation_mask_[4500:].mean() > 0.9
    small = make_quotas(np.arange(2000), np.full(2000, 5), 0.2)
    assert small.low.tolist() == [1] * 2000
    tiny = ConstrainedKernelKMeans(0.2, n_init=2, random_state=0).fit(X, np.arange(5500) // 5)
    assert tiny.validation_mask_.sum() == 1100  # though some of these groups have two rows in the sample


def test_tolerance_can_differ_by_group() -> None:
    random = np.random.default_rng(0)
    X, groups = random.normal(size=(200, 2)), np.repeat(["a", "b"], 100)
    X[groups == "a", 0] += 3
    fixed = ConstrainedKernelKMeans(0.2, random_state=0).fit(X, groups).validation_mask_
    free = ConstrainedKernelKMeans(0.2, tolerance={"a": 0.5}, random_state=0).fit(X, groups).validation_mask_
    assert [fixed[groups == name].sum() for name in "ab"] == [20, 20]
    assert free[groups == "b"].sum() == 20
    assert free[groups == "a"].sum() in range(10, 31)
    assert free[groups == "a"].sum() != 20


@given(seed=st.integers(0, 200))
def test_overlapping_groupings_keep_their_own_shares(seed: int) -> None:
    random = np.random.default_rng(seed)
    codes = np.column_stack([random.integers(0, 2, 9), random.integers(0, 3, 9)])
    codes = np.column_stack([np.unique(column, return_inverse=True)[1] for column in codes.T])
    gain = random.normal(size=9)
    mask = Marginals(codes, 0.4).select(gain)

    def feasible(rows: Array) -> bool:
        shares = [(0.4 * (c == k).sum(), rows[c == k].sum()) for c in codes.T for k in np.unique(c)]
        return rows.sum() == round(0.4 * 9) and all(np.floor(s) <= x <= np.ceil(s) for s, x in shares)

    masks = [np.isin(np.arange(9), rows) for rows in combinations(range(9), round(0.4 * 9))]
    assert feasible(mask)
    assert gain[mask].sum() == pytest.approx(min(gain[m].sum() for m in masks if feasible(m)))


def test_a_share_that_is_whole_is_kept_exactly() -> None:
    codes = np.zeros((610, 2), np.int64)
    codes[300:, 0] = 1
    gain = np.repeat([-1.0, 1.0], [300, 310])
    assert Marginals(codes, 0.07).select(gain)[:300].sum() == 21  # .07 * 300 is 21.000000000000004


def test_a_tolerance_of_two_groupings_bounds_their_shares_on_both_sides() -> None:
    codes = np.stack([np.arange(80) % 2, np.arange(80) // 2 % 2], axis=1)
    selector = Marginals(codes, 0.25, 0.5)
    # All rows are welcome, then none: of 40 rows of a group 10 * 1.5 are taken, then 10 * .5.
    for gain, count in ((-1.0, 15), (1.0, 5)):
        mask = selector.select(np.full(80, gain))
        for grouping in codes.T:
            assert np.bincount(grouping[mask]).tolist() == [count, count]


def test_two_groupings_fit_through_the_program() -> None:
    X, label = problem(60, 2)
    domain = np.arange(60) % 4
    model = ConstrainedKernelKMeans(0.25, n_init=2, random_state=0).fit(X, np.column_stack([label, domain]))
    pairs = ConstrainedKernelKMeans(0.25, n_init=2, random_state=0).fit(X, 4 * label + domain)
    for column in (label, domain):
        share = np.bincount(column[model.validation_mask_]) - 0.25 * np.bincount(column)
        assert np.abs(share).max() < 1
    assert model.mmd_ > 0.9 * pairs.mmd_


def test_distances_to_a_row_are_those_of_its_features() -> None:
    phi = np.random.default_rng(0).normal(size=(12, 3)).astype(np.float32)
    selector = DisjointGroups(np.zeros(12, np.int64), 0.5, 0.0)
    for rows in (FeatureRows(phi, selector), GramRows(phi.astype(np.float64) @ phi.T, selector)):
        expected = ((phi - phi[4]) ** 2).sum(axis=1)
        np.testing.assert_allclose(rows.square_distances(4), expected, rtol=1e-5, atol=1e-5)


def test_folds_have_equal_shares_and_their_objective() -> None:
    X, groups = problem(90, 4)
    model = ConstrainedFolds(3, n_init=2, random_state=0).fit(X, groups)
    for name in range(3):
        counts = np.bincount(model.labels_[groups == name], minlength=3)
        assert counts.max() - counts.min() <= 1
    assert np.bincount(model.labels_).tolist() == [30, 30, 30]
    by_hand = make_map(X, "linear").features(X).astype(np.float64)
    inertia = sum(
        np.square(by_hand[model.labels_ == k] - by_hand[model.labels_ == k].mean(axis=0)).sum()
        for k in range(3)
    )
    assert model.objective_[-1] == pytest.approx(inertia)
    np.testing.assert_allclose(model.centroids_[1], by_hand[model.labels_ == 1].mean(axis=0))
    assert (model.predict(X, groups) == model.labels_).mean() > 0.95


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_folds_end_where_another_assignment_is_no_better(seed: int) -> None:
    """The next step, assigned by scipy, does not lower the objective."""
    X, _ = problem(60, seed)
    model = ConstrainedFolds(3, n_init=1, random_state=seed).fit(X)
    assert len(model.objective_) < model.max_iter
    phi = model.feature_map_.features(X).astype(np.float64)
    places = np.repeat(np.arange(3), 20)  # a fold takes 20 rows
    distances = np.square(phi[:, None] - model.centroids_[places]).sum(axis=-1)
    labels = places[linear_sum_assignment(distances)[1]]
    again = sum(np.square(phi[labels == k] - phi[labels == k].mean(axis=0)).sum() for k in range(3))
    assert again == pytest.approx(model.objective_[-1])


def test_other_rows_keep_the_shares_of_the_folds_on_average() -> None:
    X, groups = problem(1200, 4)
    model = ConstrainedFolds(4, n_init=1, random_state=0).fit(X[:600], groups[:600])
    dealt = model.predict(X[600:], groups[600:])
    for name in np.unique(groups):
        shares = np.bincount(dealt[groups[600:] == name], minlength=4) / (groups[600:] == name).sum()
        np.testing.assert_allclose(shares, 0.25, atol=0.09)
    nearest = model.centroids_[dealt] - model.feature_map_.features(X[600:])
    anywhere = model.centroids_[np.arange(600) % 4] - model.feature_map_.features(X[600:])
    assert np.square(nearest).sum() < 0.95 * np.square(anywhere).sum()


def test_prices_of_two_groupings_select_the_rows_of_the_program() -> None:
    random = np.random.default_rng(5)
    codes, gain = (
        np.column_stack([random.integers(0, 2, 80), random.integers(0, 3, 80)]),
        random.normal(size=80),
    )
    marginals = Marginals(codes, 0.3)
    first, second = marginals.prices(gain)
    slack = gain - first[codes[:, 0]] - second[codes[:, 1]]
    mask = marginals.select(gain)
    assert slack[mask].max() <= 1e-9
    assert slack[~mask].min() >= -1e-9


def test_rows_are_dealt_at_the_lowest_cost() -> None:
    distances = np.random.default_rng(0).normal(size=(6, 2))
    codes = np.array([0, 0, 0, 0, 1, 1])
    labels, prices = assign_rows(distances, codes)
    options = [
        np.isin(np.arange(6), [*first, second]).astype(int)
        for first in combinations(range(4), 2)
        for second in (4, 5)
    ]
    costs = [distances[np.arange(6), option].sum() for option in options]
    assert labels.tolist() == options[int(np.argmin(costs))].tolist()
    reduced = distances - prices[codes]
    np.testing.assert_allclose(reduced[np.arange(6), labels], reduced.min(axis=1), atol=1e-9)


def test_a_program_of_many_rows_takes_few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """With presolve, or with each equation as two bounds, 5,000 rows were not done after a minute."""
    found, options = [], []

    def recorded(*args: Any, **kwargs: Any) -> Any:
        options.append(kwargs["options"])
        found.append(linprog(*args, **kwargs))
        return found[-1]

    monkeypatch.setattr("scipy.optimize.linprog", recorded)
    X, codes = problem(5000, 0)
    distances = np.square(X[:, None] - X[:5]).sum(axis=-1)
    labels, prices = assign_rows(distances, codes)
    assert np.bincount(labels).tolist() == [1000] * 5
    reduced = distances - prices[codes]
    np.testing.assert_allclose(reduced[np.arange(5000), labels], reduced.min(axis=1), atol=1e-6)
    assert len(found[0].eqlin.marginals) >= 5000
    assert found[0].nit < 2 * 5000
    assert options == [{"presolve": False}]


@pytest.mark.parametrize(
    ("params", "text"),
    [
        ({"holdout": 1.0}, "holdout is 1.0: it must be a share between 0 and 1"),
        ({"kernel": "cosine"}, "kernel is 'cosine': there are 'linear' and 'rbf'"),
        ({"gamma": 0.1}, "gamma and landmarks belong to the rbf kernel"),
        ({"kernel": "rbf", "gamma": 1e9}, "Leave gamma out"),
        ({"kernel": "rbf", "gamma": 1e-9}, "takes all rows for alike"),
        ({"tolerance": -1.0}, "tolerance is -1.0: it must be 0 or more"),
        ({"tolerance": {7: 0.1}}, "tolerance names the group 7, but no row has it"),
        ({"n_init": 0}, "n_init is 0"),
        ({"kernel": "rbf", "landmarks": 0}, "landmarks is 0: it must be 1 or more"),
        ({"holdout": 0.001}, "puts no row into the validation part"),
    ],
)
def test_bad_input_is_named(params: dict[str, Any], text: str) -> None:
    X, groups = problem(30, 0)
    with pytest.raises(ValueError, match=text):
        ConstrainedKernelKMeans(**params).fit(X, groups)


def test_degenerate_data_is_named() -> None:
    with pytest.raises(ValueError, match="all rows of the sample are the same"):
        ConstrainedKernelKMeans().fit(np.ones((20, 2)))
    with pytest.raises(ValueError, match=r"of 20,000 rows would take 3 GiB\. Set landmarks"):
        ConstrainedKernelKMeans(kernel="rbf").fit(np.zeros((20_000, 1)))
    # What the paper's gamma = 1 does to 30 features as they are: the kernel matrix is the identity.
    X = load_breast_cancer().data
    with pytest.raises(ValueError, match="gamma = 1 is degenerate"):
        ConstrainedKernelKMeans(kernel="rbf", gamma=1.0, standardize=False).fit(X)
    with pytest.raises(ValueError, match="groups have the shape"):
        ConstrainedKernelKMeans().fit(np.eye(4), np.zeros(3))
    with pytest.raises(ValueError, match="n_folds is 9"):
        ConstrainedFolds(9).fit(np.eye(4))
    with pytest.raises(ValueError, match="1,000,000 rows times folds"):
        ConstrainedFolds(900).fit(np.zeros((1200, 1)))


def test_the_kernel_is_named() -> None:
    with pytest.raises(ValueError, match="kernel is 'poly'"):
        ConstrainedFolds(3, kernel="poly").fit(np.arange(12.0).reshape(6, 2))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"the rbf kernel .* all rows of the sample are the same"):
        ConstrainedKernelKMeans(kernel="rbf").fit(np.ones((20, 2)))


def test_one_start_and_one_round_are_enough_to_keep_the_holdout() -> None:
    X = np.random.default_rng(0).normal(size=(100, 3))
    found = ConstrainedKernelKMeans(0.3, n_init=1, max_iter=1, random_state=0).fit(X)
    assert found.validation_mask_.sum() == 30


def test_a_constant_column_keeps_its_unit_for_new_rows() -> None:
    X = np.column_stack([np.random.default_rng(0).normal(size=50), np.full(50, 7.0)])
    new = np.array([[X[:, 0].mean() + X[:, 0].std(), 9.0]], np.float32)
    found = make_map(X, "linear").features(new, np.arange(1))
    np.testing.assert_allclose(found, [[1.0, 2.0]], rtol=1e-5)


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
@pytest.mark.parametrize("unit", [2.0**-100, 2.0**-45, 2.0**60])
def test_the_split_does_not_depend_on_the_unit_of_a_column(kernel: Any, unit: float) -> None:
    X = np.random.default_rng(1).normal(size=(300, 3))
    landmarks = 50 if kernel == "rbf" else None
    settings = {"holdout": 0.2, "kernel": kernel, "landmarks": landmarks, "random_state": 0, "n_init": 2}
    expected = ConstrainedKernelKMeans(**settings).fit(X).validation_mask_
    for units in (np.array([1, unit, 1]), np.full(3, unit)):
        found = ConstrainedKernelKMeans(**settings).fit(X * units).validation_mask_
        np.testing.assert_array_equal(found, expected)


def test_constant_columns_do_not_move_landmarks() -> None:
    sample = np.random.default_rng(0).normal(size=(2000, 1)).astype(np.float32)
    constant = np.full((2000, 2), 0.1, np.float32)
    found = pick_landmarks(np.hstack([sample, constant]), 20, "kmeans", 0)
    assert len(found) == 20
    np.testing.assert_allclose(found[:, 1:], 0.1, rtol=1e-5)
    np.testing.assert_allclose(np.ptp(found[:, 0]), np.ptp(pick_landmarks(sample, 20, "kmeans", 0)), rtol=0.2)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_values_beyond_float32_are_named() -> None:
    X = np.random.default_rng(1).normal(size=(50, 2))
    for rows, standardize in ((X * 1e200, True), (X * 1e30, False)):
        with pytest.raises(ValueError, match="distances of rows are beyond float32"):
            ConstrainedKernelKMeans(random_state=0, standardize=standardize).fit(rows)


def test_median_gamma_survives_many_equal_rows() -> None:
    z = np.zeros((100, 2))
    z[0] = 1
    assert check_gamma(z, None) > 0


@given(n=st.integers(2, 40), seed=st.integers(0, 99), kernel=st.sampled_from(["linear", "rbf"]))
def test_mmd_is_its_definition(n: int, seed: int, kernel: Any) -> None:
    random = np.random.default_rng(seed)
    X, mask = random.normal(size=(n, 3)), np.arange(n) < max(1, n // 3)
    gram = X @ X.T if kernel == "linear" else RBF(1.0)(X)
    parts = [gram[np.ix_(a, b)].mean() for a, b in ((mask, mask), (~mask, ~mask), (mask, ~mask))]
    expected = np.sqrt(parts[0] + parts[1] - 2 * parts[2])
    assert mmd(X, mask, kernel, 0.5) == pytest.approx(expected, rel=1e-9)


def test_mmd_names_bad_masks() -> None:
    with pytest.raises(ValueError, match="leave rows on both sides"):
        mmd(np.eye(3), [True, True, True])
    assert mmd(np.repeat(np.eye(3), 2, axis=0), [True, False] * 3) == pytest.approx(0, abs=1e-7)
