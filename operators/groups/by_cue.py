"""Groups by suspected or named shortcuts: in each class the rows that follow them, and those that break each.

A row that breaks several columns belongs to the first of them or, of three and more columns, to a group of
such rows, as where ``cues`` compares the groups.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from shutil import copyfile
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from operators.arrays import Labels
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
from operators.groups.state import number_groups, read_group_record, write_group_record

Broken = Callable[[pa.Table], npt.NDArray[np.intp]]
FOLLOWS = 0
BLOCK_VALUES = 4_000_000
STATE_FILES = ("cues.json", "cues.npz")
NOT_SPLIT = "break what `cues` balances, but no class is split into groups"
"""Part of the warning of a run, by which a training knows that the groups of a version are its classes."""


class ByCue(GroupsBase[CueGroupsParams]):
    """In each class a group of the rows that follow the shortcuts of the operator ``cues``, and one for each
    column, of those that break it; of three and more columns that the search found, without wrong labels, one
    more of the rows that break several.

    A class is one group if ``cues`` found no shortcut. Groups of rows that break a column and are too small
    are one group, and join the largest of the others where they are too small together.
    """

    version = 4
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
        shards = range(len(context.shards.shards))
        for found in executor.map(partial(_count, context.shards, context.state), shards):
            counts.update(found)
        parts = count_parts(context.state)
        labels = sorted({y for y, _ in counts})
        records = number_groups([self._record(y, [counts[y, k] for k in range(parts)]) for y in labels])
        write_group_record(context.state, self.params, classes=records)
        split = {record["class"] for record in records if record["n_groups"] > 1}
        broken = Counter(dict.fromkeys(labels, 0))
        for (c, number), rows in counts.items():
            broken[c] += rows * (number != FOLLOWS)
        minority = sum(broken[c] for c in split)
        total = sum(counts.values())
        return {
            "groups": float(sum(record["n_groups"] for record in records)),
            "minority_share": minority / total if total else 0.0,
            "unsplit_rows": float(broken.total() - minority),
        }

    def warnings(self, metrics: Mapping[str, float], state: Callable[[], Path]) -> tuple[str, ...]:
        """Say so where rows break a shortcut, and no class has enough of them for a group."""
        rows = int(metrics.get("unsplit_rows", 0))
        if not rows or metrics["minority_share"]:
            return ()
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
        # An empty part is not a group, even if 0 rows are required.
        least = max(1.0, least_rows(sum(sizes), self.params.min_rows, self.params.min_share))
        group_of = groups_of_parts(sizes, least)
        return {"class": index, "n_groups": max(group_of) + 1, "group_of": group_of}


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

    state = load_state(folder)
    rows = max(BLOCK_VALUES // max(len(state.scaler.mean), 1), 1)

    def find_broken(table: pa.Table) -> npt.NDArray[np.intp]:
        y = table.column(LABEL).to_numpy().astype(np.int64)
        known = ROW_ID in table.column_names
        ids = table.column(ROW_ID).to_numpy() if known else np.arange(table.num_rows)
        found = np.zeros(table.num_rows, np.intp)
        for start in range(0, table.num_rows, rows):
            block = slice(start, start + rows)
            X = vectors_to_numpy(table.column(FEATURES).slice(start, rows))
            found[block] = broken_column(state, X, y[block], ids[block])
        return found

    return find_broken


def _count(reader: ShardReader, state: Path, shard: int) -> dict[tuple[int, int], int]:
    table = reader.read(shard, [FEATURES, LABEL])
    y, side = table.column(LABEL).to_numpy(), broken_column(state)(table)
    return Counter(zip(y.tolist(), side.tolist(), strict=True))
