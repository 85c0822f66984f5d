"""Factored gradients against the flat ones they stand for."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from operators.factored import FactoredGradients, Layer


@st.composite
def factored(draw):
    n = draw(st.integers(1, 30))
    random = np.random.default_rng(draw(st.integers(0, 1000)))
    dtype = draw(st.sampled_from([np.float32, np.float64]))
    layers = []
    for _ in range(draw(st.integers(1, 3))):
        k, c = draw(st.integers(1, 6)), draw(st.integers(1, 5))
        weight, bias = draw(st.sampled_from([(True, True), (True, False), (False, True)]))
        a, d = random.normal(size=(n, k)).astype(dtype), random.normal(size=(n, c)).astype(dtype)
        layers.append(Layer(a, d, weight, bias))
    return FactoredGradients(layers)


@given(factored(), st.integers(0, 100))
def test_products_are_those_of_the_flat_rows(gradients, seed):
    flat = gradients.flat().astype(np.float64)
    assert flat.shape == gradients.shape
    some = np.random.default_rng(seed).integers(0, len(gradients), 7)
    np.testing.assert_allclose(gradients.products(gradients[some]), flat @ flat[some].T, atol=1e-4)
    np.testing.assert_allclose(gradients.squared_norms(), (flat**2).sum(axis=1), atol=1e-4)
    pairs = gradients[some].pair_products(gradients[some[::-1]])
    np.testing.assert_allclose(pairs, (flat[some] * flat[some[::-1]]).sum(axis=1), atol=1e-4)


@given(factored())
def test_mean_is_that_of_the_flat_rows(gradients):
    flat = gradients.flat().astype(np.float64)
    mean = gradients.mean()
    np.testing.assert_allclose(mean.products(gradients), flat @ flat.mean(axis=0), atol=1e-4)
    np.testing.assert_allclose(mean.squared_norm(), (flat.mean(axis=0) ** 2).sum(), atol=1e-4)


def test_layers_of_other_lengths_are_refused():
    with pytest.raises(ValueError, match=r"\[2, 3\] rows"):
        FactoredGradients([Layer(np.ones((2, 1)), np.ones((3, 1)))])
    with pytest.raises(ValueError, match="layer 0 has neither"):
        FactoredGradients([Layer(np.ones((2, 1)), np.ones((2, 1)), weight=False, bias=False)])


def test_a_value_that_is_not_finite_is_named():
    activations = np.ones((3, 2))
    activations[1, 0] = np.nan
    with pytest.raises(ValueError, match="row 1 of layer 0"):
        FactoredGradients([Layer(activations, np.ones((3, 2)))]).check_finite()
