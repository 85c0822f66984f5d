"""Accuracy by group, where groups with few scored rows are pooled.

The accuracy of a group with few rows is mostly chance: two corrupt validation rows would be a "worst group"
of accuracy 0. Groups with fewer than ``MIN_ROWS`` rows are therefore pooled. Intervals hold for all groups at
once (Bonferroni), because the worst of many groups is reported.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from connectors.foundation.messages import first_of
from operators.counts import count
from operators.metrics.intervals import wilson_interval

MIN_ROWS = 50
"""A group with fewer scored rows is pooled with the other small ones."""
MAX_NAMES = 5
"""Groups of a pool that its name lists."""
NEARLY_ALL_WRONG = 0.9
"""Share of wrong labels of a group above which it is not compared: only a model that fits them is right.
With fewer the group still tells models apart, and the others are mostly those that follow the shortcut."""
MIN_TOLD = 0.05
"""Share of wrong labels of a group from which it is named."""
LEVEL = 0.95
"""Probability with which the intervals of all groups hold at once."""


@dataclass(frozen=True)
class ComparedGroup:
    """A group, or several small groups that are pooled, with its accuracy."""

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
    """Return the accuracy of each group with at least ``min_rows`` rows, and that of all smaller ones pooled.

    A pool with fewer than ``min_rows`` rows is left out. If no group is large enough, all rows together are
    the only entry.

    Parameters
    ----------
    rows : group -> scored rows; groups without rows are ignored.
    right : group -> rows, or sum of probabilities, that are classified correctly.
    min_rows : at least 1, which compares every group by itself.

    Returns
    -------
    Large groups in the order of ``rows``, then the pool.
    """
    entries = pool_groups(rows, min_rows=min_rows)
    level = simultaneous_level(len(entries))
    return tuple(_compared(members, rows, right, level) for members in entries)


def pool_groups(rows: Mapping[Any, int], *, min_rows: int = MIN_ROWS) -> list[tuple[Any, ...]]:
    """Return the members of each entry that :func:`compare_groups` compares."""
    present = [name for name, count in rows.items() if count > 0]
    large = [(name,) for name in present if rows[name] >= min_rows]
    small = tuple(name for name in present if rows[name] < min_rows)
    entries: list[tuple[Any, ...]] = list(large)
    if small and (not large or sum(rows[name] for name in small) >= min_rows):
        entries.append(small if large else tuple(present))
    return entries


def not_compared(rows: Mapping[Any, int], *, min_rows: int = MIN_ROWS) -> tuple[Any, ...]:
    """Return the groups with rows that are in no entry of :func:`pool_groups`: together they have too few.

    Examples
    --------
    >>> not_compared({"a": 60, "b": 20, "c": 29}), not_compared({"a": 60, "b": 20, "c": 30})
    (('b', 'c'), ())
    """
    compared = {name for members in pool_groups(rows, min_rows=min_rows) for name in members}
    return tuple(name for name, count in rows.items() if count > 0 and name not in compared)


def few_rows_text(
    rows: Mapping[str, int],
    *,
    min_rows: int = MIN_ROWS,
    word: str = "group",
    details: Mapping[str, str] = MappingProxyType({}),
    remedy: str = "",
) -> str:
    """Say which named groups are pooled, or in no figure of the worst group, as they have too few rows.

    This is the sentence beside every worst class or group, without its full stop.

    Parameters
    ----------
    rows : name for people -> scored rows; a name that is a number alone is that of a group.
    min_rows : as in :func:`compare_groups`.
    word : what the groups are, such as "class".
    details : name -> what is known of the group, which stands behind its number of rows.
    remedy : what to do about groups that are left out.

    Returns
    -------
    The sentence; empty where every group is compared by itself.

    Examples
    --------
    >>> few_rows_text({"class a": 900, "class b": 20}, word="class")
    'class b (20 rows) is left out of the worst class, as it has fewer than 50 scored rows'
    >>> few_rows_text({"1": 900, "2": 20, "3": 40})
    'group 2 (20 rows), group 3 (40 rows) have fewer than 50 scored rows each and are compared as one group'
    """

    def listed(names: Sequence[str]) -> str:
        told = {name: f", {details[name]}" if name in details else "" for name in names}
        texts = [f"{group_name(name)} ({count(rows[name], 'row')}{told[name]})" for name in names]
        return first_of(texts, MAX_NAMES)

    pooled = next((found for found in pool_groups(rows, min_rows=min_rows) if len(found) > 1), ())
    if pooled and len(pooled) == sum(size > 0 for size in rows.values()):
        return f"no group has {min_rows} scored rows, so that all are compared as one: {listed(pooled)}"
    if pooled:
        return f"{listed(pooled)} have fewer than {min_rows} scored rows each and are compared as one group"
    left_out = not_compared(rows, min_rows=min_rows)
    if not left_out:
        return ""
    are, they, together = ("is", "it has", "") if len(left_out) == 1 else ("are", "they have", " together")
    return (
        f"{listed(left_out)} {are} left out of the worst {word}, as {they} fewer than {min_rows} scored "
        f"rows{together}{remedy and f'; {remedy}'}"
    )


def wrong_labels_text(shares: Mapping[str, float]) -> str:
    """Say which groups may have wrong labels, and which are in no figure of the worst group for that.

    Rows that are unusual for their class look the same to `cues`: it cannot be sure.

    Parameters
    ----------
    shares : name for people -> estimated share of wrong labels.

    Returns
    -------
    The sentence without its full stop; empty where no group has many of them.

    Examples
    --------
    >>> wrong_labels_text({"1": 0.01, "3": 0.48})
    'by the estimate of `cues` labels may be wrong in group 3 (about 48%), where accuracy is then too low'
    """
    told = sorted((name for name in shares if shares[name] >= MIN_TOLD), key=lambda name: -shares[name])
    if not told:
        return ""
    listed = first_of([f"{group_name(name)} (about {shares[name]:.0%})" for name in told], MAX_NAMES)
    text = f"by the estimate of `cues` labels may be wrong in {listed}, where accuracy is then too low"
    nearly = [group_name(name) for name in told if shares[name] > NEARLY_ALL_WRONG]
    are = "is" if len(nearly) == 1 else "are"
    return f"{text}; {first_of(nearly, MAX_NAMES)} {are} left out of the worst group" if nearly else text


def group_name(name: str) -> str:
    """Return the name of a group in a sentence: ``group 3`` where it is a number alone."""
    return f"group {name}" if name.isdecimal() else name


def simultaneous_level(n_groups: int) -> float:
    """Return the level of each interval of which all hold at once with probability 95 % (Bonferroni)."""
    return 1 - (1 - LEVEL) / max(n_groups, 1)


def worst_of(groups: Sequence[ComparedGroup]) -> ComparedGroup | None:
    """Return the group with the lowest accuracy, of equals the larger one, or None if there is none."""
    return min(groups, key=lambda group: (group.accuracy, -group.rows), default=None)


def _compared(
    members: tuple[Any, ...], rows: Mapping[Any, int], right: Mapping[Any, float], level: float
) -> ComparedGroup:
    n = sum(rows[name] for name in members)
    correct = min(sum(right.get(name, 0.0) for name in members), n)
    low, high = wilson_interval(correct, n, level)
    return ComparedGroup(members, n, correct / n, float(low), float(high))


def pooled_name(names: Sequence[str], *, min_rows: int = MIN_ROWS) -> str:
    """Return one name for a group, or for several groups that are pooled; at most ``MAX_NAMES`` are named.

    Examples
    --------
    >>> pooled_name(["a"]), pooled_name(["a", "b"])
    ('a', '2 groups of fewer than 50 rows, pooled: a, b')
    """
    if len(names) == 1:
        return names[0]
    return f"{len(names)} groups of fewer than {min_rows} rows, pooled: {first_of(names, MAX_NAMES)}"
