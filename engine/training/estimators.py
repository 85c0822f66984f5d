"""Estimators of scikit-learn as base models: what needs ``fit(X, y, sample_weight)`` alone can train them.

An estimator is kept as bytes of skops, which loads types from a fixed list and runs no code of a file, inside
the same tensors file as the weights of a network. Its log-probabilities are its logits, so that mixtures,
scores and serving treat it as they treat a network.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from engine.recipe.estimators import check_estimator
from engine.recipe.trainers import TrainParams
from operators.arrays import Float64
from operators.base import OperatorError

KEY = "estimator"
LEAST_PROBABILITY = 1e-12
FOLDS = 5
"""Folds of the errors of a model on rows that it has not seen (jtt)."""
MOST_SEED = 2**32
MODULES = {
    "HistGradientBoostingClassifier": "sklearn.ensemble",
    "RandomForestClassifier": "sklearn.ensemble",
    "ExtraTreesClassifier": "sklearn.ensemble",
    "LogisticRegression": "sklearn.linear_model",
}
TRUSTED = frozenset(
    {
        "sklearn._loss._loss.CyHalfBinomialLoss",
        "sklearn._loss._loss.CyHalfMultinomialLoss",
        "sklearn._loss.link.Interval",
        "sklearn._loss.link.LogitLink",
        "sklearn._loss.link.MultinomialLogit",
        "sklearn._loss.loss.HalfBinomialLoss",
        "sklearn._loss.loss.HalfMultinomialLoss",
        "sklearn.ensemble._hist_gradient_boosting.binning._BinMapper",
        "sklearn.ensemble._hist_gradient_boosting.predictor.TreePredictor",
        "sklearn.tree._tree.Tree",
    }
)
"""Types inside the estimators above that skops does not trust by itself; they only hold numbers."""


class EstimatorModule(nn.Module):
    """A fitted estimator as a module from (n, d) rows to (n, C) log-probabilities."""

    estimator: Tensor

    def __init__(self, data: bytes, n_classes: int) -> None:
        super().__init__()
        self.register_buffer(KEY, torch.frombuffer(bytearray(data), dtype=torch.uint8).clone())
        # Callers ask a model's parameters where it computes.
        self.place = nn.Parameter(torch.zeros(0), requires_grad=False)
        self.n_classes = n_classes
        self.fitted = load(data)

    def forward(self, x: Tensor) -> Tensor:
        """Return log-probabilities; a class that no fitted row had gets next to none."""
        found = np.zeros((len(x), self.n_classes))
        if len(x):
            classes = np.asarray(self.fitted.classes_, np.int64)
            found[:, classes] = self.fitted.predict_proba(x.detach().cpu().numpy())
        return torch.from_numpy(np.log(found.clip(LEAST_PROBABILITY)).astype(np.float32))


class EstimatorLearner:
    """Fits an estimator where :class:`engine.training.learner.Learner` takes steps on a network."""

    device = torch.device("cpu")

    def __init__(self, params: TrainParams, seed: int, n_classes: int) -> None:
        self._params, self._seed, self._n_classes = params, seed, n_classes
        self._module: EstimatorModule | None = None

    @property
    def model(self) -> EstimatorModule:
        """The estimator that was fitted or restored last. Raises OperatorError if there is none."""
        if self._module is None:
            raise OperatorError("The estimator has not been fitted yet.")
        return self._module

    def fit(self, X: npt.NDArray[np.float32], y: npt.NDArray[np.int64], weight: Float64) -> None:
        """Fit a new estimator to rows (n, d) with sample weights (n,); rows of weight 0 are left out."""
        self._module = EstimatorModule(dump(self._fitted(X, y, weight)), self._n_classes)

    def held_out_errors(
        self, X: npt.NDArray[np.float32], y: npt.NDArray[np.int64], weight: Float64, folds: npt.NDArray[Any]
    ) -> npt.NDArray[np.bool_]:
        """Return which rows (n,) a model that was fitted to the other folds (n,) gets wrong."""
        wrong = np.zeros(len(y), bool)
        for fold in np.unique(folds):
            mine = folds == fold
            if not (weight[~mine] > 0).any():
                continue
            fitted = self._fitted(X[~mine], y[~mine], weight[~mine])
            wrong[mine] = fitted.predict(X[mine]) != y[mine]
        return wrong

    def _fitted(self, X: npt.NDArray[np.float32], y: npt.NDArray[np.int64], weight: Float64) -> Any:
        from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

        kept = weight > 0
        if len(np.unique(y[kept])) < 2:
            raise OperatorError(
                f"train.model {self._params.model}: the rows to fit have one class only, so there is nothing "
                f"to tell apart. Look at the version's `split` and `weight`."
            )
        scaled = weight[kept] / weight[kept].mean()
        made = make(self._params, self._seed)
        with threadpool_limits(limits=max(1, int(self._params.resources.cpus))):
            return _fit(made, X[kept], y[kept], scaled, standardize=self._params.standardize)

    def state(self) -> dict[str, Tensor]:
        """Return the estimator as a named tensor of bytes; empty before the first fit."""
        return {} if self._module is None else {f"model.{KEY}": self._module.estimator.clone()}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Restore a result of :meth:`state`."""
        data = state.get(f"model.{KEY}")
        self._module = None if data is None else module_of(data, self._n_classes)


