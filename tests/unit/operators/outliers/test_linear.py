"""Standardised features of the evidence of damage."""

from __future__ import annotations

import numpy as np
import pytest

from operators.outliers.linear import Scaler


@pytest.mark.parametrize("unit", [2.0**-120, 2.0**-30, 1.0, 2.0**60])
def test_standardised_features_do_not_depend_on_the_unit(unit: float) -> None:
    X = np.random.default_rng(0).normal(size=(200, 3)).astype(np.float32)
    np.testing.assert_allclose(
        Scaler.fit(X * np.float32(unit))(X * np.float32(unit)), Scaler.fit(X)(X), atol=2e-3
    )


@pytest.mark.parametrize("value", [0.0, 0.1, -1e9, 1e-30])
def test_a_column_of_equal_values_is_0_everywhere(value: float) -> None:
    scaler = Scaler.fit(np.full((5000, 1), value, np.float32))
    assert scaler.inverse.tolist() == [0.0]
    assert scaler(np.array([[value], [7.0]], np.float32)).tolist() == [[0.0], [0.0]]


def test_the_smallest_numbers_give_finite_features() -> None:
    X = np.array([[0.0], [1e-45], [3e-45]], np.float32)
    assert np.isfinite(Scaler.fit(X)(X)).all()


def test_the_largest_numbers_give_finite_features() -> None:
    X = np.repeat(np.array([[-3e38], [3e38]], np.float32), [900, 100], axis=0)
    scaler = Scaler.fit(X)
    np.testing.assert_allclose(scaler(X)[[0, -1], 0], [-1 / 3, 3], rtol=1e-5)
    assert np.isfinite(Scaler(np.zeros(1, np.float32), np.full(1, 2.0, np.float32))(X)).all()
