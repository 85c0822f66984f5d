"""Groups by suspected or named shortcuts: in each class the rows that follow them, and those that break each.

A row that breaks several columns belongs to the first of them or, of three and more columns, to a group of
such rows, as where ``cues`` compares the groups.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from shutil import copyfile
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from operators.arrays import Floats, Integers, Labels
from operators.base import (
    FEATURES,
    LABEL,
    ROW_ID,
    Apply,
    Context,
    Cost,
    Executor,
    OperatorParams,
    ShardReader,
)
from operators.columns import vectors_to_numpy
from operators.counts import count
from operators.groups.base import GroupsBase, apply_by_class
from operators.groups.params import CueGroupsParams
from operators.groups.small_groups import least_rows
from operators.groups.state import class_names, number_groups, read_group_record, write_group_record

if TYPE_CHECKING:
    from operators.cues.state import CueState

Broken = Callable[[pa.Table], npt.NDArray[np.intp]]
FOLLOWS = 0
BLOCK_VALUES = 4_000_000
STATE_FILES = ("cues.json", "cues.npz")
WRONG_LABELS = "wrong_labels"
"""Key of the record that holds the share of wrong labels in each published group that has some."""
UNSPLIT = "unsplit"
"""Key of the record that holds the classes of one group in which rows break a shortcut: the name of each, its
rows that follow and that break it, and the rows that a group of it has at least."""
MAX_UNSPLIT = 5
"""Classes that are told of one by one."""
NOT_SPLIT = "break what `cues` balances, but no class is split into groups"
"""Part of the warning of a run, by which a training knows that the groups of a version are its classes."""


class ByCue(GroupsBase[CueGroupsParams]):
    """In each class a group of the rows that follow the shortcuts of the operator ``cues``, and one for each
    column, of those that break it; of three and more columns that the search found, without wrong labels, one
    more of the rows that break several.

    A class is one group if ``cues`` found no shortcut. Groups of rows that break a column and are too small
    are one group, and join the largest of the others where they are too small together.

    ``WRONG_LABELS`` of the record holds the share of the rows of each group whose labels are wrong, as far as
    ``cues`` has estimated it.
    """

    version = 6
    cost = Cost(4.85, 3.70, 91)
    Params: ClassVar[type[OperatorParams]] = CueGroupsParams
    uses: tuple[str, ...] = ("ingest", "cues")

    @property
    def requires(self) -> tuple[str, ...]:
        """Return the required columns: features and labels."""
        return FEATURES, LABEL

    def fit(self, context: Context, executor: Executor) -> dict[str, float]:
        """Count the rows of each part of a class, and keep a copy of the state of ``cues``.

        Returns
        -------
        ``groups``, ``minority_share``, the share of rows in the groups that break a column, and
        ``unsplit_rows``, the rows that break one in classes that have too few of them for a group.
        """
        for name in STATE_FILES:
            copyfile(context.states["cues"] / name, context.state / name)
        counts: Counter[tuple[int, int]] = Counter()
        wrong: dict[tuple[int, int], float] = {}
        shards = range(len(context.shards.shards))
        for found, sums in executor.map(partial(_count, context.shards, context.state), shards):
            counts.update(found)
            wrong |= {part: wrong.get(part, 0.0) + total for part, total in sums.items()}
        parts = count_parts(context.state)
        labels = sorted({y for y, _ in counts})
        records = number_groups([self._record(y, [counts[y, k] for k in range(parts)]) for y in labels])
        shares = wrong_by_group(records, counts, wrong)
        more: dict[str, Any] = {}
        if shares:
            more[WRONG_LABELS] = {str(group): share for group, share in shares.items()}
        split = {record["class"] for record in records if record["n_groups"] > 1}
        broken = Counter(dict.fromkeys(labels, 0))
        for (c, number), rows in counts.items():
            broken[c] += rows * (number != FOLLOWS)
        names = class_names(context.states["ingest"])
        more[UNSPLIT] = [
            self._unsplit(names[y], counts[y, FOLLOWS], broken[y])
            for y in labels
            if broken[y] and y not in split
        ]
        write_group_record(context.state, self.params, classes=records, **more)
        minority = sum(broken[c] for c in split)
        total = sum(counts.values())
        return {
            "groups": float(sum(record["n_groups"] for record in records)),
            "minority_share": minority / total if total else 0.0,
            "unsplit_rows": float(broken.total() - minority),
        }

    def warnings(self, metrics: Mapping[str, float], state: Callable[[], Path]) -> tuple[str, ...]:
        """Say so where rows break a shortcut, and their class has not enough of them for a group."""
        rows = int(metrics.get("unsplit_rows", 0))
        if not rows:
            return ()
        if metrics["minority_share"]:
            return unsplit_notes(read_group_record(state()))
        return (
            f"{count(rows, 'row')} {NOT_SPLIT}: a group has "
            f"{self.params.min_rows} rows of its class at least and {self.params.min_share:.1%} of them. "
            "Lower `min_rows` or `min_share` to tell them apart.",
        )

    def open(self, context: Context) -> Apply:
        """Return a function that groups the rows of a table, also rows that ``fit`` has not seen."""
        records = read_group_record(context.state)["classes"]
        group_of = {record["class"]: np.array(record["group_of"], np.int32) for record in records}
        broken = broken_column(context.state)

        def label(index: int, rows: pa.Table) -> Labels:
            if index not in group_of or not group_of[index].any():
                return np.zeros(rows.num_rows, np.int32)
            place: Labels = group_of[index][broken(rows)]
            return place

        return apply_by_class({record["class"]: record["offset"] for record in records}, label, None)

    def _record(self, index: int, sizes: Sequence[int]) -> dict[str, Any]:
        group_of = groups_of_parts(sizes, self._least(sum(sizes)))
        return {"class": index, "n_groups": max(group_of) + 1, "group_of": group_of}

    def _least(self, rows: int) -> float:
        """Return the rows of a group at least: one, since an empty part is none even if 0 are required."""
        return max(1.0, least_rows(rows, self.params.min_rows, self.params.min_share))

    def _unsplit(self, name: str, follow: int, broken: int) -> dict[str, Any]:
        """Return what is told of a class that is one group although rows break a shortcut."""
        least = math.ceil(self._least(follow + broken))
        setting = "min_rows" if least <= self.params.min_rows else "min_share"
        return {"class": name, "follow": follow, "broken": broken, "least": least, "setting": setting}


def unsplit_notes(record: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the sentence that names the classes whose rows that break a shortcut are no group, if any."""
    found = record.get(UNSPLIT, ())
    if not found:
        return ()
    several, limits = len(found) > 1, {one["least"] for one in found}
    named = [
        f"{one['broken']:,} of class {one['class']!r} beside {one['follow']:,} others"
        + (f" (a group has {one['least']:,} rows at least)" if len(limits) > 1 else "")
        for one in found[:MAX_UNSPLIT]
    ]
    more = len(found) - len(named)
    further = f", and those of {count(more, 'further class')}" if more > 0 else ""
    settings = " or ".join(f"`{name}`" for name in sorted({one["setting"] for one in found}))
    limit = f"A group has {limits.pop():,} rows at least. " if len(limits) == 1 else ""
    classes, them = ("these classes", "them") if several else ("the class", "it")
    return (
        f"Rows that break what `cues` balances are no group: {', '.join(named)}{further}. {limit}A lower "
        f"{settings} splits {classes}; until then the worst group may be hidden in {them}.",
    )


