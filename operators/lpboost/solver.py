"""The public functions of alpha-LPBoost: model weights and sample weights, certified by a duality gap."""

from __future__ import annotations

import warnings
from typing import Literal

import numpy as np
import numpy.typing as npt

from operators.arrays import Float64
from operators.lpboost.problem import (
    GOAL,
    MAX_GAP,
    Solution,
    UncertifiedError,
    check_alpha,
    check_beta,
    check_loss,
    check_losses,
    row_copies,
    tail_rows,
)
from operators.lpboost.reference import Library, solve_by_library
from operators.lpboost.regularised import solve_regularised
from operators.lpboost.sifting import Start, sift, sift_cold, warm_start
from operators.lpboost.softmax import entropy

Method = Literal["auto", "highs", "clarabel"]
EPSILON = 1e-12
"""A tail that misses all weighted rows by less than this share counts as all of them: rounding of sums."""


def solve(
    losses: npt.ArrayLike,
    alpha: float,
    beta: float | None = None,
    *,
    method: Method = "auto",
    sample_weight: npt.ArrayLike | None = None,
) -> Solution:
    """Solve alpha-LPBoost: the weights of both players, the value of the game and the duality gap.

    Parameters
    ----------
    losses : (n, t) array
        Column s holds the losses of base model s, in [0, 1].
    alpha : float
        Size of the tail, in (0, 1]. Below 1/n the tail is the one worst row.
    beta : float, optional
        Strength of the entropy term H(w)/beta. By default there is none.
    method : {"auto", "highs", "clarabel"}, default "auto"
        "auto" is sifting without beta, Newton's method for beta up to 1,000, and an interior-point method
        beyond. "highs" (without beta) and "clarabel" use a library's solver through CVXPY.
    sample_weight : (n,) array, optional
        How often each row counts, at least 0, by default once. Boosting may give row i at most the weight
        w_i / (alpha sum w), and a whole number counts as that many copies of the row.

    Returns
    -------
    Solution
        Its gap is at most 1e-7.

    Raises
    ------
    ValueError
        The losses are not (n, t), not finite or not in [0, 1]; or alpha, beta, method or a sample weight is
        out of range.
    UncertifiedError
        No solver closed the gap.

    Notes
    -----
    The game is max over w of min over s of <w, l_s>, with w in the simplex and w_i <= 1/(alpha n)
    (Zhai et al. 2021, equation 5 and Proposition 3), plus H(w)/beta in equation 8. Where "auto" does not
    close the gap, a library solves the problem again, with a RuntimeWarning; ``method`` of the result names
    the solver.

    Examples
    --------
    >>> from operators.lpboost import solve
    >>> found = solve([[0.0, 1.0], [1.0, 0.0], [1.0, 1.0]], alpha=1.0)
    >>> round(found.value, 6), found.gap <= 1e-7
    (0.666667, True)
    """
    L = check_losses(losses)
    copies = row_copies(sample_weight, len(L))
    tail = tail_rows(len(L), check_alpha(alpha), copies)
    return _solve(L, None, tail, check_beta(beta), method, copies)


def solve_model_weights(
    losses: npt.ArrayLike,
    alpha: float,
    sample_weight: npt.ArrayLike | None = None,
) -> Float64:
    """Return the model weights lambda (t,) with the smallest CVaR (equation 6, the primal LP).

    ``losses`` (n, t) are those of the selection set. Base models are trained once; another alpha only needs
    another call. Parameters and errors are those of :func:`solve`.

    Examples
    --------
    >>> from operators.lpboost import solve_model_weights
    >>> solve_model_weights([[0, 1], [1, 0]], alpha=0.5).round(6).tolist()
    [0.5, 0.5]
    """
    return solve(losses, alpha, sample_weight=sample_weight).model_weights


