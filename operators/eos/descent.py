"""Algorithm 1 of Horenko 2022 as a state machine; the caller makes the passes over the rows.

The same code serves rows in memory, rows in shards, and restarts and classes that share their passes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from operators.eos.kernel import WeightStatistics

HANDFUL = 10
"""Effective sample size below which weights count as collapsed for every learner."""
ROUNDING = 1e-9
"""Relative rise of the objective that counts as rounding."""


@dataclass(frozen=True)
class Fit:
    """The end of a descent."""

    model: Any
    statistics: WeightStatistics
    """Statistics of the pass over all rows at ``model``."""
    objective: list[float]
    """L after each w-step, falling: a step that raises it is undone."""
    converged: bool


@dataclass
class Descent:
    """Alternate theta-steps and w-steps until the objective falls by no more than ``tol * alpha``.

    ``ahead`` is the model of the next pass, which uses :attr:`next_alpha`; the caller gives its statistics to
    :meth:`advance`. The pass before the first iteration has weights that do not depend on a loss.
    """

    ahead: Any
    alpha: float
    tol: float = 1e-9
    max_iter: int = 100
    draw: int | None = None
    """Seed of random starting weights; None: uniform."""
    started: bool = False
    """True from the beginning where ``ahead`` has been fitted to the starting weights."""
    done: bool = False
    _best: Fit | None = None

    @property
    def best(self) -> Fit:
        """The fit with the lowest objective so far. Raises ValueError before the first iteration."""
        if self._best is None:
            raise ValueError("EOS has made no iteration yet.")
        return self._best

    @property
    def next_alpha(self) -> float:
        """alpha of the next pass; infinite for the starting weights."""
        return self.alpha if self.started else np.inf

    @property
    def next_draw(self) -> int | None:
        """Seed of the random weights of the next pass, or None."""
        return None if self.started else self.draw

    def advance(self, found: WeightStatistics, fit: Callable[[Any, WeightStatistics], Any]) -> None:
        """Take the statistics of a pass; ``fit(model, found)`` makes the theta-step from them."""
        if not self.started:
            self.started = True
            self.ahead = fit(self.ahead, found)
            return
        value = found.objective + self.ahead.penalty
        before = self._best.objective if self._best else []
        last = before[-1] if before else np.inf
        if self._best and value > last:
            # Only an iterative learner can fail to improve beyond rounding; the better model is kept.
            self.done = True
            rounding = value - last <= ROUNDING * max(abs(last), self.alpha)
            self._best = replace(self._best, converged=rounding)
            return
        converged = last - value <= self.tol * self.alpha
        self._best = Fit(self.ahead, found, [*before, value], converged)
        self.done = converged or len(before) + 1 >= self.max_iter
        if not self.done:
            self.ahead = fit(self.ahead, found)


def from_sums(model: Any, found: WeightStatistics) -> Any:
    """Make the theta-step of a learner that needs only sums."""
    return model.updated(found.sums, found.mass)


def best_of(descents: list[Descent]) -> Fit:
    """Return the fit of the descent that ended lowest; the first of equals."""
    return min((descent.best for descent in descents), key=lambda fit: fit.objective[-1])


def collapse(fit: Fit) -> str:
    """Return a warning if the weights rest on too few rows for the learner, else ""."""
    left, wanted = fit.statistics.effective_sample_size, max(HANDFUL, 1.5 * fit.model.rows_needed)
    if left >= min(wanted, fit.statistics.prior / 2):
        return ""
    return (
        f"EOS weights have collapsed: at alpha = {fit.statistics.alpha:.4g} their effective sample size is "
        f"{left:.1f} of {fit.statistics.prior:g} rows, and the learner needs {fit.model.rows_needed}. Raise "
        "alpha, or set it to 'auto'."
    )
