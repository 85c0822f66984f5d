"""Labels of the tables of ``many`` with two planted columns at once, which break apart from each other.

Labels of two classes, and of three to ten (``many_classes``). The hidden attribute is which of the columns a
row breaks. Design and held-back tables are those of ``many``, for the eighteenth study.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from tests.paper.real.design import Maker
from tests.paper.real.entities import from_frame
from tests.paper.real.generated import Problem
from tests.paper.real.many import BOUND, TABLES, hashed, picked, random_of
from tests.paper.real.many_classes import picked as picked_of_many

MIN_ROWS = 3_000
"""Rows of a table below which too few rows break both columns."""
TOLD = (0.88, 0.92, 0.95)
FLIPS = (0.0, 0.0, 0.05)


def doubled(seed: int, source: str) -> Problem:
    """Return the first label of a table, with two columns that each tell 88 to 95 labels of 100.

    Raises
    ------
    ValueError
        The table has no label of this kind, or few rows.

    """
    for label, frame, y, _ in picked(source):
        if len(y) < MIN_ROWS:
            break
        rng = random_of(f"{source}:{label}", "doubled")
        told, forms = rng.choice(TOLD, 2), rng.choice(3, 2)
        flips = rng.choice(FLIPS)
        cues = [np.where(rng.random(len(y)) < share, y, 1 - y) for share in told]
        label_of = np.where(rng.random(len(y)) < flips, 1 - y, y)
        for number, (cue, form) in enumerate(zip(cues, forms, strict=True)):
            noisy = 2 * cue + 0.15 * rng.normal(size=len(y))
            shown = [cue.astype(float), noisy, np.array(["a", "b"])[cue]][form]
            frame = frame.assign(**{f"planted {number}": shown})
        kinds = "/".join(("0/1", "number", "name")[form] for form in forms)
        kind = f"two planted, {told[0]:.0%} and {told[1]:.0%}, {flips:.0%} wrong labels, {kinds}"
        # Not by the cues' values: rows of wrong labels would then be a group of their own.
        first, second = ((cue != y).astype(int) for cue in cues)
        return from_frame(frame, label_of, 2 * first + second, kind, seed, true=y)
    raise ValueError(f"{source} has no label of this kind on {MIN_ROWS} rows")


def doubled_of_many(seed: int, source: str) -> Problem:
    """Return the first label of three to ten classes of a table, with two columns of names or noisy numbers.

    Raises
    ------
    ValueError
        The table has no label of this kind, or few rows.

    """
    label, frame, y, _ = next(picked_of_many(source), ("", None, np.empty(0), ""))
    if frame is None or len(y) < MIN_ROWS:
        raise ValueError(f"{source} has no label of three to ten classes on {MIN_ROWS} rows")
    rng, C, broken = random_of(f"{source}:{label}", "doubled of many"), int(y.max()) + 1, []
    told, forms, flips = rng.choice(TOLD, 2), rng.choice(2, 2), rng.choice(FLIPS)
    seen = np.where(rng.random(len(y)) < flips, (y + rng.integers(1, C, len(y))) % C, y)
    for number, (share, form) in enumerate(zip(told, forms, strict=True)):
        cue = np.where(rng.random(len(y)) < share, y, (y + rng.integers(1, C, len(y))) % C)
        names = np.array([f"v{k:02}" for k in range(C)])[cue]
        shown = [names, 2.0 * cue + 0.15 * rng.normal(size=len(y))][form]
        frame = frame.assign(**{f"planted {number}": shown})
        broken.append((cue != y).astype(int))
    kinds = "/".join(("name", "number")[form] for form in forms)
    kind = f"two planted, {told[0]:.0%} and {told[1]:.0%}, {flips:.0%} wrong labels, {kinds}"
    return from_frame(frame, seen, 2 * broken[0] + broken[1], kind, seed, true=y)


def _problems(make: Callable[..., Problem], *, design: bool) -> dict[str, Maker]:
    names = [name for name in TABLES if (hashed(name) % 10 < BOUND) == design]
    return {f"{name}, doubled": partial(make, source=name) for name in names}


DOUBLED: dict[str, Maker] = _problems(doubled, design=True)
DOUBLED_HELD_BACK: dict[str, Maker] = _problems(doubled, design=False)
DOUBLED_CLASSES: dict[str, Maker] = _problems(doubled_of_many, design=True)
DOUBLED_CLASSES_HELD_BACK: dict[str, Maker] = _problems(doubled_of_many, design=False)
