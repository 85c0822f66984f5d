"""Labels of four to ten classes with a planted column that tells several of them from all others.

The first two labels of each table of ``many_classes`` that have four classes and more, with a column of zeros
and ones, of noisy numbers, or of five names, which goes with half of the classes: an attribute that two of
four outcomes go along with. With ``mirrored`` another column repeats it but for some rows. The hidden
attribute is whether the column is wrong. Design and held-back tables are those of ``many``, for the
twenty-seventh study.
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
FORMS = ("0/1", "number", "names")
SAME = (0.93, 0.97)
NAMES = 5


def class_set(seed: int, source: str, number: int = 0, *, mirrored: bool = False) -> Problem:
    """Return a label of a table with a column that tells half of its classes from the others.

    Raises
    ------
    ValueError
        The table has no such label of four to ten classes.

    """
    label, frame, y = numbered(source, number)
    rng, C = random_of(f"{source}:{label}", "class set"), int(y.max()) + 1
    if C < 4:
        raise ValueError(f"{source}: {label} has {C} classes")
    told, flips, form = rng.choice(TOLD), rng.choice(FLIPS), FORMS[rng.integers(3)]
    chosen = rng.permutation(C)[: C // 2]
    belongs = np.isin(y, chosen).astype(int)
    cue = np.where(rng.random(len(y)) < told, belongs, 1 - belongs)
    seen = np.where(rng.random(len(y)) < flips, (y + rng.integers(1, C, len(y))) % C, y)
    names = np.where(cue == 1, rng.integers(0, 2, len(y)), rng.integers(2, NAMES, len(y)))
    shown = {
        "0/1": cue.astype(float),
        "number": 2.0 * cue + 0.15 * rng.normal(size=len(y)),
        "names": np.array([f"v{k:02}" for k in range(NAMES)])[names],
    }[form]
    kind = f"{len(chosen)} of {C} classes, {told:.0%}, {flips:.0%} wrong labels, {form}"
    planted = {"planted": shown}
    if mirrored:
        same = rng.choice(SAME)
        kind += f", {same:.0%} mirrored"
        planted["mirror"] = np.where(rng.random(len(y)) < same, cue, 1 - cue).astype(float)
    return from_frame(frame.assign(**planted), seen, (cue != belongs).astype(int), kind, seed, true=y)


def _problems(*, design: bool) -> dict[str, Maker]:
    return {
        f"{name}, {k + 1} with a set of classes{', mirrored' if mirrored else ''}": partial(
            class_set, source=name, number=k, mirrored=mirrored
        )
        for name in TABLES
        if (hashed(name) % 10 < BOUND) == design
        for k in range(LABELS)
        for mirrored in (False, True)
    }


CLASS_SETS: dict[str, Maker] = _problems(design=True)
CLASS_SETS_HELD_BACK: dict[str, Maker] = _problems(design=False)
