"""Real tables as a user would prepare them: numbers and one-hot columns without hidden attributes."""

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
"""Where the tables lie; they are no part of the project."""
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
    return "" if path.exists() else f"{path} is not there: set ROWSIEVE_REAL_DATA to the folder of the tables"


def adult() -> RealTable:
    """UCI Adult: income over 50,000; hidden: sex."""
    t = pd.read_csv(FOLDER / "adult.csv", skipinitialspace=True)
    features = one_hot(t.drop(columns=["race", "sex", "age", "fnlwgt", "income"]))
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


TABLES: dict[str, Callable[[], RealTable]] = {"adult": adult, "credit": credit, "law": law}


def one_hot(frame: pd.DataFrame) -> pd.DataFrame:
    """Return numbers as they are and a 0/1 column for each level of a text column; rare levels are pooled."""
    parts: dict[str, Any] = {}
    for column in frame:
        values = frame[column]
        if values.dtype.kind in "ifb":
            parts[str(column)] = values.astype(float)
            continue
        texts = values.astype(str)
        texts = texts.where(texts.map(texts.value_counts()) >= MIN_LEVEL_ROWS, "other")
        parts |= {f"{column}_{level}": (texts == level).astype(float) for level in sorted(texts.unique())}
    return pd.DataFrame(parts)


def _table(features: pd.DataFrame, label: Any, attribute: Any) -> RealTable:
    frame = features.astype(np.float32).assign(**{LABEL: label.astype(int)})
    return RealTable(frame, attribute.to_numpy().astype(np.int64))
