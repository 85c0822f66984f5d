"""Estimators that a recipe may name as ``train.model``, with the parameters that it may set.

A recipe is not trusted, so names come from this list and parameters are checked by name and range; nothing
that a recipe names is imported. An entry is a classifier or a regressor of scikit-learn, XGBoost or LightGBM
whose ``fit`` takes sample weights. Installed packages add estimators of other libraries by an entry point of
the group ``rowsieve.estimators``: its name is the library, its value an :class:`EstimatorPlugin`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from types import MappingProxyType
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import ConfigDict, Field, ValidationError, model_validator

from connectors.foundation.messages import nearest
from engine.recipe.training_plugins import find_plugin
from operators.attribute_docs import DescribedModel
from operators.models.spec import PRETRAINED

LIBRARIES = ("sklearn", "xgboost", "lightgbm")
"""Prefixes of estimators, ``LIBRARY:CLASS``, which are names of packages too."""
EXTRAS = frozenset({"xgboost", "lightgbm"})
"""Libraries that an extra of the same name installs."""
ENTRY_POINTS = "rowsieve.estimators"
Share = Annotated[float, Field(gt=0, le=1)]


class EstimatorParams(DescribedModel):
    """Parameters of an estimator; those that are not given have the defaults of its library."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


Params = TypeVar("Params", bound=EstimatorParams)


class LogisticRegressionParams(EstimatorParams):
    """``sklearn.linear_model.LogisticRegression``, solved by L-BFGS."""

    C: float = Field(default=1.0, gt=0)
    """Inverse strength of the penalty."""
    max_iter: int = Field(default=1000, ge=1, le=100_000)
    """Maximum number of iterations."""
    tol: float = Field(default=1e-4, gt=0)
    """Tolerance of the solver."""
    fit_intercept: bool = True
    """Whether the model has biases."""


class TreeParams(EstimatorParams):
    """Parameters of both kinds of forests."""

    n_estimators: int = Field(default=100, ge=1, le=10_000)
    """Trees."""
    max_depth: Annotated[int, Field(ge=1)] | None = None
    """Maximum depth of a tree."""
    min_samples_leaf: int = Field(default=1, ge=1)
    """Minimum number of rows of a leaf."""
    min_samples_split: int = Field(default=2, ge=2)
    """Minimum number of rows of a node that is split."""
    max_features: Literal["sqrt", "log2"] | Share | None = "sqrt"
    """Features that a split chooses from: a rule, or a share; null: all."""
    max_leaf_nodes: Annotated[int, Field(ge=2)] | None = None
    """Maximum number of leaves of a tree."""
    criterion: Literal["gini", "entropy", "log_loss"] = "gini"
    """Criterion by which a split is chosen."""
    ccp_alpha: float = Field(default=0.0, ge=0)
    """Strength of pruning."""


class RegressionForestParams(TreeParams):
    """Parameters of both kinds of forests for numbers, which minimise the squared error."""

    max_features: Literal["sqrt", "log2"] | Share | None = 1.0
    """Features that a split chooses from: a rule, or a share; null: all."""
    criterion: Literal["squared_error", "friedman_mse"] = "squared_error"  # type: ignore[assignment]
    """Criterion by which a split is chosen."""


class BoostedTreeParams(EstimatorParams):
    """``sklearn.ensemble.HistGradientBoostingClassifier`` and ``...Regressor``, without early stopping."""

    learning_rate: float = Field(default=0.1, gt=0)
    """Shrinkage of each tree."""
    max_iter: int = Field(default=100, ge=1, le=10_000)
    """Boosting iterations."""
    max_leaf_nodes: Annotated[int, Field(ge=2)] | None = 31
    """Maximum number of leaves of a tree."""
    max_depth: Annotated[int, Field(ge=1)] | None = None
    """Maximum depth of a tree."""
    min_samples_leaf: int = Field(default=20, ge=1)
    """Minimum number of rows of a leaf."""
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


