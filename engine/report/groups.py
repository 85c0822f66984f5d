"""The table of groups, and the sentences on them at the head of the report."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from connectors.foundation.messages import first_of
from engine.report.survey import Survey
from operators.arrays import NOISE
from operators.counts import count
from operators.metrics.group_scores import MIN_ROWS, compare_groups, few_rows_text, worst_of
from operators.report import RowStatistics
from operators.report.text import percent, short

MAX_NAMED = 5
"""Classes that one sentence names."""
DROPPED = "dropped"
"""Split of the rows that are in no training, validation or test."""
MAX_NAME = 40
"""Characters of a class's name in a sentence."""


@dataclass(frozen=True)
class GroupRow:
    """One inferred group of one class, or the class's noise (``group`` -1)."""

    y: int
    group: int
    class_name: str
    stat: RowStatistics
    share: float
    """Share of all valid rows."""
    splits: dict[str, int]
    outliers: int
    rank: int
    """Position among all groups, which decides the colour."""
    clearly_worse: bool
    """Whether the whole interval of its accuracy lies below the accuracy over all rows. Never true of
    a group with fewer than ``MIN_ROWS`` rows."""

    @property
    def is_noise(self) -> bool:
        """Return whether these rows are in no group."""
        return self.group == NOISE

    @property
    def class_text(self) -> str:
        """Name of the class in a sentence: cut if it is long, in quotes if it is blank."""
        return short(self.class_name, MAX_NAME) if self.class_name.strip() else repr(self.class_name)

    @property
    def label(self) -> str:
        """Name in the report's sentences."""
        return f"the noise of class {self.class_text}" if self.is_noise else f"group {self.group}"

    @property
    def sized_name(self) -> str:
        """Name in a sentence, with the class and the number of rows."""
        return f"{self.label} (class {self.class_text}, {_size(self.stat.rows, self.share)})"


@dataclass(frozen=True)
class WorstGroup:
    """The group on which the classifier is least accurate, or all small groups pooled.

    Attributes
    ----------
    members
        The group; where it is the pool, every group that has fewer than ``MIN_ROWS`` rows.
    stat
        Sums over the rows of all members.
    clearly_worse
        Whether the whole interval of its accuracy, which holds for all compared groups at once, lies below
        the accuracy over all rows.

    """

    members: tuple[GroupRow, ...]
    stat: RowStatistics
    clearly_worse: bool

    @property
    def pooled(self) -> bool:
        """Return whether it consists of several groups."""
        return len(self.members) > 1

    @property
    def share(self) -> float:
        """Share of all valid rows."""
        return sum(row.share for row in self.members)

    @property
    def name(self) -> str:
        """Name in a sentence, with the number of rows."""
        if not self.pooled:
            return self.members[0].sized_name
        named = first_of([str(row.group) for row in self.members], MAX_NAMED)
        size = _size(self.stat.rows, self.share)
        return f"the groups with fewer than {MIN_ROWS} rows taken together (groups {named}; {size})"


def _size(rows: int, share: float) -> str:
    return f"{count(rows, 'row')}, {percent(share)}"


def group_rows(found: Survey, classes: list[str]) -> list[GroupRow]:
    """List all groups by class and number, noise last in its class."""
    everything = found.everything
    stats = found.total(lambda key: (key.y, key.group))
    splits: dict[tuple[int | None, int | None], dict[str, int]] = defaultdict(dict)
    for (y, group, split), part in found.total(lambda key: (key.y, key.group, key.split)).items():
        splits[y, group][str(split)] = part.rows
    marked = found.total(lambda key: (key.y, key.group, key.is_outlier))
    rows: list[GroupRow] = []
    n_groups = 0
    for y, group in sorted(stats, key=lambda pair: (pair[0] or 0, pair[1] == NOISE, pair[1] or 0)):
        stat = stats[y, group]
        assigned, n_outliers = splits[y, group], marked.get((y, group, True), RowStatistics()).rows
        y, group = int(y or 0), int(group if group is not None else NOISE)
        rows.append(
            GroupRow(
                y=y,
                group=group,
                class_name=classes[y],
                stat=stat,
                share=stat.rows / max(everything.rows, 1),
                splits=assigned,
                outliers=n_outliers,
                rank=n_groups,
                clearly_worse=stat.interval[1] < everything.accuracy
                and (group == NOISE or stat.rows >= MIN_ROWS),
            )
        )
        n_groups += not rows[-1].is_noise
    return rows


