"""Attributes of public tables that are made to go along with the label by the choice of rows.

For each label of ``many`` and of ``many_classes`` another column of the table, which stays among the
features: of each class so many rows are left out that the column goes along with the label in 90, 93 or 96 %
of them, as it does where rows were collected in an unlucky way. Of 5 % of the rows in a third of the problems
the label is wrong. Other columns of the table tell the attribute as well, as they do of any attribute of real
tables. Test rows are those of the table as it is, with right labels; the hidden attribute is the part of the
column. Design and held-back tables are those of ``many``, for the twenty-ninth study.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.optimize import linear_sum_assignment

from tests.paper.real import many, many_classes
from tests.paper.real.design import Maker
from tests.paper.real.entities import encode
from tests.paper.real.generated import Problem
from tests.paper.real.many import BOUND, TABLES, halves_of, hashed, random_of

TOLD, BY_CLASS = (0.88, 0.97), 0.03
"""Range of the share of the rows that go along, and how far that of a class may be from it."""
FLIPS = (0.0, 0.0, 0.05)
TRAIN_SHARE = 0.65
LEAST_ROWS, LEAST_BROKEN, LEAST_TESTED = 1200, 15, 50
"""Rows to train on, rows of a class that break the column, and test rows of each label and part."""
ATTRIBUTES, ATTRIBUTES_OF_MANY = 2, 6
"""Columns that go along with each label of two, and of more classes."""
Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


def aligned(seed: int, source: str, number: int, draw: int = 0) -> Problem:
    """Return a label of two classes of a table whose rows another column goes along with.

    Raises
    ------
    ValueError
        The table has fewer labels, or too few rows for this one.

    """
    label, frame, y, _ = _taken(many.all_picked(source), source, number)
    rng = random_of(f"{source}:{label}", f"aligned{draw or ''}")
    for name in rng.permutation([str(name) for name in frame]):
        half = halves_of(frame[name])
        if half is not None:
            return _problem(frame, y, half.fillna(-1).astype(int).to_numpy(), rng)
    raise ValueError(f"{source} has no other column of two parts than {label}")


def aligned_classes(seed: int, source: str, number: int, draw: int = 0) -> Problem:
    """Return a label of three to ten classes of a table whose rows another column goes along with.

    Raises
    ------
    ValueError
        The table has fewer labels, or too few rows for this one.

    """
    label, frame, y, _ = _taken(_of_classes(source), source, number)
    rng = random_of(f"{source}:{label}", f"aligned{draw or ''}")
    for name in rng.permutation([str(name) for name in frame]):
        part = parts_of(frame[name], int(rng.integers(2, y.max() + 2)))
        if part is not None:
            return _problem(frame, y, part, rng)
    raise ValueError(f"{source} has no column of several values beside {label}")


def _taken(
    found: list[tuple[str, pd.DataFrame, Any, str]], source: str, number: int
) -> tuple[str, pd.DataFrame, Any, str]:
    if number >= len(found):
        raise ValueError(f"{source} has fewer than {number + 1} labels")
    return found[number]


@lru_cache(maxsize=2)
def _of_classes(source: str) -> list[tuple[str, pd.DataFrame, Any, str]]:
    return list(many_classes.picked(source))


def parts_of(values: pd.Series, parts: int) -> Ints | None:
    """Return the part of a column in which each row is: a frequent value or a range, -1 where it is none."""
    if values.dtype.kind in "ifu" and values.nunique() > 2 * parts:
        found = pd.qcut(values.astype(float), parts, labels=False, duplicates="drop").fillna(-1).astype(int)
    else:
        frequent = values.dropna().astype(str).value_counts().index[:parts]
        found = pd.Series(pd.Categorical(values.astype(str), categories=frequent).codes)
    part = found.to_numpy(np.int64)
    return part if part.max() == parts - 1 else None


def _problem(frame: pd.DataFrame, y: Ints, part: Ints, rng: np.random.Generator) -> Problem:
    flips, C, K = FLIPS[rng.integers(3)], int(y.max()) + 1, int(part.max()) + 1
    told = np.clip(rng.uniform(*TOLD) + rng.uniform(-BY_CLASS, BY_CLASS, C), None, TOLD[1])
    train, test = np.split(rng.permutation(np.flatnonzero(part >= 0)), [int(TRAIN_SHARE * (part >= 0).sum())])
    rows = rng.permutation(chosen(y, part, train, told))
    if np.sort(np.bincount(K * y[test] + part[test], minlength=C * K))[-2 * C :].min() < LEAST_TESTED:
        raise ValueError("too few test rows of a label and a part")
    seen = np.where(rng.random(len(rows)) < flips, (y[rows] + rng.integers(1, C, len(rows))) % C, y[rows])
    X, X_test, columns = encode(
        frame.iloc[rows].reset_index(drop=True), frame.iloc[test].reset_index(drop=True), seen
    )
    kind = f"aligned, {K} parts, {told.mean():.0%}, {flips:.0%} wrong labels"
    return Problem(X, seen, part[rows], X_test, y[test], part[test], kind, columns)


def chosen(y: Ints, part: Ints, rows: Ints, told: Floats) -> Ints:
    """Return the rows in which the part goes along with the label in these shares of the classes, shape (C,).

    The part of each class is the one that leaves most rows; each part has a class where there are so many.

    Raises
    ------
    ValueError
        These are too few.

    """
    C, K = int(y.max()) + 1, int(part.max()) + 1
    count = np.bincount(K * y[rows] + part[rows], minlength=C * K).reshape(C, K)
    against = count.sum(axis=1, keepdims=True) - count
    odds = (told / (1.0 - told))[:, None]
    left = np.minimum(count, against * odds)
    places = np.tile(np.arange(K), -(-C // K))
    part_of = places[linear_sum_assignment(np.log1p(left[:, places]), maximize=True)[1]]
    taken, broken = [], []
    for c in range(C):
        of_class = rows[y[rows] == c]
        follows = part[of_class] == part_of[c]
        n = int(left[c, part_of[c]])
        taken.append(of_class[follows][:n])
        broken.append(of_class[~follows][: round(n / odds[c, 0])])
    found = np.concatenate([*taken, *broken])
    if len(found) < LEAST_ROWS or min(map(len, broken)) < LEAST_BROKEN:
        raise ValueError("too few rows go along with the label")
    return found


def _problems(make: Callable[..., Problem], labels: int, draws: int, *, design: bool) -> dict[str, Maker]:
    return {
        f"{name}, {k + 1}, {draw + 1}": partial(make, source=name, number=k, draw=draw)
        for name in TABLES
        if (hashed(name) % 10 < BOUND) == design
        for k in range(labels)
        for draw in range(draws)
    }


ALIGNED = _problems(aligned, many.MORE_LABELS, ATTRIBUTES, design=True)
ALIGNED_HELD_BACK = _problems(aligned, many.MORE_LABELS, ATTRIBUTES, design=False)
ALIGNED_CLASSES = _problems(aligned_classes, many_classes.LABELS, ATTRIBUTES_OF_MANY, design=True)
ALIGNED_CLASSES_HELD_BACK = _problems(aligned_classes, many_classes.LABELS, ATTRIBUTES_OF_MANY, design=False)
