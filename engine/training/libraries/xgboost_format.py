"""The JSON format of XGBoost's models, read and written by ourselves.

XGBoost's own reader trusts the indices and lengths in a model. A stored model may be forged, so it is read
by the bounded reader of JSON, every value is checked, and XGBoost gets a text that is written from the
checked values. It holds what prediction needs: trees of numeric splits, and the objective: binary,
multiclass, or squared error. The trees of a quantile are added up in the same way, so that they are stored
as those of the squared error.

The format: https://xgboost.readthedocs.io/en/stable/tutorials/saving_model.html
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from engine.training.libraries.base import damaged
from engine.training.libraries.tree_checks import check_tree
from operators.bounded_json import BadJsonError, parse_json

VERSION = (3, 2, 0)
"""Version of the format that is written; later versions of XGBoost read it."""
MAX_DIGITS = 32
"""Characters of a number in ``base_score``."""
SQUARED_ERROR, QUANTILE_ERROR = "reg:squarederror", "reg:quantileerror"
NO_PARENT = 2**31 - 1
LONGEST = 2**31 - 2
_FLOATS = ("base_weights", "loss_changes", "split_conditions", "sum_hessian")
_INTEGERS = ("left_children", "right_children", "split_indices", "default_left")
_LARGEST = float(np.finfo(np.float32).max)


def canonical(data: bytes, n_features: int, n_classes: int) -> bytes:
    """Return the model in ``data`` as JSON that is written from checked values.

    The result is the same where ``data`` is a result already.

    Raises
    ------
    OperatorError
        It is not a model of XGBoost for rows of ``n_features`` numbers and ``n_classes`` classes; 1: numbers.
    """
    try:
        learner = _get(parse_json(data, "XGBoost's JSON"), "learner")
        booster = _get(learner, "gradient_booster")
        if booster.get("name") != "gbtree":
            raise ValueError("its booster is not gbtree")
        model = _get(booster, "model")
        per_round = _per_round(n_classes)
        trees = [_tree(tree, index, n_features) for index, tree in enumerate(_list(model, "trees"))]
        if not trees or len(trees) % per_round:
            raise ValueError(f"{len(trees):,} trees do not make whole rounds for {n_classes:,} classes")
        class_of_tree = [index % per_round for index in range(len(trees))]
        if _list(model, "tree_info") != class_of_tree:
            raise ValueError("its trees do not take turns over the classes")
        shape = _get(learner, "learner_model_param")
        if shape.get("num_feature") != str(n_features):
            raise ValueError(f"its rows do not have {n_features:,} features")
        margins = _base_score(shape.get("base_score"), n_classes)
        _check_objective(_get(learner, "objective").get("name"), n_classes)
    except BadJsonError as error:
        raise damaged(error.why) from None
    except (ValueError, TypeError, OverflowError) as error:
        raise damaged(f"XGBoost's JSON: {error}") from None
    made = {
        "learner": {
            "attributes": {},
            "feature_names": [],
            "feature_types": [],
            "gradient_booster": {
                "model": {
                    "cats": {"enc": [], "feature_segments": [], "sorted_idx": []},
                    "gbtree_model_param": {"num_parallel_tree": "1", "num_trees": str(len(trees))},
                    "iteration_indptr": list(range(0, len(trees) + 1, per_round)),
                    "tree_info": class_of_tree,
                    "trees": trees,
                },
                "name": "gbtree",
            },
            "learner_model_param": {
                "base_score": json.dumps(margins),
                "boost_from_average": "1",
                "num_class": "0" if per_round == 1 else str(n_classes),
                "num_feature": str(n_features),
                "num_target": "1",
            },
            "objective": _objective(n_classes),
        },
        "version": list(VERSION),
    }
    return json.dumps(made, separators=(",", ":")).encode()


def _tree(tree: Any, index: int, n_features: int) -> dict[str, Any]:
    """Return one tree of checked values."""
    if not isinstance(tree, dict):
        raise ValueError(f"tree {index:,} is not an object")
    if any(_list(tree, "categories_nodes")) or any(_list(tree, "split_type")):
        raise ValueError(f"tree {index:,} splits by categories, and features are numbers")
    integers = {key: _integers(tree, key) for key in _INTEGERS}
    floats = {key: _numbers(tree, key) for key in _FLOATS}
    left, right = (np.array(integers[key], np.int64) for key in ("left_children", "right_children"))
    try:
        check_tree(left, right, np.array(integers["split_indices"], np.int64), n_features)
    except ValueError as error:
        raise ValueError(f"tree {index:,}: {error}") from None
    n = len(left)
    lengths = {key: len(values) for key, values in integers.items()}
    lengths |= {key: len(values) for key, values in floats.items()}
    for key, length in lengths.items():
        if length != n:
            raise ValueError(f"tree {index:,}: {key} has {length:,} values for {n:,} nodes")
    if set(integers["default_left"]) - {0, 1}:
        raise ValueError(f"tree {index:,}: default_left is neither 0 nor 1")
    parents = np.full(n, NO_PARENT, np.int64)
    inner = np.flatnonzero(left != -1)
    parents[left[inner]] = parents[right[inner]] = inner
    return {
        **integers,
        **floats,
        "parents": parents.tolist(),
        "split_type": [0] * n,
        "categories": [],
        "categories_nodes": [],
        "categories_segments": [],
        "categories_sizes": [],
        "id": index,
        "tree_param": {
            "num_deleted": "0",
            "num_feature": str(n_features),
            "num_nodes": str(n),
            "size_leaf_vector": "1",
        },
    }


def _per_round(n_classes: int) -> int:
    """Return the trees of a round: one for numbers and for two classes, else one for each class."""
    return n_classes if n_classes > 2 else 1


def _objective(n_classes: int) -> dict[str, Any]:
    if n_classes == 1:
        return {"name": SQUARED_ERROR, "reg_loss_param": {"scale_pos_weight": "1"}}
    if n_classes == 2:
        return {"name": "binary:logistic", "reg_loss_param": {"scale_pos_weight": "1"}}
    return {"name": "multi:softprob", "softmax_multiclass_param": {"num_class": str(n_classes)}}


def _check_objective(name: Any, n_classes: int) -> None:
    wanted = _objective(n_classes)["name"]
    if name != wanted and not (n_classes == 1 and name == QUANTILE_ERROR):
        raise ValueError(f"its objective is not {wanted}, that of {n_classes:,} classes")


def _base_score(text: Any, n_classes: int) -> list[float]:
    """Return the margins from which the trees start, as a probability for two classes."""
    known = isinstance(text, str) and len(text) <= MAX_DIGITS * (n_classes + 1)
    if not known or not re.fullmatch(r"\[?[^][]+\]?", text):
        raise ValueError("base_score is not a list of numbers")
    found = [_finite(float(part), "base_score") for part in text.strip("[]").split(",")]
    if len(found) == 1 and n_classes > 2:
        found *= n_classes
    if len(found) != _per_round(n_classes):
        raise ValueError(f"base_score has {len(found):,} values for {n_classes:,} classes")
    if n_classes == 2 and not 0 < found[0] < 1:
        raise ValueError("base_score is not a probability")
    return found


def _get(value: Any, key: str) -> Mapping[str, Any]:
    found = value.get(key) if isinstance(value, dict) else None
    if not isinstance(found, dict):
        raise ValueError(f"there is no object {key!r}")
    return found


def _list(value: Mapping[str, Any], key: str) -> list[Any]:
    found = value.get(key)
    if not isinstance(found, list):
        raise ValueError(f"there is no list {key!r}")
    return found


def _integers(tree: Mapping[str, Any], key: str) -> list[int]:
    found = _list(tree, key)
    if any(type(value) is not int or not -1 <= value <= LONGEST for value in found):
        raise ValueError(f"{key} holds a value that is not an index")
    return found


def _numbers(tree: Mapping[str, Any], key: str) -> list[float]:
    found = _list(tree, key)
    if any(type(value) not in (int, float) for value in found):
        raise ValueError(f"{key} holds a value that is not a number")
    return [_finite(float(value), key) for value in found]


def _finite(value: float, key: str) -> float:
    if not math.isfinite(value) or abs(value) > _LARGEST:
        raise ValueError(f"{key} holds {value}")
    return value
