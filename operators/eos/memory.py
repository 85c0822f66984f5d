"""EOS on rows in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from operators.arrays import Float64
from operators.eos.descent import Descent, Fit, best_of, from_sums
from operators.eos.kernel import (
    BLOCK,
    Target,
    WeightStatistics,
    collect_statistics,
    merged,
    random_rows,
    random_weights,
    statistics_of_losses,
)

SAMPLE = 4096
"""Size of the sample from which a learner starts and on which alpha is chosen."""


@dataclass(frozen=True)
class Rows:
    """X (n, d), targets y (n, ...) or None, prior weights (n,), and row ids (n,) that draws depend on."""

    X: npt.NDArray[np.floating]
    y: Target
    prior: Float64
    ids: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.X)

    def take(self, places: npt.NDArray[np.int64]) -> Rows:
        """Return the rows at ``places`` (m,)."""
        y = None if self.y is None else self.y[places]
        return Rows(self.X[places], y, self.prior[places], self.ids[places])

    def sample(self, seed: int, size: int = SAMPLE) -> Rows:
        """Draw up to ``size`` of the rows with a positive prior at random.

        If targets are classes, one row of each class that the draw misses is added, because a learner takes
        the number of classes from its sample.
        """
        counted = np.flatnonzero(self.prior > 0)
        if len(counted) <= size and len(counted) == len(self):
            return self
        drawn = counted[random_rows(self.ids[counted], size, seed)]
        return self.take(np.sort(np.concatenate([drawn, self._first_of_missing_classes(drawn)])))

    def _first_of_missing_classes(self, drawn: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        if self.y is None or self.y.ndim > 1 or not np.issubdtype(self.y.dtype, np.integer):
            return np.empty(0, np.int64)
        classes, first = np.unique(self.y, return_index=True)
        return first[~np.isin(classes, self.y[drawn])]

    def starting(self, draw: int | None) -> Float64:
        """Return the starting weights (n,): the prior, times random weights where ``draw`` is their seed."""
        return self.prior if draw is None else self.prior * random_weights(self.ids, draw)


def rows_of(X: npt.NDArray[np.floating], y: Target = None, prior: Float64 | None = None) -> Rows:
    """Return rows whose ids are their positions."""
    prior = np.ones(len(X)) if prior is None else prior
    return Rows(X, y, prior, np.arange(len(X)))


def losses(model: Any, X: npt.NDArray[np.floating], y: Target) -> Float64:
    """Return the losses g(x_t, theta) (n,)."""
    if hasattr(model, "refitted"):
        found: Float64 = model.losses(X, y)
        return found
    parts = [slice(start, start + BLOCK) for start in range(0, len(X), BLOCK)]
    return np.concatenate([model.view(X[part], None if y is None else y[part]).losses for part in parts])


def weights(model: Any, found: WeightStatistics, rows: Rows) -> Float64:
    """Return the weights w_t (n,), sum 1 over the rows that ``found`` was collected from."""
    return weights_of_prior(found, found.log_weights(losses(model, rows.X, rows.y)), rows.prior)


def weights_of_prior(found: WeightStatistics, log_weights: Float64, prior: Float64) -> Float64:
    """Return the weights w_t (n,) from their logs (n,); 0 for a row of prior 0, whatever its loss."""
    weight, counted = np.zeros(len(prior)), prior > 0
    weight[counted] = prior[counted] * np.exp(log_weights[counted]) / found.prior
    return weight


def collect(model: Any, rows: Rows, alpha: float, draw: int | None = None) -> WeightStatistics:
    """Make one pass over rows in memory."""
    prior = rows.starting(draw)
    if hasattr(model, "refitted"):
        return merged([statistics_of_losses(losses(model, rows.X, rows.y), prior, alpha)])
    return merged([collect_statistics(model, rows.X, rows.y, prior, alpha)])


def step(model: Any, found: WeightStatistics, rows: Rows, draw: int | None) -> Any:
    """Make the theta-step, from sums where the learner can, else from the weights themselves."""
    if not hasattr(model, "refitted"):
        return from_sums(model, found)
    if np.isfinite(found.alpha):
        return model.refitted(rows.X, rows.y, weights(model, found, rows))
    return model.refitted(rows.X, rows.y, rows.starting(draw) / found.mass)


def run_descent(rows: Rows, descent: Descent) -> Descent:
    """Run a descent to its end on rows in memory."""
    while not descent.done:
        draw = descent.next_draw
        found = collect(descent.ahead, rows, descent.next_alpha, draw)
        descent.advance(found, partial(step, rows=rows, draw=draw))
    return descent


def fitted(
    rows: Rows,
    learner: Any,
    alpha: float,
    *,
    draws: Sequence[int | None] = (None,),
    seed: int = 0,
    tol: float,
    max_iter: int,
) -> Fit:
    """Run EOS from one start for each of ``draws`` and return the fit with the lowest objective.

    A draw is the seed of random starting weights, or None for uniform ones. ``seed`` is that of the sample
    and of the learner's start; restart i uses ``seed + i``.
    """
    sample = rows.sample(seed)
    found = []
    for index, draw in enumerate(draws):
        model = learner.start(sample.X, sample.y, sample.prior, seed + index)
        found.append(run_descent(rows, Descent(model, alpha, tol, max_iter, draw)))
    return best_of(found)
