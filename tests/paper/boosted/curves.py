"""COMPAS as in Boosted CVaR Classification (Zhai et al. 2021, section 4): CVaR of the 0/1 loss over alpha.

Will the person be charged again? Eight features (the six counts of the GRASP study, sex and race), 70 % of
the rows to train on, which are also what lambda is chosen on (the paper's way for this small set), a ReLU
network 8-100-100-2, SGD with lr .01 and batches of 128. The paper's number of epochs is not in its text:
50 for the ERM model, 2 a round.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd

from engine.training import fit_arrays, parse_params
from engine.training.fit.ensemble import Ensemble
from operators.metrics import cvar
from tests.paper.data_sets import COMPAS_FEATURES, data_folder

Array: TypeAlias = npt.NDArray[Any]
ALPHAS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5)
ROUNDS = (30, 100)
ERM, AVERAGE, ADA, REGULARISED, COIN = (
    "ERM",
    "AdaBoost + average",
    "AdaLPBoost",
    "regularised LPBoost",
    "coin",
)
NETWORK: dict[str, Any] = {"model": "mlp", "hidden": (100, 100), "lr": 0.01, "batch_size": 128, "epochs": 50}
Curve: TypeAlias = dict[str, float]
"""alpha as text -> CVaR."""


def compas(seed: int) -> tuple[Array, Array, Array, Array]:
    """X and y to train on, X and y to test on. Raises SkippedError."""
    rows = pd.read_csv(data_folder() / "compas" / "compas-scores-two-years.csv").sample(
        frac=1, random_state=seed
    )
    X = np.column_stack(
        [
            rows[list(COMPAS_FEATURES)].to_numpy(float),
            (rows["c_charge_degree"] == "F").to_numpy(float),
            (rows["sex"] == "Male").to_numpy(float),
            (rows["race"] == "African-American").to_numpy(float),
        ]
    ).astype(np.float32)
    y = rows["is_recid"].to_numpy(np.int64)
    n_train = round(0.7 * len(rows))
    return X[:n_train], y[:n_train], X[n_train:], y[n_train:]


def expected_losses(model: Ensemble, X: Array, y: Array) -> Array:
    """Return the expected 0/1 loss (n,) of the randomised classifier on each row."""
    return np.clip(model.losses(X, y) @ model.model_weights, 0, 1)


def first(model: Ensemble, rounds: int) -> Ensemble:
    """The ensemble as it was after so many rounds: later models change no earlier one."""
    return replace(
        model,
        models=model.models[:rounds],
        selection_losses=model.selection_losses[:, :rounds],
        model_weights=np.full(rounds, 1 / rounds),
    )


def curve(model: Ensemble, X: Array, y: Array, *, mixed: bool) -> Curve:
    """CVaR over alpha; ``mixed``: lambda chosen anew for each alpha, else as it is."""
    losses = model.losses(X, y).astype(float)
    found = {}
    for alpha in ALPHAS:
        weights = model.reweight(alpha).model_weights if mixed else model.model_weights
        found[str(alpha)] = cvar(losses @ weights, alpha)
    return found


def without_lp(seed: int, rounds: tuple[int, ...] = ROUNDS) -> dict[str, dict[str, Curve]]:
    """ERM, AdaBoost + average and AdaLPBoost, each with its T -> split -> curve; one training has all."""
    X, y, X_test, y_test = compas(seed)
    params = parse_params({**NETWORK, "trainer": "boosted_cvar", "rounds": max(rounds)})
    whole = fit_arrays(X, y, params, seed=seed)
    splits = {"train": (X, y), "test": (X_test, y_test)}
    found: dict[str, dict[str, Curve]] = {
        ERM: {name: curve(first(whole, 1), *rows, mixed=False) for name, rows in splits.items()}
    }
    for t in rounds:
        part = first(whole, t)
        ada, average = f"{ADA}, T = {t}", f"{AVERAGE}, T = {t}"
        found[average] = {name: curve(part, *rows, mixed=False) for name, rows in splits.items()}
        found[ada] = {name: curve(part, *rows, mixed=True) for name, rows in splits.items()}
    return found


def regularised(seed: int, alpha: float, rounds: tuple[int, ...] = ROUNDS) -> dict[str, dict[str, float]]:
    """Regularised LPBoost, with its T -> split -> CVaR; trained for one alpha, beta = 100 as there."""
    X, y, X_test, y_test = compas(seed)
    how = {"trainer": "boosted_cvar", "boosting": "regularized_lp", "beta": 100.0, "alpha": alpha}
    whole = fit_arrays(X, y, parse_params({**NETWORK, **how, "rounds": max(rounds)}), seed=seed)
    found = {}
    for t in rounds:
        model = first(whole, t).reweight(alpha)
        found[f"{REGULARISED}, T = {t}"] = {
            "train": cvar(expected_losses(model, X, y), alpha),
            "test": cvar(expected_losses(model, X_test, y_test), alpha),
        }
    return found