def make(params: TrainParams, seed: int) -> Any:
    """Create the unfitted estimator of a training."""
    from importlib import import_module

    name = params.model.partition(":")[2]
    values = check_estimator(params.model, params.model_params)
    kind = getattr(import_module(MODULES[name]), name)
    values["random_state"] = seed % MOST_SEED
    if name.endswith("TreesClassifier") or name == "RandomForestClassifier":
        values["n_jobs"] = max(1, int(params.resources.cpus))
    return kind(**values)


def _fit(
    made: Any, X: npt.NDArray[np.float32], y: npt.NDArray[np.int64], weight: Float64, *, standardize: bool
) -> Any:
    """Fit; a linear model sees features of mean 0 and deviation 1 if asked for, trees do not care."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import Pipeline
    from sklearn.preprocessing import StandardScaler

    if not (standardize and isinstance(made, LogisticRegression)):
        made.fit(X, y, sample_weight=weight)
        if "n_jobs" in made.get_params():
            made.set_params(n_jobs=None)  # threads add up predictions in any order
        return made
    scaler = StandardScaler().fit(X)
    made.fit(scaler.transform(X), y, sample_weight=weight)
    return Pipeline([("scale", scaler), ("model", made)])


def dump(fitted: Any) -> bytes:
    """Return a fitted estimator as bytes of skops."""
    import skops.io

    data: bytes = skops.io.dumps(fitted)
    return data


def load(data: bytes) -> Any:
    """Return the estimator of bytes that :func:`dump` made.

    Raises
    ------
    OperatorError
        The bytes hold a type beside those of the known estimators: they come from somewhere else.
    """
    import skops.io

    try:
        found = set(skops.io.get_untrusted_types(data=data))
    except Exception as error:  # whatever a damaged archive makes skops raise
        text = " ".join(str(error).split())[:300]
        raise OperatorError(f"A stored estimator cannot be read: {type(error).__name__}: {text}") from None
    if strange := sorted(found - TRUSTED):
        raise OperatorError(
            f"A stored estimator holds the type {strange[0]}, which none of the estimators that can be "
            f"trained has. It is not loaded, since loading it could run code. Train the model again."
        )
    return skops.io.loads(data, trusted=sorted(found))


def module_of(data: Tensor, n_classes: int) -> EstimatorModule:
    """Return the module of an estimator's bytes (n,) uint8."""
    return EstimatorModule(data.numpy().tobytes(), n_classes).eval()


def check_rows(params: TrainParams, n_rows: int) -> None:
    """Raise OperatorError if an estimator cannot be fitted to so many rows in one worker's memory."""
    if not params.is_estimator or n_rows <= params.max_rows:
        return
    raise OperatorError(
        f"train.model {params.model} needs all {n_rows:,} train rows in the memory of one worker, and "
        f"train.max_rows is {params.max_rows:,}. Raise max_rows if the worker has about 16 bytes for each "
        f"row and feature, or set model to logistic or mlp, which read rows in parts."
    )
