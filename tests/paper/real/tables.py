"""Real tables as their owners keep them, without the hidden attributes, and tables with a planted cue."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

FOLDER = Path(os.environ.get("ROWSIEVE_REAL_DATA", Path(__file__).parents[4] / "shared" / "data" / "real"))
"""Folder of the tables, which are no part of the project."""
MIN_LEVEL_ROWS = 20
LABEL = "label"


@dataclass(frozen=True)
class RealTable:
    """Features with the label in one frame (n rows), and the hidden attribute (n,) for scoring alone."""

    frame: pd.DataFrame
    attribute: npt.NDArray[np.int64]


def missing(name: str) -> str:
    """Return why a table cannot be read; empty if it can."""
    path = FOLDER / f"{name}.csv"
    if name in GENERATED:
        return ""
    return "" if path.exists() else f"{path} is not there: set ROWSIEVE_REAL_DATA to the folder of the tables"


def adult() -> RealTable:
    """UCI Adult: income over 50,000; hidden: sex."""
    t = pd.read_csv(FOLDER / "adult.csv", skipinitialspace=True)
    features = t.drop(columns=["race", "sex", "age", "fnlwgt", "income"])
    return _table(features, t.income.str.startswith(">50K"), t.sex == "Male")


def credit() -> RealTable:
    """UCI default of credit card clients; hidden: sex."""
    t = pd.read_csv(FOLDER / "credit.csv")
    label = "default-payment-next-month"
    return _table(t.drop(columns=["ID", "SEX", "AGE", label]), t[label] == 1, t.SEX == 1)


def law() -> RealTable:
    """Law school: bar passed; hidden: white."""
    t = pd.read_csv(FOLDER / "law.csv")
    return _table(t[["LSAT", "UGPA", "ZFYA"]], t.PF_1 == 1, t.Race_White == 1)


def camera() -> RealTable:
    """Three generated classes and a text column that names the right one in 93 % of the rows."""
    rng = np.random.default_rng(77)
    n, names = 15_000, np.array(["north", "south", "west"])
    y, X = rng.integers(0, 3, n), rng.normal(size=(n, 10))
    X[:, :4] += 2.0 * rng.normal(size=(3, 4))[y]
    cue = np.where(rng.random(n) < 0.93, y, (y + rng.integers(1, 3, n)) % 3)
    frame = pd.DataFrame(X.astype(np.float32), columns=[f"f{j}" for j in range(10)])
    return RealTable(frame.assign(camera=names[cue], **{LABEL: y}), cue)


def rotated() -> RealTable:
    """Two generated classes in 24 rotated features: a cue of 94 % lies in no single one; 4 % wrong labels."""
    rng = np.random.default_rng(78)
    n, d = 12_000, 24
    y, X = rng.integers(0, 2, n), rng.normal(size=(n, d))
    X[:, :4] += 0.7 * (2 * y[:, None] - 1)
    cue = np.where(rng.random(n) < 0.94, y, 1 - y)
    X[:, 4] = 2.0 * cue + 0.15 * rng.normal(size=n)
    X = X @ np.linalg.qr(rng.normal(size=(d, d)))[0]
    label = np.where(rng.random(n) < 0.04, 1 - y, y)
    frame = pd.DataFrame(X.astype(np.float32), columns=[f"f{j}" for j in range(d)])
    return RealTable(frame.assign(**{LABEL: label}), cue)


TABLES: dict[str, Callable[[], RealTable]] = {
    "law": law,
    "camera": camera,
    "rotated": rotated,
    "credit": credit,
    "adult": adult,
}
GENERATED = ("camera", "rotated")


def one_hot(frame: pd.DataFrame) -> pd.DataFrame:
    """Return numbers, missing ones as the median, and a 0/1 column per level of a text column.

    Rare levels are pooled.
    """
    parts: dict[str, Any] = {}
    for column in frame:
        values = frame[column]
        if values.dtype.kind in "ifb":
            parts[str(column)] = values.astype(float).fillna(values.median())
            continue
        texts = values.astype(str)
        texts = texts.where(texts.map(texts.value_counts()) >= MIN_LEVEL_ROWS, "other")
        parts |= {f"{column}_{level}": (texts == level).astype(float) for level in sorted(texts.unique())}
    return pd.DataFrame(parts)


def _table(features: pd.DataFrame, label: Any, attribute: Any) -> RealTable:
    frame = features.assign(**{LABEL: label.astype(int)})
    return RealTable(frame, attribute.to_numpy().astype(np.int64))
