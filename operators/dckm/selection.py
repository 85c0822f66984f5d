"""Selection of lambda1 and lambda2 without labels.

Weights on few rows can balance almost any features, but few rows cluster badly. Of the pairs whose weights
keep the effective sample size at a given share of the rows, the rule selects the one that leaves the least
correlation. If no pair keeps it, the rule selects the one with the largest effective sample size. Figures are
means over several starts.

``dckm: {lambdas: auto}`` applies the rule to a sample of the rows; one task tries one pair of the grid.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.utils import check_random_state

from operators.base import FEATURES, ROW_ID, Executor, Resources, ShardReader
from operators.columns import vectors_to_numpy
from operators.dckm.estimator import DecorrelatedKMeans
from operators.dckm.kernel import ROUNDING
from operators.hashing import Hashes, row_hashes

GRID = (0.01, 0.1, 1.0, 10.0, 100.0, 1000.0)
"""The paper's values of lambda1 and lambda2 (section 4)."""
MIN_SHARE = 0.5
"""Share of the rows that the effective sample size must keep."""
STARTS = 2
"""Fits of each pair."""
SAMPLE = 4096
"""Rows on which the operator tries the grid."""


@dataclass(frozen=True)
class TriedPair:
    """A pair of lambdas and its figures, means over starts.

    Attributes
    ----------
    share : effective sample size over n.
    correlation : Frobenius norm of the off-diagonal weighted covariance.
    """

    lambda1: float
    lambda2: float
    share: float
    correlation: float


def select_pair(tried: Iterable[TriedPair], min_share: float = MIN_SHARE) -> TriedPair:
    """Return the pair that the rule of this module selects, the first of equals. Raises ValueError if
    empty.
    """
    pairs = list(tried)
    if not pairs:
        raise ValueError("there is no pair to select from: give at least one value of lambda1 and lambda2.")
    kept = [pair for pair in pairs if pair.share >= min_share]
    if kept:
        return min(kept, key=lambda pair: pair.correlation)
    return max(pairs, key=lambda pair: pair.share)


def try_pair(model: DecorrelatedKMeans, X: Any, n_starts: int, pair: tuple[float, float]) -> TriedPair:
    """Return the figures of one pair (lambda1, lambda2): means over ``n_starts`` fits of ``model``."""
    seeds = check_random_state(model.random_state).randint(np.iinfo(np.int32).max, size=n_starts).tolist()
    fits = [
        clone(model).set_params(lambda1=pair[0], lambda2=pair[1], random_state=seed).fit(X) for seed in seeds
    ]
    share = np.mean([fit.effective_sample_size_ / len(fit.labels_) for fit in fits])
    left = np.mean([fit.correlation_after_ for fit in fits])
    return TriedPair(*pair, float(share), float(left))


def choose_over_shards(
    model: DecorrelatedKMeans, shards: ShardReader, seed: int, executor: Executor, resources: Resources
) -> tuple[TriedPair, list[TriedPair]]:
    """Apply the rule to the :data:`SAMPLE` rows with the smallest hashes; one task fits one pair.

    Raises ValueError if there are no rows.
    """
    numbers = range(len(shards.shards))
    parts = list(executor.map(partial(_candidates, shards, seed), numbers, resources=resources))
    rows = [part for part in parts if len(part[0])]
    if not rows:
        raise ValueError(
            f"there is no row to try them on: none of the {len(parts)} shards has a valid row. `rowsieve "
            "quarantine` lists the rejected rows and the reasons."
        )
    hashes, X = (np.concatenate(column) for column in zip(*rows, strict=True))
    X = X[np.argsort(hashes, kind="stable")[:SAMPLE]]
    pairs = list(product(GRID, GRID))
    tried = list(executor.map(partial(try_pair, model, X, STARTS), pairs, resources=resources))
    return select_pair(tried, MIN_SHARE * (1 - ROUNDING)), tried


def _candidates(shards: ShardReader, seed: int, shard: int) -> tuple[Hashes, Any]:
    """Return hashes and features of the up to :data:`SAMPLE` rows of a shard with the smallest hashes."""
    table = shards.read(shard, [FEATURES])
    hashes = row_hashes(table.column(ROW_ID).to_numpy(), seed, "dckm/sample for lambdas")
    first = np.argsort(hashes, kind="stable")[:SAMPLE]
    return hashes[first], vectors_to_numpy(table.column(FEATURES))[first]
