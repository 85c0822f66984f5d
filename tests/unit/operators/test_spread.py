"""Mean and scale of columns in any unit, and which of them are constant."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from operators.eos.kernel import moments
from operators.spread import mean_and_scale, usable_scale


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_digits_are_those_of_the_plain_formula(dtype: Any) -> None:
    rng = np.random.default_rng(0)
    rows = (rng.normal(size=(300, 4)) * [1, 1e3, 1e-5, 7] + [0, 5, 1, 1e4]).astype(dtype)
    plain, weight = rows.astype(np.float64), rng.random(300)
    mean, scale = mean_and_scale(rows)
    np.testing.assert_array_equal(mean, plain.mean(axis=0))
    np.testing.assert_array_equal(scale, plain.std(axis=0))
    mean, scale = mean_and_scale(rows, weight)
    variance = np.average((plain - np.average(plain, axis=0, weights=weight)) ** 2, axis=0, weights=weight)
    np.testing.assert_array_equal(scale, np.sqrt(variance))


@pytest.mark.parametrize("unit", [1e-200, 1e-40, 1e-13, 1.0, 1e13, 1e200])
def test_a_unit_makes_no_column_constant(unit: float) -> None:
    rows = np.random.default_rng(0).normal(size=(100, 2))
    np.testing.assert_allclose(mean_and_scale(rows * unit)[1], rows.std(axis=0) * unit, rtol=1e-9)
    np.testing.assert_allclose(moments(rows * unit, np.ones(100))[1], rows.std(axis=0) * unit, rtol=1e-9)


@pytest.mark.parametrize("value", [0.0, 0.1, 123.456, -1e9, 1e-30])
def test_equal_values_are_constant(value: float) -> None:
    """The float32 deviation of a column of .1 is not 0, and neither is the float64 one of many values."""
    rows = np.full((5000, 1), value, np.float32)
    assert mean_and_scale(rows)[1].tolist() == [1.0]
    assert mean_and_scale(rows.astype(np.float64), np.arange(1.0, 5001.0))[1].tolist() == [1.0]
    assert usable_scale(np.array([1e-18]), [value], [value], constant=np.inf).tolist() == [np.inf]


def test_values_next_to_each_other_differ() -> None:
    rows = np.array([[1e8], [1e8], [np.nextafter(1e8, 2e8)]])
    assert 0 < mean_and_scale(rows)[1][0] < np.spacing(1e8)
