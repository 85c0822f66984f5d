"""Weights of models and of rows: the public faces, each with a proof of optimality."""

from __future__ import annotations

import warnings
from typing import Literal

import numpy as np
import numpy.typing as npt

from operators.lpboost.group import Alone, Group
from operators.lpboost.problem import (
    GOAL,
    MAX_GAP,
    Array,
    Solution,
    UncertifiedError,
    check_alpha,
    check_beta,
    check_loss,
    check_losses,
    tail_rows,
)
from operators.lpboost.reference import Library, solve_by_library
from operators.lpboost.regularised import solve_regularised
from operators.lpboost.sifting import Start, cold_start, sift, with_new_model
from operators.lpboost.softmax import entropy

Method = Literal["auto", "highs", "clarabel"]


def solve(
    losses: npt.ArrayLike, alpha: float, beta: float | None = None, *, method: Method = "auto"
) -> Solution:
    """Both players' weights of alpha-LPBoost, their value and their duality gap.

    Parameters
    ----------
    losses : (n, t) in [0, 1]: column s holds the losses of base model s. Copied to float64.
    alpha : size of the tail, in (0, 1]. Below 1/n the tail is the one worst row.
    beta : strength of the entropy term H(w)/beta (Zhai et al. 2021, equation 8); None for the plain LP.
    method : "auto" is sifting, or where there is a beta Newton's method, beyond beta = 1,000 an interior
        point method; "highs" (no beta) and "clarabel" force a library's solver through CVXPY.

    Returns
    -------
    Solution with a gap of at most 1e-7.

    Raises
    ------
    ValueError : losses not (n, t), not finite or not in [0, 1]; alpha, beta or method out of range.
    UncertifiedError : no solver closed the gap.

    Notes
    -----
    Where "auto" does not close the gap, a library solves the problem again, with a RuntimeWarning;
    ``method`` of the result says so.
    """
    L = check_losses(losses)
    n = len(L)
    tail = tail_rows(n, check_alpha(alpha))
    return _solve(Alone(), L, cold_start(L), tail, n, check_beta(beta), method)


def solve_model_weights(losses: npt.ArrayLike, alpha: float, *, method: Method = "auto") -> Array:
    """Model weights lambda (t,) of least CVaR: the primal LP of alpha-LPBoost (Zhai et al. 2021, equation 6).

    losses (n, t) are those of the selection set. Base models are trained once; another alpha only
    means another call. See :func:`solve` for parameters and errors.
    """
    return solve(losses, alpha, method=method).model_weights


def solve_sample_weights(
    losses: npt.ArrayLike, alpha: float, beta: float | None = None, *, method: Method = "auto"
) -> Array:
    """Sample weights w (n,) for the next base model: the dual LP (equation 5), or equation 8 with ``beta``.

    losses (n, t) are those of the training rows. See :func:`solve` for parameters and errors, and
    :class:`SampleWeightSolver` for round after round.
    """
    return solve(losses, alpha, beta, method=method).sample_weights


