"""Boosted CVaR classification (Zhai et al. 2021, Algorithms 1 and 2), for any learner, in one process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from operators.lpboost.problem import Array
from operators.lpboost.solver import solve_model_weights

Learner = Callable[[Array], tuple[npt.ArrayLike, npt.ArrayLike]]
"""Sample weights (n,) in; out the losses of the model fitted to them: on the n training rows, and on
the m rows of the selection set, all in [0, 1]."""


class Weighting(Protocol):
    """What the next model's sample weights are: ``AdaWeights`` or ``SampleWeightSolver``."""

    def add(self, loss: npt.ArrayLike) -> Array:
        """Losses of the last model in, the next weights out."""
        ...


@dataclass(frozen=True)
class Ensemble:
    """The losses of all base models, from which lambda follows for any alpha."""

    training_losses: Array
    """(n, t)."""
    selection_losses: Array
    """(m, t); column 0 is the model fitted to equal weights, that is ERM."""

    def model_weights(self, alpha: float) -> Array:
        """lambda (t,) of least CVaR on the selection set; no model is trained again."""
        return solve_model_weights(self.selection_losses, alpha)


def boost(learner: Learner, n_rows: int, weighting: Weighting, rounds: int) -> Ensemble:
    """Train base models one after another, each on the weights that the last ones' losses ask for.

    Parameters
    ----------
    learner : fits a model to sample weights and says how it fares.
    n_rows : training rows. The first model gets equal weights.
    weighting : ``AdaWeights(eta)`` for alpha-AdaLPBoost, ``SampleWeightSolver(alpha)`` for alpha-LPBoost,
        ``SampleWeightSolver(alpha, beta)`` for its regularised form.
    rounds : base models T, at least 1.

    Raises
    ------
    ValueError : rounds < 1, or losses that are not finite or not in [0, 1].
    """
    if rounds < 1:
        raise ValueError(f"rounds is {rounds}; give at least 1")
    weights = np.full(n_rows, 1 / n_rows)
    training, selection = [], []
    for _ in range(rounds):
        on_training, on_selection = learner(weights)
        weights = weighting.add(on_training)
        training.append(np.asarray(on_training, np.float64))
        selection.append(np.asarray(on_selection, np.float64))
    return Ensemble(np.column_stack(training), np.column_stack(selection))
