"""Entropic outlier sparsification as a scikit-learn estimator."""

from __future__ import annotations

import warnings
from numbers import Integral, Real
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, OutlierMixin
from sklearn.utils import check_random_state, check_scalar
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, column_or_1d, validate_data

from operators.arrays import Float64
from operators.eos import memory
from operators.eos.alpha import (
    EFFICIENCY,
    MAX_FLAGGED,
    alpha_sample,
    choose_alpha,
    effective_sample_size_curve,
    least_rows,
)
from operators.eos.centroids import SPA, KMeans
from operators.eos.descent import Fit, collapse
from operators.eos.kernel import Target
from operators.eos.losses import Gaussian, LeastSquares, Logistic

LEARNERS = {
    "gaussian": Gaussian,
    "kmeans": KMeans,
    "least_squares": LeastSquares,
    "logistic": Logistic,
    "spa": SPA,
}


def _predicts_labels(estimator: Any) -> bool:
    if not hasattr(estimator.model_, "predict_proba"):
        raise AttributeError(f"The loss {estimator.loss!r} predicts no labels; use 'logistic' or 'spa'.")
    return True


class EntropicOutlierSparsification(OutlierMixin, BaseEstimator):  # type: ignore[misc]
    """Learn a model and the weight of every row together; rows of small weight are outliers.

    Source: Horenko, Cheap robust learning of data anomalies with analytically solvable entropic outlier
    sparsification, PNAS 119(9), 2022, Algorithm 1.

    Parameters
    ----------
    loss : {"gaussian", "kmeans", "least_squares", "logistic", "spa"} or learner, default "gaussian"
        Model whose losses are used. The last three need ``y``. A learner with parameters of its own, such as
        ``SPA(n_clusters=20)``, is an object with ``target`` and ``start(X, y, prior, seed)``, which returns a
        :class:`operators.eos.kernel.Model`.
    alpha : float or "auto", default "auto"
        Price of unequal weights, above 0, in units of the loss. "auto" is the smallest alpha that keeps an
        effective sample size of ``efficiency`` times the rows that are not flagged; see
        :mod:`operators.eos.alpha`. The paper takes alpha from a grid by a validation score:
        ``sklearn.model_selection.GridSearchCV`` does that, with a scorer that reads trusted labels.
    efficiency : float, default .75
        Between 0 and 1; only "auto" reads it.
    most_flagged : float, default .5
        Above 0 and at most .5: "auto" avoids an alpha that flags this share of a class or more.
    start : {"uniform", "random"}, default "uniform"
        Weights before the first fit; "random" is uniform on the simplex.
    n_init : int, default 1
        Number of starts, of which all but the first are random. The one with the lowest objective is kept.
    max_iter : int, default 100
        Largest number of iterations.
    tol : float, default 1e-9
        The fit ends when the objective falls by at most ``tol * alpha``.
    threshold : float, default .01
        A row is an outlier if w_t < threshold / T.
    random_state : int, RandomState or None, default None
        Seed of random weights, k-means++ and the sample of 4,096 rows on which "auto" works.

    Attributes
    ----------
    weights_ : (n,) float64
        Weights w_t of sum 1.
    outlier_mask_ : (n,) bool
    objective_ : list of float
        Objective L after each weight step, never rising.
    effective_sample_size_ : float
        (sum w)^2 / sum w^2, in rows.
    alpha_ : float
        The alpha that was used; infinite if "auto" has too few rows to choose one
        (:func:`operators.eos.alpha.least_rows`). All rows then keep their weight.
    curve_ : list of operators.eos.alpha.AlphaPoint
        Effective sample size and flagged share for each alpha; "auto" only.
    model_ : operators.eos.kernel.Model
        The fitted theta.
    n_iter_, converged_ : int, bool
        Number of iterations, and whether ``tol`` was reached.
    offset_ : float
        log(threshold); ``decision_function`` is ``score_samples - offset_``.
    classes_ : (n_classes,)
        Labels of ``y``, if the loss is a classifier's.

    Notes
    -----
    Minimises sum_t w_t g(x_t, theta) + alpha sum_t w_t log w_t over theta and weights w >= 0 of sum 1. It
    alternates the learner's weighted fit and the closed form w_t ~ exp(-g_t / alpha) (equation 3), whose time
    is linear in the number of rows and independent of their dimension.

    Examples
    --------
    >>> import numpy as np
    >>> from operators.eos import EntropicOutlierSparsification
    >>> X = np.random.default_rng(0).normal(size=(100, 2))
    >>> X[:5] += 20
    >>> model = EntropicOutlierSparsification(random_state=0).fit(X)
    >>> np.flatnonzero(model.outlier_mask_).tolist()
    [0, 1, 2, 3, 4]
    """

    def __init__(
        self,
        loss: Any = "gaussian",
        *,
        alpha: float | Literal["auto"] = "auto",
        efficiency: float = EFFICIENCY,
        most_flagged: float = MAX_FLAGGED,
        start: Literal["uniform", "random"] = "uniform",
        n_init: int = 1,
        max_iter: int = 100,
        tol: float = 1e-9,
        threshold: float = 0.01,
        random_state: Any = None,
    ) -> None:
        self.loss, self.alpha, self.efficiency, self.start = loss, alpha, efficiency, start
        self.n_init, self.max_iter, self.tol, self.threshold = n_init, max_iter, tol, threshold
        self.most_flagged, self.random_state = most_flagged, random_state

    def fit(self, X: npt.ArrayLike, y: Any = None, sample_weight: npt.ArrayLike | None = None) -> Self:
        """Learn weights and model.

        Parameters
        ----------
        X : (n, d) finite numbers.
        y : (n,) labels ("logistic", "spa") or numbers ("least_squares", also (n, m)); other losses ignore it.
        sample_weight : (n,) >= 0; k counts as k equal rows, and the fit is the same without a row of 0.

        Raises
        ------
        ValueError
            A parameter or the rows cannot be used.

        Warns
        -----
        UserWarning
            Weights collapsed on a handful of rows, or there are too few rows to choose alpha.
        """
        self._check()
        learner = LEARNERS[self.loss]() if isinstance(self.loss, str) else self.loss
        rows = self._rows(learner, X, y, sample_weight)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        self.alpha_ = self._choose(rows, learner, seed)
        if np.isinf(self.alpha_):
            return self._keep_equal(rows, learner, seed)
        draws: list[int | None] = [seed + index for index in range(self.n_init)]
        if self.start == "uniform":
            draws[0] = None
        limits: dict[str, Any] = {"tol": self.tol, "max_iter": self.max_iter}
        self._keep(rows, memory.fitted(rows, learner, self.alpha_, draws=draws, seed=seed, **limits))
        return self

    def _choose(self, rows: memory.Rows, learner: Any, seed: int) -> float:
        if self.alpha != "auto":
            return float(self.alpha)
        limits: dict[str, Any] = {"threshold": self.threshold, "max_iter": self.max_iter}
        sample = alpha_sample(rows, learner, seed)
        self.curve_ = effective_sample_size_curve(sample, learner, seed=seed, **limits)
        return choose_alpha(self.curve_, self.efficiency, self.most_flagged) if self.curve_ else np.inf

    def _keep_equal(self, rows: memory.Rows, learner: Any, seed: int) -> Self:
        """Fit the model once, to the weights that the rows come with, and flag none."""
        sample = rows.sample(seed)
        model = learner.start(sample.X, sample.y, sample.prior, seed)
        found = memory.collect(model, rows, np.inf)
        self._keep(rows, Fit(memory.step(model, found, rows, None), found, [], converged=True))
        warnings.warn(
            f"{np.count_nonzero(rows.prior)} rows are too few to choose alpha: the model needs "
            f"{least_rows(model)}. All rows keep their weight, and none is an outlier. Set alpha, or use "
            "fewer features or clusters.",
            stacklevel=3,
        )
        return self

    def _keep(self, rows: memory.Rows, fit: Fit) -> None:
        self.model_, self._statistics = fit.model, fit.statistics
        self.objective_, self.converged_, self.n_iter_ = fit.objective, fit.converged, len(fit.objective)
        self.offset_ = float(np.log(self.threshold))
        log_weights = fit.statistics.log_weights(memory.losses(fit.model, rows.X, rows.y))
        self.outlier_mask_ = log_weights < self.offset_
        self.weights_ = memory.weights_of_prior(fit.statistics, log_weights, rows.prior)
        self.effective_sample_size_ = fit.statistics.effective_sample_size
        if text := collapse(fit):
            warnings.warn(text, stacklevel=3)

    def score_samples(self, X: npt.ArrayLike, y: Any = None) -> Float64:
        """Return the log (n,) of T w_t: a row's weight in units of an average row of the fit.

        Large values are usual rows.
        """
        check_is_fitted(self)
        matrix = validate_data(self, X, reset=False, dtype=[np.float64, np.float32])
        target = self._target(self._target_kind, matrix, y, reset=False)
        return self._statistics.log_weights(memory.losses(self.model_, matrix, target))

    def decision_function(self, X: npt.ArrayLike, y: Any = None) -> Float64:
        """Return values (n,) that are negative for outliers."""
        return self.score_samples(X, y) - self.offset_

    def predict(self, X: npt.ArrayLike, y: Any = None) -> npt.NDArray[np.int64]:
        """Return -1 for outliers and 1 for other rows, (n,)."""
        return np.where(self.decision_function(X, y) < 0, -1, 1)

    def fit_predict(self, X: npt.ArrayLike, y: Any = None, **fit_params: Any) -> npt.NDArray[np.int64]:
        """Fit, and return -1 for the outliers among the rows learnt from and 1 for the others, (n,)."""
        return np.where(self.fit(X, y, **fit_params).outlier_mask_, -1, 1)

    @available_if(_predicts_labels)  # type: ignore[untyped-decorator]
    def predict_proba(self, X: npt.ArrayLike) -> Float64:
        """Return the label probabilities (n, n_classes) of the model, for "logistic" and "spa"."""
        check_is_fitted(self)
        matrix = validate_data(self, X, reset=False, dtype=[np.float64, np.float32])
        found: Float64 = self.model_.predict_proba(matrix)
        return found

    def _rows(
        self, learner: Any, X: npt.ArrayLike, y: Any, sample_weight: npt.ArrayLike | None
    ) -> memory.Rows:
        matrix = validate_data(self, X, dtype=[np.float64, np.float32], ensure_min_samples=2)
        self._target_kind: str = learner.target
        prior = (
            None if sample_weight is None else _check_sample_weight(sample_weight, matrix, dtype=np.float64)
        )
        if prior is not None and (prior < 0).any():
            raise ValueError("sample_weight has negative entries; weights count rows, so they are 0 or more.")
        return memory.rows_of(matrix, self._target(learner.target, matrix, y, reset=True), prior)

    def _target(self, kind: str, X: npt.NDArray[Any], y: Any, *, reset: bool) -> Target:
        if kind == "none":
            return None
        if y is None:
            raise ValueError(f"The loss {self.loss!r} needs y, one target a row.")
        target: npt.NDArray[Any] = np.asarray(y)
        if len(target) != len(X):
            raise ValueError(f"y has {len(target)} entries for {len(X)} rows of X.")
        if kind == "number":
            return target.astype(np.float64)
        target = column_or_1d(target)
        if reset:
            self.classes_ = np.unique(target)
        if unknown := set(np.unique(target).tolist()) - set(self.classes_.tolist()):
            raise ValueError(f"y has the labels {sorted(unknown)}, which fit has not seen.")
        return np.searchsorted(self.classes_, target)

    def _check(self) -> None:
        if isinstance(self.loss, str) and self.loss not in LEARNERS:
            raise ValueError(f"loss is {self.loss!r}; choose one of {sorted(LEARNERS)} or pass a learner.")
        if self.start not in ("uniform", "random"):
            raise ValueError(f"start is {self.start!r}; choose 'uniform' or 'random'.")
        if self.alpha != "auto":
            check_scalar(self.alpha, "alpha", Real, min_val=0, max_val=np.inf, include_boundaries="neither")
        for name in ("efficiency", "threshold"):
            check_scalar(getattr(self, name), name, Real, min_val=0, max_val=1, include_boundaries="neither")
        check_scalar(
            self.most_flagged,
            "most_flagged",
            Real,
            min_val=0,
            max_val=MAX_FLAGGED,
            include_boundaries="right",
        )
        for name in ("n_init", "max_iter"):
            check_scalar(getattr(self, name), name, Integral, min_val=1)
        check_scalar(self.tol, "tol", Real, min_val=0)
