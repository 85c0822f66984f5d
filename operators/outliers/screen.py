"""Selection of the rows whose neighbours are looked up, which costs several times as much as other evidence.

The votes of neighbours are bounded, and the log ratio of flips is linear in them. A row that would not be
marked whatever its neighbours said can do without: what it lacks is estimated from its other evidence, so
that all rows keep their place in one ranking. The suspicious ones are looked up in any case, and so are all
rows of the sample: on a table that is no larger than the sample nothing is estimated.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from operators.arrays import Float64, Int64
from operators.outliers.evidence import LABEL_COLUMNS, MARGINS, MAX_MARGIN, NEIGHBOURS
from operators.outliers.mixture import Ratios
from operators.outliers.neighbours import NeighbourTable

COLUMNS = [MARGINS.index(name) for name in NEIGHBOURS]
KNOWN = [column for column in LABEL_COLUMNS if column not in COLUMNS]
SHARE = 0.2
"""Share of the observed rows, the most suspicious ones, whose neighbours are looked up in any case."""
SLACK = 1e-6
"""Far above what rounding can change in a log ratio."""


@dataclass(frozen=True)
class Screen:
    """Chooses the rows of a block that are looked up, and estimates the margins of the others."""

    coef: Float64
    """(2, len(KNOWN) + 1) least squares of the margins ``NEIGHBOURS`` on other evidence; constants last."""
    least: Float64
    """(2, n_classes) least margin that votes can give a row of each class."""
    largest: Float64
    """(2, n_classes) the largest one."""
    cut: float
    """Log ratio of flips from which a row is looked up, with its estimated margins."""
    needed: float
    """Log ratio that a row needs to be marked; infinite where no row is."""

    def fill_margins(self, E: Float64, y: Int64) -> Float64:
        """Return evidence (n, m) with estimated margins at labels (n,) in place of those of neighbours."""
        margins = E[:, KNOWN] @ self.coef[:, :-1].T + self.coef[:, -1]
        found = E.copy()
        found[:, COLUMNS] = np.clip(margins, self.least[:, y].T, self.largest[:, y].T)
        return found

    def select_rows(self, filled: Float64, y: Int64, ratios: Ratios) -> Int64:
        """Return the positions of the rows to look up; ``filled`` as from :meth:`fill_margins`."""
        log_ratio = ratios.log_ratios(filled)[:, 0]
        weights = _weights(ratios)
        worst = np.where(weights > 0, self.largest[:, y].T, self.least[:, y].T)
        most = log_ratio + (worst - filled[:, COLUMNS]) @ weights
        return np.flatnonzero((log_ratio >= self.cut) | (most >= self.needed - SLACK)).astype(np.int64)


def fit_screen(
    E: Float64,
    flipped: Float64,
    y: Int64,
    ratios: Ratios,
    tables: Sequence[NeighbourTable],
    *,
    threshold: float,
    prevalence: float,
    min_ratio: float,
) -> Screen | None:
    """Fit the screen; None where the verdict uses distances from neighbours, which have no bound.

    Parameters
    ----------
    E, flipped : (n, m) evidence of observed rows, and of the same rows with another label.
    y : (n,) class index of the observed rows.
    ratios : of which only flips count.
    tables : where the neighbours of ``NEIGHBOURS`` are looked up.
    threshold : posterior from which a row is marked; 1 or more where none is.
    prevalence : share of flips.
    min_ratio : least density ratio of a marked row.
    """
    if not set(ratios.columns.tolist()) <= set(LABEL_COLUMNS):
        return None
    both = np.vstack([E, flipped])
    known = np.column_stack([both[:, KNOWN], np.ones(len(both))])
    coef = np.asarray(np.linalg.lstsq(known, both[:, COLUMNS], rcond=None)[0].T, np.float64)
    bounds = np.stack([table.vote_bounds() for table in tables])
    least, largest = (
        np.clip(np.log1p(-votes) - np.log(votes), -MAX_MARGIN, MAX_MARGIN)
        for votes in (bounds[:, 1], bounds[:, 0])
    )
    needed = np.inf
    if threshold < 1 and prevalence > 0:
        by_posterior = np.log(threshold / (1 - threshold)) + np.log((1 - prevalence) / prevalence)
        needed = max(by_posterior, np.log(min_ratio))
    screen = Screen(coef, least, largest, np.inf, float(needed))
    log_ratio = ratios.log_ratios(screen.fill_margins(E, y))[:, 0]
    cut = float(np.quantile(log_ratio, 1 - SHARE))
    return Screen(coef, least, largest, cut, float(needed))


def _weights(ratios: Ratios) -> Float64:
    """Return (2,) what one unit of each margin of ``NEIGHBOURS`` adds to the log ratio of flips."""
    at = [ratios.columns.tolist().index(column) for column in COLUMNS]
    return np.asarray(ratios.coef[0, at] / ratios.deviation[at], np.float64)
