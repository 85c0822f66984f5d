"""The search for neighbours against scikit-learn's, and its guarantees."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.neighbors import NearestNeighbors

from operators.arrays import Float32
from operators.outliers.neighbours import CLIP, NeighbourTable, clip_features, principal_basis


def table_of(Z: Float32, m: int, n_classes: int = 3, k: int = 15) -> NeighbourTable:
    """The first m rows as sample, with random labels and shuffled ids."""
    rng = np.random.default_rng(1)
    basis = principal_basis(Z)
    labels, ids = rng.integers(0, n_classes, m), rng.permutation(len(Z))[:m]
    return NeighbourTable(basis, clip_features(Z[:m]) @ basis, labels, ids, n_classes, k)


@pytest.mark.parametrize(("m", "d"), [(40, 3), (700, 20), (2300, 80)])
def test_neighbours_are_those_of_an_exhaustive_search_without_the_row_itself(m: int, d: int) -> None:
    Z = np.random.default_rng(0).normal(size=(m + 30, d)).astype(np.float32)
    table = table_of(Z, m)
    rows = np.arange(m - 30, m + 30)
    ids = np.where(rows < m, table.ids[np.minimum(rows, m - 1)], -5)
    votes, distance = table.search(Z[rows], ids, np.arange(60))
    near, found = (
        NearestNeighbors(n_neighbors=16, algorithm="brute")
        .fit(table.points)
        .kneighbors(clip_features(Z[rows]) @ table.basis)
    )
    mix = np.bincount(table.labels, minlength=3) / m
    same = 0
    for i in range(60):
        others = np.flatnonzero(table.ids[found[i]] != ids[i])[:15]
        expected = np.bincount(table.labels[found[i, others]], minlength=3) + mix
        same += np.allclose(votes[i], expected / 16)
        assert distance[i] == pytest.approx(near[i, others].mean(), rel=0.01)
    assert same >= 50


def test_bits_depend_on_no_other_row_of_the_search() -> None:
    Z = np.random.default_rng(0).normal(size=(1500, 30)).astype(np.float32)
    table, ids = table_of(Z, 1200), np.arange(1500)
    votes, distance = table.search(Z[:512], ids[:512], np.arange(512))
    for wanted in (np.array([3]), np.arange(5, 512, 7), np.arange(100, 300)):
        again = table.search(Z[:512], ids[:512], wanted)
        np.testing.assert_array_equal(again[0], votes[wanted])
        np.testing.assert_array_equal(again[1], distance[wanted])
    with_order = NeighbourTable(table.basis, table.points[::-1], table.labels[::-1], table.ids[::-1], 3, 15)
    np.testing.assert_array_equal(with_order.search(Z[:512], ids[:512], np.arange(512))[0], votes)


def test_equal_rows_share_the_votes_and_products_are_exact() -> None:
    rng = np.random.default_rng(0)
    Z = (rng.random((3000, 4)) < 0.5).astype(np.float32)
    labels = (Z[:, 0] + rng.integers(0, 2, 3000)).astype(np.int64)
    table = NeighbourTable(np.eye(4, dtype=np.float32), Z, labels, np.arange(3000), 3, 15)
    votes, distance = table.search(Z[:20], np.arange(20), np.arange(20))
    for i in range(20):
        equal = (Z[i] == Z).all(axis=1) & (np.arange(3000) != i)
        shares = np.bincount(labels[equal], minlength=3) / equal.sum()
        np.testing.assert_allclose(votes[i] * 16 - np.bincount(labels) / 3000, 15 * shares, atol=1e-9)
    assert distance.max() < 0.01
    far = np.full((1, 4), 1e6, np.float32)
    _, beyond = table.search(far, np.array([-5]), np.arange(1))
    assert beyond[0] == pytest.approx(2 * (CLIP - 1), rel=0.1)
