"""A sample of the rows, the same however they are sharded, and the start that is found on it."""

from __future__ import annotations

import numpy as np

from operators.split.kernel import row_hashes
from operators.splits.features import Float32
from operators.splits.in_memory import FeatureRows, best_start
from operators.splits.lloyd import Pair
from operators.splits.programs import make_selector
from operators.splits.selection import Ints, Tolerance

SAMPLE = 5_000
"""Rows on which starts are tried; also those that standardisation, gamma and landmarks come from."""


def sample_rows(row_ids: Ints, seed: int) -> Ints:
    """Positions, ascending, of the 5,000 rows with the smallest hashes; of all where there are no more."""
    if len(row_ids) <= SAMPLE:
        return np.arange(len(row_ids))
    hashes = row_hashes(row_ids, seed)
    return np.sort(np.argpartition(hashes, SAMPLE - 1)[:SAMPLE])


def begin_on(
    phi: Float32,
    codes: Ints,
    holdout: float,
    tolerance: Tolerance,
    *,
    whole: bool,
    n_init: int,
    max_iter: int,
    random: np.random.Generator,
) -> tuple[Pair, list[float]]:
    """Centroids to begin with, and the MMD that each start ended with on the sample.

    Parameters
    ----------
    phi, codes : (s, width) features and (s, k) groups of the sample.
    whole : the sample is all rows: begin where the best start began, so that every step is on record.
    """
    names, codes_here = np.unique(codes[:, 0], return_inverse=True)
    if isinstance(tolerance, dict):
        tolerance = {place: tolerance.get(int(name), 0.0) for place, name in enumerate(names.tolist())}
    codes = np.column_stack([codes_here, codes[:, 1:]])
    try:
        selector = make_selector(codes, holdout, tolerance)
    except ValueError:
        if whole:
            raise
        # Groups so small that the sample holds none of their shares: a start need not heed them.
        selector = make_selector(np.zeros((len(phi), 1), np.int64), holdout, 0.0)
    start, fit, ends = best_start(FeatureRows(phi, selector), n_init, max_iter, random)
    return (start if whole else fit.centroids), ends
