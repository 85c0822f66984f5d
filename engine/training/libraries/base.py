"""The protocol that the adapter of a library implements, and functions that adapters share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from engine.recipe.estimators import missing_library
from engine.recipe.objectives import parse_objective
from engine.recipe.trainers import TrainParams
from operators.arrays import Float64, Int64
from operators.base import OperatorError

MAX_SEED = 2**31
"""Seeds of the libraries are below this number."""


@dataclass(frozen=True)
class WeightedRows:
    """The rows that an estimator is fitted to, all of positive weight; of two classes or more, or numbers."""

    X: npt.NDArray[Any]
    """(n, d) float32."""
    y: Int64 | Float64
    """(n,) class indices below ``n_classes``; of a regression, numbers."""
    weight: Float64
    """(n,) > 0, mean 1."""
    n_classes: int
    """C; some of the classes may have no row here. 1 of a regression."""


class FittedEstimator(Protocol):
    """A fitted estimator, as every library's adapter returns it."""

    classes_: Any
    """(k,) the class indices to which the columns of ``predict_proba`` belong."""

    def predict_proba(self, X: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return the probabilities (n, k) of rows X (n, d)."""
        ...


class FittedRegressor(Protocol):
    """A fitted model of numbers, as every library's adapter returns it where ``n_classes`` is 1."""

    def predict(self, X: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return the predictions (n,) of rows X (n, d)."""
        ...


Fitted = FittedEstimator | FittedRegressor


class BoostedNumbers:
    """A fitted booster of another library as a model of numbers."""

    def __init__(self, booster: Any, predict: Callable[[Any, npt.NDArray[Any]], Any]) -> None:
        self.booster, self._predict = booster, predict

    def predict(self, X: npt.NDArray[Any]) -> Float64:
        """Return the predictions (n,) of rows X (n, d)."""
        return np.asarray(self._predict(self.booster, X), np.float64) if len(X) else np.zeros(0)


class BoostedTrees(ABC):
    """A fitted booster of another library as a classifier of all C classes."""

    def __init__(self, booster: Any, n_classes: int) -> None:
        self.booster = booster
        self.classes_ = np.arange(n_classes)

    @abstractmethod
    def scores(self, X: npt.NDArray[Any]) -> Any:
        """Return (n, C) probabilities of rows X (n, d), or for two classes (n,) those of the second."""

    def predict_proba(self, X: npt.NDArray[Any]) -> Float64:
        """Return the probabilities (n, C) of rows X (n, d)."""
        if not len(X):
            return np.empty((0, len(self.classes_)))
        found = np.asarray(self.scores(X), np.float64)
        return found if found.ndim == 2 else np.column_stack([1 - found, found])

    def predict(self, X: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
        """Return the class of largest probability, the smallest of equals: (n,)."""
        return np.asarray(self.predict_proba(X).argmax(axis=1), np.int64)


@runtime_checkable
class Library(Protocol):
    """Fits, stores and loads the estimators of one library.

    Stored bytes may have been changed by anyone who can write to an output, so ``load`` must run no code of
    theirs and must raise OperatorError for whatever ``dump`` does not write. One seed gives the same bytes
    for any number of threads.
    """

    flavour: str
    """MLflow's flavour of its models, which :mod:`engine.training.serving.model_package` writes: ``sklearn``,
    ``xgboost`` or ``lightgbm``. For any other name none is written: the stored bytes serve."""
    distributions: tuple[str, ...]
    """Distributions that loading a model imports, in addition to those of every model. Of several that hold
    the same package, the one that is installed is meant."""

    def fit(self, params: TrainParams, seed: int, rows: WeightedRows) -> Fitted:
        """Return a new estimator with the training's parameters, fitted to the rows."""
        ...

    def dump(self, fitted: Fitted) -> bytes:
        """Return the bytes to store. Raises OperatorError for a model that is too large to be stored."""
        ...

    def load(self, data: bytes, n_features: int, n_classes: int) -> Fitted:
        """Return the estimator of bytes that :meth:`dump` made; of numbers where ``n_classes`` is 1.

        Raises OperatorError for bytes that it does not make for rows of ``n_features`` numbers and
        ``n_classes`` classes.
        """
        ...


def check_library(model: str) -> None:
    """Raise OperatorError, which names the extra, if the library of ``LIBRARY:CLASS`` is not installed."""
    if text := missing_library(model):
        raise OperatorError(text)


def booster_of(fitted: Fitted) -> tuple[Any, int]:
    """Return the booster of an estimator that an adapter of boosted trees has fitted, and C; 1 of numbers."""
    if isinstance(fitted, BoostedNumbers):
        return fitted.booster, 1
    if not isinstance(fitted, BoostedTrees):
        raise TypeError(f"{type(fitted).__name__} was not fitted by this adapter")
    return fitted.booster, len(fitted.classes_)


def quantile_of(objective: str) -> float | None:
    """Return the quantile of a pinball loss, or None for the squared loss."""
    return parse_objective(objective).number


def damaged(reason: str) -> OperatorError:
    """Return the error for stored bytes that an adapter does not write."""
    return OperatorError(
        f"A stored estimator is damaged or forged: {reason}. It is not loaded. Train the model again."
    )