def wrong_by_group(
    records: Sequence[Mapping[str, Any]],
    rows: Mapping[tuple[int, int], int],
    wrong: Mapping[tuple[int, int], float],
) -> dict[int, float]:
    """Return the share of wrong labels in each published group that has some.

    Parameters
    ----------
    records
        Classes with ``offset`` and ``group_of``.
    rows, wrong
        By class and part: rows, and the expected number of wrong labels among them.

    """
    total: Counter[int] = Counter()
    sums: dict[int, float] = {}
    for record in records:
        for part, place in enumerate(record["group_of"]):
            key, group = (record["class"], part), record["offset"] + place
            total[group] += rows.get(key, 0)
            sums[group] = sums.get(group, 0.0) + wrong.get(key, 0.0)
    return {group: round(share, 4) for group in sums if (share := sums[group] / max(total[group], 1)) >= 1e-4}


def groups_of_parts(sizes: Sequence[int], least: float) -> list[int]:
    """Return the group of each part of a class, numbered from 0 without gaps.

    Parameters
    ----------
    sizes
        Rows that follow the shortcuts, then those of each kind that breaks them, such as by column.
    least
        Rows of a group at least. All parts are one group where fewer follow the shortcuts, or break any.

    """
    if len(sizes) < 2 or min(sizes[0], sum(sizes[1:])) < least:
        return [0] * len(sizes)
    small = [number for number, rows in enumerate(sizes) if number and rows < least]
    large = [number for number, rows in enumerate(sizes) if number and rows >= least]
    own = {number: place for place, number in enumerate([0, *large])}
    if sum(sizes[number] for number in small) >= least:
        rest = len(own)
    else:
        rest = own[max(large, key=lambda number: sizes[number])] if large else len(own)
    return [own.get(number, rest) for number in range(len(sizes))]


