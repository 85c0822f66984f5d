"""Planted columns of `many` that another column mirrors: an attribute that a table records twice.

The problems of ``many`` with a planted column, and one more feature that says the same as the hidden
attribute in 93, 95 or 97 % of the rows, by chance. Design and held-back tables are those of ``many``, for
the twenty-seventh study.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import numpy as np

from tests.paper.real.design import Maker
from tests.paper.real.generated import Problem
from tests.paper.real.many import MANY, MANY_HELD_BACK, random_of

SAME = (0.93, 0.95, 0.97)


def mirrored(seed: int, name: str, make: Maker) -> Problem:
    """Return a problem with a hidden attribute of two values, and a feature that mirrors it.

    Raises
    ------
    ValueError
        There is no such problem.

    """
    problem, rng = make(seed), random_of(f"{name}:{seed}", "mirror")
    same = rng.choice(SAME)

    def mirror(hidden: np.ndarray) -> np.ndarray:
        kept = rng.random(len(hidden)) < same
        return np.where(kept, hidden, 1 - hidden)[:, None].astype(np.float32)

    return replace(
        problem,
        X=np.hstack([problem.X, mirror(problem.hidden)]),
        X_test=np.hstack([problem.X_test, mirror(problem.hidden_test)]),
        kind=f"{problem.kind}, {same:.0%} mirrored",
    )


def _problems(makers: Mapping[str, Maker]) -> dict[str, Maker]:
    return {
        f"{name}, mirrored": partial(mirrored, name=name, make=make)
        for name, make in makers.items()
        if name.endswith("with a column")
    }


MIRRORED: dict[str, Maker] = _problems(MANY)
MIRRORED_HELD_BACK: dict[str, Maker] = _problems(MANY_HELD_BACK)
