"""Algorithm 1 of Horenko 2022 as a state machine; the caller makes the passes over the rows.

It serves rows in memory, rows in shards, and restarts and classes that share their passes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from operators.eos.kernel import WeightStatistics

MIN_EFFECTIVE_ROWS = 10
"""Effective sample size below which weights count as collapsed, whatever the learner."""
ROUNDING = 1e-9
"""Relative rise of the objective that counts as rounding."""


@dataclass(frozen=True)
class Fit:
    """Result of a descent."""

    model: Any
    statistics: WeightStatistics
    """Statistics of the pass over all rows at ``model``."""
    objective: list[float]
    """Objective L after each w-step, falling: a step that raises it is discarded."""
    converged: bool


@dataclass
class Descent:
    """Alternates theta-steps and w-steps until the objective falls by no more than ``tol * alpha``.

    The caller makes the pass for the model ``ahead`` with :attr:`next_alpha`, and hands its statistics to
    :meth:`advance`. The pass before the first iteration has weights that do not depend on the losses.
    """

    ahead: Any
    """Model of the next pass."""
    alpha: float
    tol: float = 1e-9
    max_iter: int = 100
    draw: int | None = None
    """Seed of random starting weights; None: uniform."""
    started: bool = False
    """Whether ``ahead`` has been fitted to the starting weights."""
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
        """Process the statistics of a pass; ``fit(model, found)`` makes the theta-step from them."""
        if not self.started:
            self.started = True
            self.ahead = fit(self.ahead, found)
            return
        value = found.objective + self.ahead.penalty
        before = self._best.objective if self._best else []
        last = before[-1] if before else np.inf
        if self._best and value > last:
            # Beyond rounding only an iterative learner can fail to improve. The better model is kept.
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
    """Return the fit with the lowest objective, the first of equals."""
    return min((descent.best for descent in descents), key=lambda fit: fit.objective[-1])


def collapse(fit: Fit) -> str:
    """Return a warning if the weights rest on too few rows for the learner, else ""."""
    left, wanted = fit.statistics.effective_sample_size, max(MIN_EFFECTIVE_ROWS, 1.5 * fit.model.rows_needed)
    if left >= min(wanted, fit.statistics.prior / 2):
        return ""
    return (
        f"EOS weights have collapsed: at alpha = {fit.statistics.alpha:.4g} their effective sample size is "
        f"{left:.1f} of {fit.statistics.prior:g} rows, and the learner needs {fit.model.rows_needed}. Raise "
        "alpha, or set it to 'auto'."
    )
