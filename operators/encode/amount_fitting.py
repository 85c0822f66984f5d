"""A second pass of ``encode`` for columns of amounts, whose rule all rows have to decide first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import numpy as np

from operators.base import Context, Executor, ShardReader
from operators.encode.amounts import AmountRule
from operators.encode.column_use import ColumnUse
from operators.encode.numeric import read_numbers
from operators.encode.sketches import Histogram
from operators.encode.summary import NUMBER, ColumnSummary
from operators.ingest.kernel import FLOAT32_MAX


def read_amounts(
    summaries: Mapping[str, ColumnSummary],
    uses: Mapping[str, ColumnUse],
    missing: tuple[str, ...],
    context: Context,
    executor: Executor,
) -> dict[str, ColumnSummary]:
    """Return the summaries of the columns of amounts, with their numbers; texts that are none are missing.

    Parameters
    ----------
    summaries, uses : figures and use of every column.
    missing : texts that stand for a missing value.
    """
    rules = {
        name: AmountRule.from_json(use.parameters["rule"])
        for name, use in uses.items()
        if "rule" in use.parameters
    }
    if not rules:
        return {}
    found: dict[str, tuple[Histogram, int, int]] = {name: (Histogram.of([]), 0, 0) for name in rules}
    task = partial(_read_shard, context.shards, rules, missing)
    for shard in executor.map(task, range(len(context.shards.shards))):
        for name, (histogram, gaps, beyond) in shard.items():
            mine = found[name]
            found[name] = mine[0].merge(histogram), mine[1] + gaps, mine[2] + beyond
    return {
        name: replace(summaries[name], parsed={NUMBER: histogram}, missing=gaps, unusable=beyond)
        for name, (histogram, gaps, beyond) in found.items()
    }


def _read_shard(
    reader: ShardReader, rules: Mapping[str, AmountRule], missing: tuple[str, ...], shard: int
) -> dict[str, tuple[Histogram, int, int]]:
    """Return the usable numbers of each column in a shard, its rows without one, and those beyond float32."""
    table = reader.read_source(shard, [*rules])
    found = {}
    for name, rule in rules.items():
        values, _ = read_numbers(table[name], missing, rule)
        usable, gaps = np.abs(values) <= FLOAT32_MAX, np.isnan(values)
        found[name] = Histogram.of(values[usable]), int(gaps.sum()), int((~usable & ~gaps).sum())
    return found