def worst_group(rows: list[GroupRow]) -> WorstGroup | None:
    """Return the group with the lowest accuracy, the larger one of ties. Noise is not a group.

    Groups with fewer than ``MIN_ROWS`` rows are compared as one, since the accuracy of a few rows is mostly
    chance. None if fewer than two are left to compare: no predictions, one group, or all others too small.
    """
    known = {
        (row.y, row.group): row for row in rows if not row.is_noise and not math.isnan(row.stat.accuracy)
    }
    compared = compare_groups(
        {key: row.stat.rows for key, row in known.items()},
        {key: row.stat.right for key, row in known.items()},
    )
    worst = worst_of(compared)
    if worst is None or len(compared) < 2:
        return None
    members = tuple(known[key] for key in worst.members)
    return WorstGroup(
        members, sum((row.stat for row in members), RowStatistics()), worst.high < _overall(rows)
    )


def group_to_inspect(rows: list[GroupRow]) -> GroupRow | None:
    """Return the group or noise with the lowest accuracy that is not chance, the larger one of ties.

    Where there is none, that of :func:`worst_group`; of pooled groups the least accurate one. A group that is
    a whole class is none to inspect: its rows have their class in common.
    """
    divided = is_split(rows)
    low = [row for row in rows if row.clearly_worse and (divided or row.is_noise)]
    worst = worst_group(rows) if divided else None
    low = low or list(worst.members if worst else ())
    return min(low, key=lambda row: (row.stat.accuracy, -row.stat.rows), default=None)


def _overall(rows: list[GroupRow]) -> float:
    """Return the accuracy over all rows, noise included."""
    return sum(row.stat.right for row in rows) / max(sum(row.stat.rows for row in rows), 1)


def is_split(rows: list[GroupRow]) -> bool:
    """Return whether a class has several groups. Noise is not a group."""
    classes = [row.y for row in rows if not row.is_noise]
    return len(set(classes)) < len(classes)


def summary_sentences(rows: list[GroupRow], quarantined: int, oracle: Sequence[str] = ()) -> list[str]:
    """Summarise the table of groups; each item is one or two sentences.

    Parameters
    ----------
    rows
        The table of groups. Classes without a valid row do not occur in it, and are not counted.
    quarantined
        Number of rows that could not be used.
    oracle
        Truth columns that the groups were read from; empty where they were inferred.
    """
    total = sum(row.stat.rows for row in rows)
    groups = [row for row in rows if not row.is_noise]
    n_groups = len({row.group for row in groups})  # an oracle's group may lie in several classes
    texts = [
        f"{count(total, 'row')} in {count(len({row.y for row in rows}), 'class')}; "
        f"{count(n_groups, 'group')} {'was' if n_groups == 1 else 'were'} "
        f"{f'read from {column_names(oracle)} (oracle: the truth, not inferred)' if oracle else 'inferred'}."
    ]
    if not is_split(rows):
        reason = (
            ""
            if oracle
            else ": either the classifier treats the rows of each class alike, or the rows that it "
            "treats otherwise are too few for a group, or nothing tells them clearly enough"
        )
        texts.append(f"No class was split into several groups{reason}.")
    texts += accuracy_sentences(rows)
    texts += noise_sentences(rows)
    if quarantined:
        texts.append(
            f"{count(quarantined, 'row')} could not be used and {'is' if quarantined == 1 else 'are'} "
            "quarantined: published with split = dropped, and not counted below."
        )
    return texts


def column_names(names: Sequence[str]) -> str:
    """Return ``the column 'a'`` or ``the columns 'a', 'b'``."""
    return f"the column{'s' if len(names) > 1 else ''} {', '.join(map(repr, names))}"


def accuracy_sentences(rows: list[GroupRow]) -> list[str]:
    """Say on which group the classifier is worst, and whether that can be chance."""
    groups = [row for row in rows if not row.is_noise]
    worst = worst_group(rows)
    if worst is None:
        return _without_worst_group(groups)
    against = f"{percent(worst.stat.accuracy)}, against {percent(_overall(rows))} over all rows"
    small_groups = [] if worst.pooled else _small_groups(groups)
    whole = not worst.pooled and sum(row.y == worst.members[0].y for row in groups) == 1
    which = f"a whole class, {worst.members[0].class_text}" if whole else worst.name
    if not worst.clearly_worse:
        text = f"No group stands out. The classifier has its lowest accuracy on {which}: {against}."
        return [text, *small_groups]
    if whole:
        why = "this class was not split" if is_split(rows) else "no class was split"
        text = (
            f"The classifier has its lowest accuracy on {which}: {against}. As {why}, this does not "
            "tell whether the class is rare, or hard to tell, or some of its rows break a shortcut."
        )
        return [text, *small_groups]
    smallest = min(groups, key=lambda g: g.stat.rows) in worst.members
    which = f"the smallest group, {worst.name}" if smallest and not worst.pooled else worst.name
    advice = " A model trained on all rows alike may fail on these rows." if is_split(rows) else ""
    return [f"The classifier has its lowest accuracy on {which}: {against}.{advice}", *small_groups]


