"""The table of groups."""

from __future__ import annotations

import math
from dataclasses import dataclass

from engine.report.sampling import NOISE
from engine.report.statistics import Stat
from engine.report.survey import Survey


@dataclass(frozen=True)
class GroupRow:
    """One inferred group of one class, or the class's noise (``group`` -1)."""

    y: int
    group: int
    class_name: str
    stat: Stat
    share: float
    """Of all rows."""
    splits: dict[str, int]
    outliers: int
    rank: int
    """Position among all groups, by which colours are given."""
    clearly_worse: bool
    """The whole interval of its accuracy lies below the accuracy over all rows."""

    @property
    def is_noise(self) -> bool:
        """Whether these rows are in no cluster."""
        return self.group == NOISE

    @property
    def label(self) -> str:
        """Name in the report."""
        return f"the noise of class {self.class_name}" if self.is_noise else f"group {self.group}"


def group_rows(found: Survey, classes: list[str]) -> list[GroupRow]:
    """All groups, by class, then by number; noise last in its class."""
    everything = found.total(lambda key: None).get(None, Stat())
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
                outliers=marked.get((y, group, True), Stat()).rows,
                rank=sum(not row.is_noise for row in rows),
                clearly_worse=stat.interval[1] < everything.accuracy,
            )
        )
    return rows


def worst_group(rows: list[GroupRow]) -> GroupRow | None:
    """The group with the lowest accuracy; the larger of two that tie. Noise is no group."""
    known = [row for row in rows if not row.is_noise and not math.isnan(row.stat.accuracy)]
    return min(known, key=lambda row: (row.stat.accuracy, -row.stat.rows), default=None)


def focus(rows: list[GroupRow]) -> GroupRow | None:
    """Where to look first: the lowest accuracy of all, noise too, if it is no matter of chance."""
    low = [row for row in rows if row.clearly_worse]
    return min(low, key=lambda row: row.stat.accuracy, default=worst_group(rows))
