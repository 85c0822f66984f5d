"""scikit-learn's checks on every estimator that Rowsieve exports.

Estimators are discovered: whatever the packages of ``operators`` export and ``rowsieve.estimators`` lists. A
new one is checked with its default parameters; ``SETTINGS`` names others, and ``EXPECTED`` the checks that an
estimator does not pass, with the reason.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Mapping
from importlib import import_module
from typing import Any

import pytest
from sklearn.base import BaseEstimator
from sklearn.utils.estimator_checks import parametrize_with_checks

import operators
from engine.api import estimators as public
from operators.eos import KMeans


def exported() -> dict[str, type[BaseEstimator]]:
    """Return every estimator by name."""
    packages = [
        import_module(f"operators.{found.name}") for found in pkgutil.iter_modules(operators.__path__)
    ]
    classes = [getattr(package, name) for package in packages for name in getattr(package, "__all__", ())]
    classes += [getattr(public, name) for name in public.__all__]
    return {c.__name__: c for c in classes if isinstance(c, type) and issubclass(c, BaseEstimator)}


SETTINGS: dict[str, list[dict[str, Any]]] = {
    "ConstrainedFolds": [{"n_folds": 2}],
    "ConstrainedKernelKMeans": [{}, {"kernel": "rbf"}],
    "DBSCAN": [{"metric": name} for name in ("euclidean", "cosine", "centered_cosine", "precomputed")],
    "DecorrelatedKMeans": [
        {"n_clusters": 3, "random_state": 0},
        {"n_clusters": 2, "init": "k-means++", "coding": "standardize"},
    ],
    "EntropicOutlierSparsification": [
        {},
        {"threshold": 0.5, "random_state": 0},
        {"loss": KMeans(2), "alpha": 1.0, "threshold": 0.5},
    ],
    "GroupInference": [{"eps_grid": [0.3, 0.6], "min_samples_grid": 3}],
    "NeighbourGraph": [
        {},
        {"eps": 0.5},
        {"eps": 1.0, "metric": "cosine"},
        {"n_neighbors": 3, "metric": "cosine"},
        {"index": "ivf", "eps": 1.0},
    ],
}
NEEDS_CLASSES = (
    "the check calls predict(X): fit saw several classes, and a group belongs to a class, so predict needs y"
)
PREDICTS_WITHOUT_CLASSES = (
    "check_dict_unchanged",
    "check_dtype_object",
    "check_estimators_dtypes",
    "check_estimators_pickle",
    "check_f_contiguous_array_estimator",
    "check_fit_idempotent",
    "check_methods_sample_order_invariance",
    "check_methods_subset_invariance",
)
NAMED_GROUPS = "the second argument of fit is called groups, as in the public interface"
NO_OUTLIERS = "the check demands outliers in Gaussian blobs, which have none at the default threshold"


def expected(estimator: Any) -> Mapping[str, str]:
    """Return the checks that an estimator does not pass, with the reasons."""
    match type(estimator).__name__:
        case "GroupInference":
            return dict.fromkeys(PREDICTS_WITHOUT_CLASSES, NEEDS_CLASSES)
        case "ConstrainedFolds" | "ConstrainedKernelKMeans":
            return {"check_fit_score_takes_y": NAMED_GROUPS}
        case "DBSCAN" if estimator.metric == "precomputed":
            return {"check_clustering": "the check clusters rows of features, which are no distances"}
        case "EntropicOutlierSparsification" if estimator.threshold == 0.01:
            return dict.fromkeys(["check_outliers_train", "check_outliers_fit_predict"], NO_OUTLIERS)
    return {}


@pytest.mark.filterwarnings("ignore:EOS weights have collapsed")
@pytest.mark.filterwarnings("ignore:.* rows are too few to choose alpha")
@parametrize_with_checks(
    [made(**keys) for name, made in exported().items() for keys in SETTINGS.get(name, [{}])],
    expected_failed_checks=expected,
)
def test_scikit_learn_conventions(estimator: Any, check: Any) -> None:
    check(estimator)


def test_settings_name_estimators() -> None:
    assert {*SETTINGS} <= {*exported()}
    assert {*public.__all__} <= {*exported()}
