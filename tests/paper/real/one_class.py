"""Labels of three to ten classes with a planted column that tells one class from all others.

The first two labels of each table of ``many_classes``, with a column of zeros and ones, of noisy numbers, or
of names of which one goes with that class and the others with none. The hidden attribute is whether the
column is wrong. Design and held-back tables are those of ``many``, for the nineteenth study.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from tests.paper.real.design import Maker
from tests.paper.real.entities import from_frame
from tests.paper.real.generated import Problem
from tests.paper.real.many import BOUND, TABLES, hashed, random_of
from tests.paper.real.many_classes import LABELS, numbered

TOLD = (0.9, 0.93, 0.96)
FLIPS = (0.0, 0.0, 0.05)
FORMS = ("0/1", "number", "name")
OTHER_NAMES = 4


def one_class(seed: int, source: str, number: int = 0) -> Problem:
    """Return a label of a table with a column that tells one of its classes.

    Raises
    ------
    ValueError
        The table has no such label of three to ten classes.

    """
    label, frame, y = numbered(source, number)
    rng, C = random_of(f"{source}:{label}", "one class"), int(y.max()) + 1
    told, flips, form = rng.choice(TOLD), rng.choice(FLIPS), FORMS[rng.integers(3)]
    target = int(rng.integers(C))
    belongs = (y == target).astype(int)
    cue = np.where(rng.random(len(y)) < told, belongs, 1 - belongs)
    seen = np.where(rng.random(len(y)) < flips, (y + rng.integers(1, C, len(y))) % C, y)
    names = np.where(cue == 1, 0, rng.integers(1, OTHER_NAMES + 1, len(y)))
    shown = {
        "0/1": cue.astype(float),
        "number": 2.0 * cue + 0.15 * rng.normal(size=len(y)),
        "name": np.array([f"v{k:02}" for k in range(OTHER_NAMES + 1)])[names],
    }[form]
    kind = f"one class of {C}, {told:.0%}, {flips:.0%} wrong labels, {form}"
    return from_frame(frame.assign(planted=shown), seen, (cue != belongs).astype(int), kind, seed, true=y)


def _problems(*, design: bool) -> dict[str, Maker]:
    return {
        f"{name}, {k + 1} with one class": partial(one_class, source=name, number=k)
        for name in TABLES
        if (hashed(name) % 10 < BOUND) == design
        for k in range(LABELS)
    }


ONE_CLASS: dict[str, Maker] = _problems(design=True)
ONE_CLASS_HELD_BACK: dict[str, Maker] = _problems(design=False)
