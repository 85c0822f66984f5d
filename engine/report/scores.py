"""Scores against the truth columns that the recipe names. No operator reads these columns."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from engine.plan.model import Plan
from engine.report.survey import MAX_TRUE_GROUPS, Key, Survey, cast_or_null
from operators.arrays import NOISE
from operators.base import LABEL, ROW_ID, Labelings
from operators.counts import count
from operators.report import RowStatistics

MAX_NAMES = 40
"""Groups that a table shows."""
MAX_COMPARED = 200
"""Maximum number of true groups that alternative labelings are compared with: each has a table of counts."""
A = TypeVar("A", bound=Hashable)
B = TypeVar("B", bound=Hashable)


@dataclass(frozen=True)
class Flagging:
    """Counts from which precision and recall of a set of flagged rows follow."""

    name: str
    flagged: int
    hits: int
    """Flagged rows that are true outliers."""
    outliers: int
    rows: int

    @property
    def flagged_share(self) -> float:
        """Share of all rows that are flagged, which is the recall of flagging as many rows at random."""
        return self.flagged / self.rows if self.rows else math.nan

    @property
    def precision(self) -> float:
        """Share of flagged rows that are outliers; nan if none is flagged."""
        return self.hits / self.flagged if self.flagged else math.nan

    @property
    def recall(self) -> float:
        """Share of outliers that are flagged; nan if there is none."""
        return self.hits / self.outliers if self.outliers else math.nan


@dataclass(frozen=True)
class Scores:
    """Scores by the truth. Fields stay empty if the recipe names no such column."""

    ari: float = math.nan
    """Adjusted Rand index of the inferred groups with the true ones; noise counts as one group."""
    floor: float = math.nan
    """Adjusted Rand index of the class labels, taken as groups, with the true groups."""
    true_groups: list[tuple[str, RowStatistics]] = field(default_factory=list)
    columns: list[int] = field(default_factory=list)
    """Inferred groups that the table shows."""
    table: list[tuple[str, list[int]]] = field(default_factory=list)
    """True group and its rows in each inferred group of ``columns``."""
    more_true_groups: int = 0
    more_columns: int = 0
    """Groups that the table leaves out, in its rows and columns."""
    flaggings: list[Flagging] = field(default_factory=list)
    base_rate: float = math.nan
    """Share of true outliers."""
    notes: tuple[str, ...] = ()
    """What could not be scored, and why."""


def score(found: Survey, group: str | None, outlier: str | None) -> Scores:
    """Compare the groups and outliers with the truth columns of these names."""
    scores = Scores()
    if group is not None:
        scores = group_scores(found, group)
    if outlier is not None:
        flaggings, base_rate = outlier_scores(found)
        notes = (*scores.notes, *_unread_outliers(found, outlier))
        scores = replace(scores, flaggings=flaggings, base_rate=base_rate, notes=notes)
    return scores


def group_scores(found: Survey, column: str) -> Scores:
    """Score the inferred groups and the class label, and tabulate where the rows of each true group are.

    Rows without a true group count nowhere.
    """
    if found.has_many_true_groups:
        note = (
            f"truth.group: the column {column!r} has more than {MAX_TRUE_GROUPS:,} distinct values, so "
            "groups are not scored. Name a column whose values are groups."
        )
        return Scores(notes=(note,))
    known = replace(found, cells={k: stat for k, stat in found.cells.items() if k.true_group is not None})
    missing = found.everything.rows - known.everything.rows
    if not known.cells:
        note = (
            f"truth.group: no value of the column {column!r} can be read as the name of a group, so groups "
            "are not scored. Name a column of texts or numbers."
        )
        return Scores(notes=(note,))
    inferred = {k: s.rows for k, s in known.total(lambda key: (key.true_group, key.group)).items()}
    labels = {k: s.rows for k, s in known.total(lambda key: (key.true_group, key.y)).items()}
    stats = known.total(lambda key: str(key.true_group))
    names = sorted(stats, key=lambda name: -stats[name].rows)[:MAX_NAMES]
    sizes = {group: stat for group, stat in known.total(lambda key: key.group).items() if group is not None}
    largest = sorted(sizes, key=lambda g: -sizes[g].rows)[:MAX_NAMES]
    columns = sorted(largest, key=lambda g: (g == NOISE, g))
    note = f"{count(missing, 'row')} without a value in the column {column!r} count in no true group."
    return Scores(
        ari=adjusted_rand_index(inferred),
        floor=adjusted_rand_index(labels),
        true_groups=[(name, stats[name]) for name in names],
        columns=columns,
        table=[(name, [inferred.get((name, g), 0) for g in columns]) for name in names],
        more_true_groups=len(stats) - len(names),
        more_columns=len(sizes) - len(columns),
        notes=(note,) if missing else (),
    )


def _unread_outliers(found: Survey, column: str) -> list[str]:
    """Say of how many rows it is not known whether they are outliers."""
    rows = found.everything.rows
    unread = sum(stat.rows for key, stat in found.cells.items() if key.true_outlier is None)
    if unread == rows:
        return [
            f"truth.outlier: the values of the column {column!r} cannot be read as true or false, so "
            "outliers are not scored. Use true/false or 1/0."
        ]
    if unread:
        return [
            f"truth.outlier: {count(unread, 'row')} without a value in the column {column!r} that can be "
            "read as true or false (true/false or 1/0) count in no score of outliers."
        ]
    return []


def outlier_scores(found: Survey) -> tuple[list[Flagging], float]:
    """Compare outliers, and noise, with the true outliers; also return the share of true outliers."""
    known = {key: stat.rows for key, stat in found.cells.items() if key.true_outlier is not None}
    if not known:
        return [], math.nan
    outliers = sum(rows for key, rows in known.items() if key.true_outlier)

    def flagging(name: str, flagged: dict[Key, int]) -> Flagging:
        hits = sum(rows for key, rows in flagged.items() if key.true_outlier)
        return Flagging(name, sum(flagged.values()), hits, outliers, sum(known.values()))

    marked = {key: rows for key, rows in known.items() if key.is_outlier}
    noise = {key: rows for key, rows in known.items() if key.group == NOISE}
    found_by = [flagging("is_outlier", marked), flagging("noise (group -1)", noise)]
    return found_by, outliers / sum(known.values())


def agreement_with_truth(
    plan: Plan, found: Survey, labelings: Labelings
) -> dict[tuple[int, Hashable], float]:
    """Score alternative labelings; see :meth:`operators.base.ReportContext.agreement_with_truth`.

    One table of counts for each class and labeling is added up, shard by shard. Memory: the tables, and the
    labels of one shard's rows.
    """
    names = sorted(name for name in found.total(lambda key: key.true_group) if name is not None)
    if plan.recipe.truth.group is None or not names or len(names) > MAX_COMPARED:
        return {}
    tables: dict[tuple[int, Hashable], NDArray[np.int64]] = {}
    for info in plan.shards:
        row_ids, classes, true = _shard_truth(plan, info.index, names)
        for y in np.unique(classes).tolist():
            own = classes == y
            for name, labels in labelings(y, row_ids[own]):
                counts = _contingency(labels, true[own], len(names))
                tables[y, name] = _sum(tables.get((y, name)), counts)
    return {key: _index_of(table) for key, table in tables.items()}


def _shard_truth(
    plan: Plan, shard: int, names: list[str]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return row id, class and true group (its position in ``names``) of a shard's rows that have both."""
    reader, column = plan.reader(), str(plan.recipe.truth.group)
    table = reader.read_all(shard, [LABEL])
    true = cast_or_null(reader.read_with_truth(shard, [column]).column(column), pa.string())
    place = pc.fill_null(pc.index_in(true, pa.array(names)), -1).to_numpy()
    classes = table.column(LABEL).fill_null(-1).to_numpy()
    known = (classes >= 0) & (place >= 0)
    return table.column(ROW_ID).to_numpy()[known], classes[known], place[known]


