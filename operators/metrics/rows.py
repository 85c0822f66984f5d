"""Worst-group accuracy and effective sample size."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


def worst_group_accuracy(correct: npt.ArrayLike, groups: npt.ArrayLike) -> float:
    """Return the lowest accuracy over the groups that occur (Sagawa et al. 2020).

    Parameters
    ----------
    correct : (n,) array of bool
        Whether the prediction is right.
    groups : (n,) array
        Group of each row, any values.

    Returns
    -------
    float
        In [0, 1].

    Raises
    ------
    ValueError
        There are no rows, or the lengths differ.

    Examples
    --------
    >>> from operators.metrics import worst_group_accuracy
    >>> worst_group_accuracy([True, True, False, True], ["a", "a", "b", "b"])
    0.5
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
    weight : (n,) array
        Weights of at least 0. If all are 0, the result is 0.

    Examples
    --------
    >>> from operators.metrics import effective_sample_size
    >>> effective_sample_size([1.0, 1.0, 0.0])
    2.0
    """
    weight = np.asarray(weight, np.float64)
    peak = float(weight.max(initial=0.0))
    if peak == 0.0:
        return 0.0
    scaled = weight / peak  # squares of very small or large weights would under- or overflow
    return float(scaled.sum() ** 2 / (scaled**2).sum())
