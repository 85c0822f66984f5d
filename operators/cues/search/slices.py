"""Feature slices: for every feature the cut on which a model leans, and weights that balance label
against it.

A slice is a feature with a cut. Within each class the rows above and below the cut get the same total
weight, so that the label no longer says on which side a row lies (cf. the decorrelating weights of Wang
et al., "Decorrelated Clustering with Data Selection Bias", and the reweighing of Kamiran and Calders,
2012). Two kinds of cut are kept per feature: ``lean``, which explains most of the held-out class
probabilities, and ``error``, which explains most of the held-out error within the classes.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from operators.arrays import Float64, Floats, Integers
from operators.cues.sides.class_sides import equal_factors

MAX_CUTS = 9
GRID = 128
MIN_SIDE_ROWS = 20
MIN_SIDE_SHARE = 0.005
POWER = 3.0
TOP = 8
MIN_STRENGTH = 0.02
"""Weaker slices are not listed unless the user has named their feature."""


@dataclass(frozen=True)
class Slices:
    """The candidate slices of a table: entry k is the cut of one kind on one feature.

    Attributes
    ----------
    feature
        Column, int, shape (m,).
    cut
        A row is above if its standardised value exceeds this, shape (m,).
    above
        Share of each class above the cut, shape (m, C).
    lean
        Explained share of the variance of the held-out probabilities, in [0, 1], shape (m,).
    error
        Explained share of the variance of the held-out error within the classes, in [0, 1], shape (m,).
    is_error
        Whether the cut was chosen by ``error`` rather than by ``lean``, shape (m,).

    """

    feature: Integers
    cut: Floats
    above: Floats
    lean: Floats
    error: Floats
    is_error: npt.NDArray[np.bool_]

    def slice_strength(self) -> Float64:
        """Return the geometric mean of ``lean`` and ``error`` of each slice, in [0, 1], shape (m,)."""
        return np.asarray(np.sqrt(self.lean * self.error))

    def sides(self, numbers: Integers, Z: Floats) -> npt.NDArray[np.bool_]:
        """Return whether each of the standardised rows ``Z`` is above the cut, shape (len(numbers), n)."""
        above = Z[:, self.feature[numbers]] > self.cut[numbers]
        return np.asarray(above.T)

    def factor(self, number: int, above: npt.NDArray[np.bool_], y: Integers) -> Float64:
        """Return the factor within its class, shape (n,), under which both sides of a slice weigh the same.

        ``above`` is whether each row lies above the cut, and ``y`` the labels, shape (n,). Where q is the
        share of the class above the cut, the factor is 1 / (2 q) above and 1 / (2 (1 - q)) below, at most 20;
        it is 1 where a class lies on one side as a whole.
        """
        share = self.above[number]
        factors = equal_factors(np.column_stack([1.0 - share, share]))
        return np.asarray(factors[y, above.astype(np.intp)])

    def score(self) -> Float64:
        """Return each slice's part in the mixture, shape (m,): each kind has half of the total of 1.

        Notes
        -----
        Proportional to (explained variance * feasibility) ** POWER, where feasibility is the mean over
        the classes of 4 q (1 - q), q being the share above the cut: the effective sample size that
        balancing leaves.

        """
        feasible = (4 * self.above * (1 - self.above)).mean(axis=1)
        raw = (np.where(self.is_error, self.error, self.lean) * feasible) ** POWER
        out = np.zeros(len(raw))
        for kind in (False, True):
            total = raw[self.is_error == kind].sum()
            if total > 0:
                out[self.is_error == kind] = raw[self.is_error == kind] / total
        return np.asarray(out / max(out.sum(), 1e-300) if out.any() else out)


def find_slices(Z: Floats, y: Integers, p: Floats, skip: frozenset[int] = frozenset()) -> Slices:
    """Find the two cuts of every feature.

    Parameters
    ----------
    Z
        Standardised rows, shape (n, d).
    y
        Labels, shape (n,).
    p
        Held-out class probabilities of a class-balanced model, shape (n, C).
    skip
        Columns to leave out: features known to be legitimate.

    Returns
    -------
    Slices with at most 2 d entries; constant columns and cuts with a side under max(20 rows, .5 %) have none.

    """
    found: list[tuple[int, float, Floats, float, float, bool]] = []
    scale = _Variances.of(y, p)
    for j in range(Z.shape[1]):
        if j in skip:
            continue
        cuts = candidate_cuts(Z[:, j])
        if not len(cuts):
            continue
        q, lean, error = _score_cuts(Z[:, j], cuts, y, p, scale)
        for is_error, value in ((False, lean), (True, error)):
            k = int(value.argmax())
            if value[k] > 0:
                found.append((j, float(cuts[k]), q[:, k], float(lean[k]), float(error[k]), is_error))
    columns = list(zip(*found, strict=True)) if found else [[], [], np.empty((0, p.shape[1])), [], [], []]
    feature, cut, above, lean_, error_, kind = columns
    return Slices(
        np.asarray(feature, np.int64),
        np.asarray(cut, np.float32),
        np.asarray(above, float).reshape(-1, p.shape[1]),
        np.asarray(lean_, float),
        np.asarray(error_, float),
        np.asarray(kind, bool),
    )


def strongest(slices: Slices, top: int = TOP, always: Collection[int] = ()) -> Integers:
    """Return the numbers of the slices that are listed, the strongest first, one per feature.

    Parameters
    ----------
    slices
        From ``find_slices``.
    top
        How many at most, of those with a strength of at least ``MIN_STRENGTH``.
    always
        Columns that are listed whatever their strength.

    """
    strength = slices.slice_strength()
    order = np.argsort(-strength, kind="stable")
    _, first = np.unique(slices.feature[order], return_index=True)
    ranked = order[np.sort(first)]
    kept = (np.arange(len(ranked)) < top) & (strength[ranked] >= MIN_STRENGTH) | np.isin(
        slices.feature[ranked], list(always)
    )
    return np.asarray(ranked[kept])


def candidate_cuts(x: Floats) -> Floats:
    """Return increasing cuts of one column: midpoints for up to 10 distinct values, else deciles and
    ``two_means_cut``.

    A constant column has none.
    """
    values = np.unique(x)
    if len(values) <= MAX_CUTS + 1:
        return np.asarray((values[1:] + values[:-1]) / 2, np.float32)
    deciles = np.quantile(x, np.linspace(0, 1, MAX_CUTS + 2)[1:-1])
    cuts = np.unique(np.append(deciles, two_means_cut(x)).astype(np.float32))
    return np.asarray(cuts[cuts < values[-1]])


def two_means_cut(x: Floats) -> float:
    """Return the cut that splits a column into two parts with the least variance (Otsu, 1979).

    It lies in the middle of the gap between two modes, where no decile need lie. Values beyond the 1st
    and 99th percentile do not move it; the grid has 128 steps.
    """
    low, high = np.quantile(x, [0.01, 0.99])
    if not high > low:
        return float(low)
    rows, edges = np.histogram(np.clip(x, low, high), bins=GRID, range=(low, high))
    middle = (edges[1:] + edges[:-1]) / 2
    below, mass = np.cumsum(rows)[:-1], np.cumsum(rows * middle)[:-1]
    above, total = rows.sum() - below, (rows * middle).sum()
    between = below * above * (mass / np.maximum(below, 1) - (total - mass) / np.maximum(above, 1)) ** 2
    best = np.flatnonzero(between >= between.max() * (1 - 1e-9))
    return float(edges[1:-1][best].mean())


def slice_factor(slices: Slices, Z: Floats, y: Integers) -> Float64:
    """Return the mixture of the slices' balance factors, shape (n,); 1 where there is no slice."""
    score = slices.score()
    out = np.full(len(y), 1.0 - score.sum())
    for k in np.flatnonzero(score > 1e-4 * score.max(initial=0.0)).tolist():
        side = Z[:, slices.feature[k]] > slices.cut[k]
        out += score[k] * slices.factor(k, side, y)
    return np.asarray(out)


