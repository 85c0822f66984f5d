"""The largest group of each class, against a sort of all of them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from operators.weights.kernel import largest_groups

keys = st.tuples(st.integers(0, 2), st.integers(0, 5))


@given(st.dictionaries(keys, st.integers(1, 3), min_size=1, max_size=12))
def test_of_equal_groups_the_lowest_is_the_largest(sizes: dict[tuple[int, int], int]) -> None:
    expected = {}
    for value in {value for value, _ in sizes}:
        found = [key for one, key in sizes if one == value]
        expected[value] = sorted(found, key=lambda key, value=value: (-sizes[value, key], key))[0]
    assert largest_groups(sizes) == expected
