"""What `diff` costs for a batch of rows does not grow with the number of groups times the number of rows."""

import time

import numpy as np
import pyarrow as pa

from engine.runs import diff as diff_module
from engine.runs.diff import ChangeCounts
from engine.runs.row_pairs import RowBatch

ROWS = 6_000


def batch_of(groups: int) -> RowBatch:
    """Rows that all stay in their groups."""
    table = pa.table(
        {
            diff_module.GROUP: np.arange(ROWS, dtype=np.int32) % groups,
            diff_module.SPLIT: ["train"] * ROWS,
            diff_module.IS_OUTLIER: np.zeros(ROWS, bool),
            diff_module.WEIGHT: np.ones(ROWS),
            diff_module.DUPLICATE_OF: np.full(ROWS, -1),
            diff_module.ROW_ID: np.arange(ROWS),
            diff_module.FILE: ["f"] * ROWS,
            diff_module.ROW: np.arange(ROWS),
            diff_module.KEY: ["k"] * ROWS,
        }
    )
    none = table.slice(0, 0)
    return RowBatch(then=table, now=table, gone=none, new=none, rewritten=np.zeros(ROWS, bool))


def seconds(groups: int) -> tuple[float, ChangeCounts]:
    """Return the least time of three, and the counts."""
    batch, times = batch_of(groups), []
    for _ in range(3):
        counts, started = ChangeCounts(), time.process_time()
        diff_module._add(counts, batch, 1e-6)
        times.append(time.process_time() - started)
    return min(times), counts


def test_many_groups_cost_little_more_than_few() -> None:
    few, _ = seconds(10)
    many, counts = seconds(ROWS)
    assert many < 20 * few
    assert len(counts.groups) == ROWS


def test_the_example_of_a_change_is_its_first_row() -> None:
    _, counts = seconds(7)
    found = {key[1][0]: [one["row"] for one in kept] for key, kept in counts.examples.items()}
    assert found == {group: [group] for group in range(7)}
