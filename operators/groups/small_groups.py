"""Merges groups with too few rows. Every method that finds groups uses it.

A group must have ``max(min_rows, min_share * n)`` of the n rows of its class. While a group has fewer, the
smallest one joins the group that is nearest to it, so fragments of one group may together become large
enough. The distance depends on the method: for DBSCAN it is that of the nearest core samples, which is the
radius at which DBSCAN would join the groups (single linkage), for methods with centres that of the centres.
Noise is not merged. A class with too few rows is one group.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from operators.arrays import NOISE, Float64, Labels

MIN_ROWS = 100
MIN_SHARE = 0.005


def least_rows(n_rows: int, min_rows: int, min_share: float) -> float:
    """Return the smallest number of rows of a group in a class of ``n_rows``, not rounded."""
    return max(float(min_rows), min_share * n_rows)


def merge_small(sizes: npt.ArrayLike, distances: Float64, least: float) -> Labels:
    """Merge clusters until each group has ``least`` rows, or one group is left.

    Parameters
    ----------
    sizes : (k,) rows of each cluster.
    distances : (k, k) symmetric; infinite where a distance is not known. A cluster without any known
        distance joins the largest group.
    least : smallest number of rows of a group; 0 merges nothing.

    Returns
    -------
    (k,) int32: the group of each cluster. Groups are numbered from 0 in the order of their first cluster.

    Examples
    --------
    Two small clusters and a large one on a line at 0, 1 and 10. Together the small ones are large enough:

    >>> import numpy as np
    >>> at = np.array([0.0, 1.0, 10.0])
    >>> merge_small([6, 5, 90], np.abs(at[:, None] - at), least=10)
    array([0, 0, 1], dtype=int32)
    >>> merge_small([6, 3, 90], np.abs(at[:, None] - at), least=10)
    array([0, 0, 0], dtype=int32)
    """
    size = np.array(sizes, np.float64)
    group = np.arange(len(size))
    apart = np.array(distances, np.float64)
    np.fill_diagonal(apart, np.inf)
    n_left = len(size)
    while n_left > 1:
        small = int(np.argmin(size))
        if size[small] >= least:
            break
        near = int(np.argmin(apart[small]))
        if not np.isfinite(apart[small, near]):
            # The cluster itself may be among the largest.
            others = np.where(np.isfinite(size) & (np.arange(len(size)) != small), size, -1.0)
            near = int(np.argmax(others))
        group[group == small] = near
        size[near] += size[small]
        apart[near] = np.minimum(apart[near], apart[small])
        apart[:, near] = apart[near]
        apart[near, near] = np.inf
        # A merged cluster takes no further part.
        size[small], apart[small], apart[:, small] = np.inf, np.inf, np.inf
        n_left -= 1
    return number_in_order(group)


def number_in_order(group: npt.NDArray[np.integer]) -> Labels:
    """Number groups (k,) from 0 in the order in which they first appear."""
    _, first, which = np.unique(group, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first)).astype(np.int32)[which]


def centre_distances(centres: npt.ArrayLike) -> Float64:
    """Return the Euclidean distances (k, k) of centres (k, q)."""
    at = np.asarray(centres, np.float64)
    return np.asarray(np.sqrt(((at[:, None] - at[None]) ** 2).sum(axis=2)))


def to_groups(labels: Labels, group_of: Sequence[int] | Labels | None) -> Labels:
    """Return the group (n,) int32 of rows by their cluster's; noise stays -1. None: clusters are groups."""
    if group_of is None:
        return labels
    # Noise is -1: it takes the last entry of the table.
    return np.append(np.asarray(group_of, np.int32), np.int32(NOISE))[labels]
