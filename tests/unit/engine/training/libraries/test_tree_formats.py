"""The readers of XGBoost's JSON and LightGBM's text: what is forged is refused before a library sees it."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from engine.recipe.trainers import parse_params
from engine.training.libraries import lightgbm_format, xgboost_format
from engine.training.libraries.base import WeightedRows
from engine.training.libraries.registry import library_of
from operators.base import OperatorError

TREE = {
    "base_weights": [0.1, -0.5, 0.2, 0.3, 0.4],
    "categories_nodes": [],
    "default_left": [0, 0, 1, 0, 0],
    "left_children": [1, -1, 3, -1, -1],
    "right_children": [2, -1, 4, -1, -1],
    "loss_changes": [2.5, 0.0, 1.5, 0.0, 0.0],
    "split_conditions": [0.25, -0.5, 1.5, 0.3, 0.4],
    "split_indices": [1, 0, 0, 0, 0],
    "split_type": [0, 0, 0, 0, 0],
    "sum_hessian": [9.0, 4.0, 5.0, 2.0, 3.0],
}
JSON = {
    "learner": {
        "gradient_booster": {"name": "gbtree", "model": {"trees": [TREE, TREE], "tree_info": [0, 0]}},
        "learner_model_param": {"base_score": "[4.4E-1]", "num_feature": "2"},
        "objective": {"name": "binary:logistic"},
    }
}
TEXT = """tree
version=v4
num_class=1
num_tree_per_iteration=1
label_index=0
max_feature_idx=1
objective=binary sigmoid:1
feature_names=Column_0 Column_1
feature_infos=[-3.77:3.06] none
tree_sizes=1 1000000000

Tree=0
num_leaves=3
num_cat=0
split_feature=1 0
split_gain=300 2.5
threshold=0.25 1.5
decision_type=2 2
left_child=-1 -2
right_child=1 -3
leaf_value=-0.5 0.3 0.4
leaf_weight=4 2 3
leaf_count=40 20 30
internal_value=-0.2 0.1
internal_weight=9 5
internal_count=90 50
is_linear=0
shrinkage=0.1


end of trees

