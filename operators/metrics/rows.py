"""Figures of rows that carry a weight, or a right or wrong prediction."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


def worst_group_accuracy(correct: npt.ArrayLike, groups: npt.ArrayLike) -> float:
    """Return the lowest accuracy over the groups that occur (Sagawa et al. 2020).

    Parameters
    ----------
    correct : (n,) bool: the prediction is right.
    groups : (n,) group of each row, any values; a group without rows does not count.

    Returns
    -------
    float in [0, 1].

    Raises
    ------
    ValueError : no rows, or lengths differ.
    """
    correct, groups = np.asarray(correct, np.float64), np.asarray(groups)
    if correct.shape != groups.shape or not len(groups):
        raise ValueError(
            f"correct has shape {correct.shape}, groups {groups.shape}; give equal lengths, at least one row"
        )
    position = np.unique(groups, return_inverse=True)[1]
    return float((np.bincount(position, weights=correct) / np.bincount(position)).min())


def effective_sample_size(weight: npt.ArrayLike) -> float:
    """Return (sum w)^2 / sum w^2 (Kish 1965): n for equal weights, 1 if one row carries all of the weight.

    Parameters
    ----------
    weight : (n,) weights >= 0. All zero gives 0.
    """
    weight = np.asarray(weight, np.float64)
    peak = float(weight.max(initial=0.0))
    if peak == 0.0:
        return 0.0
    scaled = weight / peak  # squares of very small or large weights would under- or overflow
    return float(scaled.sum() ** 2 / (scaled**2).sum())
