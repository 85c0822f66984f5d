"""Paired comparison of two classifiers on the same rows.

The tests use the rows that only the new classifier gets right (``gained``) and those that only the old one
gets right (``lost``). If both are equally good, each such row is as likely gained as lost, which gives exact
tests whatever the accuracies (McNemar 1947; Good 2005, Permutation, Parametric and Bootstrap Tests of
Hypotheses).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.stats import binomtest

from operators.arrays import Float64

DRAWS = 4999
"""Draws of the permutation test and of the bootstrap."""
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

    def worst_gain(self) -> float:
        """Return the new classifier's worst-group accuracy less that of the old one."""
        new = (self.both + self.gained) / self.rows
        return float(new.min() - (self.right_before / self.rows).min())


def gain_p_value(counts: PairedCounts, *, draws: int = DRAWS, random_state: int = 0) -> float:
    """Return the probability of so large a gain in the worst group if both classifiers were equally good.

    With one group this is McNemar's exact test, one-sided. With several, gained and lost rows are exchanged
    at random ``draws`` times (a permutation test, valid for any sizes; Phipson and Smyth 2010 for the +1),
    because the worst group of the new classifier may be another one than that of the old.

    Parameters
    ----------
    counts : groups with at least one row each.

    Returns
    -------
    float in (0, 1].

    Examples
    --------
    >>> import numpy as np
    >>> one = PairedCounts(*(np.array([n]) for n in (200, 140, 10, 0)))
    >>> round(gain_p_value(one), 6)
    0.000977
    """
    differ = counts.gained + counts.lost
    if not differ.any():
        return 1.0
    if len(differ) == 1:
        return float(binomtest(int(counts.gained[0]), int(differ[0]), alternative="greater").pvalue)
    observed = counts.worst_gain()
    rng = np.random.default_rng(random_state)
    beyond = 0
    for start in range(0, draws, BLOCK):
        size = (min(BLOCK, draws - start), len(differ))
        gained = rng.binomial(differ, 0.5, size)
        new = ((counts.both + gained) / counts.rows).min(axis=1)
        old = ((counts.both + differ - gained) / counts.rows).min(axis=1)
        beyond += int((new - old >= observed - 1e-12).sum())
    return (1 + beyond) / (1 + draws)


def gain_bound(
    counts: PairedCounts, confidence: float = 0.95, *, draws: int = DRAWS, random_state: int = 0
) -> float:
    """Return a lower bound of the gain in the worst group, by the percentile bootstrap within each group.

    A group in which the two never differ has a gain of 0 in every draw. Parameters as in
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
