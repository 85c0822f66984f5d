"""Labels of the tables of ``many`` with planted columns of other shapes, for the twentieth study.

Three and four columns at once, each of which tells most labels (the hidden attribute is how many of them a
row breaks); a column that tells a rare class; one that holds for a part of the rows, and has any value or a
third one elsewhere; a number of three to ten classes whose values are not in the order of the classes; and,
for the twenty-first study, wrong labels where nothing is planted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from tests.paper.real.design import Maker
from tests.paper.real.entities import from_frame
from tests.paper.real.generated import Problem
from tests.paper.real.kernel import score
from tests.paper.real.many import BOUND, LABELS, TABLES, hashed, pair, picked, random_of
from tests.paper.real.many_classes import picked as picked_of_many

MIN_ROWS = 3_000
MIN_RARE_ROWS = 120
FLIPS = (0, 0, 0.05)
FLIPS_OF_RARE = (0, 0, 0.01)
WELL_TOLD = 0.9
"""Accuracy of a plain model from which most of its mistakes are wrong labels, where 2 to 6 % are wrong."""
Labels = npt.NDArray[np.integer[Any]]


def _first_label(source: str, min_rows: int = MIN_ROWS) -> tuple[str, Any, Labels]:
    label, frame, y, _ = next(picked(source), ("", None, np.empty(0, int), 0))
    if len(y) < min_rows:
        raise ValueError(f"{source} has no label of two classes on {min_rows} rows")
    return label, frame, y


def _shown(cue: Labels, form: int, noisy: npt.NDArray[np.float64]) -> npt.NDArray[Any]:
    """Return a column of zeros and ones, a noisy number or names."""
    return (cue.astype(float), noisy, np.array(["a", "b"])[cue])[form]


def _told(y: Labels, share: float | npt.NDArray[np.float64], rng: np.random.Generator) -> Labels:
    return np.where(rng.random(len(y)) < share, y, 1 - y)


def several(seed: int, source: str, columns: int) -> Problem:
    """Return a label with so many columns that each tell 88, 92 or 95 % of it.

    Raises
    ------
    ValueError
        The table has no label of this kind, or few rows. So do the other functions.

    """
    label, frame, y = _first_label(source)
    rng = random_of(f"{source}:{label}", f"several {columns}")
    told, forms = rng.choice((0.88, 0.92, 0.95), columns), rng.choice(3, columns)
    flips = rng.choice(FLIPS)
    cues = [_told(y, share, rng) for share in told]
    seen = np.where(rng.random(len(y)) < flips, 1 - y, y)
    for number, (cue, form) in enumerate(zip(cues, forms, strict=True)):
        noisy = 2 * cue + 0.15 * rng.normal(size=len(y))
        frame = frame.assign(**{f"planted {number}": _shown(cue, form, noisy)})
    broken = np.minimum(sum((cue != y).astype(int) for cue in cues), 2)
    kind = f"{columns} planted, {'/'.join(f'{share:.0%}' for share in told)}, {flips:.0%} wrong labels"
    return from_frame(frame, seen, np.asarray(broken), kind, seed, true=y)


def rare_class(seed: int, source: str) -> Problem:
    """Return a label of which 2, 4 or 8 % are of one class, with a column that tells 90 or 95 % of it."""
    for label, whole, labels, _ in picked(source):
        rng = random_of(f"{source}:{label}", "rare class")
        share, small = rng.choice((0.02, 0.04, 0.08)), int(labels.mean() < 0.5)
        common = labels != small
        least = share / (1 - share) * common.mean() / max((~common).mean(), 1e-9)
        kept = common | (rng.random(len(labels)) < least)
        frame, y = whole[kept].reset_index(drop=True), labels[kept]
        if (y == small).sum() < MIN_RARE_ROWS:
            continue
        told, form, flips = rng.choice((0.9, 0.95)), rng.integers(3), rng.choice(FLIPS_OF_RARE)
        cue = _told(y, told, rng)
        seen = np.where(rng.random(len(y)) < flips, 1 - y, y)
        noisy = 2 * cue + 0.15 * rng.normal(size=len(y))
        kind = f"rare class of {share:.0%}, {told:.0%}, {flips:.0%} wrong labels"
        shown = frame.assign(planted=_shown(cue, form, noisy))
        return from_frame(shown, seen, (cue != y).astype(int), kind, seed, true=y)
    raise ValueError(f"{source} has no label of this kind")


def part_of_rows(seed: int, source: str) -> Problem:
    """Return a label with a column that tells 95 or 98 % of it in 40 to 80 % of the rows, else nothing."""
    label, frame, y = _first_label(source)
    rng = random_of(f"{source}:{label}", "part")
    told, form, flips = rng.choice((0.95, 0.98)), rng.integers(3), rng.choice(FLIPS)
    part = rng.choice((0.4, 0.6, 0.8))
    inside = rng.random(len(y)) < part
    cue = _told(y, np.where(inside, told, 0.5), rng)
    seen = np.where(rng.random(len(y)) < flips, 1 - y, y)
    noisy = 2 * cue + 0.15 * rng.normal(size=len(y))
    kind = f"part {part:.0%}, {told:.0%}, {flips:.0%} wrong labels"
    shown = frame.assign(planted=_shown(cue, form, noisy))
    return from_frame(shown, seen, (cue != y).astype(int), kind, seed, true=y)


def third_value(seed: int, source: str) -> Problem:
    """Return the same with a third value in the rows of which the column tells nothing, 30 to 70 %."""
    label, frame, y = _first_label(source)
    rng = random_of(f"{source}:{label}", "third")
    told, form, flips = rng.choice((0.95, 0.98)), rng.integers(2), rng.choice(FLIPS)
    part = rng.choice((0.3, 0.5, 0.7))
    inside = rng.random(len(y)) < part
    cue = _told(y, told, rng)
    seen = np.where(rng.random(len(y)) < flips, 1 - y, y)
    value = np.where(inside, cue, 2)
    number = np.array([-1.0, 1.0, 0.0])[value] * 2 + 0.15 * rng.normal(size=len(y))
    shown = frame.assign(planted=(number, np.array(["a", "b", "c"])[value])[form])
    kind = f"third value, {part:.0%} of the rows, {told:.0%}, {flips:.0%} wrong labels"
    return from_frame(shown, seen, np.where(inside, (cue != y).astype(int), 2), kind, seed, true=y)


def out_of_order(seed: int, source: str) -> Problem:
    """Return a label of three to ten classes with a number that tells it, its values in any order."""
    label, frame, y, _ = next(picked_of_many(source), ("", None, np.empty(0, int), ""))
    if frame is None or len(y) < 2_000:
        raise ValueError(f"{source} has no label of three to ten classes")
    rng, C = random_of(f"{source}:{label}", "order"), int(y.max()) + 1
    told, flips = rng.choice((0.9, 0.93, 0.96)), rng.choice(FLIPS)
    seen = np.where(rng.random(len(y)) < flips, (y + rng.integers(1, C, len(y))) % C, y)
    cue = np.where(rng.random(len(y)) < told, y, (y + rng.integers(1, C, len(y))) % C)
    place = rng.permutation(C)
    shown = frame.assign(planted=2.0 * place[cue] + 0.15 * rng.normal(size=len(y)))
    kind = f"{C} classes out of order, {told:.0%}, {flips:.0%} wrong labels"
    return from_frame(shown, seen, (cue != y).astype(int), kind, seed, true=y)


def wrong_labels(seed: int, source: str) -> Problem:
    """Return a pair of ``many``, nothing planted, of whose rows to train on 2 to 6 % have a wrong label.

    A label on a table that tells it well (the first whose plain model is right in 90 % of the rows, else the
    first of all): there most rows that a model mistakes are wrong labels.
    """
    problems = [problem for k in range(LABELS) if (problem := _pair(seed, source, k)) is not None]
    if not problems:
        raise ValueError(f"{source} has no label of this kind")
    found = next((one for one in problems if _told_share(one) >= WELL_TOLD), problems[0])
    rng = random_of(source, "wrong labels")
    share = rng.choice((0.02, 0.04, 0.06))
    wrong = rng.random(len(found.y)) < share
    kind = f"{share:.0%} wrong labels, model {_told_share(found):.2f}"
    return replace(found, y=np.where(wrong, 1 - found.y, found.y), kind=kind)


def _pair(seed: int, source: str, number: int) -> Problem | None:
    try:
        return pair(seed, source, number)
    except ValueError:
        return None


def _told_share(problem: Problem) -> float:
    """Return the accuracy of a plain model on the rows to test on."""
    return score(problem, np.ones(len(problem.y)))[1]


SHAPES: dict[str, Callable[..., Problem]] = {
    "three": partial(several, columns=3),
    "four": partial(several, columns=4),
    "rare-class": rare_class,
    "part-of-rows": part_of_rows,
    "third-value": third_value,
    "out-of-order": out_of_order,
    "wrong-labels": wrong_labels,
}
"""Name of a set in ``kernel`` -> function of seed and source table."""


def shaped() -> Iterator[tuple[str, dict[str, Maker]]]:
    """Yield name and problems of each set, of the design tables and of those held back."""
    for shape, make in SHAPES.items():
        for design in (True, False):
            names = [name for name in TABLES if (hashed(name) % 10 < BOUND) == design]
            found: dict[str, Maker] = {f"{name}, {shape}": partial(make, source=name) for name in names}
            yield shape if design else f"{shape}-held-back", found
