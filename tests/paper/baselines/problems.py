"""Tables with a hidden attribute, split at random; the real ones are those of ``tests.paper.real``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.preprocessing import StandardScaler

from tests.paper.data_sets import SkippedError
from tests.paper.real.tables import LABEL, TABLES, RealTable, missing, one_hot

TRAIN_SHARE = 0.7
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


PROBLEMS: dict[str, Callable[[], RealTable]] = {
    **{name: TABLES[name] for name in ("adult", "credit", "law", "camera", "rotated")},
    "gaussian": gaussian,
}


@lru_cache(maxsize=1)
def load(name: str, seed: int) -> Problem:
    """Return a problem; the seed draws the train rows. Raises SkippedError where the table is not there."""
    if name in TABLES and (reason := missing(name)):
        raise SkippedError(reason)
    table = PROBLEMS[name]()
    order = np.random.default_rng(1000 + seed).permutation(len(table.frame))
    train, test = np.split(order, [int(TRAIN_SHARE * len(order))])
    encoded = one_hot(table.frame.drop(columns=[LABEL])).to_numpy(np.float64)
    scaler = StandardScaler().fit(encoded[train])
    X = scaler.transform(encoded).astype(np.float32)
    y = table.frame[LABEL].to_numpy(np.int64)
    group = (table.attribute.max() + 1) * y + table.attribute
    return Problem(X[train], y[train], group[train], X[test], y[test], group[test])
