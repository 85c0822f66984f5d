"""Problems of a typical user: damaged rows with a cue to train on, clean rows of all groups to test on.

Digits: 1,200 images to train on, a cue that agrees with the label in 92 % of each class; ``damage`` of the
rows are corrupt, half with flipped labels, half scrambled. Every test image is shown with and without the
cue, so that no group is small. Synthetic is GRASP's, tested on clean data of three other seeds. COMPAS and
text are split at random.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.datasets import load_digits

from tests.paper.class_problems import TASKS, _cue_on_digits
from tests.paper.data_sets import COMPAS_FEATURES, TEXT_ROWS, SkippedError, _embedded, data_folder
from tests.paper.synthetic import synthetic

Array = npt.NDArray[Any]
TRAIN_ROWS, MINORITY = 1200, 0.08
TEST_SEEDS = (10_000, 10_001, 10_002)


@dataclass(frozen=True)
class RobustProblem:
    """Rows to train on, with true groups (damaged rows: as what they pretend to be) and which are damaged."""

    X: Array
    y: Array
    group: Array
    damaged: Array
    X_test: Array
    y_test: Array
    group_test: Array
    trainer: dict[str, Any]
    """Model and optimiser that all methods share."""
    one_unit: bool = False
    """Whether the features are the entries of one vector column, which share a standard deviation."""


LINEAR: dict[str, Any] = {"model": "logistic"}
NETWORK: dict[str, Any] = {"model": "mlp", "hidden": (50, 50, 50), "optimizer": "adam"}


def digits(task: str, cue: str, damage: float, seed: int) -> RobustProblem:
    """Is the digit one of a set? The cue is a bright background or corner."""
    rng = np.random.default_rng(seed)
    images, digit = load_digits(return_X_y=True)
    order = rng.permutation(len(digit))
    images, y = images[order] / 16.0, np.isin(digit[order], TASKS[task]).astype(np.int64)
    X, X_rest, y, y_rest = images[:TRAIN_ROWS], images[TRAIN_ROWS:], y[:TRAIN_ROWS], y[TRAIN_ROWS:]
    minority = np.zeros(len(y), bool)
    for value in (0, 1):
        members = np.flatnonzero(y == value)
        minority[rng.choice(members, round(MINORITY * len(members)), replace=False)] = True
    lit = (y == 1) ^ minority
    X = _cue_on_digits(X, lit.astype(np.int64), f"{task}/{cue}")
    damaged = rng.choice(len(y), round(damage * len(y)), replace=False)
    flipped, scrambled = np.split(damaged, [len(damaged) // 2])
    X[scrambled] = rng.permuted(X[scrambled], axis=1)
    y = y.copy()
    y[flipped] = 1 - y[flipped]
    shown = [_cue_on_digits(X_rest, np.full(len(y_rest), value), f"{task}/{cue}") for value in (0, 1)]
    return RobustProblem(
        X=X,
        y=y,
        group=2 * y + lit,
        damaged=np.isin(np.arange(len(y)), damaged),
        X_test=np.concatenate(shown),
        y_test=np.tile(y_rest, 2),
        group_test=np.concatenate([2 * y_rest, 2 * y_rest + 1]),
        trainer=LINEAR,
        one_unit=True,
    )


def of_synthetic(seed: int, *, contaminated: bool) -> RobustProblem:
    """GRASP's Synthetic; flipped rows pretend to be of their new class's majority."""
    train = synthetic(seed, contaminated=contaminated).train
    tests = [synthetic(seed + other) for other in TEST_SEEDS]
    damaged = train.group >= 4
    return RobustProblem(
        X=train.X,
        y=train.y,
        group=np.where(damaged, train.y, train.group),
        damaged=damaged,
        X_test=np.concatenate([test.X for test in tests]),
        y_test=np.concatenate([test.y for test in tests]),
        group_test=np.concatenate([test.group for test in tests]),
        trainer={**NETWORK, "lr": 0.01},
    )


def compas(seed: int) -> RobustProblem:
    """Will the person be charged again? 12 groups: sex x race x label. 80 % of the rows to train on."""
    rows = pd.read_csv(data_folder() / "compas" / "compas-scores-two-years.csv").sample(
        frac=1, random_state=seed
    )
    degree = (rows["c_charge_degree"] == "F").to_numpy(float)
    X = np.column_stack([rows[list(COMPAS_FEATURES)].to_numpy(float), degree])
    race = rows["race"].where(rows["race"].isin(["Caucasian", "African-American"]), "other")
    group = rows["sex"] + race + rows["is_recid"].astype(str)
    return _split(X, rows["is_recid"].to_numpy(np.int64), group, round(0.8 * len(rows)), NETWORK)


@cache
def _text_rows() -> tuple[Array, pd.DataFrame]:
    rows = pd.read_csv(data_folder() / "text" / "bias_madlibs_77k.csv")
    rows = rows.sample(2 * TEXT_ROWS, random_state=0)
    return _embedded(rows["Text"].tolist()), rows


def text(seed: int) -> RobustProblem:
    """Is the sentence bad? Sentence vectors; groups: label x template. Half of the rows to train on."""
    X, rows = _text_rows()
    order = np.random.default_rng(seed).permutation(len(X))[:TEXT_ROWS]
    rows = rows.iloc[order]
    y = (rows["Label"] == "BAD").to_numpy(np.int64)
    return _split(X[order], y, rows["Label"] + rows["Template"], TEXT_ROWS // 2, LINEAR)


def _split(X: Array, y: Array, names: Any, n_train: int, trainer: dict[str, Any]) -> RobustProblem:
    group = pd.factorize(names, sort=True)[0]
    first, rest = slice(None, n_train), slice(n_train, None)
    none = np.zeros(n_train, bool)
    return RobustProblem(
        *(X[first], y[first], group[first], none, X[rest], y[rest], group[rest]),
        trainer=trainer,
        one_unit=trainer is LINEAR,
    )


def _digits(task: str, cue: str, damage: float) -> Callable[[int], RobustProblem]:
    return lambda seed: digits(task, cue, damage, seed)


PROBLEMS: dict[str, Callable[[int], RobustProblem]] = {
    "Synthetic, clean": lambda seed: of_synthetic(seed, contaminated=False),
    "Synthetic, 5 % flipped": lambda seed: of_synthetic(seed, contaminated=True),
    **{
        f"digits {task}, {cue}, {damage:.0%} damaged": _digits(task, cue, damage)
        for damage in (0.04, 0.1)
        for task in ("loop", "odd", "prime")
        for cue in ("background", "corner")
    },
    "COMPAS": compas,
    "text": text,
}
__all__ = ["PROBLEMS", "RobustProblem", "SkippedError"]
