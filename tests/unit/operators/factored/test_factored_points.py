"""Factored rows as points: the same distances as the flat rows they stand for."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from operators.factored import FactoredGradients, Layer
from operators.factored.points import FactoredPoints
from operators.metrics.silhouettes import mean_silhouettes
from operators.points import Points, rounding_error

METRICS = ["euclidean", "cosine", "centered_cosine"]


def gradients_of(seed, n=40, dtype=np.float64, layers=((5, 3, True), (4, 2, False))):
    random = np.random.default_rng(seed)
    return FactoredGradients(
        [
            Layer(
                random.normal(size=(n, k)).astype(dtype), random.normal(size=(n, c)).astype(dtype), True, bias
            )
            for k, c, bias in layers
        ]
    )


def prepared(gradients, metric):
    flat = gradients.flat().astype(np.float64)
    if metric == "centered_cosine":
        flat = flat - flat.mean(axis=0)
    return flat if metric == "euclidean" else flat / np.linalg.norm(flat, axis=1, keepdims=True)


@given(st.integers(0, 10_000), st.sampled_from(METRICS))
def test_products_halves_and_decisions_are_those_of_prepared_flat_rows(seed, metric):
    gradients = gradients_of(seed)
    points, rows = FactoredPoints(gradients, metric), np.arange(len(gradients))
    flat = prepared(gradients, metric) / points.unit
    np.testing.assert_allclose(points.products(rows, rows), flat @ flat.T, atol=1e-12)
    np.testing.assert_allclose(points.half, (flat**2).sum(axis=1) / 2, atol=1e-12)
    eps = 0.9 if metric != "euclidean" else 8.0
    i, j = np.triu_indices(len(rows), 1)
    radii = np.full(len(i), eps)
    expected = Points(gradients.flat(), metric).pairs_within(i, j, radii)
    np.testing.assert_array_equal(points.pairs_within(i, j, radii), expected)


@given(st.integers(0, 10_000), st.sampled_from(METRICS), st.sampled_from([np.float32, np.float64]))
def test_an_operand_errs_by_less_than_its_bound(seed, metric, dtype):
    gradients = gradients_of(seed, n=60, layers=((200, 3, True), (30, 20, True)))
    points, rows = FactoredPoints(gradients, metric), np.arange(60)
    operand, _ = points.operand(dtype)
    some = torch.from_numpy(np.random.default_rng(seed).integers(0, 60, 11))
    bias = torch.from_numpy(-points.half[some.numpy()].astype(dtype))
    out = torch.empty(60, 11, dtype=operand.scale.dtype)
    operand.multiply(operand.take(some), bias, out)
    exact = points.products(rows, some.numpy()) - points.half[some.numpy()]
    bound = rounding_error(points.depth, dtype) * (points.size[:, None] + points.size[some.numpy()])
    assert (np.abs(out.numpy() - exact) <= bound).all()


@given(st.integers(0, 10_000), st.sampled_from(METRICS))
def test_coordinates_bound_distances_from_below(seed, metric):
    gradients = gradients_of(seed)
    points, rows = FactoredPoints(gradients, metric), np.arange(len(gradients))
    random = np.random.default_rng(seed)
    at = points.coordinates(random.integers(0, len(rows), 20), random)
    apart = ((at[:, None] - at) ** 2).sum(axis=2) / 2
    gaps = points.half[:, None] + points.half - points.products(rows, rows)
    assert (apart <= gaps + 1e-6).all()
    assert apart.max() > 0


def test_a_row_equal_to_the_mean_has_no_direction():
    layer = Layer(np.array([[1.0], [3.0], [2.0]]), np.ones((3, 1)), weight=True, bias=False)
    points = FactoredPoints(FactoredGradients([layer]), "centered_cosine")
    assert points.scale[2] == 0
    np.testing.assert_allclose(points.products(np.arange(3), np.arange(3))[:2, :2], [[1, -1], [-1, 1]])


def test_unknown_metric_and_no_rows_are_refused():
    with pytest.raises(ValueError, match="manhattan"):
        FactoredPoints(gradients_of(0), "manhattan")
    with pytest.raises(ValueError, match="at least one row"):
        FactoredPoints(gradients_of(0)[:0], "cosine")


@given(st.integers(0, 10_000), st.sampled_from(METRICS), st.sampled_from([None, 15]))
def test_silhouettes_are_those_of_prepared_flat_rows(seed, metric, sample_size):
    gradients = gradients_of(seed)
    points = FactoredPoints(gradients, metric)
    labels = np.random.default_rng(seed).integers(-1, 3, size=(4, len(gradients)))
    flat = prepared(gradients, metric)
    expected = mean_silhouettes(flat, labels, sample_size=sample_size)
    found = mean_silhouettes(points, labels, sample_size=sample_size)
    np.testing.assert_allclose(found.mean, expected.mean, atol=1e-6)
    np.testing.assert_allclose(found.standard_error, expected.standard_error, atol=1e-6)


@pytest.mark.parametrize("metric", ["cosine", "centered_cosine"])
def test_distances_to_rows_without_a_direction_are_those_of_flat_rows(metric):
    """Rows of zeros, and rows that equal the mean."""
    rng = np.random.default_rng(0)
    # Whole numbers, so that the mean is exact.
    activations, errors = rng.integers(1, 9, (12, 3)).astype(float), rng.integers(1, 9, (12, 2)).astype(float)
    if metric == "cosine":
        errors[:4] = 0
    else:
        activations[6:], errors[6:] = activations[:6], -errors[:6]
        errors[[0, 1, 6, 7]] = 0
    gradients = FactoredGradients([Layer(activations, errors)])
    points, rows = FactoredPoints(gradients, metric), np.arange(12)
    flat = Points(gradients.flat(), metric).vectors.astype(np.float64)
    expected = np.linalg.norm(flat[:, None] - flat, axis=2)
    np.testing.assert_allclose(points.distances(rows, rows), expected, atol=1e-6)


@pytest.mark.parametrize("metric", ["cosine", "centered_cosine"])
@pytest.mark.parametrize("n_tiny", [1, 30, 60])
def test_errors_below_the_range_of_float32_keep_their_direction(metric, n_tiny):
    rng = np.random.default_rng(0)
    activations = 0.1 * rng.normal(size=(60, 4)) + np.eye(4)[np.arange(60) % 2]
    errors = np.tile([[1.0, -1.0]], (60, 1)).astype(np.float32)
    errors[:n_tiny] *= np.float32(1e-39)
    gradients = FactoredGradients([Layer(activations.astype(np.float32), errors)])
    points, rows = FactoredPoints(gradients, metric), np.arange(60)
    operand, half = points.operand(np.float32)
    out = torch.empty(60, 60, dtype=torch.float32)
    operand.multiply(operand, torch.from_numpy(-half), out)
    np.testing.assert_allclose(out.numpy(), points.products(rows, rows) - half, atol=1e-5)
