"""Every method of training on one problem: predictions for the test rows. Only the oracles read true groups.

Settings are the papers' or this project's defaults, fixed before any score was looked at; nothing is tuned,
as there are no group labels to tune by. Networks are logistic, so that the methods differ in the objective
alone; trees are there because practitioners deploy them.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from engine.training import fit_arrays, parse_params
from operators.class_shares import class_factors
from operators.cues import CueSettings
from operators.cues import fit as fit_cues
from operators.cues import weights as cue_weights
from operators.cues.models.half_models import held_out
from operators.cues.models.linear import fit_softmax, predict
from operators.cues.models.twins import fit_twins
from operators.groups.eiil import environments, scale_derivatives
from operators.groups.george import fit_george
from operators.groups.params import GeorgeParams
from tests.paper.baselines.problems import Problem

Floats: TypeAlias = npt.NDArray[np.floating[Any]]
Ints: TypeAlias = npt.NDArray[np.int64]
Method: TypeAlias = Callable[[Problem, int], Ints]

L2 = 1e-3
NETWORK = {"model": "logistic", "standardize": False, "epochs": 20, "batch_size": 512, "lr": 0.03}
"""Settings that the trainers by stochastic gradient descent share."""
GEORGE_ROWS = 3000
"""Rows of a class on which George's mixtures are fitted; the others go to the nearest labelled row."""
AFR_SHARE, AFR_GAMMA, AFR_L2 = 0.2, 2.0, 0.1
ERM, CB, OURS, BOLD, ORACLE = "ERM", "ERM, CB", "our weights", "our weights, bold", "oracle gDRO"


def class_balance(problem: Problem) -> Floats:
    """Return weights under which every class has the same total, shape (n,)."""
    return class_factors(np.bincount(problem.y))[problem.y]


def ours(problem: Problem, seed: int, **settings: Any) -> Floats:
    """Return the weights of the operator ``cues`` with its defaults, shape (n,)."""
    ids = np.arange(len(problem.y))
    state = fit_cues(problem.X, problem.y, ids, CueSettings(seed=seed, **settings))
    return cue_weights(state, problem.X, problem.y, ids)


def linear(problem: Problem, w: Floats) -> Ints:
    """Return predictions of a softmax regression with row weights."""
    return np.asarray(predict(coefficients(problem, w), problem.Xt).argmax(axis=1))


def coefficients(problem: Problem, w: Floats) -> Floats:
    """Return a softmax regression with row weights, shape (d + 1, C)."""
    return fit_softmax(problem.X, problem.y, w, int(problem.y.max()) + 1, l2=L2)


def network(problem: Problem, seed: int, groups: Ints | None = None, **params: Any) -> Ints:
    """Return predictions of one of this project's trainers."""
    model = fit_arrays(problem.X, problem.y, parse_params({**NETWORK, **params}), groups=groups, seed=seed)
    return np.asarray(model.predict(problem.Xt), np.int64)


def group_dro(problem: Problem, seed: int, groups: Ints) -> Ints:
    """Return predictions of group DRO on these groups, numbered from 0."""
    _, numbers = np.unique(groups, return_inverse=True)
    return network(problem, seed, numbers.astype(np.int64), trainer="gdro", noise="own_group")


def eiil(problem: Problem) -> Ints:
    """Return class x EIIL's environment by the ERM model, shape (n,)."""
    coef = coefficients(problem, np.ones(len(problem.y)))
    logits = problem.X @ coef[:-1] + coef[-1]
    return 2 * problem.y + environments(scale_derivatives(logits, problem.y))


def xrm(problem: Problem, seed: int) -> Ints:
    """Return class x XRM's environment: whether the held-out twin is wrong, shape (n,)."""
    ids, C = np.arange(len(problem.y)), int(problem.y.max()) + 1
    twins = fit_twins(problem.X, problem.y, ids, C, seed, l2=L2, splits=1)
    wrong = held_out(twins.after, problem.X, ids, seed)[0].argmax(axis=1) != problem.y
    return 2 * problem.y + wrong


def george(problem: Problem, seed: int) -> Ints:
    """Return George's groups of features and ERM's loss within each class, shape (n,)."""
    from sklearn.neighbors import KNeighborsClassifier

    p = predict(coefficients(problem, np.ones(len(problem.y))), problem.X)
    loss = -np.log(np.maximum(p[np.arange(len(p)), problem.y], 1e-12))
    found = np.empty(len(problem.y), np.int64)
    first = 0
    for c in np.unique(problem.y):
        rows = np.flatnonzero(problem.y == c)
        drawn = np.random.default_rng(seed).permutation(rows)[:GEORGE_ROWS]
        labels = fit_george(problem.X[drawn], loss[drawn], GeorgeParams(), seed).labels
        if len(drawn) < len(rows):
            nearest = KNeighborsClassifier(1).fit(np.column_stack([problem.X, loss])[drawn], labels)
            labels = nearest.predict(np.column_stack([problem.X, loss])[rows])
            drawn = rows
        found[drawn] = labels + first
        first += int(labels.max()) + 1
    return found


