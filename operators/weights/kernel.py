"""Weights with the same sum for every group, and reduced weights of rows whose label is doubtful."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from operators.arrays import Float64, Integers, Mask

Keys = npt.NDArray[np.int64]

OUTLIER = np.iinfo(np.int64).min
"""Key of the rows that are in no group and marked as outliers."""


@dataclass(frozen=True)
class LabelTrust:
    """Rows whose labels are trusted without a check, and how the cross-fitted models divide the others."""

    largest: dict[int, int]
    """Key of the largest group of each class; its rows need no check."""
    n_folds: int
    priors: tuple[float, ...]
    """(C,) share of each class in the weighted rows that the models learn from (:func:`class_priors`)."""
    seed: int
    """Seed of the hash that assigns rows to folds."""

    @property
    def n_classes(self) -> int:
        """Return the number of classes."""
        return len(self.priors)


def balance_keys(y: Integers, groups: Integers, is_outlier: Mask) -> Keys:
    """Return the group (n,) of each row, where the noise (-1) of class c is a group of its own, -1 - c.

    Noise often holds much of the minority, so it is weighted as a group. Noise rows that are marked as
    outliers are not (``OUTLIER``): a few corrupt rows must not weigh as much as a whole group.
    """
    return np.where((groups < 0) & is_outlier, OUTLIER, group_keys(y, groups))


def group_keys(y: Integers, groups: Integers) -> Keys:
    """Return the group (n,) of each row, where all noise of class c is one group, -1 - c."""
    keys: Keys = np.where(groups >= 0, groups, -1 - y.astype(np.int64)).astype(np.int64)
    return keys


def group_masses(keys: Integers, mass: Float64) -> dict[int, float]:
    """Return the sum of ``mass`` (n,) by group, without outliers."""
    values, place = np.unique(keys[keys != OUTLIER], return_inverse=True)
    sums = np.bincount(place, weights=mass[keys != OUTLIER], minlength=len(values))
    return dict(zip(values.tolist(), sums.tolist(), strict=True))


def balanced_weights(keys: Integers, sizes: Mapping[int, float]) -> Float64:
    """Return the weight n / (k s) of each row, for n rows in k groups and a row in a group of s rows.

    The weights of each group sum to n / k. If rows have masses, s and n are sums of masses. Outliers, rows of
    a group without mass and rows of a group that is not in ``sizes`` (held-out rows may be placed in one)
    have the weight 1.

    Parameters
    ----------
    keys : (m,) group of each row.
    sizes : rows, or sum of masses, per group in the whole dataset.

    Returns
    -------
    (m,) float64
    """
    names, place = np.unique(keys, return_inverse=True)
    share = sum(sizes.values()) / len(sizes) if sizes else 0.0
    weights = [share / sizes[name] if name != OUTLIER and sizes.get(name) else 1.0 for name in names.tolist()]
    return np.array(weights, np.float64)[place]


def bound_noise(sizes: Mapping[int, float], by_class: Mapping[tuple[int, int], int]) -> dict[int, float]:
    """Return the sizes, in which the noise of each class is at least as large as the class's smallest group.

    Under :func:`balanced_weights` a noise row then weighs at most as much as a row of that group, so that a
    few noise rows do not weigh as much as a whole group. The noise of a class without groups keeps its size.

    Parameters
    ----------
    sizes : key (:func:`balance_keys`) -> rows, or sum of masses, in the whole dataset.
    by_class : (class, key) -> rows in the whole dataset.
    """
    smallest: dict[int, float] = {}
    for value, key in by_class:
        if key >= 0 and sizes.get(key):
            smallest[value] = min(smallest.get(value, np.inf), sizes[key])
    return {key: max(size, smallest.get(-1 - key, 0.0)) if key < 0 else size for key, size in sizes.items()}


def largest_groups(sizes: Mapping[tuple[int, int], int]) -> dict[int, int]:
    """Return the key (:func:`group_keys`) of the largest group of each class; of equal groups the lowest.

    Noise does not count as a group, except in a class without any group.

    Parameters
    ----------
    sizes : (class, key) -> rows in the whole dataset.
    """
    largest: dict[int, tuple[bool, int, int]] = {}
    for (value, key), n_rows in sorted(sizes.items()):
        rank = (key >= 0, n_rows)
        if value not in largest or rank > largest[value][:2]:
            largest[value] = (*rank, key)
    return {value: key for value, (*_, key) in largest.items()}


def class_priors(sizes: Mapping[tuple[int, int], int], n_classes: int) -> Float64:
    """Return the share (C,) of each class in the weighted training rows of the classifiers.

    There every group has the same total weight and a noise row the weight 1, so that a class with more groups
    is more likely to these classifiers.

    Parameters
    ----------
    sizes : (class, key) -> rows in the whole dataset.
    n_classes : classes, of which some may have no rows.
    """
    grouped = {pair: n_rows for pair, n_rows in sizes.items() if pair[1] >= 0}
    share = sum(grouped.values()) / len(grouped) if grouped else 0.0
    mass = np.zeros(n_classes)
    for (value, key), n_rows in sizes.items():
        mass[value] += share if key >= 0 else n_rows
    total = mass.sum()
    return mass / total if total else np.full(n_classes, 1 / n_classes)


def doubtful(y: Integers, keys: Integers, largest: Mapping[int, int]) -> Mask:
    """Return the mask (n,) of the rows outside the largest group of their class.

    No row of a class without a row to learn from is in doubt: no classifier knows the class.
    """
    pairs = zip(y.tolist(), keys.tolist(), strict=True)
    common = np.array([largest.get(value, key) for value, key in pairs], np.int64)
    return np.asarray(keys != common)


def trusted_share(p: Float64, priors: Float64) -> Float64:
    """Return the weight factor min(1, p / prior): rows whose label is at least as likely as its prior keep 1.

    The label of a row of a rare group is often unlikely under a model that relies on a cue, and rarely under
    one that was trained on groups of equal weight. A flipped label is unlikely under both.

    Parameters
    ----------
    p : (n,) probability of each row's label by a classifier that was trained without the row.
    priors : (n,) prior probability of that label under the same classifier, see :func:`class_priors`.

    Returns
    -------
    (n,) in [0, 1]; 1 where the prior is 0.
    """
    ratio = np.divide(p, priors, out=np.ones_like(p), where=priors > 0)
    share: Float64 = np.minimum(1.0, ratio)
    return share
