"""Metrics against scikit-learn and against their definitions."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import sem
from sklearn.metrics import pairwise_distances, silhouette_score

from operators.metrics import mean_silhouettes, silhouette_grid
from operators.metrics import silhouette_sums as sums_module
from operators.metrics import silhouettes as module

SHAPE = st.tuples(st.integers(3, 30), st.integers(1, 4))


@st.composite
def labelled(draw: st.DrawFn) -> tuple[Any, Any]:
    """Rows with duplicates and zero rows, and labels with noise and clusters of one."""
    X = draw(SHAPE.flatmap(lambda s: arrays(np.int64, s, elements=st.integers(-3, 3))))
    return X.astype(float), draw(arrays(np.int64, len(X), elements=st.integers(-1, 4)))


def silhouette(X: Any, labels: Any, *metric: Any, **sample: int) -> float:
    """Return the mean silhouette of one labeling, in which noise counts as a cluster."""
    return float(mean_silhouettes(X, np.asarray(labels)[None], *metric, **sample).mean[0])


def reference(X: Any, labels: Any, metric: str) -> float:
    distances = pairwise_distances(X, metric=metric)
    distances[distances < 1e-12] = 0  # parallel rows: what 1 - cos leaves is rounding
    np.fill_diagonal(distances, 0)
    return float(silhouette_score(distances, labels, metric="precomputed"))


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
@given(data=labelled())
def test_silhouette_equals_scikit_learn(metric: Any, data: Any) -> None:
    X, labels = data
    if not 2 <= len(np.unique(labels)) < len(X):
        assert silhouette(X, labels, metric) == -1
        return
    assert silhouette(X, labels, metric) == pytest.approx(reference(X, labels, metric), abs=1e-6)


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
@pytest.mark.parametrize(
    ("block", "tile", "sums"), [(1, (1, 1), 1), (13, (7, 5), 100), (90, (64, 90), 10**6)]
)
def test_grid_of_labelings_in_blocks(
    metric: Any, block: int, tile: Any, sums: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(3)
    X = rng.normal(size=(90, 5)).astype(np.float32) + 1000
    fine = rng.integers(-1, 12, size=90)
    labels = np.stack([fine, fine // 3, np.zeros(90, int), np.arange(90), fine, rng.integers(0, 3, 90)])
    monkeypatch.setattr(module, "BLOCK", block)
    monkeypatch.setattr(module, "SUMS", sums)
    monkeypatch.setattr(sums_module, "TILE", tile)
    scores = silhouette_grid(X, labels, metric)
    for cell in (0, 1, 5):
        assert scores[cell] == pytest.approx(reference(X.astype(float), labels[cell], metric), abs=1e-6)
    assert scores[2] == scores[3] == -1
    assert scores[0] == scores[4]


def sampled_case(seed: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    fine = rng.integers(-1, 5, size=700)
    X = rng.normal(size=(6, 3))[fine] + 0.5 * rng.normal(size=(700, 3)) + 20
    return X, np.stack([fine, np.minimum(fine, 2), fine])


def test_sampled_silhouettes_are_unbiased_and_know_their_error() -> None:
    X, labels = sampled_case(0)
    exact = mean_silhouettes(X, labels)
    assert (exact.standard_error == 0).all()
    found = [mean_silhouettes(X, labels, sample_size=200, random_state=seed) for seed in range(200)]
    means, errors = (np.array(part) for part in zip(*found, strict=True))
    np.testing.assert_array_equal(means[:, 0], means[:, 2])
    off = (means - exact.mean)[:, :2] / errors[:, :2]
    assert np.abs(off.mean(axis=0)).max() < 4 / np.sqrt(200)
    np.testing.assert_allclose(off.std(axis=0), 1, atol=4 / np.sqrt(400))
    assert silhouette(X, labels[0], sample_size=200, random_state=3) == means[3, 0]


def test_a_sample_of_all_rows_is_exact_and_many_rows_are_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    X, labels = sampled_case(1)
    np.testing.assert_array_equal(mean_silhouettes(X, labels, sample_size=700), mean_silhouettes(X, labels))
    monkeypatch.setattr(module, "EXACT_ROWS", 699)
    monkeypatch.setattr(module, "SAMPLE_ROWS", 100)
    found = mean_silhouettes(X, labels)
    assert (found.standard_error > 0).all()
    np.testing.assert_array_equal(found, mean_silhouettes(X, labels, sample_size=100))
    assert len(module.sampled_rows(700)) == 100


@pytest.mark.parametrize("cuts", [[], [350], [1, 2, 600], [100, 200, 300, 400]])
def test_sums_over_shards_add_up_to_the_silhouettes(cuts: list[int]) -> None:
    X, labels = sampled_case(2)
    drawn = module.sampled_rows(700, 150, 5)
    n_clusters = labels.max(axis=1) + 2
    centred = (X - X.mean(axis=0)).astype(np.float32)
    shards = np.split(np.arange(700), cuts)
    sums = sum(
        sums_module.cluster_sums(centred[drawn], centred[rows], labels[:, rows], n_clusters)
        for rows in shards
    )
    sizes = sum(sums_module.cluster_sizes(labels[:, rows], n_clusters) for rows in shards)
    values = sums_module.coefficients(sums, sizes, labels[:, drawn], n_clusters)
    found = sums_module.mean_and_error(values, 700)
    np.testing.assert_allclose(found, mean_silhouettes(X, labels, sample_size=150, random_state=5), rtol=1e-5)


@pytest.mark.parametrize("s", [2, 3, 40, 50])
def test_the_standard_error_of_a_sample_without_replacement_is_corrected(s: int) -> None:
    values = np.random.default_rng(s).normal(size=(6, s))
    mean, error = sums_module.mean_and_error(values, 50)
    np.testing.assert_allclose(mean, values.mean(axis=1))
    np.testing.assert_allclose(error, sem(values, axis=1) * np.sqrt(1 - s / 50), atol=1e-15)


def test_equal_rows_have_no_distance() -> None:
    X = np.repeat(np.random.default_rng(0).normal(size=(3, 40)), 30, axis=0)
    labels = np.arange(3).repeat(30)
    for dtype in (np.float32, np.float64):
        assert silhouette(X.astype(dtype), labels) == 1
    assert silhouette(X, labels, sample_size=50) == 1


def test_silhouette_names_what_is_wrong() -> None:
    with pytest.raises(ValueError, match="metric is 'l1'"):
        silhouette(np.eye(3), np.array([0, 0, 1]), "l1")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="X has 3 rows"):
        silhouette(np.eye(3), np.array([0, 0, 1, 1]))