def afr(problem: Problem, seed: int) -> Ints:
    """Return predictions of AFR (Qiu et al. 2023): the last layer refitted on the rows a model doubts.

    A class-balanced model is trained on 80 % of the rows. On the others it is fitted again with weights
    class balance x exp(-gamma p_y), drawn to the first model by a ridge penalty on the difference.
    """
    from scipy.optimize import minimize

    n, C = len(problem.y), int(problem.y.max()) + 1
    order = np.random.default_rng(seed).permutation(n)
    second, first = np.split(order, [int(AFR_SHARE * n)])
    balance = class_balance(problem)
    start = fit_softmax(problem.X[first], problem.y[first], balance[first], C, l2=L2)
    Z, y = problem.X[second], problem.y[second]
    rows = np.arange(len(y))
    w = balance[second] * np.exp(-AFR_GAMMA * predict(start, Z)[rows, y])
    w = w / w.sum()

    def loss(flat: Floats) -> tuple[float, Floats]:
        coef = flat.reshape(start.shape)
        p = np.asarray(predict(coef, Z))
        value = -float(w @ np.log(np.maximum(p[rows, y], 1e-300)))
        p[rows, y] -= 1.0
        p *= w[:, None]
        gradient = np.vstack([Z.T @ p, p.sum(axis=0)]) + AFR_L2 * (coef - start)
        return value + 0.5 * AFR_L2 * float(((coef - start) ** 2).sum()), gradient.ravel()

    found = minimize(loss, start.ravel(), jac=True, method="L-BFGS-B", options={"maxiter": 200})
    return np.asarray(predict(found.x.reshape(start.shape), problem.Xt).argmax(axis=1))


def confusion_cells(problem: Problem) -> Floats:
    """Return the weights of class-conditional distribution balancing by confusion cells, shape (n,).

    After Zhao and Zhang 2026 (FG-CCDB), in one stage: the prediction of a plain model stands for the bias,
    and a row of label i that is predicted as j weighs P(j) / P(j | i), so that the prediction is independent
    of the label, times class balance. Their further stages, in which networks overfit selected rows, have no
    counterpart in a linear model.
    """
    C = int(problem.y.max()) + 1
    p = np.asarray(predict(coefficients(problem, np.ones(len(problem.y))), problem.X))
    told = p.argmax(axis=1)
    rows = np.bincount(C * problem.y + told, minlength=C * C).reshape(C, C)
    within = rows / np.maximum(rows.sum(axis=1, keepdims=True), 1)
    factor = within.mean(axis=0) / np.maximum(within, 1.0 / len(told))
    return np.asarray(class_balance(problem) * factor[problem.y, told])


def trees(problem: Problem, seed: int, w: Floats | None) -> Ints:
    """Return predictions of scikit-learn's gradient-boosted trees with its defaults."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    model = HistGradientBoostingClassifier(random_state=seed).fit(problem.X, problem.y, sample_weight=w)
    return np.asarray(model.predict(problem.Xt), np.int64)


def lightgbm(problem: Problem, seed: int, w: Floats | None) -> Ints:
    """Return predictions of LightGBM with its defaults."""
    import lightgbm as package

    model = package.LGBMClassifier(random_state=seed, n_jobs=1, verbose=-1, deterministic=True)
    model.fit(problem.X, problem.y, sample_weight=w)
    return np.asarray(model.predict(problem.Xt), np.int64)


def has_lightgbm() -> bool:
    """Return whether LightGBM is installed (the extra ``paper``)."""
    return importlib.util.find_spec("lightgbm") is not None


LINEAR: dict[str, Method] = {
    ERM: lambda p, s: linear(p, np.ones(len(p.y))),
    CB: lambda p, s: linear(p, class_balance(p)),
    OURS: lambda p, s: linear(p, ours(p, s)),
    BOLD: lambda p, s: linear(p, ours(p, s, setting="bold")),
    "JTT": lambda p, s: network(p, s, trainer="jtt"),
    "AFR": afr,
    "FG-CCDB": lambda p, s: linear(p, confusion_cells(p)),
    "CVaR DRO": lambda p, s: network(p, s, trainer="cvar_doro", eps=0.0),
    "chi2 DRO": lambda p, s: network(p, s, trainer="chi2_dro", eps=0.0),
    "EIIL + gDRO": lambda p, s: group_dro(p, s, eiil(p)),
    "XRM + gDRO": lambda p, s: group_dro(p, s, xrm(p, s)),
    "George + gDRO": lambda p, s: group_dro(p, s, george(p, s)),
    ORACLE: lambda p, s: group_dro(p, s, p.group),
}
TREES: dict[str, Method] = {
    f"{name}{suffix}": lambda p, s, of=of, weigh=weigh: of(p, s, weigh(p, s))  # type: ignore[misc]
    for name, of in (("HistGradientBoosting", trees), ("LightGBM", lightgbm))
    for suffix, weigh in (
        ("", lambda p, s: None),
        (", CB", lambda p, s: class_balance(p)),
        (", our weights", ours),
    )
}


def methods() -> dict[str, Method]:
    """Return every method that can be run here; LightGBM's are left out where it is not installed."""
    found = {**LINEAR, **TREES}
    return {
        name: method for name, method in found.items() if has_lightgbm() or not name.startswith("LightGBM")
    }
