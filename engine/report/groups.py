"""The table of groups, and the sentences on them at the head of the report."""

from __future__ import annotations

import math
from dataclasses import dataclass

from engine.report.survey import Survey
from operators.arrays import NOISE
from operators.report import RowStatistics
from operators.report.text import count, percent

MOST_NAMED = 5
"""Classes that one sentence names."""


@dataclass(frozen=True)
class GroupRow:
    """One inferred group of one class, or the class's noise (``group`` -1)."""

    y: int
    group: int
    class_name: str
    stat: RowStatistics
    share: float
    """Share of all rows."""
    splits: dict[str, int]
    outliers: int
    rank: int
    """Position among all groups, which decides the colour."""
    clearly_worse: bool
    """Whether the whole interval of its accuracy lies below the accuracy over all rows."""

    @property
    def is_noise(self) -> bool:
        """Whether these rows are in no group."""
        return self.group == NOISE

    @property
    def label(self) -> str:
        """Name in the report's sentences."""
        return f"the noise of class {self.class_name}" if self.is_noise else f"group {self.group}"


def group_rows(found: Survey, classes: list[str]) -> list[GroupRow]:
    """List all groups by class and number, noise last in its class."""
    everything = found.everything
    stats = found.total(lambda key: (key.y, key.group))
    splits = found.total(lambda key: (key.y, key.group, key.split))
    marked = found.total(lambda key: (key.y, key.group, key.is_outlier))
    rows: list[GroupRow] = []
    for y, group in sorted(stats, key=lambda pair: (pair[0] or 0, pair[1] == NOISE, pair[1] or 0)):
        stat = stats[y, group]
        assigned = {str(s): part.rows for (cy, cg, s), part in splits.items() if (cy, cg) == (y, group)}
        y, group = int(y or 0), int(group if group is not None else NOISE)
        rows.append(
            GroupRow(
                y=y,
                group=group,
                class_name=classes[y],
                stat=stat,
                share=stat.rows / max(everything.rows, 1),
                splits=assigned,
                outliers=marked.get((y, group, True), RowStatistics()).rows,
                rank=sum(not row.is_noise for row in rows),
                clearly_worse=stat.interval[1] < everything.accuracy,
            )
        )
    return rows


def worst_group(rows: list[GroupRow]) -> GroupRow | None:
    """Return the group with the lowest accuracy, the larger one of ties. Noise is not a group."""
    known = [row for row in rows if not row.is_noise and not math.isnan(row.stat.accuracy)]
    return min(known, key=lambda row: (row.stat.accuracy, -row.stat.rows), default=None)


def group_to_inspect(rows: list[GroupRow]) -> GroupRow | None:
    """Return the group or noise with the lowest accuracy that is not chance, else :func:`worst_group`."""
    low = [row for row in rows if row.clearly_worse]
    return min(low, key=lambda row: row.stat.accuracy, default=worst_group(rows))


def summary_sentences(rows: list[GroupRow], n_classes: int, quarantined: int) -> list[str]:
    """Summarise the table of groups; each item is one or two sentences."""
    total = sum(row.stat.rows for row in rows)
    groups = [row for row in rows if not row.is_noise]
    texts = [
        f"{count(total, 'row')} in {count(n_classes, 'class')}; {count(len(groups), 'group')} "
        f"{'was' if len(groups) == 1 else 'were'} inferred."
    ]
    if len(groups) <= n_classes:
        texts.append(
            "No class was split into several groups: either the classifier treats the rows of each class "
            "alike, or it relies on a shortcut too little for groups to be visible."
        )
    texts += accuracy_sentences(rows, n_classes)
    texts += noise_sentences(rows)
    if quarantined:
        texts.append(
            f"{count(quarantined, 'row')} could not be used and {'is' if quarantined == 1 else 'are'} "
            "quarantined: published with split = dropped, and not counted below."
        )
    return texts


def accuracy_sentences(rows: list[GroupRow], n_classes: int) -> list[str]:
    """Say on which group the classifier is worst, and whether that can be chance."""
    worst = worst_group(rows)
    if worst is None:
        return []
    groups = [row for row in rows if not row.is_noise]
    overall = sum(row.stat.right for row in rows) / max(sum(row.stat.rows for row in rows), 1)
    name = (
        f"{worst.label} (class {worst.class_name}, {count(worst.stat.rows, 'row')}, {percent(worst.share)})"
    )
    against = f"{percent(worst.stat.accuracy)}, against {percent(overall)} over all rows"
    if not worst.clearly_worse:
        return [f"No group stands out. The classifier has its lowest accuracy on {name}: {against}."]
    smallest = len(groups) > 1 and min(groups, key=lambda g: g.stat.rows) is worst
    which = f"the smallest group, {name}" if smallest else name
    advice = " A model trained on all rows alike is likely to fail on these rows."
    advice = advice if len(groups) > n_classes else ""
    return [f"The classifier has its lowest accuracy on {which}: {against}.{advice}"]


def noise_sentences(rows: list[GroupRow]) -> list[str]:
    """Say how many rows are in no group or marked as outliers, and where that needs attention."""
    noise_rows = [row for row in rows if row.is_noise]
    total = sum(row.stat.rows for row in rows)
    texts = [noise_and_outliers(sum(r.stat.rows for r in noise_rows), sum(r.outliers for r in rows), total)]
    sizes = {y: sum(row.stat.rows for row in rows if row.y == y) for y in {row.y for row in rows}}
    mostly = [row for row in noise_rows if 2 * row.stat.rows > sizes[row.y]]
    if mostly:
        names = [f"{row.class_name} ({row.stat.rows:,} of {sizes[row.y]:,} rows)" for row in mostly]
        texts.append(
            f"More than half of class {', '.join(names[:MOST_NAMED])} is in no group: its groups mean little."
        )
    low = sorted((row for row in noise_rows if row.clearly_worse), key=lambda row: row.stat.accuracy)
    if low:
        names = [f"{row.class_name} (accuracy {percent(row.stat.accuracy)})" for row in low]
        texts.append(
            f"The classifier is also poor on the rows in no group of class {', '.join(names[:MOST_NAMED])}. "
            "They need not be corrupt: a minority may be among them. Look at them before you drop them."
        )
    return texts


def noise_and_outliers(noise: int, outliers: int, rows: int) -> str:
    """State both counts, in one sentence if they are equal."""
    share = (
        f"{count(noise, 'row')} ({percent(noise / max(rows, 1))}) {'is' if noise == 1 else 'are'} in no group"
    )
    if noise and noise == outliers:
        return f"{share} (noise, group -1), and as many are marked as outliers."
    first = f"{share} (noise, group -1)." if noise else "Every row is in a group: there is no noise."
    if outliers == 0:
        return f"{first} No row is marked as an outlier."
    are = "is marked as an outlier" if outliers == 1 else "are marked as outliers"
    return f"{first} {count(outliers, 'row')} ({percent(outliers / max(rows, 1))}) {are}."
