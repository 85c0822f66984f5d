"""Landmarks from the stored graph: drawn by the inverse of the density, with seats for every class."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from operators.base import VECTOR
from operators.neighbours import choose_landmarks
from operators.neighbours.class_index import seats_of
from tests.unit.operators.neighbours.test_neighbours_operator import run


def test_sparse_rows_are_drawn_more_often_than_their_share(tmp_path: Path) -> None:
    """A crowd of 360 rows and 40 scattered ones: uniform landmarks would have a tenth of scattered rows."""
    random = np.random.default_rng(0)
    X = np.concatenate([0.05 * random.normal(size=(360, 2)), 4 * random.normal(size=(40, 2))])
    vectors = pa.array(X.astype(np.float32).tolist(), VECTOR)
    table = pa.table(
        {"row_id": np.arange(400), "y": np.zeros(400, np.int32), "gradient": vectors, "x": vectors}
    )
    run([table], tmp_path, n_neighbors=5, space="x", metric="euclidean", per_class=False)
    shares = []
    for seed in range(10):
        found = choose_landmarks(tmp_path / "neighbours", 20, seed)
        assert len(found.row_ids) == len(np.unique(found.row_ids)) == 20
        np.testing.assert_array_equal(found.vectors, X[found.row_ids].astype(np.float32))
        shares.append((found.row_ids >= 360).mean())
    assert np.mean(shares) > 0.3


@pytest.mark.parametrize(
    ("rows", "n", "seats"),
    [
        ([100, 100, 100], 10, [4, 3, 3]),
        ([96, 2, 2], 10, [8, 1, 1]),
        ([3, 50], 60, [3, 50]),
        ([5, 5, 5], 2, [1, 1, 1]),
    ],
)
def test_as_many_landmarks_as_asked_for_unless_there_are_more_classes(
    rows: list[int], n: int, seats: list[int]
) -> None:
    assert seats_of(np.array(rows), n).tolist() == seats
