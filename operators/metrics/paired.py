"""Paired comparison of two classifiers on the same rows.

The tests use the rows that only the new classifier gets right (``gained``) and those that only the old one
gets right (``lost``). If both are equally good in a group, each such row is as likely gained as lost, which
gives exact tests whatever the accuracies (McNemar 1947). The gain of the worst of several groups is tested by
an intersection-union test, as two classifiers with equally good worst groups may differ in every group.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.stats import binom, hypergeom

from operators.arrays import Float64

DRAWS = 4999
"""Draws of the bootstrap."""
NEAR = 2.0
"""Standard errors from the old classifier's worst group within which another may be the worst in truth."""
BLOCK = 1000
"""Draws that are computed at a time."""
Counts = npt.NDArray[np.int64]


@dataclass(frozen=True)
class PairedCounts:
    """Rows of each group by the answers of both classifiers; all arrays are (G,)."""

    rows: Counts
    right_before: Counts
    """Rows that the old classifier gets right."""
    gained: Counts
    """Rows that only the new one gets right."""
    lost: Counts
    """Rows that only the old one gets right."""

    @property
    def both(self) -> Counts:
        """Number of rows (G,) that both get right."""
        return self.right_before - self.lost

    def together(self) -> PairedCounts:
        """Return all groups as one."""
        arrays = (self.rows, self.right_before, self.gained, self.lost)
        return PairedCounts(*(array.sum(keepdims=True) for array in arrays))


def gain_p_value(counts: PairedCounts) -> float:
    """Return a p-value of the hypothesis that the new worst group's accuracy is at most the old one's.

    With one group this is McNemar's exact test, one-sided. With several it is an intersection-union test,
    which is valid also where the worst group of the new classifier is another one than that of the old.

    Parameters
    ----------
    counts : groups with at least one row each.

    Returns
    -------
    float in (0, 1].

    Notes
    -----
    The new classifier is better in its worst group if each group g is better under it than some group h under
    the old one. Group g is compared with itself by McNemar's exact test and with another group, which has
    other rows, by Fisher's exact test. Of these the least p-value counts, times the number of groups h
    (Bonferroni), and of all g the largest (Berger 1982, Multiparameter hypothesis testing and acceptance
    sampling). The groups h are those whose accuracy under the old classifier lies within ``NEAR`` standard
    errors of its worst (as in Chernozhukov, Lee and Rosen 2013, Intersection bounds), so that a worst group
    that stands apart costs no factor.

    Examples
    --------
    >>> import numpy as np
    >>> one = PairedCounts(*(np.array([n]) for n in (200, 140, 10, 0)))
    >>> round(gain_p_value(one), 6)
    0.000977
    """
    near = _near_the_worst(counts)
    new = counts.both + counts.gained
    worst = 0.0
    for g in range(len(new)):
        values = [
            _mcnemar(int(counts.gained[g]), int(counts.lost[g]))
            if h == g
            else _fisher(int(new[g]), int(counts.rows[g]), int(counts.right_before[h]), int(counts.rows[h]))
            for h in near
        ]
        worst = max(worst, min(1.0, len(near) * min(values)))
    return worst


def _near_the_worst(counts: PairedCounts) -> list[int]:
    """Return the groups that may be the old classifier's worst."""
    share = counts.right_before / counts.rows
    variance = share * (1 - share) / counts.rows
    place = int(share.argmin())
    error = np.sqrt(variance + variance[place])
    return [int(g) for g in np.flatnonzero(share - share[place] <= NEAR * error)]


def _mcnemar(gained: int, lost: int) -> float:
    """Return the one-sided p-value of so many gained rows of those that differ."""
    return float(binom.sf(gained - 1, gained + lost, 0.5))


def _fisher(right_new: int, rows_new: int, right_old: int, rows_old: int) -> float:
    """Return the one-sided p-value of a larger share of right answers on other rows."""
    return float(hypergeom.sf(right_new - 1, rows_new + rows_old, right_new + right_old, rows_new))


def gain_bound(
    counts: PairedCounts, confidence: float = 0.95, *, draws: int = DRAWS, random_state: int = 0
) -> float:
    """Return a lower bound of the gain in the worst group, by the percentile bootstrap within each group.

    A group in which the two never differ has a gain of 0 in every draw. ``counts`` are as in
    :func:`gain_p_value`; ``confidence`` is one-sided, in (0, 1).
    """
    neither = counts.rows - counts.both - counts.gained - counts.lost
    cells = np.stack([counts.both, counts.gained, counts.lost, neither], axis=1)
    rng = np.random.default_rng(random_state)
    gains: list[Float64] = []
    for start in range(0, draws, BLOCK):
        size = min(BLOCK, draws - start)
        drawn = np.stack(
            [rng.multinomial(n, own / n, size) for n, own in zip(counts.rows.tolist(), cells, strict=True)],
            axis=1,
        )
        new = ((drawn[..., 0] + drawn[..., 1]) / counts.rows).min(axis=1)
        old = ((drawn[..., 0] + drawn[..., 2]) / counts.rows).min(axis=1)
        gains.append(new - old)
    return float(np.quantile(np.concatenate(gains), 1 - confidence))
