"""Merging groups with few rows: no group of fewer than asked for, joined to what is nearest."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from operators.groups.small_groups import centre_distances, least_rows, merge_small, to_groups


def test_a_speck_joins_the_nearest_group_not_the_largest() -> None:
    for at, expected in ((4.0, [0, 0, 1]), (7.0, [0, 1, 1])):
        apart = centre_distances(np.array([[0.0], [at], [10.0]]))
        assert merge_small([500, 3, 200], apart, 100).tolist() == expected


def test_specks_near_each_other_are_a_group_if_large_enough_together() -> None:
    centres = np.array([[0.0], [100.0], [101.0], [103.0]])
    assert merge_small([500, 40, 40, 40], centre_distances(centres), 100).tolist() == [0, 1, 1, 1]
    assert merge_small([500, 30, 30, 30], centre_distances(centres), 100).tolist() == [0, 0, 0, 0]


def test_distances_of_a_merged_group_are_the_least_of_its_clusters() -> None:
    """0 joins 1; together they are nearer to 3 (through 1) than to 2."""
    apart = centre_distances(np.array([[0.0], [5.0], [-8.0], [9.0]]))
    assert merge_small([1, 2, 100, 100], apart, 50).tolist() == [0, 0, 1, 0]


def test_a_cluster_of_unknown_distance_joins_the_largest() -> None:
    apart = np.full((3, 3), np.inf)
    assert merge_small([100, 400, 3], apart, 50).tolist() == [0, 1, 1]


@pytest.mark.parametrize("k", [2, 3, 4])
def test_clusters_of_one_size_without_distances_join_each_other(k: int) -> None:
    apart = np.full((k, k), np.inf)
    assert merge_small([50] * k, apart, 100 * k).tolist() == [0] * k
    assert min(np.bincount(merge_small([50] * k, apart, 100), [50] * k)) >= 100


def test_nothing_to_merge() -> None:
    assert merge_small([], np.empty((0, 0)), 10).tolist() == []
    assert merge_small([3], np.zeros((1, 1)), 10).tolist() == [0]
    assert merge_small([3, 4], np.ones((2, 2)), 0).tolist() == [0, 1]


def test_least_rows_is_the_larger_of_the_two() -> None:
    assert (least_rows(1000, 100, 0.005), least_rows(50_000, 100, 0.005)) == (100, 250)


def test_groups_of_rows_and_their_noise() -> None:
    labels = np.array([-1, 2, 0, 1], np.int32)
    assert to_groups(labels, [0, 1, 0]).tolist() == [-1, 0, 0, 1]
    assert to_groups(labels[:1], []).tolist() == [-1]
    assert to_groups(labels, None) is labels


@given(
    sizes=st.lists(st.integers(1, 300), min_size=1, max_size=25),
    least=st.integers(0, 400),
    seed=st.integers(0, 10**6),
)
def test_no_group_is_too_small_and_clusters_stay_whole(sizes: list[int], least: int, seed: int) -> None:
    centres = np.random.default_rng(seed).normal(size=(len(sizes), 3))
    group_of = merge_small(sizes, centre_distances(centres), least)
    rows = np.bincount(group_of, sizes)
    assert rows.sum() == sum(sizes)
    assert len(rows) == 1 or rows.min() >= least
    first = np.unique(group_of, return_index=True)[1]
    assert (np.diff(first) > 0).all()
    if min(sizes) >= least:
        assert group_of.tolist() == list(range(len(sizes)))


@pytest.mark.parametrize("scale", [0.1, 7.0])
def test_units_of_distance_do_not_matter(scale: float) -> None:
    centres = np.random.default_rng(1).normal(size=(12, 4))
    sizes = np.random.default_rng(2).integers(1, 200, 12)
    apart = centre_distances(centres)
    assert merge_small(sizes, apart, 90).tolist() == merge_small(sizes, apart * scale, 90).tolist()
