"""DBSCAN against scikit-learn's, label for label, on data whose distances are exact in float64."""

import math
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import sklearn.cluster
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.exceptions import EfficiencyWarning

from operators import points as points_module
from operators.dbscan import DBSCAN, dbscan_grid
from operators.dbscan import density as density_module
from operators.dbscan import tiles as tiles_module

DTYPES = st.sampled_from([np.float32, np.float64])
MIN_SAMPLES = st.integers(1, 8)

# Squared distances of a small grid are whole numbers, so these radii meet many of them exactly.
GRID_EPS = st.sampled_from([0.5, 1.0, math.sqrt(2), 2.0, 2.5, 3.0, 5.0, 100.0])
# Unit rows with entries 0, 1/2, 1: every cosine is a multiple of 1/4 and these radii are ties.
COSINE_EPS = st.sampled_from([0.125, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0, 3.0])


@pytest.fixture(autouse=True, scope="module", params=["all pairs", "search"])
def search(request: pytest.FixtureRequest) -> Iterator[None]:
    """Few rows have all their pairs compared; they are searched as many would be, too."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "search":
            patch.setattr(density_module, "MAX_ROWS", 0)
        yield


def integer_rows(max_rows: int = 25) -> st.SearchStrategy[Any]:
    shape = st.tuples(st.integers(1, max_rows), st.integers(1, 3))
    return shape.flatmap(lambda s: arrays(np.int64, s, elements=st.integers(-3, 3)))


@st.composite
def exact_directions(draw: st.DrawFn) -> Any:
    """Rows in 4-d along an axis, along (+-1, +-1, +-1, +-1), or zero: unit rows without rounding."""
    n = draw(st.integers(1, 25))
    axis = st.tuples(st.integers(0, 3), st.sampled_from([-1, 1])).map(lambda a: np.eye(4)[a[0]] * a[1])
    diagonal = arrays(np.float64, 4, elements=st.sampled_from([-1.0, 1.0]))
    zero = st.just(np.zeros(4))
    rows = draw(st.lists(st.one_of(axis, diagonal, zero), min_size=n, max_size=n))
    lengths = draw(st.lists(st.sampled_from([1.0, 2.0, 8.0, 0.25]), min_size=n, max_size=n))
    return np.array(rows) * np.array(lengths)[:, None]


def assert_same(ours: DBSCAN, theirs: Any) -> None:
    np.testing.assert_array_equal(ours.labels_, theirs.labels_)
    np.testing.assert_array_equal(ours.core_sample_indices_, theirs.core_sample_indices_)


@given(integer_rows(), GRID_EPS, MIN_SAMPLES, DTYPES)
def test_euclidean_on_integer_grids(X: Any, eps: float, min_samples: int, dtype: Any) -> None:
    X = X.astype(dtype)
    theirs = sklearn.cluster.DBSCAN(eps=eps, min_samples=min_samples).fit(X.astype(np.float64))
    assert_same(DBSCAN(eps, min_samples).fit(X), theirs)


@given(exact_directions(), COSINE_EPS, MIN_SAMPLES, DTYPES)
def test_cosine_with_ties_and_zero_rows(X: Any, eps: float, min_samples: int, dtype: Any) -> None:
    X = X.astype(dtype)
    theirs = sklearn.cluster.DBSCAN(eps=eps, min_samples=min_samples, metric="cosine").fit(X)
    assert_same(DBSCAN(eps, min_samples, "cosine").fit(X), theirs)


@given(exact_directions(), arrays(np.int64, 4, elements=st.integers(-9, 9)), COSINE_EPS, MIN_SAMPLES)
def test_centred_cosine_subtracts_the_mean(X: Any, mean: Any, eps: float, min_samples: int) -> None:
    X = np.vstack([X, -X])
    theirs = sklearn.cluster.DBSCAN(eps=eps, min_samples=min_samples, metric="cosine").fit(X)
    assert_same(DBSCAN(eps, min_samples, "centered_cosine").fit(X + mean), theirs)


@given(integer_rows(), GRID_EPS, MIN_SAMPLES, st.data())
def test_sample_weight(X: Any, eps: float, min_samples: int, data: st.DataObject) -> None:
    weight = data.draw(arrays(np.int64, len(X), elements=st.integers(0, 6)))
    assume(weight.any())  # scikit-learn refuses weights that are all zero
    theirs = sklearn.cluster.DBSCAN(eps=eps, min_samples=min_samples).fit(X, sample_weight=weight)
    assert_same(DBSCAN(eps, min_samples).fit(X, sample_weight=weight), theirs)


@given(
    integer_rows(),
    st.lists(GRID_EPS, min_size=1, max_size=4),
    st.lists(MIN_SAMPLES, min_size=1, max_size=4),
)
def test_grid_equals_single_fits(X: Any, eps_values: list[float], min_samples_values: list[int]) -> None:
    X = X.astype(np.float64)
    labels = dbscan_grid(X, eps_values, min_samples_values)
    assert labels.dtype == np.int32
    for e, eps in enumerate(eps_values):
        for m, min_samples in enumerate(min_samples_values):
            theirs = sklearn.cluster.DBSCAN(eps=eps, min_samples=min_samples).fit(X)
            np.testing.assert_array_equal(labels[e, m], theirs.labels_)


@given(integer_rows(16), GRID_EPS, MIN_SAMPLES, st.integers(1, 7), DTYPES)
def test_any_tile_size(X: Any, eps: float, min_samples: int, tile: int, dtype: Any) -> None:
    X = X.astype(dtype)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tiles_module, "TILE_ROWS", tile)
        patch.setattr(tiles_module, "TILE_COLS", 64)
        patch.setattr(points_module, "PANEL", 1)
        patch.setattr(points_module, "PAIRS_AT_ONCE", 5)
        ours = DBSCAN(eps, min_samples).fit(X)
    # scikit-learn rounds float32 at sqrt(2): give it float64.
    assert_same(ours, sklearn.cluster.DBSCAN(eps=eps, min_samples=min_samples).fit(X.astype(np.float64)))


@pytest.mark.parametrize("metric", ["euclidean", "cosine", "centered_cosine"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n_features", [2, 30, 1500])
def test_random_clusters(metric: Any, dtype: Any, n_features: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiles_module, "TILE_ROWS", 128)
    rng = np.random.default_rng(n_features)
    centres = rng.normal(size=(5, n_features))
    X = centres[rng.integers(5, size=700)] + 0.6 * rng.normal(size=(700, n_features))
    X[:20], X[20:40], X[40:45] = X[100], 3 * rng.normal(size=(20, n_features)), 0
    X = X.astype(dtype)
    exact = X.astype(np.float64)
    if metric == "centered_cosine":
        exact = exact - exact.mean(0)
    name = "euclidean" if metric == "euclidean" else "cosine"
    distances = sklearn.metrics.pairwise_distances(exact, metric=name)
    np.fill_diagonal(distances, 0)
    found = set()
    for eps in np.quantile(distances[distances > 0], [0.001, 0.01, 0.05, 0.2]):
        eps = eps * (1 + 1e-9)  # just off the distance that the quantile hits
        for min_samples in (2, 5, 20) if n_features < 1500 else (2, 20):
            theirs = sklearn.cluster.DBSCAN(eps=eps, min_samples=min_samples, metric="precomputed").fit(
                distances
            )
            assert_same(DBSCAN(eps, min_samples, metric).fit(X), theirs)
            found.add((theirs.labels_.max(), -1 in theirs.labels_))
    assert len(found) > 2  # the cells differ, or the test compares nothing


def test_near_ties_are_decided_in_float64() -> None:
    """Gaps that differ from eps by less than float32 products resolve."""
    offsets = np.cumsum([0, 1, 1, 1.0000002, 1, 1.0000002, 1])
    X = np.column_stack([offsets, np.full(7, 1000.0)])
    np.testing.assert_array_equal(DBSCAN(1.0, 2).fit(X).labels_, [0, 0, 0, 1, 1, 2, 2])
    wide = np.array([[0.0], [1.0], [4097.0], [4098.0], [4099.000488]], np.float32)
    np.testing.assert_array_equal(DBSCAN(1.0, 2).fit(wide).labels_, [0, 0, 1, 1, -1])


@pytest.mark.parametrize("scale", [1e-30, 1e-12, 1e12, 1e30])
def test_extreme_scales_do_not_over_or_underflow(scale: float) -> None:
    X = (np.array([[0.0], [1], [2], [10], [11], [12], [99]]) * scale).astype(np.float32)
    np.testing.assert_array_equal(DBSCAN(1.5 * scale, 2).fit(X).labels_, [0, 0, 0, 1, 1, 1, -1])


def test_identical_rows_have_no_direction_once_centred() -> None:
    X = np.full((11, 3), 0.1)
    np.testing.assert_array_equal(DBSCAN(0.5, 2, "centered_cosine").fit(X).labels_, np.full(11, -1))
    np.testing.assert_array_equal(DBSCAN(0.5, 2, "cosine").fit(X).labels_, np.zeros(11))


def test_a_row_equal_to_the_mean_has_no_direction() -> None:
    # Decimals for which subtracting the mean in float64 leaves some 1e-16, not zero.
    X = np.repeat([[-2.3, -0.6], [7.3, 6.6], [2.5, 3.0]], [5, 5, 3], axis=0)
    labels = DBSCAN(0.5, 2, "centered_cosine").fit(X).labels_
    np.testing.assert_array_equal(labels, [0] * 5 + [1] * 5 + [-1] * 3)


@pytest.mark.filterwarnings("error")
def test_a_radius_beyond_all_rows_joins_them() -> None:
    X = np.array([[0.0], [1], [1e-3]], np.float32)
    np.testing.assert_array_equal(DBSCAN(1e30, 2).fit(X).labels_, [0, 0, 0])


@pytest.mark.parametrize(
    ("parameters", "says"),
    [
        ({"eps": 0}, "eps is 0"),
        ({"eps": -0.5}, "eps is -0.5"),
        ({"min_samples": 0}, "min_samples is 0"),
        ({"metric": "l1"}, "metric is 'l1'"),
        ({"metric": "precomputed", "neighbours": "ivf"}, "neighbours is 'ivf' and metric is 'precomputed'"),
    ],
)
def test_bad_parameters_are_named(parameters: Any, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        DBSCAN(**parameters).fit(np.eye(3))


@pytest.mark.parametrize("weight", [[1, 0.5, 1], [1, -1, 1], [1, np.nan, 1]])
def test_weights_that_count_no_rows_are_refused(weight: list[float]) -> None:
    with pytest.raises(ValueError, match="sample_weight"):
        DBSCAN().fit(np.eye(3), sample_weight=weight)


@given(integer_rows(), GRID_EPS, MIN_SAMPLES, st.booleans(), st.booleans())
def test_precomputed_distances(X: Any, eps: float, min_samples: int, sparse: bool, weighted: bool) -> None:
    distances = sklearn.metrics.pairwise_distances(X)
    weight = 1 + np.arange(len(X)) % 3 if weighted else None
    # A sparse matrix lists the neighbours: a pair that it leaves out is no pair, whatever its distance.
    given = scipy.sparse.csr_array(np.where(distances <= 2, distances, 0)) if sparse else distances
    theirs = sklearn.cluster.DBSCAN(eps=eps, min_samples=min_samples, metric="precomputed")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EfficiencyWarning)
        theirs.fit(given, sample_weight=weight)
        ours = DBSCAN(eps, min_samples, "precomputed").fit(given, sample_weight=weight)
    assert_same(ours, theirs)
    if not sparse:
        assert_same(ours, DBSCAN(eps, min_samples).fit(X, sample_weight=weight))


def test_precomputed_distances_must_be_square() -> None:
    with pytest.raises(ValueError, match=r"shape \(4, 3\).*one row and one column for each"):
        DBSCAN(metric="precomputed").fit(np.ones((4, 3)))
