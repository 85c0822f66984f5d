"""Groups by a suspected or named shortcut: in each class the rows that follow it, and those that break it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
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
from operators.groups.base import GroupsBase, apply_by_class
from operators.groups.params import CueGroupsParams
from operators.groups.small_groups import least_rows
from operators.groups.state import number_groups, read_group_record, write_group_record

Breaks = Callable[[pa.Table], npt.NDArray[np.bool_]]
FOLLOWS, BREAKS = 0, 1
BLOCK_VALUES = 4_000_000
STATE_FILES = ("cues.json", "cues.npz")


class ByCue(GroupsBase[CueGroupsParams]):
    """One or two groups per class: rows that follow the shortcut of the operator ``cues``, and rows that
    break it.

    A class is one group if ``cues`` found no shortcut, or if a group would be too small.
    """

    version = 2
    cost = Cost(4.85, 3.70, 91)
    Params: ClassVar[type[OperatorParams]] = CueGroupsParams
    uses: tuple[str, ...] = ("ingest", "cues")

    @property
    def requires(self) -> tuple[str, ...]:
        """Return the required columns: features and labels."""
        return FEATURES, LABEL

    def fit(self, context: Context, executor: Executor) -> dict[str, float]:
        """Count the rows of each class that break the shortcut, and keep a copy of the state of ``cues``.

        Returns
        -------
        ``groups``, and ``minority_share``, the share of rows in the groups that break the shortcut.
        """
        for name in STATE_FILES:
            copyfile(context.states["cues"] / name, context.state / name)
        counts: Counter[tuple[int, int]] = Counter()
        shards = range(len(context.shards.shards))
        for found in executor.map(partial(_count, context.shards, context.state), shards):
            counts.update(found)
        records = number_groups([self._record(index, counts) for index in sorted({y for y, _ in counts})])
        write_group_record(context.state, self.params, classes=records)
        split = [record["class"] for record in records if record["n_groups"] == 2]
        minority, total = sum(counts[c, BREAKS] for c in split), sum(counts.values())
        return {
            "groups": float(sum(record["n_groups"] for record in records)),
            "minority_share": minority / total if total else 0.0,
        }

    def open(self, context: Context) -> Apply:
        """Return a function that groups the rows of a table, also rows that ``fit`` has not seen."""
        records = read_group_record(context.state)["classes"]
        split = {record["class"] for record in records if record["n_groups"] == 2}
        breaks = breaks_shortcut(context.state)

        def label(index: int, rows: pa.Table) -> Labels:
            if index not in split:
                return np.zeros(rows.num_rows, np.int32)
            return breaks(rows).astype(np.int32)

        return apply_by_class(
            {record["class"]: record["offset"] for record in records}, label, None, context.state
        )

    def _record(self, index: int, counts: Counter[tuple[int, int]]) -> dict[str, Any]:
        sizes = [counts[index, side] for side in (FOLLOWS, BREAKS)]
        # An empty part is not a group, even if 0 rows are required.
        least = max(1.0, least_rows(sum(sizes), self.params.min_rows, self.params.min_share))
        return {"class": index, "n_groups": 2 if min(sizes) >= least else 1}


def breaks_shortcut(folder: Path) -> Breaks:
    """Return a function from rows to whether each breaks the shortcut (n,), by the state of ``cues``.

    ``operators.cues.row_weights.breaks`` defines it. Without a shortcut, no row breaks it.
    """
    from operators.cues.row_weights import breaks
    from operators.cues.serialise import load_state

    state = load_state(folder)
    rows = max(BLOCK_VALUES // max(len(state.scaler.mean), 1), 1)

    def find_breaks(table: pa.Table) -> npt.NDArray[np.bool_]:
        y = table.column(LABEL).to_numpy().astype(np.int64)
        known = ROW_ID in table.column_names
        ids = table.column(ROW_ID).to_numpy() if known else np.arange(table.num_rows)
        found = np.zeros(table.num_rows, np.bool_)
        for start in range(0, table.num_rows, rows):
            block = slice(start, start + rows)
            X = vectors_to_numpy(table.column(FEATURES).slice(start, rows))
            found[block] = breaks(state, X, y[block], ids[block])
        return found

    return find_breaks


def _count(reader: ShardReader, state: Path, shard: int) -> dict[tuple[int, int], int]:
    table = reader.read(shard, [FEATURES, LABEL])
    y, side = table.column(LABEL).to_numpy(), breaks_shortcut(state)(table).astype(int)
    return Counter(zip(y.tolist(), side.tolist(), strict=True))