class XGBoostParams(EstimatorParams):
    """``xgboost.XGBClassifier`` and ``XGBRegressor`` with the tree method ``hist``, under their own names."""

    n_estimators: int = Field(default=100, ge=1, le=10_000)
    """Boosting rounds."""
    learning_rate: float = Field(default=0.3, gt=0, le=1)
    """Shrinkage of each tree."""
    max_depth: int = Field(default=6, ge=1, le=32)
    """Maximum depth of a tree."""
    max_leaves: int = Field(default=0, ge=0, le=2**16)
    """Maximum number of leaves of a tree; 0: any number."""
    grow_policy: Literal["depthwise", "lossguide"] = "depthwise"
    """The node that is split next: the nearest to the root, or the one whose split gains most."""
    min_child_weight: float = Field(default=1.0, ge=0)
    """Minimum sum of the second derivatives in a child."""
    gamma: float = Field(default=0.0, ge=0)
    """Minimum gain of a split."""
    reg_lambda: float = Field(default=1.0, ge=0)
    """L2 penalty on the leaves' values."""
    reg_alpha: float = Field(default=0.0, ge=0)
    """L1 penalty on the leaves' values."""
    subsample: Share = 1.0
    """Share of the rows that a tree is grown on."""
    colsample_bytree: Share = 1.0
    """Share of the features that a tree chooses from."""
    max_bin: int = Field(default=256, ge=2, le=65_536)
    """Bins of a feature."""


class LightGbmParams(EstimatorParams):
    """``lightgbm.LGBMClassifier`` and ``LGBMRegressor``, under the names of these classes."""

    n_estimators: int = Field(default=100, ge=1, le=10_000)
    """Boosting rounds."""
    learning_rate: float = Field(default=0.1, gt=0, le=1)
    """Shrinkage of each tree."""
    num_leaves: int = Field(default=31, ge=2, le=2**16)
    """Maximum number of leaves of a tree."""
    max_depth: Annotated[int, Field(ge=1, le=512)] | None = None
    """Maximum depth of a tree; null: any."""
    min_child_samples: int = Field(default=20, ge=1)
    """Minimum number of rows of a leaf."""
    min_child_weight: float = Field(default=1e-3, ge=0)
    """Minimum sum of the second derivatives in a leaf."""
    min_split_gain: float = Field(default=0.0, ge=0)
    """Minimum gain of a split."""
    reg_lambda: float = Field(default=0.0, ge=0)
    """L2 penalty on the leaves' values."""
    reg_alpha: float = Field(default=0.0, ge=0)
    """L1 penalty on the leaves' values."""
    subsample: Share = 1.0
    """Share of the rows that a tree is grown on; needs ``subsample_freq``."""
    subsample_freq: int = Field(default=0, ge=0)
    """Number of trees after which the rows of ``subsample`` are drawn anew; 0: all rows."""
    colsample_bytree: Share = 1.0
    """Share of the features that a tree chooses from."""
    max_bin: int = Field(default=255, ge=2, le=65_535)
    """Bins of a feature."""

    @model_validator(mode="after")
    def _subsample_is_drawn(self) -> Self:
        if self.subsample < 1 and not self.subsample_freq:
            raise ValueError("subsample is read with subsample_freq alone: set it to 1 or more")
        return self


ESTIMATORS: Mapping[str, type[EstimatorParams]] = MappingProxyType(
    {
        "sklearn:HistGradientBoostingClassifier": BoostedTreeParams,
        "sklearn:RandomForestClassifier": TreeParams,
        "sklearn:ExtraTreesClassifier": TreeParams,
        "sklearn:LogisticRegression": LogisticRegressionParams,
        "xgboost:XGBClassifier": XGBoostParams,
        "lightgbm:LGBMClassifier": LightGbmParams,
        "sklearn:HistGradientBoostingRegressor": BoostedTreeParams,
        "sklearn:RandomForestRegressor": RegressionForestParams,
        "sklearn:ExtraTreesRegressor": RegressionForestParams,
        "xgboost:XGBRegressor": XGBoostParams,
        "lightgbm:LGBMRegressor": LightGbmParams,
    }
)
"""Name in a recipe -> parameters."""


OBJECTIVES_OF: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "sklearn:HistGradientBoostingRegressor": ("squared", "pinball"),
        "sklearn:RandomForestRegressor": ("squared",),
        "sklearn:ExtraTreesRegressor": ("squared",),
        "xgboost:XGBRegressor": ("squared", "pinball"),
        "lightgbm:LGBMRegressor": ("squared", "pinball"),
    }
)
"""Regressors, and the objectives that each can minimise."""


