"""lambda1 and lambda2 without labels: the least correlation that does not cost too many rows.

Decorrelating is a trade: weight on few rows can balance almost anything, and few rows cluster badly. So among
the settings that keep the effective sample size at least at a share of the rows, the one whose weights leave
the least correlation is taken; where none keeps it, the one with the largest effective sample size. Figures
are means over several starts. Neither labels nor the number of true classes enter.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.utils import check_random_state

from operators.dckm.estimators import DecorrelatedKMeans

GRID = (0.01, 0.1, 1.0, 10.0, 100.0, 1000.0)
"""The paper's values of lambda1 and lambda2 (section 4)."""
LEAST_SHARE = 0.5


@dataclass(frozen=True)
class Tried:
    """A setting and what became of it, by mean over starts.

    Attributes
    ----------
    share : effective sample size over n.
    correlation : Frobenius norm of the off-diagonal weighted covariance.
    """

    lambda1: float
    lambda2: float
    share: float
    correlation: float


def pick(tried: Iterable[Tried], least_share: float = LEAST_SHARE) -> Tried:
    """The rule of this module; of equals the first. Raises ValueError where nothing was tried."""
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
    least_share: float = LEAST_SHARE,
    n_starts: int = 2,
) -> tuple[Tried, list[Tried]]:
    """Try every pair of the grid; X may be a sample of the rows.

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
    """
    seeds = check_random_state(model.random_state).randint(np.iinfo(np.int32).max, size=n_starts).tolist()
    tried = []
    for lambda1, lambda2 in product(grid, grid):
        fits = [
            clone(model).set_params(lambda1=lambda1, lambda2=lambda2, random_state=seed).fit(X)
            for seed in seeds
        ]
        share = np.mean([fit.effective_sample_size_ / len(fit.labels_) for fit in fits])
        left = np.mean([fit.correlation_after_ for fit in fits])
        tried.append(Tried(lambda1, lambda2, float(share), float(left)))
    return pick(tried, least_share), tried