@dataclass(frozen=True)
class _Variances:
    """Error and total variances of the held-out probabilities, against which the scores are measured."""

    error: Floats
    lean_total: float
    error_total: float

    @classmethod
    def of(cls, y: Integers, p: Floats) -> _Variances:
        error = 1.0 - p[np.arange(len(y)), y]
        within = [float(error[y == c].var()) for c in np.unique(y)]
        return cls(error, max(float(p.var(axis=0).sum()), 1e-12), max(float(np.mean(within)), 1e-12))


def _score_cuts(
    x: Floats, cuts: Floats, y: Integers, p: Floats, scale: _Variances
) -> tuple[Floats, Floats, Floats]:
    """Return shares above (C, K), lean (K,) and error (K,) of all K cuts of one column in one pass."""
    n, C = p.shape
    bins = np.searchsorted(cuts, x, side="left")
    K = len(cuts) + 1
    cell = y * K + bins
    rows = np.bincount(cell, minlength=C * K).reshape(C, K).astype(float)
    error = np.bincount(cell, scale.error, minlength=C * K).reshape(C, K)
    mass = np.stack([np.bincount(bins, p[:, c], minlength=K) for c in range(C)])
    size = np.maximum(rows.sum(axis=1, keepdims=True), 1)
    up, down = _both_sides(rows)
    n_up, n_down = up.sum(axis=0), down.sum(axis=0)
    q = up / size

    mass_up, mass_down = _both_sides(mass)
    gap = mass_up / np.maximum(n_up, 1) - mass_down / np.maximum(n_down, 1)
    lean = (gap**2).sum(axis=0) * n_up * n_down / n**2 / scale.lean_total

    error_up, error_down = _both_sides(error)
    gap = error_up / np.maximum(up, 1) - error_down / np.maximum(down, 1)
    occurs = rows.sum(axis=1) > 0
    explained = (gap**2 * q * (1 - q))[occurs].mean(axis=0) / scale.error_total

    enough = np.minimum(n_up, n_down) >= max(MIN_SIDE_ROWS, MIN_SIDE_SHARE * n)
    return q, np.where(enough, lean, 0.0), np.where(enough, explained, 0.0)


def _both_sides(table: npt.NDArray[Any]) -> tuple[Floats, Floats]:
    """Return the sums above and below each cut, shapes (C, K - 1), of a table per bin (C, K)."""
    below = np.cumsum(table, axis=1)[:, :-1]
    return table.sum(axis=1, keepdims=True) - below, below
