"""Weights that give every group the same say."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.integer]


def balance_keys(y: Ints, groups: Ints) -> npt.NDArray[np.int64]:
    """Group of each row, where the noise (-1) of class c counts as a group of its own, named -1 - c.

    Dropping noise would drop much of the minority with it, so it takes part.
    """
    keys: npt.NDArray[np.int64] = np.where(groups >= 0, groups, -1 - y.astype(np.int64)).astype(np.int64)
    return keys


def count_keys(keys: Ints) -> dict[int, int]:
    """Group -> number of rows."""
    values, counts = np.unique(keys, return_counts=True)
    return dict(zip(values.tolist(), counts.tolist(), strict=True))


def balanced_weights(keys: Ints, sizes: Mapping[int, int]) -> npt.NDArray[np.float32]:
    """Inverse group size, scaled to mean 1 over the rows that ``sizes`` counts.

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
    weights = np.array([share / sizes[name] for name in names.tolist()], np.float64)
    return weights[place].astype(np.float32)
