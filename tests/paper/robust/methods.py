"""Methods of training from rows to a model; only ``oracle`` sees true groups or which rows are damaged."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from sklearn.preprocessing import StandardScaler

from engine.training import fit_arrays, parse_params
from operators.class_shares import class_factors
from operators.cues import CueSettings
from operators.cues import fit as fit_cues
from operators.cues import weights as cue_weights
from operators.gradients import per_sample_gradients
from operators.gradients.balanced_bias import balanced, input_lengths
from operators.grasp import GroupInference
from operators.models import ModelSpec
from operators.weights.params import CrossFit
from tests.on_arrays import train_on_arrays, trust_on_arrays
from tests.paper.published import AS_PUBLISHED
from tests.paper.robust.problems import RobustProblem

Array = npt.NDArray[Any]
ERM, CB, ORACLE, DEFAULT = "ERM", "ERM, CB", "oracle gDRO", "default weights"
GRASP, PUBLISHED = "GRASP", "GRASP as published"
BALANCED = "oracle weights"
WEIGHTS_1, PLAIN = "GRASP, weights 1", "GRASP, biases plain"


def infer(problem: RobustProblem, select: Any, seed: int, *, balance: bool = True) -> Array:
    """Groups by GRASP on the gradients of the default probe, with the defaults of ``gradients``."""
    X = problem.X.astype(np.float32)
    spec = ModelSpec(
        n_features=X.shape[1], n_classes=int(problem.y.max()) + 1, blocks=(X.shape[1],) * problem.one_unit
    )
    model: Any = train_on_arrays(X, problem.y, spec=spec, random_state=seed).model
    if balance:
        model, _ = balanced(model, input_lengths(model, torch.from_numpy(X)))
    gradients = per_sample_gradients(model, X, problem.y)
    return GroupInference(select=select, random_state=seed, **AS_PUBLISHED).fit_predict(gradients, problem.y)


def train(problem: RobustProblem, seed: int, keep: Array | None = None, **how: Any) -> dict[str, float]:
    """Accuracy on the test rows: of the worst true group, and average weighted by true train groups."""
    rows = np.ones(len(problem.y), bool) if keep is None else keep
    arrays = {name: how.pop(name)[rows] for name in ("groups", "weight") if name in how}
    params = parse_params({**problem.trainer, **how})
    X = problem.X.astype(np.float32)
    model = fit_arrays(X[rows], problem.y[rows], params, seed=seed, **arrays)
    right = model.predict_proba(problem.X_test.astype(np.float32)).argmax(axis=1) == problem.y_test
    names = np.unique(problem.group_test)
    accuracy = np.array([right[problem.group_test == name].mean() for name in names])
    share = np.array([np.mean(problem.group[~problem.damaged] == name) for name in names])
    return {"worst": float(accuracy.min()), "average": float(accuracy @ share / share.sum())}


def robust(problem: RobustProblem, seed: int, groups: Array) -> dict[str, float]:
    """Group DRO over inferred groups, doubtful rows weighed by their self-confidence."""
    how = {key: problem.trainer[key] for key in ("model", "hidden") if key in problem.trainer}
    trust = trust_on_arrays(problem.X.astype(np.float32), problem.y, groups, CrossFit(**how), seed)
    return train(problem, seed, trainer="gdro", groups=groups, weight=trust)


def default_weights(problem: RobustProblem, seed: int) -> Array:
    """Return the weights of the default recipe: those of ``cues`` on standardised features, shape (n,)."""
    X = StandardScaler().fit_transform(problem.X).astype(np.float32)
    ids = np.arange(len(problem.y))
    state = fit_cues(X, problem.y, ids, CueSettings(seed=seed))
    return cue_weights(state, X, problem.y, ids)


def true_balance(problem: RobustProblem) -> Array:
    """Return weights that give every true group the same total over the undamaged rows, shape (n,)."""
    group = np.unique(problem.group, return_inverse=True)[1]
    rows = np.bincount(group[~problem.damaged])
    return np.asarray((len(group) / (len(rows) * np.maximum(rows, 1)))[group])


def evaluate(problem: RobustProblem, seed: int) -> dict[str, dict[str, float]]:
    """Method -> figures."""
    groups = infer(problem, "coverage", seed)
    balance = class_factors(np.bincount(problem.y))[problem.y]
    published = infer(problem, "silhouette", seed, balance=False)
    found = {
        ERM: train(problem, seed, trainer="erm"),
        CB: train(problem, seed, trainer="erm", weight=balance),
        DEFAULT: train(problem, seed, trainer="erm", weight=default_weights(problem, seed)),
        GRASP: robust(problem, seed, groups),
        WEIGHTS_1: train(problem, seed, trainer="gdro", groups=groups),
        BALANCED: train(problem, seed, keep=~problem.damaged, trainer="erm", weight=true_balance(problem)),
        ORACLE: train(problem, seed, keep=~problem.damaged, trainer="gdro", groups=problem.group),
    }
    found[PLAIN] = robust(problem, seed, infer(problem, "coverage", seed, balance=False))
    if len(np.unique(problem.y[published >= 0])) == len(np.unique(problem.y)):
        found[PUBLISHED] = train(problem, seed, trainer="gdro", groups=published, noise="drop")
    return found
