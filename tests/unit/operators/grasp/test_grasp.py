"""The GRASP kernel: selection as the paper's code does it, classes apart, new rows placed."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sklearn.cluster
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.metrics import silhouette_score

from operators.grasp import GroupInference
from operators.grasp.class_model import ClassModel, sample_cores
from operators.grasp.kernel import infer_class
from operators.grasp.selection import EPS_GRID, MIN_SAMPLES_GRID


def clusters(seed: int = 0, sizes: tuple[int, ...] = (120, 40, 12), spread: float = 0.3) -> Any:
    """Rows in 6-d around directions far apart, and some scattered ones."""
    rng = np.random.default_rng(seed)
    centres = 3 * rng.normal(size=(len(sizes), 6))
    rows = [c + spread * rng.normal(size=(n, 6)) for c, n in zip(centres, sizes, strict=True)]
    return np.concatenate([*rows, 3 * rng.normal(size=(8, 6))])


def vectors_of(X: Any, metric: str) -> Any:
    if metric == "euclidean":
        return X
    moved = X - X.mean(0) if metric == "centered_cosine" else X
    norm = np.linalg.norm(moved, axis=1, keepdims=True)
    return np.where(norm > 0, moved / np.where(norm > 0, norm, 1), 0)


def reference(X: Any, metric: str, eps_grid: Any, min_samples_grid: Any) -> Any:
    """Best score, its cell and labels by scikit-learn alone, one cell after the other."""
    vectors = vectors_of(X, metric)
    best: Any = (-np.inf, None, None, None)
    scores = np.empty((len(eps_grid), len(min_samples_grid)))
    for e, eps in enumerate(eps_grid):
        for m, min_samples in enumerate(min_samples_grid):
            name = "euclidean" if metric == "euclidean" else "cosine"
            labels = (
                sklearn.cluster.DBSCAN(eps=eps, min_samples=min_samples, metric=name).fit(vectors).labels_
            )
            try:
                scores[e, m] = silhouette_score(vectors, labels)
            except ValueError:
                scores[e, m] = -1
            if scores[e, m] > best[0] + 1e-9:
                best = (scores[e, m], eps, min_samples, labels)
    return scores, best


@pytest.mark.parametrize("metric", ["centered_cosine", "cosine", "euclidean"])
@pytest.mark.parametrize("seed", range(3))
def test_selection_equals_a_plain_search(metric: Any, seed: int) -> None:
    X = clusters(seed)
    eps_grid = EPS_GRID if metric != "euclidean" else tuple(np.linspace(0.3, 4, 8))
    scores, (score, eps, min_samples, labels) = reference(X, metric, eps_grid, MIN_SAMPLES_GRID)
    found, selection, _ = infer_class(X, metric=metric, eps_grid=eps_grid, select="silhouette")
    np.testing.assert_allclose(selection.scores, scores, atol=1e-6)
    assert (selection.eps, selection.min_samples) == (eps, min_samples)
    assert selection.silhouette == pytest.approx(score, abs=1e-6)
    np.testing.assert_array_equal(found, labels)
    assert selection.n_groups == labels.max() + 1
    assert selection.n_noise == (labels == -1).sum()
    assert selection.n_rows == len(X)


def test_first_of_equal_scores_wins_in_ascending_order() -> None:
    X = np.repeat([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]], [20, 20, 20], axis=0)
    _, selection, _ = infer_class(X, metric="cosine", eps_grid=(0.7, 0.1, 0.3), min_samples_grid=(10, 5))
    assert (selection.eps, selection.min_samples) == (0.1, 5)
    assert selection.silhouette == pytest.approx(1)
    assert selection.at_edge


def test_when_every_cell_fails_the_first_is_recorded_and_the_class_is_one_group() -> None:
    X = np.eye(6)
    labels, selection, model = infer_class(X, metric="cosine")
    np.testing.assert_array_equal(labels, 0)
    assert (selection.eps, selection.min_samples, selection.silhouette) == (0.1, 5, -1)
    assert (selection.scores == -1).all()
    assert (selection.n_groups, selection.n_noise) == (1, 0)
    np.testing.assert_array_equal(model.assign(X), 0)


def test_the_pick_inside_the_grid_is_not_at_its_edge() -> None:
    X = clusters()
    free = infer_class(X)[1]
    inside = infer_class(
        X,
        eps_grid=(0.001, free.eps, 1.9),
        min_samples_grid=(free.min_samples, 2 * len(X)),
    )[1]
    assert inside.eps == free.eps
    assert inside.at_edge  # by min_samples
    assert not infer_class(X, eps_grid=(0.001, free.eps, 1.9), min_samples_grid=free.min_samples)[1].at_edge
    alone = infer_class(X, eps_grid=free.eps, min_samples_grid=free.min_samples)[1]
    assert alone.scores.shape == (1, 1)
    assert not alone.at_edge


@pytest.mark.parametrize("metric", ["centered_cosine", "cosine", "euclidean"])
@pytest.mark.parametrize("X", [np.full((1, 3), 0.1), np.full((9, 3), 0.1), np.zeros((9, 3))])
def test_a_class_without_structure_is_one_group(metric: Any, X: Any) -> None:
    labels, selection, model = infer_class(X, metric=metric)
    np.testing.assert_array_equal(labels, 0)
    assert (selection.n_groups, selection.n_noise, selection.silhouette) == (1, 0, -1)
    np.testing.assert_array_equal(model.assign(np.vstack([X, X + 1])), 0)


def test_two_different_rows_do_not_crash() -> None:
    np.testing.assert_array_equal(infer_class(np.array([[0.0, 1.0], [1.0, 0.0]]))[0], 0)


def test_groups_are_unique_across_classes_in_class_order() -> None:
    first, second = clusters(1), clusters(2)
    X = np.concatenate([second, first])
    y = np.array(["b"] * len(second) + ["a"] * len(first))
    order = np.random.default_rng(0).permutation(len(X))
    inference = GroupInference(min_rows=0).fit(X[order], y[order])
    assert inference.labels_.dtype == np.int32
    for value, rows in (("a", first), ("b", second)):
        here = y[order] == value
        alone = infer_class(X[order][here])[0]
        np.testing.assert_array_equal(
            inference.labels_[here], np.where(alone < 0, -1, alone + inference.offsets_[value])
        )
        assert inference.selection_[value].n_rows == len(rows)
    assert inference.offsets_ == {"a": 0, "b": inference.selection_["a"].n_groups}
    groups = set(inference.labels_[y[order] == "a"]) & set(inference.labels_[y[order] == "b"])
    assert groups <= {-1}


@pytest.mark.parametrize(("metric", "eps"), [("centered_cosine", 0.06), ("cosine", 0.03), ("euclidean", 1.2)])
def test_predict_repeats_labels_save_for_border_rows(metric: Any, eps: float) -> None:
    X = np.concatenate([clusters(1, spread=0.6), clusters(2, spread=0.6)]).astype(np.float32)
    y = np.repeat([0, 1], 180)
    inference = GroupInference(metric, eps, 8, min_rows=0).fit(X, y)
    placed = inference.predict(X, y)
    n_border = 0
    for value in (0, 1):
        rows = np.flatnonzero(y == value)
        pick = inference.selection_[value]
        name = "euclidean" if metric == "euclidean" else "cosine"
        vectors = vectors_of(X[rows].astype(float), metric)
        cores = sklearn.cluster.DBSCAN(eps=pick.eps, min_samples=pick.min_samples, metric=name).fit(vectors)
        border = np.setdiff1d(np.flatnonzero(cores.labels_ >= 0), cores.core_sample_indices_)
        n_border += len(border)
        others = np.delete(rows, border)
        np.testing.assert_array_equal(placed[others], inference.labels_[others])
        assert (placed[rows[border]] >= 0).all()
    assert n_border > 0
    assert (placed == -1).any()


def test_predict_names_an_unseen_class() -> None:
    X = clusters()
    inference = GroupInference(min_rows=0).fit(X, np.zeros(len(X)))
    with pytest.raises(ValueError, match=r"class 7\.0; fit saw only \[0\.0\]"):
        inference.predict(X[:1], [7.0])


@given(
    arrays(np.int64, st.tuples(st.integers(1, 12), st.integers(1, 3)), elements=st.integers(-2, 2)), st.data()
)
def test_any_small_data_gives_labels_of_every_row(X: Any, data: st.DataObject) -> None:
    y = data.draw(arrays(np.int64, len(X), elements=st.integers(0, 2)))
    inference = GroupInference(eps_grid=(0.2, 1.2), min_samples_grid=(1, 3), min_rows=0).fit(X, y)
    found = np.unique(inference.labels_)
    n_groups = sum(s.n_groups for s in inference.selection_.values())
    np.testing.assert_array_equal(found[found >= 0], np.arange(n_groups))
    assert inference.predict(X, y).shape == (len(X),)


def test_few_kept_cores_are_seeded_and_spare_rare_groups() -> None:
    labels = np.repeat([0, 1, 2], [500, 3, 40]).astype(np.int32)
    cores = np.arange(1000, 1543)
    kept = sample_cores(cores, labels, 60, 1)
    assert len(kept) == 60
    assert (np.diff(kept) > 0).all()
    np.testing.assert_array_equal(np.bincount(labels[kept - 1000]), [29, 3, 28])
    np.testing.assert_array_equal(kept, sample_cores(cores, labels, 60, 1))
    assert not np.array_equal(kept, sample_cores(cores, labels, 60, 2))
    np.testing.assert_array_equal(sample_cores(cores, labels, 543, 1), cores)


def test_a_stored_model_assigns_the_same(tmp_path: Path) -> None:
    X = clusters().astype(np.float32)
    model = infer_class(X)[2]
    model.save(tmp_path / "model.npz")
    stored = io.BytesIO((tmp_path / "model.npz").read_bytes())
    new = clusters(3)
    np.testing.assert_array_equal(ClassModel.load(stored).assign(new), model.assign(new))


def test_parameters_follow_scikit_learn() -> None:
    inference = clone(GroupInference("cosine", eps_grid=0.2, min_samples_grid=5, random_state=4, min_rows=0))
    assert inference.get_params()["eps_grid"] == 0.2
    with pytest.raises(ValueError, match="metric is 'l1'"):
        GroupInference("l1").fit(np.eye(3), [0, 0, 0])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="NaN"):
        GroupInference(min_rows=0).fit([[np.nan]], [0])
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        GroupInference(min_rows=0).fit(np.eye(3), [0, 0])


def test_predict_before_fit_and_with_other_features_is_refused() -> None:
    X, y = np.random.default_rng(0).normal(size=(30, 4)), np.zeros(30, int)
    with pytest.raises(NotFittedError):
        GroupInference(min_rows=0).predict(X, y)
    with pytest.raises(ValueError, match="3 features, but GroupInference is expecting 4"):
        GroupInference(min_rows=0).fit(X, y).predict(X[:, :3], y)


def test_predict_needs_no_classes_after_a_fit_on_one() -> None:
    X = np.random.default_rng(0).normal(size=(30, 4))
    found = GroupInference(min_samples_grid=3, min_rows=0).fit(X, np.full(30, 7))
    np.testing.assert_array_equal(found.predict(X), found.predict(X, np.full(30, 7)))
