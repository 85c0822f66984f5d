"""Problems with a hidden attribute: label x attribute pairs of real tables, and tables with a cue.

Real tables are those of ``tests.paper.real.design`` with all of their rows; the attribute is not among the
features. Cues are generated, or planted in a real table, and most have wrong labels in the rows to train on
alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.preprocessing import StandardScaler

from tests.paper.data_sets import COMPAS_FEATURES, SkippedError, data_folder
from tests.paper.real import generated
from tests.paper.real.design import above, column, real
from tests.paper.real.fresh import from_frame
from tests.paper.real.tables import LABEL, TABLES, RealTable, one_hot

TRAIN_SHARE = 0.7
ALL_ROWS = 60_000
Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Problem:
    """Standardised train and test rows with their true group, label x hidden attribute.

    Attributes
    ----------
    X, Xt
        Features, shapes (n, d) and (m, d).
    y, yt
        Labels 0 .. C - 1.
    group, group_t
        True groups, which only scores and the oracle read.

    """

    X: Floats
    y: Ints
    group: Ints
    Xt: Floats
    yt: Ints
    group_t: Ints


def gaussian() -> RealTable:
    """Two generated classes, a column that follows the label in 93 % of the rows, and 3 % wrong labels."""
    rng = np.random.default_rng(79)
    n, d = 20_000, 12
    y, X = rng.integers(0, 2, n), rng.normal(size=(n, d))
    X[:, :4] += 0.7 * (2 * y[:, None] - 1)
    cue = np.where(rng.random(n) < 0.93, y, 1 - y)
    X[:, 6] = 2.0 * cue + 0.3 * rng.normal(size=n)
    label = np.where(rng.random(n) < 0.03, 1 - y, y)
    frame = pd.DataFrame(X.astype(np.float32), columns=[f"f{j}" for j in range(d)])
    return RealTable(frame.assign(**{LABEL: label}), cue)


def compas(seed: int, attribute: Callable[[pd.DataFrame], Any]) -> generated.Problem:
    """Return COMPAS: will a person be charged again?"""
    rows = pd.read_csv(data_folder() / "compas" / "compas-scores-two-years.csv")
    kept = rows[[*COMPAS_FEATURES, "c_charge_degree", "is_recid", "race", "sex"]]
    return from_frame(kept, seed, column("is_recid"), attribute, drop=("is_recid", "race", "sex"))


def split_of(make: Callable[[], RealTable], seed: int) -> Problem:
    """Return a table whose rows are split at random; wrong labels are in both parts."""
    table = make()
    order = np.random.default_rng(1000 + seed).permutation(len(table.frame))
    train, test = np.split(order, [int(TRAIN_SHARE * len(order))])
    encoded = one_hot(table.frame.drop(columns=[LABEL])).to_numpy(np.float64)
    y = table.frame[LABEL].to_numpy(np.int64)
    return standardised(
        generated.Problem(
            *(encoded[train], y[train], table.attribute[train]),
            *(encoded[test], y[test], table.attribute[test]),
            kind="table",
        )
    )


def standardised(problem: generated.Problem) -> Problem:
    """Return a problem of the study with standardised features and true groups."""
    scaler = StandardScaler().fit(problem.X)
    levels = 1 + int(max(problem.hidden.max(), problem.hidden_test.max()))
    return Problem(
        scaler.transform(problem.X).astype(np.float32),
        problem.y.astype(np.int64),
        levels * problem.y.astype(np.int64) + problem.hidden,
        scaler.transform(problem.X_test).astype(np.float32),
        problem.y_test.astype(np.int64),
        levels * problem.y_test.astype(np.int64) + problem.hidden_test,
    )


Maker = Callable[[int], Problem]


def _of(make: Callable[[int], generated.Problem]) -> Maker:
    return lambda seed: standardised(make(seed))


def _white(table: pd.DataFrame) -> Any:
    return table["race"] == "White"


def _table(source: str, label: str, attribute: Callable[[pd.DataFrame], Any], *drop: str) -> Maker:
    dropped = (label, *drop)
    return _of(
        partial(real, source=source, label=column(label), attribute=attribute, drop=dropped, rows=ALL_ROWS)
    )


def _cue(name: str, classes: int, how: str, flips: float) -> Maker:
    return _of(partial(generated.cue_table, name, classes=classes, how=how, rows=24_000, flips=flips))


def _planted(source: str, label: str, how: str, drop: tuple[str, ...]) -> Maker:
    by_label = column(label)
    made = partial(real, source=source, label=by_label, attribute=by_label, rows=ALL_ROWS)
    return _of(partial(made, drop=(label, *drop), planted=how))


_UNIVERSITY = tuple(f"EDUCATION_{k}" for k in range(7))
_FAMILY = ("marital_status", "relationship")
_MARRIAGE = tuple(f"MARRIAGE_{k}" for k in range(4))
_STATES = (*_MARRIAGE, *_UNIVERSITY)
_DEFAULT = "default-payment-next-month"

REAL: dict[str, Maker] = {
    "adult, income x sex": _table("adult", "income", column("sex"), "sex", "married"),
    "adult, income x white": _table("adult", "income", _white, "race", "married"),
    "adult, married x rich": _table(
        "adult", "married", column("income"), "income", "marital_status", "relationship"
    ),
    "adult, sex x married": _table(
        "adult", "sex", column("married"), "married", "marital_status", "relationship"
    ),
    "credit, default x sex": _table("credit", _DEFAULT, column("SEX"), "SEX"),
    "credit, default x university": _table("credit", _DEFAULT, column("EDUCATION_2"), *_UNIVERSITY),
    "credit, married x university": _table(
        "credit", "MARRIAGE_1", column("EDUCATION_2"), *_MARRIAGE, *_UNIVERSITY
    ),
    "law, bar x white": _table("law", "PF_1", column("Race_White"), "Race_White"),
    "german, bad x young": _table("german", "a20", above("a12", 25), "a12"),
    "german, bad x status": _table("german", "a20", lambda t: t["a8"] == "A93", "a8"),
    "compas, again x black": _of(partial(compas, attribute=lambda t: t["race"] == "African-American")),
    "compas, again x sex": _of(partial(compas, attribute=column("sex"))),
}
"""Label x attribute pairs as they are."""
CUES: dict[str, Maker] = {
    "camera": partial(split_of, TABLES["camera"]),
    "rotated": partial(split_of, TABLES["rotated"]),
    "gaussian": partial(split_of, gaussian),
    "2, column, 5 % wrong": _cue("baselines 2 column", 2, "column", 0.05),
    "3, one-hot, 5 % wrong": _cue("baselines 3 onehot", 3, "onehot", 0.05),
    "4, rotated, 5 % wrong": _cue("baselines 4 rotated", 4, "rotated", 0.05),
    "2, spread, 10 % wrong": _cue("baselines 2 spread", 2, "spread", 0.1),
    "3, rotated, 10 % wrong": _cue("baselines 3 rotated", 3, "rotated", 0.1),
    "adult with a column": _planted("adult", "income", "column", ("married",)),
    "credit with a category": _planted("credit", _DEFAULT, "onehot", ()),
}
"""Tables with a cue: in the test rows of those with wrong labels every value of it is shown alike."""
PROBLEMS: dict[str, Maker] = REAL | CUES


@lru_cache(maxsize=1)
def load(name: str, seed: int) -> Problem:
    """Return a problem; the seed draws the train rows. Raises SkippedError where the table is not there."""
    try:
        return PROBLEMS[name](seed)
    except (ImportError, FileNotFoundError) as error:
        raise SkippedError(str(error)) from None
