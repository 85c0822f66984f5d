"""Decorrelated k-means and decorrelation weights as scikit-learn estimators."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from operators.arrays import Labels
from operators.dckm.features import CODINGS, Coder, Coding
from operators.dckm.kernel import INITS, DckmSettings, Init, InMemory, Solution, solve
from operators.dckm.steps import nearest


class _Decorrelating(BaseEstimator):  # type: ignore[misc]
    """Base of both estimators: checks parameters, codes features, solves and sets the common attributes."""

    def _solve(self, X: Any, n_clusters: int, init: Init) -> tuple[InMemory, Solution]:
        self._check_parameters()
        X = validate_data(self, X, dtype=(np.float32, np.float64), ensure_min_samples=2)
        if n_clusters > len(X):
            raise ValueError(f"n_clusters={n_clusters} is more than the n_samples={len(X)} rows of X.")
        self.coder_ = Coder.of(X, self.coding)
        settings = DckmSettings(
            n_clusters,
            self.lambda1,
            self.lambda2,
            self.lambda3,
            self.max_iter,
            self.tol,
            init,
            int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max)),
            self.min_effective_share,
        )
        rows = InMemory(self.coder_(X))
        found = solve(rows, settings)
        self.sample_weight_ = rows.weight * (len(X) / found.weight_sum)
        self.objective_ = found.objective
        self.n_iter_ = len(found.objective)
        self.converged_ = found.converged
        self.effective_sample_size_ = found.effective_sample_size
        self.correlation_before_ = found.correlation_before
        self.correlation_after_ = found.correlation_after
        return rows, found

    def _check_parameters(self) -> None:
        for name, least, kind in (
            ("lambda1", 0, Real),
            ("lambda2", 0, Real),
            ("lambda3", 0, Real),
            ("max_iter", 1, Integral),
            ("tol", 0, Real),
            ("min_effective_share", 0, Real),
        ):
            value: Any = getattr(self, name)
            if not isinstance(value, kind) or not least <= float(value) < np.inf:
                what = "a whole number" if kind is Integral else "a number"
                raise ValueError(f"{name}={value!r} must be {what} of at least {least}.")
        if self.lambda3 == 0:
            raise ValueError(
                "lambda3=0 leaves nothing that keeps the weights above 0: all of them would vanish. Give a "
                "positive lambda3, such as 1."
            )
        if self.min_effective_share >= 1:
            raise ValueError(
                f"min_effective_share={self.min_effective_share!r} leaves weights no room: give less than 1."
            )
        if self.coding not in CODINGS:
            raise ValueError(f"coding={self.coding!r} is unknown; there are: {', '.join(CODINGS)}.")


class DecorrelatedKMeans(ClusterMixin, _Decorrelating):  # type: ignore[misc]
    """k-means on rows weighted so that the features correlate less (DCKM).

    Minimises equation 7 of Wang et al. (IJCAI 2020); :mod:`operators.dckm.kernel` has the objective and
    the steps, which never raise it.

    Parameters
    ----------
    n_clusters : K >= 1, default 8.
    lambda1 : factor of the balance cost, >= 0, default 0.01.
    lambda2 : factor of the sum of squared weights, >= 0, default 10.
    lambda3 : factor of (sum of weights - 1)^2, > 0, default 1.
    init : "random" (default): every row in a random cluster, as in the paper; or "k-means++".
    random_state : int, RandomState or None: of the start.
    max_iter : most outer loops, default 20.
    tol : stop when the objective changes by less, in its own units, default 0.01.
    coding : "binarize" (default): a feature becomes +1 above its mean, else -1, which leaves a feature of two
        values as it is; "standardize": mean 0, standard deviation 1, treated above the mean. Clusters and
        balance are of the coded features.
    min_effective_share : least effective sample size of the weights, as a share of the rows, in [0, 1): steps
        that would go below are shortened. Default 0, as in the paper: none.

    Attributes
    ----------
    labels_ : (n,) int32: nearest centre.
    sample_weight_ : (n,) float64 >= 0 of mean 1.
    cluster_centers_ : (K, d) weighted means of the coded features. A cluster that loses its rows keeps its
        centre.
    objective_ : (n_iter_,) after each outer loop.
    effective_sample_size_ : (sum w)^2 / sum w^2.
    correlation_before_, correlation_after_ : Frobenius norm of the off-diagonal covariance of the coded
        features, unweighted and weighted.
    n_iter_ : outer loops run.
    converged_ : whether ``tol`` was reached.
    coder_ : codes new rows.
    n_features_in_ : features seen by fit.

    Examples
    --------
    >>> import numpy as np
    >>> from operators.dckm import DecorrelatedKMeans
    >>> X = np.random.default_rng(0).normal(size=(40, 3))
    >>> model = DecorrelatedKMeans(n_clusters=2, random_state=0).fit(X)
    >>> model.labels_.shape, round(float(model.sample_weight_.mean()), 6)
    ((40,), 1.0)
    """

    def __init__(
        self,
        n_clusters: int = 8,
        lambda1: float = 0.01,
        lambda2: float = 10.0,
        lambda3: float = 1.0,
        init: Init = "random",
        random_state: Any = None,
        max_iter: int = 20,
        tol: float = 0.01,
        coding: Coding = "binarize",
        min_effective_share: float = 0.0,
    ) -> None:
        self.n_clusters = n_clusters
        self.lambda1 = lambda1
        self.lambda2 = lambda2
        self.lambda3 = lambda3
        self.init = init
        self.random_state = random_state
        self.max_iter = max_iter
        self.tol = tol
        self.coding = coding
        self.min_effective_share = min_effective_share

    def fit(self, X: Any, y: Any = None) -> DecorrelatedKMeans:
        """Cluster the rows of X.

        Parameters
        ----------
        X : (n, d) finite numbers, n >= n_clusters.
        y : ignored.

        Raises
        ------
        ValueError : a parameter is out of range, or X is not finite or too short.
        """
        n_clusters: Any = self.n_clusters
        if not isinstance(n_clusters, Integral) or n_clusters < 1:
            raise ValueError(f"n_clusters={n_clusters!r} must be a whole number of at least 1.")
        if self.init not in INITS:
            raise ValueError(f"init={self.init!r} is unknown; there are: {', '.join(INITS)}.")
        rows, found = self._solve(X, int(n_clusters), self.init)
        self.labels_ = rows.labels
        self.cluster_centers_ = found.centres
        return self

    def predict(self, X: Any) -> Labels:
        """Return the index (n,), int32, of the nearest centre of each row of X (n, d)."""
        check_is_fitted(self)
        X = validate_data(self, X, dtype=(np.float32, np.float64), reset=False)
        return nearest(self.coder_(X), np.asarray(self.cluster_centers_))[0]


class DecorrelationWeights(_Decorrelating):
    """Sample weights under which the features correlate less, without clusters ("Dec" of the paper).

    Minimises lambda1 balance(w) + lambda2 sum w_i^2 + lambda3 (sum w_i - 1)^2, from equal weights of sum 1.

    Parameters
    ----------
    lambda1 : factor of the balance cost, >= 0, default 1: with few features the cost is of the order of 1,
        and 0.01 of it would hardly count beside lambda2 / n.
    lambda2, lambda3, tol, coding, min_effective_share : as in :class:`DecorrelatedKMeans`.
    max_iter : most steps, default 100.

    Attributes
    ----------
    sample_weight_, objective_, effective_sample_size_, correlation_before_, correlation_after_, n_iter_,
    converged_, coder_, n_features_in_ : as in :class:`DecorrelatedKMeans`.
    """

    def __init__(
        self,
        lambda1: float = 1.0,
        lambda2: float = 10.0,
        lambda3: float = 1.0,
        max_iter: int = 100,
        tol: float = 0.01,
        coding: Coding = "binarize",
        min_effective_share: float = 0.0,
    ) -> None:
        self.lambda1 = lambda1
        self.lambda2 = lambda2
        self.lambda3 = lambda3
        self.max_iter = max_iter
        self.tol = tol
        self.coding = coding
        self.min_effective_share = min_effective_share

    random_state = 0
    """Nothing is drawn."""

    def fit(self, X: Any, y: Any = None) -> DecorrelationWeights:
        """Weigh the rows of X (n, d), finite numbers; y is ignored.

        Raises
        ------
        ValueError : a parameter is out of range, or X is not finite.
        """
        self._solve(X, 0, "random")
        return self
