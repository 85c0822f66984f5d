"""The rule of class balance that ``weights`` and ``cues`` share."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from operators.class_shares import class_factors, class_shares

counts = st.lists(st.integers(0, 10_000), min_size=1, max_size=8)


@given(counts=counts, least=st.integers(1, 200), strength=st.floats(0, 1))
def test_factors_have_mean_one_and_give_the_shares(counts: list[int], least: int, strength: float) -> None:
    rows = np.array(counts)
    shares, factors = class_shares(rows, least, strength), class_factors(rows, least, strength)
    assert np.isfinite(factors).all()
    if rows.sum():
        assert shares.sum() == pytest.approx(1)
        np.testing.assert_allclose(factors * rows / rows.sum(), shares, rtol=1e-9)


@given(counts=counts, least=st.integers(1, 200))
def test_a_class_with_more_rows_never_has_a_smaller_share(counts: list[int], least: int) -> None:
    rows = np.sort(counts)
    shares = class_shares(rows, least)
    assert (np.diff(shares) >= -1e-12).all()
    full = max(min(least, 0.25 * rows.sum() / max((rows > 0).sum(), 1)), 1)
    large = class_factors(rows, least)[rows >= full]
    assert (np.diff(large) <= 1e-9).all()
    if rows.sum():
        assert (class_factors(rows, least) >= large.min() - 1e-9).all()


def test_classes_of_enough_rows_or_of_equal_size_share_alike() -> None:
    assert class_shares(np.array([100_000, 500])).tolist() == [0.5, 0.5]
    np.testing.assert_allclose(class_shares(np.array([8, 8, 8, 8])), 0.25)


def test_strength_zero_gives_every_row_the_same_weight() -> None:
    assert class_factors(np.array([900, 4]), strength=0.0).tolist() == [1.0, 1.0]


def test_a_class_too_small_to_be_estimated_has_a_share_that_falls_with_the_square_of_its_rows() -> None:
    rows = np.array([2751, 1440, 9])
    part = (9 / 50) ** 2
    np.testing.assert_allclose(class_shares(rows), np.array([1.0, 1.0, part]) / (2 + part))
    np.testing.assert_allclose(class_shares(np.array([2751, 1440, 49]))[2], 0.96 / 2.96, rtol=1e-3)
    assert class_factors(np.array([400, 300, 1]))[2] == class_factors(np.array([400, 300, 1]))[0]
