"""Labels of three to ten classes, picked by a hash from the tables of ``many``, for the thirteenth study.

The label is a column of three to ten values that each have 3 % of the rows or more; the hidden attribute is
another column, cut into two parts and not among the features. The first label of a table also with a planted
column whose values tell 90 to 96 labels of 100: groups are then label x whether the column is wrong, since a
group of each pair of label and value has too few test rows. Tables whose names have a hash below 6 of 10 are
for design, all others were held back and run once.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache, partial
from itertools import islice

import numpy as np
import pandas as pd

from tests.paper.real.design import Maker
from tests.paper.real.entities import from_frame
from tests.paper.real.generated import Problem
from tests.paper.real.many import (
    BOUND,
    TABLES,
    Array,
    cleaned,
    halves_of,
    hashed,
    noisy_of,
    of_design,
    pair_of,
    random_of,
)

LABELS, MORE_LABELS = 2, 6
CLASSES = (3, 10)
MIN_SHARE = 0.03
BINS = 20
DRAWS = 2
SAME = 0.97
"""Accuracy from which a column is the label once more, and is left out."""


def picked(source: str, labels: int = LABELS) -> Iterator[tuple[str, pd.DataFrame, Array, str]]:
    """Yield label, features, classes and the hidden attribute of up to so many labels of a table."""
    whole, rng = cleaned(source), random_of(source, "classes")
    names = [str(name) for name in whole.columns]
    rng.shuffle(names)
    made = 0
    for label in names:
        values = whole[label]
        if made == labels or values.dtype.kind == "f":
            continue
        values = values.astype(object).where(values.notna(), None)
        counts = values.value_counts()
        counts = counts[counts >= MIN_SHARE * len(values)]
        if not CLASSES[0] <= len(counts) <= CLASSES[1]:
            continue
        kept = values.isin(counts.index).to_numpy()
        y = pd.factorize(values[kept].astype(str), sort=True)[0]
        frame = whole[kept].drop(columns=label).reset_index(drop=True)
        frame = frame[[name for name in frame if not tells(frame[name], y)]]
        attributes = [str(name) for name in frame if halves_of(frame[name]) is not None]
        if frame.shape[1] >= 3 and attributes:
            made += 1
            yield label, frame, y, attributes[int(rng.integers(len(attributes)))]


@lru_cache(maxsize=2)
def all_picked(source: str) -> list[tuple[str, pd.DataFrame, Array, str]]:
    """Return what ``picked`` yields for the first six labels of a table."""
    return list(picked(source, MORE_LABELS))


def tells(values: pd.Series, y: Array) -> bool:
    """Return whether a column is the label once more, has a value of its own for most rows, or no value."""
    if values.isna().all():
        return True
    if values.dtype.kind in "iuf" and values.nunique() > BINS:
        values = pd.qcut(values, BINS, duplicates="drop")
    level = values.astype(str)
    best = pd.crosstab(level, y).max(axis=1).sum() / len(y)
    return bool(level.nunique() > 0.5 * len(level) or best > SAME)


def pair(seed: int, source: str, number: int) -> Problem:
    """Return a label of a table, and a hidden attribute.

    Raises
    ------
    ValueError
        The table has fewer labels.

    """
    return pair_of(all_picked(source), seed, source, number)


def noisy_pair(seed: int, source: str, number: int) -> Problem:
    """Return a label of a table of which 2 to 8 % are wrong, and a hidden attribute.

    Raises
    ------
    ValueError
        The table has fewer labels.

    """
    return noisy_of(all_picked(source), seed, source, number)


def numbered(source: str, number: int) -> tuple[str, pd.DataFrame, Array]:
    """Return a label of a table with its features and classes.

    Raises
    ------
    ValueError
        The table has fewer labels of three to ten classes.

    """
    found = next(islice(picked(source), number, None), None)
    if found is None:
        raise ValueError(f"{source} has no label of three to ten classes with number {number + 1}")
    return found[:3]


def planted(seed: int, source: str, number: int = 0, draw: int = 0) -> Problem:
    """Return a label of a table with a further column, of names or of noisy numbers.

    Raises
    ------
    ValueError
        The table has no such label of three to ten classes.

    """
    label, frame, y = numbered(source, number)
    rng, C = random_of(f"{source}:{label}", f"mcplanted{draw or ''}"), int(y.max()) + 1
    flips, told = (0.0, 0.05)[rng.integers(2)], (0.9, 0.93, 0.96)[rng.integers(3)]
    form = ("name", "number")[rng.integers(2)]
    cue = np.where(rng.random(len(y)) < told, y, (y + rng.integers(1, C, len(y))) % C)
    seen = np.where(rng.random(len(y)) < flips, (y + rng.integers(1, C, len(y))) % C, y)
    names = np.array([f"v{k:02}" for k in range(C)])[cue]
    shown = names if form == "name" else 2.0 * cue + 0.15 * rng.normal(size=len(y))
    kind = f"planted, {told:.0%}, {flips:.0%} wrong labels, {form}"
    return from_frame(frame.assign(planted=shown), seen, (cue != y).astype(int), kind, seed, true=y)


def _problems(*, design: bool) -> dict[str, Maker]:
    found: dict[str, Maker] = {}
    for name in TABLES:
        if (hashed(name) % 10 < BOUND) == design:
            found |= {f"{name}, {k + 1}": partial(pair, source=name, number=k) for k in range(LABELS)}
            found[f"{name} with a column"] = partial(planted, source=name)
    return found


MORE_PLANTED: dict[str, Maker] = {
    f"{name}, {k + 1}, draw {draw} with a column": partial(planted, source=name, number=k, draw=draw)
    for name in TABLES
    for k in range(LABELS)
    for draw in range(1, DRAWS + 1)
}
"""More columns for the same labels and the second ones, for the trees of the expected gain."""
MANY_CLASSES: dict[str, Maker] = _problems(design=True)
MANY_CLASSES_HELD_BACK: dict[str, Maker] = _problems(design=False)
MORE_CLASS_PAIRS = of_design(pair, range(LABELS, MORE_LABELS))
"""Further labels of the design tables, for the trees of the expected gain."""
NOISY_CLASS_PAIRS = of_design(noisy_pair, range(MORE_LABELS))
"""Labels of the design tables of which some are wrong, for the same trees."""
