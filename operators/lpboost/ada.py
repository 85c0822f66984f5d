"""Sample weights of alpha-AdaLPBoost (Zhai et al. 2021, Algorithm 2)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from operators.lpboost.group import Alone, Group, extremes
from operators.lpboost.problem import Array, check_loss, check_losses


def ada_sample_weights(losses: npt.ArrayLike, eta: float = 1.0) -> Array:
    """w_i proportional to exp(eta times row i's summed losses).

    Unlike AdaBoost's, the step size does not follow the models' errors, and the weights know no alpha:
    one set of base models serves every alpha.

    Parameters
    ----------
    losses : (n, t) in [0, 1], 0/1 losses in the paper.
    eta : step size > 0; 1 in the paper's experiments, sqrt(8 log(n) / T) in its Theorem 5.

    Returns
    -------
    (n,) > 0 up to underflow, sum 1.

    Raises
    ------
    ValueError : losses not (n, t), not finite or not in [0, 1]; eta not > 0.
    """
    return _normalised(Alone(), _check_eta(eta) * check_losses(losses).sum(axis=1))


class AdaWeights:
    """:func:`ada_sample_weights` round after round; the same face as ``SampleWeightSolver``.

    eta : step size. group : the workers that share the rows, all calling in step.
    """

    def __init__(self, eta: float = 1.0, *, group: Group | None = None) -> None:
        self.eta, self.group = _check_eta(eta), group or Alone()
        self.total_: Array | None = None
        """(n,) summed losses of this worker's rows; all there is to a checkpoint."""

    def add(self, loss: npt.ArrayLike) -> Array:
        """Add a model's losses, (n,) in [0, 1] on this worker's rows; return the next weights (n,)."""
        total = self.total_
        values = check_loss(loss, np.size(loss) if total is None else len(total))
        self.total_ = values if total is None else total + values
        return _normalised(self.group, self.eta * self.total_)


def _check_eta(eta: float) -> float:
    if not 0 < eta < np.inf:
        raise ValueError(f"eta is {eta!r}; give a step size > 0, such as 1")
    return eta


def _normalised(group: Group, scores: Array) -> Array:
    _, most = extremes(group, scores)
    raw = np.exp(scores - most)
    return raw / float(group.total(np.array([raw.sum()]))[0])