class SampleWeightSolver:
    """Sample weights round after round, each solved from where the last one ended.

    Parameters
    ----------
    alpha, beta, method : as in :func:`solve`.
    group : the workers that share the rows, all calling in step; each gives and gets its own rows.
        Default: this process has all.

    Attributes
    ----------
    losses_ : (n, t) losses given so far, by this worker's rows.
    solution_ : the last Solution; before the first round None.
    fallbacks_ : rounds in which a library had to help out.
    """

    def __init__(
        self,
        alpha: float,
        beta: float | None = None,
        *,
        method: Method = "auto",
        group: Group | None = None,
    ) -> None:
        self.alpha, self.beta, self.method = check_alpha(alpha), check_beta(beta), method
        self.group = group or Alone()
        self.fallbacks_ = 0
        self.solution_: Solution | None = None
        self._store = np.empty((0, 0))
        self._t = 0
        self._rows = 0

    @property
    def losses_(self) -> Array:  # noqa: D102
        return self._store[:, : self._t]

    def add(self, loss: npt.ArrayLike) -> Array:
        """Add a model's losses, (n,) in [0, 1] on this worker's rows; return the next weights (n,)."""
        last = self.solution_
        self._append(loss)
        tail = tail_rows(self._rows, self.alpha)
        found = None
        if last is not None and self.method == "auto":
            found = _unchanged(self.group, last, self.losses_[:, -1], self.beta)
        if found is None:
            L = self.losses_
            start = cold_start(L) if last is None else with_new_model(self.group, L, last, tail)
            found = _solve(self.group, L, start, tail, self._rows, self.beta, self.method)
        self.fallbacks_ += self.method == "auto" and found.method in ("highs", "clarabel")
        self.solution_ = found
        return found.sample_weights

    def restore(self, losses: npt.ArrayLike, solution: Solution) -> None:
        """Go on from a checkpoint: the next ``add`` gives the same bytes as in an unbroken run."""
        L = check_losses(losses)
        self._store, self._t = L.copy(), L.shape[1]
        self._rows = int(self.group.total(np.array([float(len(L))]))[0])
        self.solution_ = solution

    def _append(self, loss: npt.ArrayLike) -> None:
        values = check_loss(loss, len(self._store) if self._t else np.size(loss))
        if not self._t:
            self._store = np.empty((len(values), 16))
            self._rows = int(self.group.total(np.array([float(len(values))]))[0])
            if not self._rows:
                raise ValueError("loss has no rows on any worker; give at least one")
        if self._t == self._store.shape[1]:
            wider = np.empty((len(values), 2 * self._t))
            wider[:, : self._t] = self._store
            self._store = wider
        self._store[:, self._t] = values
        self._t += 1


def _solve(
    group: Group,
    losses: Array,
    start: Start,
    tail: float,
    n_rows: int,
    beta: float | None,
    method: Method,
) -> Solution:

    if method not in ("auto", "highs", "clarabel"):
        raise ValueError(f'method is {method!r}; give "auto", "highs" or "clarabel"')
    if method == "auto":
        if tail >= n_rows:
            found = _all_rows(group, losses, n_rows, beta)
        elif beta is None:
            found = sift(group, losses, start, tail, n_rows)
        else:
            found = solve_regularised(group, losses, start.model_weights, tail, beta)
        if found.gap <= MAX_GAP:
            return found
        warnings.warn(
            f"{found.method} left a duality gap of {found.gap:.1e} on {n_rows} rows and "
            f"{losses.shape[1]} models; a library solves them again",
            RuntimeWarning,
            stacklevel=3,
        )
    fallback: Library = "highs" if beta is None else "clarabel"
    library = fallback if method == "auto" else method
    every, own = group.gather(losses)
    found = solve_by_library(every, tail, library, beta)
    if not found.gap <= MAX_GAP:
        raise UncertifiedError(
            f"{library} left a duality gap of {found.gap:.1e} on {n_rows} rows and {losses.shape[1]} models, "
            f'more than {MAX_GAP:g}: try method "auto" or another library'
        )
    return Solution(**{**vars(found), "sample_weights": found.sample_weights[own]})


def _unchanged(group: Group, last: Solution, loss: Array, beta: float | None) -> Solution | None:
    """The last solution, the new model at weight 0, where that is optimal; else None.

    It is where the new model is no better than the others under the last sample weights.
    """
    w = last.sample_weights
    sums = group.total(np.array([w @ loss, 0.0 if beta is None else entropy(w) / beta]))
    lower = min(last.value, float(sums.sum()))
    gap = last.gap + last.value - lower
    if gap > GOAL:
        return None
    return Solution(w, np.append(last.model_weights, 0.0), lower, gap, last.method)


def _all_rows(group: Group, losses: Array, n_rows: int, beta: float | None) -> Solution:
    """The tail is all rows: every weight is 1/n, and the model of least mean loss is optimal."""
    means = group.total(losses.sum(axis=0)) / n_rows
    best = int(means.argmin())
    extra = 0.0 if beta is None else float(np.log(n_rows)) / beta
    one = np.zeros(len(means))
    one[best] = 1.0
    return Solution(np.full(len(losses), 1 / n_rows), one, float(means[best]) + extra, 0.0, "mean")
