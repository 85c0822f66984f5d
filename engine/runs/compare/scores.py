"""Scores of inferred groups, computed from counts of rows."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from engine.report.scores import adjusted_rand_index
from operators.arrays import NOISE


class Cell(NamedTuple):
    """The values that the rows of one count share; ``true_outlier`` is None if the truth is unknown."""

    y: int
    group: int
    is_outlier: bool
    true_group: str
    true_outlier: bool | None


Counts = Mapping[Cell, int]


@dataclass(frozen=True)
class Scores:
    """Agreement of groups and outliers with the truth; nan if a score is undefined."""

    ari: float
    """Adjusted Rand index with the true groups; all noise is one group."""
    floor: float
    """Adjusted Rand index of the class labels, taken as groups, with the true groups."""
    minority_recall: float
    """Share of minority rows that lie in a group of their own; see :func:`minority_recall`."""
    outlier_precision: float
    """Share of rows marked as outliers that are; nan if none is marked."""
    outlier_recall: float
    """Share of true outliers that are marked."""
    sizes: tuple[int, ...]
    """Rows of each group, largest first."""
    noise: int
    """Rows in no group."""


@dataclass(frozen=True)
class Entry:
    """Scores of one method. ``seconds`` covers fitting and applying it, without the operators before it."""

    method: str
    scores: Scores
    seconds: float


def score(counts: Counts) -> Scores:
    """Return the scores of one method, or, with ``group`` = ``y`` in every cell, of the floor."""
    groups = _total(counts, "group")
    precision, recall = _outliers(counts)
    return Scores(
        ari=adjusted_rand_index(_total(counts, "true_group", "group")),
        floor=adjusted_rand_index(_total(counts, "true_group", "y")),
        minority_recall=minority_recall(counts),
        outlier_precision=precision,
        outlier_recall=recall,
        sizes=tuple(sorted((n for (g,), n in groups.items() if g != NOISE), reverse=True)),
        noise=groups.get((NOISE,), 0),
    )


def floor_of(counts: Counts) -> Scores:
    """Return the scores of taking each class as one group, which marks no outlier."""
    floor: Counter[Cell] = Counter()
    for cell, rows in counts.items():
        floor[cell._replace(group=cell.y, is_outlier=False)] += rows
    return score(floor)


def minority_recall(counts: Counts) -> float:
    """Return the share of minority rows in a group most of whose rows are of the same true group.

    The rows of a class are in the minority unless they are of the class's largest true group. True
    outliers are left out; noise is not a group. The class labels score 0. Many small groups score
    high: read the score together with the number of groups. nan without minorities.
    """
    kept = {cell: rows for cell, rows in counts.items() if not cell.true_outlier}
    majority = _most_frequent(_total(kept, "y", "true_group"))
    owner = _most_frequent(_total(kept, "group", "true_group"))
    rows = {cell: n for cell, n in kept.items() if cell.true_group != majority[cell.y]}
    found = sum(n for c, n in rows.items() if c.group != NOISE and owner[c.group] == c.true_group)
    return found / sum(rows.values()) if rows else math.nan


def _outliers(counts: Counts) -> tuple[float, float]:
    known = {cell: rows for cell, rows in counts.items() if cell.true_outlier is not None}
    marked = sum(rows for cell, rows in known.items() if cell.is_outlier)
    outliers = sum(rows for cell, rows in known.items() if cell.true_outlier)
    hits = sum(rows for cell, rows in known.items() if cell.is_outlier and cell.true_outlier)
    return hits / marked if marked else math.nan, hits / outliers if outliers else math.nan


def _total(counts: Counts, *names: str) -> dict[Any, int]:
    found: Counter[Any] = Counter()
    for cell, rows in counts.items():
        found[tuple(getattr(cell, name) for name in names)] += rows
    return dict(found)


def _most_frequent(table: Mapping[tuple[Any, Any], int]) -> dict[Any, Any]:
    """Return for each first value the second one with the most rows; of equals the first in order."""
    found: dict[Any, Any] = {}
    for (a, b), rows in sorted(table.items()):
        if a not in found or rows > table[a, found[a]]:
            found[a] = b
    return found