def _contingency(labels: NDArray[np.integer], true: NDArray[np.int64], n_true: int) -> NDArray[np.int64]:
    """Count rows by label, from -1, and true group; rows labelled -2 are left out."""
    n_labels = int(labels.max(initial=-1)) + 2
    known = labels >= NOISE
    pairs = (labels[known].astype(np.int64) + 1) * n_true + true[known]
    return np.bincount(pairs, minlength=n_labels * n_true).reshape(n_labels, n_true)


def _sum(table: NDArray[np.int64] | None, counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Add two tables, of which one may have more labels."""
    if table is None:
        return counts
    longer, shorter = (table, counts) if len(table) >= len(counts) else (counts, table)
    longer = longer.copy()
    longer[: len(shorter)] += shorter
    return longer


def _index_of(table: NDArray[np.int64]) -> float:
    return adjusted_rand_index({(int(a), int(b)): int(table[a, b]) for a, b in np.argwhere(table)})


def adjusted_rand_index(table: Mapping[tuple[A, B], int]) -> float:
    """Compute the adjusted Rand index of two labelings from their contingency counts.

    Parameters
    ----------
    table
        (label of the first, label of the second) to the number of rows.

    Returns
    -------
    1.0 for equal partitions, about 0 for independent ones; 1.0 also if there is no pair of rows. All
    operations before the last division are exact, on integers.

    Notes
    -----
    Hubert and Arabie: Comparing partitions, 1985, equation 5.
    """
    first: dict[A, int] = {}
    second: dict[B, int] = {}
    for (a, b), rows in table.items():
        first[a] = first.get(a, 0) + rows
        second[b] = second.get(b, 0) + rows
    both = sum(rows * rows for rows in table.values())
    together = sum(rows * rows for rows in first.values())
    predicted = sum(rows * rows for rows in second.values())
    n = sum(first.values())
    # Ordered pairs: in both, only in the first, only in the second, in neither.
    tp, fn, fp = both - n, together - both, predicted - both
    tn = n * n - both - fn - fp
    if fn == 0 and fp == 0:
        return 1.0
    return 2 * (tp * tn - fn * fp) / ((tp + fn) * (fn + tn) + (tp + fp) * (fp + tn))
