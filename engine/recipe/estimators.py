"""Estimators that a recipe may name as ``train.model``, with the parameters that it may set.

A recipe is not trusted, so names come from this list and parameters are checked by name and range; nothing
that a recipe names is imported. An entry is a class of scikit-learn whose ``fit`` takes sample weights.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from engine.core.suggestions import nearest

PREFIX = "sklearn:"
Share = Annotated[float, Field(gt=0, le=1)]


class EstimatorParams(BaseModel):
    """Parameters of an estimator; those that are not given have the defaults of its library."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class LogisticRegressionParams(EstimatorParams):
    """``sklearn.linear_model.LogisticRegression``, solved by L-BFGS."""

    C: float = Field(default=1.0, gt=0)
    """Inverse strength of the penalty."""
    max_iter: int = Field(default=1000, ge=1, le=100_000)
    """Most iterations."""
    tol: float = Field(default=1e-4, gt=0)
    """Tolerance of the solver."""
    fit_intercept: bool = True
    """Whether the model has biases."""


class TreeParams(EstimatorParams):
    """Parameters of both kinds of forests."""

    n_estimators: int = Field(default=100, ge=1, le=10_000)
    """Trees."""
    max_depth: Annotated[int, Field(ge=1)] | None = None
    """Largest depth of a tree."""
    min_samples_leaf: int = Field(default=1, ge=1)
    """Least rows of a leaf."""
    min_samples_split: int = Field(default=2, ge=2)
    """Least rows of a node that is split."""
    max_features: Literal["sqrt", "log2"] | Share | None = "sqrt"
    """Features that a split chooses from: a rule, or a share; null: all."""
    max_leaf_nodes: Annotated[int, Field(ge=2)] | None = None
    """Most leaves of a tree."""
    criterion: Literal["gini", "entropy", "log_loss"] = "gini"
    """Criterion by which a split is chosen."""
    ccp_alpha: float = Field(default=0.0, ge=0)
    """Strength of pruning."""


class BoostedTreeParams(EstimatorParams):
    """``sklearn.ensemble.HistGradientBoostingClassifier``, without its own early stopping by default."""

    learning_rate: float = Field(default=0.1, gt=0)
    """Shrinkage of each tree."""
    max_iter: int = Field(default=100, ge=1, le=10_000)
    """Boosting iterations."""
    max_leaf_nodes: Annotated[int, Field(ge=2)] | None = 31
    """Most leaves of a tree."""
    max_depth: Annotated[int, Field(ge=1)] | None = None
    """Largest depth of a tree."""
    min_samples_leaf: int = Field(default=20, ge=1)
    """Least rows of a leaf."""
    l2_regularization: float = Field(default=0.0, ge=0)
    """Penalty on the leaves' values."""
    max_features: Share = 1.0
    """Share of the features that a split chooses from."""
    max_bins: int = Field(default=255, ge=2, le=255)
    """Bins of a feature."""
    early_stopping: bool = False
    """Stop when a random tenth of the train rows, which is then not learnt from, is not predicted better."""
    n_iter_no_change: int = Field(default=10, ge=1)
    """Iterations without a better score before it stops."""


ESTIMATORS: Mapping[str, type[EstimatorParams]] = MappingProxyType(
    {
        "sklearn:HistGradientBoostingClassifier": BoostedTreeParams,
        "sklearn:RandomForestClassifier": TreeParams,
        "sklearn:ExtraTreesClassifier": TreeParams,
        "sklearn:LogisticRegression": LogisticRegressionParams,
    }
)
"""Name in a recipe -> parameters."""


def is_estimator(model: str) -> bool:
    """Return whether a model's name asks for an estimator of a library."""
    return model.startswith(PREFIX)


def check_estimator(model: str, params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the checked parameters of an estimator with its defaults.

    Raises ValueError for a name that is not on the list, or a parameter that the estimator does not have or
    that is out of its range.
    """
    if model not in ESTIMATORS:
        hint = nearest(model, ESTIMATORS) or f" There are: {', '.join(ESTIMATORS)}."
        raise ValueError(f"model {model!r}: a recipe cannot name this estimator.{hint}")
    kind = ESTIMATORS[model]
    for key in params:
        if key not in kind.model_fields:
            known = nearest(key, kind.model_fields) or f" There are: {', '.join(kind.model_fields)}."
            raise ValueError(f"model_params: {model} takes no {key!r} here.{known}")
    try:
        return kind.model_validate(dict(params)).model_dump()
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"][:1]))
        raise ValueError(f"model_params.{place}: {first['msg']}, not {first['input']!r}") from None


TABLE = """\
trainer                           logistic, mlp   package:factory (torch)   sklearn:...
erm, erm_plain                    yes             yes                       yes
erm_class_balanced, resample      yes             yes                       yes
jtt, boosted_cvar                 yes             yes                       yes
dfr                               yes             if it ends in a Linear    no
gdro, cvar_doro, chi2_dro         yes             yes                       no"""
"""Table of the models that each trainer accepts, for messages and the reference."""
