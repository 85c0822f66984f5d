"""Estimators of scikit-learn, stored by skops, which loads types from a fixed list and runs no code."""

from __future__ import annotations

import io
import zipfile
from importlib import import_module
from typing import Any

import numpy as np

from engine.core.errors import one_line
from engine.recipe.estimators import check_estimator
from engine.recipe.trainers import TrainParams
from engine.training.libraries.base import Fitted, WeightedRows, damaged, quantile_of
from engine.training.libraries.tree_checks import check_tree
from operators.base import OperatorError

MODULES = {
    "HistGradientBoostingClassifier": "sklearn.ensemble",
    "RandomForestClassifier": "sklearn.ensemble",
    "ExtraTreesClassifier": "sklearn.ensemble",
    "LogisticRegression": "sklearn.linear_model",
    "HistGradientBoostingRegressor": "sklearn.ensemble",
    "RandomForestRegressor": "sklearn.ensemble",
    "ExtraTreesRegressor": "sklearn.ensemble",
}
MAX_SEED = 2**32
TRUSTED = frozenset(
    {
        "sklearn._loss._loss.CyHalfBinomialLoss",
        "sklearn._loss._loss.CyHalfMultinomialLoss",
        "sklearn._loss._loss.CyHalfSquaredError",
        "sklearn._loss._loss.CyPinballLoss",
        "sklearn._loss.link.IdentityLink",
        "sklearn._loss.link.Interval",
        "sklearn._loss.link.LogitLink",
        "sklearn._loss.link.MultinomialLogit",
        "sklearn._loss.loss.HalfBinomialLoss",
        "sklearn._loss.loss.HalfMultinomialLoss",
        "sklearn._loss.loss.HalfSquaredError",
        "sklearn._loss.loss.PinballLoss",
        "sklearn.ensemble._hist_gradient_boosting.binning._BinMapper",
        "sklearn.ensemble._hist_gradient_boosting.predictor.TreePredictor",
        "sklearn.tree._tree.Tree",
    }
)
"""Types inside the estimators above that skops does not trust by itself; they only hold numbers."""


class ScikitLearn:
    """Scikit-learn as a library of estimators; see :class:`engine.training.libraries.base.Library`."""

    flavour = "sklearn"
    distributions: tuple[str, ...] = ("skops",)

    def fit(self, params: TrainParams, seed: int, rows: WeightedRows) -> Fitted:
        """Fit; a linear model sees features of mean 0 and deviation 1 if asked for, trees do not care."""
        from sklearn.linear_model import LogisticRegression
        from sklearn.pipeline import Pipeline
        from sklearn.preprocessing import StandardScaler

        from operators.threads import limit_threads

        made = make(params, seed)
        with limit_threads(max(1, int(params.resources.cpus))):
            if params.standardize and isinstance(made, LogisticRegression):
                scaler = StandardScaler().fit(rows.X)
                made.fit(scaler.transform(rows.X), rows.y, sample_weight=rows.weight)
                made = Pipeline([("scale", scaler), ("model", made)])
            else:
                made.fit(rows.X, rows.y, sample_weight=rows.weight)
        if "n_jobs" in made.get_params():
            made.set_params(n_jobs=None)  # threads add up predictions in any order
        found: Fitted = made
        return found

    def dump(self, fitted: Fitted) -> bytes:
        """Return a fitted estimator as bytes of skops."""
        import skops.io

        data: bytes = skops.io.dumps(fitted)
        return data

    def load(self, data: bytes, n_features: int, n_classes: int) -> Fitted:
        """Implement the method of the protocol; only types of the known estimators are loaded."""
        import skops.io

        try:
            _check_archive(data)
            found = set(skops.io.get_untrusted_types(data=data))
        except Exception as error:  # whatever a damaged archive makes skops raise
            text = one_line(error)
            raise damaged(f"{type(error).__name__}: {text}") from None
        if strange := sorted(found - TRUSTED):
            raise OperatorError(
                f"A stored estimator holds the type {strange[0]}, which none of the estimators that can be "
                f"trained has. It is not loaded, since loading it could run code. Train the model again."
            )
        try:
            fitted: Fitted = skops.io.loads(data, trusted=sorted(found))
            _check_fitted(fitted, n_features, n_classes)
        except Exception as error:  # attributes of any value
            text = one_line(error)
            raise damaged(f"{type(error).__name__}: {text}") from None
        return fitted


