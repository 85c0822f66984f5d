"""The cross-entropy of a regularised softmax regression, fitted by scikit-learn from all rows."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from operators.arrays import Float64
from operators.eos.kernel import Target, moments


@dataclass(frozen=True)
class Logistic:
    """Loss: cross-entropy in nats; ``l2`` / 2 |W|^2, default l2 = 0.01, joins the objective.

    Features are divided by their standard deviations in the starting sample. The theta-step has no closed
    form: ``sklearn.linear_model.LogisticRegression`` starts it from the last solution.
    """

    l2: float = 0.01
    target: str = "class"

    def start(self, X: npt.NDArray[np.floating], y: Target, prior: Float64, seed: int) -> Softmax:
        """All labels of a sample X (m, D), y (m,) equally likely."""
        if y is None:
            raise ValueError("The loss 'logistic' needs class labels: pass y.")
        mean, spread = moments(X, prior)
        n_classes = int(y.max()) + 1
        coefficients = np.zeros((1 if n_classes == 2 else n_classes, X.shape[1] + 1))
        return Softmax(mean, spread, coefficients, self.l2)


@dataclass(frozen=True)
class Softmax:
    """Coefficients (M, D + 1), the intercept last; two classes have one row, of the second class."""

    centre: Float64
    spread: Float64
    coefficients: Float64
    l2: float

    @property
    def penalty(self) -> float:
        """l2 / 2 |W|^2; intercepts are free."""
        return self.l2 / 2 * float((self.coefficients[:, :-1] ** 2).sum())

    @property
    def rows_needed(self) -> int:
        """One a class."""
        return max(2, len(self.coefficients))

    def log_proba(self, X: npt.NDArray[np.floating]) -> Float64:
        """(n, M) log probability of each class."""
        logits = self._scaled(X) @ self.coefficients[:, :-1].T + self.coefficients[:, -1]
        if logits.shape[1] == 1:
            logits = np.column_stack([np.zeros(len(X)), logits])
        logits -= logits.max(axis=1, keepdims=True)
        found: Float64 = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
        return found

    def predict_proba(self, X: npt.NDArray[np.floating]) -> Float64:
        """Return the probability (n, M) of each class."""
        return np.exp(self.log_proba(X))

    def losses(self, X: npt.NDArray[np.floating], y: Target) -> Float64:
        """(n,) minus log probability of the label y (n,)."""
        if y is None:
            raise ValueError("The loss 'logistic' needs class labels: pass y.")
        found: Float64 = -np.take_along_axis(self.log_proba(X), y[:, None], axis=1)[:, 0]
        return found

    def refitted(self, X: npt.NDArray[np.floating], y: Target, weight: Float64) -> Softmax:
        """The minimum of sum_t w_t loss_t + penalty for weights (n,) of sum 1.

        Itself where one class has all weight: there is nothing to learn.
        """
        from sklearn.exceptions import ConvergenceWarning
        from sklearn.linear_model import LogisticRegression

        solver = LogisticRegression(C=1 / self.l2, tol=1e-8, max_iter=1000, warm_start=True)
        solver.coef_, solver.intercept_ = self.coefficients[:, :-1].copy(), self.coefficients[:, -1].copy()
        if y is None or len(np.unique(y[weight > 0])) < 2:
            return self
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            solver.fit(self._scaled(X), y, sample_weight=weight)
        return replace(self, coefficients=np.column_stack([solver.coef_, solver.intercept_]))

    def _scaled(self, X: npt.NDArray[np.floating]) -> Float64:
        found: Float64 = (X - self.centre) / self.spread
        return found
