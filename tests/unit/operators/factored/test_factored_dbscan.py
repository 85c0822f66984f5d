"""DBSCAN of factored gradients: the labels of the flat rows they stand for."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from operators.dbscan import DBSCAN, kernel
from operators.factored import FactoredGradients, Layer
from operators.factored.points import FactoredPoints


def head_gradients(seed, n, n_classes=4, width=12, dtype=np.float32):
    """Gradients of a head: a dominant cluster, smaller ones, and rows that belong to none."""
    random = np.random.default_rng(seed)
    which = np.minimum(random.geometric(0.6, n) - 1, 3)
    activations = random.normal(size=(4, width))[which] + random.normal(scale=0.4, size=(n, width))
    logits = random.normal(size=(4, n_classes))[which] + random.normal(scale=0.4, size=(n, n_classes))
    errors = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    errors[:, 0] -= 1
    return FactoredGradients([Layer(activations.astype(dtype), errors.astype(dtype))])


@given(
    st.integers(0, 10_000),
    st.integers(2, 400),
    st.sampled_from(["euclidean", "cosine", "centered_cosine"]),
    st.floats(0.02, 1.2),
    st.integers(1, 30),
    st.sampled_from([np.float32, np.float64]),
)
def test_labels_are_those_of_the_flat_rows(seed, n, metric, eps, min_samples, dtype):
    gradients = head_gradients(seed, n, dtype=dtype)
    factored = DBSCAN(eps, min_samples, metric).fit(gradients)
    flat = DBSCAN(eps, min_samples, metric).fit(gradients.flat().astype(np.float64))
    np.testing.assert_array_equal(factored.labels_, flat.labels_)
    np.testing.assert_array_equal(factored.core_sample_indices_, flat.core_sample_indices_)
    assert factored.n_features_in_ == flat.n_features_in_


def test_labels_of_a_grid_on_more_rows_than_samples_settle():
    gradients = head_gradients(3, 3000, dtype=np.float64)
    grid = [0.1, 0.3, 0.6], [5, 20, 100]
    labels, cores = kernel.cluster(FactoredPoints(gradients, "centered_cosine"), *grid)
    for e, eps in enumerate(grid[0]):
        for m, least in enumerate(grid[1]):
            flat = DBSCAN(eps, least, "centered_cosine").fit(gradients.flat())
            np.testing.assert_array_equal(labels[e, m], flat.labels_)
            np.testing.assert_array_equal(np.flatnonzero(cores[e, m]), flat.core_sample_indices_)


def test_several_layers_and_weights_of_rows():
    random = np.random.default_rng(0)
    one, other = head_gradients(1, 300), head_gradients(2, 300, 3, 7)
    gradients = FactoredGradients(
        [*one.layers, Layer(other.layers[0].activations, other.layers[0].errors, True, False)]
    )
    weight = random.integers(0, 3, 300)
    found = DBSCAN(0.15, 10, "cosine").fit(gradients, sample_weight=weight).labels_
    flat = DBSCAN(0.15, 10, "cosine").fit(gradients.flat(), sample_weight=weight).labels_
    np.testing.assert_array_equal(found, flat)
    assert found.max() >= 1


def test_approximate_neighbours_of_factored_rows_are_refused():
    with pytest.raises(ValueError, match="neighbours='exact'"):
        DBSCAN(neighbours="ivf").fit(head_gradients(0, 20))


def test_a_row_that_is_not_finite_is_named():
    gradients = head_gradients(0, 20)
    gradients.layers[0].errors[7, 1] = np.nan
    with pytest.raises(ValueError, match="row 7 of layer 0"):
        DBSCAN().fit(gradients)
