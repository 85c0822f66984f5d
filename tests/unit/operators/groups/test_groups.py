"""Kernels of group learning, against independent references."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.cluster import KMeans as Lloyd
from sklearn.metrics import adjusted_rand_score, silhouette_score
from threadpoolctl import threadpool_limits

from operators.groups.eiil import environments, penalty, scale_derivatives
from operators.groups.george import fit_george, place, reduced
from operators.groups.kmeans import fit_kmeans, nearest_centre
from operators.groups.params import GeorgeParams
from operators.groups.silhouette_choice import ScoredRows, keep_below_distinct


def blobs(n: int = 300, seed: int = 0, d: int = 4) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    which = rng.choice(3, n, p=[0.6, 0.25, 0.15])
    return (6 * np.eye(3, d)[which] + rng.normal(size=(n, d))).astype(np.float32), which


def test_kmeans_is_scikit_learns() -> None:
    X, _ = blobs()
    for k in (2, 3, 5):
        found = fit_kmeans(X, k, random_state=1)
        with threadpool_limits(limits=1):  # threads add up centres in the order in which they come
            expected = Lloyd(k, n_init=10, random_state=1).fit(X)
        np.testing.assert_array_equal(found.labels, expected.labels_)
        np.testing.assert_allclose(found.state["centres"], expected.cluster_centers_, rtol=1e-5, atol=1e-6)
        assert (found.n_groups, found.scores) == (k, {"k": k})


def test_kmeans_takes_the_k_with_the_largest_silhouette() -> None:
    X, which = blobs()
    found = fit_kmeans(X, [5, 2, 3, 4])
    silhouettes = {
        k: silhouette_score(X, Lloyd(k, n_init=10, random_state=0).fit_predict(X)) for k in (2, 3, 4, 5)
    }
    assert found.scores["k"] == max(silhouettes, key=silhouettes.__getitem__) == 3
    assert found.scores["silhouette"] == pytest.approx(silhouettes[3], abs=1e-6)
    assert adjusted_rand_score(which, found.labels) > 0.95


@given(st.integers(0, 10_000), st.integers(1, 6))
def test_nearest_centre_is_the_nearest(seed: int, k: int) -> None:
    rng = np.random.default_rng(seed)
    X, centres = rng.integers(-3, 4, (20, 2)).astype(np.float32), rng.integers(-3, 4, (k, 2)).astype(float)
    distances = ((X[:, None] - centres) ** 2).sum(axis=2)
    np.testing.assert_array_equal(nearest_centre(X, centres), distances.argmin(axis=1))


@pytest.mark.parametrize("rows", [[[1.0, 2.0]], [[1.0, 2.0]] * 5, [[0.0, 0.0], [1.0, 1.0]]])
def test_kmeans_without_enough_distinct_rows_is_one_group(rows: list[list[float]]) -> None:
    found = fit_kmeans(np.array(rows, np.float32), [2, 3])
    assert set(found.labels.tolist()) == {0}
    assert found.n_groups == 1


def test_numbers_of_clusters_that_the_rows_allow() -> None:
    X = np.array([[0, 0], [1, 0], [0, 0], [2, 1], [2, 1]], np.float32)
    assert keep_below_distinct(X, [2, 3, 4]) == [2]
    assert keep_below_distinct(X, [1, 2]) == [1, 2]
    assert keep_below_distinct(X[:1], [2]) == [1]


def test_silhouettes_are_scikit_learns_on_the_rows_drawn() -> None:
    X, which = blobs()
    sample = ScoredRows(X, 100, random_state=3)
    assert len(sample.rows) == 100
    assert (np.diff(sample.rows) > 0).all()
    expected = silhouette_score(X[sample.rows], which[sample.rows])
    assert sample.silhouettes([which, np.zeros_like(which)]) == pytest.approx([expected, -1], abs=1e-6)
    assert sample.coefficients(which).mean() == pytest.approx(expected, abs=1e-6)
    assert sample.coefficients(np.zeros_like(which)).tolist() == [0] * 100


def test_george_finds_planted_subclasses_and_places_its_own_rows_again() -> None:
    X, which = blobs(400)
    loss = np.where(which == 0, 0.1, 2.0) + 0.05 * np.random.default_rng(1).random(400)
    found = fit_george(X, loss.astype(np.float32), GeorgeParams(k=[2, 3, 4], overcluster=[1, 2]))
    assert adjusted_rand_score(which, found.labels) > 0.95
    assert found.scores["k"] == 3
    np.testing.assert_array_equal(place(found.state, reduced(found.state, X, loss)), found.labels)


def test_george_uses_the_loss_where_features_say_nothing() -> None:
    rng = np.random.default_rng(0)
    X, high = rng.normal(size=(200, 3)).astype(np.float32), np.arange(200) % 4 == 0
    loss = np.where(high, 30.0, 0.0) + 0.1 * rng.normal(size=200)
    labels = fit_george(X, loss, GeorgeParams(k=2, overcluster=1)).labels
    assert adjusted_rand_score(high, labels) == 1.0


def test_georges_over_clusters_become_groups_only_if_large_and_compact() -> None:
    X, _ = blobs(400)
    loss = np.zeros(400)
    first = fit_george(X, loss, GeorgeParams(k=2, overcluster=1)).labels
    kept = fit_george(X, loss, GeorgeParams(k=2, overcluster=3, min_rows=40))
    sizes = np.bincount(kept.labels, minlength=kept.n_groups)
    assert 2 < kept.n_groups < 2 + 3 * 2
    assert (sizes[2:] >= 40).all()
    inherited = kept.labels < 2
    np.testing.assert_array_equal(kept.labels[inherited], first[inherited])
    none = fit_george(X, loss, GeorgeParams(k=2, overcluster=3, min_rows=1000))
    np.testing.assert_array_equal(none.labels, first)


@pytest.mark.parametrize("n", [1, 2, 5])
def test_george_on_few_or_equal_rows_is_one_group(n: int) -> None:
    found = fit_george(np.ones((n, 2), np.float32), np.ones(n), GeorgeParams())
    assert found.labels.tolist() == [0] * n


def test_derivative_of_the_scale_is_torchs() -> None:
    rng = np.random.default_rng(0)
    Z, y = 5 * rng.normal(size=(50, 4)), rng.integers(0, 4, 50)
    scale = torch.ones(50, dtype=torch.float64, requires_grad=True)
    loss = torch.nn.functional.cross_entropy(
        scale[:, None] * torch.tensor(Z), torch.tensor(y), reduction="sum"
    )
    loss.backward()
    assert scale.grad is not None
    np.testing.assert_allclose(scale_derivatives(Z, y), scale.grad.numpy(), atol=1e-12)


@settings(max_examples=5)
@given(st.integers(0, 10_000))
def test_ascent_from_anywhere_ends_at_the_signs(seed: int) -> None:
    """Plain gradient ascent on the soft IRM penalty over all rows, until each has chosen."""
    rng = np.random.default_rng(seed)
    g = rng.choice([-1, 1], 20) * rng.uniform(0.2, 2, 20)
    a = rng.normal(size=20)
    for _ in range(3000):
        q = 1 / (1 + np.exp(-a))
        a += (q @ g - (1 - q) @ g) * g * q * (1 - q)
    q = 1 / (1 + np.exp(-a))
    assert (np.minimum(q, 1 - q) < 0.05).all()
    ended, signs = q > 0.5, environments(g)
    assert (ended == signs).all() or (ended == ~signs).all()
    reached = ((q @ g) ** 2 + ((1 - q) @ g) ** 2) / (2 * 20**2)
    assert reached == pytest.approx(penalty(g[g > 0].sum(), g[g < 0].sum(), 20), rel=0.05)


@given(st.integers(0, 10_000))
def test_no_soft_partition_has_a_larger_penalty(seed: int) -> None:
    rng = np.random.default_rng(seed)
    g, q = rng.normal(size=12), rng.random(12)
    any_penalty = ((q @ g) ** 2 + ((1 - q) @ g) ** 2) / (2 * 12**2)
    assert any_penalty <= penalty(g[g > 0].sum(), g[g < 0].sum(), 12) + 1e-12


@given(st.integers(0, 10_000))
def test_with_two_classes_the_environments_are_right_and_wrong(seed: int) -> None:
    rng = np.random.default_rng(seed)
    Z, y = rng.normal(size=(30, 2)), rng.integers(0, 2, 30)
    np.testing.assert_array_equal(environments(scale_derivatives(Z, y)), Z.argmax(axis=1) != y)
