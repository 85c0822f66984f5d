"""Algorithm 1 as a state machine: somebody else makes the passes over the rows.

So one code serves rows in memory, shards anywhere, restarts and classes that share their passes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from operators.eos.kernel import Tally

HANDFUL = 10
"""Effective sample size below which weights have collapsed, whatever the learner needs."""
ROUNDING = 1e-9
"""Of the objective: a rise below it is no rise."""


@dataclass(frozen=True)
class Fit:
    """Where a descent ended."""

    model: Any
    tally: Tally
    """What the pass over all rows found at ``model``."""
    objective: list[float]
    """L after each w-step: falls."""
    converged: bool


@dataclass
class Descent:
    """theta and w in turns until the objective falls by no more than ``tol * alpha``.

    ``ahead`` is the model to look at in the next pass, with :attr:`next_alpha`; give what it finds to
    :meth:`advance`. The pass before the first iteration has weights that do not depend on a loss.
    """

    ahead: Any
    alpha: float
    tol: float = 1e-9
    max_iter: int = 100
    draw: int | None = None
    """Seed of random starting weights; None: uniform."""
    started: bool = False
    """True from the beginning where ``ahead`` is fitted to the starting weights already."""
    done: bool = False
    _best: Fit | None = None

    @property
    def best(self) -> Fit:
        """The lowest so far. Raises ValueError before the first iteration."""
        if self._best is None:
            raise ValueError("EOS has made no iteration yet.")
        return self._best

    @property
    def next_alpha(self) -> float:
        """Infinite where the next pass is to use the starting weights."""
        return self.alpha if self.started else np.inf

    @property
    def next_draw(self) -> int | None:
        """Seed of the random weights of the next pass, or None."""
        return None if self.started else self.draw

    def advance(self, found: Tally, fit: Callable[[Any, Tally], Any]) -> None:
        """Take the sums of all rows; ``fit(model, found)`` is the theta-step from them."""
        if not self.started:
            self.started = True
            self.ahead = fit(self.ahead, found)
            return
        value = found.objective + self.ahead.penalty
        before = self._best.objective if self._best else []
        last = before[-1] if before else np.inf
        if self._best and value > last:
            # Only an iterative learner can fail to improve beyond rounding; the better model stays.
            self.done = True
            rounding = value - last <= ROUNDING * max(abs(last), self.alpha)
            self._best = replace(self._best, converged=rounding)
            return
        converged = last - value <= self.tol * self.alpha
        self._best = Fit(self.ahead, found, [*before, value], converged)
        self.done = converged or len(before) + 1 >= self.max_iter
        if not self.done:
            self.ahead = fit(self.ahead, found)


def from_sums(model: Any, found: Tally) -> Any:
    """The theta-step of a learner that needs only sums."""
    return model.updated(found.sums, found.mass)


def best_of(descents: list[Descent]) -> Fit:
    """The one that ended lowest; the first of equals."""
    return min((descent.best for descent in descents), key=lambda fit: fit.objective[-1])


def collapse(fit: Fit) -> str:
    """A warning if the weights rest on so few rows that the model describes these alone, else ""."""
    left, wanted = fit.tally.effective_sample_size, max(HANDFUL, 1.5 * fit.model.rows_needed)
    if left >= min(wanted, fit.tally.prior / 2):
        return ""
    return (
        f"EOS weights have collapsed: at alpha = {fit.tally.alpha:.4g} their effective sample size is "
        f"{left:.1f} of {fit.tally.prior:g} rows, and the learner needs {fit.model.rows_needed}. Raise "
        "alpha, or set it to 'auto'."
    )
