"""Weights that give every group the same say."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.integer]
Bools = npt.NDArray[np.bool_]

OUTLIER = np.iinfo(np.int64).min
"""Key of the rows that are in no group and marked as outliers."""


def balance_keys(y: Ints, groups: Ints, is_outlier: Bools) -> npt.NDArray[np.int64]:
    """Group of each row, where the noise (-1) of class c counts as a group of its own, named -1 - c.

    Dropping noise would drop much of the minority with it, so it takes part, unless it is marked as
    outliers: a handful of corrupt rows must not weigh as much as a whole group.
    """
    noise = np.where(is_outlier, OUTLIER, -1 - y.astype(np.int64))
    keys: npt.NDArray[np.int64] = np.where(groups >= 0, groups, noise).astype(np.int64)
    return keys


def count_keys(keys: Ints) -> dict[int, int]:
    """Group -> number of rows; outliers are not counted."""
    values, counts = np.unique(keys[keys != OUTLIER], return_counts=True)
    return dict(zip(values.tolist(), counts.tolist(), strict=True))


def balanced_weights(keys: Ints, sizes: Mapping[int, int]) -> npt.NDArray[np.float32]:
    """Inverse group size, scaled to mean 1 over the rows that ``sizes`` counts; outliers weigh 1.

    With n rows in k groups a row of a group of size s weighs n / (k s), so that each group's weights
    sum to n / k. Rows of a group that ``sizes`` does not hold raise KeyError.

    Parameters
    ----------
    keys
        (m,) group of each row.
    sizes
        Rows per group in the whole dataset.

    Returns
    -------
    (m,) float32

    """
    names, place = np.unique(keys, return_inverse=True)
    share = sum(sizes.values()) / len(sizes) if sizes else 0.0
    weights = [1.0 if name == OUTLIER else share / sizes[name] for name in names.tolist()]
    return np.array(weights, np.float64)[place].astype(np.float32)