def _check_archive(data: bytes) -> None:
    """Raise ValueError, or what ``zipfile`` raises, for an archive that unpacks to more than its own bytes.

    skops compresses nothing, and reads whole members before it checks anything.
    """
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        stated = sum(member.file_size for member in archive.infolist())
    if stated > len(data):
        raise ValueError(f"its archive states {stated:,} bytes in {len(data):,}")


def make(params: TrainParams, seed: int) -> Any:
    """Create the unfitted estimator of a training."""
    name = params.model.partition(":")[2]
    values = check_estimator(params.model, params.model_params)
    kind = getattr(import_module(MODULES[name]), name)
    values["random_state"] = seed % MAX_SEED
    if name == "HistGradientBoostingRegressor":
        quantile = quantile_of(params.objective)
        values |= (
            {"loss": "squared_error"} if quantile is None else {"loss": "quantile", "quantile": quantile}
        )
    if name.startswith(("RandomForest", "ExtraTrees")):
        values["n_jobs"] = max(1, int(params.resources.cpus))
    return kind(**values)


def _check_fitted(fitted: Any, n_features: int, n_classes: int) -> None:
    """Raise ValueError, TypeError or AttributeError unless the estimator is one that :meth:`fit` makes for
    rows of ``n_features`` numbers, and its trees can be followed."""
    from sklearn.ensemble import (
        ExtraTreesClassifier,
        ExtraTreesRegressor,
        HistGradientBoostingClassifier,
        HistGradientBoostingRegressor,
        RandomForestClassifier,
        RandomForestRegressor,
    )
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import Pipeline

    if fitted.n_features_in_ != n_features:
        raise ValueError(f"it takes {fitted.n_features_in_} features, and the model {n_features:,}")
    numbers = n_classes == 1
    forests = (
        (ExtraTreesRegressor, RandomForestRegressor)
        if numbers
        else (ExtraTreesClassifier, RandomForestClassifier)
    )
    if isinstance(fitted, forests):
        for one in fitted.estimators_:
            tree = one.tree_
            check_tree(tree.children_left, tree.children_right, tree.feature, n_features)
    elif isinstance(fitted, HistGradientBoostingRegressor if numbers else HistGradientBoostingClassifier):
        _check_boosted(fitted, n_features)
    elif isinstance(fitted, Pipeline) and not numbers:
        _check_pipeline(fitted)
    elif numbers or not isinstance(fitted, LogisticRegression):
        raise TypeError(f"{type(fitted).__name__} is none of the estimators that can be trained")


def _check_boosted(fitted: Any, n_features: int) -> None:
    """Raise ValueError unless the trees of boosted trees by histograms can be followed."""
    for one in (tree for trees in fitted._predictors for tree in trees):
        nodes = one.nodes
        if nodes["is_categorical"].any():
            raise ValueError("a tree splits by categories, and features are numbers")
        left, right = (
            np.where(nodes["is_leaf"], -1, nodes[side].astype(np.int64)) for side in ("left", "right")
        )
        check_tree(left, right, nodes["feature_idx"], n_features)


def _check_pipeline(fitted: Any) -> None:
    """Raise TypeError for a pipeline of other steps than :meth:`ScikitLearn.fit` makes."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.preprocessing import StandardScaler

    kinds = [type(step) for _, step in fitted.steps]
    if kinds != [StandardScaler, LogisticRegression]:
        raise TypeError("it is a pipeline of other steps than a scaler and a logistic regression")
