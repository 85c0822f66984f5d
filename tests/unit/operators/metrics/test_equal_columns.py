"""Columns that are equal in all rows are found, whatever lies between their projections."""

import numpy as np

from operators.metrics.equal_columns import equal_blocks


def test_a_column_between_the_projections_of_two_equal_ones_hides_neither() -> None:
    n = 50
    direction = np.random.default_rng(0).normal(size=n)  # the first one that columns are projected on
    direction = (direction - direction.mean()) / np.linalg.norm(direction - direction.mean())
    rng = np.random.default_rng(1)
    one = rng.normal(size=n).astype(np.float32)
    other = one * np.float32(3) + np.float32(10_000)  # rounded to other digits

    def projected(values: np.ndarray) -> float:
        centred = values.astype(np.float64) - values.mean(dtype=np.float64)
        return float(direction @ centred / np.linalg.norm(centred))

    middle = (projected(one) + projected(other)) / 2
    rest = rng.normal(size=n)
    rest -= rest.mean() + (direction @ rest) * direction
    between = middle * direction + np.sqrt(1 - middle**2) * rest / np.linalg.norm(rest)
    X = np.column_stack([one, between.astype(np.float32), other])
    assert equal_blocks(X, {"one": [0], "between": [1], "other": [2]}) == {"one": ("other",)}


def test_columns_of_several_hundred_pairs_are_told_apart() -> None:
    rng = np.random.default_rng(0)
    base = rng.normal(size=(300, 200)).astype(np.float32)
    X = np.column_stack([base, 1 - 2 * base]).astype(np.float32)
    found = equal_blocks(X, {str(position): [position] for position in range(400)})
    assert found == {str(position): (str(position + 200),) for position in range(200)}