def count_parts(folder: Path) -> int:
    """Return how many parts a class may have: rows that follow the shortcuts, and kinds of others."""
    from operators.cues.serialise import load_state

    return 1 + load_state(folder).broken_parts


def broken_column(folder: Path) -> Broken:
    """Return a function from rows to the part of its class that each is in, (n,): 0 where it breaks nothing.

    The state of ``cues`` decides: ``operators.cues.row_weights.broken_column`` defines it. Without a shortcut
    it is 0.
    """
    from operators.cues.row_weights import broken_column
    from operators.cues.serialise import load_state

    return _by_block(load_state(folder), broken_column, np.intp)


def _wrong_labels(folder: Path) -> Callable[[pa.Table], Floats]:
    """Return a function from rows to the probability that the label of each is wrong, (n,), by ``cues``."""
    from operators.cues.row_weights import right_label
    from operators.cues.serialise import load_state

    def wrong(state: CueState, X: Floats, y: Integers, ids: Integers) -> Floats:
        right = right_label(state, X, y)
        return np.zeros(len(y)) if right is None else 1.0 - right

    state = load_state(folder)
    if state.right_labels is None:
        return lambda table: np.zeros(table.num_rows)
    return _by_block(state, wrong, np.float64)


def _by_block(
    state: CueState,
    measure: Callable[[CueState, Floats, Integers, Integers], npt.NDArray[Any]],
    kind: type[np.generic],
) -> Callable[[pa.Table], npt.NDArray[Any]]:
    """Return a function from rows to one value for each, (n,), which never holds the features of all."""
    rows = max(BLOCK_VALUES // max(len(state.scaler.mean), 1), 1)

    def measured(table: pa.Table) -> npt.NDArray[Any]:
        y = table.column(LABEL).to_numpy().astype(np.int64)
        known = ROW_ID in table.column_names
        ids = table.column(ROW_ID).to_numpy() if known else np.arange(table.num_rows)
        found: npt.NDArray[Any] = np.zeros(table.num_rows, kind)
        for start in range(0, table.num_rows, rows):
            block = slice(start, start + rows)
            X = vectors_to_numpy(table.column(FEATURES).slice(start, rows))
            found[block] = measure(state, X, y[block], ids[block])
        return found

    return measured


def _count(
    reader: ShardReader, state: Path, shard: int
) -> tuple[dict[tuple[int, int], int], dict[tuple[int, int], float]]:
    """Return the rows of each class and part in a shard, and the expected wrong labels among them."""
    table = reader.read(shard, [FEATURES, LABEL])
    y, part = table.column(LABEL).to_numpy(), broken_column(state)(table)
    keys = [*zip(y.tolist(), part.tolist(), strict=True)]
    wrong = _wrong_labels(state)(table)
    sums: dict[tuple[int, int], float] = {}
    for row in np.flatnonzero(wrong):
        sums[keys[row]] = sums.get(keys[row], 0.0) + float(wrong[row])
    return Counter(keys), sums