def _without_worst_group(groups: list[GroupRow]) -> list[str]:
    """Say why no group is called the worst; nothing without predictions or with at most one group."""
    if len(groups) < 2 or any(math.isnan(row.stat.accuracy) for row in groups):
        return []
    large = [row for row in groups if row.stat.rows >= MIN_ROWS]
    if not large:
        few = f"Every group has fewer than {MIN_ROWS} rows, too few to say on which the classifier is worst."
        return [few]
    only = (
        f"Only {large[0].sized_name} has at least {MIN_ROWS} rows, so that there is no other group to "
        "compare its accuracy with."
    )
    return [only, *_small_groups(groups)]


def _small_groups(groups: list[GroupRow]) -> list[str]:
    """Return a sentence that names the groups that are pooled or not compared; none without such groups."""
    rows = {f"group {row.group} of class {row.class_text}": row.stat for row in groups}
    right = {name: f"{round(stat.right):,} right" for name, stat in rows.items()}
    text = few_rows_text({name: stat.rows for name, stat in rows.items()}, details=right)
    return [f"{text[0].upper()}{text[1:]}."] if text else []


def noise_sentences(rows: list[GroupRow]) -> list[str]:
    """Say how many rows are in no group or marked as outliers, and where that needs attention."""
    noise_rows = [row for row in rows if row.is_noise]
    total = sum(row.stat.rows for row in rows)
    texts = [noise_and_outliers(sum(r.stat.rows for r in noise_rows), sum(r.outliers for r in rows), total)]
    sizes = {y: sum(row.stat.rows for row in rows if row.y == y) for y in {row.y for row in rows}}
    mostly = [row for row in noise_rows if 2 * row.stat.rows > sizes[row.y]]
    if mostly:
        names = [f"{row.class_text} ({row.stat.rows:,} of {sizes[row.y]:,} rows)" for row in mostly]
        texts.append(
            f"More than half of class {', '.join(names[:MAX_NAMED])} is in no group: its groups mean little."
        )
    low = sorted((row for row in noise_rows if row.clearly_worse), key=lambda row: row.stat.accuracy)
    if low:
        names = [f"{row.class_text} (accuracy {percent(row.stat.accuracy)})" for row in low]
        texts.append(
            f"The classifier is also poor on the rows in no group of class {', '.join(names[:MAX_NAMED])}. "
            "They need not be corrupt: a minority may be among them. Look at them before you drop them."
        )
    return [*texts, *_mostly_marked(rows)]


def _mostly_marked(rows: list[GroupRow]) -> list[str]:
    """Name groups most of whose rows are marked as outliers: their right rows may be marked with them."""
    groups = [row for row in rows if not row.is_noise and 2 * row.outliers > row.stat.rows >= MIN_ROWS]
    if not groups:
        return []
    names = [
        f"group {row.group} of class {row.class_text} ({row.outliers:,} of {row.stat.rows:,})"
        for row in groups
    ]
    return [
        f"Most rows are marked as outliers in {first_of(names, MAX_NAMED)}. Right rows that are as rare as "
        "wrong labels may be marked with them: look at these rows before you leave them out."
    ]


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


@dataclass(frozen=True)
class MarkedRows:
    """The valid rows whose ``is_outlier`` is true."""

    rows: int
    left_out: bool
    """Whether training leaves all of them out: they are ``dropped``, or their weight is 0."""
    weight: float
    """Their share of the weight of all rows, from 0 to 1."""


def marked_rows(found: Survey) -> MarkedRows:
    """Count the rows that are marked as outliers. Quarantined rows, which are marked too, do not count."""
    marked = {key: stat for key, stat in found.cells.items() if key.is_outlier}
    left_out = all(stat.weight == 0 or key.split == DROPPED for key, stat in marked.items())
    weight = sum(stat.weight for stat in marked.values()) / max(found.everything.weight, 1e-9)
    return MarkedRows(sum(stat.rows for stat in marked.values()), left_out, weight)
