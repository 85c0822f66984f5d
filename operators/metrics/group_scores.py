"""Accuracy by group, with rules that keep a handful of rows from deciding anything.

A group with few scored rows has an accuracy that is mostly chance: two corrupt validation rows would make
a "worst group" of accuracy 0. Groups below ``MIN_ROWS`` are therefore pooled, and every interval holds for
all groups at once (Bonferroni), because the worst of many groups is looked for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from operators.metrics.intervals import wilson_interval

MIN_ROWS = 50
"""Scored rows below which a group is pooled with the other small ones."""
NAMED = 5
LEVEL = 0.95


@dataclass(frozen=True)
class ComparedGroup:
    """One group, or several small ones pooled, that may be the worst."""

    members: tuple[Any, ...]
    """Groups it consists of; several where they are pooled."""
    rows: int
    accuracy: float
    low: float
    high: float
    """Wilson interval that holds for all compared groups at once with probability 95 %."""

    @property
    def pooled(self) -> bool:
        """Return whether it consists of several groups."""
        return len(self.members) > 1


def compare_groups(
    rows: Mapping[Any, int], right: Mapping[Any, float], *, min_rows: int = MIN_ROWS
) -> tuple[ComparedGroup, ...]:
    """Groups that carry a statement: those with at least ``min_rows`` rows, and all smaller ones pooled.

    A pool that is itself smaller than ``min_rows`` says nothing and is left out, unless no group is large
    enough: then all rows together are the only entry.

    Parameters
    ----------
    rows : group -> scored rows; groups without rows are ignored.
    right : group -> rows, or sum of probabilities, that are classified correctly.
    min_rows : at least 1, which compares every group by itself.

    Returns
    -------
    Large groups in the order of ``rows``, then the pool.
    """
    present = [name for name, count in rows.items() if count > 0]
    large = [(name,) for name in present if rows[name] >= min_rows]
    small = tuple(name for name in present if rows[name] < min_rows)
    entries: list[tuple[Any, ...]] = list(large)
    if small and (not large or sum(rows[name] for name in small) >= min_rows):
        entries.append(small if large else tuple(present))
    level = 1 - (1 - LEVEL) / max(len(entries), 1)
    return tuple(_compared(members, rows, right, level) for members in entries)


def worst_of(groups: Sequence[ComparedGroup]) -> ComparedGroup | None:
    """Return the group with the lowest accuracy; of equals the larger one. None where there is none."""
    return min(groups, key=lambda group: (group.accuracy, -group.rows), default=None)


def _compared(
    members: tuple[Any, ...], rows: Mapping[Any, int], right: Mapping[Any, float], level: float
) -> ComparedGroup:
    n = sum(rows[name] for name in members)
    correct = min(sum(right.get(name, 0.0) for name in members), n)
    low, high = wilson_interval(correct, n, level)
    return ComparedGroup(members, n, correct / n, float(low), float(high))


def pooled_name(names: Sequence[str]) -> str:
    """Return one name for a group, or for several groups that are pooled; at most ``NAMED`` are named."""
    if len(names) == 1:
        return names[0]
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return f"small groups together: {', '.join(names[:NAMED])}{more}"
