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


class _DecorrelationBase(BaseEstimator):  # type: ignore[misc]
    """Base of both estimators: checks parameters, codes features, solves and sets the common attributes."""

    def _solve(self, X: Any, n_clusters: int, init: Init) -> tuple[InMemory, Solution]:
        self._check_parameters()
        X = validate_data(self, X, dtype=(np.float32, np.float64), ensure_min_samples=2)
        if n_clusters > len(X):
            raise ValueError(f"n_clusters={n_clusters} is more than the n_samples={len(X)} rows of X.")
        self.coder_ = Coder.of(X, self.coding)
        settings = DckmSettings(
            n_clusters=n_clusters,
            lambda1=self.lambda1,
            lambda2=self.lambda2,
            lambda3=self.lambda3,
            max_iter=self.max_iter,
            tol=self.tol,
            init=init,
            seed=int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max)),
            min_effective_share=self.min_effective_share,
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
                "lambda3=0 would let all weights vanish, as only its penalty keeps their sum above 0. Give "
                "a positive lambda3, such as 1."
            )
        if self.min_effective_share >= 1:
            raise ValueError(
                f"min_effective_share={self.min_effective_share!r} must be below 1 for weights to change."
            )
        if self.coding not in CODINGS:
            raise ValueError(f"coding={self.coding!r} is unknown; there are: {', '.join(CODINGS)}.")


class DecorrelatedKMeans(ClusterMixin, _DecorrelationBase):  # type: ignore[misc]
    """k-means on rows weighted so that the features correlate less (DCKM).

    Source: Wang, Fan, Kuang, Shi, Liu, Wang: Decorrelated Clustering with Data Selection Bias, IJCAI 2020.

    Parameters
    ----------
    n_clusters : int, default 8
        Number of clusters K.
    lambda1 : float, default 0.01
        Factor of the balance cost, at least 0.
    lambda2 : float, default 10
        Factor of the sum of squared weights, at least 0.
    lambda3 : float, default 1
        Factor of (sum of weights - 1)^2, above 0.
    init : {"random", "k-means++"}, default "random"
        Start. "random" puts every row into a random cluster, as the paper does.
    random_state : int, RandomState or None, default None
        Seed of the start.
    max_iter : int, default 20
        Largest number of outer loops.
    tol : float, default 0.01
        The fit ends when the objective changes by less than this.
    coding : {"binarize", "standardize"}, default "binarize"
        "binarize" makes values above a feature's mean +1 and all others -1; "standardize" gives mean 0 and
        standard deviation 1, and values above the mean are treated. Clusters and balance are computed from
        the coded features.
    min_effective_share : float, default 0
        Lower limit of the effective sample size of the weights as a share of the rows, in [0, 1). Steps that
        would go below it are shortened. The paper has no limit.

    Attributes
    ----------
    labels_ : (n,) int32
        Nearest centre of each row.
    sample_weight_ : (n,) float64
        Weights of mean 1, at least 0.
    cluster_centers_ : (K, d) float64
        Weighted means of the coded features. A cluster that loses its rows keeps its centre.
    objective_ : (n_iter_,) float64
        Objective after each outer loop.
    effective_sample_size_ : float
        (sum w)^2 / sum w^2.
    correlation_before_, correlation_after_ : float
        Frobenius norm of the off-diagonal covariance of the coded features, unweighted and weighted.
    n_iter_ : int
        Number of outer loops.
    converged_ : bool
        Whether ``tol`` was reached, and not at the limit of ``min_effective_share``.
    coder_ : operators.dckm.features.Coder
        Codes new rows.
    n_features_in_ : int

    Notes
    -----
    Minimises equation 7, sum_i w_i |z_i - f_c(i)|^2 + lambda1 balance(w) + lambda2 sum_i w_i^2
    + lambda3 (sum_i w_i - 1)^2. :mod:`operators.dckm.kernel` describes the steps, none of which raises it.

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


class DecorrelationWeights(_DecorrelationBase):
    """Sample weights under which the features correlate less, without clusters ("Dec" of the paper).

    Parameters
    ----------
    lambda1 : float, default 1
        Factor of the balance cost, at least 0. With few features the cost is of the order of 1, and 0.01 of
        it would hardly count beside lambda2 / n.
    lambda2, lambda3, tol, coding, min_effective_share
        As in :class:`DecorrelatedKMeans`.
    max_iter : int, default 100
        Largest number of steps.

    Attributes
    ----------
    sample_weight_, objective_, effective_sample_size_, correlation_before_, correlation_after_, n_iter_, \
converged_, coder_, n_features_in_
        As in :class:`DecorrelatedKMeans`.

    Notes
    -----
    Minimises lambda1 balance(w) + lambda2 sum w_i^2 + lambda3 (sum w_i - 1)^2 from equal weights of sum 1.

    Examples
    --------
    >>> import numpy as np
    >>> from operators.dckm import DecorrelationWeights
    >>> shared = np.random.default_rng(0).normal(size=(200, 1))
    >>> X = shared + np.random.default_rng(1).normal(size=(200, 3))
    >>> model = DecorrelationWeights().fit(X)
    >>> bool(model.correlation_after_ < model.correlation_before_)
    True
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
    """Fixed, and not a parameter, as nothing is drawn."""

    def fit(self, X: Any, y: Any = None) -> DecorrelationWeights:
        """Weight the rows of X (n, d), finite numbers; y is ignored.

        Raises
        ------
        ValueError : a parameter is out of range, or X is not finite.
        """
        self._solve(X, 0, "random")
        return self
