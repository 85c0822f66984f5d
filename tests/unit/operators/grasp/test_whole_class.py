"""Classes of any size: equal rows, drawn rows and their placement, stability, thresholds in proportion."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from operators.dbscan import DBSCAN
from operators.grasp import GroupInference, class_model, kernel
from operators.grasp.class_model import ClassModel, assign, cluster_distances
from operators.grasp.kernel import infer_class, infer_whole_class
from operators.grasp.rows_on_disk import drawn_rows
from operators.grasp.selection import MIN_SAMPLES_GRID, min_samples_values
from operators.grasp.stability import checked_rows
from operators.groups.small_groups import to_groups
from operators.points import Points, equal_rows
from tests.unit.operators.grasp.test_grasp import clusters


def binary(n: int = 700, seed: int = 0) -> Any:
    """Rows of a few binary columns, most of them repeated, and two groups that lean apart."""
    rng = np.random.default_rng(seed)
    lean = np.where(rng.random((n, 1)) < 0.2, 0.85, 0.15)
    return (rng.random((n, 7)) < lean).astype(np.float32)


@pytest.mark.parametrize("metric", ["centered_cosine", "cosine", "euclidean"])
def test_equal_rows_change_no_label_and_no_score(metric: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    X = binary()
    X[5] = X[77] = X[401] = 0  # without a direction to "cosine"
    settings = {"metric": metric, "eps_grid": (0.05, 0.3, 1.0), "min_samples_grid": (5, 30, 80)}
    cells: list[Any] = []
    labels, selection, _ = infer_class(X, **settings, keep=cells.append)
    assert len(np.unique(X, axis=0)) < 200
    monkeypatch.setattr(kernel, "MAX_DIFFERENT", 0)
    theirs, one_by_one, _ = infer_class(X, **settings, keep=cells.append)
    np.testing.assert_array_equal(cells[0], cells[1])
    np.testing.assert_array_equal(labels, theirs)
    np.testing.assert_array_equal(selection.scores, one_by_one.scores)


def test_zero_rows_are_kinds_of_their_own_to_the_cosine() -> None:
    X = np.array([[1, 0], [0, 0], [1, 0], [0, 0], [0, 2]], np.float32)
    assert equal_rows(Points(X, "cosine")).counts.tolist() == [2, 1, 1, 1]
    kinds = equal_rows(Points(X, "euclidean"))
    assert (kinds.first.tolist(), kinds.kind.tolist()) == ([0, 1, 4], [0, 1, 0, 1, 2])


def test_kept_neighbours_of_weighted_rows_give_scikit_learns_labels() -> None:
    """More rows than are compared at once, so that neighbourhoods are kept."""
    rng = np.random.default_rng(3)
    X, weight = rng.normal(size=(1500, 3)), rng.integers(1, 4, 1500)
    ours = DBSCAN(0.35, min_samples=9).fit(X, sample_weight=weight)
    repeated = DBSCAN(0.35, min_samples=9).fit(np.repeat(X, weight, axis=0))
    first = np.cumsum(weight) - weight
    np.testing.assert_array_equal(ours.labels_, repeated.labels_[first])
    assert len(np.unique(ours.labels_)) > 3


def test_thresholds_are_in_proportion_from_1000_rows_on() -> None:
    assert min_samples_values("auto", 300) == min_samples_values("auto", 1000) == MIN_SAMPLES_GRID
    assert min_samples_values("auto", 10**6)[0] == 5000
    assert min_samples_values([0.01, 25, 0.0001], 1000) == (2, 10, 25)


@given(n=st.integers(1, 10**6), shares=st.lists(st.floats(1e-6, 0.999), min_size=1, max_size=5))
def test_shares_are_whole_rows_ascending(n: int, shares: list[float]) -> None:
    found = min_samples_values(shares, n)
    assert (np.diff(found) > 0).all()
    assert found[0] >= 2
    assert found[-1] <= max(2, n)


def test_no_group_of_a_class_is_too_small() -> None:
    X = clusters(sizes=(150, 60, 40))
    settings = {"eps_grid": 0.2, "min_samples_grid": 5, "random_state": 0}
    labels, every, model = infer_whole_class(X, np.arange(len(X)), min_rows=0, **settings)
    _, merged, _ = infer_whole_class(X, np.arange(len(X)), min_rows=50, **settings)
    assert sorted(every.sizes)[0] < 50 <= min(merged.sizes)
    assert sum(merged.sizes) == sum(every.sizes)
    near = cluster_distances(model, every.n_groups)
    small = int(np.argmin(every.sizes))
    other = int(np.argsort(near[small])[0])
    assert merged.group_of[small] == merged.group_of[other]
    core = np.flatnonzero(labels == small)
    distances = model.distances(np.flatnonzero(np.isin(model.labels, [small, other])))
    assert near[small, other] <= distances.max()
    assert np.isclose(near, near.T).all()
    assert len(core) == every.sizes[small]


def test_a_class_with_too_few_rows_is_one_group() -> None:
    X = clusters(sizes=(40, 20))
    settings = {"eps_grid": 0.2, "min_samples_grid": 5, "random_state": 0}
    _, selection, _ = infer_whole_class(X, np.arange(len(X)), **settings)
    assert len(selection.group_of) == 2
    assert (selection.n_groups, selection.group_of) == (1, (0, 0))


def test_placing_is_that_of_float64_and_of_each_row_alone() -> None:
    rng = np.random.default_rng(0)
    # Pairs of cores that float32 cannot tell apart, with different labels.
    cores = rng.normal(size=(150, 12))
    cores = np.concatenate([cores, cores * (1 + 1e-9), cores + 1e-9 * rng.normal(size=cores.shape)])
    X = np.concatenate([cores[::7], rng.normal(size=(200, 12)), np.zeros((3, 12))])
    for metric in ("cosine", "centered_cosine", "euclidean"):
        model = ClassModel(metric, 1.9, np.full(12, 0.01), cores, rng.integers(0, 9, 450).astype(np.int32))
        whole = model.assign(X)
        one_by_one = np.concatenate([model.assign(X[i : i + 1]) for i in range(len(X))])
        np.testing.assert_array_equal(whole, one_by_one)
        P, C = model._prepared(X), model._prepared(cores)
        gaps = ((P[:, None] - C[None]) ** 2).sum(axis=2)
        chosen = np.array(
            [gaps[i, model.labels == whole[i]].min() if whole[i] >= 0 else 0 for i in range(len(X))]
        )
        nearest = np.where(whole >= 0, gaps.min(axis=1), 0)
        assert np.allclose(chosen, nearest, rtol=0, atol=1e-12 if metric == "euclidean" else 1e-14)


def test_drawn_rows_are_clustered_and_all_are_placed() -> None:
    X = clusters(seed=1, sizes=(400, 200))
    ids = np.random.default_rng(0).permutation(10_000)[: len(X)]
    settings: dict[str, Any] = {"eps_grid": (0.1, 0.2), "min_samples_grid": (5, 10), "random_state": 3}
    labels, selection, model = infer_whole_class(X, ids, fit_rows=150, min_rows=20, **settings)
    drawn = drawn_rows(ids, 150, 3)
    _, alone, theirs = infer_class(X[drawn], **settings)
    assert (selection.eps, selection.min_samples) == (alone.eps, alone.min_samples)
    np.testing.assert_array_equal(model.cores, theirs.cores)
    np.testing.assert_array_equal(labels, assign(theirs, X))
    assert (selection.n_rows, selection.drawn_from) == (150, len(X))
    groups = to_groups(labels, selection.group_of)
    assert selection.sizes == tuple(np.bincount(groups[groups >= 0]).tolist())
    assert selection.n_noise == np.count_nonzero(groups == -1)
    order = np.random.default_rng(5).permutation(len(X))
    again = infer_whole_class(X[order], ids[order], fit_rows=150, min_rows=20, **settings)[1]
    assert (again.eps, sorted(again.sizes)) == (selection.eps, sorted(selection.sizes))


def test_clear_groups_are_stable_and_chance_ones_are_not() -> None:
    settings: dict[str, Any] = {
        "eps_grid": (0.1, 0.2, 0.3),
        "random_state": 0,
        "stability": 3,
        "min_rows": 20,
    }
    clear = clusters(sizes=(300, 150), spread=0.2)
    found = infer_whole_class(clear, np.arange(len(clear)), **settings)[1].stability
    assert len(found) == 3
    assert min(found) > 0.95
    noise = np.random.default_rng(0).normal(size=(450, 6))
    assert np.mean(infer_whole_class(noise, np.arange(450), **settings)[1].stability) < 0.6
    assert infer_whole_class(clear, np.arange(len(clear)), **settings | {"stability": 0})[1].stability == ()


@pytest.mark.parametrize(("name", "wrong"), [("min_rows", -1), ("min_share", -0.1), ("fit_rows", 1)])
def test_wrong_numbers_are_named(name: str, wrong: float) -> None:
    with pytest.raises(ValueError, match=f"{name} is {wrong}; give a number of at least"):
        GroupInference(**{name: wrong}).fit(np.eye(3), [0, 0, 0])


def test_large_classes_are_checked_on_a_bounded_draw() -> None:
    rows = checked_rows(50_000, seed=1)
    assert len(rows) == len(np.unique(rows)) == 10_000
    assert np.array_equal(checked_rows(300, seed=1), np.arange(300))


def test_clusters_without_a_kept_core_are_infinitely_far() -> None:
    cores, labels = np.eye(3), np.array([0, 0, 2], np.int32)
    apart = cluster_distances(ClassModel("cosine", 0.5, np.zeros(3), cores, labels), 4)
    assert np.isfinite(apart[np.ix_([0, 2], [0, 2])]).all()
    assert np.isinf(apart[1]).all()
    assert np.isinf(apart[:, 3]).all()
    assert class_model.LINKED_CORES > 4
