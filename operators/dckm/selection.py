"""lambda1 and lambda2 without labels: the least correlation that keeps enough of the rows.

Decorrelation is a trade-off: weight on few rows can balance almost anything, and few rows cluster badly.
Among the settings that keep the effective sample size at a share of the rows or above, the rule takes the one
whose weights leave the least correlation; where no setting keeps it, the one with the largest effective
sample size. Figures are means over several starts. Neither labels nor the number of true classes enter.

``dckm: {lambdas: auto}`` applies the rule to a sample of the rows; one task tries one pair of the grid.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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
from operators.hashing import Hashes, row_hashes

GRID = (0.01, 0.1, 1.0, 10.0, 100.0, 1000.0)
"""The paper's values of lambda1 and lambda2 (section 4)."""
MIN_SHARE = 0.5
STARTS = 2
SAMPLE = 4096
"""Rows that the operator tries the grid on."""


@dataclass(frozen=True)
class Tried:
    """A pair of lambdas and its result, as means over starts.

    Attributes
    ----------
    share : effective sample size over n.
    correlation : Frobenius norm of the off-diagonal weighted covariance.
    """

    lambda1: float
    lambda2: float
    share: float
    correlation: float


def pick(tried: Iterable[Tried], least_share: float = MIN_SHARE) -> Tried:
    """Apply the rule of this module; the first of equals wins. Raises ValueError where nothing was tried."""
    settings = list(tried)
    if not settings:
        raise ValueError("There is no setting to pick from: give at least one lambda1 and one lambda2.")
    kept = [setting for setting in settings if setting.share >= least_share]
    if kept:
        return min(kept, key=lambda setting: setting.correlation)
    return max(settings, key=lambda setting: setting.share)


def choose_lambdas(
    model: DecorrelatedKMeans,
    X: Any,
    *,
    grid: Sequence[float] = GRID,
    least_share: float = MIN_SHARE,
    n_starts: int = STARTS,
) -> tuple[Tried, list[Tried]]:
    """Try every pair of the grid on the rows of X, which may be a sample.

    Parameters
    ----------
    model : all other parameters; its ``random_state`` draws the starts, the same for every pair.
    X : (n, d) finite numbers.
    grid : values of lambda1 and of lambda2.
    least_share : of the rows, that the effective sample size must keep; in [0, 1].
    n_starts : fits of each pair.

    Returns
    -------
    The pick, and all pairs tried.

    Examples
    --------
    >>> import numpy as np
    >>> from operators.dckm import DecorrelatedKMeans, choose_lambdas
    >>> X = np.random.default_rng(0).normal(size=(60, 3))
    >>> picked, tried = choose_lambdas(DecorrelatedKMeans(2, random_state=0), X, grid=(0.1, 10.0))
    >>> len(tried), picked in tried
    (4, True)
    """
    tried = [try_pair(model, X, n_starts, pair) for pair in product(grid, grid)]
    return pick(tried, least_share), tried


def try_pair(model: DecorrelatedKMeans, X: Any, n_starts: int, pair: tuple[float, float]) -> Tried:
    """Fit ``model`` with lambda1, lambda2 = ``pair`` from ``n_starts`` starts that its random_state draws."""
    seeds = check_random_state(model.random_state).randint(np.iinfo(np.int32).max, size=n_starts).tolist()
    fits = [
        clone(model).set_params(lambda1=pair[0], lambda2=pair[1], random_state=seed).fit(X) for seed in seeds
    ]
    share = np.mean([fit.effective_sample_size_ / len(fit.labels_) for fit in fits])
    left = np.mean([fit.correlation_after_ for fit in fits])
    return Tried(*pair, float(share), float(left))


def choose_over_shards(
    model: DecorrelatedKMeans, shards: ShardReader, seed: int, executor: Executor, resources: Resources
) -> tuple[Tried, list[Tried]]:
    """Apply the rule to the :data:`SAMPLE` rows with the least hashes; tasks share the grid."""
    numbers = range(len(shards.shards))
    parts = list(executor.map(partial(_candidates, shards, seed), numbers, resources=resources))
    rows = [part for part in parts if len(part[0])]
    hashes, X = (np.concatenate(column) for column in zip(*rows, strict=True))
    X = X[np.argsort(hashes, kind="stable")[:SAMPLE]]
    pairs = list(product(GRID, GRID))
    tried = list(executor.map(partial(try_pair, model, X, STARTS), pairs, resources=resources))
    return pick(tried), tried


def _candidates(shards: ShardReader, seed: int, shard: int) -> tuple[Hashes, Any]:
    """Return hashes and features of the rows of a shard that may be in the sample."""
    table = shards.read(shard, [FEATURES])
    hashes = row_hashes(table.column(ROW_ID).to_numpy(), seed, "dckm/sample for lambdas")
    first = np.argsort(hashes, kind="stable")[:SAMPLE]
    return hashes[first], vectors_to_numpy(table.column(FEATURES))[first]
