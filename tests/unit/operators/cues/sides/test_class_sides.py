"""Which class a value stands for, and the factors that balance what values stand for."""

import numpy as np
import pytest

from operators.cues.named.named_sides import fit_sides
from operators.cues.settings import Named
from operators.cues.sides.class_sides import (
    classes_of_levels,
    equal_factors,
    independent_factors,
    independent_shares,
)


def rows_of(count):
    """Return label and level of the rows that a table (C, L) of counts describes."""
    C, L = count.shape
    label, level = np.repeat(np.divmod(np.arange(C * L), L), count.ravel(), axis=1)
    return label, level


def test_equal_factors_leave_empty_sides_and_lone_sides_alone():
    table = equal_factors(np.array([[30.0, 10.0, 0.0], [5.0, 0.0, 0.0]]))
    assert np.allclose(table, [[40 / 60, 2.0, 1.0], [1.0, 1.0, 1.0]])


def test_equal_factors_of_shares_are_those_of_rows_to_the_bit():
    rng = np.random.default_rng(5)
    rows = rng.integers(1, 100_000, 5000)
    share = rng.integers(0, rows + 1) / rows
    found = equal_factors(np.column_stack([1.0 - share, share]))
    with np.errstate(divide="ignore"):
        above = np.where((share > 0) & (share < 1), np.minimum(0.5 / share, 20.0), 1.0)
    assert np.array_equal(found[:, 1], above)


def test_a_value_stands_for_its_most_over_represented_class_or_for_none():
    count = np.array([[90, 5, 30, 0], [10, 45, 15, 0]])
    y, level = rows_of(count)
    # Shares of the classes: .72 and .14 of the first, .04 and .64 of the second, .24 and .21 of the third.
    assert classes_of_levels(level, 4, y, 2).tolist() == [0, 1, 2, 2]


@pytest.mark.parametrize(("rows", "stands"), [(650, 2), (670, 0)])
def test_it_stands_from_four_thirds_of_an_equal_part_on(rows, stands):
    count = np.array([[rows, 9_000 - rows], [330, 8_670]])
    y, level = rows_of(count)
    assert classes_of_levels(level, 2, y, 2)[0] == stands, "2 / 3 of the rows of both classes"


def test_a_class_without_rows_does_not_count():
    y, level = rows_of(np.array([[80, 20], [0, 0], [20, 80]]))
    assert classes_of_levels(level, 2, y, 3).tolist() == [0, 2]


def test_weighted_rows_of_all_classes_have_the_same_sides():
    count = np.array([[80, 10, 10], [20, 60, 20]])
    y, side = rows_of(count)
    factor = independent_factors(side, y, 2)
    assert factor.shape == (2, 3)
    weighted = factor * count / count.sum(axis=1, keepdims=True)
    assert np.allclose(weighted, [[0.5, 0.35, 0.15]] * 2)


def test_sides_that_a_class_lacks_take_nothing_from_the_proportions_of_its_others():
    share = np.array([[0.5, 0.5, 0.0], [0.2, 0.2, 0.6], [0.0, 0.0, 0.0]])
    expected = np.array([[0.5, 0.5, 0.0], [0.35, 0.35, 0.3], [0.0, 0.0, 0.0]])
    assert np.allclose(independent_shares(share), expected)


def test_a_factor_is_bounded_and_one_where_there_are_no_rows():
    y, side = rows_of(np.array([[9_999, 1, 0], [1, 9_999, 0]]))
    factor = independent_factors(side, y, 2)
    assert factor[0, 1] == factor[1, 0] == 20.0
    assert factor[:, 2].tolist() == [1.0, 1.0]


def test_a_value_that_goes_with_the_classes_by_chance_stands_for_none():
    rng = np.random.default_rng(0)
    for _ in range(50):
        y, missing = rng.integers(0, 20, 2000), rng.random(2000) < 0.1
        assert classes_of_levels(missing.astype(int), 2, y, 20, least=0.0)[1] == 20


def test_a_named_category_is_balanced_where_it_goes_with_the_classes_but_weakly():
    rng = np.random.default_rng(1)
    y = rng.integers(0, 2, 4000)
    value = np.where(rng.random(4000) < 0.62, y, 1 - y)
    sides = fit_sides(Named((0, 1)), np.eye(2)[value], y, 2, 0.0)
    w = sides.apply(np.eye(2)[value], y)
    total = np.bincount(2 * y + value, w).reshape(2, 2)
    share = total / total.sum(axis=1, keepdims=True)
    assert np.allclose(share[0], share[1])
