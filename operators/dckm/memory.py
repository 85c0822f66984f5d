"""All rows in this process's memory."""

from __future__ import annotations

import numpy as np

from operators.arrays import Float64
from operators.dckm import steps
from operators.dckm.moments import Coded
from operators.dckm.seeding import candidate
from operators.dckm.steps import Begun, Finished, Labels, Line, Looked, RowState, Slope


class InMemory:
    """Passes over rows in memory; implements :class:`operators.dckm.kernel.Passes`.

    Attributes
    ----------
    weight, labels : (n,) after ``finish``; weights as minimised, labels 0 without clusters.
    """

    weight: Float64
    labels: Labels

    def __init__(self, coded: Coded) -> None:
        self._coded = coded
        self._ids = np.arange(len(coded))
        self._state: RowState

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return len(self._coded)

    def begin(self, n_clusters: int, start: float, seed: int) -> Begun:
        """Make the pass of :func:`operators.dckm.steps.begin`."""
        self._state, sums = steps.begin(self._coded, self._ids, n_clusters, start, seed)
        return sums

    def draw(self, centres: Float64, seed: int) -> Float64:
        """Return the row (d,) that k-means++ draws next."""
        return candidate(self._coded, self._ids, centres, seed).row

    def look(self, centres: Float64 | None, step: float | None, momentum: float) -> Looked:
        """Make the pass of :func:`operators.dckm.steps.look`."""
        self._state, sums = steps.look(self._coded, self._state, centres, step, momentum)
        return sums

    def descend(self, slope: Slope, n_clusters: int) -> Line:
        """Make the pass of :func:`operators.dckm.steps.descend`."""
        self._state, sums = steps.descend(self._coded, self._state, slope, n_clusters)
        return sums

    def finish(self, centres: Float64 | None, step: float) -> Finished:
        """Make the pass of :func:`operators.dckm.steps.finish`."""
        self.weight, self.labels, sums = steps.finish(self._coded, self._state, centres, step)
        return sums