parameters:
[machine_list_filename: /etc/passwd]
end of parameters
"""
read_json = partial(xgboost_format.canonical, n_features=2, n_classes=2)
read_text = partial(lightgbm_format.canonical, n_features=2, n_classes=2)


def xgboost_bytes() -> bytes:
    return json.dumps(JSON).encode()


def test_canonical_bytes_are_read_as_they_are() -> None:
    for read, data in ((read_json, xgboost_bytes()), (read_text, TEXT.encode())):
        once = read(data)
        assert read(once) == once
    assert b"passwd" not in read_text(TEXT.encode())
    text = read_text(TEXT.encode()).decode()
    tree = text[text.index("Tree=0") : text.index("end of trees")]
    assert f"tree_sizes={len(tree)}\n" in text


def put(place: str, value: Any) -> Callable[[dict[str, Any]], None]:
    def change(model: dict[str, Any]) -> None:
        *path, last = place.split(".")
        for key in path:
            model = model[key]
        model[last] = value

    return change


def put_tree(key: str, value: Any) -> Callable[[dict[str, Any]], None]:
    def change(model: dict[str, Any]) -> None:
        model["learner"]["gradient_booster"]["model"]["trees"][1][key] = value

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (put_tree("left_children", [1, -1, 2_000_000_000, -1, -1]), "tree 1: a child of a node lies outside"),
        (put_tree("left_children", [1, -1, 2, -1, -1]), "or before its parent"),
        (put_tree("left_children", [1, -1, 4, -1, -1]), "no parent, or several"),
        (put_tree("left_children", [1, -1, -1, -1, -1]), "has one child"),
        (put_tree("left_children", [1, -1, -7, -1, -1]), "holds a value that is not an index"),
        (put_tree("left_children", [True, -1, 3, -1, -1]), "holds a value that is not an index"),
        (put_tree("left_children", []), "1: a tree has no node, or lists of different lengths"),
        (put_tree("split_indices", [2, 0, 0, 0, 0]), "none of the 2"),
        (put_tree("split_conditions", [0.25]), "split_conditions has 1 values for 5 nodes"),
        (put_tree("split_conditions", [1e39, 0, 0, 0, 0]), "split_conditions holds 1e"),
        (put_tree("split_conditions", [float("nan"), 0, 0, 0, 0]), "split_conditions holds nan"),
        (put_tree("split_conditions", ["1", 0, 0, 0, 0]), "not a number"),
        (put_tree("sum_hessian", [10**400, 0, 0, 0, 0]), "too large"),
        (put_tree("default_left", [3, 0, 0, 0, 0]), "default_left"),
        (put_tree("split_type", [1, 0, 0, 0, 0]), "splits by categories"),
        (put("learner.gradient_booster.model.trees", []), "0 trees"),
        (put("learner.gradient_booster.model.trees", [3]), "tree 0 is not an object"),
        (put("learner.gradient_booster.model.tree_info", [0, 9]), "take turns"),
        (put("learner.gradient_booster.name", "dart"), "not gbtree"),
        (put("learner.gradient_booster", 3), "no object 'gradient_booster'"),
        (put("learner.objective.name", "rank:map"), "objective is not binary:logistic"),
        (put("learner.learner_model_param.base_score", "[0.5,0.5]"), "2 values for 2 classes"),
        (put("learner.learner_model_param.base_score", "[2]"), "not a probability"),
        (put("learner.learner_model_param.base_score", "a" * 10_000), "not a list of numbers"),
    ],
)
def test_a_forged_model_of_xgboost_is_refused(change: Any, message: str) -> None:
    model = json.loads(json.dumps(JSON))
    change(model)
    with pytest.raises(OperatorError, match=f"damaged or forged.*{message}"):
        read_json(json.dumps(model).encode())


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("left_child=-1 -2", "left_child=-1 -9", "outside of its tree"),
        ("left_child=-1 -2", "left_child=0 -2", "before its parent"),
        ("left_child=-1 -2", "left_child=-2 -2", "no parent, or several"),
        ("left_child=-1 -2", "left_child=-1", "left_child has 1 values, not 2"),
        ("left_child=-1 -2", "left_child=-1 -99999999999", "not an index"),
        ("num_leaves=3", "num_leaves=999999999", "has 2 values, not 999,999,998"),
        ("num_leaves=3", "num_leaves=0", "no leaf"),
        ("split_feature=1 0", "split_feature=2 0", "none of the 2"),
        ("decision_type=2 2", "decision_type=1 2", "not a comparison of numbers"),
        ("threshold=0.25", "threshold=nan", "not finite"),
        ("leaf_value=-0.5", "leaf_value=1e999", "not finite"),
        ("num_cat=0", "num_cat=1", "by categories"),
        ("is_linear=0", "is_linear=1", "linear leaves"),
        ("max_feature_idx=1", "max_feature_idx=99", "max_feature_idx is not 1"),
        ("objective=binary sigmoid:1", "objective=lambdarank", "objective is not binary"),
        ("num_class=1", "num_class=3", "num_class is not 1"),
        ("Tree=0", "Tree=1", "tree 0 does not begin as one"),
        ("shrinkage=0.1", "shrinkage=0.1\nshrinkage=0.1", "a key twice"),
        ("shrinkage=0.1\n", "", "tree 0 has no shrinkage"),
        ("[-3.77:3.06]", "[-3.77:3.06:1]", "not a range"),
        ("end of trees", "", "no end"),
        ("Column_0", "Column_\u0660", "ascii"),
    ],
)
def test_a_forged_model_of_lightgbm_is_refused(old: str, new: str, message: str) -> None:
    assert old in TEXT
    with pytest.raises(OperatorError, match=f"damaged or forged.*{message}"):
        read_text(TEXT.replace(old, new, 1).encode())


@pytest.mark.parametrize("read", [read_json, read_text])
def test_bytes_changed_at_random_are_refused_or_read_as_another_model(read: Any) -> None:
    """No other error than the named one, whatever the bytes are."""
    rng = np.random.default_rng(0)
    data = xgboost_bytes() if read is read_json else TEXT.encode()
    refused = 0
    for _ in range(1500):
        changed = bytearray(data)
        for place in rng.integers(0, len(data), rng.integers(1, 4)):
            changed[place] = rng.choice(np.frombuffer(b'0123456789-+eE.,[]{}": \nx\xff\x00', np.uint8))
        try:
            found = read(bytes(changed))
        except OperatorError:
            refused += 1
        else:
            assert read(found) == found
    assert 300 < refused < 1500
    for strange in (b"", b"[]", b"null", b"[" * 100_000, b"tree", data[: len(data) // 2]):
        with pytest.raises(OperatorError, match="damaged or forged"):
            read(strange)


MODELS = ("xgboost:XGBClassifier", "lightgbm:LGBMClassifier")


def fitted(model: str, n_classes: int, cpus: int = 1, n: int = 3000) -> tuple[Any, Any]:
    """A fitted estimator and its rows."""
    package = model.partition(":")[0]
    reason = f"{package} is not installed: pip install -c deploy/constraints.txt '.[{package}]'"
    pytest.importorskip(package, reason=reason)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 5)).astype(np.float32)
    y = (X[:, :n_classes] + rng.normal(size=(n, n_classes))).argmax(axis=1)
    drawn = {"subsample": 0.7, "colsample_bytree": 0.6, "n_estimators": 8}
    if package == "lightgbm":
        drawn["subsample_freq"] = 1
    params = parse_params({"model": model, "model_params": drawn, "resources": {"cpus": cpus}})
    return library_of(model).fit(params, 7, WeightedRows(X, y, rng.uniform(0.5, 2, n), n_classes)), X


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("n_classes", [2, 3])
def test_a_stored_model_predicts_as_it_did(model: str, n_classes: int) -> None:
    found, X = fitted(model, n_classes)
    library = library_of(model)
    data = library.dump(found)
    again = library.load(data, 5, n_classes)
    assert again.predict_proba(X).tobytes() == found.predict_proba(X).tobytes()
    assert again.predict_proba(X).shape == (len(X), n_classes)
    assert again.predict_proba(X[:0]).shape == (0, n_classes)
    np.testing.assert_allclose(again.predict_proba(X).sum(axis=1), 1, atol=1e-6)
    assert library.dump(again) == data
    for features, classes in ((4, n_classes), (6, n_classes), (5, 5 - n_classes)):
        with pytest.raises(OperatorError, match="damaged or forged"):
            library.load(data, features, classes)


@pytest.mark.parametrize("model", MODELS)
def test_any_number_of_threads_fits_the_same_bytes(model: str) -> None:
    one = library_of(model).dump(fitted(model, 3)[0])
    assert library_of(model).dump(fitted(model, 3, cpus=3)[0]) == one


@pytest.mark.parametrize("model", MODELS)
def test_rows_that_no_split_helps_make_trees_of_one_leaf(model: str) -> None:
    found, X = fitted(model, 3, n=6)
    again = library_of(model).load(library_of(model).dump(found), 5, 3)
    assert again.predict_proba(X).tobytes() == found.predict_proba(X).tobytes()


def test_a_missing_package_is_an_error_that_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    from engine.recipe import estimators
    from engine.training.fit.in_memory import fit_arrays

    monkeypatch.setattr(estimators, "find_spec", lambda name: None)
    for model in MODELS:
        package = model.partition(":")[0]
        with pytest.raises(OperatorError, match=rf"train.model {model}.*'rowsieve\[{package}\]'"):
            fit_arrays(np.eye(4), [0, 1, 0, 1], parse_params({"model": model}))