def check_regressor(model: str, objective: str) -> None:
    """Raise ValueError unless an estimator predicts numbers by the objective of this name."""
    if model not in OBJECTIVES_OF:
        one = next((name for name in OBJECTIVES_OF if name == model.replace("Classifier", "Regressor")), None)
        instead = one or ", ".join(OBJECTIVES_OF)
        raise ValueError(
            f"objective {objective}: model {model} predicts classes. Set model to linear, mlp, "
            f"package.module:factory or a regressor: {instead}"
        )
    name = objective.partition(":")[0]
    if name not in OBJECTIVES_OF[model]:
        able = [other for other, objectives in OBJECTIVES_OF.items() if name in objectives]
        hint = f"a regressor that does: {', '.join(able)}; or to " if able else ""
        raise ValueError(
            f"objective {objective}: {model} minimises {' or '.join(OBJECTIVES_OF[model])}. Set model to "
            f"{hint}linear or mlp"
        )


@dataclass(frozen=True)
class EstimatorPlugin:
    """Estimators of a library that another package adds."""

    params: Mapping[str, type[EstimatorParams]]
    """Name of the estimator, without the library -> its parameters."""
    library: Any
    """An :class:`engine.training.libraries.Library`, which fits, stores and loads them."""


def plugin_of(model: str) -> EstimatorPlugin | None:
    """Return the installed plugin of a model's library, or None. One that does not load gives a warning.

    A plugin cannot take the name of a built-in library.
    """
    library, colon, _ = model.partition(":")
    if not colon or library in LIBRARIES or model.startswith(PRETRAINED):
        return None
    return find_plugin(ENTRY_POINTS, library, EstimatorPlugin)


def known_estimators(model: str) -> dict[str, type[EstimatorParams]]:
    """Return the estimators that a recipe may name, with those of the plugin of this model's library."""
    plugin, library = plugin_of(model), model.partition(":")[0]
    added = {} if plugin is None else {f"{library}:{name}": kind for name, kind in plugin.params.items()}
    return {**ESTIMATORS, **added}


def is_estimator(model: str) -> bool:
    """Return whether a model's name asks for an estimator of a library."""
    library, colon, _ = model.partition(":")
    return bool(colon) and (library in LIBRARIES or plugin_of(model) is not None)


def missing_library(model: str) -> str:
    """Return an error text with the remedy if the library of an estimator is not installed; else empty."""
    library = model.partition(":")[0]
    if library not in EXTRAS or find_spec(library) is not None:
        return ""
    return (
        f"train.model {model}: the package {library} is not installed. On every node, and where the model "
        f"answers: pip install -c deploy/constraints.txt 'rowsieve[{library}]'."
    )


def check_estimator(model: str, params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the checked parameters of an estimator with its defaults.

    Raises ValueError for a name that is not on the list, or a parameter that the estimator does not have or
    that is out of its range.
    """
    known_names = known_estimators(model)
    if model not in known_names:
        longer = [name for name in known_names if name.casefold().startswith(model.casefold())]
        hint = "" if len(longer) > 1 else nearest(model, known_names)
        hint = hint or f" There are: {', '.join(longer or known_names)}."
        raise ValueError(f"model {model!r}: a recipe cannot name this estimator.{hint}")
    return check_model_params(model, known_names[model], params).model_dump()


def check_model_params(model: str, kind: type[Params], params: Mapping[str, Any]) -> Params:
    """Return the parameters of a model, checked by their class.

    Raises ValueError for a parameter that the class does not have or that is out of its range.
    """
    for key in params:
        if key not in kind.model_fields:
            known = nearest(key, kind.model_fields) or f" There are: {', '.join(kind.model_fields)}."
            raise ValueError(f"model_params: {model} takes no {key!r} here.{known}")
    try:
        return kind.model_validate(dict(params))
    except ValidationError as error:
        first = error.errors()[0]
        if not first["loc"]:
            raise ValueError(f"model_params: {first['msg']}") from None
        raise ValueError(f"model_params.{first['loc'][0]}: {first['msg']}, not {first['input']!r}") from None