class SampleWeightSolver:
    """Sample weights for the rounds of boosting; each round starts from the solution of the last one.

    Parameters
    ----------
    alpha, beta, sample_weight
        As in :func:`solve`.

    Attributes
    ----------
    losses_ : (n, t) float64
        Losses of the models that were added.
    solution_ : Solution or None
        Solution of the last round; None before the first one.
    fallbacks_ : int
        Number of rounds that a library had to solve.

    Examples
    --------
    >>> from operators.lpboost import SampleWeightSolver
    >>> solver = SampleWeightSolver(alpha=0.5)
    >>> solver.add([0.0, 0.2, 1.0, 0.9]).round(6).tolist()
    [0.0, 0.0, 0.5, 0.5]
    """

    def __init__(
        self,
        alpha: float,
        beta: float | None = None,
        *,
        sample_weight: npt.ArrayLike | None = None,
    ) -> None:
        self.alpha, self.beta = check_alpha(alpha), check_beta(beta)
        self._copies = None if sample_weight is None else row_copies(sample_weight, np.size(sample_weight))
        self._n_weights = None if sample_weight is None else np.size(sample_weight)
        self.fallbacks_ = 0
        self.solution_: Solution | None = None
        self._store = np.empty((0, 0))
        self._t = 0

    @property
    def losses_(self) -> Float64:
        """Losses (n, t) of the models that were added."""
        return self._store[:, : self._t]

    def add(self, loss: npt.ArrayLike) -> Float64:
        """Add a model's losses (n,), in [0, 1], and return the sample weights (n,) for the next model."""
        last = self.solution_
        self._append(loss)
        tail, copies = tail_rows(len(self.losses_), self.alpha, self._copies), self._copies
        found = None
        if last is not None:
            found = _unchanged(last, self.losses_[:, -1], self.beta, copies)
        if found is None:
            L = self.losses_
            start = None if last is None else warm_start(L, last, tail, copies)
            found = _solve(L, start, tail, self.beta, "auto", copies)
        self.fallbacks_ += found.method in ("highs", "clarabel")
        self.solution_ = found
        return found.sample_weights

    def restore(self, losses: npt.ArrayLike, solution: Solution) -> None:
        """Continue from a checkpoint. The next ``add`` returns the same bytes as in an unbroken run."""
        L = check_losses(losses)
        self._store, self._t = L.copy(), L.shape[1]
        self.solution_ = solution

    def _append(self, loss: npt.ArrayLike) -> None:
        values = check_loss(loss, len(self._store) if self._t else np.size(loss))
        if not self._t:
            if not len(values):
                raise ValueError("loss has no rows; give at least one")
            if self._n_weights not in (None, len(values)):
                raise ValueError(
                    f"loss has {len(values)} rows, but sample_weight has {self._n_weights}; give one per row"
                )
            self._store = np.empty((len(values), 16))
        if self._t == self._store.shape[1]:
            wider = np.empty((len(values), 2 * self._t))
            wider[:, : self._t] = self._store
            self._store = wider
        self._store[:, self._t] = values
        self._t += 1


def _solve(
    losses: Float64,
    start: Start | None,
    tail: float,
    beta: float | None,
    method: Method,
    copies: Float64 | None = None,
) -> Solution:
    n_rows, t = losses.shape
    lam = np.full(t, 1 / t) if start is None else start.model_weights
    if method not in ("auto", "highs", "clarabel"):
        raise ValueError(f'method is {method!r}; give "auto", "highs" or "clarabel"')
    if method == "auto":
        if tail >= n_rows * (1 - (0 if copies is None else EPSILON)):
            found = _all_rows(losses, beta, copies)
        elif beta is None:
            found = sift_cold(losses, tail, copies) if start is None else sift(losses, start, tail, copies)
        else:
            found = solve_regularised(losses, lam, tail, beta, copies)
        if found.gap <= MAX_GAP:
            return found
        warnings.warn(
            f"lpboost: {found.method} left a duality gap of {found.gap:.1e} on {n_rows} rows and "
            f"{losses.shape[1]} models, so a library solves the problem again",
            RuntimeWarning,
            stacklevel=3,
        )
    fallback: Library = "highs" if beta is None else "clarabel"
    library = fallback if method == "auto" else method
    found = solve_by_library(losses, tail, library, beta, copies)
    if not found.gap <= MAX_GAP:
        raise UncertifiedError(
            f"lpboost: {library} left a duality gap of {found.gap:.1e} on {n_rows} rows and "
            f'{losses.shape[1]} models, more than {MAX_GAP:g}; set method to "auto" or to another library'
        )
    return found


def _unchanged(last: Solution, loss: Float64, beta: float | None, copies: Float64 | None) -> Solution | None:
    """Return the last solution with the new model at weight 0 if that is optimal, else None.

    It is optimal where the new model is no better than the others under the last sample weights.
    """
    w = last.sample_weights
    lower = min(last.value, float(w @ loss) + (0.0 if beta is None else entropy(w, copies) / beta))
    gap = last.gap + last.value - lower
    if gap > GOAL:
        return None
    return Solution(w, np.append(last.model_weights, 0.0), lower, gap, last.method)


def _all_rows(losses: Float64, beta: float | None, copies: Float64 | None = None) -> Solution:
    """Solve the game whose tail is all rows: sample weights are 1/n, and the model of least mean loss
    wins.
    """
    n_rows = len(losses)
    means = (losses.sum(axis=0) if copies is None else copies @ losses) / n_rows
    best = int(means.argmin())
    extra = 0.0 if beta is None else float(np.log(n_rows)) / beta
    one = np.zeros(len(means))
    one[best] = 1.0
    weights = np.full(n_rows, 1 / n_rows) if copies is None else copies / n_rows
    return Solution(weights, one, float(means[best]) + extra, 0.0, "mean")
