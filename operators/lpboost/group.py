"""Rows that live on several workers: what the solvers need of the others.

A solver runs on every worker with that worker's rows only, in step. What it exchanges is small: sums
over rows, order statistics, and the few rows near the threshold; the small LP is then solved by all
of them alike. ``Alone`` is one process with all rows; a trainer gives a group over its process group.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]


class Group(Protocol):
    """Workers in step. Every method is called by all of them, and gives all of them the same."""

    def total(self, values: Array) -> Array:
        """Sum of the workers' arrays (of one shape), to the same bits on every worker."""
        ...

    def gather(self, rows: Array) -> tuple[Array, slice]:
        """The workers' (k_i, m) arrays below each other in the order of rank, and where one's own are."""
        ...


class Alone:
    """The only worker: all rows are here."""

    def total(self, values: Array) -> Array:
        """``values``."""
        return values

    def gather(self, rows: Array) -> tuple[Array, slice]:
        """``rows``, all one's own."""
        return rows, slice(0, len(rows))


def largest(group: Group, values: Array, count: int) -> Mask:
    """Mask of the ``count`` largest values of the group; of equal ones those that come first.

    values : (n,) of this worker, finite. 0 <= count <= all rows.
    """
    if isinstance(group, Alone):
        return _largest_here(values, count)
    count, chosen, inside = _narrow(group, values, count)
    pool, own = group.gather(values[inside][:, None])
    chosen[inside] = _largest_here(pool[:, 0], count)[own]
    return chosen


def _largest_here(values: Array, count: int) -> Mask:
    if count <= 0:
        return np.zeros(len(values), bool)
    cut = np.partition(values, len(values) - count)[len(values) - count]
    take: Mask = values > cut
    take[np.flatnonzero(values == cut)[: count - int(np.count_nonzero(take))]] = True
    return take


def _narrow(group: Group, values: Array, count: int, bins: int = 256) -> tuple[int, Mask, Mask]:
    """Bracket the cut by histograms until few rows, or only equal ones, are left to gather."""
    low, high = extremes(group, values)
    chosen = np.zeros(len(values), bool)
    inside = np.ones(len(values), bool)
    while high > low:
        edges = np.linspace(low, high, bins + 1)
        place = np.searchsorted(edges[1:-1], values, side="right")
        held = group.total(np.bincount(place[inside], minlength=bins).astype(np.float64))
        if held.sum() <= 4 * bins:
            break
        above = np.cumsum(held[::-1])[::-1] - held  # rows in higher bins
        bin_ = int(np.flatnonzero(above < count)[0]) if count > 0 else bins - 1
        chosen |= inside & (place > bin_)
        inside &= place == bin_
        count -= int(above[bin_])
        tight = np.array([edges[bin_], edges[bin_ + 1]])
        if held[bin_] == held.sum() and tight[1] - tight[0] >= high - low:
            break
        low, high = float(tight[0]), float(tight[1])
    return count, chosen, inside


def extremes(group: Group, values: Array) -> tuple[float, float]:
    """Least and largest value of the group's rows; at least one worker has a row."""
    ends = np.array([[values.min(), values.max()]]) if len(values) else np.empty((0, 2))
    all_ends, _ = group.gather(ends)
    return float(all_ends[:, 0].min()), float(all_ends[:, 1].max())
